/* Exchanges values over a pair's RDMA connections: pending writes of granted values, and writes
 * into the slots that the peer has granted. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "worker/exchange/peer_links.h"
#include "worker/exchange/peer_rdma_internal.h"

/* ---- pending writes: beginning ---- */

void peer_pending_write_free(struct peer_pending_write *pending) {
    struct peer_rdma *rdma = pending->rdma;
    list_remove(&pending->link);
    buffer_unref(pending->write.buffer);
    buffer_unref(pending->grant.announcement);
    buffer_unref(pending->grant.buffer);
    if (!pending->is_pregrant)
        atomic_fetch_sub(&rdma->n_pending_writes, 1);
    else if (!pending->is_prepared)
        atomic_fetch_sub(&rdma->n_pregrants, 1);
    free(pending);
    rdma->host->release(rdma->peer);
}

/* Grants the value so that it may be pushed. */
static void grant_push(struct peer_pending_write *pending) {
    struct peer_rdma *rdma = pending->rdma;
    struct str meta = STR_INIT;
    edge_message_write(&meta, pending->grant.edge, pending->grant.frame_iter, NULL, 0);
    rdma->host->send(rdma->peer, CHANNEL_CONTROL,
                     &(struct wire_out){.type = WIRE_GRANT,
                                        .id = pending->grant.step,
                                        .meta = {meta.data, meta.len}});
    str_fini(&meta);
    rdma->n_instead++;
}

static void require_failed(struct peer_rdma *rdma, enum status_code code, const char *what,
                           const char *why) {
    struct status *st = status_new(
        code, "RDMA is required here (--rdma=require), but %s task %s: %s", what, rdma->task, why);
    rdma->host->fail(rdma->peer, st);
    status_unref(st);
}

static bool land(struct peer_pending_write *pending) {
    struct peer_rdma *rdma = pending->rdma;
    pending->generation = rdma->generation;
    if (!rdma_in_add_write(&rdma->in, &pending->write, pending->grant.buffer,
                           pending->grant.size_bytes))
        return false;
    list_remove(&pending->link);
    list_push_back(&rdma->pending_writes, &pending->link);
    return true;
}

/* No connection will come by itself. If one is required, that is an error. */
static void refuse(struct peer_pending_write *pending) {
    struct peer_rdma *rdma = pending->rdma;
    if (rdma->setup->mode == RDMA_REQUIRE)
        require_failed(rdma,
                       rdma->in_state == IN_NONE ? STATUS_FAILED_PRECONDITION : STATUS_UNAVAILABLE,
                       "nothing can be received by RDMA from", str_text(&rdma->why_not_from));
    else
        grant_push(pending);
    peer_pending_write_free(pending);
}

void peer_rdma_start_waiting(struct peer_rdma *rdma) {
    LIST_FOR_EACH_SAFE (link, next, &rdma->waiting) {
        struct peer_pending_write *pending = LIST_ENTRY(link, struct peer_pending_write, link);
        if (rdma->in_state == IN_PROVING || (rdma->in_state == IN_READY && land(pending)))
            continue;
        if (rdma->in_state == IN_READY && rdma->setup->mode == RDMA_REQUIRE)
            return; /* until one of the earlier ones has been received */
        refuse(pending);
    }
}

void peer_rdma_drop_waiting(struct peer_rdma *rdma) {
    LIST_FOR_EACH_SAFE (link, next, &rdma->waiting)
        peer_pending_write_free(LIST_ENTRY(link, struct peer_pending_write, link));
}

static void on_grant_posted(struct loop_task *task) {
    struct peer_pending_write *pending = CONTAINER_OF(task, struct peer_pending_write, task);
    struct peer_rdma *rdma = pending->rdma;
    pthread_mutex_lock(&rdma->lock);
    list_remove(&pending->link);
    pthread_mutex_unlock(&rdma->lock);
    if (!rdma->is_on) { /* the peer is lost, and the step with it */
        peer_pending_write_free(pending);
        return;
    }
    list_push_back(&rdma->waiting, &pending->link);
    peer_rdma_start_waiting(rdma);
}

