/* What the files about copies share: jobs, and the copiers that serve them (gpu_device.h). */
#ifndef MILLRACE_KERNELS_CUDA_GPU_COPIES_H
#define MILLRACE_KERNELS_CUDA_GPU_COPIES_H

#include "common/tensor/growing_buffer.h"
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
    /* of a copy of a growing value to the device (gpu_arriving.c): */
    struct gpu_copier *copier; /* who goes on when more has come */
    struct growing_wait more;
    struct tensor made; /* the new value, from the first piece on */
    size_t n_copied;    /* bytes of it */
    int slot;           /* of a copy by the outbox, into `made` */
};

/* The job holds the value until its end. Others who lack memory of the value's device wait for that
 * (gpu_device.n_copies). */
void gpu_job_hold_take(struct gpu_job *job, struct tensor *value);
/* Frees the job, and what it holds. */
void gpu_job_free(struct gpu_device *gpu, struct gpu_job *job);
/* Takes away whom a job has to tell. Both are NULL if a probe has told them already. */
void gpu_job_take_callers(struct gpu_copier *copier, struct gpu_job *job,
                          struct device_copy **ret_copy, struct device_wait **ret_wait);
/* Any thread. */
void gpu_copier_submit(struct gpu_copier *copier, struct gpu_job *job);
void gpu_copier_submit_first(struct gpu_copier *copier,
                             struct gpu_job *job); /* it is served next */

/* ---- copies to the device (gpu_copies.c); on the copier's thread ---- */

/* Makes the buffer the memory of a new value like `value`, and of `job` a job that waits for what
 * used the buffer before. *ret holds nothing after a failure. `job` may be NULL. */
struct status *gpu_wrap_destination(struct gpu_device *gpu, const struct tensor *value,
                                    struct buffer *buffer_take, uint64_t free_number,
                                    struct gpu_job *job, struct tensor *ret) MUST_USE;
/* The copier's stream may write to the new value, once it has waited for the job's event. */
struct status *gpu_begin_copy_in(struct gpu_copier *copier, const struct gpu_job *job,
                                 const struct tensor *to) MUST_USE;
/* Waits for what is enqueued on the copier's stream, also after a failure `st_take`, which is then
 * returned. With is_last, later work of the compute stream finds the value. */
struct status *gpu_end_copy_in_take(struct gpu_copier *copier, struct status *st_take,
                                    bool is_last) MUST_USE;
/* Copies the job's value, which is whole, and ends the job. */
void gpu_run_copy_in(struct gpu_copier *copier, struct gpu_job *job);
/* Hands over the value, or the failure, unless a probe has ended the copy already. */
void gpu_end_copy_take(struct gpu_copier *copier, struct gpu_job *job, struct status *st,
                       struct tensor *value);
/* Starts a copy of a growing value to the device (gpu_arriving.c). Any thread. */
void gpu_arriving_start(struct gpu_device *gpu, struct gpu_job *job);

/* ---- waits (gpu_waits.c): see struct device_ops ---- */

bool gpu_wait_start(struct device *device, struct device_wait *wait);
bool gpu_catch_up_start(struct device *device, struct device_wait *wait);

#endif
