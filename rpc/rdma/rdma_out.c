/* Writes values into remote slots, piece by piece. */
#include "rpc/rdma/rdma_out.h"

#include "common/base/clock.h"

/* The device does not read the transfer's memory any more. */
static void release(struct rdma_transfer *transfer) {
    list_remove(&transfer->link);
    rdma_region_release(transfer->region);
    transfer->region = NULL;
    buffer_unref(transfer->buffer);
    transfer->buffer = NULL;
}

/* ---- posting ---- */

static struct status *post_piece(struct rdma_out *out, struct rdma_transfer *transfer) {
    size_t most = (size_t)MIN((uint64_t)RDMA_PIECE_BYTES, out->queue.max_message_bytes);
    size_t size = MIN(transfer->size_bytes - transfer->n_posted, most);
    struct rdma_write write = {.id = (uintptr_t)transfer,
                               .data = transfer->data + transfer->n_posted,
                               .key = rdma_region_key(transfer->region),
                               .size_bytes = (uint32_t)size,
                               .to = transfer->remote_slot.address + transfer->n_posted,
                               .to_key = transfer->remote_slot.key,
                               .number = transfer->remote_slot.number,
                               .has_number = transfer->n_posted + size == transfer->size_bytes};
    if (transfer->n_posted == 0)
        transfer->begun_ns = clock_now_ns();
    TRY(rdma_queue_post_write(&out->queue, &write));
    transfer->n_posted += size;
    transfer->n_unacknowledged++;
    out->n_posted++;
    return NULL;
}

static void fail(struct rdma_out *out, struct status *why) {
    if (!out->why_failed) {
        out->why_failed = status_ref(why);
        out->handlers->on_failed(out->owner, why);
    }
}

/* Posts as many pieces as the queue pair takes. The values take turns, a piece each. */
static void post_what_fits(struct rdma_out *out) {
    struct status *st = NULL;
    while (!st && !out->why_failed && out->n_posted < RDMA_SEND_DEPTH &&
           !list_is_empty(&out->queued)) {
        struct rdma_transfer *transfer =
            LIST_ENTRY(list_pop_front(&out->queued), struct rdma_transfer, link);
        st = post_piece(out, transfer);
        list_push_back(transfer->n_posted < transfer->size_bytes ? &out->queued : &out->posted,
                       &transfer->link);
    }
    if (st)
        fail(out, st);
    status_unref(st);
}

/* ---- completions ---- */

static void on_completion(void *owner, const struct ibv_wc *wc) {
    struct rdma_out *out = owner;
    struct rdma_transfer *transfer = (struct rdma_transfer *)(uintptr_t)wc->wr_id;
    out->n_posted--;
    if (--transfer->n_unacknowledged == 0 && transfer->n_posted == transfer->size_bytes) {
        out->n_written++;
        out->written_bytes += transfer->size_bytes;
        release(transfer);
        out->handlers->on_written(out->owner, transfer);
    }
    if (rdma_queue_is_open(&out->queue))
        post_what_fits(out);
}

static void on_error(void *owner, struct status *why) { fail(owner, why); }

/* ---- registering ---- */

static void register_memory(struct rdma_job *job) {
    struct rdma_transfer *transfer = CONTAINER_OF(job, struct rdma_transfer, job);
    transfer->why = rdma_regions_add(job->device->regions, transfer->buffer, transfer->data,
                                     transfer->size_bytes, &transfer->region);
}

static void on_registered(struct rdma_job *job) {
    struct rdma_transfer *transfer = CONTAINER_OF(job, struct rdma_transfer, job);
    struct rdma_out *out = transfer->out;
    struct status *why = transfer->why;
    transfer->is_registering = false;
    if (transfer->is_abandoned || why) {
        bool is_abandoned = transfer->is_abandoned;
        release(transfer);
        if (is_abandoned)
            out->handlers->on_abandoned(transfer);
        else
            out->handlers->on_refused(out->owner, transfer, why);
        status_unref(why);
        return;
    }
    list_remove(&transfer->link);
    list_push_back(&out->queued, &transfer->link);
    post_what_fits(out);
}

/* ---- life ---- */

struct status *rdma_out_open(struct rdma_out *out, struct rdma_device *device,
                             const struct rdma_out_handlers *handlers, void *owner) {
    *out = (struct rdma_out){.handlers = handlers,
                             .owner = owner,
                             .queue = {.on_completion = on_completion, .on_error = on_error}};
    out->queue.owner = out;
    list_init(&out->registering);
    list_init(&out->queued);
    list_init(&out->posted);
    return rdma_queue_open(&out->queue, device, device->send_pd, RDMA_SENDS);
}

void rdma_out_write(struct rdma_out *out, struct rdma_transfer *transfer,
                    const struct rdma_remote_slot *remote_slot, struct buffer *buffer,
                    const char *data, size_t size_bytes) {
    struct rdma_device *device = out->queue.device;
    *transfer = (struct rdma_transfer){.out = out,
                                       .remote_slot = *remote_slot,
                                       .buffer = buffer_ref(buffer),
                                       .data = data,
                                       .size_bytes = size_bytes,
                                       .job = {.work = register_memory, .done = on_registered}};
    transfer->region = rdma_regions_find(device->regions, data, size_bytes);
    if (transfer->region) {
        list_push_back(&out->queued, &transfer->link);
        post_what_fits(out);
        return;
    }
    transfer->is_registering = true;
    list_push_back(&out->registering, &transfer->link);
    rdma_device_submit(device, &transfer->job);
}

static void drop_all(struct list *transfers) {
    LIST_FOR_EACH_SAFE (link, next, transfers)
        release(LIST_ENTRY(link, struct rdma_transfer, link));
}

void rdma_out_close(struct rdma_out *out) {
    if (!rdma_queue_is_open(&out->queue))
        return;
    rdma_queue_close(&out->queue);
    drop_all(&out->posted);
    drop_all(&out->queued);
    for (struct list *link; (link = list_pop_front(&out->registering));)
        LIST_ENTRY(link, struct rdma_transfer, link)->is_abandoned = true;
    out->n_posted = 0;
    status_unref(out->why_failed);
    out->why_failed = NULL;
}
