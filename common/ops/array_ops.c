/* Lists the ops of the array family on values, on shapes as values, and with new shapes for old
 * elements. array_join_ops.c has joins and parts, array_index_ops.c indices, array_space_ops.c
 * padding and blocks of space. */
#include "common/ops/op_def.h"

/* ---- values ---- */

static struct status *shape_of_const(struct shape_inference *ctx) {
    const struct tensor *value;
    TRY(node_get_tensor(ctx->node, "value", &value));
    ctx->out[0] = shape_dup(tensor_shape(value), ctx->arena);
    return NULL;
}

/* Up to this version a client wrote [] for an unknown shape. */
enum { LAST_PRODUCER_OF_EMPTY_SHAPES = 21 };

static struct status *shape_of_placeholder(struct shape_inference *ctx) {
    struct shape shape;
    TRY(node_get_shape(ctx->node, "shape", &shape));
    ctx->out[0] =
        shape.rank == 0 && ctx->producer <= LAST_PRODUCER_OF_EMPTY_SHAPES ? SHAPE_UNKNOWN : shape;
    return NULL;
}

static struct status *shape_of_placeholder_with_default(struct shape_inference *ctx) {
    struct shape shape, merged;
    TRY(node_get_shape(ctx->node, "shape", &shape));
    /* the default must fit; a feed may have other sizes than the default */
    TRY(shape_merge(ctx, ctx->in[0], shape, &merged));
    ctx->out[0] = shape;
    return NULL;
}

static struct status *shape_of_ensure_shape(struct shape_inference *ctx) {
    struct shape shape;
    TRY(node_get_shape(ctx->node, "shape", &shape));
    return shape_merge(ctx, ctx->in[0], shape, &ctx->out[0]);
}

static struct status *shape_each_as_its_input(struct shape_inference *ctx) {
    for (int i = 0; i < ctx->node->n_outputs; i++) {
        ctx->out[i] = ctx->in[i];
        if (!ctx->in_handle_dtypes || !ctx->out_handle_dtypes)
            continue;
        ctx->out_handle_dtypes[i] = ctx->in_handle_dtypes[i];
        ctx->out_handle_shapes[i] = ctx->in_handle_shapes[i];
    }
    return NULL;
}

static struct status *shape_of_bitcast(struct shape_inference *ctx) {
    int64_t in_size = (int64_t)dtype_size(dtype_base((enum dtype)ctx->node->in_types[0])),
            out_size = (int64_t)dtype_size(dtype_base((enum dtype)ctx->node->out_types[0]));
    struct shape in = ctx->in[0];
    if (in.rank < 0)
        return NULL;
    if (in_size > out_size) {
        int64_t ratio = in_size / out_size;
        return shape_concat(ctx, in, shape_make(ctx, 1, &ratio), &ctx->out[0]);
    }
    if (in_size < out_size) {
        int64_t ratio = out_size / in_size;
        TRY(shape_require_rank_at_least(ctx, 0, 1));
        if (in.dims[in.rank - 1] >= 0 && in.dims[in.rank - 1] != ratio)
            return status_invalid("Cannot bitcast due to shape. %lld does not match %lld",
                                  (long long)in.dims[in.rank - 1], (long long)ratio);
        in = shape_sub(ctx, in, 0, in.rank - 1);
    }
    ctx->out[0] = in;
    return NULL;
}

static struct status *shape_of_fill(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 1, NULL));
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    return shape_from_input(ctx, 0, &ctx->out[0]);
}

static struct status *shape_of_empty(struct shape_inference *ctx) {
    return shape_from_input(ctx, 0, &ctx->out[0]);
}

/* ---- shapes as values ---- */

static struct status *shape_of_shape_n(struct shape_inference *ctx) {
    for (int i = 0; i < ctx->node->n_outputs; i++) {
        int64_t rank = ctx->in[i].rank < 0 ? -1 : ctx->in[i].rank;
        ctx->out[i] = shape_make(ctx, 1, &rank);
    }
    return NULL;
}

