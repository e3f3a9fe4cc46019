/* Computes convolutions of floats with windows of 3 x 3 and 5 x 5 by tiles, with fewer
 * multiplications than their sums have: a quarter for 3 x 3, 36 of 100 for 5 x 5.
 *
 *   image    6 x 6 pixels, which overlap ── Bᵀ d B ─┐
 *   filter   w ──────────────────────────── G w Gᵀ ─┴─ 36 products [tiles, c] · [c, o] ─ Aᵀ t A ─►
 *            4 x 4 pixels of the result (2 x 2 for windows of 5 x 5)
 *
 *   forward          as above
 *   input gradient   the same of the incoming gradient, with the filter mirrored
 *   filter gradient  Gᵀ ( Σ over tiles of (Bᵀ d B) · (A g Aᵀ) ) G, where g is the incoming gradient
 *
 * Sources: Winograd, Arithmetic Complexity of Computations, 1980; Lavin and Gray, Fast Algorithms
 * for Convolutional Neural Networks, 2015. conv_winograd_loops.inc has the matrices. With their
 * points, and filters that are cut as double, the greatest error is less than four times that of
 * sums in order (tests/unit/kernels/test_conv_winograd.c measures both).
 *
 * A value that is not finite, or one that overflows, would spread over a tile. So results are
 * checked, and the convolution is computed by other means where one is not finite.
 *
 * Work is split by rows of tiles of all images. The gradient of a filter is summed share by share,
 * in order. The shape alone decides how. */
#include "kernels/cpu/nn/conv_winograd.h"

#include "common/base/pool_cancel.h"
#include "kernels/cpu/nn/conv_internal.h"
#include "kernels/support/isa.h"
#include "kernels/support/scratch.h"

enum {
    MAX_CHANNELS = 256, /* with more, the filter's planes do not stay in a cache */
    MAX_FILTER_SHARES = 16,
    LEAST_SHARE_TILES = 256,
    CHUNK_BYTES = 256 << 10, /* of the values of a chunk: they stay in a second-level cache */
    LEAST_CHUNK = 16,        /* tiles */
    LEAST_TILES = 64,
    GAP = WINOGRAD_CHANNELS,  /* between planes, which else share sets of the cache */
    MAX_SUM_BYTES = 64 << 20, /* of a filter's gradients, by share */
};
static const double LEAST_MULTIPLICATIONS = 4e6;

struct winograd_job {
    const struct kernel_ctx *ctx;
    const struct winograd_loops *loops;
    struct conv_shape shape; /* of the forward convolution whose tiles these are */
    const float *in;         /* what is cut into tiles of 6 x 6 */
    const float *gradient;   /* filter gradient: what is spread */
    const float *filter;     /* planes of the cut filter */
    float *result, *sums;    /* filter gradient: planes, share by share */
    int side;                /* pixels of a tile's side in the result */
    int64_t tiles_wide, tiles_high;
    int64_t n_rows;      /* rows of tiles, of all images */
    int64_t rows, chunk; /* rows of a unit or share, and tiles that are computed together */
    int64_t in_plane, out_plane, filter_plane; /* floats */
    bool has_infinity, hands_over;
    struct status *failure; /* the first failure */
};

static const float zeros[MAX_CHANNELS];

static const struct winograd_loops *find_loops(void) {
#if HAS_AVX2_FILES
    if (cpu_has_avx512())
        return &winograd_loops_avx512;
    if (cpu_has_avx2())
        return &winograd_loops_avx2;
#endif
    return NULL;
}

