/* The engine of a GPU (kernels/support/device_engine.h): what the CPU's kernels that serve every
 * memory hand their elements to. The plugin hands it to each device that it opens, whose allocator
 * names it (device_memory.engine).
 *
 * The kernels of these ops are rows with KERNEL_OF_CPU (rows/arrays.inc, rows/state.inc,
 * rows/random.inc). */
#ifndef MILLRACE_KERNELS_CUDA_OPS_ENGINE_H
#define MILLRACE_KERNELS_CUDA_OPS_ENGINE_H

#include "kernels/support/device_engine.h"

extern const struct device_engine gpu_engine;

#endif
