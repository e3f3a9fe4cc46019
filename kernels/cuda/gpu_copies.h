/* What the files about copies share: jobs, and the copiers that serve them (gpu_device.h). */
#ifndef MILLRACE_KERNELS_CUDA_GPU_COPIES_H
#define MILLRACE_KERNELS_CUDA_GPU_COPIES_H

#include "kernels/cuda/gpu_device.h"

struct gpu_job {
    struct list link;
    void (*run)(struct gpu_copier *copier, struct gpu_job *job);
    CUevent ready;               /* what the compute stream must have passed; NULL: nothing */
    uint64_t number;             /* of the compute stream at `ready` */
    struct status *status;       /* why the job cannot start, or NULL */
    struct allocator *allocator; /* of a copy's new value */
    /* Whom to tell. Guarded by the copier's lock once the job is submitted: who takes the pointer
     * away ends the copy or the wait. */
    struct device_copy *copy;
    struct device_wait *wait;
    struct gpu_device *to;  /* of a copy between devices through the host */
    struct tensor held;     /* what stays alive until the job has ended */
    struct buffer *growing; /* device_copy.growing: a reference */
};

/* Frees the job, and what it holds. */
void gpu_job_free(struct gpu_device *gpu, struct gpu_job *job);
/* Takes away whom a job has to tell. Both are NULL if a probe has told them already. */
void gpu_job_take_callers(struct gpu_copier *copier, struct gpu_job *job,
                          struct device_copy **ret_copy, struct device_wait **ret_wait);
/* Any thread. */
void gpu_copier_submit(struct gpu_copier *copier, struct gpu_job *job);
void gpu_copier_submit_first(struct gpu_copier *copier,
                             struct gpu_job *job); /* it is served next */

/* ---- waits (gpu_waits.c): see struct device_ops ---- */

bool gpu_wait_start(struct device *device, struct device_wait *wait);
bool gpu_catch_up_start(struct device *device, struct device_wait *wait);

#endif
