/* Registers buffers that a peer may write into, and withdraws them. */
#include "rpc/rdma/rdma_in.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

/* A protection domain, and how many need it: a connection, and each pending write until its memory
 * is withdrawn. */
struct rdma_domain {
    const struct verbs *verbs;
    struct ibv_pd *pd;
    int n_refs;
};

static void domain_unref(struct rdma_domain *domain) {
    if (!domain || --domain->n_refs > 0)
        return;
    CHECK(domain->verbs->dealloc_pd(domain->pd) == 0);
    free(domain);
}

static struct status *domain_new(struct rdma_device *device, struct rdma_domain **ret) {
    struct ibv_pd *pd = device->verbs->alloc_pd(device->port.context);
    if (!pd)
        return status_exhausted("alloc_pd on RDMA device %s: %s", device->port.name,
                                strerror(errno));
    *ret = xmalloc(sizeof(**ret));
    **ret = (struct rdma_domain){.verbs = device->verbs, .pd = pd, .n_refs = 1};
    return NULL;
}

/* Takes the pending write out of its connection. */
static void forget(struct rdma_pending_write *pending) {
    domain_unref(pending->domain);
    if (pending->is_orphan)
        return;
    struct rdma_in *in = pending->in;
    u64map_remove(&in->pending_writes, pending->remote_slot.number);
    *(pending->is_pregrant ? &in->pregrant_bytes : &in->granted_bytes) -=
        (int64_t)pending->size_bytes;
    in->n_pregrants -= pending->is_pregrant;
}

static void fail(struct rdma_in *in, struct status *why) {
    if (in->has_failed || in->queue.is_draining)
        return;
    in->has_failed = true;
    in->handlers->on_failed(in->owner, why);
}

/* ---- withdrawing ---- */

static void withdraw(struct rdma_job *job) {
    struct rdma_pending_write *pending = CONTAINER_OF(job, struct rdma_pending_write, job);
    rdma_unregister(job->device->verbs, pending->mr);
    if (pending->is_received)
        rdma_flush_writes(job->device->exporter, pending->buffer);
}

static void on_withdrawn(struct rdma_job *job) {
    struct rdma_pending_write *pending = CONTAINER_OF(job, struct rdma_pending_write, job);
    struct rdma_in *in = pending->in;
    pending->mr = NULL;
    forget(pending);
    if (pending->is_received) {
        in->n_received++;
        in->received_bytes += pending->size_bytes;
        in->handlers->on_received(in->owner, pending);
    } else {
        in->handlers->on_withdrawn(in->owner, pending);
    }
}

static void begin_withdrawing(struct rdma_pending_write *pending, struct rdma_device *device) {
    pending->state = RDMA_WITHDRAWING;
    pending->job = (struct rdma_job){.work = withdraw, .done = on_withdrawn};
    rdma_device_submit(device, &pending->job);
}

/* ---- registering ---- */

static void register_memory(struct rdma_job *job) {
    struct rdma_pending_write *pending = CONTAINER_OF(job, struct rdma_pending_write, job);
    struct rdma_memory memory = rdma_memory_of(job->device->exporter, pending->buffer,
                                               pending->buffer->data, pending->size_bytes);
    pending->why = rdma_register(job->device->verbs, pending->domain->pd, &memory,
                                 RDMA_WRITTEN_BY_PEER, &pending->mr);
}

static void on_registered(struct rdma_job *job) {
    struct rdma_pending_write *pending = CONTAINER_OF(job, struct rdma_pending_write, job);
    struct rdma_in *in = pending->in;
    if (pending->why) {
        struct status *why = pending->why;
        pending->why = NULL;
        forget(pending);
        in->handlers->on_refused(in->owner, pending, why);
        status_unref(why);
    } else if (pending->is_orphan) {
        begin_withdrawing(pending, job->device);
    } else {
        pending->state = RDMA_GRANTED;
        pending->remote_slot.key = pending->mr->rkey;
        in->handlers->on_granted(in->owner, pending);
    }
}

/* ---- what comes ---- */

static void on_completion(void *owner, const struct ibv_wc *wc) {
    struct rdma_in *in = owner;
    uint32_t number = ntohl(wc->imm_data);
    struct status *why = in->queue.is_draining ? NULL : rdma_queue_post_receive(&in->queue);
    struct rdma_pending_write *pending = u64map_get(&in->pending_writes, number);
    if (!why &&
        (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM || !pending || pending->state != RDMA_GRANTED))
        why = status_invalid("a write with number %u, which is not granted", (unsigned)number);
    if (why) {
        fail(in, why);
        status_unref(why);
        return;
    }
    pending->is_received = true;
    begin_withdrawing(pending, in->queue.device);
}

