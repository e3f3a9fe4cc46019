/* Reads bytes back for kernels whose outputs have sizes that the device computes (gpu_kernel.h).
 *
 * What a kernel enqueues once it knows the sizes would come between the work of other nodes, at
 * another place in each step, so neither their graphs nor their places in memory would come again.
 * Therefore the step runs all its other nodes first. When it has no more, it flushes the device,
 * and the first of its reads is handed over; the next one when it flushes again after that.
 *
 *   started ── flushed ──► awaited ── arrived ──► handed over ── gpu_read_end ──► gone
 *      └────── arrived ──► arrived ── flushed ───────┘ */
#include "kernels/cuda/gpu_device.h"

enum read_state { READ_STARTED, READ_AWAITED, READ_ARRIVED, READ_HANDED_OVER };

void gpu_reads_init(struct gpu_device *gpu) {
    list_init(&gpu->reads.list);
    pthread_mutex_init(&gpu->reads.lock, NULL);
}

void gpu_reads_free(struct gpu_device *gpu) { pthread_mutex_destroy(&gpu->reads.lock); }

/* On a copier's thread. */
static void on_copied(struct device_copy *copy) {
    struct gpu_read *read = CONTAINER_OF(copy, struct gpu_read, copy);
    struct gpu_reads *reads = &read->gpu->reads;
    read->status = copy->status;
    pthread_mutex_lock(&reads->lock);
    bool is_awaited = read->state == READ_AWAITED;
    read->state = is_awaited ? READ_HANDED_OVER : READ_ARRIVED;
    pthread_mutex_unlock(&reads->lock);
    if (is_awaited)
        read->on_done(read);
}

void gpu_read_start(struct kernel_ctx *ctx, struct gpu_read *read, struct buffer *from,
                    size_t size_bytes) {
    int64_t n = (int64_t)size_bytes;
    struct gpu_device *gpu = gpu_of(ctx);
    read->gpu = gpu;
    read->state = READ_STARTED;
    read->value = TENSOR_INIT;
    read->copy = (struct device_copy){.src = gpu->device,
                                      .allocator = allocator_host(),
                                      .from = TENSOR_INIT,
                                      .ret = &read->value,
                                      .owner = ctx->host_data,
                                      .node = ctx->instance->node->name,
                                      .on_done = on_copied};
    struct status *st =
        tensor_view(from, from->data, DT_UINT8, (struct shape){1, &n}, &read->copy.from);
    CHECK(!st);
    pthread_mutex_lock(&gpu->reads.lock);
    list_push_back(&gpu->reads.list, &read->link);
    pthread_mutex_unlock(&gpu->reads.lock);
    bool has_ended = gpu->device->ops->copy_start(gpu->device, &read->copy);
    CHECK(!has_ended);
}

void gpu_read_end(struct gpu_read *read) {
    pthread_mutex_lock(&read->gpu->reads.lock);
    list_remove(&read->link);
    pthread_mutex_unlock(&read->gpu->reads.lock);
}

/* The owner's first read; those that were handed over come first. With the lock. */
static struct gpu_read *first_of(const struct gpu_reads *reads, const void *owner) {
    LIST_FOR_EACH (link, &reads->list) {
        struct gpu_read *read = LIST_ENTRY(link, struct gpu_read, link);
        if (read->copy.owner == owner)
            return read;
    }
    return NULL;
}

void gpu_reads_flush(struct gpu_device *gpu, const void *owner) {
    struct gpu_reads *reads = &gpu->reads;
    pthread_mutex_lock(&reads->lock);
    struct gpu_read *read = first_of(reads, owner);
    bool has_arrived = read && read->state == READ_ARRIVED;
    if (has_arrived)
        read->state = READ_HANDED_OVER;
    else if (read && read->state == READ_STARTED)
        read->state = READ_AWAITED;
    pthread_mutex_unlock(&reads->lock);
    if (has_arrived)
        read->on_done(read);
}
