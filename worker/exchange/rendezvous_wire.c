/* Exchanges values with other tasks: push, announce, grant, and the credit for bytes in flight. */
#include <stdlib.h>

#include "common/tensor/growing_buffer.h"
#include "common/tensor/tensor_proto.h"
#include "worker/exchange/rendezvous_internal.h"

/* The payload of one message at most (rpc/wire/wire.h). It also keeps sums of sizes from
 * overflowing. */
static const uint64_t max_announced_bytes = 1ull << 40;

/* ---- the sender's side ---- */

static struct status *unavailable(const struct peer *peer, const struct plan_channel *channel) {
    return status_unavailable("%s cannot be sent: there is no connection to task %s",
                              channel->tensor_name, peer_name(peer));
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
    struct step_peer *to = rendezvous_peer(rendezvous, peer);
    bool is_first_push = type == WIRE_PUSH && !to->is_noted;
    if (unlikely(is_first_push) ? !peer_queue_first(peer, rendezvous->step_id, &out)
                                : !peer_queue(peer, CHANNEL_CONTROL, &out))
        return false;
    to->is_noted |= is_first_push;
    to->is_dirty = true;
    return true;
}

/* The TensorProto of strings, handles and variants is the value that is sent. */
static struct buffer *encode_proto(const struct tensor *value, size_t *ret_size) {
    struct str proto = STR_INIT;
    tensor_to_proto(value, &proto);
    *ret_size = proto.len;
    char *bytes = str_detach(&proto);
    return buffer_wrap(bytes, *ret_size, free, bytes);
}

/* A value that is being sent. */
struct outgoing {
    struct peer *peer;
    const struct plan_channel *channel;
    uint64_t frame_iter;
    struct tensor *value;
    struct str meta;
    size_t size_bytes; /* of its payload, or of its TensorProto */
    bool is_dead, is_object;
    bool is_referenced;               /* it is sent as `reference` instead of a payload */
    struct arena_reference reference; /* the reference was made by peer_give */
    struct buffer *proto;             /* borrowed: the TensorProto, if it exists already */
};

/* Lock held. May the value be pushed without a grant? A step's first value always may. */
static bool has_step_credit(struct rendezvous *rendezvous, const struct outgoing *out) {
    int64_t pushed = rendezvous_peer(rendezvous, out->peer)->pushed_bytes;
    int64_t size = out->is_referenced ? 0 : (int64_t)out->size_bytes;
    return pushed == 0 || pushed + size + RENDEZVOUS_VALUE_BYTES <= RENDEZVOUS_STEP_CREDIT_BYTES;
}

/* Lock held. */
static struct status *push(struct rendezvous *rendezvous, const struct outgoing *out) {
    bool has_payload = !out->is_dead && !out->is_object && !out->is_referenced;
    if (!rendezvous_queue_edge(rendezvous, out->peer, WIRE_PUSH, &out->meta,
                               has_payload ? out->value : NULL))
        return unavailable(out->peer, out->channel);
    rendezvous_peer(rendezvous, out->peer)->pushed_bytes +=
        (out->is_referenced ? 0 : (int64_t)out->size_bytes) + RENDEZVOUS_VALUE_BYTES;
    return NULL;
}

/* Lock held. The value waits in its slot for the grant; the message that brings the grant needs the
 * lock. */
