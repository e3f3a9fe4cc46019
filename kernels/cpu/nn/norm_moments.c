/* Computes sums over all dimensions but the channels.
 *
 * A block of rows (or one run of a channel, where channels are the second dimension) is short
 * enough to stay in the cache. Its mean is computed first, then the squares around the mean. Chan's
 * formula merges the blocks in double precision. So memory is read once, and a large mean costs no
 * precision. */
#include "kernels/support/lanes.h"
#include "kernels/cpu/nn/norm_internal.h"
#include "kernels/support/scratch.h"

enum { BLOCK_BYTES = 1 << 16, MAX_BLOCK_ROWS = 512 };

struct moments_job {
    const float *x, *g, *mean_in;
    struct norm_extent extent;
    int64_t rows;          /* rows of a block, channels last */
    float *first, *second; /* for each block and channel: mean and squares, or the two sums */
};

static int64_t block_rows(struct norm_extent extent) {
    int64_t rows = BLOCK_BYTES / (int64_t)sizeof(float) / MAX(extent.channels, 1);
    return MAX(MIN(rows, MAX_BLOCK_ROWS), 8);
}

/* ---- channels last: a block is some rows ---- */

LANES_TYPE(vec, float);
enum { WIDTH = LANES_BYTES / sizeof(float) };

/* The vector at row r and channel c. */
#define AT(V, x, r) ((const V *)(const void *)((x) + (r)*channels + c))
/* Runs BODY over channels: LANES_BLOCK vectors at a time, then one vector, then a single channel,
 * so that the sums stay in registers. */
#define BY_CHANNELS(BODY)                                                   \
    int64_t c = 0;                                                          \
    for (; c + LANES_BLOCK * WIDTH <= channels; c += LANES_BLOCK * WIDTH) { \
        BODY(vec, LANES_BLOCK)                                              \
    }                                                                       \
    for (; c + WIDTH <= channels; c += WIDTH) {                             \
        BODY(vec, 1)                                                        \
    }                                                                       \
    for (; c < channels; c++) {                                             \
        BODY(float, 1)                                                      \
    }

#define MOMENTS(V, count)                                                         \
    V sums[count] = {0}, around[count] = {0};                                     \
    for (int64_t r = 0; r < n_rows; r++)                                          \
        for (int k = 0; k < count; k++)                                           \
            sums[k] += AT(V, x, r)[k];                                            \
    for (int k = 0; k < count; k++)                                               \
        sums[k] /= (float)n_rows;                                                 \
    for (int64_t r = 0; r < n_rows; r++)                                          \
        for (int k = 0; k < count; k++)                                           \
            around[k] += (AT(V, x, r)[k] - sums[k]) * (AT(V, x, r)[k] - sums[k]); \
    memcpy(mean + c, sums, sizeof(sums));                                         \
    memcpy(squares + c, around, sizeof(around));

VECTOR_CLONES
static void rows_moments(const float *x, int64_t n_rows, int64_t channels, float *mean,
                         float *squares){BY_CHANNELS(MOMENTS)}

#define GRADIENT_SUMS(V, count)                                           \
    V totals[count] = {0}, weighted[count] = {0}, centre[count];          \
    memcpy(centre, mean + c, sizeof(centre));                             \
    for (int64_t r = 0; r < n_rows; r++)                                  \
        for (int k = 0; k < count; k++) {                                 \
            totals[k] += AT(V, g, r)[k];                                  \
            weighted[k] += AT(V, g, r)[k] * (AT(V, x, r)[k] - centre[k]); \
        }                                                                 \
    memcpy(sums + c, totals, sizeof(totals));                             \
    memcpy(products + c, weighted, sizeof(weighted));

VECTOR_CLONES
    static void rows_sums(const float *g, const float *x, const float *mean, int64_t n_rows,
                          int64_t channels, float *sums, float *products) {
    BY_CHANNELS(GRADIENT_SUMS)
}

