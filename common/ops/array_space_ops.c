/* Lists the ops of the array family on padding, blocks of space and diagonals. */
#include "common/ops/op_def.h"

/* ---- padding ---- */

static struct status *padded_of(struct shape_inference *ctx, int sign) {
    struct shape in = ctx->in[0], pads;
    TRY(shape_require_rank(ctx, 1, 2, &pads));
    if (pads.dims[1] >= 0 && pads.dims[1] != 2)
        return status_invalid("Dimension must be 2 but is %lld (columns of the paddings)",
                              (long long)pads.dims[1]);
    int64_t rank;
    TRY(shape_merge_dims(pads.dims[0], in.rank < 0 ? -1 : in.rank, &rank));
    if (rank < 0 || rank > SHAPE_MAX_RANK)
        return NULL;
    const struct tensor *value = ctx->in_values[1];
    int64_t *dims = arena_array(ctx->arena, int64_t, rank + 1);
    for (int i = 0; i < rank; i++) {
        dims[i] = -1;
        if (!value || in.rank < 0)
            continue;
        int64_t before = tensor_index_at(value, 2 * i), after = tensor_index_at(value, 2 * i + 1),
                sum;
        if (before < 0 || after < 0)
            return status_invalid("Paddings must be non-negative: %lld %lld", (long long)before,
                                  (long long)after);
        if (in.dims[i] < 0)
            continue;
        if (add_overflows_i64(before, after, &sum) ||
            add_overflows_i64(in.dims[i], sign * sum, &dims[i]) || dims[i] < 0)
            return status_invalid("The paddings of dimension %d do not fit: %lld, %lld", i,
                                  (long long)before, (long long)after);
    }
    ctx->out[0] = (struct shape){(int)rank, dims};
    return NULL;
}

static struct status *shape_of_pad(struct shape_inference *ctx) { return padded_of(ctx, 1); }
static struct status *shape_of_mirror_pad_grad(struct shape_inference *ctx) {
    return padded_of(ctx, -1);
}

/* ---- blocks ---- */

/* Space to batch, or back: the sizes follow from constant blocks and paddings. `block` for each
 * dimension, pads [n, 2] or NULL. */
static struct status *blocks_of(struct shape_inference *ctx, bool to_batch, int n,
                                const int64_t *block, const struct tensor *pads) {
    struct shape in = ctx->in[0];
    TRY(shape_require_rank_at_least(ctx, 0, n + 1));
    if (in.rank < 0)
        return NULL;
    int64_t *dims = arena_memdup(ctx->arena, in.dims, (size_t)in.rank * sizeof(*dims)),
            n_blocks = 1;
    for (int i = 0; i < n; i++) {
        if (block[i] < 1)
            return status_invalid("block_shape must be positive, got %lld", (long long)block[i]);
        if (mul_overflows_i64(n_blocks, block[i], &n_blocks))
            return status_invalid("The product of the block sizes does not fit");
        int64_t size = in.dims[i + 1], before = pads ? tensor_index_at(pads, 2 * i) : 0,
                after = pads ? tensor_index_at(pads, 2 * i + 1) : 0, sum;
        if (before < 0 || after < 0)
            return status_invalid("%s cannot be negative", to_batch ? "paddings" : "crops");
        dims[i + 1] = -1;
        if (size < 0 || !pads)
            continue;
        if (add_overflows_i64(before, after, &sum) ||
            (to_batch ? add_overflows_i64(size, sum, &size)
                      : mul_overflows_i64(size, block[i], &size)))
            return status_invalid("The size of dimension %d does not fit", i + 1);
        if (to_batch && size % block[i] != 0)
            return status_invalid("Dimension size must be evenly divisible by %lld but is %lld",
                                  (long long)block[i], (long long)size);
        if (!to_batch && size < sum)
            return status_invalid("Negative dimension size caused by subtracting %lld from %lld",
                                  (long long)sum, (long long)size);
        dims[i + 1] = to_batch ? size / block[i] : size - sum;
    }
    if (dims[0] >= 0 && to_batch && mul_overflows_i64(dims[0], n_blocks, &dims[0]))
        return status_invalid("The batch size does not fit");
    if (dims[0] >= 0 && !to_batch) {
        if (dims[0] % n_blocks != 0)
            return status_invalid("Dimension size must be evenly divisible by %lld but is %lld",
                                  (long long)n_blocks, (long long)dims[0]);
        dims[0] /= n_blocks;
    }
    ctx->out[0] = (struct shape){in.rank, dims};
    return NULL;
}