static struct status *shape_of_broadcast_args(struct shape_inference *ctx) {
    struct shape a, b;
    TRY(shape_require_rank(ctx, 0, 1, &a));
    TRY(shape_require_rank(ctx, 1, 1, &b));
    int64_t rank = a.dims[0] < 0 || b.dims[0] < 0 ? -1 : MAX(a.dims[0], b.dims[0]);
    ctx->out[0] = shape_make(ctx, 1, &rank);
    return NULL;
}

static struct status *shape_of_broadcast_gradient_args(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 1, NULL));
    TRY(shape_require_rank(ctx, 1, 1, NULL));
    ctx->out[0] = ctx->out[1] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

/* ---- new shapes ---- */

/* Computes one unknown size of the requested shape from the number of elements. */
struct status *shape_of_reshape(struct shape_inference *ctx) {
    struct shape in = ctx->in[0], out;
    TRY(shape_from_input(ctx, 1, &out));
    ctx->out[0] = out;
    if (out.rank < 0 || in.rank < 0 ||
        (!ctx->in_values[1] && !(ctx->in_as_shapes && ctx->in_as_shapes[1])))
        return NULL;
    int64_t n_in = 1, n_out = 1;
    int unknown = -1, n_unknown = 0;
    bool in_known = shape_is_full(in);
    for (int i = 0; i < in.rank && in_known; i++)
        in_known = !mul_overflows_i64(n_in, in.dims[i], &n_in);
    for (int i = 0; i < out.rank; i++) {
        if (out.dims[i] < 0) {
            unknown = i;
            n_unknown++;
        } else if (mul_overflows_i64(n_out, out.dims[i], &n_out)) {
            return NULL;
        }
    }
    if (!in_known)
        return NULL;
    if (n_unknown == 0 && n_in != n_out)
        return status_invalid(
            "Cannot reshape a tensor with %lld elements to shape %s (%lld elements)",
            (long long)n_in, SHAPE_TEXT(out), (long long)n_out);
    if (n_unknown != 1 || n_out == 0)
        return NULL;
    if (n_in % n_out != 0)
        return status_invalid("Dimension size must be evenly divisible by %lld but is %lld",
                              (long long)n_out, (long long)n_in);
    int64_t *dims = (int64_t *)arena_memdup(ctx->arena, out.dims, (size_t)out.rank * sizeof(*dims));
    dims[unknown] = n_in / n_out;
    ctx->out[0] = (struct shape){out.rank, dims};
    return NULL;
}

static struct status *shape_of_expand_dims(struct shape_inference *ctx) {
    struct shape in = ctx->in[0];
    const struct tensor *axis = ctx->in_values[1];
    if (in.rank < 0)
        return NULL;
    if (!axis) {
        ctx->out[0] =
            in.rank < SHAPE_MAX_RANK ? shape_unknown_of_rank(ctx, in.rank + 1) : SHAPE_UNKNOWN;
        return NULL;
    }
    if (axis->n_elements != 1)
        return status_invalid("'dim' input must be a tensor with a single value");
    int64_t at = tensor_index_at(axis, 0), one = 1;
    if (at < -1 - (int64_t)in.rank || at > in.rank)
        return status_invalid("dim %lld not in the interval [%d, %d].", (long long)at, -1 - in.rank,
                              in.rank);
    at += at < 0 ? in.rank + 1 : 0;
    struct shape head;
    TRY(shape_concat(ctx, shape_sub(ctx, in, 0, (int)at), shape_make(ctx, 1, &one), &head));
    return shape_concat(ctx, head, shape_sub(ctx, in, (int)at, -1), &ctx->out[0]);
}

