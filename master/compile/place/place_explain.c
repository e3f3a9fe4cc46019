/* Says why each node of a step is where it is, for people. */
#include "common/graph/internal_ops.h"
#include "master/compile/compilation.h"
#include "master/compile/cost/cost_estimate.h"
#include "master/compile/place/place.h"
#include "master/compile/place/placed_graph.h"

static void add_request(const struct node *node, const struct place_group *group,
                        const struct device_info *device, struct str *out) {
    if (group->asked_by == node)
        str_addf(out, "the client asked for %s", group->request->text);
    else
        str_addf(out, "it belongs to %s, for which the client asked for %s", group->asked_by->name,
                 group->request->text);
    if (!device_name_matches(&group->request->name, &device->name))
        str_add(out, ", where it cannot be (soft placement)");
}

static void add_why(enum place_why why, struct str *out) {
    switch (why) {
    case WHY_LOOP:
        str_add(out, "its loop is there");
        return;
    case WHY_SHAPE:
        str_add(out, "it looks only at the shape of a tensor that is there");
        return;
    case WHY_WAITS:
        str_add(out, "most of what it waits for is there");
        return;
    case WHY_CONSUMERS:
        str_add(out, "what uses it is there");
        return;
    case WHY_DEFAULT:
        str_add(out, "nothing asks for another device than the default one");
        return;
    }
}

static void add_reason(const struct node *node, const struct place_group *group,
                       const struct device_info *device, enum place_why why, struct str *out) {
    if (group->pinned >= 0 && (group->pinned_by == node || group->n_members == 1))
        str_add(out, "its state is there");
    else if (group->pinned >= 0)
        str_addf(out, "the state of %s is there", group->pinned_by->name);
    else if (group->reason)
        str_add(out, group->reason);
    else if (group->request)
        add_request(node, group, device, out);
    else
        add_why(why, out);
}

void place_explain(struct placer *placer, struct node *const *order, const uint8_t *why,
                   struct str *out) {
    for (int i = 0; i < placer->graph->n_live; i++) {
        const struct node *node = order[i];
        const struct device_info *device = &placer->devices->devices[node->placed];
        if (node_is_internal(node))
            continue;
        str_addf(out, "%s: (%s): %s: ", node->name, node->op_name, device->full_name);
        add_reason(node, placer_group(placer, node), device, (enum place_why)why[node->id], out);
        str_add_char(out, '\n');
    }
}

/* ---- as a placed_graph ---- */

/* What the client calls the node. A fetch is called as what it fetches. */
static void name_node(const struct node *node, struct arena *arena, struct placed_node *ret) {
    static const char feed_prefix[] = "_feed_"; /* of pass_cut.c */
    const char *name = node_is_op(node, OP_FETCH) ? node->inputs[0].src->name : node->name;
    if (node_is_op(node, OP_FEED) && strncmp(name, feed_prefix, strlen(feed_prefix)) == 0)
        name += strlen(feed_prefix);
    ret->name = arena_strdup(arena, name);
    ret->inner_name = arena_strdup(arena, node->name);
    ret->op = node_is_op(node, OP_FETCH)  ? "fetch"
              : node_is_op(node, OP_FEED) ? "feed"
                                          : arena_strdup(arena, node->op_name);
}

static void link_inputs(const struct node *node, const int *index_of, struct arena *arena,
                        struct placed_node *ret) {
    ret->inputs = arena_array(arena, struct placed_input, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++)
        ret->inputs[ret->n_inputs++] =
            (struct placed_input){.node = index_of[node->inputs[i].src->id],
                                  .is_control = node->inputs[i].index == CONTROL_EDGE};
}

void place_report(struct compilation *c, struct placer *placer, struct node *const *order,
                  const uint8_t *why) {
    struct placed_graph *placed = c->options->placed_graph;
    int *index_of = arena_array(&c->arena, int, c->graph.n_nodes + 1);
    struct cost_estimates estimates;
    struct str reason = STR_INIT;
    cost_estimates_init(&estimates, c, &c->arena);
    placed->nodes = arena_array(&placed->arena, struct placed_node, c->graph.n_live + 1);
    for (int i = 0; i < c->graph.n_live; i++)
        index_of[order[i]->id] = i;
    for (int i = 0; i < c->graph.n_live; i++) {
        const struct node *node = order[i];
        const struct device_info *device = &c->devices->devices[node->placed];
        struct placed_node *to = &placed->nodes[placed->n_nodes++];
        str_clear(&reason);
        if (node_is_op(node, OP_FEED) || node_is_op(node, OP_FETCH))
            str_add(&reason, "values of clients are in the host's memory");
        else
            add_reason(node, placer_group(placer, node), device, (enum place_why)why[node->id],
                       &reason);
        name_node(node, &placed->arena, to);
        to->device = arena_strdup(&placed->arena, device->full_name);
        to->why = arena_strdup(&placed->arena, str_text(&reason));
        to->estimate_ns = node_is_op(node, OP_FEED) || node_is_op(node, OP_FETCH)
                              ? 0
                              : cost_estimate_ns(&estimates, node, device);
        link_inputs(node, index_of, &placed->arena, to);
    }
    str_fini(&reason);
}
