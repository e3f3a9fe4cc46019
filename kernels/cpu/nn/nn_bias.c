/* Computes BiasAdd, its gradient, and L2Loss.
 *
 * A value of any rank is treated as outer × channels × inner: in NHWC inner is 1, in NCHW outer is
 * the batch. Sums are computed in double (integers wrap, as in TensorFlow) over shares. The shape
 * alone decides the borders of shares, so results do not depend on the number of threads. */
#include <complex.h>
#include <stdlib.h>

#include "kernels/cpu/nn/nn_blocks.h"
#include "kernels/cpu/nn/nn_internal.h"
#include "kernels/support/elementwise_checks.h"
#include "kernels/support/half_blocks.h"

struct bias_state {
    bool is_nchw;
};

struct status *nn_bias_init(struct kernel_init *init) {
    struct bias_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    return bias_read_format(init->node, &state->is_nchw);
}

static struct status *extent_of(const struct kernel_ctx *ctx, struct bias_extent *ret) {
    const struct bias_state *state = ctx->instance->state;
    return bias_extent_of(ctx, state->is_nchw, ret);
}

/* ---- BiasAdd ---- */

typedef void bias_loop(const void *x, const void *bias, void *y, int64_t n);

/* y[i] = x[i] + bias[i]; y may be x. */
#define ADD_ROW(s, T)                                                                            \
    VECTOR_CLONES static void add_row_##s(const void *xp, const void *bp, void *yp, int64_t n) { \
        const T *x = xp, *bias = bp;                                                             \
        T *y = yp;                                                                               \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = (T)(x[i] + bias[i]);         \
    }
/* y[i] = x[i] + bias[0]; y may be x. */
#define ADD_ONE(s, T)                                                                            \
    VECTOR_CLONES static void add_one_##s(const void *xp, const void *bp, void *yp, int64_t n) { \
        const T *x = xp, bias = *(const T *)bp;                                                  \
        T *y = yp;                                                                               \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = (T)(x[i] + bias);            \
    }
// clang-format off
#define FOR_SUMS(X) X(f32, float) X(f64, double) X(c64, float complex) X(c128, double complex) \
    X(u8, uint8_t) X(u16, uint16_t) X(u32, uint32_t) X(u64, uint64_t)
FOR_SUMS(ADD_ROW)
FOR_SUMS(ADD_ONE)

/* Signed integers wrap, so they use the unsigned loops. */
#define SUM_TYPES(f) [DT_FLOAT] = f##_f32, [DT_DOUBLE] = f##_f64, [DT_COMPLEX64] = f##_c64, \
    [DT_COMPLEX128] = f##_c128,                                                             \
    [DT_INT8] = f##_u8, [DT_UINT8] = f##_u8, [DT_INT16] = f##_u16, [DT_UINT16] = f##_u16,   \
        [DT_INT32] = f##_u32, [DT_UINT32] = f##_u32,                                        \
    [DT_INT64] = f##_u64, [DT_UINT64] = f##_u64
static bias_loop *const add_row[DT_N_TYPES] = {SUM_TYPES(add_row)};
static bias_loop *const add_one[DT_N_TYPES] = {SUM_TYPES(add_one)};
// clang-format on

enum { CHANNEL_TILE = 512 };

struct bias_job {
    enum dtype dtype;
    size_t size;
    struct bias_extent extent;
    const char *x, *bias;
    char *y;
    double *partial; /* of BiasAddGrad and L2Loss */
    /* shares of the outer dimension; tiles of the channels, 1 where shares have whole rows */
    int64_t n_shares, n_tiles;
};

