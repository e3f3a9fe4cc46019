/* Waits for sizes that the device computes (sized_job.h). */
#include "kernels/cuda/ops/sized_job.h"

#include <stdlib.h>

#include "kernels/support/cancel.h"

static void job_free(struct sized_job *job) {
    if (job->fini)
        job->fini(job);
    free(job);
}

static void run(struct sized_job *job) {
    struct kernel_ctx *ctx = job->ctx;
    struct status *st = job->read.status;
    if (!st)
        st = kernel_check_cancelled(ctx);
    if (!st)
        st = job->finish(job, tensor_cdata(&job->read.value));
    tensor_clear(&job->read.value);
    gpu_read_end(&job->read);
    job_free(job);
    if (st)
        kernel_fail(ctx, st);
    ctx->host->done(ctx);
}

static void run_task(struct pool_task *task) { run(CONTAINER_OF(task, struct sized_job, task)); }

/* On a copier's thread, which must not wait for memory. */
static void on_read(struct gpu_read *read) {
    struct sized_job *job = CONTAINER_OF(read, struct sized_job, read);
    job->task.run = run_task;
    if (job->ctx->pool)
        pool_submit(job->ctx->pool, &job->task);
    else
        run(job);
}

enum kernel_result sized_job_start_take(struct sized_job *job, struct buffer *sizes,
                                        size_t size_bytes) {
    job->read.on_done = on_read;
    gpu_read_start(job->ctx, &job->read, sizes, size_bytes);
    return KERNEL_PENDING;
}

enum kernel_result sized_job_end_take(struct sized_job *job, struct status *status_take,
                                      struct buffer *sizes, size_t size_bytes) {
    if (!status_take)
        return sized_job_start_take(job, sizes, size_bytes);
    struct kernel_ctx *ctx = job->ctx;
    job_free(job);
    return kernel_fail(ctx, status_take);
}
