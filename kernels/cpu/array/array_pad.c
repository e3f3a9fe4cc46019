/* Pads tensors: Pad, MirrorPad and its gradient. */
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "common/tensor/element.h"
#include "kernels/cpu/array/array_internal.h"
#include "kernels/support/dims.h"

/* The paddings before and after each dimension, and the padded sizes. */
struct paddings {
    int rank;
    int64_t before[SHAPE_MAX_RANK], after[SHAPE_MAX_RANK];
    struct dims padded;
};

/* With `sign` 1 the sizes grow by the paddings, with -1 they shrink (gradients). */
static struct status *paddings_read(const struct tensor *in, const struct tensor *t, int sign,
                                    struct paddings *ret) {
    if (t->rank != 2 || tensor_dim(t, 1) != 2)
        return status_invalid("paddings must be a matrix with 2 columns: %s", TENSOR_SHAPE_TEXT(t));
    if (tensor_dim(t, 0) != in->rank)
        return status_invalid("The first dimension of paddings must be the rank of inputs%s %s",
                              TENSOR_SHAPE_TEXT(t), TENSOR_SHAPE_TEXT(in));
    ret->rank = ret->padded.rank = in->rank;
    for (int i = 0; i < in->rank; i++) {
        int64_t before = ret->before[i] = tensor_index_at(t, 2 * i),
                after = ret->after[i] = tensor_index_at(t, 2 * i + 1), sum, size;
        if (before < 0 || after < 0)
            return status_invalid("Paddings must be non-negative: %lld %lld", (long long)before,
                                  (long long)after);
        if (add_overflows_i64(before, after, &sum) ||
            add_overflows_i64(tensor_dim(in, i), sign * sum, &size))
            return status_invalid("The padded size of dimension %d does not fit", i);
        ret->padded.at[i] = size;
    }
    return NULL;
}

static bool paddings_are_none(const struct paddings *p) {
    for (int i = 0; i < p->rank; i++) {
        if (p->before[i] || p->after[i])
            return false;
    }
    return true;
}

/* Copies the input to its position inside the output. */
static void copy_inside(struct moves *moves, const struct paddings *p, const struct tensor *in,
                        struct tensor *out) {
    int64_t from[SHAPE_MAX_RANK], to[SHAPE_MAX_RANK], start = 0;
    strides_of(tensor_dims(in), in->rank, from);
    strides_of(p->padded.at, p->rank, to);
    struct strided s;
    strided_init(&s);
    for (int i = 0; i < p->rank; i++) {
        strided_add(&s, tensor_dim(in, i), from[i], to[i]);
        start += p->before[i] * to[i];
    }
    if (in->n_elements > 0)
        moves_add(moves, &s, tensor_at(out, start), tensor_cdata(in));
}

/* Fills the border slab by slab. Dimension d has a slab before and a slab after, which spans the
 * inside of the outer dimensions and the whole of the inner ones. */
static void fill_border(struct moves *moves, const struct paddings *p, const struct tensor *in,
                        const void *value, struct tensor *out) {
    int64_t to[SHAPE_MAX_RANK], outer_start = 0;
    strides_of(p->padded.at, p->rank, to);
    for (int d = 0; d < p->rank; d++) {
        int64_t size = tensor_dim(in, d);
        for (int side = 0; side < 2; side++) {
            int64_t n = side ? p->after[d] : p->before[d];
            struct strided s;
            strided_init(&s);
            for (int i = 0; i < d; i++)
                strided_add(&s, tensor_dim(in, i), 0, to[i]);
            strided_add(&s, n, 0, to[d]);
            for (int i = d + 1; i < p->rank; i++)
                strided_add(&s, p->padded.at[i], 0, to[i]);
            if (n > 0)
                moves_add_value(
                    moves, &s,
                    tensor_at(out, outer_start + (side ? p->before[d] + size : 0) * to[d]), value);
        }
        outer_start += p->before[d] * to[d];
    }
}