static struct status *announce(struct rendezvous *rendezvous, struct outgoing *out,
                               struct rendezvous_recv *offer) {
    const struct plan_channel *channel = out->channel;
    size_t size = out->size_bytes;
    struct buffer *proto = out->proto       ? buffer_ref(out->proto)
                           : out->is_object ? encode_proto(out->value, &size)
                                            : NULL;
    str_clear(&out->meta);
    edge_message_write(&out->meta, channel->edge, out->frame_iter, out->value, proto ? size : 0);
    if (unlikely(rendezvous->has_dropped_pregrant))
        edge_message_add_wants_grant(&out->meta);
    struct status *st = NULL;
    if (slot_find_sent(rendezvous, out->peer, channel->edge, out->frame_iter))
        st = status_internal("%s (edge %u) is sent twice in one frame and iteration",
                             channel->tensor_name, channel->edge);
    else if (!rendezvous_queue_edge(rendezvous, out->peer, WIRE_ANNOUNCE, &out->meta, NULL))
        st = unavailable(out->peer, channel);
    if (st) {
        buffer_unref(proto);
        return st;
    }
    struct slot *slot = slot_add(rendezvous, channel->edge, out->frame_iter);
    slot->peer = out->peer;
    slot->size_bytes = size;
    slot->is_plain = proto == NULL;
    slot->recv = offer;
    if (proto)
        slot->proto = proto;
    else
        tensor_move(&slot->value, out->value);
    slot_start(slot, SLOT_OFFERED);
    return NULL;
}

/* Its bytes are not there yet, so nobody may get a reference to them. */
static bool is_growing(const struct tensor *value) {
    return value->storage == TENSOR_BUFFER && buffer_is_growing(value->buffer);
}

static void describe(struct rendezvous *rendezvous, struct outgoing *out) {
    const struct tensor *value = out->value;
    out->is_dead = value->storage == TENSOR_DEAD;
    out->is_object = !out->is_dead && dtype_is_object((enum dtype)value->dtype);
    out->size_bytes = out->is_dead     ? 0
                      : out->proto     ? out->proto->size_bytes
                      : out->is_object ? tensor_proto_size(value)
                                       : tensor_size_bytes(value);
    bool is_large = out->size_bytes > RENDEZVOUS_PUSH_LIMIT_BYTES;
    out->is_referenced = is_large && !out->is_object && !is_growing(value) &&
                         peer_give(out->peer, value, &out->reference);
    if (is_large && out->is_object)
        return; /* `announce` writes its meta with the encoded value */
    edge_message_write(&out->meta, out->channel->edge, out->frame_iter, value, 0);
    if (out->is_referenced)
        edge_message_add_reference(&out->meta, &out->reference);
}

/* Lock held. Returns the pending pre-grant by which the value is sent. *ret_dropped is one that
 * does not fit the value. */
static struct pending_pregrant *match_pregrant(struct rendezvous *rendezvous,
                                               const struct outgoing *out,
                                               struct pending_pregrant **ret_dropped) {
    struct pending_pregrant *pending =
        pregrant_take_pending(rendezvous, out->peer, out->channel->edge, out->frame_iter);
    bool fits = pending && out->size_bytes > RENDEZVOUS_PUSH_LIMIT_BYTES && !out->is_object &&
                !out->is_referenced && !rendezvous->why && pregrant_fits(pending, out->value);
    *ret_dropped = fits ? NULL : pending;
    return fits ? pending : NULL;
}

bool rendezvous_sends_pieces(const struct rendezvous *rendezvous,
                             const struct plan_channel *channel) {
    struct peer_table *peers = rendezvous->table->peers;
    struct peer *peer = peers ? peer_find(peers, channel->peer_task) : NULL;
    return peer && peer_sends_pieces(peer);
}

