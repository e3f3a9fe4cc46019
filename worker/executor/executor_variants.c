/* Copies variants between memories: each tensor of the lists in a value is a copy of its own, and
 * all of them are under way at the same time (kernels/support/variant_copy.h). */
#include <stdlib.h>

#include "kernels/support/variant_copy.h"
#include "worker/executor/executor_internal.h"

struct place_copy {
    struct device_copy copy;
    struct variant_job *job;
};

struct variant_job {
    struct async_op *op;
    struct status *status; /* why there are no places */
    struct tensor value;   /* becomes the output */
    struct variant_places places;
    struct place_copy *copies; /* one for each place */
    _Atomic int64_t n_left;    /* copies that have not ended, and one for their start */
};

static void *zeroed(size_t align, size_t size_bytes) {
    void *memory = aligned_alloc(align, size_bytes);
    CHECK(memory);
    return memset(memory, 0, size_bytes);
}

/* One of the parts of n_left has ended. The last one sets the output, or the status. True: it was
 * the last one, and the job is gone. */
static bool end_part(struct variant_job *job) {
    struct status *st = job->status;
    if (atomic_fetch_sub_explicit(&job->n_left, 1, memory_order_acq_rel) > 1)
        return false;
    for (int64_t i = 0; i < job->places.n; i++) {
        if (!st)
            st = job->copies[i].copy.status;
        else
            status_unref(job->copies[i].copy.status);
    }
    job->op->ctx.status = st;
    if (!st)
        tensor_move(&job->op->outputs[0], &job->value);
    tensor_clear(&job->value);
    variant_places_fini(&job->places);
    free(job->copies);
    free(job);
    return true;
}

static void on_place_copied(struct device_copy *copy) {
    struct variant_job *job = CONTAINER_OF(copy, struct place_copy, copy)->job;
    struct async_op *op = job->op;
    if (end_part(job))
        executor_post(op);
}

static void start_place(struct variant_job *job, int64_t i, const struct plan_copy *plan) {
    struct device_copy *copy = &job->copies[i].copy;
    struct device *device = plan->src ? plan->src : plan->dst;
    job->copies[i].job = job;
    copy->src = plan->src;
    copy->dst = plan->dst;
    copy->allocator = plan->allocator;
    copy->ret = job->places.items[i];
    copy->owner = job->op->executor;
    copy->node = device_copied_node(job->op->node)->name;
    copy->on_done = on_place_copied;
    copy->from = TENSOR_INIT;
    tensor_move(&copy->from, copy->ret);
    if (device->ops->copy_start(device, copy))
        end_part(job); /* never the last part: the start is one, too */
}

bool device_start_variant_copy(struct async_op *op, const struct plan_copy *plan) {
    struct variant_job *job = zeroed(_Alignof(struct variant_job), sizeof(*job));
    job->op = op;
    job->status = variant_copy_begin(&op->ctx.inputs[0], plan->dst ? plan->dst->allocator : NULL,
                                     &job->value, &job->places);
    tensor_clear(&op->ctx.inputs[0]);
    if (job->status)
        job->places.n = 0;
    int64_t n = job->places.n;
    job->copies = zeroed(_Alignof(struct place_copy), ((size_t)n + 1) * sizeof(*job->copies));
    atomic_store(&job->n_left, n + 1);
    for (int64_t i = 0; i < n; i++)
        start_place(job, i, plan);
    return end_part(job);
}
