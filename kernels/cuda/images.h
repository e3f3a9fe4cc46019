/* The compiled kernels, embedded in the plugin: a fatbin for each kernel file (.cu). Made by
 * tools/embed_images.py at build time. None where the build found no nvcc. */
#ifndef MILLRACE_KERNELS_CUDA_IMAGES_H
#define MILLRACE_KERNELS_CUDA_IMAGES_H

#include <stddef.h>

extern const void *const gpu_images[];
extern const size_t n_gpu_images;

#endif
