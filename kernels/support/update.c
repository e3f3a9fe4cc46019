/* Makes the update loops from one template, a row per op and dtype. half and bfloat16 are computed
 * in float and rounded once. Integers wrap. */
#include "kernels/support/update.h"

#include <complex.h>

#include "common/base/pool_cancel.h"
#include "common/tensor/float16.h"

#define SAME(v) (v)

// clang-format off
/* dst either is a or does not overlap it, so no iteration sees another's result. */
#define IVDEP _Pragma("GCC ivdep")

/* x is the old element, y the update's; both of type C. */
#define UPDATE_ALL(T, C, LOAD, STORE, update, expression) \
    IVDEP for (int64_t i = 0; i < n; i++) {               \
        const C x = LOAD(a[i]), y = update;               \
        dst[i] = (T)STORE(expression);                    \
    }
#define UPDATE_LOOP(attribute, op, suffix, T, C, LOAD, STORE, expression)                      \
    attribute static bool op##_##suffix(void *dst_, const void *a_, const void *b_, int64_t n, \
        int b_step) {                                                                          \
        T *dst = dst_;                                                                         \
        const T *a = a_, *b = b_;                                                              \
        if (b_step) {                                                                          \
            UPDATE_ALL(T, C, LOAD, STORE, LOAD(b[i]), expression)                              \
        } else {                                                                               \
            const C one = LOAD(*b);                                                            \
            UPDATE_ALL(T, C, LOAD, STORE, one, expression)                                     \
        }                                                                                      \
        return true;                                                                           \
    }

#define ORDER_LOOPS(suffix, T, C, LOAD, STORE)                             \
    UPDATE_LOOP(, min, suffix, T, C, LOAD, STORE, y < x ? y : x)           \
    UPDATE_LOOP(, max, suffix, T, C, LOAD, STORE, x < y ? y : x)

#define FLOAT_LOOPS(attribute, suffix, T, C, LOAD, STORE)                  \
    UPDATE_LOOP(attribute, add, suffix, T, C, LOAD, STORE, x + y)          \
    UPDATE_LOOP(attribute, sub, suffix, T, C, LOAD, STORE, x - y)          \
    UPDATE_LOOP(, mul, suffix, T, C, LOAD, STORE, x *y)                    \
    UPDATE_LOOP(, div, suffix, T, C, LOAD, STORE, x / y)

FLOAT_LOOPS(VECTOR_CLONES, float, float, float, SAME, SAME)
FLOAT_LOOPS(VECTOR_CLONES, double, double, double, SAME, SAME)
FLOAT_LOOPS(VECTOR_CLONES, half, uint16_t, float, half_to_float, half_from_float)
FLOAT_LOOPS(VECTOR_CLONES, bfloat16, uint16_t, float, bfloat16_to_float, bfloat16_from_float)
FLOAT_LOOPS(, complex64, float complex, float complex, SAME, SAME)
FLOAT_LOOPS(, complex128, double complex, double complex, SAME, SAME)
ORDER_LOOPS(float, float, float, SAME, SAME)
ORDER_LOOPS(double, double, double, SAME, SAME)
ORDER_LOOPS(half, uint16_t, float, half_to_float, half_from_float)
ORDER_LOOPS(bfloat16, uint16_t, float, bfloat16_to_float, bfloat16_from_float)

/* W is an unsigned type at least as wide as int, so sums and products wrap without overflow. */
#define INT_DIV(suffix, T, W, quotient)                                                           \
    static bool div_##suffix(void *dst_, const void *a_, const void *b_, int64_t n, int b_step) { \
        T *dst = dst_;                                                                            \
        const T *a = a_, *b = b_;                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                         \
            const T x = a[i], y = b[b_step ? i : 0];                                              \
            if (unlikely(y == 0))                                                                 \
                return false;                                                                     \
            dst[i] = (T)(quotient);                                                               \
        }                                                                                         \
        return true;                                                                              \
    }