static void add_narrow(enum dtype dtype, const uint16_t *x, const uint16_t *bias, bool one,
                       uint16_t *y, int64_t n) {
    float a[HALF_BLOCK], b[HALF_BLOCK];
    if (one)
        b[0] = half_value_load(dtype, *bias);
    for (int64_t i = 0; i < n; i += HALF_BLOCK) {
        int64_t m = MIN(n - i, (int64_t)HALF_BLOCK);
        half_block_load(dtype, a, x + i, m);
        if (!one)
            half_block_load(dtype, b, bias + i, m);
        (one ? add_one_f32 : add_row_f32)(a, b, a, m);
        half_block_store(dtype, y + i, a, m);
    }
}

static void add_run(const struct bias_job *job, size_t at, const char *bias, bool one, int64_t n) {
    if (dtype_is_narrow_float(job->dtype))
        add_narrow(job->dtype, (const void *)(job->x + at), (const void *)bias, one,
                   (void *)(job->y + at), n);
    else
        (one ? add_one : add_row)[job->dtype](job->x + at, bias, job->y + at, n);
}

/* NHWC: adds to rows [begin, end). Where channels are few, several rows are added at a time, with a
 * bias that is repeated as often. */
static void add_rows(void *arg, int64_t begin, int64_t end) {
    const struct bias_job *job = arg;
    enum { REPEAT_BYTES = 1024 };
    char repeated[REPEAT_BYTES] __attribute__((aligned(16)));
    int64_t channels = job->extent.channels;
    size_t row_bytes = (size_t)channels * job->size;
    const char *bias = job->bias;
    int64_t step = 1;
    if (row_bytes <= REPEAT_BYTES / 4 && end - begin > 4) {
        step = (int64_t)(REPEAT_BYTES / row_bytes);
        for (int64_t i = 0; i < step; i++)
            memcpy(repeated + (size_t)i * row_bytes, job->bias, row_bytes);
        bias = repeated;
    }
    for (int64_t row = begin; row < end; row += step)
        add_run(job, (size_t)row * row_bytes, bias, false, MIN(step, end - row) * channels);
}

/* NCHW: adds to planes [begin, end) of outer × channels. */
static void add_planes(void *arg, int64_t begin, int64_t end) {
    const struct bias_job *job = arg;
    for (int64_t plane = begin; plane < end; plane++)
        add_run(job, (size_t)(plane * job->extent.inner) * job->size,
                job->bias + (size_t)(plane % job->extent.channels) * job->size, true,
                job->extent.inner);
}

/* BiasAdd, BiasAddV1: output = value + bias, along the channels.
 *   value   T [outer…, channels] (NCHW: [batch, channels, …])     bias  T [channels]
 * Errors    INVALID_ARGUMENT   value of rank below 2, bias not of rank 1 or of another length */
enum kernel_result nn_bias_add(struct kernel_ctx *ctx) {
    const struct tensor *value = kernel_input(ctx, 0), *bias = kernel_input(ctx, 1);
    struct bias_job job = {.dtype = (enum dtype)value->dtype,
                           .size = dtype_size((enum dtype)value->dtype)};
    KERNEL_TRY(ctx, extent_of(ctx, &job.extent));
    const struct bias_state *state = ctx->instance->state;
    KERNEL_TRY(ctx, bias_check(ctx, state->is_nchw, &job.extent));
    job.x = tensor_cdata(value);
    job.bias = tensor_cdata(bias);
    bool is_empty = value->n_elements == 0;
    KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 0, job.dtype, tensor_shape(value)));
    if (is_empty)
        return KERNEL_DONE;
    job.y = tensor_data(&ctx->outputs[0]);
    double cost_ns = dtype_is_narrow_float(job.dtype) ? 1 : (double)job.size * 0.1;
    const struct bias_extent *e = &job.extent;
    if (e->inner == 1)
        pool_parallel_for(ctx->pool, e->outer, (double)e->channels * cost_ns, add_rows, &job);
    else
        pool_parallel_for(ctx->pool, e->outer * e->channels, (double)e->inner * cost_ns + 2,
                          add_planes, &job);
    return KERNEL_DONE;
}

