/* Infers the static shapes of a graph: visits the nodes, keeps the results, and looks them up
 * (infer.h). */
#include "common/ops/infer.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/ops/infer_internal.h"

void infer_options_default(struct infer_options *options) {
    *options = (struct infer_options){
        .max_elements = 1024,
        .max_evaluations = 20000,
        .evaluate_ns = 50 * 1000 * 1000,
        .max_bytes = 256 << 20,
    };
}

void graph_shapes_init(struct graph_shapes *shapes) {
    *shapes = (struct graph_shapes){0};
    arena_init(&shapes->arena);
}

static void drop_values(struct graph_shapes *shapes, int n_kept) {
    while (shapes->n_values > n_kept)
        tensor_clear(shapes->values[--shapes->n_values]);
}

void graph_shapes_fini(struct graph_shapes *shapes) {
    drop_values(shapes, 0);
    free(shapes->values);
    free(shapes->nodes);
    status_unref(shapes->first_refusal);
    arena_fini(&shapes->arena);
    *shapes = (struct graph_shapes){0};
}

/* ---- keeping ---- */

struct tensor *graph_shapes_new_values(struct graph_shapes *shapes, int n) {
    size_t size = (size_t)n * sizeof(struct tensor);
    struct tensor *values = arena_alloc_aligned(&shapes->arena, size, _Alignof(struct tensor));
    memset(values, 0, size);
    if (shapes->n_values + n > shapes->values_capacity) {
        shapes->values_capacity = 2 * (shapes->n_values + n);
        shapes->values = xreallocarray(shapes->values, (size_t)shapes->values_capacity,
                                       sizeof(shapes->values[0]));
    }
    for (int i = 0; i < n; i++)
        shapes->values[shapes->n_values++] = &values[i];
    return values;
}

struct shape graph_shapes_keep(struct graph_shapes *shapes, struct shape shape,
                               const struct shape *like, int n_like) {
    if (shape.rank <= 0)
        return (struct shape){shape.rank, NULL};
    for (int i = 0; i < n_like; i++)
        if (like[i].rank == shape.rank && like[i].dims == shape.dims)
            return shape;
    return shape_dup(shape, &shapes->arena);
}

/* Most shapes are those of an input, and many outputs have one in common. */
static void keep_output(struct inferrer *r, const struct shape_inference *ctx, int i,
                        struct inferred *outputs) {
    enum { LOOKED_AT = 3 };
    struct shape shape = ctx->out[i];
    if (i > 0 && shape.rank == ctx->out[i - 1].rank && shape.dims == ctx->out[i - 1].dims)
        outputs[i].shape = outputs[i - 1].shape;
    else if (i < ctx->node->n_data && shape.dims == ctx->in[i].dims)
        outputs[i].shape = graph_shapes_keep(r->shapes, shape, &ctx->in[i], 1);
    else
        outputs[i].shape =
            graph_shapes_keep(r->shapes, shape, ctx->in, MIN(ctx->node->n_data, LOOKED_AT));
    if (ctx->out_handle_dtypes[i] == DT_INVALID)
        return;
    struct inferred_handle *handle = arena_new(&r->shapes->arena, struct inferred_handle);
    handle->dtype = ctx->out_handle_dtypes[i];
    handle->shape = graph_shapes_keep(r->shapes, ctx->out_handle_shapes[i], ctx->in_handle_shapes,
                                      MIN(ctx->node->n_data, LOOKED_AT));
    outputs[i].handle = handle;
}

/* ---- one node ---- */

static const struct op_signature *merge, *ref_merge, *next, *ref_next;

static void find_loop_ops(void) {
    merge = op_signature_find("Merge");
    ref_merge = op_signature_find("RefMerge");
    next = op_signature_find("NextIteration");
    ref_next = op_signature_find("RefNextIteration");
}

static bool is_way_back(const struct node *node, int input) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_loop_ops);
    const struct op_signature *src = node->inputs[input].src->op;
    return (node->op == merge || node->op == ref_merge) && (src == next || src == ref_next);
}

