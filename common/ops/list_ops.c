/* Lists the TensorList family. The inferred value of a handle is one element: its dtype and
 * (perhaps partial) shape, which fits every element that is set. Where the element itself decides,
 * the shape that a reader requests does not count. */
#include "common/ops/op_def.h"

/* ---- handles ---- */

static void set_handle(struct shape_inference *ctx, enum dtype dtype, struct shape shape) {
    if (!ctx->out_handle_dtypes)
        return;
    ctx->out_handle_dtypes[0] = dtype;
    ctx->out_handle_shapes[0] = shape;
}

static bool has_handle(const struct shape_inference *ctx, int input) {
    return ctx->in_handle_dtypes && ctx->in_handle_dtypes[input] != DT_INVALID;
}

/* The element shape of a list input; unknown where the list is unknown. */
static struct status *element_of(const struct shape_inference *ctx, int input, enum dtype dtype,
                                 struct shape *ret) {
    *ret = SHAPE_UNKNOWN;
    if (!has_handle(ctx, input))
        return NULL;
    if (ctx->in_handle_dtypes[input] != dtype)
        return status_invalid(
            "Expected list with element dtype %s but got list with element dtype %s",
            dtype_name(dtype), dtype_name(ctx->in_handle_dtypes[input]));
    *ret = ctx->in_handle_shapes[input];
    return NULL;
}

/* A shape argument of a list op: the scalar -1 is an unknown rank. */
static struct status *shape_argument(struct shape_inference *ctx, int input, struct shape *ret) {
    return shape_from_input_or_scalar(ctx, input, ret);
}

/* Keeps the sizes that both shapes have in common. */
static struct shape shape_relax(struct shape_inference *ctx, struct shape a, struct shape b) {
    if (a.rank < 0 || a.rank != b.rank)
        return SHAPE_UNKNOWN;
    struct shape relaxed = shape_unknown_of_rank(ctx, a.rank);
    for (int i = 0; i < a.rank; i++)
        if (a.dims[i] == b.dims[i])
            ((int64_t *)(uintptr_t)relaxed.dims)[i] = a.dims[i]; /* just allocated */
    return relaxed;
}

static struct shape rows_of(struct shape_inference *ctx, struct shape shape) {
    return shape.rank < 1 ? SHAPE_UNKNOWN : shape_sub(ctx, shape, 1, -1);
}

static struct status *prepend(struct shape_inference *ctx, int64_t n, struct shape shape,
                              struct shape *ret) {
    return shape_concat(ctx, shape_make(ctx, 1, &n), shape, ret);
}

/* ---- making ---- */

static struct status *shape_make_list(struct shape_inference *ctx) {
    enum dtype dtype = DT_INVALID;
    struct shape element = SHAPE_UNKNOWN;
    TRY(node_get_type(ctx->node, "element_dtype", &dtype));
    TRY(shape_argument(ctx, 0, &element));
    ctx->out[0] = SHAPE_SCALAR;
    set_handle(ctx, dtype, element);
    return NULL;
}

static struct status *shape_from_tensor(struct shape_inference *ctx) {
    struct shape element = SHAPE_UNKNOWN, unused;
    TRY(shape_argument(ctx, 1, &element));
    TRY(shape_merge(ctx, rows_of(ctx, ctx->in[0]), element, &unused));
    ctx->out[0] = SHAPE_SCALAR;
    set_handle(ctx, (enum dtype)ctx->node->in_types[0], element);
    return NULL;
}

static struct status *shape_list_scatter(struct shape_inference *ctx) {
    struct shape element = SHAPE_UNKNOWN;
    TRY(shape_argument(ctx, 2, &element));
    ctx->out[0] = SHAPE_SCALAR;
    set_handle(ctx, (enum dtype)ctx->node->in_types[0], element);
    return NULL;
}