static enum kernel_result pad_with(struct kernel_ctx *ctx, const void *value) {
    const struct tensor *in = kernel_input(ctx, 0);
    struct paddings p;
    KERNEL_TRY(ctx, paddings_read(in, kernel_input(ctx, 1), 1, &p));
    if (paddings_are_none(&p)) {
        kernel_pass(ctx, 0, 0);
        return KERNEL_DONE;
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), dims_shape(&p.padded)));
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    struct moves moves;
    moves_begin(&moves, ctx, tensor_dtype(in));
    copy_inside(&moves, &p, in, &ctx->outputs[0]);
    fill_border(&moves, &p, in, value, &ctx->outputs[0]);
    KERNEL_TRY(ctx, moves_end(&moves));
    return KERNEL_DONE;
}

static enum kernel_result pad(struct kernel_ctx *ctx) {
    static const char zero[16] __attribute__((aligned(16)));
    return pad_with(ctx, zero);
}

static enum kernel_result pad_v2(struct kernel_ctx *ctx) {
    const struct tensor *value = kernel_input(ctx, 2);
    if (value->rank != 0)
        return kernel_fail(ctx, status_invalid("constant_values must be a scalar. Found: %s",
                                               TENSOR_SHAPE_TEXT(value)));
    return pad_with(ctx, tensor_cdata(value));
}

/* ---- MirrorPad: the state is the offset, 1 for REFLECT, which does not repeat the edge, and 0 for
 * SYMMETRIC ---- */

static struct status *mirror_init(struct kernel_init *init) {
    struct span mode;
    TRY(node_get_s(init->node, "mode", &mode));
    init->state = xmalloc(sizeof(int64_t));
    *(int64_t *)init->state = span_is(mode, "REFLECT");
    return NULL;
}

static struct status *mirror_check(const struct paddings *p, int d, int64_t size, int64_t offset) {
    if (p->before[d] <= size - offset && p->after[d] <= size - offset)
        return NULL;
    return status_invalid("paddings must be %s the dimension size: %lld, %lld %s %lld",
                          offset ? "less than" : "no greater than", (long long)p->before[d],
                          (long long)p->after[d], offset ? "not less than" : "greater than",
                          (long long)size);
}

/* Goes from the last dimension to the first. The slabs before and after a dimension's inside are
 * copies of the inside, read backwards. */
static enum kernel_result mirror_pad(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    int64_t offset = *(const int64_t *)ctx->instance->state;
    struct paddings p;
    KERNEL_TRY(ctx, paddings_read(in, kernel_input(ctx, 1), 1, &p));
    for (int d = 0; d < in->rank; d++)
        KERNEL_TRY(ctx, mirror_check(&p, d, tensor_dim(in, d), offset));
    if (paddings_are_none(&p)) {
        kernel_pass(ctx, 0, 0);
        return KERNEL_DONE;
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), dims_shape(&p.padded)));
    struct tensor *out = &ctx->outputs[0];
    if (in->n_elements == 0 || out->n_elements == 0)
        return KERNEL_DONE;
    struct moves moves;
    moves_begin(&moves, ctx, tensor_dtype(in));
    copy_inside(&moves, &p, in, out);
    int64_t to[SHAPE_MAX_RANK];
    strides_of(p.padded.at, p.rank, to);
    for (int d = p.rank - 1; d >= 0; d--) {
        moves_flush(&moves); /* the slabs read what has been written before */
        int64_t start = 0;
        for (int i = 0; i < d; i++)
            start += p.before[i] * to[i];
        for (int side = 0; side < 2; side++) {
            int64_t n = side ? p.after[d] : p.before[d], first_inside = p.before[d],
                    end_inside = p.before[d] + tensor_dim(in, d);
            /* Before the inside, elements 0 … before-1 copy elements before-1+offset … offset of
             * the inside. After the inside the order is mirrored. */
            int64_t place = side ? end_inside : 0,
                    source =
                        side ? end_inside - 1 - offset : first_inside + p.before[d] - 1 + offset;
            struct strided s;
            strided_init(&s);
            for (int i = 0; i < d; i++)
                strided_add(&s, tensor_dim(in, i), to[i], to[i]);
            strided_add(&s, n, -to[d], to[d]);
            for (int i = d + 1; i < p.rank; i++)
                strided_add(&s, p.padded.at[i], to[i], to[i]);
            if (n > 0)
                moves_add(&moves, &s, tensor_at(out, start + place * to[d]),
                          tensor_cat(out, start + source * to[d]));
        }
    }
    KERNEL_TRY(ctx, moves_end(&moves));
    return KERNEL_DONE;
}

