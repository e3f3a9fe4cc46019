/* Turns While, StatelessWhile and For into the primitives of loop frames [WP 4.4; CF 3.2, 4.1]
 * (inline.h).
 *
 *                      ┌─────────────────── NextIteration ◄── body ◄─┐
 *                      ▼                                             │ true
 *   x ──► Enter ──► Merge ──► cond ──► LoopCond ──► Switch ──────────┤
 *                      └──────────────────────────────▲              └ false ──► Exit ──► output
 *   c ──► Enter (constant) ──► cond, body
 *
 * An input that the body returns unchanged (a captured tensor, a handle) is the same in every
 * iteration. It gets a constant Enter, without Merge, Switch and NextIteration, and its readers are
 * loose. If all inputs are constant, or there are none, the loop gets a variable of its own.
 *
 * For(start, limit, delta, x) is a While over x. Its condition is the loop's own: a counter, which
 * is a variable after the inputs, has not reached its end (inline_for.c). Its body takes the
 * counter as first argument.
 *
 * Effects keep their order: every NextIteration waits for the effects of its iteration, LoopCond
 * for those of the condition. */
#include "master/compile/compilation.h"
#include "master/compile/inline/inline.h"

struct loop_var {
    struct node_input input;
    bool is_constant;
    struct node *enter, *merge, *by_cond, *exit; /* by_cond: the Switch */
};

struct loop {
    struct inliner *in;
    const struct inline_call *call;
    struct loop_var *vars; /* by input, then the loop's own variables */
    int n_vars, n_inputs;
    int first_input;              /* of the node: which input is the first variable */
    struct loop_var *counter;     /* of a For; NULL for a While */
    struct loop_var *end, *delta; /* constants of a For */
    int64_t parallel_iterations;
    struct node *entry;           /* in the frame around the loop */
    const struct loop_var *first; /* a variable that is not constant */
    struct body body, cond;
    struct node *loop_cond, *pivot;
};

/* ---- variables ---- */

/* Does the body return the i-th of the loop's inputs unchanged? The body of a For has the counter
 * before them. */
static bool is_handed_on(const struct function_body *body, int i, int n_before) {
    const struct function_input *value = &body->ret_values[i];
    return value->is_arg && value->position == i + n_before && value->index == 0;
}

static bool has_run_of_tensors(const struct op_arg_signature *args, int n_args) {
    for (int i = 0; i < n_args; i++)
        if (args[i].number_attr || args[i].type_list_attr)
            return true;
    return false;
}

/* Makes a variable for a loop without one: it starts when the loop does, and each iteration passes
 * it on. */
static struct status *add_own_var(struct loop *loop) {
    struct tensor zero = TENSOR_INIT;
    struct node *start;
    tensor_init_scalar_f32(&zero, 0);
    TRY(inline_node(loop->in, loop->call, "start", "Const", DT_INVALID, &start));
    node_set_attr_type(loop->in->graph, start, "dtype", DT_FLOAT);
    node_set_attr_tensor(loop->in->graph, start, "value", &zero);
    TRY(node_finish(loop->in->graph, start));
    if (loop->entry)
        node_add_control(loop->in->graph, start, loop->entry);
    loop->vars[loop->n_vars++] = (struct loop_var){.input = {start, 0}};
    return NULL;
}

/* Makes the values that a For counts with. */
static struct status *add_counter(struct loop *loop) {
    const struct node *node = loop->call->node;
    struct node_input end;
    struct node *checked;
    TRY(inline_for_bounds(loop->in, loop->call, loop->entry, &end, &checked));
    loop->entry = checked;
    loop->counter = &loop->vars[loop->n_vars++];
    loop->end = &loop->vars[loop->n_vars++];
    loop->delta = &loop->vars[loop->n_vars++];
    *loop->counter = (struct loop_var){.input = node->inputs[0]};
    *loop->end = (struct loop_var){.input = end, .is_constant = true};
    *loop->delta = (struct loop_var){.input = node->inputs[2], .is_constant = true};
    return NULL;
}

