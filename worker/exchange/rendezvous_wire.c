/* Between tasks: push, announce, grant, and the budget of bytes in flight. */
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "worker/exchange/rendezvous_internal.h"

/* what one message carries (rpc/wire/wire); keeps sums of sizes from overflowing */
static const uint64_t max_announced_bytes = 1ull << 40;

/* ---- the sender's side ---- */

/* Lock held: the peer has something to be flushed. */
static void mark_dirty(struct rendezvous *rendezvous, struct peer *peer) {
    struct dirty_peers *dirty = &rendezvous->dirty;
    for (uint32_t i = 0; i < dirty->n; i++)
        if (dirty->items[i] == peer)
            return;
    if (dirty->n == dirty->capacity) {
        dirty->capacity = dirty->capacity ? dirty->capacity * 2 : 4;
        dirty->items = xreallocarray(dirty->items, dirty->capacity, sizeof(struct peer *));
    }
    dirty->items[dirty->n++] = peer;
}

static struct status *unavailable(const struct peer *peer, const struct plan_channel *channel) {
    return status_unavailable("there is no connection to task %s, which %s goes to",
                              peer_name(peer), channel->tensor_name);
}

/* Lock held. */
bool rendezvous_queue_edge(struct rendezvous *rendezvous, struct peer *peer, enum wire_type type,
                           const struct str *meta, const struct tensor *payload) {
    const struct tensor *tensors[1] = {payload};
    struct wire_out out = {.type = type,
                           .id = rendezvous->step_id,
                           .meta = {meta->data, meta->len},
                           .tensors = tensors,
                           .n_tensors = payload ? 1 : 0};
    if (!peer_queue(peer, CHANNEL_CONTROL, &out))
        return false;
    mark_dirty(rendezvous, peer);
    return true;
}

/* Strings, handles and variants: their TensorProto is the value that travels. */
static struct buffer *encode_proto(const struct tensor *value, size_t *ret_size) {
    struct str proto = STR_INIT;
    tensor_to_proto(value, &proto);
    *ret_size = proto.len;
    char *bytes = str_detach(&proto);
    return buffer_wrap(bytes, *ret_size, free, bytes);
}

struct status *rendezvous_push_or_announce(struct rendezvous *rendezvous, struct peer *peer,
                                           const struct plan_channel *channel, uint64_t frame_iter,
                                           struct tensor *value, struct rendezvous_recv *offer,
                                           bool *ret_is_offered) {
    bool is_dead = value->storage == TENSOR_DEAD;
    bool is_object = !is_dead && dtype_is_object((enum dtype)value->dtype);
    size_t size = is_dead ? 0 : is_object ? tensor_proto_size(value) : tensor_size_bytes(value);
    struct arena_reference reference = {0, 0};
    bool is_referenced =
        size > RENDEZVOUS_PUSH_LIMIT_BYTES && !is_object && peer_give(peer, value, &reference);
    bool is_large = size > RENDEZVOUS_PUSH_LIMIT_BYTES && !is_referenced;
    struct buffer *proto = is_large && is_object ? encode_proto(value, &size) : NULL;
    struct pending_pregrant *pending = NULL;
    bool is_pregranted = false;
    struct str meta = STR_INIT;
    edge_message_write(&meta, channel->edge, frame_iter, value, proto ? size : 0);
    if (is_referenced)
        edge_message_add_reference(&meta, &reference);
    struct status *st = NULL;
    pthread_mutex_lock(&rendezvous->lock);
    if (unlikely(rendezvous->n_pending_pregrants > 0)) {
        pending = pregrant_take_pending(rendezvous, peer, channel->edge, frame_iter);
        is_pregranted =
            pending && is_large && !is_object && !rendezvous->why && pregrant_fits(pending, value);
    }
    if (unlikely(rendezvous->why != NULL)) {
        st = status_ref(rendezvous->why);
    } else if (is_pregranted) {
        st = NULL; /* below: whoever writes it may call back */
    } else if (is_large) {
        if (unlikely(rendezvous->has_dropped_pregrant))
            edge_message_add_wants_grant(&meta);
        if (slot_find_sent(rendezvous, peer, channel->edge, frame_iter)) {
            st = status_internal("%s (edge %u) is sent twice in one frame and iteration",
                                 channel->tensor_name, channel->edge);
        } else if (!rendezvous_queue_edge(rendezvous, peer, WIRE_ANNOUNCE, &meta, NULL)) {
            st = unavailable(peer, channel);
        } else { /* the grant finds it: whoever brings that waits for the lock */
            struct slot *slot = slot_add(rendezvous, channel->edge, frame_iter);
            slot->peer = peer;
            slot->size_bytes = size;
            slot->is_plain = proto == NULL;
            slot->recv = offer;
            *ret_is_offered = offer != NULL;
            if (proto)
                slot->proto = proto;
            else
                tensor_move(&slot->value, value);
            proto = NULL;
            slot_start(slot, SLOT_OFFERED);
        }
    } else if (!rendezvous_queue_edge(rendezvous, peer, WIRE_PUSH, &meta,
                                      is_dead || is_object || is_referenced ? NULL : value)) {
        st = unavailable(peer, channel);
    }
    pthread_mutex_unlock(&rendezvous->lock);
    if (unlikely(st != NULL) && is_referenced)
        peer_take_back(peer, &reference);
    if (is_pregranted) {
        struct peer_value out = {.step = rendezvous->step_id, .meta = meta, .size_bytes = size};
        tensor_move(&out.value, value);
        pregrant_send_pending(peer, pending, &out);
        return NULL;
    }
    pregrant_drop_pending(peer, pending);
    buffer_unref(proto);
    str_fini(&meta);
    return st;
}