struct peer_pending_write *
peer_pending_write_new(struct peer_rdma *rdma, const struct peer_grant *grant, bool is_pregrant) {
    struct peer_pending_write *pending = xcalloc(1, sizeof(*pending));
    pending->rdma = rdma;
    pending->grant = *grant;
    pending->is_pregrant = is_pregrant;
    list_init(&pending->link);
    if (!is_pregrant)
        atomic_fetch_add(&rdma->n_pending_writes, 1);
    rdma->host->hold(rdma->peer);
    return pending;
}

bool peer_rdma_grant(struct peer_rdma *rdma, const struct peer_grant *grant) {
    if (!atomic_load_explicit(&rdma->takes_grants, memory_order_acquire))
        return false;
    struct peer_pending_write *pending = peer_pending_write_new(rdma, grant, false);
    buffer_ref(grant->announcement);
    buffer_ref(grant->buffer);
    pending->task.run = on_grant_posted;
    pthread_mutex_lock(&rdma->lock);
    list_push_back(&rdma->requested, &pending->link);
    pthread_mutex_unlock(&rdma->lock);
    loop_post(rdma->loop, &pending->task);
    return true;
}

static bool has_grant(const struct list *pending_writes, uint64_t step, uint32_t edge,
                      uint64_t frame_iter) {
    LIST_FOR_EACH (link, pending_writes) {
        const struct peer_pending_write *pending =
            LIST_ENTRY(link, struct peer_pending_write, link);
        const struct peer_grant *grant = &pending->grant;
        if (!pending->is_probe && !pending->is_pregrant && grant->step == step &&
            grant->edge == edge && grant->frame_iter == frame_iter)
            return true;
    }
    return false;
}

bool peer_rdma_is_pending_write(struct peer_rdma *rdma, uint64_t step, uint32_t edge,
                                uint64_t frame_iter) {
    pthread_mutex_lock(&rdma->lock);
    bool is_asked = has_grant(&rdma->requested, step, edge, frame_iter);
    pthread_mutex_unlock(&rdma->lock);
    return is_asked || has_grant(&rdma->waiting, step, edge, frame_iter) ||
           has_grant(&rdma->pending_writes, step, edge, frame_iter);
}

/* ---- pending writes: their end ---- */

static void on_granted(void *owner, struct rdma_pending_write *granted) {
    struct peer_rdma *rdma = owner;
    struct peer_pending_write *pending = CONTAINER_OF(granted, struct peer_pending_write, write);
    if (pending->is_pregrant) {
        peer_rdma_pregrant_registered(pending);
        return;
    }
    pending->is_told = true;
    if (pending->is_probe) {
        peer_rdma_send_reply(rdma, &granted->remote_slot, NULL);
        return;
    }
    struct str meta = STR_INIT;
    edge_message_write(&meta, pending->grant.edge, pending->grant.frame_iter, NULL, 0);
    edge_message_add_remote_slot(&meta, &granted->remote_slot);
    rdma->host->send(rdma->peer, CHANNEL_CONTROL,
                     &(struct wire_out){.type = WIRE_GRANT,
                                        .id = pending->grant.step,
                                        .meta = {meta.data, meta.len}});
    str_fini(&meta);
}

/* The last message about a remote slot: the sender may now push what it has not written. */
static void give_back(struct peer_pending_write *pending) {
    struct peer_rdma *rdma = pending->rdma;
    bool is_current = peer_pending_write_is_current(pending);
    if (pending->is_pregrant) {
        peer_rdma_pregrant_ended(pending);
        return;
    }
    if (is_current && pending->is_told && !pending->is_probe) {
        peer_rdma_send_notice(rdma, WIRE_RDMA_WITHDRAWN, rdma->in_connection,
                              pending->write.remote_slot.number, "");
        rdma->n_instead++;
    } else if (is_current && !pending->is_probe) {
        grant_push(pending);
    }
    peer_pending_write_free(pending);
    if (is_current)
        peer_rdma_pending_write_ended(rdma);
}

