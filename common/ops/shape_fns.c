/* Defines static shape functions and helpers that many families share (op_def.h). Inference only
 * narrows: an unknown size may stay unknown, and an error means that no run can succeed. */
#include "common/ops/op_def.h"

struct status *shape_unknown(struct shape_inference *ctx) {
    (void)ctx;
    return NULL;
}

struct status *shape_same_as_input(struct shape_inference *ctx) {
    for (int i = 0; i < ctx->node->n_outputs; i++) {
        ctx->out[i] = ctx->in[0];
        if (!ctx->in_handle_dtypes || !ctx->out_handle_dtypes)
            continue;
        ctx->out_handle_dtypes[i] = ctx->in_handle_dtypes[0];
        ctx->out_handle_shapes[i] = ctx->in_handle_shapes[0];
    }
    return NULL;
}

struct status *shape_broadcast(struct shape_inference *ctx) {
    return shape_of_broadcast(ctx, ctx->in[0], ctx->in[1], &ctx->out[0]);
}

struct status *shape_scalar(struct shape_inference *ctx) {
    for (int i = 0; i < ctx->node->n_outputs; i++)
        ctx->out[i] = SHAPE_SCALAR;
    return NULL;
}

struct status *shape_none(struct shape_inference *ctx) {
    (void)ctx;
    return NULL;
}

/* A sum of lists has elements like those of the lists. */
static struct status *merge_all_handles(struct shape_inference *ctx) {
    enum dtype dtype = DT_INVALID;
    struct shape merged = SHAPE_UNKNOWN;
    if (!ctx->in_handle_dtypes || !ctx->out_handle_dtypes)
        return NULL;
    for (int i = 0; i < ctx->node->n_data; i++) {
        enum dtype own = ctx->in_handle_dtypes[i];
        if (own == DT_INVALID)
            continue;
        if (dtype != DT_INVALID && dtype != own)
            return status_invalid("Handles must refer to equal types, but to %s and %s",
                                  dtype_name(dtype), dtype_name(own));
        dtype = own;
        TRY(shape_merge(ctx, merged, ctx->in_handle_shapes[i], &merged));
    }
    ctx->out_handle_dtypes[0] = dtype;
    ctx->out_handle_shapes[0] = merged;
    return NULL;
}

struct status *shape_from_attr(struct shape_inference *ctx) {
    return node_get_shape(ctx->node, "shape", &ctx->out[0]);
}

struct status *shape_v1_handle(struct shape_inference *ctx) {
    ctx->out[0] = shape_make(ctx, 1, (const int64_t[]){2});
    return NULL;
}

struct status *shape_merge_two_inputs(struct shape_inference *ctx) {
    return shape_merge(ctx, ctx->in[0], ctx->in[1], &ctx->out[0]);
}

struct status *shape_merge_all_inputs(struct shape_inference *ctx) {
    struct shape merged = SHAPE_UNKNOWN;
    for (int i = 0; i < ctx->node->n_data; i++) {
        struct status *st = shape_merge(ctx, merged, ctx->in[i], &merged);
        if (st)
            return status_prefix_take(st, "From merging shape %d with other shapes: ", i);
    }
    ctx->out[0] = merged;
    return merge_all_handles(ctx);
}

struct status *shape_reduction(struct shape_inference *ctx) {
    struct shape in = ctx->in[0];
    bool keep = false;
    if (node_attr(ctx->node, "keep_dims"))
        TRY(node_get_b(ctx->node, "keep_dims", &keep));
    const struct tensor *axes = ctx->in_values[1];
    if (ctx->in[1].rank > 1)
        return status_invalid("Shape must be at most rank 1 but is rank %d", ctx->in[1].rank);
    /* without axes nothing is summed */
    if (!axes && ctx->in[1].rank == 1 && ctx->in[1].dims[0] == 0) {
        ctx->out[0] = in;
        return NULL;
    }
    if (in.rank < 0 || !axes) {
        ctx->out[0] = keep && in.rank >= 0 ? shape_unknown_of_rank(ctx, in.rank) : SHAPE_UNKNOWN;
        return NULL;
    }
    bool *is_reduced = arena_array(ctx->arena, bool, in.rank + 1);
    for (int64_t i = 0; i < tensor_n_elements(axes); i++) {
        int64_t axis = tensor_index_at(axes, i);
        if (axis < -in.rank || axis >= in.rank)
            return status_invalid("Invalid reduction dimension %lld for input with %d dimensions.",
                                  (long long)axis, in.rank);
        is_reduced[axis < 0 ? axis + in.rank : axis] = true;
    }
    int64_t *dims = arena_array(ctx->arena, int64_t, in.rank + 1);
    int rank = 0;
    for (int i = 0; i < in.rank; i++) {
        if (!is_reduced[i])
            dims[rank++] = in.dims[i];
        else if (keep)
            dims[rank++] = 1;
    }
    ctx->out[0] = (struct shape){rank, dims};
    return NULL;
}

