/* Makes targets of the effects that happen (inline.h). It runs when all bodies are made. Edges
 * begin at the calls until then, so a walk from the fetches and targets meets the calls that they
 * need:
 *
 *   fetch ──► … ──► call:0 ──► what replaces output 0 ──► …
 *                     └──► the call's effects: targets, and the walk goes on from them
 *
 * The first prune has kept more calls than that: a call may be an input of a conditional whose
 * branch does not use it. */
#include <stdlib.h>

#include "master/compile/compilation.h"
#include "master/compile/inline/inline.h"

struct node_list {
    struct node **nodes;
    int n, capacity;
};

static void list_add(struct node_list *list, struct node *node) {
    if (list->n == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 16;
        list->nodes = xreallocarray(list->nodes, (size_t)list->capacity, sizeof(list->nodes[0]));
    }
    list->nodes[list->n++] = node;
}

struct walk {
    struct inliner *in;
    int n_top_nodes;
    struct node_list targets, stack; /* stack: nodes whose inputs are to be visited */
    bool *is_reached;                /* by node id, of nodes that stay */
    bool *has_targets;               /* by node id, of top calls: its effects are targets */
};

/* Adds the effects of a call of the client's graph, and those of the calls among them. A call is in
 * one body only, so this is a tree. */
static void add_effects(struct walk *walk, const struct replacement *replacement) {
    struct node_list calls = {0};
    for (int i = 0; i < replacement->n_effects; i++)
        list_add(&calls, replacement->effects[i]);
    while (calls.n > 0) {
        struct node *node = calls.nodes[--calls.n];
        const struct replacement *inner = inliner_replacement(walk->in, node);
        if (!inner)
            list_add(&walk->targets, node);
        for (int i = 0; inner && i < inner->n_effects; i++)
            list_add(&calls, inner->effects[i]);
    }
    free(calls.nodes);
}

/* A value of what TensorFlow lowers needs none of its effects, other than those on its way. */
static bool needs_effects(const struct node *call, int index) {
    const struct inline_call of_client = {.node = (struct node *)(uintptr_t)call,
                                          .region = REGION_PRUNED};
    return index == CONTROL_EDGE || !inline_is_lowered(&of_client);
}

static void reach(struct walk *walk, struct node_input edge) {
    struct replacement *replacement;
    while ((replacement = inliner_replacement(walk->in, edge.src)) != NULL) {
        struct node *call = edge.src;
        int at = edge.index == CONTROL_EDGE ? call->n_outputs : edge.index;
        if (!replacement->is_reached)
            replacement->is_reached = arena_array(&walk->in->c->arena, bool, call->n_outputs + 1);
        if (replacement->is_reached[at])
            return;
        replacement->is_reached[at] = true;
        if (call->id < walk->n_top_nodes && !walk->has_targets[call->id] &&
            needs_effects(call, edge.index)) {
            walk->has_targets[call->id] = true;
            add_effects(walk, replacement);
        }
        edge = replacement_follow(replacement, edge.index);
    }
    if (walk->is_reached[edge.src->id])
        return;
    walk->is_reached[edge.src->id] = true;
    list_add(&walk->stack, edge.src);
}

/* Visits all that the targets and fetches need. Effects are added to the targets meanwhile. */
static void walk_back(struct walk *walk) {
    int n_visited = 0;
    while (n_visited < walk->targets.n || walk->stack.n > 0) {
        if (walk->stack.n == 0) {
            reach(walk, (struct node_input){walk->targets.nodes[n_visited++], CONTROL_EDGE});
            continue;
        }
        const struct node *node = walk->stack.nodes[--walk->stack.n];
        for (int i = 0; i < node->n_inputs; i++)
            reach(walk, node->inputs[i]);
    }
}

/* A target that is a call means all that the call does. */
static struct status *resolve_target(struct walk *walk, struct node *target) {
    const struct replacement *replacement = inliner_replacement(walk->in, target);
    struct node_input done = {target, CONTROL_EDGE};
    for (int i = 0; replacement && i < target->n_outputs; i++)
        reach(walk, (struct node_input){target, i});
    reach(walk, done);
    TRY(inliner_resolve(walk->in, &done));
    list_add(&walk->targets, done.src);
    return NULL;
}

/* Lets `done` of a conditional wait for those outputs that are needed anyway. */
static void wait_for_outputs(struct walk *walk) {
    struct graph *graph = walk->in->graph;
    for (int id = 0; id < graph->n_nodes; id++) {
        const struct node *call = graph->nodes[id];
        const struct replacement *replacement = inliner_replacement(walk->in, call);
        if (!replacement || !replacement->waits_for_needed || !replacement->is_reached)
            continue;
        for (int i = 0; i < call->n_outputs; i++)
            if (replacement->is_reached[i])
                node_add_control(graph, replacement->done, replacement->outputs[i].src);
    }
}

struct status *inliner_settle_targets(struct inliner *in, int n_top_nodes) {
    struct compilation *c = in->c;
    struct walk walk = {.in = in, .n_top_nodes = n_top_nodes};
    struct status *st = NULL;
    walk.is_reached = xcalloc((size_t)in->graph->n_nodes + 1, sizeof(*walk.is_reached));
    walk.has_targets = xcalloc((size_t)n_top_nodes + 1, sizeof(*walk.has_targets));
    for (int i = 0; i < c->n_targets && !st; i++)
        st = resolve_target(&walk, c->target_nodes[i]);
    for (int i = 0; i < c->signature->n_fetches && !st; i++)
        reach(&walk, (struct node_input){c->fetch_nodes[i], CONTROL_EDGE});
    if (!st)
        walk_back(&walk);
    wait_for_outputs(&walk);
    c->target_nodes = arena_memdup(&c->arena, walk.targets.nodes,
                                   (size_t)walk.targets.n * sizeof(walk.targets.nodes[0]));
    c->n_targets = walk.targets.n;
    free(walk.targets.nodes);
    free(walk.stack.nodes);
    free(walk.is_reached);
    free(walk.has_targets);
    return st;
}
