/* Grants remote slots for values that do not exist yet, and prepares slots for the next step
 * (peer_rdma.h). */
#include <stdlib.h>

#include "common/base/clock.h"
#include "worker/exchange/peer_rdma_internal.h"

/* ---- granting ---- */

static void tell(struct peer_pending_write *pending) {
    struct peer_rdma *rdma = pending->rdma;
    struct str meta = STR_INIT;
    pending->is_told = true;
    rdma->n_pregranted++;
    str_add_bytes(&meta, pending->grant.announcement->data,
                  pending->grant.announcement->size_bytes);
    edge_message_add_remote_slot(&meta, &pending->write.remote_slot);
    rdma->host->send(rdma->peer, CHANNEL_CONTROL,
                     &(struct wire_out){.type = WIRE_GRANT,
                                        .id = pending->grant.step,
                                        .meta = {meta.data, meta.len}});
    str_fini(&meta);
}

void peer_rdma_pregrant_registered(struct peer_pending_write *pending) {
    if (!pending->is_prepared)
        tell(pending);
}

/* Makes the slot one for the value of `asked`, and charges its memory to that one's allocator. */
static void use_prepared(struct peer_pending_write *prepared,
                         struct peer_pending_write *requested) {
    struct peer_rdma *rdma = prepared->rdma;
    struct buffer *buffer = prepared->grant.buffer;
    prepared->grant = requested->grant;
    prepared->grant.buffer = buffer;
    requested->grant.announcement = NULL;
    prepared->is_prepared = false;
    atomic_fetch_add(&rdma->n_pregrants, 1);
    peer_pending_write_free(requested);
    rdma->setup->prepared_bytes -= (int64_t)prepared->grant.size_bytes;
    list_remove(&prepared->link);
    list_push_back(&rdma->pending_writes, &prepared->link);
    rdma->n_from_prepared++;
    if (prepared->write.state == RDMA_GRANTED)
        tell(prepared);
}

/* A slot that is being withdrawn cannot be used. */
static struct peer_pending_write *find_prepared(const struct peer_rdma *rdma,
                                                const struct peer_grant *grant) {
    LIST_FOR_EACH (link, &rdma->prepared) {
        struct peer_pending_write *pending = LIST_ENTRY(link, struct peer_pending_write, link);
        if (pending->write.state != RDMA_WITHDRAWING &&
            pending->grant.size_bytes == grant->size_bytes &&
            pending->grant.allocator == grant->allocator)
            return pending;
    }
    return NULL;
}

/* Allocates memory for the slot from its allocator, and adds it to the list. */
static bool land(struct peer_pending_write *pending, struct allocator *allocator,
                 struct list *list) {
    struct peer_rdma *rdma = pending->rdma;
    struct peer_grant *grant = &pending->grant;
    pending->generation = rdma->generation;
    if (!rdma_in_has_pregrant_credit(&rdma->in, grant->size_bytes))
        return false;
    grant->buffer = buffer_alloc(allocator, grant->size_bytes);
    if (!grant->buffer ||
        !rdma_in_add_pregranted(&rdma->in, &pending->write, grant->buffer, grant->size_bytes))
        return false;
    list_push_back(list, &pending->link);
    return true;
}

static void on_asked(struct loop_task *task) {
    struct peer_pending_write *pending = CONTAINER_OF(task, struct peer_pending_write, task);
    struct peer_rdma *rdma = pending->rdma;
    pthread_mutex_lock(&rdma->lock);
    list_remove(&pending->link);
    pthread_mutex_unlock(&rdma->lock);
    pending->generation = rdma->generation;
    struct allocator *allocator = pending->grant.allocator;
    bool may_land = rdma->in_state == IN_READY &&
                    !peer_pregrant_is_scarce(allocator, pending->grant.size_bytes);
    struct peer_pending_write *prepared = may_land ? find_prepared(rdma, &pending->grant) : NULL;
    if (prepared && buffer_recount(prepared->grant.buffer, allocator))
        use_prepared(prepared, pending);
    else if (!rdma->is_on) /* the peer is lost, and the step with it */
        peer_pending_write_free(pending);
    else if (!may_land || !land(pending, allocator, &rdma->pending_writes))
        peer_rdma_pregrant_ended(pending);
}

