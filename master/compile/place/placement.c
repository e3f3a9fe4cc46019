/* Keeps placements of compiled steps, and reads them for the next one (placement.h). */
#include "master/compile/place/placement.h"

#include "common/base/map.h"
#include "master/compile/compilation.h"

static bool has_state(const struct node *node) {
    for (int i = 0; i < node->n_outputs; i++)
        if (dtype_is_ref((enum dtype)node->out_types[i]))
            return true;
    return node_is_stateful(node);
}

void placement_keep(struct compilation *c) {
    c->placement = arena_array(&c->arena, struct node_placement, c->graph.n_live + 1);
    for (int id = 0; id < c->graph.n_nodes; id++) {
        const struct node *node = c->graph.nodes[id];
        if (!node->is_removed)
            c->placement[c->n_placed++] = (struct node_placement){
                .name = node->name, .device = node->placed, .has_state = has_state(node)};
    }
}

void placement_keep_in_result(const struct compilation *c, struct compiled *compiled) {
    compiled->n_placed = c->n_placed;
    compiled->has_rival = c->has_rival;
    compiled->placement = arena_array(&compiled->arena, struct node_placement, c->n_placed + 1);
    for (int i = 0; i < c->n_placed; i++) {
        compiled->placement[i] = c->placement[i];
        compiled->placement[i].name = arena_strdup(&compiled->arena, c->placement[i].name);
    }
}

void placement_pin_state(struct compilation *c) {
    const struct compiled *present = c->options->present;
    for (int i = 0; present && i < present->n_placed; i++) {
        struct node *node = present->placement[i].has_state
                                ? graph_find(&c->graph, present->placement[i].name)
                                : NULL;
        if (node)
            node->placed = present->placement[i].device;
    }
}

int *placement_present_devices(const struct compilation *c, struct arena *arena) {
    const struct compiled *present = c->options->present;
    if (!present)
        return NULL;
    int *device = arena_array(arena, int, c->graph.n_nodes + 1);
    memset(device, -1, sizeof(int) * ((size_t)c->graph.n_nodes + 1));
    for (int i = 0; i < present->n_placed; i++) {
        const struct node *node = graph_find(&c->graph, present->placement[i].name);
        if (node)
            device[node->id] = present->placement[i].device;
    }
    return device;
}

bool placements_are_equal(const struct compiled *a, const struct compiled *b) {
    if (a->n_placed != b->n_placed)
        return false;
    for (int i = 0; i < a->n_placed; i++)
        if (a->placement[i].device != b->placement[i].device ||
            strcmp(a->placement[i].name, b->placement[i].name) != 0)
            return false;
    return true;
}