#define INT_LOOPS(suffix, T, W)                                \
    UPDATE_LOOP(, add, suffix, T, W, (W), SAME, x + y)         \
    UPDATE_LOOP(, sub, suffix, T, W, (W), SAME, x - y)         \
    UPDATE_LOOP(, mul, suffix, T, W, (W), SAME, x *y)          \
    ORDER_LOOPS(suffix, T, T, SAME, SAME)
#define SIGNED_LOOPS(suffix, T, W)                   \
    INT_LOOPS(suffix, T, W)                          \
    INT_DIV(suffix, T, W, y == -1 ? (T)((W)0 - (W)x) \
        : x / y) /* the least number divided by -1 wraps to itself */
#define UNSIGNED_LOOPS(suffix, T, W) \
    INT_LOOPS(suffix, T, W)          \
    INT_DIV(suffix, T, W, x / y)

SIGNED_LOOPS(int8, int8_t, uint32_t)
SIGNED_LOOPS(int16, int16_t, uint32_t)
SIGNED_LOOPS(int32, int32_t, uint32_t)
SIGNED_LOOPS(int64, int64_t, uint64_t)
UNSIGNED_LOOPS(uint8, uint8_t, uint32_t)
UNSIGNED_LOOPS(uint16, uint16_t, uint32_t)
UNSIGNED_LOOPS(uint32, uint32_t, uint32_t)
UNSIGNED_LOOPS(uint64, uint64_t, uint64_t)

/* C arithmetic on truth values: the result is true unless it is 0. */
UPDATE_LOOP(, add, bool, uint8_t, uint8_t, SAME, SAME, x | y)
UPDATE_LOOP(, sub, bool, uint8_t, uint8_t, SAME, SAME, x ^ y)
// clang-format on

/* ---- assignment, by size ---- */

// clang-format off
#define ASSIGN_LOOP(suffix, T)                                                        \
    static bool assign_##suffix(void *dst_, const void *a, const void *b_, int64_t n, \
        int b_step) {                                                                 \
        T *dst = dst_;                                                                \
        const T *b = b_;                                                              \
        if (b_step && n > 0)                                                          \
            memmove(dst, b, (size_t)n * sizeof(T));                                   \
        for (int64_t i = 0; !b_step && i < n; i++)                                    \
            dst[i] = *b;                                                              \
        return true;                                                                  \
    }
struct bytes16 {
    uint64_t half[2];
};
ASSIGN_LOOP(1, uint8_t)
ASSIGN_LOOP(2, uint16_t)
ASSIGN_LOOP(4, uint32_t)
ASSIGN_LOOP(8, uint64_t)
ASSIGN_LOOP(16, struct bytes16)
// clang-format on

static bool assign_object(void *dst_, const void *a, const void *b_, int64_t n, int b_step) {
    struct object **dst = dst_, *const *b = b_;
    for (int64_t i = 0; i < n; i++) {
        struct object *old = dst[i];
        dst[i] = object_ref(b[b_step ? i : 0]);
        object_unref(old);
    }
    return true;
}

static update_fn *assign_find(enum dtype dtype) {
    if (dtype_is_object(dtype))
        return assign_object;
    switch (dtype_size(dtype)) {
    case 1:
        return assign_1;
    case 2:
        return assign_2;
    case 4:
        return assign_4;
    case 8:
        return assign_8;
    case 16:
        return assign_16;
    default:
        return NULL;
    }
}

// clang-format off
#define ARITHMETIC(DT, s) [UPDATE_ADD][DT] = add_##s, [UPDATE_SUB][DT] = sub_##s, \
    [UPDATE_MUL][DT] = mul_##s, [UPDATE_DIV][DT] = div_##s
