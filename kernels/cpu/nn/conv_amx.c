/* Computes convolutions of floats in two dimensions by AMX (kernels/cpu/matmul/amx.h).
 *
 * Nothing is gathered into columns. An image is cut into its bfloat16 parts once, with its padding.
 * Then a row of a tile is a place in the image itself, and tiles are loaded straight from there.
 *
 *   forward         left tile:  16 windows x 32 values of a window's row (taps and channels lie
 *                               behind each other); right tile: the filter
 *   input gradient  the same of the incoming gradient, with the filter mirrored (strides of one)
 *
 * The filter's gradient is not computed here: it would have to read each value from the
 * second-level cache for each tap, which takes as long as oneDNN does.
 *
 * Places are numbered with a pitch, which may be wider than the output: results beside the output
 * are computed and dropped. Work is split into bands of rows, between which a cancel is seen. */
#include "common/base/pool_cancel.h"
#include "kernels/cpu/matmul/amx.h"
#include "kernels/cpu/nn/conv_internal.h"
#include "kernels/support/scratch.h"

#if HAS_AMX_FILES
enum {
    LEAST_MULTIPLICATIONS = 1000000,
    BAND_BYTES = 1 << 19, /* of the parts of a band: half of a second-level cache */
    LEAST_UNITS = 8,      /* an image is cut into bands until there are this many units */
};

struct amx_job {
    struct conv_shape shape; /* of the forward convolution that is computed */
    const float *in;
    float *result;
    const struct kernel_ctx *ctx;
    int64_t pitch;          /* places of a row */
    int64_t width;          /* of the padded image */
    int64_t rows, n_bands;  /* output rows of a band */
    int64_t run, steps;     /* values of a window's row, and tiles of them */
    int64_t n_out_blocks;   /* of 16 output channels */
    const uint16_t *filter; /* right tiles: by block, row of the window, step */
    bool has_nan;
    bool hands_over; /* see struct conv_operands */
};

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static const float *image_row(const struct amx_job *job, int64_t image, int64_t y) {
    const struct conv_shape *s = &job->shape;
    return job->in + (image * s->in[1] + y) * s->in[2] * s->in_channels;
}

/* ---- forward ---- */

/* Cuts n values, of which fewer than 32 may be behind a multiple of 32. */
AMX_CODE static void cut(const float *from, int64_t n, uint16_t *to, int64_t part) {
    for (int64_t i = 0; i < n; i += 32) {
        int64_t left = n - i;
        __mmask16 first = left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1),
                  second = left >= 32   ? 0xffff
                           : left <= 16 ? 0
                                        : (__mmask16)((1u << (left - 16)) - 1);
        struct amx_words words = amx_cut_row(_mm512_maskz_loadu_ps(first, from + i),
                                             _mm512_maskz_loadu_ps(second, from + i + 16));
        __mmask32 mask = left >= 32 ? 0xffffffff : (__mmask32)((1u << left) - 1);
        for (int p = 0; p < AMX_PARTS; p++)
            _mm512_mask_storeu_epi16(to + p * part + i, mask, words.part[p]);
    }
}

/* Values of one part of a band: padded rows, and zeros behind them, which tiles at the end read. */
static int64_t band_part(const struct amx_job *job, int64_t rows) {
    const struct conv_shape *s = &job->shape;
    int64_t in_rows = (rows - 1) * s->stride[1] + s->window[1];
    int64_t behind = (2 * AMX_ROWS * s->stride[2] + 32) * s->in_channels + 2 * AMX_DEPTH +
                     job->pitch * s->stride[1] * s->in_channels;
    return round_up(in_rows * job->width * s->in_channels + behind, 32) + 32;
}

static void cut_band(const struct amx_job *job, int64_t image, int64_t row, int64_t rows,
                     uint16_t *to, int64_t part) {
    const struct conv_shape *s = &job->shape;
    int64_t in_rows = (rows - 1) * s->stride[1] + s->window[1], c = s->in_channels;
    memset(to, 0, (size_t)(AMX_PARTS * part) * sizeof(*to));
    for (int64_t i = 0; i < in_rows; i++) {
        int64_t y = row * s->stride[1] - s->pad_before[1] + i;
        int64_t left = s->pad_before[2], columns = MIN(s->in[2], job->width - left);
        if (y >= 0 && y < s->in[1])
            cut(image_row(job, image, y), columns * c, to + (i * job->width + left) * c, part);
    }
}

