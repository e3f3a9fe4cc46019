/* Reorders elements: Transpose, Reverse, ReverseSequence, Roll. */
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "common/tensor/element.h"
#include "kernels/cpu/array/array_internal.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/dims.h"

/* ---- Transpose ---- */

static struct status *read_permutation(const struct tensor *perm, int rank, int64_t *ret) {
    if (perm->rank != 1)
        return status_invalid("perm must be rank 1, got shape %s", TENSOR_SHAPE_TEXT(perm));
    if (perm->n_elements != rank)
        return status_invalid(
            "transpose expects a vector of size %d. But input(1) is a vector of size %lld", rank,
            (long long)perm->n_elements);
    bool is_seen[SHAPE_MAX_RANK] = {false};
    for (int i = 0; i < rank; i++) {
        int64_t axis = tensor_index_at(perm, i);
        if (axis < -(int64_t)rank || axis >= rank)
            return status_invalid("%lld is out of range [0 .. %d)", (long long)axis, rank);
        ret[i] = axis < 0 ? axis + rank : axis;
        is_seen[ret[i]] = true;
    }
    for (int i = 0; i < rank; i++) {
        if (!is_seen[i])
            return status_invalid("%d is missing from the permutation", i);
    }
    return NULL;
}

/* True when no element moves, because the axes wider than 1 keep their order. */
static bool keeps_order(const struct tensor *in, const int64_t *perm) {
    int64_t last = -1;
    for (int i = 0; i < in->rank; i++) {
        if (tensor_dim(in, (int)perm[i]) == 1)
            continue;
        if (perm[i] < last)
            return false;
        last = perm[i];
    }
    return true;
}

static enum kernel_result transpose(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    int64_t perm[SHAPE_MAX_RANK], from[SHAPE_MAX_RANK], to[SHAPE_MAX_RANK];
    KERNEL_TRY(ctx, read_permutation(kernel_input(ctx, 1), in->rank, perm));
    struct dims out;
    out.rank = in->rank;
    for (int i = 0; i < out.rank; i++)
        out.at[i] = tensor_dim(in, (int)perm[i]);
    if (keeps_order(in, perm)) {
        array_pass_as(ctx, 0, 0, dims_shape(&out));
        return KERNEL_DONE;
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), dims_shape(&out)));
    strides_of(tensor_dims(in), in->rank, from);
    strides_of(out.at, out.rank, to);
    struct strided s;
    strided_init(&s);
    for (int i = 0; i < out.rank; i++)
        strided_add(&s, out.at[i], from[perm[i]], to[i]);
    KERNEL_TRY(
        ctx, move_run(ctx, &s, tensor_dtype(in), tensor_data(&ctx->outputs[0]), tensor_cdata(in)));
    return KERNEL_DONE;
}

/* Works in place on the output, which is fresh or has been made so. */
static enum kernel_result conjugate_transpose(struct kernel_ctx *ctx) {
    if (transpose(ctx) != KERNEL_DONE || ctx->status)
        return KERNEL_DONE;
    struct tensor *out = &ctx->outputs[0];
    if ((out->dtype != DT_COMPLEX64 && out->dtype != DT_COMPLEX128) || out->n_elements == 0)
        return KERNEL_DONE;
    if (!tensor_is_sole(out)) {
        struct tensor own = TENSOR_INIT;
        KERNEL_TRY(ctx, kernel_clone(ctx, out, &own));
        tensor_clear(out);
        tensor_move(out, &own);
    }
    if (kernel_is_for_device(ctx)) {
        KERNEL_TRY(ctx, ctx->instance->engine->conjugate(ctx, tensor_dtype(out), tensor_data(out),
                                                         out->n_elements));
    } else if (out->dtype == DT_COMPLEX64) {
        float *parts = tensor_data(out);
        POOL_PIECES (begin, end, 0, out->n_elements)
            for (int64_t i = begin; i < end; i++)
                parts[2 * i + 1] = -parts[2 * i + 1];
    } else {
        double *parts = tensor_data(out);
        POOL_PIECES (begin, end, 0, out->n_elements)
            for (int64_t i = begin; i < end; i++)
                parts[2 * i + 1] = -parts[2 * i + 1];
    }
    return KERNEL_DONE;
}

