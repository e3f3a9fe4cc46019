/* A kernel whose outputs have sizes that the device computes (Where, Unique, DynamicPartition).
 *
 *   compute   enqueues what counts ── copy of the sizes to the host ── KERNEL_PENDING
 *   finish    on a pool thread: makes the outputs, enqueues what fills them ── done
 *
 * No thread waits. The jobs of a step are finished one after another, when it has nothing else to
 * run (gpu_read_start). The job keeps the scratch memory that both parts use; the kernel's inputs
 * stay until it is done. A step that was cancelled meanwhile is not finished. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_SIZED_JOB_H
#define MILLRACE_KERNELS_CUDA_OPS_SIZED_JOB_H

#include "common/base/pool.h"
#include "kernels/cuda/gpu_kernel.h"

struct sized_job {
    struct kernel_ctx *ctx;
    /* Makes the outputs. `sizes` are the bytes that were copied. Any thread. */
    struct status *(*finish)(struct sized_job *job, const void *sizes);
    void (*fini)(struct sized_job *job); /* NULL, or frees what the job keeps, but not the job */
    /* ---- private ---- */
    struct gpu_read read;
    struct pool_task task;
};

/* Starts to copy the first size_bytes of a device's buffer, and takes the job, which was malloc'd.
 * Returns KERNEL_PENDING. */
enum kernel_result sized_job_start_take(struct sized_job *job, struct buffer *sizes,
                                        size_t size_bytes);
/* The end of a compute function: starts the copy, or gives up with a status. */
enum kernel_result sized_job_end_take(struct sized_job *job, struct status *status_take,
                                      struct buffer *sizes, size_t size_bytes);

#endif