struct status *rendezvous_push_or_announce(struct rendezvous *rendezvous, struct peer *peer,
                                           const struct plan_channel *channel, uint64_t frame_iter,
                                           struct tensor *value, const struct send_options *options,
                                           bool *ret_is_sent) {
    struct outgoing out = {.peer = peer,
                           .channel = channel,
                           .frame_iter = frame_iter,
                           .value = value,
                           .proto = options->proto};
    struct pending_pregrant *pending = NULL, *dropped = NULL;
    struct status *st = NULL;
    describe(rendezvous, &out);
    *ret_is_sent = true;
    pthread_mutex_lock(&rendezvous->lock);
    if (unlikely(rendezvous->n_pending_pregrants > 0))
        pending = match_pregrant(rendezvous, &out, &dropped);
    bool is_pushed = out.is_referenced || out.size_bytes <= RENDEZVOUS_PUSH_LIMIT_BYTES
                         ? likely(has_step_credit(rendezvous, &out))
                         : false;
    if (unlikely(rendezvous->why != NULL)) {
        st = status_ref(rendezvous->why);
    } else if (is_pushed) {
        st = push(rendezvous, &out);
    } else if (!pending) { /* otherwise below, because the sending may call back */
        *ret_is_sent = !options->only_push && !options->offer;
        if (!options->only_push)
            st = announce(rendezvous, &out, options->offer);
    }
    pthread_mutex_unlock(&rendezvous->lock);
    if (unlikely(out.is_referenced && (st || !is_pushed)))
        peer_take_back(peer, &out.reference);
    pregrant_drop_pending(peer, dropped);
    if (pending) {
        struct peer_value sent = {
            .step = rendezvous->step_id, .meta = out.meta, .size_bytes = out.size_bytes};
        tensor_move(&sent.value, value);
        pregrant_send_pending(peer, pending, &sent);
        return NULL;
    }
    str_fini(&out.meta);
    return st;
}

/* A Credit has arrived: the peer has handed on what was pushed to it. */
static void receive_credit(void *arg, struct peer *peer, uint64_t step, uint64_t bytes) {
    struct rendezvous *rendezvous;
    if (rendezvous_find(arg, step, false, &rendezvous) != FOUND)
        return; /* it has ended */
    pthread_mutex_lock(&rendezvous->lock);
    struct step_peer *to = rendezvous_peer(rendezvous, peer);
    to->pushed_bytes -= (int64_t)MIN(bytes, (uint64_t)to->pushed_bytes);
    pthread_mutex_unlock(&rendezvous->lock);
    rendezvous_unref(rendezvous);
}

static void receive_steps_lost(void *arg, struct peer *peer, const uint64_t *steps, size_t n_steps,
                               struct status *why) {
    for (size_t i = 0; i < n_steps; i++)
        rendezvous_lose_step(arg, steps[i], why);
}

/* Sends a value that was granted: into the remote slot that the grant names, or over the bulk
 * channel. */
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

/* A Grant has arrived. */
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
        return not_here(peer, edge); /* the step was aborted meanwhile */
    struct tensor object = TENSOR_INIT;
    object.dtype = DT_STRING; /* an object dtype: the TensorProto states which */
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