static struct status *blocks_nd_of(struct shape_inference *ctx, bool to_batch) {
    struct shape block, pads;
    const struct tensor *value = ctx->in_values[1];
    TRY(shape_require_rank(ctx, 1, 1, &block));
    TRY(shape_require_rank(ctx, 2, 2, &pads));
    int64_t n, two;
    TRY(shape_merge_dims(block.dims[0], pads.dims[0], &n));
    TRY(shape_merge_dims(pads.dims[1], 2, &two));
    if (!value) {
        if (ctx->in[0].rank >= 0)
            ctx->out[0] = shape_unknown_of_rank(ctx, ctx->in[0].rank);
        return NULL;
    }
    if (value->n_elements > SHAPE_MAX_RANK)
        return status_invalid("block_shape has %lld entries", (long long)value->n_elements);
    int64_t *sizes = arena_array(ctx->arena, int64_t, value->n_elements + 1);
    for (int64_t i = 0; i < value->n_elements; i++)
        sizes[i] = tensor_index_at(value, i);
    return blocks_of(ctx, to_batch, (int)value->n_elements, sizes, ctx->in_values[2]);
}

static struct status *shape_of_space_to_batch_nd(struct shape_inference *ctx) {
    return blocks_nd_of(ctx, true);
}
static struct status *shape_of_batch_to_space_nd(struct shape_inference *ctx) {
    return blocks_nd_of(ctx, false);
}

static struct status *blocks_v1_of(struct shape_inference *ctx, bool to_batch) {
    int64_t block;
    struct shape pads;
    TRY(node_get_i(ctx->node, "block_size", &block));
    TRY(shape_require_rank(ctx, 0, 4, &ctx->out[0]));
    TRY(shape_require_rank(ctx, 1, 2, &pads));
    if ((pads.dims[0] >= 0 && pads.dims[0] != 2) || (pads.dims[1] >= 0 && pads.dims[1] != 2))
        return status_invalid("paddings must be [2,2], but is %s", SHAPE_TEXT(pads));
    if (ctx->in[0].rank < 0) {
        ctx->out[0] = shape_unknown_of_rank(ctx, 4);
        return NULL;
    }
    return blocks_of(ctx, to_batch, 2, (int64_t[2]){block, block}, ctx->in_values[1]);
}

static struct status *shape_of_space_to_batch(struct shape_inference *ctx) {
    return blocks_v1_of(ctx, true);
}
static struct status *shape_of_batch_to_space(struct shape_inference *ctx) {
    return blocks_v1_of(ctx, false);
}

