/* Reads and writes WAV files [Microsoft/IBM: "Multimedia Programming Interface and Data
 * Specifications 1.0", 1991]:
 *
 *   "RIFF" size "WAVE" │ "fmt " 16 format channels rate bytes/s bytes/frame bits/sample │ chunks …
 *   │ "data" size samples */
#include "kernels/cpu/media/wav.h"

#include <math.h>

#include "common/base/pool_cancel.h"

enum { WAV_HEADER_BYTES = 44, PCM = 1, SAMPLE_BYTES = 2 };

/* ---- writing ---- */

struct status *wav_check(int64_t n_frames, int64_t n_channels, float sample_rate) {
    if (n_channels < 1 || n_channels > UINT16_MAX)
        return status_invalid("num_channels must be in (0, 2^16), got: %lld",
                              (long long)n_channels);
    if (sample_rate >= 4294967296.0f)
        return status_invalid("sample_rate must be in (0, 2^32), got: %g", (double)sample_rate);
    if (n_frames > (INT32_MAX - WAV_HEADER_BYTES) / SAMPLE_BYTES / n_channels)
        return status_invalid("Provided sound of %lld frames is too large for a WAV file",
                              (long long)n_frames);
    return NULL;
}

size_t wav_size_bytes(const struct wav_sound *sound) {
    return WAV_HEADER_BYTES + (size_t)(sound->n_frames * sound->n_channels) * SAMPLE_BYTES;
}

void wav_write(const struct wav_sound *sound, struct str *out) {
    uint32_t frame_bytes = (uint32_t)sound->n_channels * SAMPLE_BYTES,
             n_bytes = (uint32_t)sound->n_frames * frame_bytes;
    int64_t n = sound->n_frames * sound->n_channels;
    str_add(out, "RIFF");
    str_add_little_endian(out, WAV_HEADER_BYTES - 8 + n_bytes, 4);
    str_add(out, "WAVEfmt ");
    str_add_little_endian(out, 16, 4);
    str_add_little_endian(out, PCM, 2);
    str_add_little_endian(out, (uint32_t)sound->n_channels, 2);
    str_add_little_endian(out, sound->sample_rate, 4);
    str_add_little_endian(out, sound->sample_rate * frame_bytes, 4);
    str_add_little_endian(out, frame_bytes, 2);
    str_add_little_endian(out, 8 * SAMPLE_BYTES, 2);
    str_add(out, "data");
    str_add_little_endian(out, n_bytes, 4);
    for (int64_t i = 0; i < n && pool_goes_on(i); i++) {
        float v = roundf(sound->samples[i] * 32768.0f);
        /* a NaN becomes the least */
        int sample = v >= INT16_MAX ? INT16_MAX : v > INT16_MIN ? (int)v : INT16_MIN;
        str_add_little_endian(out, (uint32_t)(uint16_t)(int16_t)sample, 2);
    }
}

/* ---- reading ---- */

struct reading {
    const uint8_t *at;
    size_t left;
};

static struct status *take(struct reading *in, size_t n, const uint8_t **ret) {
    if (n > in->left)
        return status_invalid("Data too short when trying to read %zu bytes of a WAV file", n);
    *ret = in->at;
    in->at += n;
    in->left -= n;
    return NULL;
}

static uint32_t number_at(const uint8_t *at, int n_bytes) {
    uint32_t value = 0;
    for (int i = 0; i < n_bytes; i++)
        value |= (uint32_t)at[i] << (8 * i);
    return value;
}

static struct status *expect(struct reading *in, const char *text) {
    const uint8_t *at = NULL;
    TRY(take(in, 4, &at));
    if (memcmp(at, text, 4) != 0)
        return status_invalid("Header mismatch: Expected %s but found %.4s", text,
                              (const char *)at);
    return NULL;
}

/* Reads the "fmt " chunk. Its last two numbers follow from the others. */
static struct status *read_format(struct reading *in, struct wav_file *ret) {
    const uint8_t *at = NULL;
    TRY(expect(in, "fmt "));
    TRY(take(in, 4, &at));
    uint32_t size = number_at(at, 4);
    if (size != 16 && size != 18)
        return status_invalid("Bad format chunk size for WAV: Expected 16 or 18, but got %u", size);
    TRY(take(in, size, &at));
    uint32_t format = number_at(at, 2), channels = number_at(at + 2, 2),
             rate = number_at(at + 4, 4);
    uint32_t second = number_at(at + 8, 4), frame = number_at(at + 12, 2),
             bits = number_at(at + 14, 2);
    if (format != PCM)
        return status_invalid("Bad audio format for WAV: Expected 1 (PCM), but got %u", format);
    if (channels < 1)
        return status_invalid("Bad number of channels for WAV: Expected at least 1, but got %u",
                              channels);
    if (bits != 8 * SAMPLE_BYTES)
        return status_invalid("Can only read 16-bit WAV files, but received %u", bits);
    if (frame != channels * SAMPLE_BYTES)
        return status_invalid("Bad bytes per sample in WAV header: Expected %u but got %u",
                              channels * SAMPLE_BYTES, frame);
    if (second != frame * rate)
        return status_invalid("Bad bytes per second in WAV header: Expected %u but got %u",
                              frame * rate, second);
    ret->n_channels = channels;
    ret->sample_rate = rate;
    return NULL;
}

struct status *wav_read(struct span bytes, struct wav_file *ret) {
    struct reading in = {(const uint8_t *)bytes.data, bytes.len};
    const uint8_t *at = NULL;
    *ret = (struct wav_file){.n_channels = 0};
    TRY(expect(&in, "RIFF"));
    TRY(take(&in, 4, &at));
    TRY(expect(&in, "WAVE"));
    TRY(read_format(&in, ret));
    bool was_found = false;
    while (in.left > 0) {
        const uint8_t *head = NULL;
        TRY(take(&in, 8, &head));
        uint32_t size = number_at(head + 4, 4);
        if (size > INT32_MAX)
            return status_invalid(
                "WAV data chunk '%.4s' is too large: %u bytes, but the limit is 2147483647",
                (const char *)head, size);
        TRY(take(&in, size, &at));
        if (memcmp(head, "data", 4) != 0)
            continue;
        if (was_found)
            return status_invalid("More than one data chunk found in WAV");
        was_found = true;
        ret->n_frames = size / (ret->n_channels * SAMPLE_BYTES);
        ret->samples = (struct span){(const char *)at,
                                     (size_t)(ret->n_frames * ret->n_channels) * SAMPLE_BYTES};
    }
    return was_found ? NULL : status_invalid("No data chunk found in WAV");
}
