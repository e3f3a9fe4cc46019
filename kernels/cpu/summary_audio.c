/* AudioSummary, AudioSummaryV2: sound as WAV files of 16-bit samples. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/string_internal.h"
#include "kernels/cpu/summary_internal.h"

enum { AUDIO_SAMPLE_RATE = 1, AUDIO_N_CHANNELS, AUDIO_N_FRAMES, AUDIO_ENCODED, AUDIO_CONTENT_TYPE };
enum { WAV_HEADER_BYTES = 44, PCM = 1, SAMPLE_BYTES = 2 };

struct audio_state {
    int64_t max_outputs;
    float sample_rate; /* of the first version */
};

struct status *summary_audio_init(struct kernel_init *init) {
    struct audio_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_i(init->node, "max_outputs", &state->max_outputs));
    if (state->max_outputs <= 0)
        return status_invalid("max_outputs must be > 0");
    return node_attr(init->node, "sample_rate") ? node_get_f(init->node, "sample_rate", &state->sample_rate) : NULL;
}

static void add_number(struct str *out, uint32_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; i++)
        str_add_char(out, (char)(value >> (8 * i) & 0xff));
}

struct sound {
    const float *samples;
    int64_t n_frames, n_channels;
    uint32_t sample_rate;
};

static struct status *check(int64_t n_frames, int64_t n_channels, float sample_rate) {
    if (n_channels < 1 || n_channels > UINT16_MAX)
        return status_invalid("num_channels must be in (0, 2^16), got: %lld", (long long)n_channels);
    if (sample_rate >= 4294967296.0f)
        return status_invalid("sample_rate must be in (0, 2^32), got: %g", (double)sample_rate);
    if (n_frames > (INT32_MAX - WAV_HEADER_BYTES) / SAMPLE_BYTES / n_channels)
        return status_invalid("Provided sound of %lld frames is too large for a WAV file", (long long)n_frames);
    return NULL;
}

static void add_wav(const struct sound *sound, struct str *out) {
    uint32_t frame_bytes = (uint32_t)sound->n_channels * SAMPLE_BYTES, n_bytes = (uint32_t)sound->n_frames * frame_bytes;
    int64_t n = sound->n_frames * sound->n_channels;
    str_add(out, "RIFF");
    add_number(out, WAV_HEADER_BYTES - 8 + n_bytes, 4);
    str_add(out, "WAVEfmt ");
    add_number(out, 16, 4);
    add_number(out, PCM, 2);
    add_number(out, (uint32_t)sound->n_channels, 2);
    add_number(out, sound->sample_rate, 4);
    add_number(out, sound->sample_rate * frame_bytes, 4);
    add_number(out, frame_bytes, 2);
    add_number(out, 8 * SAMPLE_BYTES, 2);
    str_add(out, "data");
    add_number(out, n_bytes, 4);
    for (int64_t i = 0; i < n; i++) {
        float v = roundf(sound->samples[i] * 32768.0f);
        int sample = v >= INT16_MAX ? INT16_MAX : v > INT16_MIN ? (int)v : INT16_MIN; /* NaN: the least */
        add_number(out, (uint32_t)(uint16_t)(int16_t)sample, 2);
    }
}

static void add_value(const struct sound *sound, struct span tag, float sample_rate, int index, struct str *out) {
    struct str name = STR_INIT;
    size_t size = WAV_HEADER_BYTES + (size_t)(sound->n_frames * sound->n_channels) * SAMPLE_BYTES + 64;
    size_t value = proto_begin(out, SUMMARY_VALUE, size + tag.len);
    str_add_bytes(&name, tag.data, tag.len);
    str_add(&name, "/audio");
    if (index >= 0)
        str_addf(&name, "/%d", index);
    proto_add_bytes(out, VALUE_TAG, name.data, name.len);
    size_t audio = proto_begin(out, VALUE_AUDIO, size);
    summary_add_float(out, AUDIO_SAMPLE_RATE, sample_rate);
    proto_add_int(out, AUDIO_N_CHANNELS, (uint64_t)sound->n_channels);
    proto_add_int(out, AUDIO_N_FRAMES, (uint64_t)sound->n_frames);
    size_t encoded = proto_begin(out, AUDIO_ENCODED, size - 64);
    add_wav(sound, out);
    proto_end(out, encoded, size - 64);
    proto_add_bytes(out, AUDIO_CONTENT_TYPE, "audio/wav", 9);
    proto_end(out, audio, size);
    proto_end(out, value, size + tag.len);
    str_fini(&name);
}

/* AudioSummary (attr sample_rate), AudioSummaryV2 (input 2): the first max_outputs sounds of a batch.
 *   tag  string, scalar    tensor  float [batch, frames] or [batch, frames, channels], from -1 to 1
 * Errors   INVALID_ARGUMENT   other ranks; a sample rate that is none */
enum kernel_result summary_audio(struct kernel_ctx *ctx) {
    const struct audio_state *state = ctx->instance->state;
    const struct tensor *t = kernel_input(ctx, 1);
    struct span tag;
    struct str out = STR_INIT;
    float rate = state->sample_rate;
    KERNEL_TRY(ctx, summary_scalar_text(ctx, 0, "Tag", &tag));
    if (t->rank != 2 && t->rank != 3) {
        char *shape = string_shape_text(t);
        struct status *st = status_invalid("Tensor must be 3-D or 2-D, got: %s", shape);
        free(shape);
        return kernel_fail(ctx, st);
    }
    if (ctx->instance->n_inputs > 2) {
        if (kernel_input(ctx, 2)->n_elements != 1)
            return kernel_fail(ctx, status_invalid("sample_rate must be a scalar"));
        rate = *(const float *)tensor_cdata(kernel_input(ctx, 2));
    }
    if (!(rate > 0))
        return kernel_fail(ctx, status_invalid("sample_rate must be > 0"));
    struct sound sound = {.n_frames = tensor_dim(t, 1), .n_channels = t->rank == 2 ? 1 : tensor_dim(t, 2)};
    int64_t n = MIN(state->max_outputs, tensor_dim(t, 0));
    if (n > 0)
        KERNEL_TRY(ctx, check(sound.n_frames, sound.n_channels, rate));
    sound.sample_rate = n > 0 ? (uint32_t)MAX(lrintf(rate), 1) : 0;
    for (int64_t i = 0; i < n; i++) {
        sound.samples = (const float *)tensor_cdata(t) + i * sound.n_frames * sound.n_channels;
        add_value(&sound, tag, rate, state->max_outputs > 1 ? (int)i : -1, &out);
    }
    return summary_end(ctx, &out);
}