/* Lock held. Reserves credit for the slot's bytes with its peer, its session and the task. Without
 * credit something is in flight, and its arrival makes all queued steps try again. */
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
    bool is_small = slot->size_bytes <= RENDEZVOUS_PUSH_LIMIT_BYTES;
    struct buffer *buffer = is_small ? NULL : buffer_alloc(table->allocator, slot->size_bytes);
    if (!buffer && !is_small)
        return status_exhausted("no memory for %zu bytes that task %s sends over edge %u",
                                slot->size_bytes, peer_name(slot->peer), slot->edge);
    struct buffer *announcement = slot->announced;
    list_remove(&slot->in_announced);
    slot->memory = buffer;
    slot_move(slot, SLOT_GRANTED);
    rendezvous->n_announced--;
    rendezvous->n_granted++;
    bool is_taken =
        !is_small && peer_grant(slot->peer, &(struct peer_grant){.step = rendezvous->step_id,
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
    /* when the peer is lost, the step ends */
    (void)rendezvous_queue_edge(rendezvous, slot->peer, WIRE_GRANT, &meta, NULL);
    str_fini(&meta);
    return NULL;
}

/* Its Recv starts late so that its value is not in memory before (master's
 * partition_receives.c). */
static bool is_late(const struct rendezvous *rendezvous, const struct slot *slot) {
    const struct plan_edges *late = rendezvous->late_edges;
    uint32_t low = 0, high = late ? late->n : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (late->edges[middle] == slot->edge)
            return true;
        if (late->edges[middle] < slot->edge)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* Lock held. A value that no Recv waits for may be granted while there are few of them. So a loop
 * whose other half is slower does not run ahead without limit. */
static bool has_unwanted_credit(struct rendezvous *rendezvous, const struct slot *slot) {
    if (unlikely(rendezvous->late_edges != NULL) && is_late(rendezvous, slot))
        return false;
    int64_t unwanted = rendezvous_peer(rendezvous, slot->peer)->unwanted_bytes;
    return unwanted == 0 || unwanted + (int64_t)slot->size_bytes + RENDEZVOUS_VALUE_BYTES <=
                                RENDEZVOUS_UNWANTED_MAX_BYTES;
}

static void set_unwanted(struct rendezvous *rendezvous, struct slot *slot) {
    if (slot->recv)
        return;
    slot->is_unwanted = true;
    rendezvous_peer(rendezvous, slot->peer)->unwanted_bytes +=
        (int64_t)slot->size_bytes + RENDEZVOUS_VALUE_BYTES;
}

/* Lock held. Grants the values that a Recv waits for, or all. *ret_is_short: there is no credit for
 * some. */
static struct status *grant_pass(struct rendezvous *rendezvous, bool only_awaited,
                                 bool *ret_is_short) {
    LIST_FOR_EACH_SAFE (link, next, &rendezvous->announced) {
        struct slot *slot = LIST_ENTRY(link, struct slot, in_announced);
        rendezvous->n_considered++;
        if (only_awaited && !slot->recv)
            continue;
        if (!slot->recv && !has_unwanted_credit(rendezvous, slot))
            continue;
        if (!take_credit(rendezvous, slot)) {
            *ret_is_short = true;
            continue;
        }
        set_unwanted(rendezvous, slot);
        struct status *st = grant(rendezvous, slot);
        if (st) {
            rendezvous_release_credit(rendezvous, slot);
            return st;
        }
    }
    return NULL;
}

/* Returns true when a live step has announced values for which there is no credit now. */
static bool grant_what_fits(struct rendezvous *rendezvous) {
    struct status *st = NULL;
    bool is_short = false;
    pthread_mutex_lock(&rendezvous->lock);
    bool is_live = rendezvous->is_opened && !rendezvous->is_ended && !rendezvous->why;
    if (is_live)
        st = grant_pass(rendezvous, true, &is_short);
    if (is_live && !st)
        st = grant_pass(rendezvous, false, &is_short);
    pthread_mutex_unlock(&rendezvous->lock);
    rendezvous_flush(rendezvous);
    if (st) {
        rendezvous_abort(rendezvous, st);
        rendezvous_retry_pending(rendezvous->table);
        status_unref(st);
    }
    return is_short && !st;
}

/* Tries again after it is queued, because credit that was returned just before would wake
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
    list_push_back(&rendezvous->announced, &slot->in_announced);
    rendezvous->n_announced++;
}

static struct status *on_announce(struct rendezvous *rendezvous, struct peer *peer,
                                  const struct edge_message *edge, struct span meta) {
    TRY(tensor_meta_check(&edge->tensor));
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

static struct status *on_push(struct rendezvous *rendezvous, struct peer *peer,
                              const struct wire_message *message, const struct edge_message *edge) {
    struct tensor value = TENSOR_INIT;
    size_t offset = 0;
    size_t size = edge->tensor.proto.len > 0 ? edge->tensor.proto.len : message->payload_len;
    struct value_source source = {peer, size, size <= RENDEZVOUS_PUSH_LIMIT_BYTES};
    bool is_later;
    TRY(rendezvous_decode_later(rendezvous, source, message, edge, &is_later));
    if (is_later)
        return NULL;
    TRY(tensor_meta_take(&edge->tensor, message, &offset, rendezvous->table->allocator, &value));
    return rendezvous_deliver(rendezvous, edge->edge, edge->frame_iter, source, &value);
}

/* A value that is in the peer's arena. */
static struct status *on_reference(struct rendezvous *rendezvous, struct peer *peer,
                                   const struct edge_message *edge, struct buffer *buffer) {
    struct tensor value = TENSOR_INIT;
    struct shape shape = {edge->tensor.rank, edge->tensor.dims};
    TRY(tensor_view(buffer, buffer->data, edge->tensor.dtype, shape, &value));
    return rendezvous_deliver(rendezvous, edge->edge, edge->frame_iter,
                              (struct value_source){peer, 0, true}, &value);
}

/* Finds the memory that its reference names. *ret stays NULL when the reference came too late. */
static struct status *take_reference(struct peer *peer, const struct wire_message *message,
                                     const struct edge_message *edge, struct buffer **ret) {
    if (message->type != WIRE_PUSH || message->payload_len > 0 || edge->tensor.is_dead ||
        !tensor_meta_is_plain(&edge->tensor))
        return status_invalid("task %s sent a reference with a value that cannot have one",
                              peer_name(peer));
    TRY(tensor_meta_check(&edge->tensor));
    return peer_take(peer, &edge->reference, edge->tensor.size_bytes, ret);
}

/* Values of the step came before its RunGraph, and the limit of what is kept is reached. */
void rendezvous_refuse_early(struct rendezvous_table *table, const struct peer *peer,
                             uint64_t step_id) {
    struct status *why = status_unavailable(
        "what task %s sent in this step arrived before the step began here, and was dropped, "
        "because more than %d MiB or %d steps wait for their master",
        peer_name(peer), RENDEZVOUS_EARLY_MAX_BYTES >> 20, RENDEZVOUS_EARLY_MAX_STEPS);
    rendezvous_lose_step(table, step_id, why);
    status_unref(why);
}

/* Exhausted memory ends the step. All other errors are the peer's, and close its connections. */
static struct status *fail_step(struct rendezvous *rendezvous, struct status *st_take) {
    if (status_code(st_take) != STATUS_RESOURCE_EXHAUSTED)
        return st_take;
    rendezvous_abort(rendezvous, st_take);
    status_unref(st_take);
    return NULL;
}

static struct status *arrive(struct rendezvous_table *table, struct peer *peer,
                             const struct wire_message *message, const struct edge_message *edge,
                             struct buffer *referenced) {
    struct rendezvous *rendezvous;
    enum find_result result = rendezvous_find(table, message->id, true, &rendezvous);
    if (result == FIND_ENDED)
        return NULL; /* late */
    if (result == FIND_REFUSED) {
        rendezvous_refuse_early(table, peer, message->id);
        return NULL;
    }
    struct status *st = referenced ? on_reference(rendezvous, peer, edge, referenced)
                        : message->type == WIRE_PUSH
                            ? on_push(rendezvous, peer, message, edge)
                            : on_announce(rendezvous, peer, edge, message->meta);
    if (unlikely(st != NULL))
        st = fail_step(rendezvous, st);
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
    /* Taken even if nobody wants the value any more, because that returns the reference. */
    if (edge->reference.token != 0) {
        TRY(take_reference(peer, message, edge, &referenced));
        if (!referenced)
            return NULL;
    }
    struct status *st = arrive(table, peer, message, edge, referenced);
    buffer_unref(referenced);
    return st;
}

/* Small values come without a grant. A large one has a granted buffer, or its step has ended. Only
 * the first message of a grant gets the buffer: a second one would be read into memory whose value
 * may have been handed on. */
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
    bool is_wanted = slot && slot->peer == peer &&
                     state_is_in(slot->state, STATE_SET(SLOT_ARRIVING) | STATE_SET(SLOT_GROWING));
    pthread_mutex_unlock(&rendezvous->lock);
    rendezvous_unref(rendezvous);
    return is_wanted;
}

const struct peer_receiver rendezvous_receiver = {.on_message = receive,
                                                  .alloc = receive_alloc,
                                                  .is_wanted = receive_is_wanted,
                                                  .on_begun = rendezvous_on_begun,
                                                  .on_credit = receive_credit,
                                                  .on_steps_lost = receive_steps_lost,
                                                  .on_pregrant_withdrawn = pregrant_withdrawn};