static enum kernel_result invert_permutation(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    if (in->rank != 1)
        return kernel_fail(ctx, status_invalid("invert_permutation expects a 1D vector."));
    int64_t n = in->n_elements;
    if (n > INT32_MAX)
        return kernel_fail(
            ctx,
            status_invalid("permutation of nonnegative int32s must have <= int32 max elements"));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), tensor_shape(in)));
    struct tensor *out = &ctx->outputs[0];
    char *marks = tensor_data(out);
    size_t size = dtype_size(tensor_dtype(out));
    POOL_PIECES (begin, end, 0, n) /* -1: not set yet */
        memset(marks + (size_t)begin * size, 0xff, (size_t)(end - begin) * size);
    for (int64_t i = 0; i < n && pool_goes_on(i); i++) {
        int64_t at = tensor_index_at(in, i);
        if (at < 0 || at >= n)
            return kernel_fail(
                ctx, status_invalid("%lld is not between 0 and %lld", (long long)at, (long long)n));
        if (tensor_index_at(out, at) != -1)
            return kernel_fail(ctx,
                               status_invalid("%lld is duplicated in the input.", (long long)at));
        if (out->dtype == DT_INT32)
            ((int32_t *)tensor_data(out))[at] = (int32_t)i;
        else
            ((int64_t *)tensor_data(out))[at] = i;
    }
    return KERNEL_DONE;
}

/* ---- reversals ---- */

static enum kernel_result reverse_axes(struct kernel_ctx *ctx, const bool *is_reversed) {
    const struct tensor *in = kernel_input(ctx, 0);
    int64_t strides[SHAPE_MAX_RANK], start = 0;
    strides_of(tensor_dims(in), in->rank, strides);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), tensor_shape(in)));
    if (in->n_elements == 0)
        return KERNEL_DONE;
    struct strided s;
    strided_init(&s);
    for (int i = 0; i < in->rank; i++) {
        strided_add(&s, tensor_dim(in, i), is_reversed[i] ? -strides[i] : strides[i], strides[i]);
        start += is_reversed[i] ? (tensor_dim(in, i) - 1) * strides[i] : 0;
    }
    KERNEL_TRY(ctx, move_run(ctx, &s, tensor_dtype(in), tensor_data(&ctx->outputs[0]),
                             tensor_cat(in, start)));
    return KERNEL_DONE;
}

static enum kernel_result reverse_v2(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0), *axes = kernel_input(ctx, 1);
    bool is_reversed[SHAPE_MAX_RANK] = {false};
    if (axes->rank > 1)
        return kernel_fail(
            ctx, status_invalid("axes must be a vector, got shape %s", TENSOR_SHAPE_TEXT(axes)));
    for (int64_t i = 0; i < axes->n_elements; i++) {
        int64_t axis = tensor_index_at(axes, i);
        if (axis < -(int64_t)in->rank || axis >= in->rank)
            return kernel_fail(ctx,
                               status_invalid("'axis'[%lld] = %lld is out of valid range [0, %d)",
                                              (long long)i, (long long)axis, in->rank));
        axis += axis < 0 ? in->rank : 0;
        if (is_reversed[axis])
            return kernel_fail(
                ctx, status_invalid("axis %lld specified more than once.", (long long)axis));
        is_reversed[axis] = true;
    }
    return reverse_axes(ctx, is_reversed);
}

static enum kernel_result reverse_v1(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0), *which = kernel_input(ctx, 1);
    bool is_reversed[SHAPE_MAX_RANK] = {false};
    if (which->rank != 1 || (in->rank > 0 && which->n_elements != in->rank))
        return kernel_fail(ctx, status_invalid("'dims' must have the same number of values as the "
                                               "input has dimensions. 'input' has %d"
                                               "'dims' has %lld values",
                                               in->rank, (long long)which->n_elements));
    for (int i = 0; i < in->rank; i++)
        is_reversed[i] = ((const bool *)tensor_cdata(which))[i];
    return reverse_axes(ctx, is_reversed);
}

struct reverse_sequence {
    int64_t seq_dim, batch_dim;
};

static struct status *reverse_sequence_init(struct kernel_init *init) {
    struct reverse_sequence state;
    TRY(node_get_i(init->node, "seq_dim", &state.seq_dim));
    TRY(node_get_i(init->node, "batch_dim", &state.batch_dim));
    init->state = xmalloc(sizeof(state));
    *(struct reverse_sequence *)init->state = state;
    return NULL;
}

