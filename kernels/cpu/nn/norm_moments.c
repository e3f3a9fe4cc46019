/* Computes sums over all dimensions but the channels.
 *
 * A block of rows (or a piece of one channel's run, where channels are the second dimension) is
 * short enough to stay in the cache, so memory is read once. Its mean is computed first, then the
 * sums of x - mean and of the squares. The block's mean is rounded: by 1e-3 where the mean is
 * 30,000. The sum of x - mean says what it lacks. With it the blocks are merged in double precision
 * [Chan, Golub and LeVeque 1983], so a large mean costs no precision.
 *
 * A sum of floats loses precision with its length. Therefore the rows of a block are added in
 * tiles, and the tiles' sums then. */
#include <math.h>

#include "kernels/support/lanes.h"
#include "kernels/cpu/nn/norm_internal.h"
#include "kernels/support/scratch.h"

enum { BLOCK_BYTES = 1 << 16, MAX_BLOCK_ROWS = 512, TILE_ROWS = 32, MAX_RUN = 4096 };

/* By block and channel: mean, squares around it, and the sum of x - mean; or the two sums of the
 * gradient, without `rest`. */
struct moments_out {
    float *first, *second, *rest;
};

struct moments_job {
    const float *x, *g, *mean_in;
    struct norm_extent extent;
    int64_t rows;     /* of a block: each channel's values */
    int64_t n_pieces; /* blocks of one run, channels first */
    struct moments_out out;
};

/* Where channels are last, a block takes rows of all channels. */
static int64_t block_rows(struct norm_extent extent) {
    if (extent.inner > 1)
        return MIN(extent.inner, MAX_RUN);
    int64_t rows = BLOCK_BYTES / (int64_t)sizeof(float) / MAX(extent.channels, 1);
    return MAX(MIN(rows, MAX_BLOCK_ROWS), 8);
}

/* ---- channels last: a block is some rows ---- */

LANES_TYPE(vec, float);
enum { WIDTH = LANES_BYTES / sizeof(float) };

#define V vec
#define COUNT LANES_BLOCK
#define NAME(f) block_##f
#include "kernels/cpu/nn/norm_moments_rows.inc"
#define V vec
#define COUNT 1
#define NAME(f) vector_##f
#include "kernels/cpu/nn/norm_moments_rows.inc"
#define V float
#define COUNT 1
#define NAME(f) single_##f
#include "kernels/cpu/nn/norm_moments_rows.inc"

/* LANES_BLOCK vectors at a time, then one vector, then a single channel, so that the sums stay in
 * registers. */
VECTOR_CLONES
static void rows_moments(const float *x, int64_t n_rows, int64_t channels, struct moments_out out) {
    int64_t c = 0;
    for (; c + LANES_BLOCK * WIDTH <= channels; c += LANES_BLOCK * WIDTH)
        block_moments(x, n_rows, channels, c, out);
    for (; c + WIDTH <= channels; c += WIDTH)
        vector_moments(x, n_rows, channels, c, out);
    for (; c < channels; c++)
        single_moments(x, n_rows, channels, c, out);
}

VECTOR_CLONES
static void rows_sums(const float *g, const float *x, const float *mean, int64_t n_rows,
                      int64_t channels, struct moments_out out) {
    int64_t c = 0;
    for (; c + LANES_BLOCK * WIDTH <= channels; c += LANES_BLOCK * WIDTH)
        block_sums(g, x, mean, n_rows, channels, c, out);
    for (; c + WIDTH <= channels; c += WIDTH)
        vector_sums(g, x, mean, n_rows, channels, c, out);
    for (; c < channels; c++)
        single_sums(g, x, mean, n_rows, channels, c, out);
}

/* ---- channels first: a block is a piece of each channel's run in one image ---- */

enum { LANES = 32 };

static float lanes_total(const float *lanes) {
    double total = 0;
    for (int i = 0; i < LANES; i++)
        total += (double)lanes[i];
    return (float)total;
}

/* Adds the lanes pair by pair, with less work than lanes_total and almost its precision. */
LANES_INLINE float lanes_pairs(float *lanes) {
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lanes[l] += lanes[l + width];
    return lanes[0];
}

VECTOR_CLONES
static void run_moments(const float *x, int64_t n, float *mean, float *squares, float *rest) {
    float lanes[LANES] = {0}, more[LANES] = {0};
    int64_t whole = n - n % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] += x[i + l];
    for (int64_t i = whole; i < n; i++)
        lanes[i - whole] += x[i];
    float m = lanes_pairs(lanes) / (float)n;
    memset(lanes, 0, sizeof(lanes));
    for (int64_t i = 0; i < whole; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lanes[l] += (x[i + l] - m) * (x[i + l] - m);
            more[l] += x[i + l] - m;
        }
    }
    for (int64_t i = whole; i < n; i++) {
        lanes[i - whole] += (x[i] - m) * (x[i] - m);
        more[i - whole] += x[i] - m;
    }
    *mean = m;
    *squares = lanes_pairs(lanes);
    *rest = lanes_pairs(more);
}

