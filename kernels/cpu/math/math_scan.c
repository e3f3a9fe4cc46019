/* Works along one dimension: ArgMax, ArgMin, and running sums, products and log-sum-exps (Cumsum,
 * Cumprod, CumulativeLogsumexp).
 *
 * The input is treated as [outer, n, inner], where n is the dimension. */
#include "kernels/cpu/math/math_internal.h"

#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "kernels/support/half_blocks.h"
#include "kernels/support/lanes.h"
#include "kernels/support/reduction_checks.h"

enum { SCAN_TILE = 256 }; /* inner positions that are scanned together */

/* ---- ArgMax, ArgMin ---- */

/* The first position along n of the best element. A NaN is never better than another element. */
enum { ARG_LANES = 32, ARG_BLOCK = 4096, ARG_TILE = 64, SHORT_RUN = 128 };
struct arg_loops {
    void (*row)(const void *in, int64_t n, int64_t *place);
    /* at most ARG_TILE */
    void (*columns)(const void *in, int64_t n, int64_t stride, int64_t width, int64_t *places);
};
#define IS_BETTER(x, y) ((x) > (y))
#define OP(x) max_##x
#define FIRST T_MIN
#include "kernels/cpu/math/math_arg.inc"
#define IS_BETTER(x, y) ((x) < (y))
#define OP(x) min_##x
#define FIRST T_MAX
#include "kernels/cpu/math/math_arg.inc"
#define MAX_ENTRY(tag, T, W, DT, ...) [DT] = {max_row_##tag, max_columns_##tag},
#define MIN_ENTRY(tag, T, W, DT, ...) [DT] = {min_row_##tag, min_columns_##tag},
// clang-format off
static const struct arg_loops arg_max_loops[DT_N_TYPES] = {
    NUMBERS_INTS(MAX_ENTRY) NUMBERS_FLOATS(MAX_ENTRY) NUMBERS_BOOL(MAX_ENTRY)};
static const struct arg_loops arg_min_loops[DT_N_TYPES] = {
    NUMBERS_INTS(MIN_ENTRY) NUMBERS_FLOATS(MIN_ENTRY) NUMBERS_BOOL(MIN_ENTRY)};
// clang-format on

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

static enum kernel_result arg_compute(struct kernel_ctx *ctx) {
    const struct tensor *in = &ctx->inputs[0];
    struct shape shape = tensor_shape(in);
    int axis;
    KERNEL_TRY(ctx, arg_read_axis(ctx, &axis));
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
                          .along = along_axis(shape, axis),
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

/* Runs along n for a row of `width` neighbours. `step` is the distance between two elements along
 * n, negative in reverse. `out` may be `in`. */
typedef void scan_loop(const void *in, void *out, int64_t n, int64_t step, int64_t width,
                       bool exclusive);

/* log(e^a + e^x), computed from the larger of the two, so that nothing overflows. */
static inline double log_add_exp(double a, double x) {
    double high = a > x || a != a ? a : x, low = a > x || a != a ? x : a;
    return low == -INFINITY || high == INFINITY ? high + (low != low ? low : 0)
                                                : high + log1p(exp(low - high));
}

#define TEMPLATE "kernels/cpu/math/math_scan_loop.inc"
#define OP(x) cumsum_##x
#define A SUM
#define FIRST 0
#define STEP a + x
#include "kernels/support/for_real_types.inc"
#include "kernels/support/for_complex_types.inc"
#undef OP
#undef FIRST
#undef STEP
#define OP(x) cumprod_##x
#define FIRST 1
#define STEP a *x
#include "kernels/support/for_real_types.inc"
#include "kernels/support/for_complex_types.inc"
#undef OP
#undef FIRST
#undef STEP
#define OP(x) cumlogsumexp_##x
#define FIRST -INFINITY
#define STEP log_add_exp(a, x)
#include "kernels/support/for_float_types.inc"
#undef OP
#undef A
#undef FIRST
#undef STEP
#undef TEMPLATE
#define SCAN_ENTRY(tag, T, W, DT, op) [DT] = op##_scan_##tag,
#define SCAN_ENTRIES(op) \
    NUMBERS_INTS(SCAN_ENTRY, op) NUMBERS_FLOATS(SCAN_ENTRY, op) NUMBERS_COMPLEX(SCAN_ENTRY, op)
// clang-format off
static scan_loop *const cumsum_loops[DT_N_TYPES] = {SCAN_ENTRIES(cumsum)};
static scan_loop *const cumprod_loops[DT_N_TYPES] = {SCAN_ENTRIES(cumprod)};
static scan_loop *const cumlogsumexp_loops[DT_N_TYPES] = {NUMBERS_FLOATS(SCAN_ENTRY, cumlogsumexp)};
// clang-format on

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
    KERNEL_TRY(ctx, scan_read_axis(ctx, &axis));
    int64_t n = in->n_elements;
    bool is_narrow = dtype_is_narrow_float(dtype);
    scan_loop *const *loops = ctx->instance->def->arg;
    struct scan_job job = {
        .state = state, .loop = loops[is_narrow ? DT_FLOAT : dtype], .in = tensor_cdata(in)};
    if (n > 0)
        job.along = along_axis(shape, axis);
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
     .arg = arg_max_loops},
    {"ArgMin",
     {{"T", ARG_TYPES}, {"Tidx", DTYPES_INDEX}, {"output_type", DTYPES_INDEX}},
     arg_compute,
     .arg = arg_min_loops},
    {"Cumsum",
     {{"T", DTYPES_NUMBER}, {"Tidx", DTYPES_INDEX}},
     scan_compute,
     scan_init,
     .arg = cumsum_loops},
    {"Cumprod",
     {{"T", DTYPES_NUMBER}, {"Tidx", DTYPES_INDEX}},
     scan_compute,
     scan_init,
     .arg = cumprod_loops},
    {"CumulativeLogsumexp",
     {{"T", DTYPES_REAL_FLOAT}, {"Tidx", DTYPES_INDEX}},
     scan_compute,
     scan_init,
     .arg = cumlogsumexp_loops},
};
const struct kernel_list math_scan_kernels = {rows, ARRAY_LEN(rows)};