static unsigned bias_block(const struct kernel_instance *instance, const void *const *operands,
                           unsigned ones, void *out, int64_t n) {
    enum dtype dtype = (enum dtype)instance->in_types[0];
    struct bias_job job = {.dtype = dtype, .size = dtype_size(dtype), .x = operands[0], .y = out};
    add_run(&job, 0, operands[1], ones & 2, n);
    return 0;
}

static enum block_shapes bias_shapes(const struct kernel_instance *instance) {
    const struct bias_state *state = instance->state;
    return state->is_nchw ? BLOCK_NEVER : BLOCK_BIAS;
}

const struct block_engine nn_bias_engine = {nn_bias_add, bias_block, BLOCK_BIAS, bias_shapes, NULL};

/* ---- sums ---- */

/* The sums of a share have the accumulator's type: double, double complex, uint64_t. Accumulators
 * are 16 bytes apart so that one array serves all types. `stride` is the distance between the
 * accumulators of two neighbouring elements: 1 when a row is added to the channels, 0 when a plane
 * is added to one channel. Eight rows are added for each load and store of the sums. */
#define SUM_ROWS(s, T, A)                                                                         \
    VECTOR_CLONES static void sum_rows_##s(A *restrict sums, const T *restrict x, int64_t n_rows, \
                                           int64_t stride, int64_t n) {                           \
        for (; n_rows >= 8; n_rows -= 8, x += 8 * stride)                                         \
            for (int64_t i = 0; i < n; i++) {                                                     \
                A one = ((A)x[i] + x[i + stride]) + ((A)x[i + 2 * stride] + x[i + 3 * stride]);   \
                A two = ((A)x[i + 4 * stride] + x[i + 5 * stride]) +                              \
                        ((A)x[i + 6 * stride] + x[i + 7 * stride]);                               \
                sums[i] += one + two;                                                             \
            }                                                                                     \
        for (; n_rows > 0; n_rows--, x += stride)                                                 \
            for (int64_t i = 0; i < n; i++)                                                       \
                sums[i] += x[i];                                                                  \
    }
#define SUM_PLANE(s, T, A)                                        \
    VECTOR_CLONES static A sum_plane_##s(const T *x, int64_t n) { \
        A lanes[8] = {0};                                         \
        int64_t i = 0;                                            \
        for (; i + 8 <= n; i += 8)                                \
            for (int lane = 0; lane < 8; lane++)                  \
                lanes[lane] += x[i + lane];                       \
        for (; i < n; i++)                                        \
            lanes[i & 7] += x[i];                                 \
        for (int lane = 1; lane < 8; lane++)                      \
            lanes[0] += lanes[lane];                              \
        return lanes[0];                                          \
    }
// clang-format off
#define FOR_GRAD_SUMS(X)                                                               \
    X(f32, float, double) X(f64, double, double) X(c64, float complex, double complex) \
    X(c128, double complex, double complex)                                            \
    X(u8, uint8_t, uint64_t)                                                           \
    X(u16, uint16_t, uint64_t) X(u32, uint32_t, uint64_t) X(u64, uint64_t, uint64_t)
// clang-format on
FOR_GRAD_SUMS(SUM_ROWS)
FOR_GRAD_SUMS(SUM_PLANE)

static void narrow_row(enum dtype dtype, double *sums, const uint16_t *x, int64_t n) {
    float block[HALF_BLOCK];
    for (int64_t i = 0; i < n; i += HALF_BLOCK) {
        int64_t m = MIN(n - i, (int64_t)HALF_BLOCK);
        half_block_load(dtype, block, x + i, m);
        sum_rows_f32(sums + i, block, 1, 0, m);
    }
}
static double narrow_plane(enum dtype dtype, const uint16_t *x, int64_t n) {
    float block[HALF_BLOCK];
    double sum = 0;
    for (int64_t i = 0; i < n; i += HALF_BLOCK) {
        int64_t m = MIN(n - i, (int64_t)HALF_BLOCK);
        half_block_load(dtype, block, x + i, m);
        sum += sum_plane_f32(block, m);
    }
    return sum;
}

