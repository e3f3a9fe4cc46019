/* Infers values: constants, and integer vectors that are used as shapes.
 *
 *   x [?,3]   Shape(x) = (?,3)   StridedSlice(…, 1) = 3   Pack(3, n) = (3,?)   Reshape(y, …) [3,?]
 *
 * A vector whose elements are all known is a constant. A vector of which some elements are known is
 * an `as_shape`, in which -1 is an unknown number or was -1. Where all inputs are constant, the
 * kernel of the op computes the result. */
#include <limits.h>

#include "common/base/clock.h"
#include "common/ops/infer_internal.h"
#include "common/ops/strided_slice.h"

/* ---- setting ---- */

static void set_index(struct tensor *t, int64_t at, int64_t value) {
    if (t->dtype == DT_INT32)
        ((int32_t *)tensor_data(t))[at] = (int32_t)value;
    else
        ((int64_t *)tensor_data(t))[at] = value;
}

static bool fits(enum dtype dtype, int64_t value) {
    return dtype == DT_INT64 || (value >= INT32_MIN && value <= INT32_MAX);
}

/* Sets a constant of known, non-negative elements; rank 0 takes the first. */
static void set_constant(struct inferrer *r, enum dtype dtype, int rank, int64_t n,
                         const int64_t *elements, struct inferred *output) {
    for (int64_t i = 0; i < n; i++)
        if (!fits(dtype, elements[i]))
            return; /* the kernel reports it */
    struct tensor *value = graph_shapes_new_values(r->shapes, 1);
    struct status *st = tensor_new(allocator_host(), dtype, (struct shape){rank, &n}, value);
    if (st) {
        status_unref(st);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        set_index(value, i, elements[i]);
    output->value = value;
}

static void set_vector(struct inferrer *r, enum dtype dtype, struct shape vector,
                       struct inferred *output) {
    if (vector.rank < 0)
        return;
    if (shape_is_full(vector)) {
        set_constant(r, dtype, 1, vector.rank, vector.dims, output);
        return;
    }
    struct shape *as_shape = arena_new(&r->shapes->arena, struct shape);
    *as_shape = graph_shapes_keep(r->shapes, vector, NULL, 0);
    output->as_shape = as_shape;
}

static void set_scalar(struct inferrer *r, enum dtype dtype, int64_t element,
                       struct inferred *output) {
    if (element >= 0)
        set_constant(r, dtype, 0, 1, &element, output);
}

/* ---- reading ---- */

static bool is_index(const struct tensor *value) {
    return value && (value->dtype == DT_INT32 || value->dtype == DT_INT64);
}

/* -1 where the scalar is unknown or negative. */
static int64_t scalar_of(const struct infer_inputs *in, int input) {
    const struct tensor *value = in->values[input];
    return is_index(value) && value->n_elements == 1 ? MAX(tensor_index_at(value, 0), (int64_t)-1)
                                                     : -1;
}

/* An input vector; of unknown rank where its length is unknown. */
static struct shape vector_of(struct inferrer *r, const struct infer_inputs *in, int input) {
    const struct tensor *value = in->values[input];
    struct shape own = in->shapes[input];
    if (in->as_shapes[input])
        return *in->as_shapes[input];
    if (own.rank != 1 || own.dims[0] < 0 || own.dims[0] > SHAPE_MAX_RANK)
        return SHAPE_UNKNOWN;
    int64_t *dims = arena_array(&r->scratch, int64_t, own.dims[0] + 1);
    for (int64_t i = 0; i < own.dims[0]; i++)
        dims[i] = is_index(value) ? MAX(tensor_index_at(value, i), (int64_t)-1) : -1;
    return (struct shape){(int)own.dims[0], dims};
}

/* ---- ops that make shapes of shapes ---- */

struct value_ctx {
    struct inferrer *r;
    const struct node *node;
    const struct infer_inputs *in;
    struct inferred *outputs;
    enum dtype dtype; /* int32 or int64 */
};
typedef void value_fn(struct value_ctx *ctx);

static void value_of_shape(struct value_ctx *ctx) {
    for (int i = 0; i < ctx->node->n_outputs; i++)
        set_vector(ctx->r, ctx->dtype, ctx->in->shapes[i], &ctx->outputs[i]);
}

static void value_of_variable_shape(struct value_ctx *ctx) {
    if (ctx->in->handle_dtypes[0] != DT_INVALID)
        set_vector(ctx->r, ctx->dtype, ctx->in->handle_shapes[0], &ctx->outputs[0]);
}

static void value_of_rank(struct value_ctx *ctx) {
    set_scalar(ctx->r, ctx->dtype, ctx->in->shapes[0].rank, &ctx->outputs[0]);
}

static void value_of_size(struct value_ctx *ctx) {
    int64_t n;
    if (!shape_is_full(ctx->in->shapes[0]))
        return;
    struct status *st = shape_n_elements(ctx->in->shapes[0], &n);
    if (!st)
        set_scalar(ctx->r, ctx->dtype, n, &ctx->outputs[0]);
    status_unref(st);
}

static void value_of_pack(struct value_ctx *ctx) {
    int n = ctx->node->n_data;
    bool any = false;
    if (ctx->outputs[0].shape.rank != 1 || n > SHAPE_MAX_RANK)
        return;
    int64_t *dims = arena_array(&ctx->r->scratch, int64_t, n + 1);
    for (int i = 0; i < n; i++) {
        dims[i] = scalar_of(ctx->in, i);
        any |= dims[i] >= 0;
    }
    if (any)
        set_vector(ctx->r, ctx->dtype, (struct shape){n, dims}, &ctx->outputs[0]);
}

static void join(struct value_ctx *ctx, int first, int n) {
    int64_t dims[SHAPE_MAX_RANK];
    int rank = 0;
    bool any = false;
    if (ctx->outputs[0].shape.rank != 1)
        return;
    for (int i = first; i < first + n; i++) {
        struct shape part = vector_of(ctx->r, ctx->in, i);
        if (part.rank < 0 || part.rank > SHAPE_MAX_RANK - rank)
            return;
        for (int k = 0; k < part.rank; k++) {
            dims[rank++] = part.dims[k];
            any |= part.dims[k] >= 0;
        }
    }
    if (any)
        set_vector(ctx->r, ctx->dtype, (struct shape){rank, dims}, &ctx->outputs[0]);
}

static void value_of_concat(struct value_ctx *ctx) { join(ctx, 1, ctx->node->n_data - 1); }
static void value_of_concat_v2(struct value_ctx *ctx) { join(ctx, 0, ctx->node->n_data - 1); }

static void value_of_strided_slice(struct value_ctx *ctx) {
    const struct infer_inputs *in = ctx->in;
    struct shape from = vector_of(ctx->r, in, 0);
    struct strided_slice_masks masks;
    struct strided_slice *slice = arena_new(&ctx->r->scratch, struct strided_slice);
    if (from.rank < 0 || !in->as_shapes[0] || !in->values[1] || !in->values[2] || !in->values[3])
        return;
    int64_t n = from.rank;
    struct status *st = strided_slice_masks_read(ctx->node, &masks);
    if (!st)
        st = strided_slice_resolve(&masks, (struct shape){1, &n}, in->values[1], in->values[2],
                                   in->values[3], slice);
    if (st) {
        status_unref(st);
        return;
    }
    if (slice->out_rank > 1 || (slice->out_rank == 1 && slice->source[0] == SLICE_NEW_AXIS))
        return;
    int64_t *dims = arena_array(&ctx->r->scratch, int64_t, slice->size[0] + 1);
    for (int64_t i = 0; i < slice->size[0]; i++)
        dims[i] = from.dims[slice->begin[0] + i * slice->stride[0]];
    if (slice->out_rank == 0)
        set_scalar(ctx->r, ctx->dtype, dims[0], &ctx->outputs[0]);
    else
        set_vector(ctx->r, ctx->dtype, (struct shape){(int)slice->size[0], dims}, &ctx->outputs[0]);
}

static void value_of_cast(struct value_ctx *ctx) {
    const struct shape *from = ctx->in->as_shapes[0];
    for (int i = 0; from && i < from->rank; i++)
        if (!fits(ctx->dtype, from->dims[i]))
            return;
    ctx->outputs[0].as_shape = from;
}

// clang-format off
static const struct value_row {
    const char *op;
    value_fn *value;
    bool is_of_shapes; /* needs no value: called even where inputs have values */
} rows[] = {
    {"Shape", value_of_shape, true},
    {"ShapeN", value_of_shape, true},
    {"VariableShape", value_of_variable_shape, true},
    {"Rank", value_of_rank, true},
    {"Size", value_of_size, true},
    {"Pack", value_of_pack, false},
    {"Concat", value_of_concat, false},
    {"ConcatV2", value_of_concat_v2, false},
    {"StridedSlice", value_of_strided_slice, false},
    {"Cast", value_of_cast, false},
};
// clang-format on

static const struct value_row *find_row(const struct node *node) {
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (node_is_op(node, rows[i].op))
            return &rows[i];
    return NULL;
}

/* ---- constants ---- */

enum {
    MAX_INPUTS = 256, /* the most inputs of a node that is computed */
    /* the most elements of a value that is no index: conditions, and factors of a size */
    MAX_OTHER_ELEMENTS = 8
};

static bool are_all_known(const struct inferrer *r, const struct node *node,
                          const struct infer_inputs *in) {
    for (int i = 0; i < node->n_data; i++)
        if (!in->values[i] || in->values[i]->n_elements > r->options->max_elements)
            return false;
    return node->n_data > 0 && node->n_data <= MAX_INPUTS;
}

static bool are_wanted(const struct inferrer *r, const struct node *node,
                       const struct inferred *outputs) {
    for (int i = 0; i < node->n_outputs; i++) {
        enum dtype dtype = (enum dtype)node->out_types[i];
        int64_t n = 0, max = dtype == DT_INT32 || dtype == DT_INT64 ? r->options->max_elements
                                                                    : MAX_OTHER_ELEMENTS;
        if (!dtype_in(dtype, DTYPES_PLAIN) || !shape_is_full(outputs[i].shape))
            return false;
        struct status *st = shape_n_elements(outputs[i].shape, &n);
        if (st || n > max) {
            status_unref(st);
            return false;
        }
    }
    return node->n_outputs > 0 && node->n_outputs <= MAX_INPUTS;
}

static bool is_in_time(struct inferrer *r) {
    enum { CLOCK_EVERY = 64 };
    if (r->n_evaluations >= r->options->max_evaluations)
        return false;
    if (r->n_evaluations % CLOCK_EVERY == CLOCK_EVERY - 1 && clock_now_ns() > r->deadline_ns)
        r->n_evaluations = r->options->max_evaluations;
    return r->n_evaluations < r->options->max_evaluations;
}

static void evaluate(struct inferrer *r, const struct node *node, const struct infer_inputs *in,
                     struct inferred *outputs) {
    if (!r->options->evaluate || node_is_stateful(node) ||
        node_is_op(node, "PlaceholderWithDefault") || !are_wanted(r, node, outputs) ||
        !is_in_time(r))
        return;
    r->n_evaluations++;
    struct tensor *inputs = arena_alloc_aligned(&r->scratch, (size_t)node->n_data * sizeof(*inputs),
                                                _Alignof(struct tensor));
    for (int i = 0; i < node->n_data; i++)
        inputs[i] = *in->values[i]; /* borrowed, so never cleared */
    int n_before = r->shapes->n_values;
    struct tensor *values = graph_shapes_new_values(r->shapes, node->n_outputs);
    if (!r->options->evaluate(r->options->arg, node, inputs, values)) {
        r->shapes->n_values = n_before; /* the outputs hold nothing */
        return;
    }
    for (int i = 0; i < node->n_outputs; i++)
        if (tensor_has_value(&values[i]) && shape_equal(tensor_shape(&values[i]), outputs[i].shape))
            outputs[i].value = &values[i];
}

void infer_values(struct inferrer *inferrer, const struct node *node, const struct infer_inputs *in,
                  struct inferred *outputs) {
    if (node->n_outputs == 0)
        return;
    if (node->n_data == 0) {
        const struct attr_value *value =
            node_is_op(node, "Const") ? node_attr(node, "value") : NULL;
        outputs[0].value = value ? value->tensor : NULL;
        return;
    }
    enum dtype dtype = (enum dtype)node->out_types[0];
    const struct value_row *row = dtype == DT_INT32 || dtype == DT_INT64 ? find_row(node) : NULL;
    struct value_ctx ctx = {inferrer, node, in, outputs, dtype};
    if (!(row && row->is_of_shapes) && are_all_known(inferrer, node, in))
        evaluate(inferrer, node, in, outputs);
    if (row && !outputs[0].value)
        row->value(&ctx);
}