static struct status *find_vars(struct loop *loop, const struct function_body *body, bool is_for) {
    const struct node *node = loop->call->node;
    int n_constant = 0, n_before = is_for;
    loop->n_inputs = loop->n_vars = node->n_data - loop->first_input;
    bool is_plain = body->n_args == loop->n_inputs + n_before && body->n_rets == loop->n_inputs &&
                    !has_run_of_tensors(body->args, body->n_args) &&
                    !has_run_of_tensors(body->rets, body->n_rets);
    loop->vars = arena_array(&loop->in->c->arena, struct loop_var, loop->n_inputs + 3);
    for (int i = 0; i < loop->n_inputs; i++) {
        loop->vars[i].input = node->inputs[loop->first_input + i];
        loop->vars[i].is_constant = is_plain && is_handed_on(body, i, n_before);
        n_constant += loop->vars[i].is_constant;
    }
    if (is_for)
        TRY(add_counter(loop));
    else if (n_constant == node->n_data)
        TRY(add_own_var(loop));
    for (int i = loop->n_vars - 1; i >= 0; i--)
        if (!loop->vars[i].is_constant)
            loop->first = &loop->vars[i];
    return NULL;
}

/* ---- the frame ---- */

static struct status *add_node(struct loop *loop, const char *what, const char *op,
                               struct node_input input, struct node **ret) {
    TRY(inline_node(loop->in, loop->call, what, op,
                    strcmp(op, "LoopCond") == 0 ? DT_INVALID : endpoint_type(input), ret));
    node_add_input(loop->in->graph, *ret, input.src, input.index);
    return NULL;
}

static struct status *add_enter(struct loop *loop, struct loop_var *var) {
    struct graph *graph = loop->in->graph;
    TRY(add_node(loop, "enter", "Enter", var->input, &var->enter));
    node_set_attr_s(graph, var->enter, "frame_name", loop->call->node->name);
    node_set_attr_b(graph, var->enter, "is_constant", var->is_constant);
    node_set_attr_i(graph, var->enter, "parallel_iterations", loop->parallel_iterations);
    TRY(node_finish(graph, var->enter));
    if (loop->entry)
        node_add_control(graph, var->enter, loop->entry);
    if (var->is_constant)
        return NULL;
    TRY(inline_node(loop->in, loop->call, "merge", "Merge", endpoint_type(var->input),
                    &var->merge));
    node_set_attr_i(graph, var->merge, "N", 2);
    node_add_input(graph, var->merge, var->enter, 0);
    node_add_input(graph, var->merge, var->enter, 0); /* NextIteration, once there is one */
    return node_finish(graph, var->merge);
}

static struct node_input in_frame(const struct loop_var *var) {
    return (struct node_input){var->is_constant ? var->enter : var->merge, 0};
}

/* Of a For: compares the counter with its end. */
static struct status *compare_counter(struct loop *loop, struct node_input *ret) {
    struct node_input end = in_frame(loop->end);
    struct node *compared;
    TRY(add_node(loop, "counts", "NotEqual", in_frame(loop->counter), &compared));
    node_add_input(loop->in->graph, compared, end.src, end.index);
    *ret = (struct node_input){compared, 0};
    return node_finish(loop->in->graph, compared);
}

static struct status *call_cond(struct loop *loop, struct node_input *ret) {
    const struct attr_value *function = node_attr(loop->call->node, "cond");
    loop->cond = (struct body){
        .prefix = arena_printf(&loop->in->c->arena, "%s/cond", loop->call->node->name),
        .entry = loop->first->merge,
        .n_args = loop->n_inputs};
    loop->cond.args = arena_array(&loop->in->c->arena, struct body_arg, loop->n_inputs + 1);
    for (int i = 0; i < loop->n_inputs; i++)
        loop->cond.args[i] = (struct body_arg){.value = in_frame(&loop->vars[i]),
                                               .is_loose = loop->vars[i].is_constant};
    TRY(body_make(loop->in, loop->call, function->func, &loop->cond));
    if (loop->cond.n_outputs != 1)
        return status_invalid("Expected a single scalar return value from WhileOp cond, got %d "
                              "tensors: '%s'\n\t [[{{node %s}}]]",
                              loop->cond.n_outputs, function->func->name, loop->call->node->name);
    return inline_predicate(loop->in, loop->call, loop->cond.outputs[0], ret);
}