static struct status *depth_of(struct shape_inference *ctx, bool to_depth) {
    int64_t block, area;
    struct span format;
    struct shape in;
    TRY(node_get_i(ctx->node, "block_size", &block));
    TRY(node_get_s(ctx->node, "data_format", &format));
    if (span_is(format, "NCHW_VECT_C"))
        return NULL;
    TRY(shape_require_rank(ctx, 0, 4, &in));
    int h = span_is(format, "NCHW") ? 2 : 1, w = h + 1, c = h == 2 ? 1 : 3;
    if (mul_overflows_i64(block, block, &area))
        return status_invalid("block_size %lld is too large", (long long)block);
    int64_t dims[4] = {in.dims[0], in.dims[1], in.dims[2], in.dims[3]};
    const int shrink[2] = {to_depth ? h : c, to_depth ? w : c},
              grow[2] = {to_depth ? c : h, to_depth ? c : w};
    for (int i = 0; i < (to_depth ? 2 : 1); i++) {
        int64_t by = to_depth ? block : area, *size = &dims[shrink[i]];
        if (*size >= 0 && *size % by != 0)
            return status_invalid("Dimension size must be evenly divisible by %lld but is %lld",
                                  (long long)by, (long long)*size);
        *size = *size < 0 ? -1 : *size / by;
    }
    for (int i = 0; i < (to_depth ? 1 : 2); i++) {
        int64_t *size = &dims[grow[i]];
        if (*size >= 0 && mul_overflows_i64(*size, to_depth ? area : block, size))
            return status_invalid("The size of dimension %d does not fit", grow[i]);
    }
    ctx->out[0] = shape_make(ctx, 4, dims);
    return NULL;
}

static struct status *shape_of_space_to_depth(struct shape_inference *ctx) {
    return depth_of(ctx, true);
}
static struct status *shape_of_depth_to_space(struct shape_inference *ctx) {
    return depth_of(ctx, false);
}

/* ---- diagonals ---- */

static struct status *shape_of_diag(struct shape_inference *ctx) {
    TRY(shape_require_rank_at_least(ctx, 0, 1));
    return shape_concat(ctx, ctx->in[0], ctx->in[0], &ctx->out[0]);
}

static struct status *shape_of_diag_part(struct shape_inference *ctx) {
    struct shape in = ctx->in[0];
    if (in.rank < 0)
        return NULL;
    if (in.rank % 2 != 0 || in.rank == 0)
        return status_invalid("Input must have even and non-zero rank, input rank is %d", in.rank);
    return shape_merge(ctx, shape_sub(ctx, in, 0, in.rank / 2), shape_sub(ctx, in, in.rank / 2, -1),
                       &ctx->out[0]);
}

/* The band that input `k` gives; false where it is unknown. */
static struct status *read_band(struct shape_inference *ctx, int k, bool *ret_known,
                                int64_t *ret_lower, int64_t *ret_upper) {
    const struct tensor *value = ctx->in_values[k];
    *ret_known = value != NULL;
    if (ctx->in[k].rank > 1)
        return status_invalid("diag_index must be a scalar or vector, received shape: %s",
                              SHAPE_TEXT(ctx->in[k]));
    if (!value)
        return NULL;
    if (value->n_elements < 1 || value->n_elements > 2)
        return status_invalid(
            "diag_index must be a vector with one or two elements. It has %lld elements.",
            (long long)value->n_elements);
    *ret_lower = tensor_index_at(value, 0);
    *ret_upper = tensor_index_at(value, value->n_elements - 1);
    if (*ret_lower > *ret_upper)
        return status_invalid("lower_diag_index is greater than upper_diag_index");
    return NULL;
}

static struct status *diag_part_of(struct shape_inference *ctx, bool known, int64_t lower,
                                   int64_t upper) {
    struct shape in = ctx->in[0];
    TRY(shape_require_rank_at_least(ctx, 0, 2));
    if (in.rank < 0 || !known)
        return NULL;
    int64_t rows = in.dims[in.rank - 2], cols = in.dims[in.rank - 1],
            tail[2] = {upper - lower + 1, -1};
    if (rows >= 0 && cols >= 0) {
        if (((lower <= -rows || lower >= cols) && lower != 0) ||
            ((upper <= -rows || upper >= cols) && upper != 0))
            return status_invalid("lower_diag_index or upper_diag_index is out of bound");
        tail[1] = MIN(rows + MIN(upper, 0), cols - MAX(lower, 0));
    }
    int skip = lower == upper;
    return shape_concat(ctx, shape_sub(ctx, in, 0, in.rank - 2),
                        shape_make(ctx, 2 - skip, tail + skip), &ctx->out[0]);
}

