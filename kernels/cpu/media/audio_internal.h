/* What the files of the audio kernels share. */
#ifndef MILLRACE_KERNELS_CPU_MEDIA_AUDIO_INTERNAL_H
#define MILLRACE_KERNELS_CPU_MEDIA_AUDIO_INTERNAL_H

#include "kernels/kernel.h"

/* audio_spectrum.c */
struct status *audio_spectrogram_init(struct kernel_init *init);
void audio_spectrogram_fini(void *state);
struct status *audio_mfcc_init(struct kernel_init *init);
kernel_fn audio_spectrogram, audio_mfcc;

#endif