VECTOR_CLONES
static void run_sums(const float *g, const float *x, float mean, int64_t n, float *sum,
                     float *product) {
    float lanes[LANES] = {0}, more[LANES] = {0};
    int64_t whole = n - n % LANES;
    for (int64_t i = 0; i < whole; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lanes[l] += g[i + l];
            more[l] += g[i + l] * (x[i + l] - mean);
        }
    }
    for (int64_t i = whole; i < n; i++) {
        lanes[i - whole] += g[i];
        more[i - whole] += g[i] * (x[i] - mean);
    }
    *sum = lanes_total(lanes);
    *product = lanes_total(more);
}

/* ---- all blocks ---- */

/* The number of each channel's values in a block. */
static int64_t block_values(const struct moments_job *job, int64_t block) {
    int64_t length = job->extent.inner == 1 ? job->extent.outer : job->extent.inner,
            begin = block % job->n_pieces * job->rows;
    return MIN(job->rows, length - begin);
}

/* Where the sums of channel c of a block are stored. */
static struct moments_out out_at(const struct moments_job *job, int64_t block, int64_t c) {
    int64_t at = block * job->extent.channels + c;
    return (struct moments_out){job->out.first + at, job->out.second + at,
                                job->g ? NULL : job->out.rest + at};
}

static void rows_range(void *arg, int64_t begin, int64_t end) {
    const struct moments_job *job = arg;
    int64_t channels = job->extent.channels;
    for (int64_t block = begin; block < end; block++) {
        int64_t n = block_values(job, block), at = block * job->rows * channels;
        if (job->g)
            rows_sums(job->g + at, job->x + at, job->mean_in, n, channels, out_at(job, block, 0));
        else
            rows_moments(job->x + at, n, channels, out_at(job, block, 0));
    }
}

/* Some channels of a block. */
static void runs_of_block(const struct moments_job *job, int64_t block, int64_t c, int64_t end) {
    int64_t n = block_values(job, block), inner = job->extent.inner,
            at = (block / job->n_pieces * job->extent.channels + c) * inner +
                 block % job->n_pieces * job->rows;
    for (; c < end; c++, at += inner) {
        struct moments_out out = out_at(job, block, c);
        if (job->g)
            run_sums(job->g + at, job->x + at, job->mean_in[c], n, out.first, out.second);
        else
            run_moments(job->x + at, n, out.first, out.second, out.rest);
    }
}

/* The range counts blocks and in them channels. */
static void runs_range(void *arg, int64_t begin, int64_t end) {
    const struct moments_job *job = arg;
    int64_t channels = job->extent.channels;
    while (begin < end) {
        int64_t block = begin / channels, c = begin % channels, n = MIN(channels - c, end - begin);
        runs_of_block(job, block, c, c + n);
        begin += n;
    }
}

static struct status *run_blocks(const struct kernel_ctx *ctx, struct moments_job *job,
                                 struct tensor *scratch, int64_t *ret_blocks) {
    struct norm_extent e = job->extent;
    bool is_last = e.inner == 1;
    job->rows = block_rows(e);
    job->n_pieces = ((is_last ? e.outer : e.inner) + job->rows - 1) / job->rows;
    int64_t n_blocks = is_last ? job->n_pieces : job->n_pieces * e.outer, n = n_blocks * e.channels;
    TRY(scratch_new(ctx, DT_FLOAT, n, job->g ? 2 : 3, scratch, &job->out.first));
    job->out.second = job->out.first + n;
    job->out.rest = job->g ? NULL : job->out.second + n;
    double cost_ns = (double)(job->rows * (is_last ? e.channels : 1)) * 0.3;
    pool_parallel_for(ctx->pool, is_last ? n_blocks : n, cost_ns, is_last ? rows_range : runs_range,
                      job);
    *ret_blocks = n_blocks;
    return NULL;
}