/* A value that is granted goes out: to the place that the receiver says, or on the bulk channel. */
static struct status *send_granted(struct peer *peer, const struct edge_message *edge,
                                   struct peer_value *value_take) {
    if (edge->has_remote_slot)
        return peer_write(peer, &edge->remote_slot, value_take);
    peer_push(peer, value_take);
    peer_value_fini(value_take);
    return NULL;
}

static struct status *not_here(struct peer *peer, const struct edge_message *edge) {
    if (edge->has_remote_slot)
        peer_decline(peer, &edge->remote_slot);
    return NULL;
}

/* The receiver has room. */
static struct status *on_grant(struct rendezvous_table *table, struct peer *peer,
                               const struct wire_message *message,
                               const struct edge_message *edge) {
    struct rendezvous *rendezvous;
    if (rendezvous_find(table, message->id, false, &rendezvous) != FOUND)
        return not_here(peer, edge); /* it has ended */
    struct peer_value value = {.step = message->id};
    struct rendezvous_recv *offer = NULL;
    pthread_mutex_lock(&rendezvous->lock);
    struct slot *slot = slot_find_sent(rendezvous, peer, edge->edge, edge->frame_iter);
    bool is_offered = slot && slot->state == SLOT_OFFERED;
    if (is_offered) {
        if (slot->is_plain)
            tensor_move(&value.value, &slot->value);
        else
            value.proto = slot->proto;
        value.size_bytes = slot->size_bytes;
        offer = slot->recv;
        slot_remove(rendezvous, slot);
    }
    pthread_mutex_unlock(&rendezvous->lock);
    rendezvous_unref(rendezvous);
    if (!is_offered)
        return not_here(peer, edge); /* aborted meanwhile */
    struct tensor object = TENSOR_INIT;
    object.dtype = DT_STRING; /* any object dtype: the TensorProto says which */
    edge_message_write(&value.meta, edge->edge, edge->frame_iter,
                       value.proto ? &object : &value.value, value.proto ? value.size_bytes : 0);
    struct status *st = send_granted(peer, edge, &value);
    if (offer)
        offer->on_value(offer, NULL, NULL);
    return st;
}

/* ---- the receiver's side ---- */

