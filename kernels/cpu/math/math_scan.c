/* Works along one dimension: ArgMax, ArgMin, and running sums, products and log-sum-exps (Cumsum,
 * Cumprod, CumulativeLogsumexp).
 *
 * The input is seen as [outer, n, inner], where n is the dimension. */
#include "kernels/cpu/math/math_internal.h"

#include <stdlib.h>

#include "kernels/support/half_blocks.h"
#include "kernels/support/lanes.h"

enum { SCAN_TILE = 256 }; /* inner positions that advance together */

struct along {
    int64_t outer, n, inner;
};

static struct along split_at(struct shape shape, int axis) {
    struct along along = {1, shape.dims[axis], 1};
    for (int i = 0; i < axis; i++)
        along.outer *= shape.dims[i];
    for (int i = axis + 1; i < shape.rank; i++)
        along.inner *= shape.dims[i];
    return along;
}

/* ---- ArgMax, ArgMin ---- */

/* The first place along n of the best element; a NaN is never better. */
enum { ARG_LANES = 32, ARG_BLOCK = 4096, ARG_TILE = 64, SHORT_RUN = 128 };
struct arg_loops {
    void (*row)(const void *in, int64_t n, int64_t *place);
    /* at most ARG_TILE */
    void (*columns)(const void *in, int64_t n, int64_t stride, int64_t width, int64_t *places);
};
#define ARG_LOOP(name, tag, T, DT, FIRST, BETTER)                                             \
    /* The best of a run, all of which is there: side by side, then the best of those. */     \
    LANES_INLINE T name##_best_##tag(const T *x, int64_t n) {                                 \
        T lanes[ARG_LANES], best = FIRST;                                                     \
        int64_t i = 0;                                                                        \
        for (int j = 0; j < ARG_LANES; j++)                                                   \
            lanes[j] = FIRST;                                                                 \
        for (; i + ARG_LANES <= n; i += ARG_LANES)                                            \
            for (int j = 0; j < ARG_LANES; j++)                                               \
                lanes[j] = x[i + j] BETTER lanes[j] ? x[i + j] : lanes[j];                    \
        for (; i < n; i++)                                                                    \
            best = x[i] BETTER best ? x[i] : best;                                            \
        for (int j = 0; j < ARG_LANES; j++)                                                   \
            best = lanes[j] BETTER best ? lanes[j] : best;                                    \
        return best;                                                                          \
    }                                                                                         \
    /* One run: only where the best block begins is kept; then that is searched. */           \
    VECTOR_CLONES static void name##_row_##tag(const void *in, int64_t n, int64_t *ret) {     \
        const T *x = in;                                                                      \
        T best = FIRST;                                                                       \
        int64_t place = 0;                                                                    \
        for (int64_t i = 0; n < SHORT_RUN && i < n; i++) {                                    \
            place = x[i] BETTER best ? i : place;                                             \
            best = x[i] BETTER best ? x[i] : best;                                            \
        }                                                                                     \
        for (int64_t i = 0; n >= SHORT_RUN && i < n; i += ARG_BLOCK) {                        \
            T one = name##_best_##tag(x + i, MIN(n - i, ARG_BLOCK));                          \
            if (one BETTER best) {                                                            \
                best = one;                                                                   \
                place = i;                                                                    \
            }                                                                                 \
        }                                                                                     \
        if (n >= SHORT_RUN && best BETTER(T) FIRST)                                           \
            while (x[place] != best)                                                          \
                place++;                                                                      \
        *ret = place;                                                                         \
    }                                                                                         \
    /* Neighbouring columns, each `stride` from element to element. */                        \
    VECTOR_CLONES static void name##_columns_##tag(const void *in, int64_t n, int64_t stride, \
                                                   int64_t width, int64_t *places) {          \
        const T *x = in;                                                                      \
        T best[ARG_TILE];                                                                     \
        int32_t block[ARG_TILE]; /* places among the rows of a block */                       \
        for (int64_t j = 0; j < width; j++) {                                                 \
            best[j] = FIRST;                                                                  \
            places[j] = 0;                                                                    \
        }                                                                                     \
        for (int64_t first = 0; first < n; first += ARG_BLOCK) {                              \
            for (int64_t j = 0; j < width; j++)                                               \
                block[j] = -1;                                                                \
            for (int32_t i = 0; i < MIN(n - first, ARG_BLOCK); i++, x += stride)              \
                for (int64_t j = 0; j < width; j++) {                                         \
                    block[j] = x[j] BETTER best[j] ? i : block[j];                            \
                    best[j] = x[j] BETTER best[j] ? x[j] : best[j];                           \
                }                                                                             \
            for (int64_t j = 0; j < width; j++)                                               \
                places[j] = block[j] < 0 ? places[j] : first + block[j];                      \
        }                                                                                     \
    }