#define ORDERED(DT, s) ARITHMETIC(DT, s), [UPDATE_MIN][DT] = min_##s, [UPDATE_MAX][DT] = max_##s
static update_fn *const update_fns[N_UPDATE_OPS][DT_N_TYPES] = {
    ORDERED(DT_HALF, half), ORDERED(DT_BFLOAT16, bfloat16), ORDERED(DT_FLOAT, float),
        ORDERED(DT_DOUBLE, double),
    ORDERED(DT_INT8, int8), ORDERED(DT_INT16, int16), ORDERED(DT_INT32, int32),
        ORDERED(DT_INT64, int64),
    ORDERED(DT_UINT8, uint8), ORDERED(DT_UINT16, uint16), ORDERED(DT_UINT32, uint32),
        ORDERED(DT_UINT64, uint64),
    ARITHMETIC(DT_COMPLEX64, complex64), ARITHMETIC(DT_COMPLEX128, complex128),
    [UPDATE_ADD][DT_BOOL] = add_bool, [UPDATE_SUB][DT_BOOL] = sub_bool,
};
// clang-format on

update_fn *update_find(enum update_op op, enum dtype dtype) {
    if (op == UPDATE_ASSIGN)
        return assign_find(dtype);
    return dtype < DT_N_TYPES ? update_fns[op][dtype] : NULL;
}

/* ---- in parallel ---- */

static COLD struct status *division_by_zero(void) {
    return status_invalid("Integer division by zero");
}

struct update_job {
    update_fn *fn;
    size_t size;
    char *dst;
    const char *a, *b;
    _Atomic bool divided_by_zero;
};

static void update_range(void *arg, int64_t begin, int64_t end) {
    struct update_job *job = arg;
    size_t at = (size_t)begin * job->size;
    if (!job->fn(job->dst + at, job->a + at, job->b + at, end - begin, 1))
        job->divided_by_zero = true;
}

enum { PARALLEL_ELEMENTS = 32 * 1024 };

struct status *update_run(struct pool *pool, update_fn *fn, enum dtype dtype, void *dst,
                          const void *a, const void *b, int64_t n) {
    if (n < PARALLEL_ELEMENTS || !pool)
        return fn(dst, a, b, n, 1) ? NULL : division_by_zero();
    struct update_job job = {.fn = fn, .size = dtype_size(dtype), .dst = dst, .a = a, .b = b};
    pool_parallel_for(pool, n, 0.4, update_range, &job);
    return job.divided_by_zero ? division_by_zero() : NULL;
}

/* ---- scattered ---- */

static inline int64_t slice_offset(const struct scatter_job *job, int64_t slice) {
    if (job->offsets)
        return job->offsets[slice];
    int64_t row = job->indices_are_wide ? ((const int64_t *)job->indices)[slice]
                                        : ((const int32_t *)job->indices)[slice];
    return row * job->slice_len;
}

static void scatter_columns(struct scatter_job *job, int64_t begin, int64_t end) {
    size_t size = dtype_size(job->dtype);
    for (int64_t s = 0; s < job->n_slices && pool_goes_on(s); s++) {
        int64_t offset = slice_offset(job, s);
        if (offset < 0)
            continue;
        char *to = job->params + (size_t)(offset + begin) * size;
        const char *from = job->update_step
                               ? job->updates + (size_t)(s * job->slice_len + begin) * size
                               : job->updates;
        if (!job->fn(to, to, from, end - begin, job->update_step))
            job->divided_by_zero = true;
    }
}

enum { COLUMN_BLOCK = 64 }; /* elements; two shares never write to one cache line */

static void scatter_blocks(void *arg, int64_t begin, int64_t end) {
    struct scatter_job *job = arg;
    scatter_columns(job, begin * COLUMN_BLOCK, MIN(end * COLUMN_BLOCK, job->slice_len));
}

struct status *scatter_run(struct pool *pool, struct scatter_job *job) {
    if (job->slice_len == 0 || job->n_slices == 0)
        return NULL;
    if (pool && job->slice_len >= 2 * COLUMN_BLOCK &&
        job->n_slices >= PARALLEL_ELEMENTS / job->slice_len) {
        int64_t n_blocks = (job->slice_len + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
        pool_parallel_for(pool, n_blocks, 0.4 * COLUMN_BLOCK * (double)job->n_slices,
                          scatter_blocks, job);
    } else {
        scatter_columns(job, 0, job->slice_len);
    }
    return job->divided_by_zero ? division_by_zero() : NULL;
}
