/* Counts values (Bincount, DenseBincount, HistogramFixedWidth), and computes Cross. */
#include "kernels/cpu/math/math_segment.h"

#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "kernels/support/cancel.h"
#include "kernels/support/counting_checks.h"
#include "kernels/support/half_blocks.h"
#include "common/tensor/element.h"

/* ---- Bincount, DenseBincount: out[value] += weight; values that are not below the size are left
 * out ---- */

/* Adds the weights of the values to `out`, which is not cleared first. Without `weights` (NULL)
 * each value weighs 1. With `binary`, out is set to 1 wherever a value occurs. */
typedef void count_loop(const struct tensor *values, int64_t begin, int64_t end, int64_t size,
                        const void *weights, bool is_binary, void *out);
#define COUNT_VALUES(I, T, W)                                                        \
    const I *at = tensor_cdata(values);                                              \
    for (int64_t i = begin; i < end; i++) {                                          \
        if (at[i] < size)                                                            \
            to[at[i]] = is_binary ? (T)1 : (T)((W)to[at[i]] + (W)(w ? w[i] : (T)1)); \
    }
#define COUNT_LOOP(tag, T, W, DT, ...)                                                             \
    static void count_##tag(const struct tensor *values, int64_t begin, int64_t end, int64_t size, \
                            const void *weights, bool is_binary, void *out) {                      \
        T *to = out;                                                                               \
        const T *w = weights;                                                                      \
        if (values->dtype == DT_INT32) {                                                           \
            COUNT_VALUES(int32_t, T, W)                                                            \
        } else {                                                                                   \
            COUNT_VALUES(int64_t, T, W)                                                            \
        }                                                                                          \
    }
#define COUNT_ENTRY(tag, T, W, DT, ...) [DT] = count_##tag,
#define COUNTABLE(X) \
    X(i32, int32_t, uint32_t, DT_INT32) X(i64, int64_t, uint64_t, DT_INT64) NUMBERS_FLOATS(X)
COUNTABLE(COUNT_LOOP)
static count_loop *const count_loops[DT_N_TYPES] = {COUNTABLE(COUNT_ENTRY)};

/* Counts many values with few possible results, without weights. Each share of the values counts
 * into several tables by turns, because the next increment of a counter waits until the last one is
 * stored. Then each share adds its tables to the common counts. They are whole numbers, so the
 * order does not matter. */
enum { COUNT_TABLES = 4, TABLE_MAX_SIZE = 1 << 14, VALUES_PER_PLACE = 8 };

struct tally {
    const struct tensor *values;
    int64_t first, size;
    int64_t *counts; /* all shares add to it with atomic additions */
};

#define TALLY_VALUES(I)                                                  \
    const I *at = (const I *)tensor_cdata(tally->values) + tally->first; \
    for (; begin + COUNT_TABLES <= end; begin += COUNT_TABLES)           \
        for (int k = 0; k < COUNT_TABLES; k++)                           \
            if (at[begin + k] < size)                                    \
                tables[k * size + at[begin + k]]++;                      \
    for (; begin < end; begin++)                                         \
        if (at[begin] < size)                                            \
            tables[at[begin]]++;

static void tally_range(void *arg, int64_t begin, int64_t end) {
    struct tally *tally = arg;
    int64_t size = tally->size;
    int64_t *tables = xcalloc((size_t)(COUNT_TABLES * size), sizeof(*tables));
    if (tally->values->dtype == DT_INT32) {
        TALLY_VALUES(int32_t)
    } else {
        TALLY_VALUES(int64_t)
    }
    for (int64_t i = 0; i < size; i++) {
        int64_t count = 0;
        for (int k = 0; k < COUNT_TABLES; k++)
            count += tables[k * size + i];
        __atomic_fetch_add(&tally->counts[i], count, __ATOMIC_RELAXED);
    }
    free(tables);
}

#define TALLY_STORE(tag, T, W, DT, ...)           \
    case DT:                                      \
        for (int64_t i = 0; i < tally->size; i++) \
            ((T *)out)[i] = (T)tally->counts[i];  \
        break;
static void tally_store(const struct tally *tally, enum dtype dtype, void *out) {
    switch (dtype) {
        COUNTABLE(TALLY_STORE)
    default:
        CHECK(false);
    }
}

/* A bit is set in all the signs when one of the values is negative. */
#define OR_VALUES(I)                                    \
    {                                                   \
        const I *at = tensor_cdata(values);             \
        I signs = 0;                                    \
        POOL_PIECES (begin, end, 0, values->n_elements) \
            for (int64_t i = begin; i < end; i++)       \
                signs |= at[i];                         \
        return signs < 0;                               \
    }
