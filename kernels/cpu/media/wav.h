/* Reads and writes WAV files with 16-bit samples. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_MEDIA_WAV_H
#define MILLRACE_KERNELS_CPU_MEDIA_WAV_H

#include "common/base/status.h"
#include "common/base/str.h"

struct wav_sound {
    const float *samples; /* [n_frames, n_channels], from -1 to 1 */
    int64_t n_frames, n_channels;
    uint32_t sample_rate;
};
/* Errors: INVALID_ARGUMENT when a WAV file cannot express these numbers. */
struct status *wav_check(int64_t n_frames, int64_t n_channels, float sample_rate) MUST_USE;
size_t wav_size_bytes(const struct wav_sound *sound);
/* Appends the file to `out`. wav_check must have accepted the sound. */
void wav_write(const struct wav_sound *sound, struct str *out);

/* The contents of a file. The samples point into the file's bytes: little-endian, two bytes each.
 */
struct wav_file {
    struct span samples;
    int64_t n_frames, n_channels;
    uint32_t sample_rate;
};
/* Errors: INVALID_ARGUMENT when the bytes are no WAV file, or one without 16-bit samples. */
struct status *wav_read(struct span bytes, struct wav_file *ret) MUST_USE;

#endif
