/* Runs Dilation2D, out = max over the window of input + filter (grey-scale morphology), and its
 * gradients. A gradient is added where the sum is greatest, and at the first such tap when there
 * are several.
 *
 *   input   T [batch, height, width, channels]
 *   filter  T [rows, columns, channels]
 *   output  T [batch, out height, out width, channels]
 *
 * Taps outside of the input are skipped. Sums are rounded (half, bfloat16) and wrap (integers) as
 * their type does.
 * Errors   INVALID_ARGUMENT   ranks and sizes that do not fit together
 *          UNIMPLEMENTED      strides or rates of batch or channels */
#include <float.h>
#include <stdlib.h>

#include "common/tensor/float16.h"
#include "kernels/cpu/nn/conv_internal.h"
#include "kernels/support/scratch.h"

struct dilation_loops {
    void (*forward_tap)(const void *in, const void *filter, void *out, int64_t n);
    void (*fill)(void *out, int64_t n);
    void (*search_tap)(const void *in, const void *filter, void *best, int64_t *taps, int64_t tap,
                       int64_t n);
    void (*scatter)(void *to, const int64_t *at, const void *gradient, int64_t n);
};

#define PLAIN_SUM(a, b) ((a) + (b))
#define PLAIN_LESS(a, b) ((a) < (b))
#define T float
#define NAME(x) x##_f32
#define SUM PLAIN_SUM
#define LESS PLAIN_LESS
#define LOWEST (-FLT_MAX)
#include "kernels/cpu/nn/dilation_loops.inc"
#define T double
#define NAME(x) x##_f64
#define SUM PLAIN_SUM
#define LESS PLAIN_LESS
#define LOWEST (-DBL_MAX)
#include "kernels/cpu/nn/dilation_loops.inc"
#define T uint16_t
#define NAME(x) x##_half
#define SUM(a, b) half_from_float(half_to_float(a) + half_to_float(b))
#define LESS(a, b) (half_to_float(a) < half_to_float(b))
#define LOWEST 0xfbff
#include "kernels/cpu/nn/dilation_loops.inc"
#define T uint16_t
#define NAME(x) x##_bfloat16
#define SUM(a, b) bfloat16_from_float(bfloat16_to_float(a) + bfloat16_to_float(b))
#define LESS(a, b) (bfloat16_to_float(a) < bfloat16_to_float(b))
#define LOWEST 0xff7f
#include "kernels/cpu/nn/dilation_loops.inc"
#define T int8_t
#define NAME(x) x##_i8
#define SUM(a, b) (int8_t)((uint32_t)(a) + (uint32_t)(b))
#define LESS PLAIN_LESS
#define LOWEST INT8_MIN
#include "kernels/cpu/nn/dilation_loops.inc"
#define T int16_t
#define NAME(x) x##_i16
#define SUM(a, b) (int16_t)((uint32_t)(a) + (uint32_t)(b))
#define LESS PLAIN_LESS
#define LOWEST INT16_MIN
#include "kernels/cpu/nn/dilation_loops.inc"
#define T int32_t
#define NAME(x) x##_i32
#define SUM(a, b) (int32_t)((uint32_t)(a) + (uint32_t)(b))
#define LESS PLAIN_LESS
#define LOWEST INT32_MIN
#include "kernels/cpu/nn/dilation_loops.inc"
#define T int64_t
#define NAME(x) x##_i64
#define SUM(a, b) (int64_t)((uint64_t)(a) + (uint64_t)(b))
#define LESS PLAIN_LESS
#define LOWEST INT64_MIN
#include "kernels/cpu/nn/dilation_loops.inc"
#define T uint8_t
#define NAME(x) x##_u8
#define SUM(a, b) (uint8_t)((a) + (b))
#define LESS PLAIN_LESS
#define LOWEST 0
#include "kernels/cpu/nn/dilation_loops.inc"
#define T uint16_t
#define NAME(x) x##_u16
#define SUM(a, b) (uint16_t)((a) + (b))
#define LESS PLAIN_LESS
#define LOWEST 0
#include "kernels/cpu/nn/dilation_loops.inc"
#define T uint32_t
#define NAME(x) x##_u32
#define SUM PLAIN_SUM
#define LESS PLAIN_LESS
#define LOWEST 0
#include "kernels/cpu/nn/dilation_loops.inc"
#define T uint64_t
#define NAME(x) x##_u64
#define SUM PLAIN_SUM
#define LESS PLAIN_LESS
#define LOWEST 0
#include "kernels/cpu/nn/dilation_loops.inc"

