/* Pre-grants (rendezvous.h): grants values of known shape before they are announced. */
#include "worker/exchange/rendezvous_pregrant.h"

#include <stdlib.h>

#include "worker/exchange/rendezvous_internal.h"

struct metric worker_pregrants_total =
    METRIC_COUNTER_INIT("millrace_worker_pregrants_total",
                        "Large values that this task granted before they were announced");
struct metric worker_pregranted_received_total = METRIC_COUNTER_INIT(
    "millrace_worker_pregranted_received_total", "Large values that arrived by a pre-grant");
struct metric worker_pregranted_sent_total = METRIC_COUNTER_INIT(
    "millrace_worker_pregranted_sent_total",
    "Large values that were sent by a pre-grant, without an announcement or before their grant");

/* ---- the receiver's room ---- */

static bool fits_in(const _Atomic int64_t *in_flight_bytes, const _Atomic int64_t *pregrant_bytes,
                    int64_t size, int64_t max) {
    return atomic_load_explicit(in_flight_bytes, memory_order_relaxed) +
               atomic_load_explicit(pregrant_bytes, memory_order_relaxed) + size <=
           max;
}

/* Unlike an announced value, a pre-grant without any credit is not let through, because its value
 * can be announced instead. */
static bool reserve(_Atomic int64_t *pregrant_bytes, int64_t size, int64_t max) {
    return size <= max && rendezvous_reserve(pregrant_bytes, size, max);
}

static bool take_credit(struct rendezvous *rendezvous, struct peer *peer, size_t size_bytes) {
    struct rendezvous_table *table = rendezvous->table;
    int64_t size = (int64_t)size_bytes, max = table->max_in_flight_bytes;
    if (peer_pregrant_is_scarce(table->allocator, size_bytes) ||
        !fits_in(&table->in_flight_bytes, &table->pregrant_bytes, size, max) ||
        !reserve(peer_pregrant_bytes(peer), size, max / RENDEZVOUS_PREGRANT_PART_SHARE))
        return false;
    if (rendezvous->credit &&
        !reserve(&rendezvous->credit->pregrant_bytes, size, max / RENDEZVOUS_PREGRANT_PART_SHARE)) {
        rendezvous_unreserve(peer_pregrant_bytes(peer), size);
        return false;
    }
    if (reserve(&table->pregrant_bytes, size, max / RENDEZVOUS_PREGRANT_SHARE))
        return true;
    rendezvous_unreserve(peer_pregrant_bytes(peer), size);
    if (rendezvous->credit)
        rendezvous_unreserve(&rendezvous->credit->pregrant_bytes, size);
    return false;
}

void pregrant_release_credit(struct rendezvous *rendezvous, const struct slot *slot) {
    int64_t size = (int64_t)slot->size_bytes;
    rendezvous_unreserve(&rendezvous->table->pregrant_bytes, size);
    rendezvous_unreserve(peer_pregrant_bytes(slot->peer), size);
    if (rendezvous->credit)
        rendezvous_unreserve(&rendezvous->credit->pregrant_bytes, size);
}

/* ---- the receiver's grants ---- */

struct peer *pregrant_peer(struct rendezvous *rendezvous, const struct plan_channel *channel,
                           enum peer_pregrant_way *ret_way) {
    struct rendezvous_table *table = rendezvous->table;
    struct peer *peer = table->task && strcmp(channel->peer_task, table->task) != 0
                            ? peer_find(table->peers, channel->peer_task)
                            : NULL;
    *ret_way = peer ? peer_pregrant_way(peer) : PEER_PREGRANT_NONE;
    return *ret_way == PEER_PREGRANT_NONE ? NULL : peer;
}

/* Nothing is granted for the slot any more. It is as if its Recv had just begun. */
static void forget(struct slot *slot) {
    slot->channel = NULL;
    slot->peer = NULL;
    slot->size_bytes = 0;
    slot->is_announced = false;
}

static void write_grant(const struct slot *slot, const struct plan_channel *channel,
                        struct str *out) {
    edge_message_write_expected(out, slot->edge, slot->frame_iter, channel->dtype, channel->shape,
                                channel->slot_bytes);
}

