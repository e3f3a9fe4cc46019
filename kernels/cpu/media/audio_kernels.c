/* Lists the CPU kernels of sound, and reads and writes WAV files as tensors. */
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "kernels/cpu/media/audio_internal.h"
#include "kernels/cpu/media/wav.h"
#include "kernels/kernel.h"

extern const struct kernel_list audio_kernels;

struct decode_state {
    int64_t channels, samples; /* -1: as in the file */
};

static struct status *decode_init(struct kernel_init *init) {
    struct decode_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_i32(init->node, "desired_channels", &state->channels));
    return node_get_i32(init->node, "desired_samples", &state->samples);
}

static float sample_at(struct span samples, int64_t i) {
    const uint8_t *at = (const uint8_t *)samples.data + 2 * i;
    return (float)(int16_t)(uint16_t)(at[0] | at[1] << 8) / 32768.0f;
}

/* DecodeWav.
 *   contents      string, scalar
 *   audio         float [samples, channels], from -1 to 1
 *   sample_rate   int32, scalar
 * desired_samples cuts the sound off, or adds silence. desired_channels drops channels, or repeats
 * the last channel.
 * Errors   INVALID_ARGUMENT   bytes that are no WAV file of 16-bit samples */
static enum kernel_result decode_compute(struct kernel_ctx *ctx) {
    const struct decode_state *state = ctx->instance->state;
    const struct tensor *contents = kernel_input(ctx, 0);
    struct wav_file file;
    if (contents->rank != 0)
        return kernel_fail(ctx, status_invalid("contents must be scalar, got shape %s",
                                               TENSOR_SHAPE_TEXT(contents)));
    struct span bytes = tensor_string(contents, 0);
    if (bytes.len > INT32_MAX)
        return kernel_fail(ctx,
                           status_invalid("WAV contents are too large for int: %zu", bytes.len));
    KERNEL_TRY(ctx, wav_read(bytes, &file));
    int64_t dims[2] = {state->samples == -1 ? file.n_frames : state->samples,
                       state->channels == -1 ? file.n_channels : state->channels};
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_FLOAT, (struct shape){2, dims}));
    float *out = tensor_data(&ctx->outputs[0]);
    for (int64_t frame = 0; frame < dims[0] && pool_goes_on_rows(frame, dims[1]); frame++) {
        for (int64_t channel = 0; channel < dims[1]; channel++) {
            int64_t from = frame * file.n_channels + MIN(channel, file.n_channels - 1);
            *out++ = frame < file.n_frames ? sample_at(file.samples, from) : 0;
        }
    }
    tensor_init_scalar_i32(&ctx->outputs[1], (int32_t)file.sample_rate);
    return KERNEL_DONE;
}

/* EncodeWav.
 *   audio         float [samples, channels], from -1 to 1
 *   sample_rate   int32, scalar
 *   contents      string, scalar
 * Errors   INVALID_ARGUMENT   other ranks; a rate that is not positive; sound that is too long */
static enum kernel_result encode_compute(struct kernel_ctx *ctx) {
    const struct tensor *audio = kernel_input(ctx, 0), *rate = kernel_input(ctx, 1);
    if (audio->rank != 2)
        return kernel_fail(ctx, status_invalid("audio must be 2-dimensional but got shape %s",
                                               TENSOR_SHAPE_TEXT(audio)));
    if (rate->rank != 0)
        return kernel_fail(ctx, status_invalid("sample_rate must be scalar, but got shape %s",
                                               TENSOR_SHAPE_TEXT(rate)));
    int32_t hz = *(const int32_t *)tensor_cdata(rate);
    struct wav_sound sound = {tensor_cdata(audio), tensor_dim(audio, 0), tensor_dim(audio, 1),
                              (uint32_t)hz};
    if (hz <= 0)
        return kernel_fail(ctx, status_invalid("sample_rate must be in (0, 2^32), got: %d", hz));
    KERNEL_TRY(ctx, wav_check(sound.n_frames, sound.n_channels, (float)hz));
    struct str out = STR_INIT;
    wav_write(&sound, &out);
    struct bytes *bytes = bytes_new(str_text(&out), out.len);
    str_fini(&out);
    tensor_init_scalar_object(&ctx->outputs[0], DT_STRING, &bytes->object);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {"DecodeWav", .compute = decode_compute, .init = decode_init},
    {"EncodeWav", .compute = encode_compute},
    {"AudioSpectrogram", .compute = audio_spectrogram, .init = audio_spectrogram_init,
        .fini = audio_spectrogram_fini},
    {"Mfcc", .compute = audio_mfcc, .init = audio_mfcc_init},
};
// clang-format on

const struct kernel_list audio_kernels = {rows, ARRAY_LEN(rows)};