static struct status *mirror_grad_on_device(struct kernel_ctx *ctx, const struct paddings *p,
                                            int offset) {
    const struct tensor *in = kernel_input(ctx, 0);
    if (p->rank > DEVICE_MOVE_LOOPS)
        return status_unimplemented("A device takes mirrored paddings of at most %d dimensions, "
                                    "not %d",
                                    DEVICE_MOVE_LOOPS, p->rank);
    struct device_mirror mirror = {.dtype = tensor_dtype(in),
                                   .to = tensor_data(&ctx->outputs[0]),
                                   .from = tensor_cdata(in),
                                   .rank = p->rank,
                                   .offset = offset};
    for (int i = 0; i < p->rank; i++) {
        mirror.dims[i] = p->padded.at[i];
        mirror.before[i] = p->before[i];
        mirror.after[i] = p->after[i];
    }
    return ctx->instance->engine->mirror_grad(ctx, &mirror);
}

/* Folds the border of a copy onto its inside, first dimension first, and returns the inside. */
static enum kernel_result mirror_pad_grad(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    int64_t offset = *(const int64_t *)ctx->instance->state;
    struct paddings p;
    KERNEL_TRY(ctx, paddings_read(in, kernel_input(ctx, 1), -1, &p));
    for (int d = 0; d < in->rank; d++) {
        if (p.padded.at[d] < 0)
            return kernel_fail(
                ctx, status_invalid("The paddings of dimension %d are wider than its size %lld", d,
                                    (long long)tensor_dim(in, d)));
        KERNEL_TRY(ctx, mirror_check(&p, d, p.padded.at[d], offset));
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), dims_shape(&p.padded)));
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    if (kernel_is_for_device(ctx)) {
        KERNEL_TRY(ctx, mirror_grad_on_device(ctx, &p, (int)offset));
        return KERNEL_DONE;
    }
    struct tensor folded = TENSOR_INIT;
    KERNEL_TRY(ctx, tensor_clone(ctx->instance->allocator, in, &folded));
    array_slice_fn *add = array_add_fn(tensor_dtype(in));
    for (int d = 0; d < p.rank; d++) {
        int64_t n = tensor_dim(in, d), outer = dims_product(tensor_dims(in), 0, d),
                inner = dims_product(tensor_dims(in), d + 1, in->rank);
        int64_t first = p.before[d], last = n - p.after[d] - 1;
        for (int64_t o = 0; o < outer && pool_goes_on_rows(o, n * inner); o++) {
            for (int64_t j = 0; j < p.before[d] && pool_goes_on_rows(j + 1, inner); j++)
                add(tensor_at(&folded, (o * n + 2 * first - 1 - j + offset) * inner),
                    tensor_cat(&folded, (o * n + j) * inner), inner);
            for (int64_t j = last + 1; j < n && pool_goes_on_rows(j + 1, inner); j++)
                add(tensor_at(&folded, (o * n + 2 * last + 1 - j - offset) * inner),
                    tensor_cat(&folded, (o * n + j) * inner), inner);
        }
    }
    int64_t from[SHAPE_MAX_RANK], to[SHAPE_MAX_RANK], start = 0;
    strides_of(tensor_dims(in), in->rank, from);
    strides_of(p.padded.at, p.rank, to);
    struct strided s;
    strided_init(&s);
    for (int i = 0; i < p.rank; i++) {
        strided_add(&s, p.padded.at[i], from[i], to[i]);
        start += p.before[i] * from[i];
    }
    strided_run(&s, tensor_dtype(in), tensor_data(&ctx->outputs[0]), tensor_cat(&folded, start),
                ctx->pool);
    tensor_clear(&folded);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "Pad", .compute = pad},
    {.op = "PadV2", .compute = pad_v2},
    {.op = "MirrorPad", .compute = mirror_pad, .init = mirror_init},
    {.op = "MirrorPadGrad", .constraints = {{"T", DTYPES_NUMBER}}, .compute = mirror_pad_grad,
        .init = mirror_init},
};
// clang-format on

const struct kernel_list array_pad_kernels = {rows, ARRAY_LEN(rows)};
