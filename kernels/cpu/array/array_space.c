/* Moves blocks of space to the batch or to the depth, and back. */
#include <stdlib.h>

#include "common/tensor/element.h"
#include "kernels/cpu/array/array_internal.h"
#include "kernels/support/dims.h"

/* ---- SpaceToBatch, BatchToSpace ----
 *
 *   wide    [batch, s1·b1 - p1, s2·b2 - p2, …, rest…]      p: the paddings, or the crops
 *   narrow  [b1·b2·…·batch, s1, s2, …, rest…]
 *
 * Each offset o inside a block is a batch of its own:
 * narrow[(o, batch), s] = wide[batch, s·b + o - before]. */

struct blocks {
    int n; /* how many spatial dimensions are divided into blocks: dimensions 1 … n */
    int64_t block[SHAPE_MAX_RANK], before[SHAPE_MAX_RANK], after[SHAPE_MAX_RANK];
    int64_t n_blocks;
};

static struct status *blocks_check(struct blocks *blocks, const struct tensor *in,
                                   const char *what) {
    if (in->rank < blocks->n + 1)
        return status_invalid("input rank should be >= %d instead of %d", blocks->n + 1, in->rank);
    blocks->n_blocks = 1;
    for (int i = 0; i < blocks->n; i++) {
        if (blocks->block[i] < 1)
            return status_invalid(
                "All values in block_shape must be positive, got value, %lld at index %d.",
                (long long)blocks->block[i], i);
        if (mul_overflows_i64(blocks->n_blocks, blocks->block[i], &blocks->n_blocks))
            return status_invalid("The product of the block sizes does not fit");
        if (blocks->before[i] < 0 || blocks->after[i] < 0)
            return status_invalid("%s cannot be negative", what);
    }
    return NULL;
}

static struct status *blocks_read(struct kernel_ctx *ctx, const char *what, struct blocks *ret) {
    const struct tensor *block = kernel_input(ctx, 1), *pads = kernel_input(ctx, 2);
    if (block->rank != 1 || block->n_elements > SHAPE_MAX_RANK)
        return status_invalid("block_shape rank should be 1 instead of %d", block->rank);
    ret->n = (int)block->n_elements;
    if (pads->rank != 2 || tensor_dim(pads, 0) != ret->n || tensor_dim(pads, 1) != 2)
        return status_invalid("%s should have shape [%d, 2] instead of %s", what, ret->n,
                              TENSOR_SHAPE_TEXT(pads));
    for (int i = 0; i < ret->n; i++) {
        ret->block[i] = tensor_index_at(block, i);
        ret->before[i] = tensor_index_at(pads, 2 * i);
        ret->after[i] = tensor_index_at(pads, 2 * i + 1);
    }
    return blocks_check(ret, kernel_input(ctx, 0), what);
}

/* Reads the blocks of the first forms, which have two spatial dimensions and one block size, an
 * attr. */
static struct status *blocks_read_v1(struct kernel_ctx *ctx, const char *what, struct blocks *ret) {
    const struct tensor *in = kernel_input(ctx, 0), *pads = kernel_input(ctx, 1);
    if (in->rank != 4)
        return status_invalid("Input rank should be: 4 instead of: %d", in->rank);
    if (pads->rank != 2 || tensor_dim(pads, 0) != 2 || tensor_dim(pads, 1) != 2)
        return status_invalid("%s should have shape [2, 2] instead of %s", what,
                              TENSOR_SHAPE_TEXT(pads));
    ret->n = 2;
    for (int i = 0; i < 2; i++) {
        ret->block[i] = *(const int64_t *)ctx->instance->state;
        ret->before[i] = tensor_index_at(pads, 2 * i);
        ret->after[i] = tensor_index_at(pads, 2 * i + 1);
    }
    return blocks_check(ret, in, what);
}

