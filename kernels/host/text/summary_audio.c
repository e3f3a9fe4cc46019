/* Computes AudioSummary and AudioSummaryV2, which write sound as WAV files of 16-bit samples. */
#include <math.h>
#include <stdlib.h>

#include "kernels/host/text/string_internal.h"
#include "kernels/host/text/summary_internal.h"
#include "kernels/cpu/media/wav.h"

enum { AUDIO_SAMPLE_RATE = 1, AUDIO_N_CHANNELS, AUDIO_N_FRAMES, AUDIO_ENCODED, AUDIO_CONTENT_TYPE };

struct audio_state {
    int64_t max_outputs;
    float sample_rate; /* the first version's attr */
};

struct status *summary_audio_init(struct kernel_init *init) {
    struct audio_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_i32(init->node, "max_outputs", &state->max_outputs));
    if (state->max_outputs <= 0)
        return status_invalid("max_outputs must be > 0");
    return node_attr(init->node, "sample_rate")
               ? node_get_f(init->node, "sample_rate", &state->sample_rate)
               : NULL;
}

static void add_value(const struct wav_sound *sound, struct span tag, float sample_rate, int index,
                      struct str *out) {
    struct str name = STR_INIT;
    size_t size = wav_size_bytes(sound) + 64;
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
    wav_write(sound, out);
    proto_end(out, encoded, size - 64);
    proto_add_bytes(out, AUDIO_CONTENT_TYPE, "audio/wav", 9);
    proto_end(out, audio, size);
    proto_end(out, value, size + tag.len);
    str_fini(&name);
}

struct status *summary_add_audio(const struct tensor *t, struct span tag, float rate,
                                 int64_t max_outputs, struct str *out) {
    if (t->rank != 2 && t->rank != 3) {
        struct status *st =
            status_invalid("Tensor must be 3-D or 2-D, got: %s", TENSOR_SHAPE_TEXT(t));
        return st;
    }
    if (!(rate > 0))
        return status_invalid("sample_rate must be > 0");
    struct wav_sound sound = {.n_frames = tensor_dim(t, 1),
                              .n_channels = t->rank == 2 ? 1 : tensor_dim(t, 2)};
    int64_t n = MIN(max_outputs, tensor_dim(t, 0));
    if (n > 0)
        TRY(wav_check(sound.n_frames, sound.n_channels, rate));
    sound.sample_rate = n > 0 ? (uint32_t)MAX(lrintf(rate), 1) : 0;
    for (int64_t i = 0; i < n; i++) {
        sound.samples = (const float *)tensor_cdata(t) + i * sound.n_frames * sound.n_channels;
        add_value(&sound, tag, rate, max_outputs > 1 ? (int)i : -1, out);
    }
    return NULL;
}

/* AudioSummary (attr sample_rate), AudioSummaryV2 (input 2): the first max_outputs sounds of a
 * batch.
 *   tag      string, scalar
 *   tensor   float [batch, frames] or [batch, frames, channels], from -1 to 1
 * Errors   INVALID_ARGUMENT   other ranks; a sample rate that is not positive */
enum kernel_result summary_audio(struct kernel_ctx *ctx) {
    const struct audio_state *state = ctx->instance->state;
    struct span tag;
    struct str out = STR_INIT;
    float rate = state->sample_rate;
    KERNEL_TRY(ctx, summary_scalar_text(ctx, 0, "Tag", &tag));
    if (ctx->instance->n_inputs > 2) {
        if (kernel_input(ctx, 2)->n_elements != 1)
            return kernel_fail(ctx, status_invalid("sample_rate must be a scalar"));
        rate = *(const float *)tensor_cdata(kernel_input(ctx, 2));
    }
    struct status *st =
        summary_add_audio(kernel_input(ctx, 1), tag, rate, state->max_outputs, &out);
    if (!st)
        return summary_end(ctx, &out);
    str_fini(&out);
    return kernel_fail(ctx, st);
}
