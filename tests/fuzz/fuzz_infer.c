/* Static shapes of graphs from strangers. The bytes choose ops from the table of those that run
 * here, connect them by type, and give them hostile attrs and constants: sizes that overflow,
 * negative ones, ranks up to the limit, values of every kind where a shape or an axis is wanted.
 * Inference gives each graph consistent shapes or refuses it. The result is the same for a graph
 * that is added in two parts. */
#include <stdlib.h>

#include "common/ops/op_def.h"
#include "kernels/infer_eval.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_NODES = 200, MAX_CONST_ELEMENTS = 300, MAX_ENDPOINTS_TRIED = 64 };

struct source {
    const uint8_t *data;
    size_t size;
};

static unsigned take(struct source *in, unsigned below) {
    if (in->size == 0)
        return 0;
    in->size--;
    unsigned value = *in->data++;
    if (below > 256 && in->size > 0) {
        in->size--;
        value = value << 8 | *in->data++;
    }
    return value % below;
}

static int64_t hostile_number(struct source *in) {
    static const int64_t numbers[] = {
        0,         1,
        2,         3,
        4,         5,
        7,         -1,
        -2,        -3,
        8,         64,
        254,       255,
        1000,      INT32_MAX,
        INT32_MIN, INT32_MAX + 1ll,
        INT64_MAX, INT64_MIN,
        1ll << 40, (1ll << 62) + 1,
    };
    return numbers[take(in, ARRAY_LEN(numbers))];
}

static struct shape hostile_shape(struct source *in, struct arena *arena, bool is_partial) {
    int rank = (int)take(in, 8);
    if (rank == 7)
        rank = take(in, 8) == 0 ? SHAPE_MAX_RANK : 6;
    if (is_partial && rank == 6)
        return SHAPE_UNKNOWN;
    int64_t *dims = arena_array(arena, int64_t, rank + 1);
    for (int i = 0; i < rank; i++) {
        int64_t dim = hostile_number(in);
        dims[i] = dim >= 0 ? dim : is_partial ? -1 : 1;
    }
    return (struct shape){rank, dims};
}

/* ---- growing a graph ---- */

struct grower {
    struct source *in;
    struct graph *graph;
    struct arena arena;
};

static void fill(struct source *in, struct tensor *value) {
    enum dtype dtype = (enum dtype)value->dtype;
    for (int64_t i = 0; i < value->n_elements && !dtype_is_object(dtype); i++) {
        int64_t number = hostile_number(in);
        memcpy((char *)tensor_data(value) + (size_t)i * dtype_size(dtype), &number,
               MIN(dtype_size(dtype), sizeof(number)));
        if (dtype == DT_BOOL)
            ((bool *)tensor_data(value))[i] = number & 1;
    }
    for (int64_t i = 0; i < value->n_elements && dtype == DT_STRING; i++)
        tensor_set_string(value, i, "x", 1);
}

/* A constant, or a placeholder where there can be none. */
static struct node *new_source(struct grower *g, enum dtype dtype) {
    struct node *node;
    struct shape shape = hostile_shape(g->in, &g->arena, true);
    struct tensor value = TENSOR_INIT;
    int64_t n = 0;
    struct status *st =
        shape_is_full(shape) ? shape_n_elements(shape, &n) : status_invalid("partial");
    bool is_const = !st && n <= MAX_CONST_ELEMENTS && dtype != DT_RESOURCE && dtype != DT_VARIANT;
    status_unref(st);
    st = graph_add_node(g->graph, graph_unique_name(g->graph, "s"),
                        is_const ? "Const" : "Placeholder", "", &node);
    CHECK(!st);
    node_set_attr_type(g->graph, node, "dtype", dtype);
    if (is_const) {
        st = tensor_new_zeroed(allocator_host(), dtype, shape, &value);
        CHECK(!st);
        fill(g->in, &value);
        node_set_attr_tensor(g->graph, node, "value", &value);
        tensor_clear(&value);
    } else {
        node_set_attr_shape(g->graph, node, "shape", shape);
    }
    st = node_finish(g->graph, node);
    CHECK(!st);
    return node;
}