#define ARG_ENTRY(name, tag, T, DT, FIRST, BETTER) [DT] = {name##_row_##tag, name##_columns_##tag},
// clang-format off
#define ARG_MAX(X)                                                                                \
    X(arg_max, i8, int8_t, DT_INT8, INT8_MIN, >) X(arg_max, i16, int16_t, DT_INT16, INT16_MIN, >) \
    X(arg_max, i32, int32_t, DT_INT32, INT32_MIN, >)                                              \
    X(arg_max, i64, int64_t, DT_INT64, INT64_MIN, >)                                              \
    X(arg_max, u8, uint8_t, DT_UINT8, 0, >) X(arg_max, u16, uint16_t, DT_UINT16, 0, >)            \
    X(arg_max, u32, uint32_t, DT_UINT32, 0, >) X(arg_max, u64, uint64_t, DT_UINT64, 0, >)         \
    X(arg_max, f32, float, DT_FLOAT, -INFINITY, >)                                                \
    X(arg_max, f64, double, DT_DOUBLE, -INFINITY, >)                                              \
    X(arg_max, bool, uint8_t, DT_BOOL, 0, >)
#define ARG_MIN(X)                                                                                \
    X(arg_min, i8, int8_t, DT_INT8, INT8_MAX, <) X(arg_min, i16, int16_t, DT_INT16, INT16_MAX, <) \
    X(arg_min, i32, int32_t, DT_INT32, INT32_MAX, <)                                              \
    X(arg_min, i64, int64_t, DT_INT64, INT64_MAX, <)                                              \
    X(arg_min, u8, uint8_t, DT_UINT8, UINT8_MAX, <)                                               \
    X(arg_min, u16, uint16_t, DT_UINT16, UINT16_MAX, <)                                           \
    X(arg_min, u32, uint32_t, DT_UINT32, UINT32_MAX, <)                                           \
    X(arg_min, u64, uint64_t, DT_UINT64, UINT64_MAX, <)                                           \
    X(arg_min, f32, float, DT_FLOAT, INFINITY, <) X(arg_min, f64, double, DT_DOUBLE, INFINITY, <) \
    X(arg_min, bool, uint8_t, DT_BOOL, 1, <)
// clang-format on
ARG_MAX(ARG_LOOP)
ARG_MIN(ARG_LOOP)
static const struct arg_loops arg_max_loops[DT_N_TYPES] = {ARG_MAX(ARG_ENTRY)};
static const struct arg_loops arg_min_loops[DT_N_TYPES] = {ARG_MIN(ARG_ENTRY)};

struct arg_job {
    const struct arg_loops *loops;
    enum dtype dtype;
    struct along along;
    const char *in;
    enum dtype out_dtype;
    void *out;
};

static void store_index(enum dtype dtype, void *out, int64_t i, int64_t place) {
    switch (dtype) {
    case DT_INT64:
        ((int64_t *)out)[i] = place;
        break;
    case DT_INT32:
        ((int32_t *)out)[i] = (int32_t)place;
        break;
    default:
        ((uint16_t *)out)[i] = (uint16_t)place;
        break; /* int16, uint16 */
    }
}