static void on_refused(void *owner, struct rdma_pending_write *refused, struct status *why) {
    struct peer_rdma *rdma = owner;
    struct peer_pending_write *pending = CONTAINER_OF(refused, struct peer_pending_write, write);
    if (pending->is_probe && peer_pending_write_is_current(pending) && rdma->in_state == IN_PROVING)
        peer_rdma_in_failed(rdma, why);
    else if (peer_pending_write_is_current(pending) && !pending->is_pregrant &&
             rdma->setup->mode == RDMA_REQUIRE)
        require_failed(rdma, STATUS_UNAVAILABLE, "this task cannot receive by RDMA from",
                       status_message(why));
    give_back(pending);
}

static void on_withdrawn(void *owner, struct rdma_pending_write *withdrawn) {
    give_back(CONTAINER_OF(withdrawn, struct peer_pending_write, write));
}

/* The step's reference is then the only one, so that a kernel may write into the memory. */
void peer_rdma_deliver(struct peer_pending_write *pending) {
    struct peer_rdma *rdma = pending->rdma;
    struct peer_grant *grant = &pending->grant;
    struct wire_message message = {
        .type = WIRE_PUSH,
        .id = grant->step,
        .meta = {grant->announcement->data, grant->announcement->size_bytes},
        .payload = grant->buffer,
        .payload_len = grant->size_bytes};
    buffer_unref(pending->write.buffer);
    pending->write.buffer = NULL;
    grant->buffer = NULL;
    rdma->n_received++;
    rdma->received_bytes += grant->size_bytes;
    struct status *st = rdma->host->deliver(rdma->peer, &message);
    buffer_unref(message.payload);
    if (st)
        rdma->host->fail(rdma->peer, st);
    status_unref(st);
}

static char probe_byte(size_t i) { return (char)(i * 131 + (i >> 8) + 7); }

static void check_probe(struct peer_rdma *rdma, const struct peer_pending_write *pending) {
    bool is_right = true;
    for (size_t i = 0; i < PEER_RDMA_PROBE_BYTES && is_right; i++)
        is_right = pending->grant.buffer->data[i] == probe_byte(i);
    if (rdma->in_state != IN_PROVING)
        return;
    if (is_right) {
        peer_rdma_in_ready(rdma);
        return;
    }
    struct status *why =
        status_new(STATUS_DATA_LOSS, "the bytes of the probe were changed on the way");
    peer_rdma_in_failed(rdma, why);
    status_unref(why);
}

static void on_received(void *owner, struct rdma_pending_write *received) {
    struct peer_rdma *rdma = owner;
    struct peer_pending_write *pending = CONTAINER_OF(received, struct peer_pending_write, write);
    bool is_current = peer_pending_write_is_current(pending);
    if (pending->is_pregrant) {
        peer_rdma_pregrant_received(pending);
        return;
    }
    if (is_current && pending->is_probe)
        check_probe(rdma, pending);
    else if (is_current)
        peer_rdma_deliver(pending);
    peer_pending_write_free(pending);
    if (is_current)
        peer_rdma_pending_write_ended(rdma);
}

static void on_in_failed(void *owner, struct status *why) { peer_rdma_in_failed(owner, why); }

const struct rdma_in_handlers peer_in_handlers = {.on_granted = on_granted,
                                                  .on_refused = on_refused,
                                                  .on_received = on_received,
                                                  .on_withdrawn = on_withdrawn,
                                                  .on_failed = on_in_failed};

bool peer_rdma_expect_probe(struct peer_rdma *rdma) {
    struct buffer *buffer = buffer_alloc(allocator_host(), PEER_RDMA_PROBE_BYTES);
    if (!buffer)
        return false;
    memset(buffer->data, 0, PEER_RDMA_PROBE_BYTES);
    struct peer_pending_write *pending = peer_pending_write_new(
        rdma, &(struct peer_grant){.buffer = buffer, .size_bytes = PEER_RDMA_PROBE_BYTES}, false);
    pending->is_probe = true;
    CHECK(land(pending)); /* the first write of its connection */
    return true;
}