// clang-format off
static const struct dilation_loops *const loops_of[DT_N_TYPES] = {
    [DT_FLOAT] = &loops_f32, [DT_DOUBLE] = &loops_f64, [DT_HALF] = &loops_half, [DT_BFLOAT16] =
        &loops_bfloat16,
    [DT_INT8] = &loops_i8, [DT_INT16] = &loops_i16, [DT_INT32] = &loops_i32, [DT_INT64] =
        &loops_i64,
    [DT_UINT8] = &loops_u8, [DT_UINT16] = &loops_u16, [DT_UINT32] = &loops_u32, [DT_UINT64] =
        &loops_u64,
};
// clang-format on

struct dilation_state {
    enum conv_direction direction;
    struct window_attrs attrs;
    enum dtype dtype;
};

struct status *dilation_init(struct kernel_init *init) {
    struct dilation_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    state->direction = *(const enum conv_direction *)init->arg;
    state->dtype = (enum dtype)init->node->out_types[0];
    TRY(window_attrs_read(init->node, 2, &state->attrs));
    if (state->attrs.strides.batch != 1 || state->attrs.strides.channel != 1)
        return status_unimplemented("Stride is only supported across spatial dimensions.");
    if (state->attrs.rates.batch != 1 || state->attrs.rates.channel != 1)
        return status_unimplemented("Rate is only supported across spatial dimensions.");
    return NULL;
}

/* ---- one image ---- */

struct dilation_job {
    const struct dilation_loops *loops;
    const struct conv_shape *shape; /* in_channels = out_channels */
    const char *in, *filter, *gradient;
    char *result;
    int64_t size;
};

/* The tap's input, or NULL where the tap is outside of the input. */
static const char *tap_at(const struct dilation_job *job, const char *image, int64_t y, int64_t x,
                          int64_t i, int64_t j, int64_t *ret_pixel) {
    const struct conv_shape *s = job->shape;
    int64_t in_y = y * s->stride[1] - s->pad_before[1] + i * s->rate[1],
            in_x = x * s->stride[2] - s->pad_before[2] + j * s->rate[2];
    if (in_y < 0 || in_y >= s->in[1] || in_x < 0 || in_x >= s->in[2])
        return NULL;
    *ret_pixel = in_y * s->in[2] + in_x;
    return image + *ret_pixel * s->in_channels * job->size;
}

static void forward_row(const struct dilation_job *job, const char *image, int64_t y, char *out) {
    const struct conv_shape *s = job->shape;
    int64_t bytes = s->in_channels * job->size, pixel;
    for (int64_t x = 0; x < s->out[2]; x++, out += bytes) {
        job->loops->fill(out, s->in_channels);
        for (int64_t i = 0; i < s->window[1]; i++) {
            for (int64_t j = 0; j < s->window[2]; j++) {
                const char *in = tap_at(job, image, y, x, i, j, &pixel);
                if (in)
                    job->loops->forward_tap(in, job->filter + (i * s->window[2] + j) * bytes, out,
                                            s->in_channels);
            }
        }
    }
}

static void forward_range(void *arg, int64_t begin, int64_t end) {
    const struct dilation_job *job = arg;
    const struct conv_shape *s = job->shape;
    int64_t image = s->in[1] * s->in[2] * s->in_channels * job->size,
            row = s->out[2] * s->in_channels * job->size;
    for (; begin < end; begin++)
        forward_row(job, job->in + begin / s->out[1] * image, begin % s->out[1],
                    job->result + begin * row);
}

/* Finds where the gradient of each channel of one output pixel is added: offsets in elements of the
 * input image or of the filter. `at` starts as the offset for the case that no sum is above the
 * lowest value: the window's first pixel inside the input, or the filter's first tap. */
static void search(const struct dilation_job *job, bool is_filter, const char *image, int64_t y,
                   int64_t x, char *best, int64_t *at) {
    const struct conv_shape *s = job->shape;
    int64_t channels = s->in_channels, first = 0, pixel = 0;
    if (!is_filter)
        first = MAX(0, y * s->stride[1] - s->pad_before[1]) * s->in[2] +
                MAX(0, x * s->stride[2] - s->pad_before[2]);
    first = MIN(first, s->in[1] * s->in[2] - 1);
    for (int64_t c = 0; c < channels; c++)
        at[c] = first * channels;
    job->loops->fill(best, channels);
    for (int64_t i = 0; i < s->window[1]; i++) {
        for (int64_t j = 0; j < s->window[2]; j++) {
            const char *in = tap_at(job, image, y, x, i, j, &pixel);
            int64_t tap = i * s->window[2] + j;
            if (in)
                job->loops->search_tap(in, job->filter + tap * channels * job->size, best, at,
                                       (is_filter ? tap : pixel) * channels, channels);
        }
    }
}