static struct status *shape_of_squeeze(struct shape_inference *ctx) {
    struct shape in = ctx->in[0];
    const struct attr_value *axes;
    int n_axes;
    TRY(node_get_list(ctx->node, "squeeze_dims", &axes, &n_axes));
    if (in.rank < 0)
        return NULL;
    bool *is_chosen = arena_array(ctx->arena, bool, in.rank + 1);
    for (int i = 0; i < n_axes; i++) {
        int64_t at = axes[i].i;
        if (at < -(int64_t)in.rank || at >= in.rank)
            return status_invalid("squeeze_dims[%d] not in [%d,%d).", i, -in.rank, in.rank);
        is_chosen[at < 0 ? at + in.rank : at] = true;
    }
    int64_t *dims = arena_array(ctx->arena, int64_t, in.rank + 1);
    int rank = 0;
    for (int i = 0; i < in.rank; i++) {
        if (in.dims[i] < 0 && n_axes == 0)
            return NULL; /* unknown, because it may be 1 */
        bool goes = n_axes > 0 ? is_chosen[i] : in.dims[i] == 1;
        if (goes && in.dims[i] >= 0 && in.dims[i] != 1)
            return status_invalid("Can not squeeze dim[%d], expected a dimension of 1, got %lld", i,
                                  (long long)in.dims[i]);
        if (!goes)
            dims[rank++] = in.dims[i];
    }
    ctx->out[0] = (struct shape){rank, dims};
    return NULL;
}

static struct status *shape_of_broadcast_to(struct shape_inference *ctx) {
    struct shape in = ctx->in[0], out;
    TRY(shape_from_input(ctx, 1, &out));
    ctx->out[0] = out;
    if (in.rank < 0 || out.rank < 0)
        return NULL;
    if (in.rank > out.rank)
        return status_invalid(
            "Shape must be at least rank %d but is rank %d (the shape to broadcast to)", in.rank,
            out.rank);
    for (int i = 0; i < in.rank; i++) {
        int64_t from = in.dims[i], to = out.dims[out.rank - in.rank + i];
        if (from > 1 && to >= 0 && from != to) /* of a size of 0, the kernel says it */
            return status_invalid("Dimensions must be equal, but are %lld and %lld",
                                  (long long)from, (long long)to);
    }
    return NULL;
}

static struct status *shape_of_tile(struct shape_inference *ctx) {
    struct shape in = ctx->in[0], times;
    TRY(shape_require_rank(ctx, 1, 1, &times));
    const struct tensor *value = ctx->in_values[1];
    if (in.rank < 0 && times.dims[0] >= 0 && times.dims[0] <= SHAPE_MAX_RANK)
        in = shape_unknown_of_rank(ctx, (int)times.dims[0]);
    if (in.rank < 0)
        return NULL;
    if (times.dims[0] >= 0 && times.dims[0] != in.rank)
        return status_invalid("Shape must be rank %lld but is rank %d", (long long)times.dims[0],
                              in.rank);
    int64_t *dims = arena_array(ctx->arena, int64_t, in.rank + 1);
    for (int i = 0; i < in.rank; i++) {
        int64_t factor = value ? tensor_index_at(value, i) : -1;
        dims[i] = -1;
        if (factor < 0) /* unknown, or the kernel reports it */
            continue;
        if (factor == 0)
            dims[i] = 0;
        else if (in.dims[i] >= 0 && mul_overflows_i64(in.dims[i], factor, &dims[i]))
            return status_invalid("The tiled size of dimension %d does not fit", i);
    }
    ctx->out[0] = (struct shape){in.rank, dims};
    return NULL;
}

/* ---- other orders ---- */