static struct status *shape_of_matrix_diag_part(struct shape_inference *ctx) {
    return diag_part_of(ctx, true, 0, 0);
}

static struct status *shape_of_matrix_diag_part_v2(struct shape_inference *ctx) {
    bool known;
    int64_t lower = 0, upper = 0;
    TRY(read_band(ctx, 1, &known, &lower, &upper));
    return diag_part_of(ctx, known, lower, upper);
}

static struct status *diag_of(struct shape_inference *ctx, int64_t lower, int64_t upper,
                              int64_t rows, int64_t cols, bool sizes_known) {
    struct shape in = ctx->in[0];
    TRY(shape_require_rank_at_least(ctx, 0, lower == upper ? 1 : 2));
    if (in.rank < 0)
        return NULL;
    if (lower != upper && in.dims[in.rank - 2] >= 0 && in.dims[in.rank - 2] != upper - lower + 1)
        return status_invalid("The number of rows of diagonal doesn't match with lower_diag_index "
                              "and upper_diag_index.");
    int64_t len = in.dims[in.rank - 1], tail[2] = {-1, -1};
    if (sizes_known && len >= 0) {
        int64_t min_rows, min_cols;
        if (add_overflows_i64(len, -MIN(upper, 0), &min_rows) ||
            add_overflows_i64(len, MAX(lower, 0), &min_cols))
            return status_invalid("Diagonals of %lld elements are too long", (long long)len);
        tail[0] = rows != -1 ? rows : cols == -1 ? MAX(min_rows, min_cols) : min_rows;
        tail[1] = cols != -1 ? cols : rows == -1 ? MAX(min_rows, min_cols) : min_cols;
        if (tail[0] < min_rows || tail[1] < min_cols ||
            (tail[0] != min_rows && tail[1] != min_cols))
            return status_invalid("num_rows and num_cols are not consistent with lower_diag_index, "
                                  "upper_diag_index, and the length of the given "
                                  "diagonals.");
    } else if (sizes_known) {
        tail[0] = MAX(rows, (int64_t)-1);
        tail[1] = MAX(cols, (int64_t)-1);
    }
    return shape_concat(ctx, shape_sub(ctx, in, 0, in.rank - (lower == upper ? 1 : 2)),
                        shape_make(ctx, 2, tail), &ctx->out[0]);
}

static struct status *shape_of_matrix_diag(struct shape_inference *ctx) {
    return diag_of(ctx, 0, 0, -1, -1, true);
}

static struct status *shape_of_matrix_diag_v2(struct shape_inference *ctx) {
    bool known;
    int64_t lower = 0, upper = 0;
    TRY(read_band(ctx, 1, &known, &lower, &upper));
    if (!known)
        return NULL;
    const struct tensor *rows = ctx->in_values[2], *cols = ctx->in_values[3];
    bool sizes_known = rows && cols && rows->n_elements == 1 && cols->n_elements == 1;
    return diag_of(ctx, lower, upper, sizes_known ? tensor_index_at(rows, 0) : -1,
                   sizes_known ? tensor_index_at(cols, 0) : -1, sizes_known);
}

static struct status *set_diag_of(struct shape_inference *ctx, bool known, int64_t lower,
                                  int64_t upper) {
    struct shape in = ctx->in[0], diag = ctx->in[1];
    TRY(shape_require_rank_at_least(ctx, 0, 2));
    TRY(shape_require_rank_at_least(ctx, 1, 1));
    ctx->out[0] = in;
    if (!known || in.rank < 0)
        return NULL;
    if (diag.rank >= 0 && diag.rank != in.rank - (lower == upper ? 1 : 0))
        return status_invalid("Shape must be rank %d but is rank %d (the diagonal)",
                              in.rank - (lower == upper ? 1 : 0), diag.rank);
    int64_t rows = in.dims[in.rank - 2], cols = in.dims[in.rank - 1];
    if (rows >= 0 && cols >= 0 &&
        (((lower <= -rows || lower >= cols) && lower != 0) ||
         ((upper <= -rows || upper >= cols) && upper != 0)))
        return status_invalid("lower_diag_index or upper_diag_index is out of bound");
    if (diag.rank < 0)
        return NULL;
    struct shape batch;
    TRY(shape_merge(ctx, shape_sub(ctx, in, 0, in.rank - 2), shape_sub(ctx, diag, 0, in.rank - 2),
                    &batch));
    return shape_concat(ctx, batch, shape_sub(ctx, in, in.rank - 2, -1), &ctx->out[0]);
}

