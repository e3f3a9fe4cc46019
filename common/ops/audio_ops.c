/* Lists the audio family: reading and writing WAV files, and spectra. */
#include "common/ops/op_def.h"

static struct status *desired(struct shape_inference *ctx, const char *attr, int64_t *ret) {
    TRY(node_get_i(ctx->node, attr, ret));
    if (*ret < -1)
        return status_invalid("%s must be non-negative or -1, got %lld", attr, (long long)*ret);
    return NULL;
}

static struct status *shape_decode_wav(struct shape_inference *ctx) {
    int64_t dims[2];
    TRY(shape_require_rank(ctx, 0, 0, NULL));
    TRY(desired(ctx, "desired_channels", &dims[1]));
    TRY(desired(ctx, "desired_samples", &dims[0]));
    ctx->out[0] = shape_make(ctx, 2, dims);
    ctx->out[1] = (struct shape){0, NULL};
    return NULL;
}

static struct status *shape_encode_wav(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 2, NULL));
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    return shape_scalar(ctx);
}

static struct status *shape_spectrogram(struct shape_inference *ctx) {
    struct shape in;
    int64_t window, stride, length = 1;
    TRY(shape_require_rank(ctx, 0, 2, &in));
    TRY(node_get_i(ctx->node, "window_size", &window));
    TRY(node_get_i(ctx->node, "stride", &stride));
    int64_t samples = in.rank == 2 ? in.dims[0] : -1;
    int64_t dims[3] = {in.rank == 2 ? in.dims[1] : -1, -1, -1};
    if (window < 2 || window > INT32_MAX / 4 || stride < 1) { /* the kernel reports it */
        ctx->out[0] = shape_make(ctx, 3, dims);
        return NULL;
    }
    while (length < window)
        length *= 2;
    dims[1] = samples < 0 ? -1 : samples < window ? 0 : 1 + (samples - window) / stride;
    dims[2] = length / 2 + 1;
    ctx->out[0] = shape_make(ctx, 3, dims);
    return NULL;
}

static struct status *shape_mfcc(struct shape_inference *ctx) {
    struct shape in;
    int64_t n;
    TRY(shape_require_rank(ctx, 0, 3, &in));
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    TRY(node_get_i(ctx->node, "dct_coefficient_count", &n));
    int64_t dims[3] = {in.rank == 3 ? in.dims[0] : -1, in.rank == 3 ? in.dims[1] : -1,
                       n < 0 ? -1 : n};
    ctx->out[0] = shape_make(ctx, 3, dims);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"DecodeWav", "sound from the bytes of a WAV file of 16-bit samples", shape_decode_wav},
    {"EncodeWav", "sound as the bytes of a WAV file", shape_encode_wav},
    {"AudioSpectrogram", "the energies of sound's frequencies over time", shape_spectrogram},
    {"Mfcc", "mel-frequency cepstral coefficients of a spectrogram", shape_mfcc},
};
// clang-format on

const struct op_def_list audio_ops = {rows, ARRAY_LEN(rows)};