static void add_input(struct grower *g, struct node *node, enum dtype dtype, bool is_ref) {
    int n = g->graph->n_nodes - 1; /* without the node itself */
    for (int tried = 0; tried < MAX_ENDPOINTS_TRIED && n > 0; tried++) {
        struct node *src = g->graph->nodes[take(g->in, (unsigned)n)];
        int output = src->n_outputs > 0 ? (int)take(g->in, (unsigned)src->n_outputs) : 0;
        if (src->is_removed || src == node || src->n_outputs == 0)
            continue;
        enum dtype found = (enum dtype)src->out_types[output];
        if (dtype_base(found) == dtype && (!is_ref || dtype_is_ref(found))) {
            node_add_input(g->graph, node, src, output);
            return;
        }
    }
    if (!is_ref)
        node_add_input(g->graph, node, new_source(g, dtype), 0);
}

static enum dtype pick_type(struct source *in, dtype_set allowed) {
    static const enum dtype common[] = {DT_FLOAT,  DT_INT32,    DT_INT64, DT_BOOL,     DT_DOUBLE,
                                        DT_STRING, DT_RESOURCE, DT_INT8,  DT_COMPLEX64};
    for (int i = 0; i < 8; i++) {
        enum dtype dtype = common[take(in, ARRAY_LEN(common))];
        if (!allowed || allowed >> dtype & 1)
            return dtype;
    }
    return allowed ? (enum dtype)__builtin_ctzll(allowed) : DT_FLOAT;
}

static void set_attr(struct grower *g, struct node *node, const struct op_attr_signature *attr) {
    struct attr_value value = {.type = attr->type};
    struct attr_value elements[4];
    if (attr->has_default && take(g->in, 2) == 0)
        return;
    if (attr->type == ATTR_INT) {
        value.i = hostile_number(g->in);
        if (attr->has_minimum && value.i < INT32_MAX)
            value.i = MIN(MAX(value.i, attr->minimum), attr->minimum + 4);
    } else if (attr->type == ATTR_BOOL) {
        value.b = take(g->in, 2);
    } else if (attr->type == ATTR_TYPE) {
        value.dtype = pick_type(g->in, attr->allowed_types);
    } else if (attr->type == ATTR_SHAPE) {
        value.shape = hostile_shape(g->in, &g->arena, true);
    } else if (attr_type_is_list(attr->type) && attr->type != ATTR_LIST_FUNC &&
               attr->type != ATTR_LIST_TENSOR) {
        memset(elements, 0, sizeof(elements));
        value.list.n_values =
            (int)take(g->in, ARRAY_LEN(elements)) + (attr->has_minimum && attr->minimum > 0);
        value.list.n_values = MIN(value.list.n_values, (int)ARRAY_LEN(elements));
        value.list.values = elements;
        for (int i = 0; i < value.list.n_values; i++) {
            elements[i].type = attr_type_element(attr->type);
            if (elements[i].type == ATTR_INT)
                elements[i].i = hostile_number(g->in);
            else if (elements[i].type == ATTR_TYPE)
                elements[i].dtype = pick_type(g->in, attr->allowed_types);
            else if (elements[i].type == ATTR_SHAPE)
                elements[i].shape = hostile_shape(g->in, &g->arena, true);
            else if (elements[i].type == ATTR_STRING)
                elements[i].s = span_of(attr->n_allowed_strings ? attr->allowed_strings[0] : "s");
        }
    } else if (attr->type == ATTR_STRING) {
        value.s = span_of(attr->n_allowed_strings
                              ? attr->allowed_strings[take(g->in, attr->n_allowed_strings)]
                              : "s");
    } else if (attr->type != ATTR_FLOAT) {
        return;
    }
    node_set_attr(g->graph, node, attr->name, &value);
}

static void add_arg(struct grower *g, struct node *node, const struct op_arg_signature *arg) {
    const struct attr_value *number = arg->number_attr ? node_attr(node, arg->number_attr) : NULL,
                            *list =
                                arg->type_list_attr ? node_attr(node, arg->type_list_attr) : NULL,
                            *type = arg->type_attr ? node_attr(node, arg->type_attr) : NULL;
    int64_t n = number ? number->i : list ? list->list.n_values : 1;
    for (int64_t i = 0; i < n && n < 8; i++)
        add_input(g, node,
                  list   ? list->list.values[i].dtype
                  : type ? type->dtype
                         : arg->type,
                  arg->is_ref);
}

