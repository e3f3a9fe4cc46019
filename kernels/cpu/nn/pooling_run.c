/* Pools the taps of windows: computes an output pixel from the taps of its window, channel by
 * channel.
 *
 * Work is split by rows of output pixels; gradients by images where windows overlap. */
#include <float.h>

#include "kernels/support/lanes.h"
#include "kernels/cpu/nn/pooling.h"
#include "kernels/support/scratch.h"

#define T float
#define SUM float
#define LOWEST (-FLT_MAX)
#define NAME(x) x##_f32
#include "kernels/cpu/nn/pooling_loops.inc"
#define T double
#define SUM double
#define LOWEST (-DBL_MAX)
#define NAME(x) x##_f64
#include "kernels/cpu/nn/pooling_loops.inc"
#define T int8_t
#define SUM uint8_t
#define LOWEST INT8_MIN
#define NAME(x) x##_i8
#include "kernels/cpu/nn/pooling_loops.inc"
#define T int16_t
#define SUM uint16_t
#define LOWEST INT16_MIN
#define NAME(x) x##_i16
#include "kernels/cpu/nn/pooling_loops.inc"
#define T int32_t
#define SUM uint32_t
#define LOWEST INT32_MIN
#define NAME(x) x##_i32
#include "kernels/cpu/nn/pooling_loops.inc"
#define T int64_t
#define SUM uint64_t
#define LOWEST INT64_MIN
#define NAME(x) x##_i64
#include "kernels/cpu/nn/pooling_loops.inc"
#define T uint8_t
#define SUM uint8_t
#define LOWEST 0
#define NAME(x) x##_u8
#include "kernels/cpu/nn/pooling_loops.inc"
#define T uint16_t
#define SUM uint16_t
#define LOWEST 0
#define NAME(x) x##_u16
#include "kernels/cpu/nn/pooling_loops.inc"
#define T uint32_t
#define SUM uint32_t
#define LOWEST 0
#define NAME(x) x##_u32
#include "kernels/cpu/nn/pooling_loops.inc"
#define T uint64_t
#define SUM uint64_t
#define LOWEST 0
#define NAME(x) x##_u64
#include "kernels/cpu/nn/pooling_loops.inc"

// clang-format off
const struct pooling_loops *const pooling_loops_of[DT_N_TYPES] = {
    [DT_FLOAT] = &loops_f32, [DT_DOUBLE] = &loops_f64, [DT_INT8] = &loops_i8, [DT_INT16] =
        &loops_i16, [DT_INT32] = &loops_i32,
    [DT_INT64] = &loops_i64, [DT_QINT8] = &loops_i8, [DT_QUINT8] = &loops_u8, [DT_UINT8] =
        &loops_u8, [DT_UINT16] = &loops_u16, [DT_UINT32] = &loops_u32, [DT_UINT64] = &loops_u64,
};
// clang-format on

/* Defined here for one type each: the block of a mean, the mean, and its gradient. */
#define NAME(x) x##_f32
#define T float
#include "kernels/cpu/nn/pooling_mean.inc"
#define NAME(x) x##_f64
#define T double
#include "kernels/cpu/nn/pooling_mean.inc"

/* The mean of codes drops the fraction. */
#define CODE_MEAN(s, T)                                                                \
    static void mean_##s(const void *const *taps, int64_t n_taps, int64_t n_positions, \
                         int64_t step, int64_t n, void *out) {                         \
        for (int64_t at = 0; at < n_positions * n; at++) {                             \
            int64_t from = at / n * step + at % n, sum = 0;                            \
            for (int64_t i = 0; i < n_taps; i++)                                       \
                sum += ((const T *)taps[i])[from];                                     \
            ((T *)out)[at] = (T)(n_taps ? sum / n_taps : 0);                           \
        }                                                                              \
    }
CODE_MEAN(i8, int8_t)
CODE_MEAN(u8, uint8_t)

void pooling_mean(enum dtype dtype, const void *const *taps, int64_t n_taps, int64_t n_positions,
                  int64_t step, int64_t n, void *out) {
    switch (dtype) {
    case DT_FLOAT:
        mean_f32(taps, n_taps, n_positions, step, n, out);
        return;
    case DT_QINT8:
        mean_i8(taps, n_taps, n_positions, step, n, out);
        return;
    case DT_QUINT8:
        mean_u8(taps, n_taps, n_positions, step, n, out);
        return;
    default:
        mean_f64(taps, n_taps, n_positions, step, n, out);
    }
}

/* Takes float and double and gives the gradient of a mean back to the taps: it stores it with
 * is_only, when no tap belongs to two positions, and adds it otherwise. */
