/* Lists the ops of the array family that join and split tensors and take parts of them. */
#include "common/ops/op_def.h"
#include "common/ops/strided_slice.h"

/* ---- Concat, Pack ---- */

struct status *shape_of_joined(struct shape_inference *ctx, int first, int n, int axis_input) {
    const struct tensor *axis = ctx->in_values[axis_input];
    TRY(shape_require_rank(ctx, axis_input, 0, NULL));
    int rank = -1;
    for (int i = first; i < first + n; i++) {
        if (ctx->in[i].rank < 0)
            continue;
        if (rank >= 0 && ctx->in[i].rank != rank)
            return status_invalid("Shapes must be equal rank, but are %d and %d", rank,
                                  ctx->in[i].rank);
        rank = ctx->in[i].rank;
    }
    if (rank < 0)
        return NULL;
    if (!axis) {
        ctx->out[0] = shape_unknown_of_rank(ctx, rank);
        return NULL;
    }
    int64_t at = tensor_index_at(axis, 0), sum = 0;
    if (at < -(int64_t)rank || at >= rank)
        return status_invalid(
            "Expected concatenating dimensions in the range [%d, %d), but got %lld", -rank, rank,
            (long long)at);
    at += at < 0 ? rank : 0;
    struct shape out = shape_unknown_of_rank(ctx, rank);
    for (int i = first; i < first + n; i++) {
        struct shape in = ctx->in[i];
        bool known = in.rank >= 0 && in.dims[at] >= 0;
        if (sum >= 0 && known && add_overflows_i64(sum, in.dims[at], &sum))
            return status_invalid("The joined size of dimension %lld does not fit", (long long)at);
        sum = known ? sum : -1;
        if (in.rank < 0)
            continue;
        int64_t *others = arena_memdup(ctx->arena, in.dims, (size_t)rank * sizeof(*others));
        others[at] = -1;
        TRY(shape_merge(ctx, out, (struct shape){rank, others}, &out));
    }
    int64_t *dims = arena_memdup(ctx->arena, out.dims, (size_t)rank * sizeof(*dims));
    dims[at] = sum;
    ctx->out[0] = (struct shape){rank, dims};
    return NULL;
}

static struct status *shape_of_concat(struct shape_inference *ctx) {
    return shape_of_joined(ctx, 1, ctx->node->n_data - 1, 0);
}
static struct status *shape_of_concat_v2(struct shape_inference *ctx) {
    return shape_of_joined(ctx, 0, ctx->node->n_data - 1, ctx->node->n_data - 1);
}

static struct status *shape_of_concat_offset(struct shape_inference *ctx) {
    for (int i = 1; i < ctx->node->n_data; i++)
        TRY(shape_require_rank(ctx, i, 1, &ctx->out[i - 1]));
    return NULL;
}

static struct status *read_axis(struct shape_inference *ctx, int rank, int *ret) {
    int64_t axis;
    TRY(node_get_i(ctx->node, "axis", &axis));
    if (axis < -(int64_t)rank || axis >= rank)
        return status_invalid("Invalid axis: %lld; must be in [%d,%d)", (long long)axis, -rank,
                              rank);
    *ret = (int)(axis < 0 ? axis + rank : axis);
    return NULL;
}

static struct status *shape_of_pack(struct shape_inference *ctx) {
    struct shape in = SHAPE_UNKNOWN;
    int axis = 0;
    for (int i = 0; i < ctx->node->n_data; i++) {
        struct status *st = shape_merge(ctx, in, ctx->in[i], &in);
        if (st)
            return status_prefix_take(st, "From merging shape %d with other shapes: ", i);
    }
    if (in.rank < 0)
        return NULL;
    TRY(read_axis(ctx, in.rank + 1, &axis));
    int64_t n = ctx->node->n_data;
    struct shape head;
    TRY(shape_concat(ctx, shape_sub(ctx, in, 0, axis), shape_make(ctx, 1, &n), &head));
    return shape_concat(ctx, head, shape_sub(ctx, in, axis, -1), &ctx->out[0]);
}

static struct status *shape_of_unpack(struct shape_inference *ctx) {
    struct shape in = ctx->in[0], out;
    int axis = 0;
    if (in.rank < 0)
        return NULL;
    TRY(read_axis(ctx, in.rank, &axis));
    if (in.dims[axis] >= 0 && in.dims[axis] != ctx->node->n_outputs)
        return status_invalid("Dimension must be %d but is %lld", ctx->node->n_outputs,
                              (long long)in.dims[axis]);
    TRY(shape_concat(ctx, shape_sub(ctx, in, 0, axis), shape_sub(ctx, in, axis + 1, -1), &out));
    for (int i = 0; i < ctx->node->n_outputs; i++)
        ctx->out[i] = out;
    return NULL;
}