static struct status *reverse_sequence_check(const struct reverse_sequence *state,
                                             const struct tensor *in,
                                             const struct tensor *lengths) {
    if (lengths->rank != 1)
        return status_invalid("seq_lens input must be 1-dim, not %d", lengths->rank);
    if (state->batch_dim == state->seq_dim)
        return status_invalid("batch_dim == seq_dim == %lld", (long long)state->seq_dim);
    if (state->seq_dim < 0 || state->seq_dim >= in->rank)
        return status_invalid("seq_dim must be < input rank ( %lld vs. %d)",
                              (long long)state->seq_dim, in->rank);
    if (state->batch_dim < 0 || state->batch_dim >= in->rank)
        return status_invalid("batch_dim must be < input rank ( %lld vs. %d)",
                              (long long)state->batch_dim, in->rank);
    int64_t n_batch = tensor_dim(in, (int)state->batch_dim),
            n_steps = tensor_dim(in, (int)state->seq_dim);
    if (lengths->n_elements != n_batch)
        return status_invalid("Length of seq_lens != input.dims(%lld), (%lld vs. %lld)",
                              (long long)state->batch_dim, (long long)lengths->n_elements,
                              (long long)n_batch);
    for (int64_t i = 0; i < n_batch && !tensor_is_on_device(lengths); i++) {
        int64_t length = tensor_index_at(lengths, i);
        if (length < 0 || length > n_steps)
            return status_invalid("seq_lens(%lld) %s", (long long)i,
                                  length < 0 ? "< 0" : "> input.dims(seq_dim)");
    }
    return NULL;
}

static struct status *reverse_sequence_on_device(struct kernel_ctx *ctx,
                                                 const struct reverse_sequence *state,
                                                 const struct tensor *in,
                                                 const struct tensor *lengths) {
    int first = (int)MIN(state->seq_dim, state->batch_dim),
        second = (int)MAX(state->seq_dim, state->batch_dim);
    const int64_t *dims = tensor_dims(in);
    struct device_reverse_sequence reverse = {
        .to = tensor_data(&ctx->outputs[0]),
        .from = tensor_cdata(in),
        .lengths = tensor_cdata(lengths),
        .length_dtype = tensor_dtype(lengths),
        .element_bytes = dtype_size(tensor_dtype(in)),
        .outer = dims_product(dims, 0, first),
        .n_steps = dims[state->seq_dim],
        .middle = dims_product(dims, first + 1, second),
        .n_batch = dims[state->batch_dim],
        .inner = dims_product(dims, second + 1, in->rank),
        .batch_is_first = state->batch_dim < state->seq_dim,
    };
    return ctx->instance->engine->reverse_sequence(ctx, &reverse);
}

/* For each batch entry, reverses the first `length` steps and copies the rest. */
static enum kernel_result reverse_sequence(struct kernel_ctx *ctx) {
    const struct reverse_sequence *state = ctx->instance->state;
    const struct tensor *in = kernel_input(ctx, 0), *lengths = kernel_input(ctx, 1);
    KERNEL_TRY(ctx, reverse_sequence_check(state, in, lengths));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), tensor_shape(in)));
    int64_t strides[SHAPE_MAX_RANK];
    strides_of(tensor_dims(in), in->rank, strides);
    if (in->n_elements == 0)
        return KERNEL_DONE;
    if (kernel_is_for_device(ctx)) {
        KERNEL_TRY(ctx, reverse_sequence_on_device(ctx, state, in, lengths));
        return KERNEL_DONE;
    }
    enum { BATCHES_PER_POLL = 64 };
    int seq = (int)state->seq_dim, batch = (int)state->batch_dim;
    for (int64_t b = 0; b < lengths->n_elements && (b % BATCHES_PER_POLL || !pool_is_unwanted());
         b++) {
        int64_t length = tensor_index_at(lengths, b), n_steps = tensor_dim(in, seq);
        for (int part = 0; part < 2; part++) { /* 0: reversed, 1: the rest */
            int64_t first = part ? length : 0, n = part ? n_steps - length : length;
            int64_t source = part ? length : length - 1;
            if (n == 0)
                continue;
            struct strided s;
            strided_init(&s);
            for (int i = 0; i < in->rank; i++) {
                if (i == seq)
                    strided_add(&s, n, part ? strides[i] : -strides[i], strides[i]);
                else if (i != batch)
                    strided_add(&s, tensor_dim(in, i), strides[i], strides[i]);
            }
            int64_t base = b * strides[batch];
            strided_run(&s, tensor_dtype(in),
                        tensor_at(&ctx->outputs[0], base + first * strides[seq]),
                        tensor_cat(in, base + source * strides[seq]), ctx->pool);
        }
    }
    return KERNEL_DONE;
}

