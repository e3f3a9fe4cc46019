/* Conditionals: If, Case and their stateless forms become Switch and Merge [WP 4.4; CF 3.2]
 * (inline.h).
 *
 *   If(p, x)                                      ┌ true  ► pivot ─ ─► entry of the then branch
 *                            p ──► Switch(p, p) ──┤
 *                                                 └ false ► pivot ─ ─► entry of the else branch
 *                            x ──► Switch(x, p) ──┬ true  ► then branch ──┐
 *                                                 └ false ► else branch ──┴──► Merge ──► output
 *
 * Case is the same with _SwitchN, whose index takes the last branch where it is out of range.
 * A node of each branch waits for all that the branch does in addition to its values; the Merge
 * of these is what `done` waits for, as the other branch's is dead. `done` waits for
 * the outputs, too: where TensorFlow lowers the conditional, for those that are needed anyway. */
#include "master/compile/compilation.h"
#include "master/compile/inline/inline.h"

struct branches {
    struct inliner *in;
    const struct inline_call *call;
    struct replacement *replacement;
    const struct attr_func **functions; /* by branch */
    int n_branches;
    bool is_case;
    struct node_input guard;    /* the predicate or index, as it is after the call's entry */
    struct node_input *inputs;  /* by branch and input: the call's inputs, switched */
    struct node_input *outputs; /* by output and branch: the inputs of the Merge */
    struct node_input *tokens;  /* by branch */
};

/* Returns the output of a Switch for a branch: the first of two is the false one. */
static int switch_output(const struct branches *b, int branch) {
    return b->is_case ? branch : 1 - branch;
}

static const char *branch_name(const struct branches *b, int branch, const char *what) {
    struct arena *arena = &b->in->c->arena;
    if (b->is_case)
        return arena_printf(arena, "branch_%d%s", branch, what);
    return arena_printf(arena, "%s%s", branch == 0 ? "then" : "else", what);
}

static struct status *add_switch(const struct branches *b, struct node_input value,
                                 struct node **ret) {
    TRY(inline_node(b->in, b->call, "switch", b->is_case ? "_SwitchN" : "Switch",
                    endpoint_type(value), ret));
    if (b->is_case)
        node_set_attr_i(b->in->graph, *ret, "num_outs", b->n_branches);
    if ((*ret)->device[0] == '\0')
        (*ret)->device = value.src->device; /* only what a branch reads leaves its device */
    node_add_input(b->in->graph, *ret, value.src, value.index);
    node_add_input(b->in->graph, *ret, b->guard.src, b->guard.index);
    return node_finish(b->in->graph, *ret);
}

static struct status *switch_inputs(struct branches *b) {
    const struct node *node = b->call->node;
    int n_inputs = node->n_data - 1;
    b->inputs = arena_array(&b->in->c->arena, struct node_input,
                            (size_t)b->n_branches * (size_t)n_inputs + 1);
    for (int i = 0; i < n_inputs; i++) {
        struct node *by_value;
        TRY(add_switch(b, node->inputs[i + 1], &by_value));
        for (int k = 0; k < b->n_branches; k++)
            b->inputs[k * n_inputs + i] = (struct node_input){by_value, switch_output(b, k)};
    }
    return NULL;
}

static struct status *make_branch(struct branches *b, int branch, struct node *pivots) {
    const struct node *node = b->call->node;
    struct arena *arena = &b->in->c->arena;
    struct body body = {.prefix =
                            arena_printf(arena, "%s/%s", node->name, branch_name(b, branch, "")),
                        .n_args = node->n_data - 1};
    struct node_input pivot = {pivots, switch_output(b, branch)};
    struct node *after;
    TRY(inline_identity(b->in, b->call, branch_name(b, branch, "_pivot"), pivot, NULL,
                        &body.entry));
    body.args = arena_array(arena, struct body_arg, body.n_args + 1);
    for (int i = 0; i < body.n_args; i++)
        body.args[i].value = b->inputs[branch * body.n_args + i];
    TRY(body_make(b->in, b->call, b->functions[branch], &body));
    TRY(body_check_outputs(b->call, &body));
    for (int i = 0; i < node->n_outputs; i++)
        b->outputs[i * b->n_branches + branch] = body.outputs[i];
    TRY(inline_identity(b->in, b->call, branch_name(b, branch, "_done"), pivot, NULL, &after));
    for (int i = 0; i < body.n_effects; i++) {
        node_add_control(b->in->graph, after, body.effects[i]);
        b->replacement->effects[b->replacement->n_effects++] = body.effects[i];
    }
    b->tokens[branch] = (struct node_input){after, 0};
    return NULL;
}