static void read_inputs(struct inferrer *r, const struct node *node, struct infer_inputs *in) {
    int n = node->n_data;
    in->shapes = arena_array(&r->scratch, struct shape, n);
    in->handle_shapes = arena_array(&r->scratch, struct shape, n);
    in->handle_dtypes = arena_array(&r->scratch, enum dtype, n);
    in->values = arena_array(&r->scratch, const struct tensor *, n);
    in->as_shapes = arena_array(&r->scratch, const struct shape *, n);
    for (int i = 0; i < n; i++) {
        const struct inferred *from = r->shapes->nodes[node->inputs[i].src->id];
        in->shapes[i] = in->handle_shapes[i] = SHAPE_UNKNOWN;
        if (!from || is_way_back(node, i))
            continue;
        from += node->inputs[i].index;
        in->shapes[i] = from->shape;
        in->values[i] = from->value;
        in->as_shapes[i] = from->as_shape;
        if (!from->handle)
            continue;
        in->handle_dtypes[i] = from->handle->dtype;
        in->handle_shapes[i] = from->handle->shape;
    }
}

static struct status *run_shape_fn(struct inferrer *r, const struct op_def *def,
                                   struct shape_inference *ctx, const struct infer_inputs *in) {
    struct status *st = def->shape(ctx);
    if (!st)
        return NULL;
    st = infer_refusal_take(st, ctx->node, in);
    if (r->options->refuses)
        return st;
    for (int i = 0; i < ctx->node->n_outputs; i++) {
        ctx->out[i] = SHAPE_UNKNOWN;
        ctx->out_handle_dtypes[i] = DT_INVALID;
    }
    r->n_refused++;
    if (!r->shapes->first_refusal)
        r->shapes->first_refusal = status_ref(st);
    status_unref(st);
    return NULL;
}

static struct status *infer_node(struct inferrer *r, const struct node *node) {
    const struct op_def *def = op_def_find(node->op_name);
    int n = node->n_outputs;
    struct infer_inputs in;
    bool has_rule = def && def->shape;
    r->n_outputs += n;
    if ((!has_rule && !r->options->refine) || r->shapes->arena.size_bytes > r->options->max_bytes ||
        (r->options->is_unknown && r->options->is_unknown(node)))
        return NULL; /* nothing is known */
    arena_clear(&r->scratch);
    read_inputs(r, node, &in);
    struct shape_inference ctx = {
        .node = node,
        .producer = r->graph->producer,
        .arena = &r->scratch,
        .in = in.shapes,
        .in_values = in.values,
        .in_as_shapes = in.as_shapes,
        .out = arena_array(&r->scratch, struct shape, n),
        .in_handle_dtypes = in.handle_dtypes,
        .in_handle_shapes = in.handle_shapes,
        .out_handle_dtypes = arena_array(&r->scratch, enum dtype, n),
        .out_handle_shapes = arena_array(&r->scratch, struct shape, n),
    };
    for (int i = 0; i < n; i++)
        ctx.out[i] = ctx.out_handle_shapes[i] = SHAPE_UNKNOWN;
    if (has_rule)
        TRY(run_shape_fn(r, def, &ctx, &in));
    if (r->options->refine)
        r->options->refine(r->options->refine_arg, node, ctx.in, ctx.out, &r->scratch);
    struct inferred *outputs = arena_array(&r->shapes->arena, struct inferred, n);
    for (int i = 0; i < n; i++) {
        keep_output(r, &ctx, i, outputs);
        r->n_ranked += outputs[i].shape.rank >= 0;
        r->n_full += shape_is_full(outputs[i].shape);
    }
    infer_values(r, node, &in, outputs);
    r->shapes->nodes[node->id] = outputs;
    return NULL;
}

/* ---- all nodes ---- */

/* Clients mostly write nodes in the order in which they made them. */
static bool ids_are_an_order(const struct graph *graph, int first_id) {
    for (int id = first_id; id < graph->n_nodes; id++) {
        const struct node *node = graph->nodes[id];
        for (int i = 0; !node->is_removed && i < node->n_data; i++)
            if (node->inputs[i].src->id >= id && !is_way_back(node, i))
                return false;
    }
    return true;
}

static struct status *infer_new(struct inferrer *r, int first_id) {
    const struct graph *graph = r->graph;
    struct status *st = NULL;
    if (ids_are_an_order(graph, first_id)) {
        for (int id = first_id; id < graph->n_nodes && !st; id++)
            if (!graph->nodes[id]->is_removed)
                st = infer_node(r, graph->nodes[id]);
        return st;
    }
    struct node **order;
    int n_live = 0;
    for (int id = first_id; id < graph->n_nodes; id++)
        n_live += !graph->nodes[id]->is_removed;
    TRY(graph_order_from(graph, first_id, &order));
    for (int i = 0; i < n_live && !st; i++)
        st = infer_node(r, order[i]);
    free(order);
    return st;
}