static struct status *shape_list_split(struct shape_inference *ctx) {
    struct shape element = SHAPE_UNKNOWN, any_rows, unused;
    TRY(shape_require_rank_at_least(ctx, 0, 1));
    TRY(shape_require_rank(ctx, 2, 1, NULL));
    TRY(shape_argument(ctx, 1, &element));
    ctx->out[0] = SHAPE_SCALAR;
    if (element.rank >= 1) { /* the first size is not compared */
        TRY(prepend(ctx, -1, shape_sub(ctx, element, 1, -1), &any_rows));
        element = any_rows;
    }
    TRY(shape_merge(ctx, ctx->in[0], element, &unused));
    set_handle(ctx, (enum dtype)ctx->node->in_types[0], element);
    return NULL;
}

/* ---- changing ---- */

static struct status *shape_push(struct shape_inference *ctx) {
    struct shape element;
    enum dtype dtype = (enum dtype)ctx->node->in_types[1];
    TRY(element_of(ctx, 0, dtype, &element));
    ctx->out[0] = SHAPE_SCALAR;
    set_handle(ctx, dtype, element);
    return NULL;
}

static struct status *shape_push_batch(struct shape_inference *ctx) {
    struct shape element, handles, rows = ctx->in[1];
    int64_t n = -1;
    enum dtype dtype = (enum dtype)ctx->node->in_types[1];
    TRY(element_of(ctx, 0, dtype, &element));
    TRY(shape_require_rank(ctx, 0, 1, &handles));
    TRY(shape_require_rank_at_least(ctx, 1, 1));
    TRY(shape_merge_dims(handles.dims[0], rows.rank < 0 ? -1 : rows.dims[0], &n));
    ctx->out[0] = shape_make(ctx, 1, &n);
    set_handle(ctx, dtype, element);
    return NULL;
}

static struct status *shape_set(struct shape_inference *ctx) {
    struct shape element, unused;
    /* the kernel compares the types */
    enum dtype dtype =
        has_handle(ctx, 0) ? ctx->in_handle_dtypes[0] : (enum dtype)ctx->node->in_types[2];
    TRY(element_of(ctx, 0, dtype, &element));
    TRY(shape_merge(ctx, ctx->in[2], element, &unused));
    ctx->out[0] = SHAPE_SCALAR;
    set_handle(ctx, dtype, element);
    return NULL;
}

static struct status *shape_scatter_into(struct shape_inference *ctx) {
    struct shape element;
    enum dtype dtype = (enum dtype)ctx->node->in_types[1];
    TRY(shape_require_rank_at_least(ctx, 1, 1));
    TRY(shape_require_rank(ctx, 2, 1, NULL));
    TRY(element_of(ctx, 0, dtype, &element));
    ctx->out[0] = SHAPE_SCALAR;
    set_handle(ctx, dtype, shape_relax(ctx, element, rows_of(ctx, ctx->in[1])));
    return NULL;
}

static struct status *shape_resize(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    ctx->out[0] = SHAPE_SCALAR;
    if (has_handle(ctx, 0))
        set_handle(ctx, ctx->in_handle_dtypes[0], ctx->in_handle_shapes[0]);
    return NULL;
}

static struct status *shape_join_lists(struct shape_inference *ctx) {
    enum dtype dtype = DT_INVALID;
    struct shape a, b, element;
    TRY(node_get_type(ctx->node, "element_dtype", &dtype));
    TRY(shape_merge(ctx, ctx->in[0], ctx->in[1], &ctx->out[0]));
    TRY(element_of(ctx, 0, dtype, &a));
    TRY(element_of(ctx, 1, dtype, &b));
    TRY(shape_merge(ctx, a, b, &element));
    set_handle(ctx, dtype, element);
    return NULL;
}

/* ---- reading ---- */

static struct status *shape_element_shape(struct shape_inference *ctx) {
    if (!has_handle(ctx, 0) || ctx->in_handle_shapes[0].rank < 0)
        return NULL;
    int64_t rank = ctx->in_handle_shapes[0].rank;
    ctx->out[0] = shape_make(ctx, 1, &rank);
    return NULL;
}

static struct status *shape_get(struct shape_inference *ctx) {
    struct shape element, asked, unused;
    TRY(element_of(ctx, 0, (enum dtype)ctx->node->out_types[0], &element));
    TRY(shape_argument(ctx, 2, &asked));
    TRY(shape_merge(ctx, element, asked, &unused));
    ctx->out[0] = element;
    return NULL;
}