static void arg_range(void *arg, int64_t begin, int64_t end) {
    const struct arg_job *job = arg;
    const struct along *along = &job->along;
    int64_t size = (int64_t)dtype_size(job->dtype);
    while (begin < end) {
        int64_t places[ARG_TILE], column = begin % along->inner,
                                  width = MIN(MIN(along->inner - column, end - begin), ARG_TILE);
        const char *in = job->in + (begin / along->inner * along->n * along->inner + column) * size;
        if (along->inner == 1)
            job->loops->row(in, along->n, places);
        else
            job->loops->columns(in, along->n, along->inner, width, places);
        for (int64_t j = 0; j < width; j++)
            store_index(job->out_dtype, job->out, begin + j, places[j]);
        begin += width;
    }
}

/* A scalar axis in [-rank, rank). `what` opens the messages. */
static struct status *read_axis(const struct tensor *t, int rank, const char *not_scalar,
                                const char *range, int *ret) {
    if (t->rank != 0) {
        return status_invalid("%s%s", not_scalar, SHAPE_TEXT(tensor_shape(t)));
    }
    int64_t axis = t->dtype == DT_INT16 ? *(const int16_t *)tensor_cdata(t) : tensor_index_at(t, 0),
            own = axis < 0 ? axis + rank : axis;
    if (own < 0 || own >= rank)
        return status_invalid("%s in the range [%d, %d), but got %lld", range, -rank, rank,
                              (long long)axis);
    *ret = (int)own;
    return NULL;
}

static enum kernel_result arg_compute(struct kernel_ctx *ctx) {
    const struct tensor *in = &ctx->inputs[0];
    struct shape shape = tensor_shape(in);
    int axis;
    KERNEL_TRY(ctx, read_axis(&ctx->inputs[1], shape.rank,
                              "dim must be a scalar, but received tensor of shape: ",
                              "Expected dimension", &axis));
    if (shape.dims[axis] == 0) {
        return kernel_fail(
            ctx, status_invalid("Reduction axis %d is empty in shape %s", axis, SHAPE_TEXT(shape)));
    }
    int64_t dims[SHAPE_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < shape.rank; i++) {
        if (i != axis)
            dims[rank++] = shape.dims[i];
    }
    enum dtype out_dtype = (enum dtype)ctx->instance->out_types[0], dtype = (enum dtype)in->dtype;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, out_dtype, (struct shape){rank, dims}));
    struct tensor *out = &ctx->outputs[0];
    if (out->n_elements == 0)
        return KERNEL_DONE;
    bool is_max = ctx->instance->def->arg == arg_max_loops,
         is_narrow = dtype_is_narrow_float(dtype);
    struct arg_job job = {.dtype = is_narrow ? DT_FLOAT : dtype,
                          .along = split_at(shape, axis),
                          .in = tensor_cdata(in),
                          .out_dtype = out_dtype,
                          .out = tensor_data(out)};
    float *wide = NULL;
    if (is_narrow) {
        wide = malloc((size_t)in->n_elements * sizeof(*wide));
        if (!wide)
            return kernel_fail(ctx, status_exhausted("OOM when widening %lld elements",
                                                     (long long)in->n_elements));
        half_block_load(dtype, wide, tensor_cdata(in), in->n_elements);
        job.in = (const char *)wide;
    }
    job.loops = &(is_max ? arg_max_loops : arg_min_loops)[job.dtype];
    pool_parallel_for(ctx->pool, out->n_elements, (double)job.along.n * 0.3 + 5, arg_range, &job);
    free(wide);
    return KERNEL_DONE;
}

/* ---- scans ---- */

struct scan_state {
    bool exclusive, reverse;
};

static struct status *scan_init(struct kernel_init *init) {
    struct scan_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_b(init->node, "exclusive", &state->exclusive));
    return node_get_b(init->node, "reverse", &state->reverse);
}

/* Runs along n, step elements apart (negative in reverse), for a row of `width` neighbours;
 * `out` may be `in`. */
typedef void scan_loop(const void *in, void *out, int64_t n, int64_t step, int64_t width,
                       bool exclusive);