bool peer_rdma_pregrant(struct peer_rdma *rdma, const struct peer_grant *grant) {
    if (atomic_fetch_add(&rdma->n_pregrants, 1) >= RDMA_MAX_PREGRANTS) {
        atomic_fetch_sub(&rdma->n_pregrants, 1);
        return false;
    }
    struct peer_pending_write *pending = peer_pending_write_new(rdma, grant, true);
    buffer_ref(grant->announcement);
    pending->task.run = on_asked;
    pthread_mutex_lock(&rdma->lock);
    list_push_back(&rdma->requested, &pending->link);
    pthread_mutex_unlock(&rdma->lock);
    loop_post(rdma->loop, &pending->task);
    return true;
}

/* ---- what becomes of them ---- */

/* Would it be too much, counted together with the prepared slots, which no device counts? */
static bool is_scarce(const struct peer_rdma *rdma, const struct allocator *allocator,
                      size_t size_bytes) {
    return peer_pregrant_is_scarce(allocator, (size_t)rdma->setup->prepared_bytes + size_bytes);
}

/* Prepares one more slot of this size, for the next step. */
static void prepare(struct peer_rdma *rdma, size_t size_bytes, struct allocator *allocator) {
    size_t n = 0;
    LIST_FOR_EACH (link, &rdma->prepared)
        n++;
    if (rdma->in_state != IN_READY || n >= PEER_RDMA_MAX_PREPARED ||
        (int64_t)size_bytes > PEER_RDMA_PREPARED_BYTES - rdma->setup->prepared_bytes ||
        is_scarce(rdma, allocator, size_bytes))
        return;
    struct peer_pending_write *pending = peer_pending_write_new(
        rdma, &(struct peer_grant){.allocator = allocator, .size_bytes = size_bytes}, true);
    pending->is_prepared = true;
    if (!land(pending, allocator_host(), &rdma->prepared)) {
        peer_pending_write_free(pending);
        return;
    }
    pending->since_ns = clock_now_ns();
    rdma->setup->prepared_bytes += (int64_t)size_bytes;
}

static void prepared_free(struct peer_pending_write *pending) {
    pending->rdma->setup->prepared_bytes -= (int64_t)pending->grant.size_bytes;
    peer_pending_write_free(pending);
}

void peer_rdma_pregrant_received(struct peer_pending_write *pending) {
    struct peer_rdma *rdma = pending->rdma;
    bool is_current = peer_pending_write_is_current(pending), is_told = pending->is_told;
    size_t size_bytes = pending->grant.size_bytes;
    struct allocator *allocator = pending->grant.allocator;
    if (is_current && is_told) {
        rdma->n_received_pregranted++;
        peer_rdma_deliver(pending);
    } else if (is_current && !pending->is_prepared) {
        rdma->host->pregrant_withdrawn_(rdma->peer, &pending->grant, NULL);
    }
    if (pending->is_prepared)
        prepared_free(pending);
    else
        peer_pending_write_free(pending);
    if (!is_current)
        return;
    if (!is_told) {
        struct status *why = status_invalid("a write to a remote slot that was not granted");
        peer_rdma_in_failed(rdma, why);
        status_unref(why);
    }
    prepare(rdma, size_bytes, allocator);
    peer_rdma_pending_write_ended(rdma);
}

/* The slot was declined, or refused by the device, or the connection has ended. It may be one
 * without memory, which is in no list. */
void peer_rdma_pregrant_ended(struct peer_pending_write *pending) {
    struct peer_rdma *rdma = pending->rdma;
    bool is_current = peer_pending_write_is_current(pending);
    if (pending->is_prepared) {
        prepared_free(pending);
        return;
    }
    rdma->n_pregrants_ended++;
    if (is_current && pending->is_told)
        peer_rdma_send_notice(rdma, WIRE_RDMA_WITHDRAWN, rdma->in_connection,
                              pending->write.remote_slot.number, "");
    if (is_current)
        rdma->host->pregrant_withdrawn_(
            rdma->peer, &pending->grant,
            pending->is_told && !pending->is_unused ? pending->grant.buffer : NULL);
    peer_pending_write_free(pending);
    if (is_current)
        peer_rdma_pending_write_ended(rdma);
}

void peer_rdma_expire_prepared(struct peer_rdma *rdma, int64_t now_ns) {
    LIST_FOR_EACH_SAFE (link, next, &rdma->prepared) {
        struct peer_pending_write *pending = LIST_ENTRY(link, struct peer_pending_write, link);
        bool is_old = now_ns - pending->since_ns >= PEER_RDMA_PREPARED_MS * 1000000ll;
        if (pending->write.state != RDMA_GRANTED ||
            (!is_old && !is_scarce(rdma, pending->grant.allocator, 0)))
            continue;
        list_remove(&pending->link);
        struct status *st = rdma_in_decline(&rdma->in, pending->write.remote_slot.number);
        CHECK(!st);
    }
}