/* ---- writes ---- */

void peer_value_fini(struct peer_value *value) {
    str_fini(&value->meta);
    if (value->value.storage != TENSOR_NONE)
        tensor_clear(&value->value);
    buffer_unref(value->proto);
}

static void write_free(struct peer_write *write) {
    struct peer_rdma *rdma = write->rdma;
    if (rdma->probe == write)
        rdma->probe = NULL;
    list_remove(&write->link);
    peer_value_fini(&write->value);
    free(write);
    rdma->host->release(rdma->peer);
}

/* The device's thread may be using it. */
static void write_end(struct peer_write *write) {
    list_remove(&write->link);
    write->is_gone = true;
    if (!write->transfer.is_registering)
        write_free(write);
}

static struct peer_write *write_new(struct peer_rdma *rdma,
                                    const struct rdma_remote_slot *remote_slot,
                                    struct peer_value *value_take) {
    struct peer_write *write = xcalloc(1, sizeof(*write));
    write->rdma = rdma;
    write->remote_slot = *remote_slot;
    write->value = *value_take;
    *value_take = (struct peer_value){0};
    list_init(&write->link);
    rdma->host->hold(rdma->peer);
    return write;
}

static void start(struct peer_write *write) {
    struct peer_value *value = &write->value;
    write->is_started = true;
    struct buffer *buffer = value->proto ? value->proto : value->value.buffer;
    const char *data = value->proto ? value->proto->data : tensor_cdata(&value->value);
    rdma_out_write(&write->rdma->out, &write->transfer, &write->remote_slot, buffer, data,
                   value->size_bytes);
}

void peer_rdma_write_probe(struct peer_rdma *rdma, const struct rdma_remote_slot *remote_slot) {
    struct buffer *buffer = buffer_alloc(allocator_host(), PEER_RDMA_PROBE_BYTES);
    if (!buffer)
        out_of_memory(PEER_RDMA_PROBE_BYTES);
    for (size_t i = 0; i < PEER_RDMA_PROBE_BYTES; i++)
        buffer->data[i] = probe_byte(i);
    struct peer_value value = {.proto = buffer, .size_bytes = PEER_RDMA_PROBE_BYTES};
    rdma->probe = write_new(rdma, remote_slot, &value);
    start(rdma->probe);
}

static struct peer_write *find_write(const struct peer_rdma *rdma, uint32_t number) {
    LIST_FOR_EACH (link, &rdma->writes)
        if (LIST_ENTRY(link, struct peer_write, link)->remote_slot.number == number)
            return LIST_ENTRY(link, struct peer_write, link);
    return NULL;
}

/* The peer may have received the whole probe although its acknowledgement is still under way. What
 * is written now arrives after it. */
static bool may_write(const struct peer_rdma *rdma) {
    return rdma->out_state == OUT_PROVING || rdma->out_state == OUT_READY;
}

struct status *peer_rdma_write(struct peer_rdma *rdma, const struct rdma_remote_slot *remote_slot,
                               struct peer_value *value_take) {
    if ((!may_write(rdma) && rdma->out_state != OUT_ENDING) ||
        find_write(rdma, remote_slot->number)) {
        peer_value_fini(value_take);
        return status_invalid(
            "task %s grants remote slot %u twice, or of a connection that does not exist",
            rdma->task, (unsigned)remote_slot->number);
    }
    struct peer_write *write = write_new(rdma, remote_slot, value_take);
    list_push_back(&rdma->writes, &write->link);
    write->is_parked = rdma->out_state == OUT_ENDING; /* its remote slot will be withdrawn */
    if (!write->is_parked)
        start(write);
    return NULL;
}