static void make_room(struct graph_shapes *shapes, int n_nodes) {
    if (n_nodes > shapes->capacity) {
        shapes->capacity = MAX(n_nodes, 2 * shapes->capacity);
        shapes->nodes =
            xreallocarray(shapes->nodes, (size_t)shapes->capacity, sizeof(shapes->nodes[0]));
    }
    for (int id = shapes->n_nodes; id < n_nodes; id++)
        shapes->nodes[id] = NULL;
}

struct status *graph_infer_shapes(const struct graph *graph, struct graph_shapes *shapes,
                                  const struct infer_options *options) {
    struct inferrer r = {
        .graph = graph,
        .shapes = shapes,
        .options = options,
        .deadline_ns = clock_now_ns() + options->evaluate_ns,
        .n_values_before = shapes->n_values,
    };
    arena_init(&r.scratch);
    make_room(shapes, graph->n_nodes);
    struct status *st = infer_new(&r, shapes->n_nodes);
    arena_fini(&r.scratch);
    if (st) {
        drop_values(shapes, r.n_values_before);
        return st;
    }
    shapes->n_nodes = graph->n_nodes;
    shapes->n_outputs += r.n_outputs;
    shapes->n_full += r.n_full;
    shapes->n_ranked += r.n_ranked;
    shapes->n_refused += r.n_refused;
    shapes->n_evaluated += r.n_evaluations;
    return NULL;
}

struct status *graph_shapes_merge(struct graph_shapes *shapes, const struct node *node, int output,
                                  struct shape shape) {
    struct inferred *outputs = shapes->nodes[node->id];
    if (!outputs) {
        outputs = arena_array(&shapes->arena, struct inferred, node->n_outputs);
        for (int i = 0; i < node->n_outputs; i++)
            outputs[i].shape = SHAPE_UNKNOWN;
        shapes->nodes[node->id] = outputs;
    }
    struct shape_inference ctx = {.node = node, .arena = &shapes->arena};
    struct shape old = outputs[output].shape;
    TRY(shape_merge(&ctx, old, shape, &outputs[output].shape));
    if (outputs[output].shape.dims == shape.dims) /* the caller's */
        outputs[output].shape = shape_dup(shape, &shapes->arena);
    return NULL;
}

/* ---- look-ups ---- */

static const struct inferred *find(const struct graph_shapes *shapes, const struct node *node,
                                   int output) {
    bool is_known = node->id < shapes->n_nodes && output >= 0 && output < node->n_outputs &&
                    shapes->nodes[node->id];
    return is_known ? &shapes->nodes[node->id][output] : NULL;
}

struct shape graph_shapes_of(const struct graph_shapes *shapes, const struct node *node,
                             int output) {
    const struct inferred *inferred = find(shapes, node, output);
    return inferred ? inferred->shape : SHAPE_UNKNOWN;
}

const struct tensor *graph_shapes_value(const struct graph_shapes *shapes, const struct node *node,
                                        int output) {
    const struct inferred *inferred = find(shapes, node, output);
    return inferred ? inferred->value : NULL;
}

const struct inferred_handle *graph_shapes_handle(const struct graph_shapes *shapes,
                                                  const struct node *node, int output) {
    const struct inferred *inferred = find(shapes, node, output);
    return inferred ? inferred->handle : NULL;
}

int64_t graph_shapes_bytes(const struct graph_shapes *shapes, const struct node *node, int output) {
    struct shape shape = graph_shapes_of(shapes, node, output);
    enum dtype dtype = output >= 0 && output < node->n_outputs
                           ? dtype_base((enum dtype)node->out_types[output])
                           : DT_INVALID;
    int64_t n, size;
    if (!shape_is_full(shape) || dtype_is_object(dtype))
        return -1;
    struct status *st = shape_n_elements(shape, &n);
    if (st || mul_overflows_i64(n, (int64_t)dtype_size(dtype), &size))
        size = -1;
    status_unref(st);
    return size;
}