static bool has_negative(const struct tensor *values) {
    if (values->dtype == DT_INT32)
        OR_VALUES(int32_t)
    OR_VALUES(int64_t)
}

static struct status *bincount_init(struct kernel_init *init) {
    bool *is_binary = xcalloc(1, sizeof(*is_binary));
    init->state = is_binary;
    return node_is_op(init->node, "DenseBincount")
               ? node_get_b(init->node, "binary_output", is_binary)
               : NULL;
}

static struct status *check_bincount(const struct kernel_ctx *ctx, bool is_dense,
                                     int64_t *ret_size) {
    const struct tensor *values = &ctx->inputs[0], *weights = &ctx->inputs[2];
    if (ctx->inputs[1].rank != 0)
        return status_invalid("Shape must be rank 0 but is rank %d (size)", ctx->inputs[1].rank);
    *ret_size = tensor_index_at(&ctx->inputs[1], 0);
    if (*ret_size < 0)
        return status_invalid("size (%lld) must be non-negative", (long long)*ret_size);
    if (is_dense && values->rank > 2)
        return status_invalid("Shape must be at most rank 2 but is rank %d", values->rank);
    if (weights->n_elements > 0 || (is_dense && weights->rank != 1)) {
        if (is_dense && !shape_equal(tensor_shape(values), tensor_shape(weights)) &&
            weights->n_elements > 0)
            return status_invalid("`weights` must be the same shape as `arr` or a length-0 "
                                  "`Tensor`, in which case it acts as all weights equal to 1.");
        if (!is_dense && weights->n_elements != values->n_elements)
            return status_invalid("Input indices and weights must have the same size.");
    }
    for (int64_t i = 0, n = has_negative(values) ? values->n_elements : 0; i < n && pool_goes_on(i);
         i++) {
        if (tensor_index_at(values, i) < 0)
            return is_dense && values->rank == 2
                       ? status_invalid(
                             "Input 'in' must be non-negative! Negative input value found: %lld",
                             (long long)tensor_index_at(values, i))
                       : status_invalid("Input arr must be non-negative!");
    }
    return kernel_loop_check(0); /* else all values have been checked */
}

static enum kernel_result bincount_compute(struct kernel_ctx *ctx) {
    bool is_binary = *(const bool *)ctx->instance->state,
         is_dense = node_is_op(ctx->instance->node, "DenseBincount");
    const struct tensor *values = &ctx->inputs[0], *weights = &ctx->inputs[2];
    enum dtype dtype = (enum dtype)weights->dtype;
    int64_t size, n_rows = is_dense && values->rank == 2 ? tensor_dim(values, 0) : 1;
    KERNEL_TRY(ctx, check_bincount(ctx, is_dense, &size));
    struct shape shape = is_dense && values->rank == 2
                             ? (struct shape){2, (int64_t[]){n_rows, size}}
                             : (struct shape){1, &size};
    KERNEL_TRY(ctx, tensor_new_zeroed(ctx->instance->allocator, dtype, shape, &ctx->outputs[0]));
    struct tensor *out = &ctx->outputs[0];
    if (out->n_elements == 0)
        return KERNEL_DONE;
    const void *w = weights->n_elements > 0 ? tensor_cdata(weights) : NULL;
    int64_t row = values->n_elements / MAX(n_rows, 1), element = (int64_t)dtype_size(dtype);
    char *to = tensor_data(out);
    bool is_tallied =
        !w && !is_binary && size <= TABLE_MAX_SIZE && row / VALUES_PER_PLACE >= size * COUNT_TABLES;
    struct tally tally = {values, 0, size,
                          is_tallied ? xcalloc((size_t)size, sizeof(*tally.counts)) : NULL};
    for (int64_t r = 0; r < n_rows; r++) {
        if (!is_tallied) {
            POOL_PIECES (first, last, r * row, (r + 1) * row)
                count_loops[dtype](values, first, last, size, w, is_binary,
                                   to + r * size * element);
            continue;
        }
        tally.first = r * row;
        memset(tally.counts, 0, (size_t)size * sizeof(*tally.counts));
        pool_parallel_for(ctx->pool, row, 0.5, tally_range, &tally);
        tally_store(&tally, dtype, to + r * size * element);
    }
    free(tally.counts);
    return KERNEL_DONE;
}

/* ---- HistogramFixedWidth ---- */