static void mean_grad(enum dtype dtype, void *const *to, int64_t n_taps, int64_t n_positions,
                      int64_t step, int64_t n, const void *gradient, bool is_only) {
    (dtype == DT_FLOAT ? mean_grad_f32 : mean_grad_f64)(to, n_taps, n_positions, step, n, gradient,
                                                        is_only);
}

/* Bytes of taps that are read or written between two questions whether the result is wanted: some
 * milliseconds. */
enum { MOST_BYTES = 16 << 20 };

/* ---- one output pixel ---- */

/* The buffers of one share, with an entry for each tap and each channel. */
struct share {
    /* addresses in the input, and of the same pixels in the result or in the second gradient */
    const void **taps, **others;
    int64_t *pixels;
    int32_t *at;
    void *best;
};

/* Finds the taps of output pixel p of image n that are inside of the input. Returns how many there
 * are. */
static int64_t find_taps(const struct pooling_job *job, int64_t n, int64_t p, struct share *share,
                         const void *in, const void *other) {
    const struct conv_shape *s = job->shape;
    int64_t begin[3], end[3], n_taps = 0, bytes = s->in_channels * (int64_t)dtype_size(job->dtype),
                              image = conv_n_positions(s->in);
    for (int i = 2; i >= 0; i--) {
        int64_t origin = p % s->out[i] * s->stride[i] - s->pad_before[i];
        begin[i] = MAX(origin, 0);
        end[i] = MIN(origin + s->window[i], s->in[i]);
        p /= s->out[i];
    }
    for (int64_t z = begin[0]; z < end[0]; z++) {
        for (int64_t y = begin[1]; y < end[1]; y++) {
            int64_t row = (z * s->in[1] + y) * s->in[2];
            for (int64_t x = begin[2]; x < end[2]; x++, n_taps++) {
                int64_t at = (n * image + row + x) * bytes;
                share->taps[n_taps] = (const char *)in + at;
                share->others[n_taps] = (const char *)other + at;
                share->pixels[n_taps] = row + x;
            }
        }
    }
    return n_taps;
}

static void write_argmax(const struct pooling_job *job, int64_t n, int64_t p,
                         const struct share *share) {
    const struct conv_shape *s = job->shape;
    int64_t channels = s->in_channels,
            base = job->counts_batch ? n * conv_n_positions(s->in) * channels : 0;
    int64_t first = (n * conv_n_positions(s->out) + p) * channels;
    for (int64_t c = 0; c < channels; c++) {
        int64_t index = base + share->pixels[share->at[c]] * channels + c;
        if (job->is_argmax_wide)
            ((int64_t *)job->argmax)[first + c] = index;
        else
            ((int32_t *)job->argmax)[first + c] = (int32_t)index;
    }
}

static void run_position(const struct pooling_job *job, int64_t n, int64_t p, struct share *share) {
    const struct conv_shape *s = job->shape;
    const struct pooling_loops *loops = pooling_loops_of[job->dtype];
    int64_t channels = s->in_channels,
            at = (n * conv_n_positions(s->out) + p) * channels * (int64_t)dtype_size(job->dtype);
    const void *in = job->in, *other = job->kind == POOLING_MAX_GRAD ? job->result
                                       : job->gradient               ? job->gradient
                                                                     : in;
    int64_t n_taps = find_taps(job, n, p, share, in, other);
    const void *out = job->out ? (const char *)job->out + at : NULL;
    const void *gradient = job->gradient ? (const char *)job->gradient + at : NULL;
    char *result = (char *)job->result + at;
    void *const *to = (void *const *)(uintptr_t)share->others;
    switch (job->kind) {
    case POOLING_MAX_GRAD:
        if (n_taps > 0)
            loops->scatter_equal(to, share->taps, n_taps, channels, out, gradient);
        return;
    case POOLING_MAX_GRAD_GRAD:
        loops->gather_equal(share->others, share->taps, n_taps, channels, out, result);
        return;
    default:
        if (n_taps == 0)
            return;
        loops->search(share->taps, n_taps, channels, result, share->at);
        write_argmax(job, n, p, share);
    }
}

/* ---- all output pixels ---- */