static struct status *shape_of_matrix_set_diag(struct shape_inference *ctx) {
    return set_diag_of(ctx, true, 0, 0);
}

static struct status *shape_of_matrix_set_diag_v2(struct shape_inference *ctx) {
    bool known;
    int64_t lower = 0, upper = 0;
    TRY(read_band(ctx, 2, &known, &lower, &upper));
    return set_diag_of(ctx, known, lower, upper);
}

// clang-format off
static const struct op_def rows[] = {
    {"Pad", "zeros around a tensor", shape_of_pad},
    {"PadV2", "a value around a tensor", shape_of_pad},
    {"MirrorPad", "a tensor's own elements, mirrored, around it", shape_of_pad},
    {"MirrorPadGrad", "the gradient of MirrorPad: adds the border to what it mirrors",
     shape_of_mirror_pad_grad},
    {"SpaceToBatch", "blocks of two dimensions moved to the batch", shape_of_space_to_batch},
    {"BatchToSpace", "the batch moved back to blocks of two dimensions", shape_of_batch_to_space},
    {"SpaceToBatchND", "blocks of space moved to the batch", shape_of_space_to_batch_nd},
    {"BatchToSpaceND", "the batch moved back to blocks of space", shape_of_batch_to_space_nd},
    {"SpaceToDepth", "blocks of an image moved to its depth", shape_of_space_to_depth},
    {"DepthToSpace", "an image's depth moved back to blocks", shape_of_depth_to_space},
    {"Diag", "a tensor on the diagonal of another of twice its rank", shape_of_diag},
    {"DiagPart", "the diagonal of a tensor of even rank", shape_of_diag_part},
    {"MatrixDiag", "matrices with the given diagonals", shape_of_matrix_diag},
    {"MatrixDiagV2", "matrices with the given band of diagonals", shape_of_matrix_diag_v2},
    {"MatrixDiagV3", "matrices with the given band of diagonals", shape_of_matrix_diag_v2},
    {"MatrixDiagPart", "the diagonals of matrices", shape_of_matrix_diag_part},
    {"MatrixDiagPartV2", "a band of diagonals of matrices", shape_of_matrix_diag_part_v2},
    {"MatrixDiagPartV3", "a band of diagonals of matrices", shape_of_matrix_diag_part_v2},
    {"MatrixSetDiag", "matrices with their diagonals replaced", shape_of_matrix_set_diag},
    {"MatrixSetDiagV2", "matrices with a band of diagonals replaced", shape_of_matrix_set_diag_v2},
    {"MatrixSetDiagV3", "matrices with a band of diagonals replaced", shape_of_matrix_set_diag_v2},
    {"MatrixBandPart", "matrices with zeros outside of a band", shape_same_as_input},
    {"BatchMatrixDiag", "matrices with the given diagonals", shape_unknown},
    {"BatchMatrixDiagPart", "the diagonals of matrices", shape_unknown},
    {"BatchMatrixSetDiag", "matrices with their diagonals replaced", shape_unknown},
    {"BatchMatrixBandPart", "matrices with zeros outside of a band", shape_unknown},
};
// clang-format on

const struct op_def_list array_space_ops = {rows, ARRAY_LEN(rows)};