static enum kernel_result histogram_compute(struct kernel_ctx *ctx) {
    const struct tensor *values = kernel_input(ctx, 0);
    struct histogram_bins bins;
    KERNEL_TRY(ctx, histogram_check(ctx, &bins));
    enum dtype out_dtype = (enum dtype)ctx->instance->out_types[0];
    KERNEL_TRY(ctx, tensor_new_zeroed(ctx->instance->allocator, out_dtype,
                                      (struct shape){1, &bins.n}, &ctx->outputs[0]));
    void *out = tensor_data(&ctx->outputs[0]);
    for (int64_t i = 0; i < values->n_elements && pool_goes_on(i); i++) {
        double value = tensor_real_at(values, i);
        if (value != value)
            return kernel_fail(ctx, status_invalid("Histogram values must not contain NaN"));
        double place = (MAX(value, bins.low) - bins.low) / bins.step;
        int64_t bin = place < (double)(bins.n - 1) ? (int64_t)place : bins.n - 1;
        if (out_dtype == DT_INT32)
            ((int32_t *)out)[bin]++;
        else
            ((int64_t *)out)[bin]++;
    }
    return KERNEL_DONE;
}

/* ---- Cross ---- */

typedef void cross_loop(const void *a, const void *b, void *out, int64_t n_vectors);
#define CROSS_LOOP(tag, T, W, DT, ...)                                                            \
    static void cross_##tag(const void *a, const void *b, void *out, int64_t n_vectors) {         \
        const T *x = a, *y = b;                                                                   \
        T *to = out;                                                                              \
        for (int64_t i = 0; i < n_vectors && pool_goes_on(i); i++, x += 3, y += 3, to += 3) {     \
            W x0 = (W)x[0], x1 = (W)x[1], x2 = (W)x[2], y0 = (W)y[0], y1 = (W)y[1], y2 = (W)y[2]; \
            to[0] = (T)(x1 * y2 - x2 * y1);                                                       \
            to[1] = (T)(x2 * y0 - x0 * y2);                                                       \
            to[2] = (T)(x0 * y1 - x1 * y0);                                                       \
        }                                                                                         \
    }
#define CROSS_ENTRY(tag, T, W, DT, ...) [DT] = cross_##tag,
NUMBERS_INTS(CROSS_LOOP)
NUMBERS_FLOATS(CROSS_LOOP)
static cross_loop *const cross_loops[DT_N_TYPES] = {NUMBERS_INTS(CROSS_ENTRY)
                                                        NUMBERS_FLOATS(CROSS_ENTRY)};

static enum kernel_result cross_compute(struct kernel_ctx *ctx) {
    const struct tensor *a = &ctx->inputs[0], *b = &ctx->inputs[1];
    if (!shape_equal(tensor_shape(a), tensor_shape(b)))
        return kernel_fail(ctx, status_invalid("Both inputs must be of same shape"));
    if (a->rank < 1)
        return kernel_fail(ctx, status_invalid("Input must be at least 1D"));
    if (tensor_dim(a, a->rank - 1) != 3)
        return kernel_fail(ctx, status_failed_precondition(
                                    "Cross-products are only defined for 3-element vectors."));
    enum dtype dtype = (enum dtype)a->dtype;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, tensor_shape(a)));
    void *out = tensor_data(&ctx->outputs[0]);
    int64_t n = a->n_elements / 3;
    if (!dtype_is_narrow_float(dtype)) {
        cross_loops[dtype](tensor_cdata(a), tensor_cdata(b), out, n);
        return KERNEL_DONE;
    }
    enum { BLOCK = 64 };
    float x[3 * BLOCK], y[3 * BLOCK], z[3 * BLOCK];
    for (int64_t done = 0; done < n; done += BLOCK) {
        int64_t count = MIN(n - done, BLOCK);
        half_block_load(dtype, x, (const uint16_t *)tensor_cdata(a) + 3 * done, 3 * count);
        half_block_load(dtype, y, (const uint16_t *)tensor_cdata(b) + 3 * done, 3 * count);
        cross_f32(x, y, z, count);
        half_block_store(dtype, (uint16_t *)out + 3 * done, z, 3 * count);
    }
    return KERNEL_DONE;
}

#define COUNTED (DTYPES_INDEX | DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE))
static const struct kernel_def rows[] = {
    {"Bincount", {{"T", COUNTED}}, bincount_compute, bincount_init},
    {"DenseBincount", {{"T", COUNTED}, {"Tidx", DTYPES_INDEX}}, bincount_compute, bincount_init},
    {"HistogramFixedWidth", {{"T", COUNTED}, {"dtype", DTYPES_INDEX}}, histogram_compute},
    {"Cross", {{"T", DTYPES_REAL}}, cross_compute},
};
const struct kernel_list math_count_kernels = {rows, ARRAY_LEN(rows)};