#define SCAN_LOOP(name, tag, T, A, DT, FIRST, STEP)                                             \
    static void name##_##tag(const void *in, void *out, int64_t n, int64_t step, int64_t width, \
                             bool exclusive) {                                                  \
        A acc[SCAN_TILE];                                                                       \
        for (int64_t j = 0; j < width; j++)                                                     \
            acc[j] = FIRST;                                                                     \
        const T *from = in;                                                                     \
        T *to = out;                                                                            \
        for (int64_t i = 0; i < n; i++, from += step, to += step) {                             \
            for (int64_t j = 0; j < width; j++) {                                               \
                T x = from[j];                                                                  \
                A a = acc[j], next = (A)(STEP);                                                 \
                to[j] = (T)(exclusive ? a : next);                                              \
                acc[j] = next;                                                                  \
            }                                                                                   \
        }                                                                                       \
    }
#define SCAN_ENTRY(name, tag, T, A, DT, FIRST, STEP) [DT] = name##_##tag,
#define SCAN_INTS(X, name, FIRST, STEP)                      \
    X(name, i8, int8_t, uint32_t, DT_INT8, FIRST, STEP)      \
    X(name, i16, int16_t, uint32_t, DT_INT16, FIRST, STEP)   \
    X(name, i32, int32_t, uint32_t, DT_INT32, FIRST, STEP)   \
    X(name, i64, int64_t, uint64_t, DT_INT64, FIRST, STEP)   \
    X(name, u8, uint8_t, uint32_t, DT_UINT8, FIRST, STEP)    \
    X(name, u16, uint16_t, uint32_t, DT_UINT16, FIRST, STEP) \
    X(name, u32, uint32_t, uint32_t, DT_UINT32, FIRST, STEP) \
    X(name, u64, uint64_t, uint64_t, DT_UINT64, FIRST, STEP)
#define SCAN_FLOATS(X, name, FIRST, STEP)              \
    X(name, f32, float, double, DT_FLOAT, FIRST, STEP) \
    X(name, f64, double, double, DT_DOUBLE, FIRST, STEP)
#define SCAN_COMPLEX(X, name, FIRST, STEP)                                 \
    X(name, c64, float complex, double complex, DT_COMPLEX64, FIRST, STEP) \
    X(name, c128, double complex, double complex, DT_COMPLEX128, FIRST, STEP)

/* log(e^a + e^x), from the larger of the two, so that nothing overflows. */
static inline double log_add_exp(double a, double x) {
    double high = a > x || a != a ? a : x, low = a > x || a != a ? x : a;
    return low == -INFINITY || high == INFINITY ? high + (low != low ? low : 0)
                                                : high + log1p(exp(low - high));
}

#define CUMSUM(X)                  \
    SCAN_INTS(X, cumsum, 0, a + x) \
    SCAN_FLOATS(X, cumsum, 0, a + x) SCAN_COMPLEX(X, cumsum, 0, a + x)
#define CUMPROD(X)                 \
    SCAN_INTS(X, cumprod, 1, a *x) \
    SCAN_FLOATS(X, cumprod, 1, a *x) SCAN_COMPLEX(X, cumprod, 1, a *x)
#define CUMLOGSUMEXP(X) SCAN_FLOATS(X, cumlogsumexp, -INFINITY, log_add_exp(a, x))
CUMSUM(SCAN_LOOP)
CUMPROD(SCAN_LOOP)
CUMLOGSUMEXP(SCAN_LOOP)
static scan_loop *const cumsum_loops[DT_N_TYPES] = {CUMSUM(SCAN_ENTRY)};
static scan_loop *const cumprod_loops[DT_N_TYPES] = {CUMPROD(SCAN_ENTRY)};
static scan_loop *const cumlogsumexp_loops[DT_N_TYPES] = {CUMLOGSUMEXP(SCAN_ENTRY)};

struct scan_job {
    const struct scan_state *state;
    scan_loop *loop;
    struct along along;
    int64_t n_tiles, size;
    const char *in;
    char *out;
};