/* Copies between a wide and a narrow tensor, for one offset inside the block after another. */
static struct status *move_blocks(struct kernel_ctx *ctx, const struct blocks *blocks,
                                  bool to_narrow, const struct dims *wide,
                                  const struct dims *narrow, const struct tensor *in,
                                  struct tensor *out) {
    int64_t wide_strides[SHAPE_MAX_RANK], narrow_strides[SHAPE_MAX_RANK];
    strides_of(wide->at, wide->rank, wide_strides);
    strides_of(narrow->at, narrow->rank, narrow_strides);
    int64_t place[SHAPE_MAX_RANK] = {0};
    struct moves moves;
    moves_begin(&moves, ctx, tensor_dtype(in));
    for (int64_t o = 0; o < blocks->n_blocks; o++) {
        struct strided s;
        int64_t wide_start = 0, narrow_start = o * wide->at[0] * narrow_strides[0];
        bool is_empty = false;
        strided_init(&s);
        for (int i = 0; i < wide->rank; i++) {
            int64_t n = wide->at[i], wide_step = wide_strides[i], narrow_step = narrow_strides[i];
            if (i >= 1 && i <= blocks->n) {
                int64_t block = blocks->block[i - 1], shift = place[i - 1] - blocks->before[i - 1];
                /* the first s with s·b + shift >= 0 */
                int64_t first = shift < 0 ? (-shift + block - 1) / block : 0;
                int64_t end = n - shift > 0 ? (n - shift + block - 1) / block : 0;
                end = MIN(end, narrow->at[i]);
                n = end - first;
                is_empty |= n <= 0;
                wide_start += (first * block + shift) * wide_step;
                narrow_start += first * narrow_step;
                wide_step *= block;
            }
            if (!is_empty)
                strided_add(&s, n, to_narrow ? wide_step : narrow_step,
                            to_narrow ? narrow_step : wide_step);
        }
        if (!is_empty && in->n_elements > 0)
            moves_add(&moves, &s, tensor_at(out, to_narrow ? narrow_start : wide_start),
                      tensor_cat(in, to_narrow ? wide_start : narrow_start));
        for (int i = blocks->n - 1; i >= 0 && ++place[i] == blocks->block[i]; i--)
            place[i] = 0;
    }
    return moves_end(&moves);
}

static enum kernel_result to_batch(struct kernel_ctx *ctx, const struct blocks *blocks) {
    const struct tensor *in = kernel_input(ctx, 0);
    struct dims wide, narrow;
    dims_set(&wide, tensor_shape(in));
    dims_set(&narrow, tensor_shape(in));
    bool is_padded = false;
    if (mul_overflows_i64(narrow.at[0], blocks->n_blocks, &narrow.at[0]))
        return kernel_fail(ctx, status_invalid("The batch size of the output does not fit"));
    for (int i = 0; i < blocks->n; i++) {
        int64_t size = wide.at[i + 1];
        if (add_overflows_i64(size, blocks->before[i], &size) ||
            add_overflows_i64(size, blocks->after[i], &size))
            return kernel_fail(
                ctx, status_invalid("The padded size of dimension %d does not fit", i + 1));
        if (size % blocks->block[i] != 0)
            return kernel_fail(
                ctx,
                status_invalid("padded_shape[%d]=%lld is not divisible by block_shape[%d]=%lld", i,
                               (long long)size, i, (long long)blocks->block[i]));
        narrow.at[i + 1] = size / blocks->block[i];
        is_padded |= blocks->before[i] || blocks->after[i];
    }
    if (is_padded)
        KERNEL_TRY(ctx, kernel_alloc_zeroed(ctx, 0, tensor_dtype(in), dims_shape(&narrow)));
    else
        KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), dims_shape(&narrow)));
    if (in->n_elements > 0)
        KERNEL_TRY(ctx, move_blocks(ctx, blocks, true, &wide, &narrow, in, &ctx->outputs[0]));
    return KERNEL_DONE;
}

