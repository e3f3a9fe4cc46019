/* Inlines functions and their gradients; turns If, Case, While and For into the primitives that the
 * executor runs [WP 4.4; CF 3] (inline.h).
 *
 *   calls of the graph ─► stack ─► replace one by its body's nodes, push the calls among these ─►
 *   until the stack is empty; then effects become targets, every edge from a call becomes one from
 *   what replaces it, and calls are removed
 *
 * Edges change only after all bodies are made: a call's inputs and outputs may be other calls,
 * replaced or not. One sweep at the end follows the replacements, whatever their order. */
#include <stdlib.h>

#include "common/graph/graph_controls.h"
#include "master/compile/compilation.h"
#include "master/compile/inline/inline.h"

bool node_is_call(const struct node *node) {
    if (node_is_op(node, "RemoteCall") && (node->n_data == 0 || !const_behind(node->inputs[0].src)))
        return false; /* its kernel calls the function */
    return node_uses_functions(node) &&
           (!op_signature_is_known(node->op) || inline_rule_find(node->op_name) != NULL);
}

/* ---- what can be called ---- */

// clang-format off
static const struct inline_rule rules[] = {
    {"PartitionedCall", lower_call},
    {"StatefulPartitionedCall", lower_call},
    {"If", lower_if, .is_control_flow = true},
    {"StatelessIf", lower_if, .is_control_flow = true},
    {"Case", lower_case, .is_control_flow = true},
    {"StatelessCase", lower_case, .is_control_flow = true},
    {"While", lower_while, .is_control_flow = true},
    {"StatelessWhile", lower_while, .is_control_flow = true},
    {"For", lower_for, .is_control_flow = true},
    {"RemoteCall", lower_remote_call},
    {"SymbolicGradient", lower_symbolic_gradient},
};
// clang-format on

const struct inline_rule *inline_rule_find(const char *op) {
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (strcmp(rules[i].op, op) == 0)
            return &rules[i];
    return NULL;
}

/* ---- the calls to do ---- */

void inliner_push(struct inliner *in, struct inline_call call) {
    if (in->n_calls == in->calls_capacity) {
        in->calls_capacity = in->calls_capacity ? 2 * in->calls_capacity : 16;
        in->calls = xreallocarray(in->calls, (size_t)in->calls_capacity, sizeof(in->calls[0]));
    }
    in->calls[in->n_calls++] = call;
}

static bool has_control_flow(const struct graph *graph) {
    for (int id = 0; id < graph->n_nodes; id++)
        if (!graph->nodes[id]->is_removed &&
            (node_is_switch(graph->nodes[id]) || node_is_frame_op(graph->nodes[id])))
            return true;
    return false;
}

/* By node id: does it depend on a Switch or a loop that the client built by hand? */
static struct status *find_below_control_flow(const struct graph *graph, bool *is_below) {
    struct node **order;
    if (!has_control_flow(graph))
        return NULL;
    TRY(graph_topological_order(graph, &order));
    for (int i = 0; i < graph->n_live; i++) {
        const struct node *node = order[i];
        bool *below = &is_below[node->id];
        *below = node_is_switch(node) || node_is_frame_op(node);
        for (int k = 0; k < node->n_inputs && !*below; k++)
            *below = is_below[node->inputs[k].src->id];
    }
    free(order);
    return NULL;
}

static struct status *find_calls(struct inliner *in) {
    bool *is_below = xcalloc((size_t)in->graph->n_nodes + 1, sizeof(*is_below));
    for (int id = in->graph->n_nodes - 1; id >= 0; id--)
        if (!in->graph->nodes[id]->is_removed && node_is_call(in->graph->nodes[id]))
            inliner_push(in, (struct inline_call){.node = in->graph->nodes[id]});
    struct status *st = in->n_calls > 0 ? find_below_control_flow(in->graph, is_below) : NULL;
    for (int i = 0; i < in->n_calls; i++)
        in->calls[i].inputs_decide = is_below[in->calls[i].node->id];
    free(is_below);
    return st;
}

/* For a call within what TensorFlow lowers: its effects happen if an output is needed, so the
 * outputs wait for them. */
static struct status *hold_outputs(struct inliner *in, const struct inline_call *call,
                                   struct replacement *replacement) {
    if (!call->is_in_lowered || replacement->n_effects == 0 || inline_is_lowered(call))
        return NULL;
    for (int i = 0; i < call->node->n_outputs; i++) {
        struct node *held;
        TRY(inline_identity(in, call, "held", replacement->outputs[i], replacement->done, &held));
        replacement->outputs[i] = (struct node_input){held, 0};
    }
    return NULL;
}

static struct status *lower(struct inliner *in, const struct inline_call *call) {
    const struct inline_rule *rule =
        op_signature_is_known(call->node->op) ? inline_rule_find(call->node->op_name) : NULL;
    struct replacement *replacement = arena_new(&in->c->arena, struct replacement);
    int id = call->node->id;
    TRY(rule ? rule->lower(in, call, replacement) : lower_call(in, call, replacement));
    TRY(hold_outputs(in, call, replacement));
    if (id >= in->replaced_capacity) {
        int capacity = MAX(2 * in->replaced_capacity, in->graph->n_nodes);
        in->replaced = xreallocarray(in->replaced, (size_t)capacity, sizeof(in->replaced[0]));
        memset(in->replaced + in->replaced_capacity, 0,
               (size_t)(capacity - in->replaced_capacity) * sizeof(in->replaced[0]));
        in->replaced_capacity = capacity;
    }
    in->replaced[id] = replacement;
    in->n_replaced++;
    return NULL;
}