/* Merges the blocks into sums[c], first all means and then the squares around the whole mean. */
static void merge_moments(const struct moments_job *job, int64_t n_blocks, double *sums,
                          float *mean, float *variance) {
    const int64_t channels = job->extent.channels;
    const double total = (double)job->extent.outer * (double)job->extent.inner;
    memset(sums, 0, 2 * (size_t)channels * sizeof(double));
    double *squares = sums + channels;
    for (int64_t b = 0; b < n_blocks; b++) {
        double n = (double)block_values(job, b);
        const float *first = job->out.first + b * channels, *rest = job->out.rest + b * channels;
        for (int64_t c = 0; c < channels; c++) /* an infinite mean has no finite distances */
            sums[c] += (double)first[c] * n + (isfinite(rest[c]) ? (double)rest[c] : 0);
    }
    for (int64_t c = 0; c < channels; c++)
        sums[c] /= total;
    for (int64_t b = 0; b < n_blocks; b++) {
        double n = (double)block_values(job, b);
        const float *first = job->out.first + b * channels,
                    *second = job->out.second + b * channels, *rest = job->out.rest + b * channels;
        for (int64_t c = 0; c < channels; c++) {
            double shift = (double)first[c] - sums[c];
            squares[c] += (double)second[c] + shift * (2 * (double)rest[c] + shift * n);
        }
    }
    for (int64_t c = 0; c < channels; c++) {
        mean[c] = (float)sums[c];
        variance[c] = (float)(squares[c] < 0 ? 0 : squares[c] / total);
    }
}

struct status *norm_moments(const struct kernel_ctx *ctx, const float *x, struct norm_extent e,
                            float *mean, float *variance) {
    struct moments_job job = {.x = x, .extent = e};
    struct tensor scratch = TENSOR_INIT, merged = TENSOR_INIT;
    int64_t n_blocks;
    double *sums;
    struct status *st = NULL;
    TRY_OUT(run_blocks(ctx, &job, &scratch, &n_blocks));
    TRY_OUT(scratch_new(ctx, DT_DOUBLE, e.channels, 2, &merged, &sums));
    merge_moments(&job, n_blocks, sums, mean, variance);
out:
    tensor_clear(&scratch);
    tensor_clear(&merged);
    return st;
}

struct status *norm_gradient_sums(const struct kernel_ctx *ctx, const float *g, const float *x,
                                  const float *mean, struct norm_extent e, double *sums,
                                  double *products) {
    struct moments_job job = {.x = x, .g = g, .mean_in = mean, .extent = e};
    struct tensor scratch = TENSOR_INIT;
    int64_t n_blocks;
    TRY(run_blocks(ctx, &job, &scratch, &n_blocks));
    for (int64_t c = 0; c < e.channels; c++) {
        sums[c] = products[c] = 0;
        for (int64_t b = 0; b < n_blocks; b++) {
            sums[c] += (double)job.out.first[b * e.channels + c];
            products[c] += (double)job.out.second[b * e.channels + c];
        }
    }
    tensor_clear(&scratch);
    return NULL;
}

/* ---- each channel's linear function ---- */

struct apply_job {
    const float *x, *g;
    float *y;
    const struct norm_line *line;
    struct norm_extent extent;
};

VECTOR_CLONES
static void apply_rows(const struct apply_job *job, int64_t begin, int64_t end) {
    const int64_t channels = job->extent.channels;
    const float *shift = job->line->shift, *factor = job->line->factor, *offset = job->line->offset,
                *weight = job->line->weight;
    for (int64_t r = begin; r < end; r++) {
        const float *x = job->x + r * channels;
        float *y = job->y + r * channels;
        if (job->g) {
            const float *g = job->g + r * channels;
            _Pragma("GCC ivdep") for (int64_t c = 0; c < channels; c++) y[c] =
                (x[c] - shift[c]) * factor[c] + offset[c] + g[c] * weight[c];
        } else {
            _Pragma("GCC ivdep") for (int64_t c = 0; c < channels; c++) y[c] =
                (x[c] - shift[c]) * factor[c] + offset[c];
        }
    }
}

VECTOR_CLONES
static void apply_run(const struct apply_job *job, int64_t run) {
    int64_t n = job->extent.inner, c = run % job->extent.channels;
    const struct norm_line *l = job->line;
    float shift = l->shift[c], factor = l->factor[c], offset = l->offset[c],
          weight = job->g ? l->weight[c] : 0;
    const float *x = job->x + run * n, *g = job->g ? job->g + run * n : x;
    float *y = job->y + run * n;
    if (!job->g) {
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] =
            (x[i] - shift) * factor + offset;
        return;
    }
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] =
        (x[i] - shift) * factor + offset + g[i] * weight;
}

static void apply_range(void *arg, int64_t begin, int64_t end) {
    const struct apply_job *job = arg;
    if (job->extent.inner == 1) {
        apply_rows(job, begin, end);
        return;
    }
    for (; begin < end; begin++)
        apply_run(job, begin);
}

void norm_apply(const struct kernel_ctx *ctx, const float *x, const float *g,
                const struct norm_line *line, struct norm_extent e, float *y) {
    struct apply_job job = {x, g, y, line, e};
    int64_t units = e.inner == 1 ? e.outer : e.outer * e.channels,
            size = e.inner == 1 ? e.channels : e.inner;
    pool_parallel_for(ctx->pool, units, (double)size * 0.2 + 1, apply_range, &job);
}