static struct status *make_cond(struct loop *loop) {
    struct graph *graph = loop->in->graph;
    struct node_input predicate;
    TRY(loop->counter ? compare_counter(loop, &predicate) : call_cond(loop, &predicate));
    TRY(add_node(loop, "loop_cond", "LoopCond", predicate, &loop->loop_cond));
    TRY(node_finish(graph, loop->loop_cond));
    for (int i = 0; i < loop->cond.n_effects; i++)
        node_add_control(graph, loop->loop_cond, loop->cond.effects[i]);
    return NULL;
}

static struct status *add_switch(struct loop *loop, struct loop_var *var) {
    struct graph *graph = loop->in->graph;
    if (var->is_constant)
        return NULL;
    TRY(add_node(loop, "switch", "Switch", (struct node_input){var->merge, 0}, &var->by_cond));
    node_add_input(graph, var->by_cond, loop->loop_cond, 0);
    TRY(node_finish(graph, var->by_cond));
    TRY(add_node(loop, "exit", "Exit", (struct node_input){var->by_cond, 0}, &var->exit));
    return node_finish(graph, var->exit);
}

static struct status *make_body(struct loop *loop) {
    const struct attr_value *function = node_attr(loop->call->node, "body");
    TRY(inline_identity(loop->in, loop->call, "pivot", (struct node_input){loop->first->by_cond, 1},
                        NULL, &loop->pivot));
    int n_before = loop->counter != NULL;
    loop->body = (struct body){
        .prefix = arena_printf(&loop->in->c->arena, "%s/body", loop->call->node->name),
        .entry = loop->pivot,
        .n_args = n_before + loop->n_inputs};
    loop->body.args = arena_array(&loop->in->c->arena, struct body_arg, loop->body.n_args + 1);
    if (loop->counter)
        loop->body.args[0].value = (struct node_input){loop->counter->by_cond, 1};
    for (int i = 0; i < loop->n_inputs; i++) {
        const struct loop_var *var = &loop->vars[i];
        struct node_input changing = {var->by_cond, 1}, constant = {var->enter, 0};
        loop->body.args[n_before + i] = (struct body_arg){
            .value = var->is_constant ? constant : changing, .is_loose = var->is_constant};
    }
    TRY(body_make(loop->in, loop->call, function->func, &loop->body));
    if (loop->body.n_outputs != loop->n_inputs)
        return status_invalid(
            "%s loop body returned %d arguments. Expected: %d\n\t [[{{node %s}}]]",
            loop->counter ? "For" : "While", loop->body.n_outputs, loop->n_inputs,
            loop->call->node->name);
    return body_check_outputs(loop->call, &loop->body);
}

/* Returns the value of a variable in the next iteration. The loop's own variable is passed on, a
 * counter is increased. */
static struct status *next_value(struct loop *loop, int i, struct node_input *ret) {
    struct loop_var *var = &loop->vars[i];
    struct node *sum;
    *ret = i < loop->n_inputs ? loop->body.outputs[i] : (struct node_input){var->by_cond, 1};
    if (var != loop->counter)
        return NULL;
    TRY(add_node(loop, "count", "AddV2", *ret, &sum));
    node_add_input(loop->in->graph, sum, loop->delta->enter, 0);
    *ret = (struct node_input){sum, 0};
    return node_finish(loop->in->graph, sum);
}

/* TensorFlow's For calls its body once for each number, one call after the other. Its While
 * continues with the values that are available. */
static bool is_sequential(const struct loop *loop) {
    for (int i = 0; loop->counter && i < loop->body.function->n_nodes; i++)
        if (loop->body.function->nodes[i].op->is_stateful)
            return true;
    return false;
}

/* Returns what an iteration waits for of the one before; NULL: nothing. It is joined once, not for
 * each variable. */