static enum kernel_result from_batch(struct kernel_ctx *ctx, const struct blocks *blocks) {
    const struct tensor *in = kernel_input(ctx, 0);
    struct dims wide, narrow;
    dims_set(&wide, tensor_shape(in));
    dims_set(&narrow, tensor_shape(in));
    if (wide.at[0] % blocks->n_blocks != 0)
        return kernel_fail(
            ctx,
            status_invalid(
                "Input batch dimension (%lld) is not divisible by product of block sizes (%lld)",
                (long long)wide.at[0], (long long)blocks->n_blocks));
    wide.at[0] /= blocks->n_blocks;
    for (int i = 0; i < blocks->n; i++) {
        int64_t size, crops;
        if (mul_overflows_i64(narrow.at[i + 1], blocks->block[i], &size) ||
            add_overflows_i64(blocks->before[i], blocks->after[i], &crops))
            return kernel_fail(ctx, status_invalid("The size of dimension %d does not fit", i + 1));
        wide.at[i + 1] = size - crops;
        if (wide.at[i + 1] < 0)
            return kernel_fail(ctx, status_invalid("cropped_shape[%d]=%lld must be non-negative", i,
                                                   (long long)wide.at[i + 1]));
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), dims_shape(&wide)));
    if (ctx->outputs[0].n_elements > 0)
        KERNEL_TRY(ctx, move_blocks(ctx, blocks, false, &wide, &narrow, in, &ctx->outputs[0]));
    return KERNEL_DONE;
}

static enum kernel_result space_to_batch_nd(struct kernel_ctx *ctx) {
    struct blocks blocks;
    KERNEL_TRY(ctx, blocks_read(ctx, "paddings", &blocks));
    return to_batch(ctx, &blocks);
}
static enum kernel_result batch_to_space_nd(struct kernel_ctx *ctx) {
    struct blocks blocks;
    KERNEL_TRY(ctx, blocks_read(ctx, "crops", &blocks));
    return from_batch(ctx, &blocks);
}
static enum kernel_result space_to_batch(struct kernel_ctx *ctx) {
    struct blocks blocks;
    KERNEL_TRY(ctx, blocks_read_v1(ctx, "paddings", &blocks));
    return to_batch(ctx, &blocks);
}
static enum kernel_result batch_to_space(struct kernel_ctx *ctx) {
    struct blocks blocks;
    KERNEL_TRY(ctx, blocks_read_v1(ctx, "crops", &blocks));
    return from_batch(ctx, &blocks);
}
static struct status *block_size_init(struct kernel_init *init) {
    return kernel_init_int_attr(init, "block_size");
}

/* ---- SpaceToDepth, DepthToSpace ----
 *
 *   wide    [batch, h·b, w·b, c]        ([batch, c, h·b, w·b] in NCHW)
 *   narrow  [batch, h, w, (y, x, c)]    ([batch, (y, x, c), h, w])          y, x < b: the offset
 *                                       inside the block */

struct depth_state {
    int64_t block;
    bool is_nchw;
};

static struct status *depth_init(struct kernel_init *init) {
    struct depth_state state;
    struct span format;
    TRY(node_get_i(init->node, "block_size", &state.block));
    TRY(node_get_s(init->node, "data_format", &format));
    if (!span_is(format, "NHWC") && !span_is(format, "NCHW"))
        return status_invalid("Only NHWC and NCHW data_format supported on CPU. Got %.*s",
                              (int)MIN(format.len, 32), format.data);
    state.is_nchw = span_is(format, "NCHW");
    init->state = xmalloc(sizeof(state));
    *(struct depth_state *)init->state = state;
    return NULL;
}

/* Copies in either direction. `n` and `c` are the batch and depth of the wide tensor, `h` and `w`
 * the height and width of the narrow one. */