static struct status *shape_of_transpose(struct shape_inference *ctx) {
    struct shape in = ctx->in[0], perm;
    TRY(shape_require_rank(ctx, 1, 1, &perm));
    const struct tensor *value = ctx->in_values[1];
    int rank = in.rank >= 0                                          ? in.rank
               : perm.dims[0] >= 0 && perm.dims[0] <= SHAPE_MAX_RANK ? (int)perm.dims[0]
                                                                     : -1;
    if (rank < 0)
        return NULL;
    if (perm.dims[0] >= 0 && perm.dims[0] != rank)
        return status_invalid("Dimension must be %d but is %lld (the permutation's length)", rank,
                              (long long)perm.dims[0]);
    ctx->out[0] = shape_unknown_of_rank(ctx, rank);
    if (!value || in.rank < 0) {
        if (in.rank == 1)
            ctx->out[0] = in;
        return NULL;
    }
    int64_t *dims = arena_array(ctx->arena, int64_t, rank + 1);
    for (int i = 0; i < rank; i++) {
        int64_t at = tensor_index_at(value, i);
        if (at < -(int64_t)rank || at >= rank)
            return status_invalid("perm dim %lld is out of range of input rank %d", (long long)at,
                                  rank);
        dims[i] = in.dims[at < 0 ? at + rank : at];
    }
    ctx->out[0] = (struct shape){rank, dims};
    return NULL;
}

static struct status *shape_unravel(struct shape_inference *ctx) {
    struct shape indices = ctx->in[0], dims;
    TRY(shape_require_rank(ctx, 1, 1, &dims));
    if (indices.rank > 1)
        return status_invalid("Shape must be at most rank 1 but is rank %d", indices.rank);
    int64_t sizes[2] = {dims.dims[0], indices.rank == 1 ? indices.dims[0] : -1};
    if (indices.rank >= 0)
        ctx->out[0] = shape_make(ctx, 1 + indices.rank, sizes);
    return NULL;
}

static struct status *shape_of_invert_permutation(struct shape_inference *ctx) {
    return shape_require_rank(ctx, 0, 1, &ctx->out[0]);
}

static struct status *shape_of_reverse_v2(struct shape_inference *ctx) {
    struct shape in = ctx->in[0];
    const struct tensor *axes = ctx->in_values[1];
    TRY(shape_require_rank(ctx, 1, 1, NULL));
    for (int64_t i = 0; axes && in.rank >= 0 && i < axes->n_elements; i++) {
        int64_t at = tensor_index_at(axes, i);
        if (at < -(int64_t)in.rank || at >= in.rank)
            return status_invalid("'axis'[%lld] = %lld is out of valid range [0, %d]", (long long)i,
                                  (long long)at, in.rank - 1);
    }
    ctx->out[0] = in;
    return NULL;
}

static struct status *shape_of_reverse(struct shape_inference *ctx) {
    struct shape which;
    TRY(shape_require_rank(ctx, 1, 1, &which));
    ctx->out[0] = ctx->in[0];
    if (ctx->in[0].rank >= 0 && which.dims[0] >= 0 && which.dims[0] != ctx->in[0].rank)
        return status_invalid("reverse dims vector must have %d entries, one for each of the "
                              "input's dimensions, not %lld",
                              ctx->in[0].rank, (long long)which.dims[0]);
    return NULL;
}

static struct status *shape_of_reverse_sequence(struct shape_inference *ctx) {
    struct shape in = ctx->in[0], lengths;
    int64_t seq_dim, batch_dim;
    TRY(node_get_i(ctx->node, "seq_dim", &seq_dim));
    TRY(node_get_i(ctx->node, "batch_dim", &batch_dim));
    TRY(shape_require_rank(ctx, 1, 1, &lengths));
    ctx->out[0] = in;
    if (in.rank < 0)
        return NULL;
    if (batch_dim >= in.rank || batch_dim < 0)
        return status_invalid("batch_dim must be < input rank: %lld vs. %d", (long long)batch_dim,
                              in.rank);
    if (seq_dim >= in.rank || seq_dim < 0)
        return status_invalid("seq_dim must be < input rank: %lld vs. %d", (long long)seq_dim,
                              in.rank);
    int64_t *dims = arena_array(ctx->arena, int64_t, in.rank + 1);
    for (int i = 0; i < in.rank; i++)
        dims[i] = in.dims[i];
    TRY(shape_merge_dims(in.dims[batch_dim], lengths.dims[0], &dims[batch_dim]));
    ctx->out[0] = (struct shape){in.rank, dims};
    return NULL;
}