/* ---- helpers ---- */

struct status *shape_require_rank(struct shape_inference *ctx, int input, int rank,
                                  struct shape *ret) {
    struct shape shape = ctx->in[input];
    if (rank < 0 || rank > SHAPE_MAX_RANK) /* follows from attrs */
        return status_invalid("Shape must be rank %d, which no tensor has", rank);
    if (shape.rank >= 0 && shape.rank != rank)
        return status_invalid("Shape must be rank %d but is rank %d", rank, shape.rank);
    if (ret)
        *ret = shape.rank < 0 ? shape_unknown_of_rank(ctx, rank) : shape;
    return NULL;
}

struct status *shape_require_rank_at_least(struct shape_inference *ctx, int input, int rank) {
    struct shape shape = ctx->in[input];
    if (shape.rank >= 0 && shape.rank < rank)
        return status_invalid("Shape must be at least rank %d but is rank %d", rank, shape.rank);
    return NULL;
}

struct status *shape_merge_dims(int64_t a, int64_t b, int64_t *ret) {
    if (a >= 0 && b >= 0 && a != b)
        return status_invalid("Dimensions must be equal, but are %lld and %lld", (long long)a,
                              (long long)b);
    *ret = a >= 0 ? a : b;
    return NULL;
}

struct status *shape_merge(struct shape_inference *ctx, struct shape a, struct shape b,
                           struct shape *ret) {
    if (a.rank < 0 || b.rank < 0) {
        *ret = a.rank < 0 ? b : a;
        return NULL;
    }
    if (a.rank != b.rank)
        return status_invalid("Shapes must be equal rank, but are %d and %d", a.rank, b.rank);
    int64_t *dims = arena_array(ctx->arena, int64_t, a.rank + 1);
    for (int i = 0; i < a.rank; i++) {
        if (a.dims[i] >= 0 && b.dims[i] >= 0 && a.dims[i] != b.dims[i])
            return status_invalid("Dimension %d in both shapes must be equal, but are %lld and "
                                  "%lld. Shapes are %s and %s.",
                                  i, (long long)a.dims[i], (long long)b.dims[i], SHAPE_TEXT(a),
                                  SHAPE_TEXT(b));
        dims[i] = a.dims[i] >= 0 ? a.dims[i] : b.dims[i];
    }
    *ret = (struct shape){a.rank, dims};
    return NULL;
}

/* One size of a broadcast. A known size above 1 decides against an unknown one. With a 1 the other
 * side decides. */
static int64_t broadcast_dim(int64_t a, int64_t b) {
    if (a > 1 || b == 1)
        return a;
    if (b > 1 || a == 1)
        return b;
    return a == b ? a : -1;
}

struct status *shape_of_broadcast(struct shape_inference *ctx, struct shape a, struct shape b,
                                  struct shape *ret) {
    if (a.rank < 0 || b.rank < 0) {
        *ret = SHAPE_UNKNOWN;
        return NULL;
    }
    int rank = MAX(a.rank, b.rank);
    int64_t *dims = arena_array(ctx->arena, int64_t, rank + 1);
    for (int i = 0; i < rank; i++) {
        int at_a = i - (rank - a.rank), at_b = i - (rank - b.rank);
        int64_t dim_a = at_a < 0 ? 1 : a.dims[at_a], dim_b = at_b < 0 ? 1 : b.dims[at_b];
        if (dim_a >= 0 && dim_b >= 0 && dim_a != dim_b && dim_a != 1 && dim_b != 1)
            return status_invalid("Dimensions must be equal, but are %lld and %lld",
                                  (long long)dim_a, (long long)dim_b);
        dims[i] = broadcast_dim(dim_a, dim_b);
    }
    *ret = (struct shape){rank, dims};
    return NULL;
}

