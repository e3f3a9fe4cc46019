/* Differentiates optionals: the gradient of an optional is an optional of gradients. */
#include "common/gradients/build.h"

/* Attrs of the components of an optional: their dtypes, and shapes of unknown rank. */
static void set_components(struct gradient_ctx *g, struct node *node, int n) {
    struct attr_value *types = arena_array(&g->graph->arena, struct attr_value, n + 1);
    struct attr_value *shapes = arena_array(&g->graph->arena, struct attr_value, n + 1);
    for (int i = 0; i < n; i++) {
        types[i] = (struct attr_value){.type = ATTR_TYPE, .dtype = gradient_dtype(IN(i))};
        shapes[i] = (struct attr_value){.type = ATTR_SHAPE, .shape = SHAPE_UNKNOWN};
    }
    node_set_attr(g->graph, node, "output_types",
                  &(struct attr_value){.type = ATTR_LIST_TYPE, .list = {types, n}});
    node_set_attr(g->graph, node, "output_shapes",
                  &(struct attr_value){.type = ATTR_LIST_SHAPE, .list = {shapes, n}});
}

static void from_value_grad(struct gradient_ctx *g) {
    struct node_input optional = DY(0);
    struct node *node;
    if (!g->status)
        g->status = graph_add_node(
            g->graph,
            graph_unique_name(g->graph,
                              arena_printf(&g->graph->arena, "%s/OptionalGetValue", g->prefix)),
            "OptionalGetValue", g->node->device, &node);
    if (g->status)
        return;
    set_components(g, node, g->node->n_data);
    node_add_input(g->graph, node, optional.src, optional.index);
    g->status = node_finish(g->graph, node);
    for (int i = 0; i < g->node->n_data; i++)
        SET(i, ((struct node_input){node, i}));
}

static void get_value_grad(struct gradient_ctx *g) {
    int n = g->node->n_outputs;
    struct node_input *inputs = arena_array(&g->graph->arena, struct node_input, n + 1);
    for (int i = 0; i < n; i++)
        inputs[i] = DY(i);
    SET(0, gradient_op(g, "OptionalFromValue", false, NULL, n, inputs));
}

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("OptionalNone"),
    GRADIENT("OptionalFromValue", from_value_grad),
    NO_GRADIENT("OptionalHasValue"),
    GRADIENT("OptionalGetValue", get_value_grad),
};
// clang-format on

const struct gradient_list optional_gradients = {rows, ARRAY_LEN(rows)};