static struct status *shape_of_roll(struct shape_inference *ctx) {
    TRY(shape_require_rank_at_least(ctx, 0, 1));
    ctx->out[0] = ctx->in[0];
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"NoOp", "does nothing; joins control edges", shape_none},
    {"Const", "a value that the graph carries", shape_of_const},
    {"Placeholder", "a value that each step must feed", shape_of_placeholder},
    {"PlaceholderV2", "a value that each step must feed", shape_from_attr},
    {"PlaceholderWithDefault", "a value that a step may feed", shape_of_placeholder_with_default},
    {"Identity", "the input", shape_same_as_input},
    {"RefIdentity", "the input reference", shape_same_as_input},
    {"IdentityN", "the inputs", shape_each_as_its_input},
    {"StopGradient", "the input; no gradient flows back", shape_same_as_input},
    {"PreventGradient", "the input; asking for its gradient is an error", shape_same_as_input},
    {"Snapshot", "the input, as it is now", shape_same_as_input},
    {"DebugGradientIdentity", "the input; lets a debugger watch the gradient", shape_same_as_input},
    {"DebugGradientRefIdentity", "the input reference; lets a debugger watch the gradient",
     shape_same_as_input},
    {"GuaranteeConst", "the input, which the client says never changes", shape_same_as_input},
    {"InplaceUpdate", "the input with some of its rows replaced", shape_same_as_input},
    {"InplaceAdd", "the input with values added to some of its rows", shape_same_as_input},
    {"InplaceSub", "the input with values subtracted from some of its rows", shape_same_as_input},
    {"DeepCopy", "a copy in memory of its own", shape_same_as_input},
    {"EnsureShape", "the input; an error when its shape does not fit", shape_of_ensure_shape},
    {"Bitcast", "the same bytes as another type", shape_of_bitcast},
    {"Shape", "the sizes of a tensor", shape_of_shape_n},
    {"ShapeN", "the sizes of tensors", shape_of_shape_n},
    {"Rank", "the number of dimensions", shape_scalar},
    {"Size", "the number of elements", shape_scalar},
    {"Fill", "a tensor of one value everywhere", shape_of_fill},
    {"Empty", "a tensor of zeros of a given shape", shape_of_empty},
    {"ZerosLike", "zeros of the input's shape", shape_same_as_input},
    {"OnesLike", "ones of the input's shape", shape_same_as_input},
    {"BroadcastArgs", "the shape that two shapes broadcast to", shape_of_broadcast_args},
    {"BroadcastGradientArgs", "the axes that each side's gradient is summed over after a broadcast",
     shape_of_broadcast_gradient_args},
    {"BroadcastTo", "the input repeated to a wider shape", shape_of_broadcast_to},
    {"Reshape", "the same elements under another shape", shape_of_reshape},
    {"ExpandDims", "adds a dimension of size 1", shape_of_expand_dims},
    {"Squeeze", "drops dimensions of size 1", shape_of_squeeze},
    {"Tile", "the input repeated along each dimension", shape_of_tile},
    {"Transpose", "the dimensions in another order", shape_of_transpose},
    {"ConjugateTranspose", "the dimensions in another order, the elements conjugated",
     shape_of_transpose},
    {"UnravelIndex", "coordinates of indices into a flattened array", shape_unravel},
    {"InvertPermutation", "the permutation that undoes another", shape_of_invert_permutation},
    {"Reverse", "reverses the dimensions of a mask", shape_of_reverse},
    {"ReverseV2", "reverses the dimensions of a list", shape_of_reverse_v2},
    {"ReverseSequence", "reverses the first steps of each sequence", shape_of_reverse_sequence},
    {"Roll", "rotates elements along dimensions", shape_of_roll},
};
// clang-format on

const struct op_def_list array_ops = {rows, ARRAY_LEN(rows)};