static bool grant_write(struct rendezvous *rendezvous, const struct slot *slot,
                        const struct str *meta) {
    struct buffer *kept = rendezvous_keep_meta((struct span){meta->data, meta->len});
    bool is_asked =
        peer_grant_early(slot->peer, &(struct peer_grant){.step = rendezvous->step_id,
                                                          .frame_iter = slot->frame_iter,
                                                          .edge = slot->edge,
                                                          .announcement = kept,
                                                          .allocator = rendezvous->table->allocator,
                                                          .size_bytes = slot->size_bytes});
    buffer_unref(kept);
    return is_asked;
}

static bool grant_push(struct rendezvous *rendezvous, struct slot *slot, const struct str *meta) {
    slot->memory = buffer_alloc(rendezvous->table->allocator, slot->size_bytes);
    if (slot->memory && rendezvous_queue_edge(rendezvous, slot->peer, WIRE_GRANT, meta, NULL))
        return true;
    buffer_unref(slot->memory);
    return false;
}

void pregrant_value(struct rendezvous *rendezvous, struct slot *slot,
                    const struct plan_channel *channel, struct peer *peer,
                    enum peer_pregrant_way way) {
    struct str meta = STR_INIT;
    if (!take_credit(rendezvous, peer, channel->slot_bytes))
        return;
    slot->channel = channel;
    slot->peer = peer;
    slot->size_bytes = channel->slot_bytes;
    write_grant(slot, channel, &meta);
    if (way == PEER_PREGRANT_WRITE ? grant_write(rendezvous, slot, &meta)
                                   : grant_push(rendezvous, slot, &meta)) {
        slot_move(slot, way == PEER_PREGRANT_WRITE ? SLOT_PREGRANTED : SLOT_GRANTED);
        metric_add(&worker_pregrants_total, 1);
    } else {
        pregrant_release_credit(rendezvous, slot);
        forget(slot);
    }
    str_fini(&meta);
}

/* ---- what becomes of them ---- */

static bool is_expected(const struct slot *slot, const struct tensor_meta *meta) {
    return meta->dtype == slot->channel->dtype &&
           shape_equal((struct shape){meta->rank, meta->dims}, slot->channel->shape);
}

/* Lock held. A pre-grant by which the value may be pushed, and the value's announcement, have
 * crossed: the value comes by the pre-grant. If the sender may not have the pre-grant any more, an
 * ordinary grant follows. If another value is announced, credit is needed again. True:
 * rendezvous_try_grants has to follow. */
static bool settle(struct rendezvous *rendezvous, struct slot *slot,
                   const struct edge_message *edge, struct span meta, bool may_be_lost) {
    bool is_as_expected = is_expected(slot, &edge->tensor);
    if (is_as_expected && !may_be_lost && !edge->wants_grant)
        return false;
    if (is_as_expected) {
        struct str grant = STR_INIT;
        edge_message_write(&grant, slot->edge, slot->frame_iter, NULL, 0);
        /* when the peer is lost, the step ends */
        (void)rendezvous_queue_edge(rendezvous, slot->peer, WIRE_GRANT, &grant, NULL);
        str_fini(&grant);
        return false;
    }
    struct peer *peer = slot->peer;
    pregrant_release_credit(rendezvous, slot);
    buffer_unref(slot->memory);
    forget(slot);
    rendezvous_set_announced(rendezvous, slot, peer, edge->tensor.size_bytes,
                             rendezvous_keep_meta(meta));
    slot_move(slot, SLOT_ANNOUNCED);
    return true;
}

struct status *pregrant_announced(struct rendezvous *rendezvous, struct slot *slot,
                                  const struct edge_message *edge, struct span meta,
                                  bool *ret_tries_grants) {
    *ret_tries_grants = false;
    if (slot->is_announced)
        return status_internal("edge %u is announced twice", edge->edge);
    slot->is_announced = true;
    if (slot->state == SLOT_GRANTED)
        *ret_tries_grants = settle(rendezvous, slot, edge, meta, false);
    /* first its sender says what becomes of the remote slot */
    else if (slot->state == SLOT_PREGRANTED)
        slot->announced = rendezvous_keep_meta(meta);
    return NULL; /* ARRIVING, GROWING, DONE: the value was sent by the pre-grant */
}

static void read_again(const struct buffer *announced, struct edge_message *ret) {
    struct status *st =
        edge_message_read((struct span){announced->data, announced->size_bytes}, ret);
    CHECK(!st); /* it was read before without an error */
}