static struct status *shape_of_parallel_concat(struct shape_inference *ctx) {
    struct shape shape;
    TRY(node_get_shape(ctx->node, "shape", &shape));
    struct shape in = SHAPE_UNKNOWN;
    for (int i = 0; i < ctx->node->n_data; i++)
        TRY(shape_merge(ctx, in, ctx->in[i], &in));
    if (in.rank == 0 || (in.rank > 0 && in.dims[0] > 1))
        return status_invalid("Size of first dimension must be 1.");
    if (shape_is_full(shape)) {
        ctx->out[0] = shape;
        return NULL;
    }
    if (in.rank < 0)
        return NULL;
    int64_t *dims = arena_memdup(ctx->arena, in.dims, (size_t)in.rank * sizeof(*dims));
    dims[0] = ctx->node->n_data;
    ctx->out[0] = (struct shape){in.rank, dims};
    return NULL;
}

/* ---- Split ---- */

static void split_outputs(struct shape_inference *ctx, struct shape in, int axis,
                          const int64_t *sizes) {
    for (int i = 0; i < ctx->node->n_outputs; i++) {
        int64_t *dims = arena_memdup(ctx->arena, in.dims, (size_t)in.rank * sizeof(*dims));
        dims[axis] = sizes ? sizes[i] : -1;
        ctx->out[i] = (struct shape){in.rank, dims};
    }
}

static struct status *split_axis(struct shape_inference *ctx, struct shape in, int input,
                                 int *ret) {
    *ret = -1;
    const struct tensor *axis = ctx->in_values[input];
    if (in.rank < 0)
        return NULL;
    if (axis && axis->n_elements == 1) {
        int64_t at = tensor_index_at(axis, 0);
        if (at < -(int64_t)in.rank || at >= in.rank)
            return status_invalid(
                "Dimension size, given by scalar input %lld must be in range [-%d, %d)",
                (long long)at, in.rank, in.rank);
        *ret = (int)(at < 0 ? at + in.rank : at);
        return NULL;
    }
    for (int i = 0; i < ctx->node->n_outputs; i++)
        ctx->out[i] = shape_unknown_of_rank(ctx, in.rank);
    return NULL;
}

static struct status *shape_of_split(struct shape_inference *ctx) {
    struct shape in = ctx->in[1];
    int axis, n = ctx->node->n_outputs;
    TRY(split_axis(ctx, in, 0, &axis));
    if (in.rank < 0 || axis < 0)
        return NULL;
    if (in.dims[axis] < 0) {
        split_outputs(ctx, in, axis, NULL);
        return NULL;
    }
    if (in.dims[axis] % n != 0)
        return status_invalid("Dimension size must be evenly divisible by %d but is %lld", n,
                              (long long)in.dims[axis]);
    int64_t *sizes = arena_array(ctx->arena, int64_t, n + 1);
    for (int i = 0; i < n; i++)
        sizes[i] = in.dims[axis] / n;
    split_outputs(ctx, in, axis, sizes);
    return NULL;
}

static int64_t size_at(const struct tensor *t, int i) {
    return t->dtype == DT_INT8 ? (int64_t)((const int8_t *)tensor_cdata(t))[i]
                               : tensor_index_at(t, i);
}

static struct status *shape_of_split_v(struct shape_inference *ctx) {
    struct shape in = ctx->in[0];
    const struct tensor *asked = ctx->in_values[1];
    int axis, n = ctx->node->n_outputs, unknown = -1;
    TRY(split_axis(ctx, in, 2, &axis));
    if (in.rank < 0 || axis < 0)
        return NULL;
    if (!asked || asked->n_elements != n) {
        split_outputs(ctx, in, axis, n == 1 ? &in.dims[axis] : NULL);
        return NULL;
    }
    int64_t *sizes = arena_array(ctx->arena, int64_t, n + 1), sum = 0;
    for (int i = 0; i < n; i++) {
        sizes[i] = size_at(asked, i);
        if (sizes[i] == -1)
            unknown = i;
        else if (sizes[i] < 0 || add_overflows_i64(sum, sizes[i], &sum))
            return status_invalid("can't split axis of size %lld into pieces of size %lld",
                                  (long long)in.dims[axis], (long long)sizes[i]);
    }
    if (in.dims[axis] >= 0 && (unknown < 0 ? sum != in.dims[axis] : sum > in.dims[axis]))
        return status_invalid("can't split axis of size %lld into pieces that sum to %lld",
                              (long long)in.dims[axis], (long long)sum);
    if (unknown >= 0 && in.dims[axis] >= 0)
        sizes[unknown] = in.dims[axis] - sum;
    split_outputs(ctx, in, axis, sizes);
    return NULL;
}