static void on_error(void *owner, struct status *why) { fail(owner, why); }

/* ---- life ---- */

struct status *rdma_in_open(struct rdma_in *in, struct rdma_device *device,
                            const struct rdma_in_handlers *handlers, void *owner) {
    *in = (struct rdma_in){.handlers = handlers,
                           .owner = owner,
                           .queue = {.on_completion = on_completion, .on_error = on_error}};
    in->queue.owner = in;
    u64map_init(&in->pending_writes);
    TRY(domain_new(device, &in->domain));
    struct status *st = rdma_queue_open(&in->queue, device, in->domain->pd, RDMA_RECEIVES);
    if (st) {
        domain_unref(in->domain);
        in->domain = NULL;
    }
    return st;
}

struct status *rdma_in_connect(struct rdma_in *in, const struct rdma_address *to) {
    for (int i = 0; i < RDMA_RECEIVE_DEPTH; i++)
        TRY(rdma_queue_post_receive(&in->queue));
    return rdma_queue_connect(&in->queue, to);
}

static void begin_write(struct rdma_in *in, struct rdma_pending_write *pending,
                        struct buffer *buffer, size_t size_bytes, bool is_pregrant) {
    do
        in->last_number++;
    while (u64map_get(&in->pending_writes, in->last_number)); /* numbers wrap around */
    in->domain->n_refs++;
    *(is_pregrant ? &in->pregrant_bytes : &in->granted_bytes) += (int64_t)size_bytes;
    in->n_pregrants += is_pregrant;
    *pending = (struct rdma_pending_write){
        .in = in,
        .domain = in->domain,
        .remote_slot = {.number = in->last_number, .address = (uintptr_t)buffer->data},
        .buffer = buffer_ref(buffer),
        .size_bytes = size_bytes,
        .is_pregrant = is_pregrant,
        .state = RDMA_REGISTERING,
        .job = {.work = register_memory, .done = on_registered}};
    u64map_put(&in->pending_writes, pending->remote_slot.number, pending);
    rdma_device_submit(in->queue.device, &pending->job);
}

bool rdma_in_add_write(struct rdma_in *in, struct rdma_pending_write *pending,
                       struct buffer *buffer, size_t size_bytes) {
    bool is_full =
        in->granted_bytes > 0 && in->granted_bytes + (int64_t)size_bytes > RDMA_GRANTED_MAX_BYTES;
    if (!rdma_queue_is_open(&in->queue) || in->pending_writes.n_entries >= RDMA_RECEIVE_DEPTH ||
        is_full)
        return false;
    begin_write(in, pending, buffer, size_bytes, false);
    return true;
}

bool rdma_in_has_pregrant_credit(const struct rdma_in *in, size_t size_bytes) {
    bool is_full = in->n_pregrants >= RDMA_MAX_PREGRANTS ||
                   (int64_t)size_bytes > RDMA_MAX_PREGRANT_BYTES - in->pregrant_bytes;
    return rdma_queue_is_open(&in->queue) && in->pending_writes.n_entries < RDMA_RECEIVE_DEPTH &&
           !is_full;
}

bool rdma_in_add_pregranted(struct rdma_in *in, struct rdma_pending_write *pending,
                            struct buffer *buffer, size_t size_bytes) {
    if (!rdma_in_has_pregrant_credit(in, size_bytes))
        return false;
    begin_write(in, pending, buffer, size_bytes, true);
    return true;
}

struct status *rdma_in_decline(struct rdma_in *in, uint32_t number) {
    struct rdma_pending_write *pending = u64map_get(&in->pending_writes, number);
    if (!pending || pending->state != RDMA_GRANTED)
        return status_invalid("remote slot %u is declined, but is not granted", (unsigned)number);
    begin_withdrawing(pending, in->queue.device);
    return NULL;
}

void rdma_in_close(struct rdma_in *in) {
    struct rdma_device *device = in->queue.device;
    size_t cursor = 0;
    uint64_t number;
    void *item;
    if (!rdma_queue_is_open(&in->queue))
        return;
    rdma_device_hold(device);
    rdma_queue_drain(&in->queue); /* the sender believes that these have arrived, and they have */
    rdma_queue_close(&in->queue); /* nothing is written from here on */
    while (u64map_next(&in->pending_writes, &cursor, &number, &item)) {
        struct rdma_pending_write *pending = item;
        pending->is_orphan = true;
        if (pending->state == RDMA_GRANTED)
            begin_withdrawing(pending, device);
    }
    u64map_fini(&in->pending_writes);
    domain_unref(in->domain);
    in->domain = NULL;
    rdma_device_release(device);
}