/* ---- Roll ---- */

/* Rolls one axis. A roll is two strided copies. */
static struct status *roll_axis(struct kernel_ctx *ctx, const struct tensor *in, struct tensor *out,
                                int axis, int64_t shift) {
    int64_t n = tensor_dim(in, axis), inner = dims_product(tensor_dims(in), axis + 1, in->rank),
            outer = dims_product(tensor_dims(in), 0, axis);
    struct moves moves;
    moves_begin(&moves, ctx, tensor_dtype(in));
    for (int part = 0; part < 2; part++) {
        int64_t count = part ? shift : n - shift, from = part ? n - shift : 0,
                to = part ? 0 : shift;
        struct strided s;
        strided_init(&s);
        strided_add(&s, outer, n * inner, n * inner);
        strided_add(&s, count * inner, 1, 1);
        if (count > 0)
            moves_add(&moves, &s, tensor_at(out, to * inner), tensor_cat(in, from * inner));
    }
    return moves_end(&moves);
}

static enum kernel_result roll(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0), *shift = kernel_input(ctx, 1),
                        *axis = kernel_input(ctx, 2);
    if (in->rank < 1)
        return kernel_fail(ctx, status_invalid("input must be 1-D or higher"));
    if (shift->rank > 1)
        return kernel_fail(ctx, status_invalid("shift must be a scalar or a 1-D vector. Found: %s",
                                               TENSOR_SHAPE_TEXT(shift)));
    if (axis->rank > 1)
        return kernel_fail(ctx, status_invalid("axis must be a scalar or a 1-D vector. Found: %s",
                                               TENSOR_SHAPE_TEXT(axis)));
    if (!shape_equal(tensor_shape(shift), tensor_shape(axis)))
        return kernel_fail(ctx, status_invalid("shift and axis must have the same size"));
    int64_t shifts[SHAPE_MAX_RANK] = {0};
    for (int64_t i = 0; i < axis->n_elements; i++) {
        int64_t at = tensor_index_at(axis, i);
        at += at < 0 ? in->rank : 0;
        if (at < 0 || at >= in->rank)
            return kernel_fail(ctx, status_invalid("axis %lld is out of range",
                                                   (long long)tensor_index_at(axis, i)));
        int64_t n = MAX(tensor_dim(in, (int)at), 1);
        int64_t by = tensor_index_at(shift, i) % n;
        shifts[at] = (shifts[at] + (by < 0 ? by + n : by)) % n;
    }
    struct tensor current = TENSOR_INIT;
    tensor_move(&current, &ctx->inputs[0]);
    struct status *st = NULL;
    for (int i = 0; i < current.rank && current.n_elements > 0; i++) {
        if (shifts[i] == 0)
            continue;
        struct tensor next = TENSOR_INIT;
        TRY_OUT(kernel_new(ctx, tensor_dtype(&current), tensor_shape(&current), &next));
        st = roll_axis(ctx, &current, &next, i, shifts[i]);
        tensor_clear(&current);
        tensor_move(&current, &next);
        if (st)
            goto out;
    }
    tensor_move(&ctx->outputs[0], &current);
    return KERNEL_DONE;
out:
    tensor_clear(&current);
    return kernel_fail(ctx, st);
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "Transpose", .compute = transpose},
    {.op = "ConjugateTranspose", .compute = conjugate_transpose},
    {.op = "InvertPermutation", .compute = invert_permutation},
    {.op = "ReverseV2", .compute = reverse_v2},
    {.op = "Reverse", .compute = reverse_v1},
    {.op = "ReverseSequence", .compute = reverse_sequence, .init = reverse_sequence_init},
    {.op = "Roll", .compute = roll},
};
// clang-format on

const struct kernel_list array_transpose_kernels = {rows, ARRAY_LEN(rows)};