static struct status *shape_pop(struct shape_inference *ctx) {
    struct shape element;
    enum dtype dtype = (enum dtype)ctx->node->out_types[1];
    TRY(element_of(ctx, 0, dtype, &element));
    ctx->out[0] = SHAPE_SCALAR;
    ctx->out[1] = element;
    set_handle(ctx, dtype, element);
    return NULL;
}

/* The shape of the elements, which every element must have here. */
static struct status *merged_element(struct shape_inference *ctx, int asked_input,
                                     struct shape *ret) {
    struct shape element, asked;
    TRY(element_of(ctx, 0, (enum dtype)ctx->node->out_types[0], &element));
    TRY(shape_argument(ctx, asked_input, &asked));
    return shape_merge(ctx, element, asked, ret);
}

static struct status *shape_stack(struct shape_inference *ctx) {
    struct shape element;
    int64_t n = -1;
    TRY(merged_element(ctx, 1, &element));
    TRY(node_get_i(ctx->node, "num_elements", &n));
    return prepend(ctx, MAX(n, (int64_t)-1), element, &ctx->out[0]);
}

static struct status *shape_list_gather(struct shape_inference *ctx) {
    struct shape element, indices = ctx->in[1];
    TRY(merged_element(ctx, 2, &element));
    return prepend(ctx,
                   indices.rank == 1   ? indices.dims[0]
                   : indices.rank == 0 ? 1
                                       : -1,
                   element, &ctx->out[0]);
}

static struct status *shape_list_concat(struct shape_inference *ctx) {
    struct shape element, unused;
    bool is_v1 = ctx->node->n_data == 1;
    if (is_v1) {
        struct shape attr = SHAPE_UNKNOWN;
        TRY(element_of(ctx, 0, (enum dtype)ctx->node->out_types[0], &element));
        TRY(node_get_shape(ctx->node, "element_shape", &attr));
        TRY(shape_merge(ctx, rows_of(ctx, element), rows_of(ctx, attr), &unused));
        element = attr.rank > 0 ? attr : element;
    } else {
        TRY(merged_element(ctx, 1, &element));
    }
    ctx->out[1] = shape_unknown_of_rank(ctx, 1);
    return element.rank > 0 ? prepend(ctx, -1, rows_of(ctx, element), &ctx->out[0]) : NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"EmptyTensorList", "a list without elements", shape_make_list},
    {"TensorListReserve", "a list of elements that are not set yet", shape_make_list},
    {"TensorListFromTensor", "a list of a tensor's rows", shape_from_tensor},
    {"TensorListScatter", "a list whose elements are rows of a tensor, in another order",
     shape_list_scatter},
    {"TensorListScatterV2", "a list of a given size, with rows of a tensor as elements",
     shape_list_scatter},
    {"TensorListScatterIntoExistingList", "rows of a tensor into elements of a list",
     shape_scatter_into},
    {"TensorListSplit", "a list of runs of a tensor's rows", shape_list_split},
    {"TensorListPushBack", "a list with one element more", shape_push},
    {"TensorListPushBackBatch", "lists with one element more each, from rows of a tensor",
     shape_push_batch},
    {"TensorListPopBack", "a list without its last element, and that element", shape_pop},
    {"TensorListSetItem", "a list with one element replaced", shape_set},
    {"TensorListResize", "a list cut, or grown by elements that are not set", shape_resize},
    {"TensorListConcatLists", "one list after the other, pair by pair", shape_join_lists},
    {"TensorListLength", "the number of elements", shape_scalar},
    {"TensorListElementShape", "the shape that every element fits", shape_element_shape},
    {"TensorListGetItem", "one element", shape_get},
    {"TensorListStack", "all elements stacked into one tensor", shape_stack},
    {"TensorListGather", "chosen elements stacked into one tensor", shape_list_gather},
    {"TensorListConcat", "all elements one after the other", shape_list_concat},
    {"TensorListConcatV2", "all elements one after the other; sizes for those that are not set",
     shape_list_concat},
};
// clang-format on

const struct op_def_list list_ops = {rows, ARRAY_LEN(rows)};