static struct status *join_body(struct loop *loop, struct node **ret) {
    const struct body *body = &loop->body;
    int n = body->n_effects, n_outputs = is_sequential(loop) ? body->n_outputs : 0;
    struct node **sources = arena_array(&loop->in->c->arena, struct node *, n + n_outputs + 1);
    for (int i = 0; i < n; i++)
        sources[i] = body->effects[i];
    for (int i = 0; i < n_outputs; i++)
        sources[n++] = body->outputs[i].src;
    *ret = n == 1 ? sources[0] : NULL;
    return n > 1 ? inline_join(loop->in, loop->call, "body_done", sources, n, ret) : NULL;
}

static struct status *close_loop(struct loop *loop) {
    struct graph *graph = loop->in->graph;
    struct node *after;
    TRY(join_body(loop, &after));
    for (int i = 0; i < loop->n_vars; i++) {
        struct loop_var *var = &loop->vars[i];
        struct node_input value;
        struct node *next;
        if (var->is_constant)
            continue;
        TRY(next_value(loop, i, &value));
        TRY(add_node(loop, "next", "NextIteration", value, &next));
        TRY(node_finish(graph, next));
        if (after)
            node_add_control(graph, next, after);
        node_set_input(var->merge, 1, next, 0);
    }
    return NULL;
}

/* An input that is the same in all iterations is the output unchanged, but only after the loop has
 * ended. */
static struct status *make_outputs(struct loop *loop, struct replacement *ret) {
    struct inliner *in = loop->in;
    ret->outputs = arena_array(&in->c->arena, struct node_input, loop->n_inputs + 1);
    TRY(inline_join(in, loop->call, "done", NULL, 0, &ret->done));
    for (int i = 0; i < loop->n_vars; i++) {
        struct loop_var *var = &loop->vars[i];
        struct node *out = var->exit;
        if (var->is_constant && i >= loop->n_inputs)
            continue;
        if (var->is_constant)
            TRY(inline_identity(in, loop->call, "output", var->input, loop->first->exit, &out));
        else
            node_add_control(in->graph, ret->done, out);
        if (i < loop->n_inputs)
            ret->outputs[i] = (struct node_input){out, 0};
    }
    if (loop->cond.n_effects + loop->body.n_effects > 0) {
        ret->effects = arena_array(&in->c->arena, struct node *, 1);
        ret->effects[ret->n_effects++] = loop->first->exit;
    }
    return NULL;
}

static struct status *check_function(const struct node *node, const char *name) {
    const struct attr_value *value = node_attr(node, name);
    if (!value || value->type != ATTR_FUNC || value->is_placeholder)
        return status_invalid("Node '%s' has no function '%s'\n\t [[{{node %s}}]]", node->name,
                              name, node->name);
    return NULL;
}

static struct status *lower_loop(struct loop *loop, bool is_for, struct replacement *ret) {
    const struct function_body *body;
    TRY(check_function(loop->call->node, "body"));
    TRY(inline_function(loop->in, loop->call, node_attr(loop->call->node, "body")->func->name,
                        &body));
    TRY(inline_entry(loop->in, loop->call, &loop->entry));
    TRY(find_vars(loop, body, is_for));
    for (int i = 0; i < loop->n_vars; i++)
        TRY(add_enter(loop, &loop->vars[i]));
    TRY(make_cond(loop));
    for (int i = 0; i < loop->n_vars; i++)
        TRY(add_switch(loop, &loop->vars[i]));
    TRY(make_body(loop));
    TRY(close_loop(loop));
    return make_outputs(loop, ret);
}

struct status *lower_while(struct inliner *in, const struct inline_call *call,
                           struct replacement *ret) {
    struct loop loop = {.in = in, .call = call};
    TRY(check_function(call->node, "cond"));
    TRY(node_get_i(call->node, "parallel_iterations", &loop.parallel_iterations));
    return lower_loop(&loop, false, ret);
}

/* For has no attr for the number of concurrent iterations, so it has the default of While. */
struct status *lower_for(struct inliner *in, const struct inline_call *call,
                         struct replacement *ret) {
    enum { PARALLEL_ITERATIONS = 10, BOUNDS = 3 };
    struct loop loop = {
        .in = in, .call = call, .first_input = BOUNDS, .parallel_iterations = PARALLEL_ITERATIONS};
    return lower_loop(&loop, true, ret);
}