static struct status *run_positions(const struct pooling_job *job, int64_t begin, int64_t end) {
    const struct conv_shape *s = job->shape;
    int64_t n_positions = conv_n_positions(s->out), n_taps = 1;
    for (int i = 0; i < 3; i++)
        n_taps *= MIN(s->window[i], s->in[i]);
    struct tensor scratch = TENSOR_INIT, channels = TENSOR_INIT;
    int64_t *words, *wide;
    TRY(scratch_new(job->ctx, DT_INT64, MAX(n_taps, 1), 3, &scratch, &words));
    struct status *st = scratch_new(job->ctx, DT_INT64, s->in_channels, 2, &channels, &wide);
    if (!st) {
        struct share share = {.taps = (const void **)words,
                              .others = (const void **)(words + n_taps),
                              .pixels = words + 2 * n_taps,
                              .at = (int32_t *)(void *)wide,
                              .best = wide + s->in_channels};
        for (int64_t i = 0; begin < end && pooling_goes_on(i); begin++, i++)
            run_position(job, begin / n_positions, begin % n_positions, &share);
    }
    tensor_clear(&scratch);
    tensor_clear(&channels);
    return st;
}

/* Is every pixel in exactly one window? */
static bool is_tiled(const struct conv_shape *s) {
    for (int i = 0; i < 3; i++) {
        if (s->window[i] != s->stride[i] || s->out[i] * s->stride[i] - s->pad_before[i] < s->in[i])
            return false;
    }
    return true;
}

/* The pixels of the window at `origin` along dimension i. In two dimensions TensorFlow's gradient
 * of the mean treats a window that begins in the padding and is wider than the image as if it
 * reached to the end of the image. */
static void clip_window(const struct pooling_job *job, int i, int64_t origin, int64_t *ret_begin,
                        int64_t *ret_end) {
    const struct conv_shape *s = job->shape;
    bool reaches_end = job->kind == POOLING_AVG_GRAD && job->n_spatial == 2 &&
                       MAX(origin, 0) + s->window[i] > s->in[i];
    *ret_begin = MAX(origin, 0);
    *ret_end = reaches_end ? s->in[i] : MIN(origin + s->window[i], s->in[i]);
}

/* The buffers of a share of rows. */
struct row_share {
    const void **taps, **others; /* by tap: in the input, and the same pixels of the gradient */
    int64_t *rows;               /* where the rows of the window begin */
    struct pooling_places places;
};

/* Computes contiguous output pixels from the taps of the first of them. */
static void run_taps(const struct pooling_job *job, const struct row_share *share, int64_t n_taps,
                     int64_t n_positions, char *out) {
    const struct conv_shape *s = job->shape;
    int64_t channels = s->in_channels, step = s->stride[2] * channels;
    void *const *to = (void *const *)(uintptr_t)share->others;
    switch (job->kind) {
    case POOLING_AVG_GRAD:
        mean_grad(job->dtype, to, n_taps, n_positions, step, channels, out, is_tiled(s));
        return;
    case POOLING_MAX_GRAD:
        if (n_taps > 0)
            pooling_loops_of[job->dtype]->max_grad(share->taps, to, n_taps, n_positions, step,
                                                   channels, out, is_tiled(s), &share->places);
        return;
    case POOLING_MAX:
        pooling_loops_of[job->dtype]->max(share->taps, n_taps, n_positions, step, channels, out);
        return;
    default:
        pooling_mean(job->dtype, share->taps, n_taps, n_positions, step, channels, out);
    }
}

/* Computes a row of output pixels of MaxPool, AvgPool or their gradients (of MaxPool in two
 * dimensions). The rows of the window are found once for the whole row. The taps are found once for
 * all windows that are inside of the image's columns. */
static void run_row(const struct pooling_job *job, int64_t row, const struct row_share *share) {
    const struct conv_shape *s = job->shape;
    int64_t pixel = s->in_channels * (int64_t)dtype_size(job->dtype), n_rows = 0,
            stride = s->stride[2];
    int64_t y = row % s->out[1] * s->stride[1] - s->pad_before[1],
            z = row / s->out[1] % s->out[0] * s->stride[0] - s->pad_before[0];
    int64_t image = row / (s->out[1] * s->out[0]) * conv_n_positions(s->in);
    int64_t begin, end, row_begin, row_end;
    clip_window(job, 0, z, &begin, &end);
    clip_window(job, 1, y, &row_begin, &row_end);
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = row_begin; j < row_end; j++)
            share->rows[n_rows++] = (image + (i * s->in[1] + j) * s->in[2]) * pixel;
    bool is_backward = job->kind == POOLING_AVG_GRAD || job->kind == POOLING_MAX_GRAD;
    const char *in = job->in, *other = job->result;
    char *out = (is_backward ? (char *)(uintptr_t)job->gradient : (char *)job->result) +
                row * s->out[2] * pixel;
    int64_t most = MAX(MOST_BYTES / pixel / MAX(n_rows * s->window[2], 1), 1);
    for (int64_t x = 0, n_positions; x < s->out[2] && !pool_is_unwanted();
         x += n_positions, out += n_positions * pixel) {
        int64_t origin = x * stride - s->pad_before[2], n_taps = 0,
                room = s->in[2] - s->window[2] - origin;
        clip_window(job, 2, origin, &begin, &end);
        n_positions = origin >= 0 && room >= 0 ? MIN(room / stride + 1, s->out[2] - x) : 1;
        n_positions = MIN(n_positions, most);
        for (int64_t r = 0; r < n_rows; r++) {
            for (int64_t at = begin; at < end; at++, n_taps++) {
                share->taps[n_taps] = in ? in + share->rows[r] + at * pixel : NULL;
                share->others[n_taps] = is_backward ? other + share->rows[r] + at * pixel : NULL;
            }
        }
        run_taps(job, share, n_taps, n_positions, out);
    }
}