/* Lock held. The RDMA connection has ended, and the sender may push the value of the slot. True:
 * rendezvous_try_grants has to follow. */
static bool push_instead(struct rendezvous *rendezvous, struct slot *slot, struct buffer *buffer) {
    struct buffer *announced = slot->is_announced ? slot->announced : NULL;
    bool tries_grants = false;
    slot->memory = buffer_ref(buffer);
    slot_move(slot, SLOT_GRANTED);
    if (announced) {
        struct edge_message edge;
        read_again(announced, &edge);
        tries_grants = settle(rendezvous, slot, &edge,
                              (struct span){announced->data, announced->size_bytes}, true);
    }
    buffer_unref(announced);
    return tries_grants;
}

/* Lock held. The sender has declined the remote slot, or was never told of it. True:
 * rendezvous_try_grants has to follow. */
static bool announce_instead(struct rendezvous *rendezvous, struct slot *slot) {
    struct buffer *announced = slot->is_announced ? slot->announced : NULL;
    struct peer *peer = slot->peer;
    pregrant_release_credit(rendezvous, slot);
    forget(slot);
    if (!announced) {
        slot_move(slot, SLOT_WAITING);
        return false;
    }
    struct edge_message edge;
    read_again(announced, &edge);
    rendezvous_set_announced(rendezvous, slot, peer, edge.tensor.size_bytes, announced);
    slot_move(slot, SLOT_ANNOUNCED);
    return true;
}

void pregrant_withdrawn(void *arg, struct peer *peer, uint64_t step, uint32_t edge,
                        uint64_t frame_iter, struct buffer *buffer) {
    struct rendezvous *rendezvous;
    bool tries_grants = false;
    if (rendezvous_find(arg, step, false, &rendezvous) != FOUND)
        return;
    pthread_mutex_lock(&rendezvous->lock);
    struct slot *slot = slot_find(rendezvous, edge, frame_iter);
    if (slot && slot->state == SLOT_PREGRANTED && slot->peer == peer)
        tries_grants =
            buffer ? push_instead(rendezvous, slot, buffer) : announce_instead(rendezvous, slot);
    pthread_mutex_unlock(&rendezvous->lock);
    if (tries_grants)
        rendezvous_try_grants(rendezvous);
    else
        rendezvous_flush(rendezvous);
    rendezvous_unref(rendezvous);
}

/* ---- the sender's side ---- */

static struct pending_pregrant *pending_new(struct peer *peer, const struct peer_pregrant *pregrant,
                                            const struct tensor_meta *expected) {
    struct pending_pregrant *pending =
        xmalloc(sizeof(*pending) + (size_t)expected->rank * sizeof(int64_t));
    pending->pregrant = *pregrant;
    pending->dtype = expected->dtype;
    pending->rank = expected->rank;
    memcpy(pending->dims, expected->dims, (size_t)expected->rank * sizeof(int64_t));
    atomic_fetch_add_explicit(peer_n_pending_pregrants(peer), 1, memory_order_relaxed);
    return pending;
}

static bool may_keep(struct peer *peer) {
    return atomic_load_explicit(peer_n_pending_pregrants(peer), memory_order_relaxed) <
           PEER_MAX_PENDING_PREGRANTS;
}

struct pending_pregrant *pregrant_take_pending(struct rendezvous *rendezvous,
                                               const struct peer *peer, uint32_t edge,
                                               uint64_t frame_iter) {
    struct slot *slot = slot_find_sent(rendezvous, peer, edge, frame_iter);
    if (!slot || slot->state != SLOT_PENDING_PREGRANT)
        return NULL;
    struct pending_pregrant *pending = slot->pregrant;
    rendezvous->n_pending_pregrants--;
    slot_remove(rendezvous, slot);
    return pending;
}

bool pregrant_fits(const struct pending_pregrant *pending, const struct tensor *value) {
    return value->storage != TENSOR_DEAD && pending->dtype == (enum dtype)value->dtype &&
           shape_equal((struct shape){pending->rank, pending->dims}, tensor_shape(value));
}

/* Frees the record. The pre-grant itself still has to be used or dropped. */
static struct peer_pregrant pending_end(struct peer *peer, struct pending_pregrant *pending_take) {
    struct peer_pregrant pregrant = pending_take->pregrant;
    free(pending_take);
    atomic_fetch_sub_explicit(peer_n_pending_pregrants(peer), 1, memory_order_relaxed);
    return pregrant;
}

