/* Registers host memory that the task shares with others (common/tensor/shared_areas.h), so that a
 * device copies to and from it without a piece of pinned memory in between.
 *
 * A range is registered when it is first copied from or to: a block of the task's own arena, or the
 * pages of a value in a peer's, which are mapped read-only. It stays registered until its pages are
 * given back, unmapped or replaced, until its device is closed, or until others need its place. The
 * arenas are far larger than memory, so they cannot be registered as a whole.
 *
 * Any thread whose current context is the device's. */
#ifndef MILLRACE_KERNELS_CUDA_GPU_HOST_MEMORY_H
#define MILLRACE_KERNELS_CUDA_GPU_HOST_MEMORY_H

#include "kernels/cuda/gpu_device.h"

enum { GPU_MAX_HOST_RANGES = 1024 };
#define GPU_MAX_HOST_RANGE_BYTES ((size_t)8 << 30) /* registered at one time */

struct gpu_host_range;

/* Begins and ends to follow what happens to shared areas: once a process. */
void gpu_host_memory_open(void);
void gpu_host_memory_close(void);
/* Unregisters what the device has registered. Its context is current, and it copies no more. What
 * another device still uses is left to that. */
void gpu_host_memory_forget(struct gpu_device *gpu);

/* Makes sure that the memory of the value is registered, and that it stays so until
 * gpu_host_memory_unuse. NULL: it is not, or another thread is registering it, so the value has to
 * be copied through pinned memory. A failure of the driver is logged once. `is_written`: the device
 * will write to it. */
struct gpu_host_range *gpu_host_memory_use(struct gpu_device *gpu, const struct tensor *value,
                                           bool is_written);
/* The caller still holds the value. Accepts NULL. */
void gpu_host_memory_unuse(struct gpu_host_range *range);

#endif
