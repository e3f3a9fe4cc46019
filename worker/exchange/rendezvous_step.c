/* Keeps the keys of one step, where the two ends of an edge meet. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/tensor/growing_buffer.h"
#include "common/tensor/tensor_proto.h"
#include "worker/exchange/rendezvous_pregrant.h"
#include "worker/exchange/rendezvous_internal.h"

enum { INITIAL_BUCKETS = 16 };

/* ---- the states of a slot: drawn in rendezvous_internal.h ---- */

static const struct state_row slot_rows[SLOT_N_STATES] = {
    [SLOT_WAITING] = {"WAITING",
                      STATE_SET(SLOT_ANNOUNCED) | STATE_SET(SLOT_GRANTED) |
                          STATE_SET(SLOT_PREGRANTED),
                      .is_first = true},
    [SLOT_VALUE] = {"VALUE", 0, .is_first = true},
    [SLOT_ANNOUNCED] = {"ANNOUNCED", STATE_SET(SLOT_GRANTED), .is_first = true},
    [SLOT_GRANTED] = {"GRANTED", STATE_SET(SLOT_VALUE) | STATE_SET(SLOT_ANNOUNCED) |
                                     STATE_SET(SLOT_ARRIVING) | STATE_SET(SLOT_DONE)},
    [SLOT_ARRIVING] = {"ARRIVING",
                       STATE_SET(SLOT_VALUE) | STATE_SET(SLOT_DONE) | STATE_SET(SLOT_GROWING)},
    [SLOT_PREGRANTED] = {"PREGRANTED", STATE_SET(SLOT_WAITING) | STATE_SET(SLOT_ANNOUNCED) |
                                           STATE_SET(SLOT_GRANTED) | STATE_SET(SLOT_DONE)},
    [SLOT_DONE] = {"DONE", 0},
    [SLOT_GROWING] = {"GROWING", STATE_SET(SLOT_DONE)},
    [SLOT_OFFERED] = {"OFFERED", 0, .is_first = true},
    [SLOT_PENDING_PREGRANT] = {"PENDING_PREGRANT", 0, .is_first = true},
};

static const char *broken_slot(const void *object) {
    const struct slot *slot = object;
    if ((slot->state == SLOT_WAITING) != (slot->recv && !slot->peer))
        return "only a WAITING slot has a Recv and no peer";
    if (state_is_in(slot->state, STATE_SET(SLOT_PREGRANTED)) && !slot->channel)
        return "the expected value is missing";
    if (state_is_in(slot->state, STATE_SET(SLOT_ANNOUNCED)) && (!slot->announced || slot->channel))
        return "the announcement is missing, or a pre-grant is left";
    if (slot->state == SLOT_VALUE && slot->value.storage == TENSOR_NONE)
        return "the value is missing";
    if (slot->state == SLOT_PENDING_PREGRANT && !slot->pregrant)
        return "the pre-grant is missing";
    if (slot->state == SLOT_GROWING && (!slot->memory || !slot->grows))
        return "the growing value is missing";
    return state_is_in(slot->state, STATE_SET(SLOT_DONE) | STATE_SET(SLOT_GROWING)) && slot->recv
               ? "a Recv waits"
               : NULL;
}

const struct state_machine slot_machine = {"rendezvous slot", slot_rows, SLOT_N_STATES,
                                           broken_slot};

/* ---- slots; the step's lock is held ---- */