/* ---- putting the results in place ---- */

struct replacement *inliner_replacement(const struct inliner *in, const struct node *node) {
    return node->id < in->replaced_capacity ? in->replaced[node->id] : NULL;
}

struct node_input replacement_follow(const struct replacement *replacement, int index) {
    return index == CONTROL_EDGE ? (struct node_input){replacement->done, CONTROL_EDGE}
                                 : replacement->outputs[index];
}

/* The path is shortened, so that a chain of calls that
 * return their inputs is walked once. Returns NULL for bodies in which two such calls feed each
 * other. */
struct status *inliner_resolve(struct inliner *in, struct node_input *input) {
    struct node_input end = *input;
    struct replacement *replacement;
    for (int n = 0; (replacement = inliner_replacement(in, end.src)) != NULL; n++) {
        if (n > in->n_replaced)
            return status_invalid("Nodes in a cycle: '%s' waits for itself\n\t [[{{node %s}}]]",
                                  input->src->name, input->src->name);
        end = replacement_follow(replacement, end.index);
    }
    for (struct node_input at = *input, next;
         (replacement = inliner_replacement(in, at.src)) != NULL; at = next) {
        next = replacement_follow(replacement, at.index);
        if (at.index != CONTROL_EDGE)
            replacement->outputs[at.index] = end;
    }
    *input = end;
    return NULL;
}

/* `last_seen`, by node id: 1 + the consumer that had it as a control input last. */
static struct status *rewire(struct inliner *in, struct node *node, int *last_seen) {
    for (int i = 0; i < node->n_inputs; i++)
        if (inliner_replacement(in, node->inputs[i].src))
            TRY(inliner_resolve(in, &node->inputs[i]));
    node_drop_doubled_controls(node, last_seen);
    return NULL;
}

static struct status *rewire_from(struct inliner *in, int first_id) {
    struct status *st = NULL;
    int *last_seen = xcalloc((size_t)in->graph->n_nodes + 1, sizeof(*last_seen));
    for (int id = first_id; id < in->graph->n_nodes && !st; id++)
        if (!in->graph->nodes[id]->is_removed && !inliner_replacement(in, in->graph->nodes[id]))
            st = rewire(in, in->graph->nodes[id], last_seen);
    free(last_seen);
    return st;
}

static bool is_control_flow(const struct node *node) {
    const struct inline_rule *rule =
        op_signature_is_known(node->op) ? inline_rule_find(node->op_name) : NULL;
    return rule && rule->is_control_flow;
}

struct status *inliner_lower_control_flow(struct inliner *in, int n_calls, int first_id,
                                          bool *ret_any) {
    *ret_any = false;
    for (int i = n_calls; i < in->n_calls;) {
        struct inline_call call = in->calls[i];
        if (!is_control_flow(call.node)) {
            i++;
            continue;
        }
        in->calls[i] = in->calls[--in->n_calls];
        TRY(lower(in, &call)); /* pushes the calls of its bodies */
        *ret_any = true;
    }
    return *ret_any ? rewire_from(in, first_id) : NULL;
}

/* ---- the pass ---- */

static struct status *inline_all(struct inliner *in) {
    TRY(find_calls(in));
    int n_top_nodes = in->graph->n_nodes;
    while (in->n_calls > 0) {
        struct inline_call call = in->calls[--in->n_calls];
        TRY(lower(in, &call));
    }
    if (in->n_replaced == 0)
        return NULL;
    TRY(inliner_settle_targets(in, n_top_nodes));
    TRY(rewire_from(in, 0));
    for (int id = 0; id < in->graph->n_nodes; id++)
        if (inliner_replacement(in, in->graph->nodes[id]))
            graph_remove_node(in->graph, in->graph->nodes[id]);
    return NULL;
}

void graph_drop_library(struct graph *graph) {
    strmap_fini(&graph->functions);
    strmap_init(&graph->functions);
    graph->n_gradient_defs = 0;
}

/* The rest of the library is for nodes that name functions (pass_functions.c). */
static void drop_library(struct graph *graph) {
    for (int id = 0; id < graph->n_nodes; id++)
        if (!graph->nodes[id]->is_removed && node_uses_functions(graph->nodes[id]))
            return;
    graph_drop_library(graph);
}

struct status *pass_inline(struct compilation *c, bool *ret_changed) {
    struct inliner in = {.c = c, .graph = &c->graph};
    size_t cursor = 0;
    struct span name;
    void *body;
    graph_limits_default(&in.limits);
    strmap_init(&in.bodies);
    strmap_init(&in.gradients);
    strmap_init(&in.choices);
    struct status *st = inline_all(&in);
    while (strmap_next(&in.bodies, &cursor, &name, &body))
        function_body_fini(body);
    strmap_fini(&in.bodies);
    strmap_fini(&in.gradients);
    strmap_fini(&in.choices);
    free(in.calls);
    free(in.replaced);
    TRY(st);
    *ret_changed = in.n_replaced > 0;
    drop_library(&c->graph);
    bool is_pruned;
    return in.n_replaced > 0 ? pass_prune(c, &is_pruned) : NULL;
}