/* Adds n_rows rows of n elements, `stride` apart, to n accumulators. */
static void sum_rows(enum dtype dtype, void *sums, const void *x, int64_t n_rows, int64_t stride,
                     int64_t n) {
    switch (dtype) {
    case DT_HALF:
    case DT_BFLOAT16:
        for (int64_t r = 0; r < n_rows; r++)
            narrow_row(dtype, sums, (const uint16_t *)x + r * stride, n);
        break;
    case DT_FLOAT:
        sum_rows_f32(sums, x, n_rows, stride, n);
        break;
    case DT_DOUBLE:
        sum_rows_f64(sums, x, n_rows, stride, n);
        break;
    case DT_COMPLEX64:
        sum_rows_c64(sums, x, n_rows, stride, n);
        break;
    case DT_COMPLEX128:
        sum_rows_c128(sums, x, n_rows, stride, n);
        break;
    case DT_INT8:
    case DT_UINT8:
        sum_rows_u8(sums, x, n_rows, stride, n);
        break;
    case DT_INT16:
    case DT_UINT16:
        sum_rows_u16(sums, x, n_rows, stride, n);
        break;
    case DT_INT32:
    case DT_UINT32:
        sum_rows_u32(sums, x, n_rows, stride, n);
        break;
    default:
        sum_rows_u64(sums, x, n_rows, stride, n);
    }
}
/* Adds n elements at x to one accumulator. */
static void sum_plane(enum dtype dtype, void *sum, const void *x, int64_t n) {
    switch (dtype) {
    case DT_HALF:
    case DT_BFLOAT16:
        *(double *)sum += narrow_plane(dtype, x, n);
        break;
    case DT_FLOAT:
        *(double *)sum += sum_plane_f32(x, n);
        break;
    case DT_DOUBLE:
        *(double *)sum += sum_plane_f64(x, n);
        break;
    case DT_COMPLEX64:
        *(double complex *)sum += sum_plane_c64(x, n);
        break;
    case DT_COMPLEX128:
        *(double complex *)sum += sum_plane_c128(x, n);
        break;
    case DT_INT8:
    case DT_UINT8:
        *(uint64_t *)sum += sum_plane_u8(x, n);
        break;
    case DT_INT16:
    case DT_UINT16:
        *(uint64_t *)sum += sum_plane_u16(x, n);
        break;
    case DT_INT32:
    case DT_UINT32:
        *(uint64_t *)sum += sum_plane_u32(x, n);
        break;
    default:
        *(uint64_t *)sum += sum_plane_u64(x, n);
    }
}

static size_t sum_size(enum dtype dtype) {
    return dtype_in(dtype, DTYPES_COMPLEX) ? sizeof(double complex) : sizeof(double);
}

static void sum_add(enum dtype dtype, void *to, const void *from, int64_t n) {
    if (dtype_in(dtype, DTYPES_REAL_FLOAT))
        sum_rows_f64(to, from, 1, 0, n);
    else if (dtype_in(dtype, DTYPES_COMPLEX))
        sum_rows_c128(to, from, 1, 0, n);
    else
        sum_rows_u64(to, from, 1, 0, n);
}

static void sum_store(enum dtype dtype, void *to, const void *sums, int64_t n) {
    const double *real = sums;
    const uint64_t *integer = sums;
    for (int64_t i = 0; i < n; i++) {
        switch (dtype) {
        case DT_HALF:
        case DT_BFLOAT16:
            ((uint16_t *)to)[i] = half_value_store(dtype, (float)real[i]);
            break;
        case DT_FLOAT:
            ((float *)to)[i] = (float)real[i];
            break;
        case DT_COMPLEX64:
            ((float complex *)to)[i] = (float complex)((const double complex *)sums)[i];
            break;
        case DT_DOUBLE:
            ((double *)to)[i] = real[i];
            break;
        case DT_COMPLEX128:
            ((double complex *)to)[i] = ((const double complex *)sums)[i];
            break;
        default: /* the low bytes, which x86 stores first */
            memcpy((char *)to + (size_t)i * dtype_size(dtype), &integer[i], dtype_size(dtype));
        }
    }
}