static uint32_t bucket_of(const struct rendezvous *rendezvous, uint32_t edge, uint64_t frame_iter) {
    uint64_t hash = (frame_iter + edge * 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;
    return (uint32_t)(hash >> 32) & (rendezvous->n_buckets - 1);
}

struct slot *slot_find(struct rendezvous *rendezvous, uint32_t edge, uint64_t frame_iter) {
    if (rendezvous->n_slots == 0)
        return NULL;
    struct slot *slot = rendezvous->buckets[bucket_of(rendezvous, edge, frame_iter)];
    while (slot && (slot->edge != edge || slot->frame_iter != frame_iter || slot_is_sent(slot)))
        slot = slot->next;
    return slot;
}

struct slot *slot_find_sent(struct rendezvous *rendezvous, const struct peer *peer, uint32_t edge,
                            uint64_t frame_iter) {
    if (rendezvous->n_slots == 0)
        return NULL;
    struct slot *slot = rendezvous->buckets[bucket_of(rendezvous, edge, frame_iter)];
    while (slot && (slot->edge != edge || slot->frame_iter != frame_iter || !slot_is_sent(slot) ||
                    slot->peer != peer))
        slot = slot->next;
    return slot;
}

static void grow_buckets(struct rendezvous *rendezvous) {
    uint32_t n_old = rendezvous->n_buckets;
    struct slot **old = rendezvous->buckets;
    rendezvous->n_buckets = n_old ? n_old * 2 : INITIAL_BUCKETS;
    rendezvous->buckets = xcalloc(rendezvous->n_buckets, sizeof(struct slot *));
    for (uint32_t i = 0; i < n_old; i++)
        for (struct slot *slot = old[i], *next; slot; slot = next) {
            next = slot->next;
            struct slot **head =
                &rendezvous->buckets[bucket_of(rendezvous, slot->edge, slot->frame_iter)];
            slot->next = *head;
            *head = slot;
        }
    free(old);
}

struct slot *slot_add(struct rendezvous *rendezvous, uint32_t edge, uint64_t frame_iter) {
    if (rendezvous->n_slots >= rendezvous->n_buckets)
        grow_buckets(rendezvous);
    struct slot *slot = rendezvous->free_slots;
    if (slot) {
        rendezvous->free_slots = slot->next;
        rendezvous->n_free_slots--;
    } else {
        slot = aligned_alloc(64, sizeof(*slot));
        if (!slot)
            out_of_memory(sizeof(*slot));
    }
    struct slot **head = &rendezvous->buckets[bucket_of(rendezvous, edge, frame_iter)];
    slot->value.storage = TENSOR_NONE;
    slot->next = *head;
    slot->edge = edge;
    slot->frame_iter = frame_iter;
    slot->dtype = DT_INVALID;
    slot->is_plain = false;
    slot->recv = NULL;
    slot->peer = NULL;
    slot->size_bytes = 0;
    slot->channel = NULL;
    slot->is_pushed = slot->is_unwanted = false;
    slot->is_announced = false;
    *head = slot;
    rendezvous->n_slots++;
    return slot;
}

static void slot_recycle(struct rendezvous *rendezvous, struct slot *slot) {
    if (rendezvous->n_free_slots >= SLOTS_KEPT) {
        free(slot);
        return;
    }
    slot->next = rendezvous->free_slots;
    rendezvous->free_slots = slot;
    rendezvous->n_free_slots++;
}

void slot_remove(struct rendezvous *rendezvous, struct slot *slot) {
    struct slot **at = &rendezvous->buckets[bucket_of(rendezvous, slot->edge, slot->frame_iter)];
    while (*at != slot)
        at = &(*at)->next;
    *at = slot->next;
    rendezvous->n_slots--;
    slot_recycle(rendezvous, slot);
}

/* ---- what the step exchanges with a peer; the step's lock is held ---- */

struct step_peer *rendezvous_peer(struct rendezvous *rendezvous, struct peer *peer) {
    for (uint32_t i = 0; i < rendezvous->n_peers; i++)
        if (rendezvous->peers[i].peer == peer)
            return &rendezvous->peers[i];
    if (rendezvous->n_peers == rendezvous->peers_capacity) {
        rendezvous->peers_capacity =
            rendezvous->peers_capacity ? rendezvous->peers_capacity * 2 : 4;
        rendezvous->peers =
            xreallocarray(rendezvous->peers, rendezvous->peers_capacity, sizeof(struct step_peer));
    }
    struct step_peer *made = &rendezvous->peers[rendezvous->n_peers++];
    *made = (struct step_peer){.peer = peer};
    return made;
}

/* ---- a value comes ---- */

/* Lock held. What is kept for a step that has not begun here counts in the table's limit. */
void rendezvous_count_early(struct rendezvous *rendezvous, const struct tensor *value,
                            size_t kept_bytes) {
    size_t bytes = sizeof(struct slot) + kept_bytes;
    if (value && value->storage != TENSOR_DEAD && dtype_is_object((enum dtype)value->dtype))
        bytes += tensor_proto_size(value);
    /* otherwise the memory belongs to the value's owner */
    else if (value && value->storage == TENSOR_BUFFER &&
             !(value->buffer->flags & BUFFER_IS_READ_ONLY))
        bytes += tensor_size_bytes(value);
    rendezvous->early_bytes += bytes;
    atomic_fetch_add_explicit(&rendezvous->table->early_bytes, (int64_t)bytes,
                              memory_order_relaxed);
}

/* Adds a value that arrives before its Recv. */
static void keep_value(struct rendezvous *rendezvous, struct slot *slot, struct tensor *value) {
    if (unlikely(!rendezvous->is_opened))
        rendezvous_count_early(rendezvous, value, 0);
    tensor_move(&slot->value, value);
}

/* Both ends of an edge must agree about the type, otherwise a kernel would read elements of another
 * size. */
static bool is_of_type(const struct tensor *value, enum dtype dtype) {
    return value->storage == TENSOR_DEAD || dtype == DT_INVALID || value->dtype == dtype;
}

static struct status *wrong_type(const struct tensor *value, uint32_t edge, enum dtype dtype) {
    return status_internal("edge %u carries %s, but a value of %s arrived", edge, dtype_name(dtype),
                           dtype_name((enum dtype)value->dtype));
}

static struct status *second_value(const struct rendezvous *rendezvous, uint32_t edge,
                                   uint64_t frame_iter) {
    return status_internal("step %llx: edge %u got a second value for frame and iteration %llx",
                           (unsigned long long)rendezvous->step_id, edge,
                           (unsigned long long)frame_iter);
}

/* Lock held. A value that came without a grant has been handed on. True: a Credit is queued. */
static bool give_credit(struct rendezvous *rendezvous, struct peer *peer, size_t size_bytes) {
    struct step_peer *from = rendezvous_peer(rendezvous, peer);
    from->taken_bytes += (int64_t)size_bytes + RENDEZVOUS_VALUE_BYTES;
    if (likely(from->taken_bytes < RENDEZVOUS_STEP_CREDIT_BYTES / 2))
        return false;
    struct str meta = STR_INIT;
    credit_write(&meta, (uint64_t)from->taken_bytes);
    from->taken_bytes = 0;
    /* when the peer is lost, the step ends */
    bool is_queued = rendezvous_queue_edge(rendezvous, peer, WIRE_CREDIT, &meta, NULL);
    str_fini(&meta);
    return is_queued;
}

/* Lock held. A Recv waits now for what was granted before. */
static void set_wanted(struct rendezvous *rendezvous, struct slot *slot) {
    if (!slot->is_unwanted)
        return;
    slot->is_unwanted = false;
    rendezvous_peer(rendezvous, slot->peer)->unwanted_bytes -=
        (int64_t)slot->size_bytes + RENDEZVOUS_VALUE_BYTES;
}

/* What the caller has to do once the lock is not held. */
struct follow_up {
    bool retry_pending; /* credit of the task was returned: rendezvous_retry_pending */
    bool try_grants; /* there is credit for announced values of this step: rendezvous_try_grants */
    bool flush;      /* a Credit is queued: flush */
};

static void follow(struct rendezvous *rendezvous, const struct follow_up *what) {
    if (unlikely(what->try_grants))
        rendezvous_try_grants(rendezvous);
    if (unlikely(what->flush))
        rendezvous_flush(rendezvous);
    if (what->retry_pending)
        rendezvous_retry_pending(rendezvous->table);
}

/* Lock held. A value has arrived for a slot that waits for it. Returns the slot's Recv, and removes
 * it from the slot. NULL: there is no Recv yet, and the slot keeps the value. */
static struct rendezvous_recv *fill_slot(struct rendezvous *rendezvous, struct slot *slot,
                                         struct value_source source, struct tensor *value,
                                         struct buffer **ret_memory, struct follow_up *ret) {
    struct rendezvous_recv *recv = slot->recv;
    bool may_be_announced = slot->channel && !slot->is_announced;
    bool is_granted = slot_has_credit(slot) && !slot->channel;
    if (slot->channel && value->storage == TENSOR_BUFFER &&
        tensor_size_bytes(value) == slot->size_bytes)
        metric_add(&worker_pregranted_received_total, 1);
    if (slot_has_credit(slot)) {
        rendezvous->n_granted -= is_granted;
        rendezvous_release_credit(rendezvous, slot);
        *ret_memory = slot->state != SLOT_PREGRANTED ? slot->memory
                      : slot->is_announced           ? slot->announced
                                                     : NULL;
    }
    ret->retry_pending = is_granted;
    slot->recv = NULL;
    if (recv && source.is_small && !is_granted)
        ret->flush = give_credit(rendezvous, source.peer, source.size_bytes);
    if (recv && may_be_announced) {
        slot_move(slot, SLOT_DONE);
    } else if (recv) {
        slot_remove(rendezvous, slot);
    } else {
        keep_value(rendezvous, slot, value);
        slot_move(slot, SLOT_VALUE);
    }
    return recv;
}

/* Lock held. A value that was handed on while it arrived is whole. */
static void end_growing(struct rendezvous *rendezvous, struct slot *slot,
                        struct buffer **ret_memory, struct follow_up *ret) {
    bool is_granted = !slot->channel, may_be_announced = slot->channel && !slot->is_announced;
    if (slot->channel)
        metric_add(&worker_pregranted_received_total, 1);
    rendezvous->n_granted -= is_granted;
    rendezvous_release_credit(rendezvous, slot);
    *ret_memory = slot->memory;
    ret->retry_pending = is_granted;
    if (may_be_announced)
        slot_move(slot, SLOT_DONE);
    else
        slot_remove(rendezvous, slot);
}

/* Only the memory that was handed on makes the value of the slot whole: a peer may push other bytes
 * for its key. */
static bool is_growing(const struct slot *slot, const struct tensor *value) {
    return slot->state == SLOT_GROWING && value->storage == TENSOR_BUFFER &&
           value->buffer == slot->memory;
}

struct status *rendezvous_deliver(struct rendezvous *rendezvous, uint32_t edge, uint64_t frame_iter,
                                  struct value_source source, struct tensor *value) {
    struct rendezvous_recv *recv = NULL;
    struct buffer *memory = NULL, *growing = NULL;
    struct follow_up after = {false};
    enum dtype dtype = DT_INVALID;
    pthread_mutex_lock(&rendezvous->lock);
    if (unlikely(rendezvous->is_ended || rendezvous->why)) {
        pthread_mutex_unlock(&rendezvous->lock);
        tensor_clear(value);
        return NULL;
    }
    struct slot *slot = slot_find(rendezvous, edge, frame_iter);
    if (!slot) {
        slot = slot_add(rendezvous, edge, frame_iter);
        slot->peer = source.peer;
        slot->size_bytes = source.size_bytes;
        slot->is_pushed = source.is_small;
        keep_value(rendezvous, slot, value);
        slot_start(slot, SLOT_VALUE);
    } else if (unlikely(is_growing(slot, value))) {
        end_growing(rendezvous, slot, &growing, &after);
    } else if (slot->state == SLOT_WAITING ||
               (slot_has_credit(slot) && slot->state != SLOT_GROWING)) {
        dtype = (enum dtype)slot->dtype;
        recv = fill_slot(rendezvous, slot, source, value, &memory, &after);
    } else {
        pthread_mutex_unlock(&rendezvous->lock);
        tensor_clear(value);
        return second_value(rendezvous, edge, frame_iter);
    }
    pthread_mutex_unlock(&rendezvous->lock);
    buffer_unref(memory);
    if (unlikely(growing != NULL)) {
        growing_buffer_end(growing, NULL);
        buffer_unref(growing);
        tensor_clear(value);
    }
    if (recv && unlikely(!is_of_type(value, dtype))) {
        recv->on_value(recv, wrong_type(value, edge, dtype), NULL);
        tensor_clear(value);
    } else if (recv) {
        recv->on_value(recv, NULL, value);
    }
    follow(rendezvous, &after);
    return NULL;
}

/* ---- both ends ---- */

static struct status *send_value(struct rendezvous *rendezvous, const struct plan_channel *channel,
                                 uint64_t frame_iter, struct tensor *value,
                                 const struct send_options *options, bool *ret_is_sent) {
    struct rendezvous_table *table = rendezvous->table;
    *ret_is_sent = true;
    if (!table->task || strcmp(channel->peer_task, table->task) == 0)
        return rendezvous_deliver(rendezvous, channel->edge, frame_iter,
                                  (struct value_source){NULL}, value);
    struct peer *peer = peer_find(table->peers, channel->peer_task);
    struct status *st =
        peer ? rendezvous_push_or_announce(rendezvous, peer, channel, frame_iter, value, options,
                                           ret_is_sent)
             : status_internal(
                   "%s is sent to task %s, which was not named when the graph was registered",
                   channel->tensor_name, channel->peer_task);
    if (st || *ret_is_sent || !options->only_push)
        tensor_clear(value);
    return st;
}

struct status *rendezvous_send(struct rendezvous *rendezvous, const struct plan_channel *channel,
                               uint64_t frame_iter, struct tensor *value) {
    bool is_sent;
    return send_value(rendezvous, channel, frame_iter, value, &(struct send_options){NULL},
                      &is_sent);
}

struct status *rendezvous_try_send(struct rendezvous *rendezvous,
                                   const struct plan_channel *channel, uint64_t frame_iter,
                                   struct tensor *value, bool *ret_is_sent) {
    return send_value(rendezvous, channel, frame_iter, value,
                      &(struct send_options){.only_push = true}, ret_is_sent);
}

struct status *rendezvous_send_or_offer(struct rendezvous *rendezvous,
                                        const struct plan_channel *channel, uint64_t frame_iter,
                                        struct tensor *value, struct rendezvous_recv *offer,
                                        bool *ret_is_offered) {
    bool is_sent;
    struct status *st = send_value(rendezvous, channel, frame_iter, value,
                                   &(struct send_options){.offer = offer}, &is_sent);
    *ret_is_offered = !st && !is_sent;
    return st;
}

struct status *rendezvous_send_encoded(struct rendezvous *rendezvous,
                                       const struct plan_channel *channel, uint64_t frame_iter,
                                       struct tensor *value, struct buffer *proto_take,
                                       struct rendezvous_recv *offer, bool *ret_is_offered) {
    bool is_sent;
    /* The step may end as soon as the value is offered. */
    atomic_fetch_add_explicit(&rendezvous->n_refs, 1, memory_order_relaxed);
    struct status *st =
        send_value(rendezvous, channel, frame_iter, value,
                   &(struct send_options){.offer = offer, .proto = proto_take}, &is_sent);
    *ret_is_offered = !st && !is_sent;
    buffer_unref(proto_take);
    rendezvous_flush(rendezvous);
    rendezvous_unref(rendezvous);
    return st;
}

/* Lock held. A Recv takes the value that arrived before it. */
static struct follow_up take_value(struct rendezvous *rendezvous, struct slot *slot,
                                   struct tensor *ret) {
    struct follow_up after = {.try_grants = slot->is_unwanted && rendezvous->n_announced > 0};
    tensor_move(ret, &slot->value);
    set_wanted(rendezvous, slot);
    if (slot->is_pushed)
        after.flush = give_credit(rendezvous, slot->peer, slot->size_bytes);
    slot_remove(rendezvous, slot);
    return after;
}

bool rendezvous_recv_start(struct rendezvous *rendezvous, const struct plan_channel *channel,
                           uint64_t frame_iter, struct rendezvous_recv *recv, struct tensor *ret) {
    struct status *why = NULL;
    bool is_announced = false;
    enum peer_pregrant_way way = PEER_PREGRANT_NONE;
    struct peer *peer =
        unlikely(channel->slot_bytes > 0) ? pregrant_peer(rendezvous, channel, &way) : NULL;
    pthread_mutex_lock(&rendezvous->lock);
    struct slot *slot = slot_find(rendezvous, channel->edge, frame_iter);
    if (unlikely(rendezvous->why != NULL)) {
        why = status_ref(rendezvous->why);
    } else if (slot && slot->state == SLOT_VALUE &&
               unlikely(!is_of_type(&slot->value, channel->dtype))) {
        why = wrong_type(&slot->value, channel->edge, channel->dtype);
    } else if (slot && slot->state == SLOT_VALUE) {
        struct follow_up after = take_value(rendezvous, slot, ret);
        pthread_mutex_unlock(&rendezvous->lock);
        follow(rendezvous, &after);
        return true;
    } else if (unlikely(slot && (slot->recv || slot->state >= SLOT_DONE))) {
        why = status_internal("two receives of %s (edge %u) in one step", channel->tensor_name,
                              channel->edge);
    } else {
        bool is_first = !slot;
        if (!slot)
            slot = slot_add(rendezvous, channel->edge, frame_iter);
        recv->channel = channel;
        recv->edge = channel->edge;
        recv->frame_iter = frame_iter;
        recv->since_ns = clock_now_ns();
        slot->recv = recv;
        slot->dtype = (uint8_t)channel->dtype;
        if (is_first)
            slot_start(slot, SLOT_WAITING);
        is_announced = slot->state == SLOT_ANNOUNCED ||
                       (unlikely(slot->is_unwanted) && rendezvous->n_announced > 0);
        set_wanted(rendezvous, slot);
        if (unlikely(peer != NULL) && is_first)
            pregrant_value(rendezvous, slot, channel, peer, way);
    }
    pthread_mutex_unlock(&rendezvous->lock);
    if (unlikely(why != NULL))
        rendezvous_tell_late(rendezvous->table, recv, why);
    else if (is_announced)
        rendezvous_try_grants(rendezvous); /* a value that is awaited may claim the next credit */
    return false;
}

void rendezvous_flush(struct rendezvous *rendezvous) {
    enum { AT_ONCE = 16 };
    struct peer *dirty[AT_ONCE];
    int n;
    do {
        n = 0;
        pthread_mutex_lock(&rendezvous->lock);
        for (uint32_t i = 0; i < rendezvous->n_peers && n < AT_ONCE; i++)
            if (rendezvous->peers[i].is_dirty) {
                rendezvous->peers[i].is_dirty = false;
                dirty[n++] = rendezvous->peers[i].peer;
            }
        pthread_mutex_unlock(&rendezvous->lock);
        for (int i = 0; i < n; i++)
            peer_flush(dirty[i], CHANNEL_CONTROL);
    } while (n == AT_ONCE);
}

/* ---- the end ---- */

/* Releases what the slot holds. Its fields are still those of its state. */
static void slot_clear(struct slot *slot) {
    switch ((enum slot_state)slot->state) {
    case SLOT_VALUE:
        tensor_clear(&slot->value);
        break;
    case SLOT_OFFERED:
        if (slot->is_plain)
            tensor_clear(&slot->value);
        else
            buffer_unref(slot->proto);
        break;
    case SLOT_ANNOUNCED:
        buffer_unref(slot->announced);
        break;
    case SLOT_PREGRANTED:
        buffer_unref(slot->is_announced ? slot->announced : NULL);
        break;
    case SLOT_GRANTED:
    case SLOT_ARRIVING:
    case SLOT_GROWING:
        buffer_unref(slot->memory);
        break;
    case SLOT_PENDING_PREGRANT:
        pregrant_drop_pending(slot->peer, slot->pregrant);
        break;
    case SLOT_WAITING:
    case SLOT_DONE:
    case SLOT_N_STATES:
        break;
    }
}

/* Lock held. Moves the slots to one list. */
static struct slot *take_slots(struct rendezvous *rendezvous) {
    struct slot *all = NULL;
    for (uint32_t i = 0; i < rendezvous->n_buckets && rendezvous->n_slots > 0; i++) {
        for (struct slot *slot = rendezvous->buckets[i], *next; slot; slot = next) {
            next = slot->next;
            slot->next = all;
            all = slot;
            rendezvous->n_slots--;
        }
        rendezvous->buckets[i] = NULL;
    }
    return all;
}

void rendezvous_clear(struct rendezvous *rendezvous, struct status *why, bool is_end) {
    pthread_mutex_lock(&rendezvous->lock);
    struct slot *slots = rendezvous->n_slots > 0 ? take_slots(rendezvous) : NULL;
    size_t early_bytes = rendezvous->early_bytes;
    bool had_credit = rendezvous->n_granted > 0;
    rendezvous->early_bytes = 0;
    rendezvous->n_announced = rendezvous->n_granted = rendezvous->n_pending_pregrants = 0;
    list_init(&rendezvous->announced);
    if (is_end) {
        rendezvous->is_ended = true;
        for (uint32_t i = 0; i < rendezvous->n_peers; i++) {
            struct step_peer *to = &rendezvous->peers[i];
            to->is_dirty = false;
            if (to->is_noted)
                peer_step_ended(to->peer, rendezvous->step_id);
            to->is_noted = false;
        }
    }
    if (why && !rendezvous->why)
        rendezvous->why = status_ref(why);
    pthread_mutex_unlock(&rendezvous->lock);
    if (early_bytes > 0)
        atomic_fetch_sub_explicit(&rendezvous->table->early_bytes, (int64_t)early_bytes,
                                  memory_order_relaxed);
    for (struct slot *slot = slots, *next; slot; slot = next) {
        next = slot->next;
        if (slot_has_credit(slot))
            rendezvous_release_credit(rendezvous, slot);
        if (slot->recv)
            slot->recv->on_value(
                slot->recv,
                why ? status_ref(why) : status_new(STATUS_CANCELLED, "the step has ended"), NULL);
        if (unlikely(slot->state == SLOT_GROWING))
            rendezvous_fail_growing(slot, why);
        slot_clear(slot);
        pthread_mutex_lock(&rendezvous->lock);
        slot_recycle(rendezvous, slot);
        pthread_mutex_unlock(&rendezvous->lock);
    }
    struct rendezvous *self = rendezvous;
    if (atomic_compare_exchange_strong(&rendezvous->table->claim, &self, NULL) || had_credit)
        rendezvous_retry_pending(rendezvous->table);
}

void rendezvous_abort(struct rendezvous *rendezvous, struct status *why) {
    rendezvous_clear(rendezvous, why, false);
}