static enum kernel_result move_depth(struct kernel_ctx *ctx, bool to_depth, int64_t n, int64_t h,
                                     int64_t w, int64_t c) {
    const struct depth_state *state = ctx->instance->state;
    const struct tensor *in = kernel_input(ctx, 0);
    int64_t b = state->block, wide_h, wide_w, deep;
    if (mul_overflows_i64(h, b, &wide_h) || mul_overflows_i64(w, b, &wide_w) ||
        mul_overflows_i64(b, b, &deep) || mul_overflows_i64(deep, c, &deep))
        return kernel_fail(ctx, status_invalid("The sizes of the output do not fit"));
    struct dims wide = {4, {0}}, narrow = {4, {0}};
    bool nchw = state->is_nchw;
    wide.at[0] = narrow.at[0] = n;
    wide.at[nchw ? 2 : 1] = wide_h;
    wide.at[nchw ? 3 : 2] = wide_w;
    wide.at[nchw ? 1 : 3] = c;
    narrow.at[nchw ? 2 : 1] = h;
    narrow.at[nchw ? 3 : 2] = w;
    narrow.at[nchw ? 1 : 3] = deep;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), dims_shape(to_depth ? &narrow : &wide)));
    if (in->n_elements == 0)
        return KERNEL_DONE;
    int64_t ws[4], ns[4];
    strides_of(wide.at, 4, ws);
    strides_of(narrow.at, 4, ns);
    int64_t wide_y = ws[nchw ? 2 : 1], wide_x = ws[nchw ? 3 : 2], wide_c = ws[nchw ? 1 : 3];
    int64_t narrow_y = ns[nchw ? 2 : 1], narrow_x = ns[nchw ? 3 : 2], narrow_c = ns[nchw ? 1 : 3];
    struct {
        int64_t size, wide, narrow;
    } loops[6] = {{n, ws[0], ns[0]},         {h, wide_y * b, narrow_y},
                  {w, wide_x * b, narrow_x}, {b, wide_y, narrow_c * c * b},
                  {b, wide_x, narrow_c * c}, {c, wide_c, narrow_c}};
    /* The loops have the order of the output's dimensions, so the output is written from start to
     * end. */
    static const int orders[2][2][6] = {{{0, 1, 3, 2, 4, 5}, {0, 5, 1, 3, 2, 4}},
                                        {{0, 1, 2, 3, 4, 5}, {0, 3, 4, 5, 1, 2}}};
    struct strided s;
    strided_init(&s);
    for (int i = 0; i < 6; i++) {
        int at = orders[to_depth][nchw][i];
        strided_add(&s, loops[at].size, to_depth ? loops[at].wide : loops[at].narrow,
                    to_depth ? loops[at].narrow : loops[at].wide);
    }
    KERNEL_TRY(
        ctx, move_run(ctx, &s, tensor_dtype(in), tensor_data(&ctx->outputs[0]), tensor_cdata(in)));
    return KERNEL_DONE;
}

static enum kernel_result space_to_depth(struct kernel_ctx *ctx) {
    const struct depth_state *state = ctx->instance->state;
    const struct tensor *in = kernel_input(ctx, 0);
    if (in->rank != 4)
        return kernel_fail(ctx, status_invalid("Input rank should be: 4 instead of: %d", in->rank));
    bool nchw = state->is_nchw;
    int64_t h = tensor_dim(in, nchw ? 2 : 1), w = tensor_dim(in, nchw ? 3 : 2),
            c = tensor_dim(in, nchw ? 1 : 3);
    if (h % state->block != 0 || w % state->block != 0)
        return kernel_fail(
            ctx, status_invalid(
                     "Image height %lld and width %lld should be divisible by block_size: %lld",
                     (long long)h, (long long)w, (long long)state->block));
    return move_depth(ctx, true, tensor_dim(in, 0), h / state->block, w / state->block, c);
}

static enum kernel_result depth_to_space(struct kernel_ctx *ctx) {
    const struct depth_state *state = ctx->instance->state;
    const struct tensor *in = kernel_input(ctx, 0);
    if (in->rank != 4)
        return kernel_fail(ctx, status_invalid("Input rank should be: 4 instead of: %d", in->rank));
    bool nchw = state->is_nchw;
    int64_t h = tensor_dim(in, nchw ? 2 : 1), w = tensor_dim(in, nchw ? 3 : 2),
            deep = tensor_dim(in, nchw ? 1 : 3), area;
    if (mul_overflows_i64(state->block, state->block, &area) || deep % area != 0)
        return kernel_fail(ctx,
                           status_invalid("Input depth dimension %lld should be divisible by: %lld",
                                          (long long)deep, (long long)area));
    return move_depth(ctx, false, tensor_dim(in, 0), h, w, deep / area);
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "SpaceToBatchND", .compute = space_to_batch_nd},
    {.op = "BatchToSpaceND", .compute = batch_to_space_nd},
    {.op = "SpaceToBatch", .compute = space_to_batch, .init = block_size_init},
    {.op = "BatchToSpace", .compute = batch_to_space, .init = block_size_init},
    {.op = "SpaceToDepth", .compute = space_to_depth, .init = depth_init},
    {.op = "DepthToSpace", .compute = depth_to_space, .init = depth_init},
};
// clang-format on

const struct kernel_list array_space_kernels = {rows, ARRAY_LEN(rows)};
