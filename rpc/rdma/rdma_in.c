#include "rpc/rdma/rdma_in.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

/* A protection domain, and how many need it: a line, and each landing until its memory is
 * withdrawn. */
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

/* It is the line's no more. */
static void forget(struct rdma_landing *landing) {
    domain_unref(landing->domain);
    if (landing->is_orphan)
        return;
    struct rdma_in *in = landing->in;
    u64map_remove(&in->landings, landing->place.number);
    *(landing->is_ahead ? &in->ahead_bytes : &in->granted_bytes) -= (int64_t)landing->size_bytes;
    in->n_ahead -= landing->is_ahead;
}

static void fail(struct rdma_in *in, struct status *why) {
    if (in->has_failed || in->queue.is_draining)
        return;
    in->has_failed = true;
    in->handlers->on_failed(in->owner, why);
}

/* ---- withdrawing ---- */

static void withdraw(struct rdma_job *job) {
    struct rdma_landing *landing = CONTAINER_OF(job, struct rdma_landing, job);
    rdma_unregister(job->device->verbs, landing->mr);
}

static void on_withdrawn(struct rdma_job *job) {
    struct rdma_landing *landing = CONTAINER_OF(job, struct rdma_landing, job);
    struct rdma_in *in = landing->in;
    landing->mr = NULL;
    forget(landing);
    if (landing->has_landed) {
        in->n_landed++;
        in->landed_bytes += landing->size_bytes;
        in->handlers->on_landed(in->owner, landing);
    } else {
        in->handlers->on_withdrawn(in->owner, landing);
    }
}

static void begin_withdrawing(struct rdma_landing *landing, struct rdma_device *device) {
    landing->state = RDMA_WITHDRAWING;
    landing->job = (struct rdma_job){.work = withdraw, .done = on_withdrawn};
    rdma_device_submit(device, &landing->job);
}

/* ---- registering ---- */

static void register_memory(struct rdma_job *job) {
    struct rdma_landing *landing = CONTAINER_OF(job, struct rdma_landing, job);
    struct rdma_memory memory = {RDMA_MEMORY_HOST, landing->buffer->data, landing->size_bytes};
    landing->why = rdma_register(job->device->verbs, landing->domain->pd, &memory,
                                 RDMA_WRITTEN_BY_PEER, &landing->mr);
}

static void on_registered(struct rdma_job *job) {
    struct rdma_landing *landing = CONTAINER_OF(job, struct rdma_landing, job);
    struct rdma_in *in = landing->in;
    if (landing->why) {
        struct status *why = landing->why;
        landing->why = NULL;
        forget(landing);
        in->handlers->on_refused(in->owner, landing, why);
        status_unref(why);
    } else if (landing->is_orphan) {
        begin_withdrawing(landing, job->device);
    } else {
        landing->state = RDMA_GRANTED;
        landing->place.key = landing->mr->rkey;
        in->handlers->on_granted(in->owner, landing);
    }
}

/* ---- what comes ---- */

static void on_completion(void *owner, const struct ibv_wc *wc) {
    struct rdma_in *in = owner;
    uint32_t number = ntohl(wc->imm_data);
    struct status *why = in->queue.is_draining ? NULL : rdma_queue_post_receive(&in->queue);
    struct rdma_landing *landing = u64map_get(&in->landings, number);
    if (!why &&
        (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM || !landing || landing->state != RDMA_GRANTED))
        why = status_invalid("a write with number %u, which is not granted", (unsigned)number);
    if (why) {
        fail(in, why);
        status_unref(why);
        return;
    }
    landing->has_landed = true;
    begin_withdrawing(landing, in->queue.device);
}

static void on_error(void *owner, struct status *why) { fail(owner, why); }

/* ---- life ---- */

struct status *rdma_in_open(struct rdma_in *in, struct rdma_device *device,
                            const struct rdma_in_handlers *handlers, void *owner) {
    *in = (struct rdma_in){.handlers = handlers,
                           .owner = owner,
                           .queue = {.on_completion = on_completion, .on_error = on_error}};
    in->queue.owner = in;
    u64map_init(&in->landings);
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

static void begin_landing(struct rdma_in *in, struct rdma_landing *landing, struct buffer *buffer,
                          size_t size_bytes, bool is_ahead) {
    do
        in->last_number++;
    while (u64map_get(&in->landings, in->last_number)); /* they come round */
    in->domain->n_refs++;
    *(is_ahead ? &in->ahead_bytes : &in->granted_bytes) += (int64_t)size_bytes;
    in->n_ahead += is_ahead;
    *landing = (struct rdma_landing){
        .in = in,
        .domain = in->domain,
        .place = {.number = in->last_number, .address = (uintptr_t)buffer->data},
        .buffer = buffer_ref(buffer),
        .size_bytes = size_bytes,
        .is_ahead = is_ahead,
        .state = RDMA_REGISTERING,
        .job = {.work = register_memory, .done = on_registered}};
    u64map_put(&in->landings, landing->place.number, landing);
    rdma_device_submit(in->queue.device, &landing->job);
}

bool rdma_in_land(struct rdma_in *in, struct rdma_landing *landing, struct buffer *buffer,
                  size_t size_bytes) {
    bool is_full =
        in->granted_bytes > 0 && in->granted_bytes + (int64_t)size_bytes > RDMA_GRANTED_MAX_BYTES;
    if (!rdma_queue_is_open(&in->queue) || in->landings.n_entries >= RDMA_RECEIVE_DEPTH || is_full)
        return false;
    begin_landing(in, landing, buffer, size_bytes, false);
    return true;
}

bool rdma_in_has_room_ahead(const struct rdma_in *in, size_t size_bytes) {
    bool is_full = in->n_ahead >= RDMA_AHEAD_MAX ||
                   (int64_t)size_bytes > RDMA_AHEAD_MAX_BYTES - in->ahead_bytes;
    return rdma_queue_is_open(&in->queue) && in->landings.n_entries < RDMA_RECEIVE_DEPTH &&
           !is_full;
}

bool rdma_in_land_ahead(struct rdma_in *in, struct rdma_landing *landing, struct buffer *buffer,
                        size_t size_bytes) {
    if (!rdma_in_has_room_ahead(in, size_bytes))
        return false;
    begin_landing(in, landing, buffer, size_bytes, true);
    return true;
}

struct status *rdma_in_decline(struct rdma_in *in, uint32_t number) {
    struct rdma_landing *landing = u64map_get(&in->landings, number);
    if (!landing || landing->state != RDMA_GRANTED)
        return status_invalid("place %u is declined, which was not granted", (unsigned)number);
    begin_withdrawing(landing, in->queue.device);
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
    rdma_queue_drain(&in->queue); /* the sender believes that these have come, and they have */
    rdma_queue_close(&in->queue); /* from here on nothing lands */
    while (u64map_next(&in->landings, &cursor, &number, &item)) {
        struct rdma_landing *landing = item;
        landing->is_orphan = true;
        if (landing->state == RDMA_GRANTED)
            begin_withdrawing(landing, device);
    }
    u64map_fini(&in->landings);
    domain_unref(in->domain);
    in->domain = NULL;
    rdma_device_let_go(device);
}