/* NHWC: units are tiles of channels, whose sums stay in the first-level cache, times shares of the
 * rows. */
static void bias_grad_tiles(void *arg, int64_t begin, int64_t end) {
    const struct bias_job *job = arg;
    const struct bias_extent *e = &job->extent;
    size_t sum_bytes = sum_size(job->dtype);
    for (; begin < end; begin++) {
        int64_t share = begin / job->n_tiles, c = begin % job->n_tiles * CHANNEL_TILE;
        int64_t first = e->outer * share / job->n_shares,
                last = e->outer * (share + 1) / job->n_shares;
        char *sums = (char *)job->partial + (size_t)(share * e->channels + c) * sum_bytes;
        sum_rows(job->dtype, sums, job->x + (size_t)(first * e->channels + c) * job->size,
                 last - first, e->channels, MIN(CHANNEL_TILE, e->channels - c));
    }
}

/* NCHW: units are shares of the outer dimension. */
static void bias_grad_planes(void *arg, int64_t begin, int64_t end) {
    const struct bias_job *job = arg;
    const struct bias_extent *e = &job->extent;
    size_t sum_bytes = sum_size(job->dtype);
    for (int64_t share = begin; share < end; share++) {
        char *sums = (char *)job->partial + (size_t)(share * e->channels) * sum_bytes;
        int64_t first = e->outer * share / job->n_shares,
                last = e->outer * (share + 1) / job->n_shares;
        for (int64_t plane = first * e->channels; plane < last * e->channels; plane++)
            sum_plane(job->dtype, sums + (size_t)(plane % e->channels) * sum_bytes,
                      job->x + (size_t)(plane * e->inner) * job->size, e->inner);
    }
}

/* The number of shares: each has enough work, and their accumulators stay small compared with the
 * input. */
static int64_t n_shares_of(int64_t outer, int64_t n_tiles, int64_t n_elements) {
    int64_t by_work = n_elements / n_tiles / 32768 + 1;
    return MAX(1, MIN(MIN(by_work, outer / 4), 16));
}

/* BiasAddGrad: output[c] = sum of out_backprop over all but the channels.
 * Errors   INVALID_ARGUMENT rank below 2; RESOURCE_EXHAUSTED */
enum kernel_result nn_bias_add_grad(struct kernel_ctx *ctx) {
    const struct tensor *value = kernel_input(ctx, 0);
    struct bias_job job = {.dtype = (enum dtype)value->dtype,
                           .size = dtype_size((enum dtype)value->dtype),
                           .x = tensor_cdata(value)};
    KERNEL_TRY(ctx, extent_of(ctx, &job.extent));
    int64_t channels = job.extent.channels;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, job.dtype, (struct shape){1, &channels}));
    if (channels == 0)
        return KERNEL_DONE;
    job.n_tiles = job.extent.inner == 1 ? (channels + CHANNEL_TILE - 1) / CHANNEL_TILE : 1;
    job.n_shares = n_shares_of(job.extent.outer, job.n_tiles, value->n_elements);
    size_t row_bytes = (size_t)channels * sum_size(job.dtype);
    job.partial = calloc((size_t)job.n_shares, row_bytes);
    if (!job.partial)
        return kernel_fail(ctx, status_exhausted("no memory for %lld sums of BiasAddGrad",
                                                 (long long)(job.n_shares * channels)));
    if (value->n_elements > 0)
        pool_parallel_for(ctx->pool, job.n_shares * job.n_tiles,
                          (double)(value->n_elements / (job.n_shares * job.n_tiles)) * 0.2,
                          job.extent.inner == 1 ? bias_grad_tiles : bias_grad_planes, &job);
    for (int64_t share = 1; share < job.n_shares; share++)
        sum_add(job.dtype, job.partial, (char *)job.partial + (size_t)share * row_bytes, channels);
    sum_store(job.dtype, tensor_data(&ctx->outputs[0]), job.partial, channels);
    free(job.partial);
    return KERNEL_DONE;
}