static void grow(struct grower *g) {
    const struct op_def_list *family = op_def_lists[take(g->in, (unsigned)n_op_def_lists)];
    const struct op_signature *op =
        op_signature_find(family->rows[take(g->in, (unsigned)family->n_rows)].name);
    struct node *node;
    if (!op || strcmp(op->name, "Const") == 0)
        return;
    /* Its sources come before it, so that ids are an order; but for those that have to be made. */
    struct status *st =
        graph_add_node(g->graph, graph_unique_name(g->graph, "n"), op->name, "", &node);
    CHECK(!st);
    for (int i = 0; i < op->n_attrs; i++)
        set_attr(g, node, &op->attrs[i]);
    for (int i = 0; i < op->n_inputs; i++)
        add_arg(g, node, &op->inputs[i]);
    st = node_finish(g->graph, node);
    if (st)
        graph_remove_node(g->graph, node);
    status_unref(st);
}

/* ---- what must hold ---- */

static void check_shape(struct shape shape) {
    CHECK(shape.rank >= -1 && shape.rank <= SHAPE_MAX_RANK);
    for (int i = 0; i < shape.rank; i++)
        CHECK(shape.dims[i] >= -1);
}

static void check_known(const struct graph *graph, const struct graph_shapes *shapes) {
    CHECK(shapes->n_nodes == graph->n_nodes);
    for (int id = 0; id < graph->n_nodes; id++) {
        const struct node *node = graph->nodes[id];
        for (int i = 0; !node->is_removed && i < node->n_outputs; i++) {
            const struct tensor *value = graph_shapes_value(shapes, node, i);
            const struct inferred_handle *handle = graph_shapes_handle(shapes, node, i);
            check_shape(graph_shapes_of(shapes, node, i));
            (void)graph_shapes_bytes(shapes, node, i);
            if (value)
                CHECK(tensor_has_value(value) &&
                      shape_is_compatible(tensor_shape(value), graph_shapes_of(shapes, node, i)));
            if (handle)
                check_shape(handle->shape);
        }
    }
}

static void infer(const struct graph *graph, struct graph_shapes *shapes, bool refuses) {
    struct infer_options options;
    infer_options_with_kernels(&options);
    options.evaluate_ns = INT64_MAX / 2; /* what is known depends on the bytes alone */
    options.refuses = refuses;
    struct status *st = graph_infer_shapes(graph, shapes, &options);
    if (!st)
        check_known(graph, shapes);
    else
        CHECK(refuses && status_code(st) != STATUS_INTERNAL &&
              strstr(status_message(st), "{{node "));
    status_unref(st);
}

static void check_alike(const struct graph *graph, const struct graph_shapes *a,
                        const struct graph_shapes *b) {
    for (int id = 0; id < graph->n_nodes; id++)
        for (int i = 0; !graph->nodes[id]->is_removed && i < graph->nodes[id]->n_outputs; i++)
            CHECK(shape_equal(graph_shapes_of(a, graph->nodes[id], i),
                              graph_shapes_of(b, graph->nodes[id], i)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct source in = {data, size};
    struct graph graph;
    struct graph_shapes whole, parts, strict;
    struct grower g = {.in = &in, .graph = &graph};
    arena_init(&g.arena);
    graph_init(&graph);
    graph.producer = (int)take(&in, 40);
    graph_shapes_init(&whole);
    graph_shapes_init(&parts);
    graph_shapes_init(&strict);
    size_t half = in.size / 2;
    while (in.size > half && graph.n_nodes < MAX_NODES)
        grow(&g);
    infer(&graph, &parts, false);
    while (in.size > 0 && graph.n_nodes < MAX_NODES)
        grow(&g);
    infer(&graph, &parts, false);
    infer(&graph, &whole, false);
    infer(&graph, &strict, true);
    check_alike(&graph, &whole, &parts);
    graph_shapes_fini(&strict);
    graph_shapes_fini(&parts);
    graph_shapes_fini(&whole);
    graph_fini(&graph);
    arena_fini(&g.arena);
    return 0;
}