bool rendezvous_reserve(_Atomic int64_t *in_flight_bytes, int64_t size, int64_t max) {
    int64_t in_flight = atomic_load_explicit(in_flight_bytes, memory_order_relaxed);
    do {
        if (in_flight > 0 && in_flight + size > max)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(in_flight_bytes, &in_flight, in_flight + size,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

void rendezvous_unreserve(_Atomic int64_t *in_flight_bytes, int64_t size) {
    atomic_fetch_sub_explicit(in_flight_bytes, size, memory_order_relaxed);
}

void rendezvous_release_credit(struct rendezvous *rendezvous, const struct slot *slot) {
    int64_t size = (int64_t)slot->size_bytes;
    if (slot->channel) {
        pregrant_release_credit(rendezvous, slot);
        return;
    }
    rendezvous_unreserve(&rendezvous->table->in_flight_bytes, size);
    rendezvous_unreserve(peer_in_flight_bytes(slot->peer), size);
    if (rendezvous->credit)
        rendezvous_unreserve(&rendezvous->credit->in_flight_bytes, size);
}

/* Lock held. Room for the slot's bytes with its peer, its session and the task. Where there is
 * none, something is in flight, whose arrival has all in line try again. */
static bool take_credit(struct rendezvous *rendezvous, const struct slot *slot) {
    struct rendezvous_table *table = rendezvous->table;
    int64_t size = (int64_t)slot->size_bytes, max = table->max_in_flight_bytes;
    struct rendezvous *claim = atomic_load(&table->claim);
    if (claim && claim != rendezvous)
        return false;
    if (!rendezvous_reserve(peer_in_flight_bytes(slot->peer), size, max / RENDEZVOUS_PEER_SHARE))
        return false;
    if (rendezvous->credit && !rendezvous_reserve(&rendezvous->credit->in_flight_bytes, size,
                                                  max / RENDEZVOUS_SESSION_SHARE)) {
        rendezvous_unreserve(peer_in_flight_bytes(slot->peer), size);
        return false;
    }
    if (rendezvous_reserve(&table->in_flight_bytes, size, max)) {
        if (claim)
            atomic_store(&table->claim, NULL);
        return true;
    }
    rendezvous_unreserve(peer_in_flight_bytes(slot->peer), size);
    if (rendezvous->credit)
        rendezvous_unreserve(&rendezvous->credit->in_flight_bytes, size);
    struct rendezvous *nobody = NULL;
    if (slot->recv)
        atomic_compare_exchange_strong(&table->claim, &nobody, rendezvous);
    return false;
}

/* Lock held. Errors: RESOURCE_EXHAUSTED. */
static struct status *grant(struct rendezvous *rendezvous, struct slot *slot) {
    struct rendezvous_table *table = rendezvous->table;
    struct buffer *buffer = buffer_alloc(table->allocator, slot->size_bytes);
    if (!buffer)
        return status_exhausted("no memory for %zu bytes that task %s sends over edge %u",
                                slot->size_bytes, peer_name(slot->peer), slot->edge);
    struct buffer *announcement = slot->announced;
    slot->memory = buffer;
    slot_move(slot, SLOT_GRANTED);
    rendezvous->n_announced--;
    rendezvous->n_granted++;
    bool is_taken = peer_grant(slot->peer, &(struct peer_grant){.step = rendezvous->step_id,
                                                                .frame_iter = slot->frame_iter,
                                                                .edge = slot->edge,
                                                                .announcement = announcement,
                                                                .buffer = buffer,
                                                                .size_bytes = slot->size_bytes});
    buffer_unref(announcement);
    if (is_taken)
        return NULL;
    struct str meta = STR_INIT;
    edge_message_write(&meta, slot->edge, slot->frame_iter, NULL, 0);
    /* a lost peer ends the step */
    (void)rendezvous_queue_edge(rendezvous, slot->peer, WIRE_GRANT, &meta, NULL);
    str_fini(&meta);
    return NULL;
}

/* Lock held: grants those somebody waits for, or all. */
static struct status *grant_pass(struct rendezvous *rendezvous, bool only_awaited) {
    for (uint32_t i = 0; i < rendezvous->n_buckets && rendezvous->n_announced > 0; i++)
        for (struct slot *slot = rendezvous->buckets[i]; slot; slot = slot->next) {
            if (slot->state != SLOT_ANNOUNCED || (only_awaited && !slot->recv))
                continue;
            if (!take_credit(rendezvous, slot))
                continue;
            struct status *st = grant(rendezvous, slot);
            if (st) {
                rendezvous_release_credit(rendezvous, slot);
                return st;
            }
        }
    return NULL;
}

/* True when announced values of a live step are left without a grant. */
static bool grant_what_fits(struct rendezvous *rendezvous) {
    struct status *st = NULL;
    pthread_mutex_lock(&rendezvous->lock);
    bool is_live = rendezvous->is_opened && !rendezvous->is_ended && !rendezvous->why;
    if (is_live)
        st = grant_pass(rendezvous, true);
    if (is_live && !st)
        st = grant_pass(rendezvous, false);
    bool is_short = is_live && !st && rendezvous->n_announced > 0;
    pthread_mutex_unlock(&rendezvous->lock);
    rendezvous_flush(rendezvous);
    if (st) {
        rendezvous_abort(rendezvous, st);
        rendezvous_next_turns(rendezvous->table);
        status_unref(st);
    }
    return is_short;
}

/* Tries again once it stands in the queue: room that came just before would otherwise tell
 * nobody. */
void rendezvous_try_grants(struct rendezvous *rendezvous) {
    if (!grant_what_fits(rendezvous))
        return;
    rendezvous_add_pending(rendezvous);
    (void)grant_what_fits(rendezvous);
}

/* It is read again when the value has been written here. */
struct buffer *rendezvous_keep_meta(struct span meta) {
    char *bytes = xmalloc(meta.len);
    memcpy(bytes, meta.data, meta.len);
    return buffer_wrap(bytes, meta.len, free, bytes);
}

void rendezvous_set_announced(struct rendezvous *rendezvous, struct slot *slot, struct peer *peer,
                              size_t size_bytes, struct buffer *meta_take) {
    slot->peer = peer;
    slot->size_bytes = size_bytes;
    slot->announced = meta_take;
    rendezvous->n_announced++;
}

static struct status *on_announce(struct rendezvous *rendezvous, struct peer *peer,
                                  const struct edge_message *edge, struct span meta) {
    TRY(tensor_meta_check(&edge->tensor));
    if (edge->tensor.size_bytes == 0)
        return status_invalid("an announcement of nothing");
    if (edge->tensor.size_bytes > max_announced_bytes)
        return status_exhausted("task %s announces %llu bytes for edge %u", peer_name(peer),
                                (unsigned long long)edge->tensor.size_bytes, edge->edge);
    struct status *st = NULL;
    pthread_mutex_lock(&rendezvous->lock);
    bool is_live = !rendezvous->is_ended && !rendezvous->why;
    bool tries_grants = is_live;
    struct slot *slot = is_live ? slot_find(rendezvous, edge->edge, edge->frame_iter) : NULL;
    if (slot && slot->channel && slot->peer == peer) {
        st = pregrant_announced(rendezvous, slot, edge, meta, &tries_grants);
    } else if (slot && slot->state != SLOT_WAITING) {
        st = status_internal("edge %u is announced twice", edge->edge);
    } else if (is_live) {
        bool is_new = !slot;
        if (is_new)
            slot = slot_add(rendezvous, edge->edge, edge->frame_iter);
        if (unlikely(!rendezvous->is_opened))
            rendezvous_count_early(rendezvous, NULL, meta.len);
        rendezvous_set_announced(rendezvous, slot, peer, edge->tensor.size_bytes,
                                 rendezvous_keep_meta(meta));
        if (is_new)
            slot_start(slot, SLOT_ANNOUNCED);
        else
            slot_move(slot, SLOT_ANNOUNCED);
    }
    pthread_mutex_unlock(&rendezvous->lock);
    if (!st && tries_grants)
        rendezvous_try_grants(rendezvous);
    else if (!st && is_live)
        rendezvous_flush(rendezvous);
    return st;
}

static struct status *on_push(struct rendezvous *rendezvous, const struct wire_message *message,
                              const struct edge_message *edge) {
    struct tensor value = TENSOR_INIT;
    size_t offset = 0;
    TRY(tensor_meta_take(&edge->tensor, message, &offset, rendezvous->table->allocator, &value));
    return rendezvous_deliver(rendezvous, edge->edge, edge->frame_iter, &value);
}

/* A value that lies in the peer's arena. */
static struct status *on_reference(struct rendezvous *rendezvous, const struct edge_message *edge,
                                   struct buffer *buffer) {
    struct tensor value = TENSOR_INIT;
    struct shape shape = {edge->tensor.rank, edge->tensor.dims};
    TRY(tensor_view(buffer, buffer->data, edge->tensor.dtype, shape, &value));
    return rendezvous_deliver(rendezvous, edge->edge, edge->frame_iter, &value);
}

/* What its reference leads to; *ret stays NULL where it came too late. */
static struct status *take_reference(struct peer *peer, const struct wire_message *message,
                                     const struct edge_message *edge, struct buffer **ret) {
    if (message->type != WIRE_PUSH || message->payload_len > 0 || edge->tensor.is_dead ||
        !tensor_meta_is_plain(&edge->tensor))
        return status_invalid("task %s sent a reference where none belongs", peer_name(peer));
    TRY(tensor_meta_check(&edge->tensor));
    return peer_take(peer, &edge->reference, edge->tensor.size_bytes, ret);
}

static struct status *arrive(struct rendezvous_table *table, struct peer *peer,
                             const struct wire_message *message, const struct edge_message *edge,
                             struct buffer *referenced) {
    struct rendezvous *rendezvous;
    enum find_result result = rendezvous_find(table, message->id, true, &rendezvous);
    if (result == FIND_ENDED)
        return NULL; /* late */
    if (result == FIND_REFUSED)
        return status_exhausted(
            "values of too many steps that no master has started here, the last from task %s",
            peer_name(peer));
    struct status *st = referenced ? on_reference(rendezvous, edge, referenced)
                        : message->type == WIRE_PUSH
                            ? on_push(rendezvous, message, edge)
                            : on_announce(rendezvous, peer, edge, message->meta);
    rendezvous_unref(rendezvous);
    return st;
}

static struct status *receive(void *arg, struct peer *peer, struct wire_message *message,
                              const struct edge_message *edge) {
    struct rendezvous_table *table = arg;
    struct buffer *referenced = NULL;
    if (message->type != WIRE_PUSH && message->meta.len > RENDEZVOUS_MAX_META_BYTES)
        return status_invalid("task %s sent %s of %zu bytes about an edge", peer_name(peer),
                              wire_type_name(message->type), message->meta.len);
    if (message->type == WIRE_GRANT)
        return edge->has_tensor ? pregrant_on_grant(table, peer, message, edge)
                                : on_grant(table, peer, message, edge);
    if (!edge->has_tensor)
        return status_invalid("task %s sent a value without its TensorMeta", peer_name(peer));
    /* taken also where nobody wants it any more: that gives it back */
    if (edge->reference.token != 0) {
        TRY(take_reference(peer, message, edge, &referenced));
        if (!referenced)
            return NULL;
    }
    struct status *st = arrive(table, peer, message, edge, referenced);
    buffer_unref(referenced);
    return st;
}

/* Small values come unasked; a large one has been granted its buffer, or its step is over. The
 * first message of a grant has it: a second would be read into memory whose value may have been
 * handed on. */
static struct buffer *receive_alloc(void *arg, struct peer *peer,
                                    const struct wire_message *message,
                                    const struct edge_message *edge, size_t size_bytes) {
    struct rendezvous_table *table = arg;
    if (message->type != WIRE_PUSH)
        return NULL;
    if (size_bytes <= RENDEZVOUS_PUSH_LIMIT_BYTES)
        return buffer_alloc(allocator_host(), size_bytes);
    struct rendezvous *rendezvous;
    enum find_result result = rendezvous_find(table, message->id, false, &rendezvous);
    if (result != FOUND)
        return result == FIND_ENDED ? wire_discard : NULL;
    struct buffer *buffer = NULL;
    pthread_mutex_lock(&rendezvous->lock);
    struct slot *slot = slot_find(rendezvous, edge->edge, edge->frame_iter);
    if (rendezvous->is_ended || rendezvous->why) {
        buffer = wire_discard;
    } else if (slot && slot->state == SLOT_GRANTED && slot->peer == peer &&
               slot->size_bytes == size_bytes) {
        slot_move(slot, SLOT_ARRIVING);
        buffer = buffer_ref(slot->memory);
    }
    pthread_mutex_unlock(&rendezvous->lock);
    rendezvous_unref(rendezvous);
    return buffer;
}

static bool receive_is_wanted(void *arg, struct peer *peer, uint64_t step, uint32_t edge,
                              uint64_t frame_iter) {
    struct rendezvous *rendezvous;
    if (rendezvous_find(arg, step, false, &rendezvous) != FOUND)
        return false;
    pthread_mutex_lock(&rendezvous->lock);
    struct slot *slot = slot_find(rendezvous, edge, frame_iter);
    bool is_wanted = slot && slot->state == SLOT_ARRIVING && slot->peer == peer;
    pthread_mutex_unlock(&rendezvous->lock);
    rendezvous_unref(rendezvous);
    return is_wanted;
}

const struct peer_receiver rendezvous_receiver = {.on_message = receive,
                                                  .alloc = receive_alloc,
                                                  .is_wanted = receive_is_wanted,
                                                  .on_pregrant_withdrawn = pregrant_withdrawn};
