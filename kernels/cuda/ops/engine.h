/* The engine of a GPU (kernels/support/device_engine.h): what the CPU's kernels that serve every
 * memory hand their elements to. The device's allocator names it:
 *
 *     static const struct device_memory gpu_memory = {…, .engine = &gpu_engine};
 *
 * The kernels of these ops are rows with KERNEL_OF_CPU (rows/arrays.inc, rows/state.inc,
 * rows/random.inc). */
#ifndef MILLRACE_KERNELS_CUDA_OPS_ENGINE_H
#define MILLRACE_KERNELS_CUDA_OPS_ENGINE_H

#include "kernels/support/device_engine.h"

extern const struct device_engine gpu_engine;

#endif