static struct status *add_merge(struct branches *b, const char *what,
                                const struct node_input *inputs, struct node **ret) {
    TRY(inline_node(b->in, b->call, what, "Merge", endpoint_type(inputs[0]), ret));
    node_set_attr_i(b->in->graph, *ret, "N", b->n_branches);
    for (int i = 0; i < b->n_branches; i++)
        node_add_input(b->in->graph, *ret, inputs[i].src, inputs[i].index);
    return node_finish(b->in->graph, *ret);
}

static struct status *merge_outputs(struct branches *b) {
    const struct node *node = b->call->node;
    struct node *merged;
    TRY(add_merge(b, "merge_done", b->tokens, &merged));
    TRY(inline_join(b->in, b->call, "done", &merged, 1, &b->replacement->done));
    b->replacement->waits_for_needed =
        inline_is_lowered(b->call) && b->call->region == REGION_PRUNED;
    for (int i = 0; i < node->n_outputs; i++) {
        TRY(add_merge(b, "merge", &b->outputs[i * b->n_branches], &merged));
        b->replacement->outputs[i] = (struct node_input){merged, 0};
        if (!b->replacement->waits_for_needed)
            node_add_control(b->in->graph, b->replacement->done, merged);
    }
    return NULL;
}

/* Counts the effects of all branches, to allocate space for them. */
static struct status *count_effects(struct branches *b, int *ret_n) {
    *ret_n = 0;
    for (int i = 0; i < b->n_branches; i++) {
        const struct function_body *body;
        TRY(inline_function(b->in, b->call, b->functions[i]->name, &body));
        *ret_n += body->n_effects;
    }
    return NULL;
}

static struct status *lower_branches(struct branches *b) {
    struct inliner *in = b->in;
    const struct node *node = b->call->node;
    struct node *entry, *pivots;
    int n_effects;
    TRY(count_effects(b, &n_effects));
    b->replacement->effects = arena_array(&in->c->arena, struct node *, n_effects + 1);
    b->replacement->outputs = arena_array(&in->c->arena, struct node_input, node->n_outputs + 1);
    b->outputs = arena_array(&in->c->arena, struct node_input,
                             (size_t)node->n_outputs * (size_t)b->n_branches + 1);
    b->tokens = arena_array(&in->c->arena, struct node_input, b->n_branches + 1);
    TRY(inline_entry(in, b->call, &entry));
    if (entry || dtype_is_ref((enum dtype)b->guard.src->out_types[b->guard.index])) {
        TRY(inline_identity(in, b->call, "guard", b->guard, entry, &b->guard.src));
        b->guard.index = 0;
    }
    TRY(add_switch(b, b->guard, &pivots));
    TRY(switch_inputs(b));
    for (int i = 0; i < b->n_branches; i++)
        TRY(make_branch(b, i, pivots));
    return merge_outputs(b);
}

static struct status *get_function(const struct node *node, const char *name,
                                   const struct attr_func **ret) {
    const struct attr_value *value = node_attr(node, name);
    if (!value || value->type != ATTR_FUNC || value->is_placeholder)
        return status_invalid("Node '%s' has no function '%s'\n\t [[{{node %s}}]]", node->name,
                              name, node->name);
    *ret = value->func;
    return NULL;
}

struct status *lower_if(struct inliner *in, const struct inline_call *call,
                        struct replacement *ret) {
    const struct attr_func *functions[2];
    struct branches b = {
        .in = in, .call = call, .replacement = ret, .functions = functions, .n_branches = 2};
    TRY(get_function(call->node, "then_branch", &functions[0]));
    TRY(get_function(call->node, "else_branch", &functions[1]));
    TRY(inline_predicate(in, call, call->node->inputs[0], &b.guard));
    return lower_branches(&b);
}

struct status *lower_case(struct inliner *in, const struct inline_call *call,
                          struct replacement *ret) {
    struct branches b = {.in = in,
                         .call = call,
                         .replacement = ret,
                         .is_case = true,
                         .guard = call->node->inputs[0]};
    const struct attr_value *values;
    TRY(node_get_list(call->node, "branches", &values, &b.n_branches));
    b.functions = arena_array(&in->c->arena, const struct attr_func *, b.n_branches + 1);
    for (int i = 0; i < b.n_branches; i++)
        b.functions[i] = values[i].func;
    return lower_branches(&b);
}