/* Stores the sums of 32 places, the first of which is `place`. False: one of them is NaN. */
AMX_CODE static bool store_places(const struct amx_job *job, const float *sums, int64_t place,
                                  int64_t rows, int64_t block, float *out) {
    const struct conv_shape *s = &job->shape;
    int64_t left = s->out_channels - block * AMX_COLUMNS;
    __mmask16 mask = left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1), is_nan = 0;
    int64_t y = place / job->pitch, x = place % job->pitch;
    for (int i = 0; i < 2 * AMX_ROWS; i++, x++) {
        if (x == job->pitch)
            x = 0, y++;
        if (x >= s->out[2] || y >= rows)
            continue;
        __m512 sum = _mm512_load_ps(sums + i * AMX_COLUMNS);
        is_nan |= _mm512_mask_cmp_ps_mask(mask, sum, sum, _CMP_UNORD_Q);
        _mm512_mask_storeu_ps(out + (y * s->out[2] + x) * s->out_channels + block * AMX_COLUMNS,
                              mask, sum);
    }
    return !is_nan;
}

static int64_t offset_of(const struct amx_job *job, int64_t place) {
    const struct conv_shape *s = &job->shape;
    return (place / job->pitch * s->stride[1] * job->width + place % job->pitch * s->stride[2]) *
           s->in_channels;
}

AMX_CODE static bool multiply_band(const struct amx_job *job, const uint16_t *band, int64_t part,
                                   int64_t rows, float *out) {
    const struct conv_shape *s = &job->shape;
    float sums[2 * AMX_ROWS * AMX_COLUMNS] __attribute__((aligned(64)));
    int64_t n_places = (rows - 1) * job->pitch + s->out[2], line = job->width * s->in_channels,
            stride = s->stride[2] * s->in_channels * (int64_t)sizeof(*band);
    const struct amx_layout left = {part, stride};
    bool is_number = true;
    amx_begin();
    for (int64_t place = 0; place < n_places; place += 2 * AMX_ROWS) {
        const uint16_t *a = band + offset_of(job, place),
                       *b = band + offset_of(job, place + AMX_ROWS), *right = job->filter;
        for (int64_t block = 0; block < job->n_out_blocks; block++) {
            amx_zero_sums();
            for (int64_t i = 0; i < s->window[1]; i++) {
                for (int64_t step = 0; step < job->steps; step++, right += AMX_TRIPLE) {
                    int64_t at = i * line + step * AMX_DEPTH;
                    amx_add(a + at, b + at, left, right, amx_packed);
                }
            }
            amx_store_sums(sums);
            is_number &= store_places(job, sums, place, rows, block, out);
        }
    }
    amx_end();
    return is_number;
}

static void forward_range(void *arg, int64_t begin, int64_t end) {
    struct amx_job *job = arg;
    const struct conv_shape *s = &job->shape;
    for (; begin < end && !pool_is_unwanted(); begin++) {
        int64_t image = begin / job->n_bands, row = begin % job->n_bands * job->rows,
                rows = MIN(job->rows, s->out[1] - row), part = band_part(job, rows);
        uint16_t *band = amx_thread_memory((size_t)(AMX_PARTS * part) * sizeof(*band));
        cut_band(job, image, row, rows, band, part);
        if (!multiply_band(job, band, part, rows,
                           job->result + (image * s->out[1] + row) * s->out[2] * s->out_channels))
            __atomic_store_n(&job->has_nan, true, __ATOMIC_RELAXED);
        if (job->hands_over)
            kernel_hand_over(job->ctx, (image * s->out[1] + row) * s->out[2] * s->out_channels,
                             (image * s->out[1] + row + rows) * s->out[2] * s->out_channels);
    }
}

/* Places of a row: as many as the padded image has, so that tiles go on from row to row, or else a
 * multiple of a tile. */
static int64_t best_pitch(const struct conv_shape *s, int64_t width) {
    int64_t whole = round_up(s->out[2], AMX_ROWS);
    return s->stride[1] == 1 && s->stride[2] == 1 && width < whole ? width : whole;
}

static void pack_filter(const struct amx_job *job, const float *filter, uint16_t *to) {
    const struct conv_shape *s = &job->shape;
    for (int64_t o = 0; o < s->out_channels; o += AMX_COLUMNS) {
        for (int64_t i = 0; i < s->window[1]; i++) {
            for (int64_t k = 0; k < job->run; k += AMX_DEPTH, to += AMX_TRIPLE)
                amx_pack_right(filter + (i * job->run + k) * s->out_channels + o, s->out_channels,
                               true, (int)MIN(s->out_channels - o, AMX_COLUMNS),
                               (int)MIN(job->run - k, AMX_DEPTH), to);
        }
    }
}