static void scan_range(void *arg, int64_t begin, int64_t end) {
    const struct scan_job *job = arg;
    const struct along *along = &job->along;
    for (; begin < end; begin++) {
        int64_t outer = begin / job->n_tiles, tile = begin % job->n_tiles * SCAN_TILE;
        int64_t at = outer * along->n * along->inner + tile, last = (along->n - 1) * along->inner;
        if (job->state->reverse)
            at += last;
        job->loop(job->in + at * job->size, job->out + at * job->size, along->n,
                  job->state->reverse ? -along->inner : along->inner,
                  MIN(along->inner - tile, SCAN_TILE), job->state->exclusive);
    }
}

static enum kernel_result scan_compute(struct kernel_ctx *ctx) {
    const struct scan_state *state = ctx->instance->state;
    const struct tensor *in = &ctx->inputs[0];
    struct shape shape = tensor_shape(in);
    enum dtype dtype = (enum dtype)in->dtype;
    int axis;
    KERNEL_TRY(ctx, read_axis(&ctx->inputs[1], shape.rank, "ScanOp: axis must be a scalar, not ",
                              "ScanOp: Expected scan axis", &axis));
    int64_t n = in->n_elements;
    bool is_narrow = dtype_is_narrow_float(dtype);
    scan_loop *const *loops = ctx->instance->def->arg;
    struct scan_job job = {
        .state = state, .loop = loops[is_narrow ? DT_FLOAT : dtype], .in = tensor_cdata(in)};
    if (n > 0)
        job.along = split_at(shape, axis);
    job.size = (int64_t)dtype_size(is_narrow ? DT_FLOAT : dtype);
    KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 0, dtype, shape));
    job.out = tensor_data(&ctx->outputs[0]);
    if (n == 0)
        return KERNEL_DONE;
    float *wide = NULL;
    if (is_narrow) {
        wide = malloc((size_t)n * sizeof(*wide));
        if (!wide)
            return kernel_fail(ctx,
                               status_exhausted("OOM when widening %lld elements", (long long)n));
        half_block_load(dtype, wide, (const uint16_t *)job.in, n);
        job.in = (const char *)wide;
        job.out = (char *)wide;
    }
    job.n_tiles = (job.along.inner + SCAN_TILE - 1) / SCAN_TILE;
    pool_parallel_for(ctx->pool, job.along.outer * job.n_tiles,
                      (double)job.along.n * (double)MIN(job.along.inner, SCAN_TILE), scan_range,
                      &job);
    if (is_narrow)
        half_block_store(dtype, tensor_data(&ctx->outputs[0]), wide, n);
    free(wide);
    return KERNEL_DONE;
}

#define ARG_TYPES (DTYPES_REAL | DTYPE_BIT(DT_BOOL))
#define INDEX_TYPES (DTYPE_BIT(DT_INT16) | DTYPES_INDEX)
static const struct kernel_def rows[] = {
    {"ArgMax",
     {{"T", ARG_TYPES},
      {"Tidx", INDEX_TYPES},
      {"output_type", DTYPES_INDEX | DTYPE_BIT(DT_INT16) | DTYPE_BIT(DT_UINT16)}},
     arg_compute,
     NULL,
     NULL,
     arg_max_loops,
     0,
     1},
    {"ArgMin",
     {{"T", ARG_TYPES}, {"Tidx", DTYPES_INDEX}, {"output_type", DTYPES_INDEX}},
     arg_compute,
     NULL,
     NULL,
     arg_min_loops,
     0,
     1},
    {"Cumsum",
     {{"T", DTYPES_NUMBER}, {"Tidx", DTYPES_INDEX}},
     scan_compute,
     scan_init,
     NULL,
     cumsum_loops,
     0,
     1},
    {"Cumprod",
     {{"T", DTYPES_NUMBER}, {"Tidx", DTYPES_INDEX}},
     scan_compute,
     scan_init,
     NULL,
     cumprod_loops,
     0,
     1},
    {"CumulativeLogsumexp",
     {{"T", DTYPES_REAL_FLOAT}, {"Tidx", DTYPES_INDEX}},
     scan_compute,
     scan_init,
     NULL,
     cumlogsumexp_loops,
     0,
     30},
};
const struct kernel_list math_scan_kernels = {rows, ARRAY_LEN(rows)};
