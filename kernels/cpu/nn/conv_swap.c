/* Computes convolutions with few output channels with image and result exchanged, because libraries
 * compute whole vectors of output channels: with one channel they waste 15 of 16 lanes.
 *
 *   forward          is the input gradient of a convolution from the result to the image
 *   filter gradient  is the filter gradient of a convolution from the result to the image
 *
 * The exchanged convolution has few input channels, the mirrored filter, and what is left of the
 * window as its padding. Strides must be one. */
#include "kernels/cpu/nn/conv_internal.h"
#include "kernels/support/scratch.h"

enum { FEW_CHANNELS = 4, MANY_CHANNELS = 16 };

bool conv_has_few_inputs(const struct conv_shape *s) {
    return s->groups == 1 && s->in_channels <= FEW_CHANNELS && s->out_channels >= MANY_CHANNELS;
}

bool conv_swaps(enum conv_direction direction, const struct conv_shape *s) {
    if (direction == CONV_BACKPROP_INPUT || s->groups != 1 || s->out_channels > FEW_CHANNELS ||
        s->in_channels < MANY_CHANNELS)
        return false;
    for (int i = 0; i < 3; i++) {
        if (s->stride[i] != 1 || s->rate[i] != 1 || s->pad_before[i] >= s->window[i])
            return false;
    }
    return true;
}

/* filter[t, c, o] as mirrored[-t, o, c] */
static void mirror(int64_t taps, int64_t c, int64_t o, const float *filter, float *mirrored) {
    for (int64_t t = 0; t < taps; t++) {
        const float *from = filter + (taps - 1 - t) * c * o;
        float *to = mirrored + t * c * o;
        for (int64_t i = 0; i < c; i++) {
            for (int64_t j = 0; j < o; j++)
                to[j * c + i] = from[i * o + j];
        }
    }
}

struct status *conv_mirrored(const struct kernel_ctx *ctx, const struct conv_shape *s,
                             const float *filter, struct tensor *ret_scratch, float **ret) {
    int64_t taps = conv_n_positions(s->window);
    TRY(scratch_new(ctx, DT_FLOAT, taps * s->in_channels, s->out_channels, ret_scratch, ret));
    if (filter)
        mirror(taps, s->in_channels, s->out_channels, filter, *ret);
    return NULL;
}

struct conv_shape conv_exchanged(const struct conv_shape *s) {
    struct conv_shape exchanged = *s;
    exchanged.in_channels = s->out_channels, exchanged.out_channels = s->in_channels;
    for (int i = 0; i < 3; i++) {
        exchanged.in[i] = s->out[i], exchanged.out[i] = s->in[i];
        exchanged.pad_before[i] = s->window[i] - 1 - s->pad_before[i];
    }
    return exchanged;
}

struct status *conv_swapped(const struct kernel_ctx *ctx, enum conv_direction direction,
                            const struct conv_shape *s, const struct conv_operands *o) {
    struct conv_shape exchanged = conv_exchanged(s);
    struct tensor scratch = TENSOR_INIT;
    float *filter;
    struct status *st = NULL;
    bool is_forward = direction == CONV_FORWARD;
    TRY_OUT(conv_mirrored(ctx, s, is_forward ? o->filter : NULL, &scratch, &filter));
    TRY_OUT(conv_run(ctx, is_forward ? CONV_BACKPROP_INPUT : CONV_BACKPROP_FILTER, &exchanged,
                     DT_FLOAT,
                     &(struct conv_operands){.in = o->out,
                                             .filter = filter,
                                             .out = o->in,
                                             .result = is_forward ? o->result : filter}));
    if (!is_forward)
        mirror(conv_n_positions(s->window), s->out_channels, s->in_channels, filter, o->result);
out:
    tensor_clear(&scratch);
    return st;
}