static struct status *run_forward(struct amx_job *job, const float *filter) {
    const struct conv_shape *s = &job->shape;
    struct tensor packed = TENSOR_INIT;
    job->run = s->window[2] * s->in_channels;
    job->steps = (job->run + AMX_DEPTH - 1) / AMX_DEPTH;
    job->n_out_blocks = (s->out_channels + AMX_COLUMNS - 1) / AMX_COLUMNS;
    job->width = (s->out[2] - 1) * s->stride[2] + s->window[2];
    job->pitch = best_pitch(s, job->width);
    int64_t row_bytes = s->stride[1] * job->width * s->in_channels * AMX_PARTS * 2,
            wanted = MAX(LEAST_UNITS / s->batch, (int64_t)1);
    job->rows = MIN(MAX(BAND_BYTES / row_bytes, (int64_t)1), (s->out[1] + wanted - 1) / wanted);
    job->n_bands = (s->out[1] + job->rows - 1) / job->rows;
    uint16_t *tiles;
    TRY(scratch_new(job->ctx, DT_UINT16, job->n_out_blocks * s->window[1] * job->steps, AMX_TRIPLE,
                    &packed, &tiles));
    pack_filter(job, filter, tiles);
    job->filter = tiles;
    double cost_ns = conv_n_multiplications(s) / (double)(s->batch * job->n_bands) * 0.008 + 500;
    pool_parallel_for(job->ctx->pool, s->batch * job->n_bands, cost_ns, forward_range, job);
    tensor_clear(&packed);
    return NULL;
}

/* ---- input gradient ---- */

static struct status *run_backprop_input(struct amx_job *job, const struct conv_operands *o) {
    struct tensor scratch = TENSOR_INIT;
    float *mirrored;
    TRY(conv_mirrored(job->ctx, &job->shape, o->filter, &scratch, &mirrored));
    job->shape = conv_exchanged(&job->shape);
    job->in = o->out;
    struct status *st = run_forward(job, mirrored);
    tensor_clear(&scratch);
    return st;
}

/* ---- which convolutions ---- */

/* Do tiles of so many channels, and of such a window's row, hold values in three quarters? */
static bool fills(int64_t run, int64_t channels) {
    return 4 * run * channels >= 3 * round_up(run, AMX_DEPTH) * round_up(channels, AMX_COLUMNS);
}

/* Are values that are cut used often enough, those of the image and those of the filter? */
static bool repays_cutting(const struct conv_shape *s, int64_t channels) {
    enum { LEAST_USES = 200, LEAST_PLACES = 1000 };
    return s->window[1] * s->window[2] * channels / (s->stride[1] * s->stride[2]) >= LEAST_USES &&
           s->batch * conv_n_positions(s->out) >= LEAST_PLACES;
}

static bool suits(enum conv_direction direction, const struct conv_shape *s) {
    if (s->groups != 1 || s->in[0] != 1 || s->out[0] != 1 || s->window[0] != 1 || s->rate[1] != 1 ||
        s->rate[2] != 1 || conv_n_multiplications(s) < LEAST_MULTIPLICATIONS)
        return false;
    switch (direction) {
    case CONV_FORWARD:
        return fills(s->window[2] * s->in_channels, s->out_channels) &&
               repays_cutting(s, s->out_channels);
    case CONV_BACKPROP_INPUT:
        return s->stride[1] == 1 && s->stride[2] == 1 && s->pad_before[1] < s->window[1] &&
               s->pad_before[2] < s->window[2] &&
               fills(s->window[2] * s->out_channels, s->in_channels) &&
               repays_cutting(s, s->in_channels);
    default:
        return false;
    }
}

struct status *conv_by_amx(const struct kernel_ctx *ctx, enum conv_direction direction,
                           const struct conv_shape *shape, const struct conv_operands *operands,
                           bool *ret_done) {
    *ret_done = false;
    if (!suits(direction, shape) || !amx_is_there())
        return NULL;
    struct amx_job job = {
        .shape = *shape,
        .in = operands->in,
        .result = operands->result,
        .ctx = ctx,
        .hands_over = operands->hands_over,
    };
    if (direction == CONV_FORWARD)
        TRY(run_forward(&job, operands->filter));
    else
        TRY(run_backprop_input(&job, operands));
    *ret_done = !job.has_nan;
    return NULL;
}
#else
struct status *conv_by_amx(const struct kernel_ctx *ctx, enum conv_direction direction,
                           const struct conv_shape *shape, const struct conv_operands *operands,
                           bool *ret_done) {
    (void)ctx, (void)direction, (void)shape, (void)operands;
    *ret_done = false;
    return NULL;
}
#endif