/* ---- L2Loss ---- */

#define SUM_SQUARES(s, T)                                                   \
    VECTOR_CLONES static double sum_squares_##s(const T *x, int64_t n) {    \
        enum { N_LANES = 32 }; /* so that no addition waits for the last */ \
        double lanes[N_LANES] = {0};                                        \
        int64_t i = 0;                                                      \
        for (; i + N_LANES <= n; i += N_LANES)                              \
            for (int lane = 0; lane < N_LANES; lane++)                      \
                lanes[lane] += (double)x[i + lane] * (double)x[i + lane];   \
        for (; i < n; i++)                                                  \
            lanes[i % N_LANES] += (double)x[i] * (double)x[i];              \
        for (int half = N_LANES / 2; half > 0; half /= 2)                   \
            for (int lane = 0; lane < half; lane++)                         \
                lanes[lane] += lanes[lane + half];                          \
        return lanes[0];                                                    \
    }
SUM_SQUARES(f32, float)
SUM_SQUARES(f64, double)

enum { L2_SHARE = 65536 };

static void l2_shares(void *arg, int64_t begin, int64_t end) {
    const struct bias_job *job = arg;
    int64_t n = job->extent.outer;
    for (int64_t share = begin; share < end; share++) {
        int64_t first = share * L2_SHARE, m = MIN(n - first, (int64_t)L2_SHARE);
        const char *x = job->x + (size_t)first * job->size;
        double sum = 0;
        if (job->dtype == DT_FLOAT)
            sum = sum_squares_f32((const void *)x, m);
        else if (job->dtype == DT_DOUBLE)
            sum = sum_squares_f64((const void *)x, m);
        for (int64_t i = 0; dtype_is_narrow_float(job->dtype) && i < m; i += HALF_BLOCK) {
            float block[HALF_BLOCK];
            int64_t k = MIN(m - i, (int64_t)HALF_BLOCK);
            half_block_load(job->dtype, block, (const uint16_t *)(const void *)x + i, k);
            sum += sum_squares_f32(block, k);
        }
        job->partial[share] = sum;
    }
}

/* L2Loss: half the sum of the squares of t, a scalar. */
enum kernel_result nn_l2_loss(struct kernel_ctx *ctx) {
    const struct tensor *t = kernel_input(ctx, 0);
    double one_share = 0;
    struct bias_job job = {.dtype = (enum dtype)t->dtype,
                           .size = dtype_size((enum dtype)t->dtype),
                           .extent = {t->n_elements, 1, 1},
                           .x = tensor_cdata(t),
                           .partial = &one_share,
                           .n_shares = (t->n_elements + L2_SHARE - 1) / L2_SHARE};
    if (job.n_shares > 1) /* takes an eighth of a percent of the input's memory at most */
        job.partial = xcalloc((size_t)job.n_shares, sizeof(double));
    pool_parallel_for(ctx->pool, job.n_shares, L2_SHARE * 0.3, l2_shares, &job);
    double sum[2] = {0}; /* large enough for any accumulator */
    for (int64_t share = 0; share < job.n_shares; share++)
        sum[0] += job.partial[share];
    if (job.partial != &one_share)
        free(job.partial);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, job.dtype, SHAPE_SCALAR));
    sum[0] /= 2;
    sum_store(job.dtype, tensor_data(&ctx->outputs[0]), sum, 1);
    return KERNEL_DONE;
}