void pregrant_drop_pending(struct peer *peer, struct pending_pregrant *pending_take) {
    if (!pending_take)
        return;
    struct peer_pregrant pregrant = pending_end(peer, pending_take);
    peer_drop_pregrant(peer, &pregrant);
}

void pregrant_send_pending(struct peer *peer, struct pending_pregrant *pending_take,
                           struct peer_value *value_take) {
    struct peer_pregrant pregrant = pending_end(peer, pending_take);
    metric_add(&worker_pregranted_sent_total, 1);
    peer_send_pregranted(peer, &pregrant, value_take);
}

static struct status *check_grant(const struct peer *peer, const struct edge_message *edge) {
    TRY(tensor_meta_check(&edge->tensor));
    if (edge->tensor.is_dead || !tensor_meta_is_plain(&edge->tensor))
        return status_invalid("task %s sent a pre-grant for a value that is not large",
                              peer_name(peer));
    return NULL;
}

/* Lock held. The value was announced before: it is sent by the pre-grant if it fits. */
static bool take_offered(struct rendezvous *rendezvous, struct slot *slot,
                         const struct edge_message *edge, struct peer_value *ret_value,
                         struct rendezvous_recv **ret_offer) {
    if (!slot->is_plain || !tensor_meta_fits(&edge->tensor, &slot->value))
        return false;
    ret_value->step = rendezvous->step_id;
    ret_value->size_bytes = slot->size_bytes;
    tensor_move(&ret_value->value, &slot->value);
    *ret_offer = slot->recv;
    slot_remove(rendezvous, slot);
    edge_message_write(&ret_value->meta, edge->edge, edge->frame_iter, &ret_value->value, 0);
    return true;
}

struct status *pregrant_on_grant(struct rendezvous_table *table, struct peer *peer,
                                 const struct wire_message *message,
                                 const struct edge_message *edge) {
    struct rendezvous *rendezvous;
    struct peer_value value = {0};
    struct rendezvous_recv *offer = NULL;
    bool is_kept = false, is_taken = false;
    TRY(check_grant(peer, edge));
    struct peer_pregrant pregrant =
        peer_pregrant_take(peer, edge->has_remote_slot ? &edge->remote_slot : NULL);
    enum find_result result = rendezvous_find(table, message->id, true, &rendezvous);
    if (result == FIND_REFUSED) /* the task that granted it waits for the value */
        rendezvous_refuse_early(table, peer, message->id);
    if (result != FOUND) {
        peer_drop_pregrant(peer, &pregrant);
        return NULL;
    }
    pthread_mutex_lock(&rendezvous->lock);
    bool is_live = !rendezvous->is_ended && !rendezvous->why;
    struct slot *slot =
        is_live ? slot_find_sent(rendezvous, peer, edge->edge, edge->frame_iter) : NULL;
    if (slot && slot->state == SLOT_OFFERED) {
        is_taken = take_offered(rendezvous, slot, edge, &value, &offer);
    } else if (is_live && !slot && may_keep(peer)) {
        slot = slot_add(rendezvous, edge->edge, edge->frame_iter);
        slot->peer = peer;
        slot->pregrant = pending_new(peer, &pregrant, &edge->tensor);
        slot_start(slot, SLOT_PENDING_PREGRANT);
        rendezvous->n_pending_pregrants++;
        is_kept = true;
        if (unlikely(!rendezvous->is_opened))
            rendezvous_count_early(rendezvous, NULL,
                                   sizeof(struct pending_pregrant) +
                                       (size_t)edge->tensor.rank * sizeof(int64_t));
    }
    rendezvous->has_dropped_pregrant |= is_live && !is_taken && !is_kept;
    pthread_mutex_unlock(&rendezvous->lock);
    rendezvous_unref(rendezvous);
    if (is_taken) {
        metric_add(&worker_pregranted_sent_total, 1);
        peer_send_pregranted(peer, &pregrant, &value);
    } else if (!is_kept) {
        peer_drop_pregrant(peer, &pregrant);
    }
    if (offer)
        offer->on_value(offer, NULL, NULL);
    return NULL;
}