static void note_failure(struct pooling_job *job, struct status *st) {
    struct status *none = NULL;
    if (st && !__atomic_compare_exchange_n(&job->failure, &none, st, false, __ATOMIC_ACQ_REL,
                                           __ATOMIC_ACQUIRE))
        status_unref(st);
}

static void run_rows(struct pooling_job *job, int64_t begin, int64_t end) {
    const struct conv_shape *s = job->shape;
    int64_t n_rows = MIN(s->window[0], s->in[0]) * MIN(s->window[1], s->in[1]),
            n_taps = n_rows * MIN(s->window[2], s->in[2]),
            channels = job->kind == POOLING_MAX_GRAD ? s->in_channels : 0, *words = NULL;
    struct tensor scratch = TENSOR_INIT;
    struct status *st =
        scratch_new(job->ctx, DT_INT64, 3 * n_taps + n_rows + 2 * channels, 1, &scratch, &words);
    if (st) {
        note_failure(job, st);
        return;
    }
    struct row_share share = {.rows = words};
    words += n_rows;
    share.taps = (const void **)words;
    share.others = (const void **)(words + n_taps);
    share.places.taps = (const void **)(words + 2 * n_taps);
    share.places.best = words + 3 * n_taps;
    share.places.at = (int32_t *)(void *)(words + 3 * n_taps + channels);
    for (; begin < end; begin++)
        run_row(job, begin, &share);
    tensor_clear(&scratch);
}

static void plain_range(void *arg, int64_t begin, int64_t end) { run_rows(arg, begin, end); }

static void run_units(struct pooling_job *job, int64_t begin, int64_t end, int64_t unit) {
    note_failure(job, run_positions(job, begin * unit, end * unit));
}

static void rows_range(void *arg, int64_t begin, int64_t end) {
    struct pooling_job *job = arg;
    run_units(job, begin, end, job->shape->out[2]);
}

/* Is it a gradient whose taps are found row by row? */
static bool goes_by_rows(const struct pooling_job *job) {
    return job->kind == POOLING_AVG_GRAD || (job->kind == POOLING_MAX_GRAD && job->n_spatial < 3);
}

/* An image's gradient is cleared immediately before it is added to, so that it is in the cache. */
static void images_range(void *arg, int64_t begin, int64_t end) {
    struct pooling_job *job = arg;
    int64_t bytes = conv_n_positions(job->shape->in) * job->shape->in_channels *
                    (int64_t)dtype_size(job->dtype);
    int64_t n_rows = job->shape->out[0] * job->shape->out[1];
    for (; begin < end; begin++) {
        pool_clear((char *)job->result + begin * bytes, (size_t)bytes);
        if (goes_by_rows(job))
            run_rows(job, begin * n_rows, (begin + 1) * n_rows);
        else
            run_units(job, begin, begin + 1, conv_n_positions(job->shape->out));
    }
}

struct status *pooling_run(struct pooling_job *job) {
    const struct conv_shape *s = job->shape;
    bool is_backward = job->kind == POOLING_MAX_GRAD || job->kind == POOLING_AVG_GRAD;
    double taps = (double)conv_n_positions(s->window),
           per_position = taps * (2 + (double)s->in_channels * 0.05) + 10;
    int64_t n_rows = s->batch * s->out[0] * s->out[1];
    if (is_backward && goes_by_rows(job) && is_tiled(s)) {
        pool_parallel_for(job->ctx->pool, n_rows, 2 * per_position * (double)s->out[2], plain_range,
                          job);
    } else if (is_backward) {
        pool_parallel_for(job->ctx->pool, s->batch,
                          2 * per_position * (double)conv_n_positions(s->out), images_range, job);
    } else {
        bool is_plain = job->kind == POOLING_MAX || job->kind == POOLING_AVG;
        pool_parallel_for(job->ctx->pool, n_rows, per_position * (double)s->out[2],
                          is_plain ? plain_range : rows_range, job);
    }
    return job->failure;
}