struct status *peer_rdma_write_pregranted(struct peer_rdma *rdma, uint64_t connection,
                                          const struct rdma_remote_slot *remote_slot,
                                          struct peer_value *value_take) {
    if (connection == 0 ||
        /* all its remote slots have been withdrawn */
        connection != peer_rdma_connection_to(rdma)) {
        peer_push(rdma->peer, value_take);
        peer_value_fini(value_take);
        rdma->n_instead++;
        return NULL;
    }
    rdma->n_written_pregranted += may_write(rdma);
    return peer_rdma_write(rdma, remote_slot, value_take);
}

void peer_rdma_decline(struct peer_rdma *rdma, const struct rdma_remote_slot *remote_slot) {
    if (may_write(rdma)) /* otherwise it is withdrawn with the connection */
        peer_rdma_send_decline(rdma, remote_slot->number, false);
}

static void on_written(void *owner, struct rdma_transfer *transfer) {
    struct peer_rdma *rdma = owner;
    struct peer_write *write = CONTAINER_OF(transfer, struct peer_write, transfer);
    bool is_probe = write == rdma->probe;
    if (!is_probe) {
        rdma->n_written++;
        rdma->written_bytes += write->value.size_bytes;
        peer_link_note(&rdma->written_ns_per_byte, transfer->size_bytes,
                       clock_now_ns() - transfer->begun_ns);
    }
    write_free(write);
    if (is_probe)
        peer_rdma_out_ready(rdma);
}

static void on_write_refused(void *owner, struct rdma_transfer *transfer, struct status *why) {
    struct peer_rdma *rdma = owner;
    struct peer_write *write = CONTAINER_OF(transfer, struct peer_write, transfer);
    if (write == rdma->probe) {
        peer_rdma_out_failed(rdma, why);
        return;
    }
    write->is_parked = true;
    if (rdma->setup->mode == RDMA_REQUIRE)
        require_failed(rdma, STATUS_UNAVAILABLE, "this task cannot send by RDMA to",
                       status_message(why));
    else if (may_write(rdma))
        peer_rdma_send_decline(rdma, write->remote_slot.number, true);
}

static void on_out_failed(void *owner, struct status *why) { peer_rdma_out_failed(owner, why); }

static void on_abandoned(struct rdma_transfer *transfer) {
    struct peer_write *write = CONTAINER_OF(transfer, struct peer_write, transfer);
    if (write->is_gone)
        write_free(write);
}

const struct rdma_out_handlers peer_out_handlers = {.on_written = on_written,
                                                    .on_refused = on_write_refused,
                                                    .on_failed = on_out_failed,
                                                    .on_abandoned = on_abandoned};

void peer_rdma_park_writes(struct peer_rdma *rdma) {
    if (rdma->probe)
        write_end(rdma->probe);
    rdma->probe = NULL;
    LIST_FOR_EACH (link, &rdma->writes)
        LIST_ENTRY(link, struct peer_write, link)->is_parked = true;
}

/* The remote slots were pre-granted, and withdrawn before the values existed. */
void peer_rdma_push_unstarted(struct peer_rdma *rdma) {
    LIST_FOR_EACH_SAFE (link, next, &rdma->writes) {
        struct peer_write *write = LIST_ENTRY(link, struct peer_write, link);
        if (write->is_started)
            continue;
        peer_push(rdma->peer, &write->value);
        rdma->n_instead++;
        write_end(write);
    }
}

void peer_rdma_drop_writes(struct peer_rdma *rdma) {
    LIST_FOR_EACH_SAFE (link, next, &rdma->writes)
        write_end(LIST_ENTRY(link, struct peer_write, link));
}

struct status *peer_rdma_on_withdrawn(struct peer_rdma *rdma, uint32_t number) {
    struct peer_write *write = find_write(rdma, number);
    if (!write)
        return NULL; /* declined: there is no value */
    if (!write->is_parked)
        return status_invalid("task %s withdraws remote slot %u, which is being written",
                              rdma->task, (unsigned)number);
    peer_push(rdma->peer, &write->value);
    rdma->n_instead++;
    write_end(write);
    return NULL;
}