struct status *shape_concat(struct shape_inference *ctx, struct shape a, struct shape b,
                            struct shape *ret) {
    if (a.rank < 0 || b.rank < 0) {
        *ret = SHAPE_UNKNOWN;
        return NULL;
    }
    if (a.rank + b.rank > SHAPE_MAX_RANK)
        return status_invalid("Shape of rank %d is beyond the limit of %d", a.rank + b.rank,
                              SHAPE_MAX_RANK);
    int64_t *dims = arena_array(ctx->arena, int64_t, a.rank + b.rank + 1);
    for (int i = 0; i < a.rank; i++)
        dims[i] = a.dims[i];
    for (int i = 0; i < b.rank; i++)
        dims[a.rank + i] = b.dims[i];
    *ret = (struct shape){a.rank + b.rank, dims};
    return NULL;
}

struct shape shape_make(struct shape_inference *ctx, int rank, const int64_t *dims) {
    return shape_dup((struct shape){rank, dims}, ctx->arena);
}

struct shape shape_unknown_of_rank(struct shape_inference *ctx, int rank) {
    if (rank < 0 || rank > SHAPE_MAX_RANK)
        return SHAPE_UNKNOWN;
    int64_t *dims = arena_array(ctx->arena, int64_t, rank + 1);
    for (int i = 0; i < rank; i++)
        dims[i] = -1;
    return (struct shape){rank, dims};
}

struct shape shape_sub(struct shape_inference *ctx, struct shape shape, int begin, int end) {
    (void)ctx;
    if (shape.rank < 0)
        return SHAPE_UNKNOWN;
    end = end < 0 || end > shape.rank ? shape.rank : end;
    begin = MIN(begin, end);
    return (struct shape){end - begin, shape.dims ? shape.dims + begin : NULL};
}

struct status *shape_from_input(struct shape_inference *ctx, int input, struct shape *ret) {
    const struct tensor *value = ctx->in_values[input];
    struct shape own = ctx->in[input];
    if (!value) {
        if (own.rank >= 0 && own.rank != 1)
            return status_invalid("Shape must be rank 1 but is rank %d", own.rank);
        if (ctx->in_as_shapes && ctx->in_as_shapes[input]) {
            *ret = *ctx->in_as_shapes[input];
            return NULL;
        }
        bool is_sized = own.rank == 1 && own.dims[0] >= 0 && own.dims[0] <= SHAPE_MAX_RANK;
        *ret = is_sized ? shape_unknown_of_rank(ctx, (int)own.dims[0]) : SHAPE_UNKNOWN;
        return NULL;
    }
    if (value->dtype != DT_INT32 && value->dtype != DT_INT64)
        return status_invalid("Shape tensor must be int32 or int64, but is %s",
                              dtype_name((enum dtype)value->dtype));
    if (value->rank != 1)
        return status_invalid("Shape must be rank 1 but is rank %d", value->rank);
    *ret = SHAPE_UNKNOWN;
    if (value->n_elements > SHAPE_MAX_RANK) /* the kernel reports it */
        return NULL;
    int64_t *dims = arena_array(ctx->arena, int64_t, value->n_elements + 1);
    for (int64_t i = 0; i < value->n_elements; i++) {
        dims[i] = tensor_index_at(value, i);
        if (dims[i] < -1)
            return status_invalid("Invalid value in tensor used for shape: %lld",
                                  (long long)dims[i]);
    }
    *ret = (struct shape){(int)value->n_elements, dims};
    return NULL;
}

struct status *shape_from_input_or_scalar(struct shape_inference *ctx, int input,
                                          struct shape *ret) {
    if (ctx->in[input].rank > 1)
        return status_invalid("Shape must be at most rank 1 but is rank %d", ctx->in[input].rank);
    if (ctx->in[input].rank != 0)
        return shape_from_input(ctx, input, ret);
    const struct tensor *value = ctx->in_values[input];
    *ret = SHAPE_UNKNOWN;
    if (value && tensor_index_at(value, 0) != -1)
        return status_invalid(
            "Received an invalid shape scalar with a static value that is not '-1': %lld",
            (long long)tensor_index_at(value, 0));
    return NULL;
}