static void backprop(const struct dilation_job *job, bool is_filter, char *best, int64_t *at) {
    const struct conv_shape *s = job->shape;
    int64_t image_bytes = s->in[1] * s->in[2] * s->in_channels * job->size;
    const char *gradient = job->gradient;
    for (int64_t n = 0; n < s->batch; n++) {
        const char *image = job->in + n * image_bytes;
        for (int64_t y = 0; y < s->out[1]; y++) {
            for (int64_t x = 0; x < s->out[2]; x++, gradient += s->in_channels * job->size) {
                search(job, is_filter, image, y, x, best, at);
                job->loops->scatter(is_filter ? job->result : job->result + n * image_bytes, at,
                                    gradient, s->in_channels);
            }
        }
    }
}

/* ---- shapes ---- */

static struct status *require_rank(const struct tensor *t, const char *what, int rank) {
    if (t->rank == rank)
        return NULL;
    return status_invalid("%s must be %d-dimensional: %s", what, rank, TENSOR_SHAPE_TEXT(t));
}

static struct status *geometry_of(const struct dilation_state *state, const struct tensor *t,
                                  struct conv_shape *s, int64_t dims[4]) {
    TRY(require_rank(&t[0], "input", 4));
    TRY(require_rank(&t[1], "filter", 3));
    *s = (struct conv_shape){.in = {1, 1, 1},
                             .out = {1, 1, 1},
                             .window = {1, 1, 1},
                             .stride = {1, 1, 1},
                             .rate = {1, 1, 1}};
    s->batch = dims[0] = tensor_dim(&t[0], 0);
    s->in_channels = s->out_channels = s->groups = dims[3] = tensor_dim(&t[0], 3);
    if (s->in_channels != tensor_dim(&t[1], 2))
        return status_invalid("input and filter must have the same depth: %lld vs %lld",
                              (long long)s->in_channels, (long long)tensor_dim(&t[1], 2));
    for (int i = 0; i < 2; i++)
        TRY(conv_fit_dim(&state->attrs, i, tensor_dim(&t[0], 1 + i), tensor_dim(&t[1], i), s,
                         &dims[1 + i]));
    if (state->direction != CONV_FORWARD &&
        !shape_equal(tensor_shape(&t[2]), (struct shape){4, dims}))
        return status_invalid("out_backprop has incompatible size.");
    return NULL;
}

enum kernel_result dilation_compute(struct kernel_ctx *ctx) {
    const struct dilation_state *state = ctx->instance->state;
    const struct tensor *t = ctx->inputs;
    struct conv_shape s;
    int64_t dims[4];
    KERNEL_TRY(ctx, geometry_of(state, t, &s, dims));
    struct shape shape = state->direction == CONV_FORWARD          ? (struct shape){4, dims}
                         : state->direction == CONV_BACKPROP_INPUT ? tensor_shape(&t[0])
                                                                   : tensor_shape(&t[1]);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->dtype, shape));
    struct tensor *result = &ctx->outputs[0];
    struct dilation_job job = {.loops = loops_of[state->dtype],
                               .shape = &s,
                               .in = tensor_cdata(&t[0]),
                               .filter = tensor_cdata(&t[1])};
    job.result = tensor_data(result);
    job.size = (int64_t)dtype_size(state->dtype);
    if (result->n_elements == 0)
        return KERNEL_DONE;
    if (state->direction == CONV_FORWARD) {
        double cost_ns = (double)(s.out[2] * s.in_channels * s.window[1] * s.window[2]) * 0.5;
        pool_parallel_for(ctx->pool, s.batch * s.out[1], cost_ns, forward_range, &job);
        return KERNEL_DONE;
    }
    memset(job.result, 0, tensor_size_bytes(result));
    job.gradient = tensor_cdata(&t[2]);
    struct tensor best = TENSOR_INIT, at = TENSOR_INIT;
    void *best_data, *at_data;
    if (t[0].n_elements == 0 || t[2].n_elements == 0)
        return KERNEL_DONE;
    KERNEL_TRY(ctx, scratch_new(ctx, state->dtype, s.in_channels, 1, &best, &best_data));
    struct status *st = scratch_new(ctx, DT_INT64, s.in_channels, 1, &at, &at_data);
    if (!st)
        backprop(&job, state->direction == CONV_BACKPROP_FILTER, best_data, at_data);
    tensor_clear(&best);
    tensor_clear(&at);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}
