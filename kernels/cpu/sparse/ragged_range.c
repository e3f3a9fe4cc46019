/* Runs RaggedRange: makes a row of numbers for each triple of start, limit and delta. */
#include <math.h>

#include "kernels/cpu/sparse/ragged.h"
#include "kernels/support/cancel.h"

extern const struct kernel_list ragged_range_kernels;

enum { ROWS_PER_POLL = 64 };

/* Counts the numbers. False when there are more than an int64 counts. */
typedef bool count_fn(const void *start, const void *limit, const void *delta, int64_t *ret_n);
typedef void fill_fn(const void *start, const void *delta, int64_t n, void *out);

/* Integers are counted in their unsigned type, which holds the distance of any two. */
#define NAME(x) x##_i32
#define T int32_t
#define U uint32_t
#include "kernels/cpu/sparse/ragged_range.inc"
#define NAME(x) x##_i64
#define T int64_t
#define U uint64_t
#include "kernels/cpu/sparse/ragged_range.inc"

/* Floats are made by repeated addition, because the rounding of each sum is part of the result. */
#define FLOAT_RANGE(tag, T, CEIL)                                                             \
    static bool count_##tag(const void *start_, const void *limit_, const void *delta_,       \
                            int64_t *ret_n) {                                                 \
        T start = *(const T *)start_, limit = *(const T *)limit_, delta = *(const T *)delta_; \
        bool is_empty = delta > 0 ? start >= limit : start <= limit;                          \
        T n = is_empty ? 0 : CEIL((limit - start) / delta);                                   \
        bool fits = n >= 0 && n < (T)0x1p63;                                                  \
        *ret_n = fits ? (int64_t)n : 0;                                                       \
        return fits;                                                                          \
    }                                                                                         \
    static void fill_##tag(const void *start_, const void *delta_, int64_t n, void *out_) {   \
        T value = *(const T *)start_, delta = *(const T *)delta_, *out = out_;                \
        for (int64_t i = 0; i < n && (i == 0 || pool_goes_on(i)); i++, value += delta)        \
            out[i] = value;                                                                   \
    }
FLOAT_RANGE(f32, float, ceilf)
FLOAT_RANGE(f64, double, ceil)

static const struct range_loops {
    count_fn *count;
    fill_fn *fill;
} loops[DT_N_TYPES] = {
    [DT_INT32] = {count_i32, fill_i32},
    [DT_INT64] = {count_i64, fill_i64},
    [DT_FLOAT] = {count_f32, fill_f32},
    [DT_DOUBLE] = {count_f64, fill_f64},
};

static bool is_zero(enum dtype dtype, const void *at) {
    switch (dtype) {
    case DT_INT32:
        return *(const int32_t *)at == 0;
    case DT_INT64:
        return *(const int64_t *)at == 0;
    case DT_FLOAT:
        return *(const float *)at == 0;
    default:
        return *(const double *)at == 0;
    }
}

/* Element i, or the only element of a scalar. */
static const void *element(const struct kernel_ctx *ctx, int input, int64_t i) {
    const struct tensor *t = &ctx->inputs[input];
    return (const char *)tensor_cdata(t) +
           (t->rank == 0 ? 0 : i) * (int64_t)dtype_size((enum dtype)t->dtype);
}

static struct status *count_rows(const struct kernel_ctx *ctx, int64_t *ret_n) {
    static const char *const names[] = {"starts", "limits", "deltas"};
    int64_t n = -1;
    for (int i = 0; i < 3; i++) {
        const struct tensor *t = &ctx->inputs[i];
        if (t->rank > 1)
            return status_invalid("%s must be a scalar or vector", names[i]);
        if (t->rank == 1 && n >= 0 && n != t->n_elements)
            return status_invalid("starts, limits, and deltas must have the same shape");
        n = t->rank == 1 ? t->n_elements : n;
    }
    *ret_n = n < 0 ? 1 : n;
    return NULL;
}

static struct status *make_splits(struct kernel_ctx *ctx, int64_t n_rows, int64_t *ret_total) {
    enum dtype dtype = (enum dtype)ctx->inputs[0].dtype,
               splits_dtype = (enum dtype)ctx->instance->out_types[0];
    int64_t n_splits = n_rows + 1, total = 0, n;
    TRY(kernel_alloc(ctx, 0, splits_dtype, (struct shape){1, &n_splits}));
    tensor_set_index(&ctx->outputs[0], 0, 0);
    for (int64_t i = 0; i < n_rows; i++) {
        TRY(kernel_loop_check(i));
        if (is_zero(dtype, element(ctx, 2, i)))
            return status_invalid("Requires delta != 0");
        if (!loops[dtype].count(element(ctx, 0, i), element(ctx, 1, i), element(ctx, 2, i), &n))
            return status_invalid("Requires ((limit - start) / delta) <= %lld",
                                  (long long)INT64_MAX);
        if (add_overflows_i64(total, n, &total) || (splits_dtype == DT_INT32 && total > INT32_MAX))
            return status_invalid("The total range size overflowed. Consider using int64 instead "
                                  "of int32 for row_splits_dtype.");
        tensor_set_index(&ctx->outputs[0], i + 1, total);
    }
    *ret_total = total;
    return NULL;
}

static enum kernel_result ragged_range(struct kernel_ctx *ctx) {
    enum dtype dtype = (enum dtype)ctx->inputs[0].dtype;
    int64_t n_rows, total;
    KERNEL_TRY(ctx, count_rows(ctx, &n_rows));
    KERNEL_TRY(ctx, make_splits(ctx, n_rows, &total));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 1, dtype, (struct shape){1, &total}));
    char *out = tensor_data(&ctx->outputs[1]);
    const struct tensor *splits = &ctx->outputs[0];
    for (int64_t i = 0; i < n_rows && (i % ROWS_PER_POLL != 0 || !pool_is_unwanted()); i++) {
        int64_t begin = tensor_index_at(splits, i), n = tensor_index_at(splits, i + 1) - begin;
        loops[dtype].fill(element(ctx, 0, i), element(ctx, 2, i), n,
                          out + begin * (int64_t)dtype_size(dtype));
    }
    return KERNEL_DONE;
}

#define RANGE_TYPES (DTYPES_INDEX | DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE))
static const struct kernel_def rows[] = {
    {.op = "RaggedRange",
     .constraints = {{"T", RANGE_TYPES}, {"Tsplits", DTYPES_INDEX}},
     .compute = ragged_range},
};

const struct kernel_list ragged_range_kernels = {rows, ARRAY_LEN(rows)};