/* ---- Slice ---- */

static struct status *shape_of_slice(struct shape_inference *ctx) {
    struct shape in = ctx->in[0], begin, size;
    TRY(shape_require_rank(ctx, 1, 1, &begin));
    TRY(shape_require_rank(ctx, 2, 1, &size));
    int64_t n;
    TRY(shape_merge_dims(begin.dims[0], size.dims[0], &n));
    TRY(shape_merge_dims(n, in.rank < 0 ? -1 : in.rank, &n));
    if (n < 0 || n > SHAPE_MAX_RANK)
        return NULL;
    const struct tensor *first = ctx->in_values[1], *sizes = ctx->in_values[2];
    int64_t *dims = arena_array(ctx->arena, int64_t, n + 1);
    for (int i = 0; i < n; i++) {
        int64_t dim = in.rank < 0 ? -1 : in.dims[i], at = first ? tensor_index_at(first, i) : -1,
                count = sizes ? tensor_index_at(sizes, i) : -2;
        if (count < -1 && sizes)
            return status_invalid("Expected size[%d] in [-1, %lld], but got %lld", i,
                                  (long long)dim, (long long)count);
        dims[i] = count; /* the kernel checks that the part is inside */
        if (count >= 0)
            continue;
        if (count == -1 && at >= 0 && dim >= 0 && at > dim)
            return status_invalid("Negative dimension size caused by subtracting %lld from %lld",
                                  (long long)at, (long long)dim);
        dims[i] = count == -1 && at >= 0 && dim >= 0 ? dim - at : -1;
    }
    ctx->out[0] = (struct shape){(int)n, dims};
    return NULL;
}

/* Needs the values of the strides: without them even the rank is unknown. */
static struct status *shape_of_strided_slice(struct shape_inference *ctx) {
    struct strided_slice_masks masks;
    struct shape begin, end, strides;
    TRY(shape_require_rank(ctx, 1, 1, &begin));
    TRY(shape_require_rank(ctx, 2, 1, &end));
    TRY(shape_require_rank(ctx, 3, 1, &strides));
    struct shape merged;
    TRY(shape_merge(ctx, begin, end, &merged));
    TRY(shape_merge(ctx, merged, strides, &merged));
    if (ctx->in[0].rank < 0 || !ctx->in_values[3])
        return NULL;
    struct strided_slice slice;
    TRY(strided_slice_masks_read(ctx->node, &masks));
    TRY(strided_slice_resolve(&masks, ctx->in[0], ctx->in_values[1], ctx->in_values[2],
                              ctx->in_values[3], &slice));
    ctx->out[0] = shape_make(ctx, slice.out_rank, slice.out);
    if (dtype_base((enum dtype)ctx->node->in_types[0]) == DT_RESOURCE && ctx->in_handle_dtypes &&
        ctx->out_handle_dtypes) {
        ctx->out_handle_dtypes[0] = ctx->in_handle_dtypes[0];
        ctx->out_handle_shapes[0] = ctx->in_handle_shapes[0];
    }
    return NULL;
}

static struct status *shape_of_strided_slice_grad(struct shape_inference *ctx) {
    return shape_from_input(ctx, 0, &ctx->out[0]);
}

// clang-format off
static const struct op_def rows[] = {
    {"Concat", "tensors joined along a dimension, the dimension first", shape_of_concat},
    {"ConcatV2", "tensors joined along a dimension", shape_of_concat_v2},
    {"ConcatOffset", "where each input begins in a concatenation", shape_of_concat_offset},
    {"Pack", "tensors stacked along a new dimension", shape_of_pack},
    {"Unpack", "the slices of a tensor along a dimension, without that dimension", shape_of_unpack},
    {"ParallelConcat", "tensors of one row each, joined", shape_of_parallel_concat},
    {"Split", "a tensor in equal parts along a dimension", shape_of_split},
    {"SplitV", "a tensor in parts of given sizes along a dimension", shape_of_split_v},
    {"Slice", "a box out of a tensor", shape_of_slice},
    {"StridedSlice", "a box out of a tensor, with steps, new and dropped dimensions",
     shape_of_strided_slice},
    {"StridedSliceGrad", "the gradient of StridedSlice: zeros outside of the slice",
     shape_of_strided_slice_grad},
    {"StridedSliceAssign", "a value written to a slice of a reference variable",
     shape_same_as_input},
    {"ResourceStridedSliceAssign", "a value written to a slice of a resource variable", shape_none},
    {"TensorStridedSliceUpdate", "the input with a slice replaced", shape_same_as_input},
};
// clang-format on

const struct op_def_list array_join_ops = {rows, ARRAY_LEN(rows)};