/* ---- channels first: a block is the run of one channel in one image ---- */

enum { LANES = 32 };

static float lanes_total(const float *lanes) {
    double total = 0;
    for (int i = 0; i < LANES; i++)
        total += (double)lanes[i];
    return (float)total;
}

VECTOR_CLONES
static void run_moments(const float *x, int64_t n, float *mean, float *squares) {
    float lanes[LANES] = {0};
    int64_t whole = n - n % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] += x[i + l];
    for (int64_t i = whole; i < n; i++)
        lanes[i - whole] += x[i];
    float m = lanes_total(lanes) / (float)n;
    memset(lanes, 0, sizeof(lanes));
    for (int64_t i = 0; i < whole; i += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] += (x[i + l] - m) * (x[i + l] - m);
    for (int64_t i = whole; i < n; i++)
        lanes[i - whole] += (x[i] - m) * (x[i] - m);
    *mean = m;
    *squares = lanes_total(lanes);
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

static void moments_block(const struct moments_job *job, int64_t block) {
    struct norm_extent e = job->extent;
    float *first = job->first + block * e.channels, *second = job->second + block * e.channels;
    if (e.inner == 1) {
        int64_t row = block * job->rows, n = MIN(job->rows, e.outer - row), at = row * e.channels;
        if (job->g)
            rows_sums(job->g + at, job->x + at, job->mean_in, n, e.channels, first, second);
        else
            rows_moments(job->x + at, n, e.channels, first, second);
        return;
    }
    for (int64_t c = 0; c < e.channels; c++) {
        int64_t at = (block * e.channels + c) * e.inner;
        if (job->g)
            run_sums(job->g + at, job->x + at, job->mean_in[c], e.inner, first + c, second + c);
        else
            run_moments(job->x + at, e.inner, first + c, second + c);
    }
}

static void blocks_range(void *arg, int64_t begin, int64_t end) {
    for (; begin < end; begin++)
        moments_block(arg, begin);
}

static struct status *run_blocks(const struct kernel_ctx *ctx, struct moments_job *job,
                                 struct tensor *scratch, int64_t *ret_blocks) {
    struct norm_extent e = job->extent;
    job->rows = e.inner == 1 ? block_rows(e) : 1;
    int64_t n_blocks = (e.outer + job->rows - 1) / job->rows;
    TRY(scratch_new(ctx, DT_FLOAT, n_blocks, 2 * e.channels, scratch, &job->first));
    job->second = job->first + n_blocks * e.channels;
    double cost_ns = (double)(job->rows * e.channels * e.inner) * 0.3;
    pool_parallel_for(ctx->pool, n_blocks, cost_ns, blocks_range, job);
    *ret_blocks = n_blocks;
    return NULL;
}

struct status *norm_moments(const struct kernel_ctx *ctx, const float *x, struct norm_extent e,
                            float *mean, float *variance) {
    struct moments_job job = {.x = x, .extent = e};
    struct tensor scratch = TENSOR_INIT;
    int64_t n_blocks;
    TRY(run_blocks(ctx, &job, &scratch, &n_blocks));
    for (int64_t c = 0; c < e.channels; c++) {
        double total = 0, m = 0, squares = 0;
        for (int64_t b = 0; b < n_blocks; b++) {
            double n = (double)(e.inner == 1 ? MIN(job.rows, e.outer - b * job.rows) : e.inner);
            double step = (double)job.first[b * e.channels + c] - m;
            m += step * n / (total + n);
            squares +=
                (double)job.second[b * e.channels + c] + step * step * total * n / (total + n);
            total += n;
        }
        mean[c] = (float)m;
        variance[c] = (float)(squares / total);
    }
    tensor_clear(&scratch);
    return NULL;
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
            sums[c] += (double)job.first[b * e.channels + c];
            products[c] += (double)job.second[b * e.channels + c];
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