static void job_fail(struct winograd_job *job, struct status *st_take) {
    struct status *none = NULL;
    if (st_take && !__atomic_compare_exchange_n(&job->failure, &none, st_take, false,
                                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        status_unref(st_take);
}

/* ---- tiles ---- */

/* The image, and the first row and column of the result, of a tile. */
struct place {
    int64_t image, y, x;
};

static struct place place_of(const struct winograd_job *job, int64_t tile) {
    int64_t row = tile / job->tiles_wide;
    return (struct place){row / job->tiles_high, row % job->tiles_high * job->side,
                          tile % job->tiles_wide * job->side};
}

/* Finds the addresses of side x side pixels, the first of which may be outside. */
static void find_pixels(const float *image, const int64_t size[3], int64_t channels, int64_t y,
                        int64_t x, int side, const float *outside, const float **ret) {
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            bool is_inside = y + i >= 0 && y + i < size[1] && x + j >= 0 && x + j < size[2];
            *ret++ = is_inside ? image + ((y + i) * size[2] + x + j) * channels : outside;
        }
}

static void cut_tile(const struct winograd_job *job, int64_t tile, float *to) {
    const struct conv_shape *s = &job->shape;
    const float *pixels[WINOGRAD_PLANES];
    struct place p = place_of(job, tile);
    find_pixels(job->in + p.image * s->in[1] * s->in[2] * s->in_channels, s->in, s->in_channels,
                p.y - s->pad_before[1], p.x - s->pad_before[2], WINOGRAD_SIDE, zeros, pixels);
    job->loops->cut(pixels, s->in_channels, to, job->in_plane);
}

static void find_out(const struct winograd_job *job, const float *out, int64_t tile,
                     const float *outside, const float **ret) {
    const struct conv_shape *s = &job->shape;
    struct place p = place_of(job, tile);
    find_pixels(out + p.image * s->out[1] * s->out[2] * s->out_channels, s->out, s->out_channels,
                p.y, p.x, job->side, outside, ret);
}

/* ---- the result ---- */

static void note_infinity(struct winograd_job *job, bool is_finite) {
    if (!is_finite)
        __atomic_store_n(&job->has_infinity, true, __ATOMIC_RELAXED);
}

static void run_chunk(struct winograd_job *job, int64_t first, int64_t n, float *in, float *out) {
    const struct conv_shape *s = &job->shape;
    bool is_finite = true;
    for (int64_t i = 0; i < n; i++)
        cut_tile(job, first + i, in + i * s->in_channels);
    for (int p = 0; p < WINOGRAD_PLANES; p++)
        job->loops->multiply(&(struct winograd_product){.a = in + p * job->in_plane,
                                                        .b = job->filter + p * job->filter_plane,
                                                        .c = out + p * job->out_plane,
                                                        .a_row = s->in_channels,
                                                        .a_step = 1,
                                                        .b_step = s->out_channels,
                                                        .c_row = s->out_channels,
                                                        .m = n,
                                                        .n = s->out_channels,
                                                        .k = s->in_channels});
    for (int64_t i = 0; i < n; i++) {
        const float *pixels[WINOGRAD_MAX_OUT * WINOGRAD_MAX_OUT];
        find_out(job, job->result, first + i, NULL, pixels);
        is_finite &= job->loops->join(out + i * s->out_channels, job->out_plane, job->side,
                                      s->out_channels, (float *const *)(uintptr_t)pixels);
    }
    note_infinity(job, is_finite);
}

/* Elements of the result before a row of tiles. */
static int64_t elements_before(const struct winograd_job *job, int64_t row) {
    const struct conv_shape *s = &job->shape;
    return (row / job->tiles_high * s->out[1] + row % job->tiles_high * job->side) * s->out[2] *
           s->out_channels;
}

static struct status *planes_new(const struct winograd_job *job, struct tensor *ret_scratch,
                                 float **ret_in, float **ret_out) {
    TRY(scratch_new(job->ctx, DT_FLOAT, WINOGRAD_PLANES, job->in_plane + job->out_plane,
                    ret_scratch, ret_in));
    *ret_out = *ret_in + WINOGRAD_PLANES * job->in_plane;
    return NULL;
}

/* Units are rows of tiles. */
static void result_range(void *arg, int64_t begin, int64_t end) {
    struct winograd_job *job = arg;
    struct tensor scratch = TENSOR_INIT;
    float *in, *out;
    struct status *st = planes_new(job, &scratch, &in, &out);
    job_fail(job, st);
    for (; !st && begin < end && !pool_is_unwanted(); begin++) {
        int64_t row = begin * job->rows, last = MIN(row + job->rows, job->n_rows);
        for (int64_t tile = row * job->tiles_wide; tile < last * job->tiles_wide;
             tile += job->chunk)
            run_chunk(job, tile, MIN(job->chunk, last * job->tiles_wide - tile), in, out);
        if (job->hands_over)
            kernel_hand_over(job->ctx, elements_before(job, row), elements_before(job, last));
    }
    tensor_clear(&scratch);
}

/* ---- the filter's gradient ---- */

static void add_chunk(struct winograd_job *job, int64_t first, int64_t n, float *in, float *out,
                      float *sums, bool adds) {
    const struct conv_shape *s = &job->shape;
    for (int64_t i = 0; i < n; i++) {
        const float *pixels[WINOGRAD_MAX_OUT * WINOGRAD_MAX_OUT];
        cut_tile(job, first + i, in + i * s->in_channels);
        find_out(job, job->gradient, first + i, zeros, pixels);
        job->loops->spread(pixels, job->side, s->out_channels, out + i * s->out_channels,
                           job->out_plane);
    }
    for (int p = 0; p < WINOGRAD_PLANES; p++)
        job->loops->multiply(&(struct winograd_product){.a = in + p * job->in_plane,
                                                        .b = out + p * job->out_plane,
                                                        .c = sums + p * job->filter_plane,
                                                        .a_row = 1,
                                                        .a_step = s->in_channels,
                                                        .b_step = s->out_channels,
                                                        .c_row = s->out_channels,
                                                        .m = s->in_channels,
                                                        .n = s->out_channels,
                                                        .k = n,
                                                        .adds = adds});
}

static void shares_range(void *arg, int64_t begin, int64_t end) {
    struct winograd_job *job = arg;
    struct tensor scratch = TENSOR_INIT;
    float *in, *out;
    struct status *st = planes_new(job, &scratch, &in, &out);
    job_fail(job, st);
    for (; !st && begin < end; begin++) {
        float *sums = job->sums + begin * WINOGRAD_PLANES * job->filter_plane;
        int64_t first = begin * job->rows * job->tiles_wide,
                last = MIN((begin + 1) * job->rows, job->n_rows) * job->tiles_wide;
        for (int64_t tile = first; tile < last && !pool_is_unwanted(); tile += job->chunk)
            add_chunk(job, tile, MIN(job->chunk, last - tile), in, out, sums, tile > first);
    }
    tensor_clear(&scratch);
}

VECTOR_CLONES
static void add_floats(float *to, const float *from, int64_t n) {
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

/* Units are planes. */
static void sum_range(void *arg, int64_t begin, int64_t end) {
    const struct winograd_job *job = arg;
    int64_t n_shares = (job->n_rows + job->rows - 1) / job->rows, n = job->filter_plane;
    for (int64_t i = 1; i < n_shares; i++)
        add_floats(job->sums + begin * n, job->sums + (i * WINOGRAD_PLANES + begin) * n,
                   (end - begin) * n);
}

/* ---- the whole convolution ---- */

static double cost_of_tiles(const struct winograd_job *job, int64_t n) {
    const struct conv_shape *s = &job->shape;
    double channels = (double)(s->in_channels + s->out_channels),
           products = (double)s->in_channels * (double)s->out_channels;
    return (double)n * (products * 0.8 + channels * 4);
}

static struct status *run_result(struct winograd_job *job, const float *filter) {
    const struct conv_shape *s = &job->shape;
    struct tensor scratch = TENSOR_INIT;
    float *cut;
    int64_t n = s->in_channels * s->out_channels,
            n_units = (job->n_rows + job->rows - 1) / job->rows;
    TRY(scratch_new(job->ctx, DT_FLOAT, WINOGRAD_PLANES, job->filter_plane, &scratch, &cut));
    job->loops->cut_filter(filter, (int)s->window[1], n, cut, job->filter_plane);
    job->filter = cut;
    pool_parallel_for(job->ctx->pool, n_units, cost_of_tiles(job, job->rows * job->tiles_wide),
                      result_range, job);
    tensor_clear(&scratch);
    return job->failure;
}

static struct status *run_filter(struct winograd_job *job, float *filter) {
    const struct conv_shape *s = &job->shape;
    struct tensor scratch = TENSOR_INIT;
    int64_t n_shares = (job->n_rows + job->rows - 1) / job->rows;
    TRY(scratch_new(job->ctx, DT_FLOAT, n_shares * WINOGRAD_PLANES, job->filter_plane, &scratch,
                    &job->sums));
    pool_parallel_for(job->ctx->pool, n_shares, cost_of_tiles(job, job->rows * job->tiles_wide),
                      shares_range, job);
    if (!job->failure && !pool_is_unwanted()) {
        pool_parallel_for(job->ctx->pool, WINOGRAD_PLANES,
                          (double)(n_shares * job->filter_plane) * 0.1, sum_range, job);
        note_infinity(job, job->loops->join_filter(job->sums, job->filter_plane, (int)s->window[1],
                                                   s->in_channels * s->out_channels, filter));
    }
    tensor_clear(&scratch);
    return job->failure;
}

static struct status *run_backprop_input(struct winograd_job *job, const struct conv_operands *o,
                                         const struct conv_shape *original) {
    struct tensor scratch = TENSOR_INIT;
    float *mirrored;
    TRY(conv_mirrored(job->ctx, original, o->filter, &scratch, &mirrored));
    struct status *st = run_result(job, mirrored);
    tensor_clear(&scratch);
    return st;
}

/* ---- which convolutions ---- */

static int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

static bool has_suitable_window(const struct conv_shape *s) {
    return (s->window[1] == 3 || s->window[1] == 5) && s->window[2] == s->window[1] &&
           s->window[0] == 1 && s->in[0] == 1 && s->out[0] == 1;
}

static bool has_suitable_channels(const struct conv_shape *s) {
    return s->groups == 1 && s->in_channels % WINOGRAD_CHANNELS == 0 &&
           s->out_channels % WINOGRAD_CHANNELS == 0 && s->in_channels <= MAX_CHANNELS &&
           s->out_channels <= MAX_CHANNELS;
}

static int side_of(const struct conv_shape *s) { return s->window[1] == 3 ? 4 : 2; }

/* Tiles reach beyond the result. Are the multiplications at most half of those of the sums, and are
 * there so many tiles that the filter's part does not matter? */
static bool saves_multiplications(const struct conv_shape *s) {
    int64_t side = side_of(s), n_tiles = divide_up(s->out[1], side) * divide_up(s->out[2], side);
    return 2 * n_tiles * WINOGRAD_PLANES <= s->out[1] * s->out[2] * s->window[1] * s->window[2] &&
           n_tiles * s->batch >= LEAST_TILES;
}

static bool suits(enum conv_direction direction, const struct conv_shape *s) {
    if (!has_suitable_window(s) || !has_suitable_channels(s) ||
        conv_n_multiplications(s) < LEAST_MULTIPLICATIONS)
        return false;
    for (int i = 1; i < 3; i++)
        if (s->stride[i] != 1 || s->rate[i] != 1 ||
            (direction == CONV_BACKPROP_INPUT && s->pad_before[i] >= s->window[i]))
            return false;
    if (direction != CONV_BACKPROP_INPUT)
        return saves_multiplications(s);
    struct conv_shape exchanged = conv_exchanged(s);
    return saves_multiplications(&exchanged);
}

static void plan(struct winograd_job *job, enum conv_direction direction) {
    const struct conv_shape *s = &job->shape;
    job->side = side_of(s);
    job->tiles_high = divide_up(s->out[1], job->side);
    job->tiles_wide = divide_up(s->out[2], job->side);
    job->n_rows = s->batch * job->tiles_high;
    int64_t tile_bytes = WINOGRAD_PLANES * (s->in_channels + s->out_channels) * 4;
    job->chunk = MAX(CHUNK_BYTES / tile_bytes / 8 * 8, (int64_t)LEAST_CHUNK);
    job->filter_plane = s->in_channels * s->out_channels + GAP;
    if (direction == CONV_BACKPROP_FILTER) {
        int64_t most =
                    MIN((int64_t)MAX_FILTER_SHARES,
                        MAX(MAX_SUM_BYTES / (job->filter_plane * WINOGRAD_PLANES * 4), (int64_t)1)),
                shares =
                    MIN(MAX(job->n_rows * job->tiles_wide / LEAST_SHARE_TILES, (int64_t)1), most);
        job->rows = divide_up(job->n_rows, shares);
    } else {
        job->rows = MIN(MAX(job->chunk / job->tiles_wide, (int64_t)1), job->n_rows);
        job->chunk = MIN(job->chunk, job->rows * job->tiles_wide);
    }
    job->in_plane = job->chunk * s->in_channels + GAP;
    job->out_plane = job->chunk * s->out_channels + GAP;
}

struct status *conv_by_winograd(const struct kernel_ctx *ctx, enum conv_direction direction,
                                const struct conv_shape *shape,
                                const struct conv_operands *operands, bool *ret_done) {
    *ret_done = false;
    const struct winograd_loops *loops = find_loops();
    if (!loops || !suits(direction, shape))
        return NULL;
    struct winograd_job job = {.ctx = ctx,
                               .loops = loops,
                               .shape = *shape,
                               .in = operands->in,
                               .result = operands->result,
                               .hands_over = operands->hands_over};
    if (direction == CONV_BACKPROP_INPUT) {
        job.shape = conv_exchanged(shape);
        job.in = operands->out;
    }
    plan(&job, direction);
    if (direction == CONV_BACKPROP_FILTER) {
        job.gradient = operands->out;
        TRY(run_filter(&job, operands->result));
    } else if (direction == CONV_BACKPROP_INPUT) {
        TRY(run_backprop_input(&job, operands, shape));
    } else {
        TRY(run_result(&job, operands->filter));
    }
    *ret_done = !job.has_infinity;
    return NULL;
}
