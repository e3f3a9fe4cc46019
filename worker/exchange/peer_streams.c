/* Divides large values into stripes over several sockets, and keeps these sockets
 * (peer_streams.h). */
#include "worker/exchange/peer_streams.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "proto/worker.pb-c.h"
#include "worker/exchange/peer_arrivals.h"
#include "worker/exchange/peer_internal.h"

enum { STRIPE_ALIGN = 64 << 10 };

void peer_streams_init(struct peer_streams *streams) {
    *streams = (struct peer_streams){0};
    list_init(&streams->arrivals);
}

static void drop(struct transport_channel **place, int *n_open, struct status *why) {
    struct transport_channel *channel = *place;
    if (!channel)
        return;
    *place = NULL;
    --*n_open;
    channel->transport->close(channel, status_ref(why));
    transport_channel_unref(channel);
}

void peer_streams_reset(struct peer *peer, struct status *why) {
    struct peer_streams *streams = &peer->streams;
    streams->n_theirs = 0;
    streams->greeted = streams->used = 0;
    streams->greet_until_ns = 0;
    for (int i = 0; i < PEER_MAX_STREAMS; i++) {
        drop(&streams->to_peer[i], &peer->table->n_streams_to, why);
        drop(&streams->from_peer[i], &peer->table->n_streams_from, why);
    }
    peer_arrivals_drop(peer);
}

/* ---- stripes ---- */

/* One stripe for each socket. A value of PEER_STRIPE_MIN_BYTES or more has no empty stripe. */
static struct stripe_division divide_evenly(uint64_t total_bytes, unsigned n) {
    uint64_t each = (total_bytes / n + STRIPE_ALIGN - 1) & ~(uint64_t)(STRIPE_ALIGN - 1);
    return (struct stripe_division){total_bytes, each, n};
}

struct stripe_division stripe_division_of(uint64_t total_bytes, uint64_t stripe_bytes, unsigned n) {
    return stripe_bytes == 0 ? divide_evenly(total_bytes, n)
                             : (struct stripe_division){total_bytes, stripe_bytes, n};
}

uint64_t stripe_division_begin(struct stripe_division division, unsigned index) {
    return index < division.n ? division.stripe_bytes * index : division.total_bytes;
}

/* ---- sending ---- */

static bool can_open(struct peer *peer) {
    struct peer_streams *streams = &peer->streams;
    if (streams->off_until_ns == 0)
        return true;
    if (clock_now_ns() < streams->off_until_ns)
        return false;
    streams->off_until_ns = 0;
    return true;
}

static void open_missing(struct peer *peer, unsigned n) {
    struct peer_table *table = peer->table;
    struct peer_streams *streams = &peer->streams;
    for (unsigned i = 1; i < n; i++) {
        if (streams->to_peer[i])
            continue;
        if (table->n_streams_to >= PEER_STREAMS_MAX_OPEN || !can_open(peer))
            return;
        table->n_streams_to++;
        streams->to_peer[i] = peer_open_stream(peer, i);
        streams->greet_until_ns =
            clock_now_ns() + PEER_STREAMS_GREET_HEARTBEATS * table->heartbeat_ms * 1000000;
    }
}

/* Returns over how many sockets the value is sent. ret[0] stays NULL, for the bulk channel. */
static unsigned choose_sockets(struct peer *peer, const struct peer_value *value,
                               struct transport_channel *ret[PEER_MAX_STREAMS]) {
    struct peer_table *table = peer->table;
    struct peer_streams *streams = &peer->streams;
    if (table->n_streams < 2 || value->proto || value->size_bytes < PEER_STRIPE_MIN_BYTES ||
        value->value.storage != TENSOR_BUFFER || table->is_closing ||
        !loop_is_current(table->loop) || !peer->channels[CHANNEL_CONTROL])
        return 1;
    unsigned n = MIN(MIN(table->n_streams, streams->n_theirs), (unsigned)PEER_MAX_STREAMS),
             n_ready = 1;
    open_missing(peer, n);
    for (unsigned i = 1; i < n; i++)
        if (streams->greeted & (1u << i))
            ret[n_ready++] = streams->to_peer[i];
    if (n_ready == n)
        streams->retry_ms = 0;
    return n_ready;
}

/* Fills in what all stripes of a value have. */
static Millrace__Stripe stripe_of(const struct peer_value *value) {
    Millrace__Stripe stripe = MILLRACE__STRIPE__INIT;
    stripe.total_bytes = value->size_bytes;
    stripe.push =
        (ProtobufCBinaryData){.len = value->meta.len, .data = (uint8_t *)value->meta.data};
    return stripe;
}

/* `stream` NULL: over the bulk channel. `out` has the payload. Returns false when there is no
 * connection, after the steps that exchange with the peer have been told. */
static bool queue_stripe(struct peer *peer, const struct peer_value *value,
                         const Millrace__Stripe *stripe, struct wire_out out,
                         struct transport_channel *stream) {
    size_t len = millrace__stripe__get_packed_size(stripe);
    uint8_t *meta = xmalloc(len);
    millrace__stripe__pack(stripe, meta);
    out.type = WIRE_STRIPE;
    out.id = value->step;
    out.meta = (struct span){(char *)meta, len};
    bool is_queued = stream || peer_queue(peer, CHANNEL_BULK, &out);
    if (stream)
        stream->transport->queue(stream, &out);
    free(meta);
    return is_queued;
}

/* With the bytes of the value. Returns as queue_stripe. */
static bool queue_part(struct peer *peer, const struct peer_value *value,
                       const Millrace__Stripe *stripe, struct transport_channel *stream) {
    struct stripe_division division =
        stripe_division_of(stripe->total_bytes, stripe->stripe_bytes, stripe->n_stripes);
    uint64_t begin = stripe_division_begin(division, stripe->index),
             end = stripe_division_begin(division, stripe->index + 1);
    struct wire_out out = {
        .extra = {(const char *)tensor_cdata(&value->value) + begin, end - begin},
        .extra_buffer = value->value.buffer};
    return queue_stripe(peer, value, stripe, out, stream);
}

bool peer_streams_push(struct peer *peer, const struct peer_value *value) {
    struct transport_channel *sockets[PEER_MAX_STREAMS] = {NULL};
    unsigned n = choose_sockets(peer, value, sockets);
    if (n < 2)
        return false;
    peer->streams.n_sent++;
    Millrace__Stripe stripe = stripe_of(value);
    stripe.n_stripes = n;
    while (stripe.index < n && queue_part(peer, value, &stripe, sockets[stripe.index]))
        stripe.index++;
    for (unsigned i = 1; i < n; i++)
        sockets[i]->transport->flush(sockets[i]);
    peer_flush(peer, CHANNEL_BULK);
    return true;
}

bool peer_streams_push_piece(struct peer *peer, const struct peer_value *value,
                             uint64_t piece_bytes, unsigned index) {
    struct transport_channel *sockets[PEER_MAX_STREAMS] = {NULL};
    struct transport_channel *socket = sockets[index % choose_sockets(peer, value, sockets)];
    Millrace__Stripe stripe = stripe_of(value);
    stripe.n_stripes = (unsigned)((value->size_bytes - 1) / piece_bytes + 1);
    stripe.stripe_bytes = piece_bytes;
    stripe.index = index;
    bool is_queued = queue_part(peer, value, &stripe, socket);
    if (socket)
        socket->transport->flush(socket);
    else
        peer_flush(peer, CHANNEL_BULK);
    return is_queued;
}

void peer_streams_fail_pieces(struct peer *peer, const struct peer_value *value,
                              struct status *why) {
    Millrace__Stripe stripe = stripe_of(value);
    stripe.n_stripes = 2;
    stripe.failed_code = status_code(why);
    stripe.failed_message = (char *)(uintptr_t)status_message(why);
    if (queue_stripe(peer, value, &stripe, (struct wire_out){.id = 0}, NULL))
        peer_flush(peer, CHANNEL_BULK);
}

/* ---- streams that come and go ---- */

struct status *peer_streams_check_room(struct peer *peer, unsigned index) {
    if (index == 0 || index >= PEER_MAX_STREAMS)
        return status_invalid("task %s opens stream %u, but the highest number is below %d",
                              peer->task, index, PEER_MAX_STREAMS);
    if (!peer->channels[CHANNEL_CONTROL])
        return status_failed_precondition("task %s opens stream %u without a control channel",
                                          peer->task, index);
    struct transport_channel **place = &peer->streams.from_peer[index];
    /* The other end has given this stream up, and its end has not been noticed here yet. */
    if (*place && !(peer->streams.used & (1u << index))) {
        struct status *why = status_new(STATUS_CANCELLED,
                                        "task %s has opened a new stream in its place", peer->task);
        drop(place, &peer->table->n_streams_from, why);
        status_unref(why);
    }
    if (peer->table->n_streams_from >= PEER_STREAMS_MAX_OPEN)
        return status_exhausted("%d streams for large values are open to this task already",
                                PEER_STREAMS_MAX_OPEN);
    return NULL;
}

void peer_streams_add(struct peer *peer, unsigned index, struct transport_channel *channel_take) {
    peer->streams.from_peer[index] = channel_take;
    peer->streams.used &= ~(1u << index);
    peer->table->n_streams_from++;
}

static unsigned index_of(const struct transport_channel *channel) {
    return (unsigned)channel->kind - CHANNEL_STREAM;
}

void peer_streams_on_greeted(struct peer *peer, const struct transport_channel *channel) {
    if (peer->streams.to_peer[index_of(channel)] == channel)
        peer->streams.greeted |= 1u << index_of(channel);
}

void peer_streams_on_used(struct peer *peer, const struct transport_channel *channel) {
    if (peer->streams.from_peer[index_of(channel)] == channel)
        peer->streams.used |= 1u << index_of(channel);
}

/* A stream that this task has opened could not be used. */
static void give_up(struct peer *peer, unsigned index, struct status *why) {
    struct peer_streams *streams = &peer->streams;
    int64_t now_ns = clock_now_ns();
    drop(&streams->to_peer[index], &peer->table->n_streams_to, why);
    if (streams->off_until_ns > now_ns) /* another stream has failed already in this attempt */
        return;
    streams->retry_ms = MIN(MAX(2 * streams->retry_ms, (int64_t)PEER_STREAMS_RETRY_MS),
                            (int64_t)PEER_STREAMS_RETRY_MAX_MS);
    streams->off_until_ns = now_ns + streams->retry_ms * 1000000;
}

static void give_up_silent(struct peer *peer) {
    struct status *why = status_unavailable("task %s does not answer on a stream", peer->task);
    for (unsigned i = 1; i < PEER_MAX_STREAMS; i++)
        if (peer->streams.to_peer[i] && !(peer->streams.greeted & (1u << i)))
            give_up(peer, i, why);
    status_unref(why);
}

bool peer_streams_on_closed(struct peer *peer, struct transport_channel *channel,
                            struct status *why) {
    struct peer_streams *streams = &peer->streams;
    unsigned index = index_of(channel);
    uint32_t bit = 1u << index;
    if (streams->from_peer[index] == channel) {
        bool was_used = streams->used & bit;
        if (!was_used)
            drop(&streams->from_peer[index], &peer->table->n_streams_from, why);
        return was_used;
    }
    if (streams->to_peer[index] != channel)
        return false;
    if (streams->greeted & bit)
        streams->off_until_ns = clock_now_ns() + PEER_STREAMS_OFF_MS * 1000000ll;
    else
        give_up(peer, index, why);
    return streams->greeted & bit;
}

void peer_streams_tick(struct peer *peer, int64_t now_ns) {
    struct peer_streams *streams = &peer->streams;
    peer_arrivals_drop_unwanted(peer);
    if (streams->greet_until_ns == 0 || now_ns < streams->greet_until_ns)
        return;
    streams->greet_until_ns = 0;
    give_up_silent(peer);
}

/* ---- the status page ---- */

void peer_streams_describe(const struct peer *peer, struct str *out) {
    const struct peer_streams *streams = &peer->streams;
    int n_to = 0, n_from = 0;
    for (int i = 1; i < PEER_MAX_STREAMS; i++) {
        n_to += (streams->greeted & (1u << i)) != 0;
        n_from += streams->from_peer[i] != NULL;
    }
    str_addf(out,
             "{\"to\":%d,\"from\":%d,\"values_sent\":%llu,\"values_received\":%llu,\"off\":%s}",
             n_to, n_from, (unsigned long long)streams->n_sent,
             (unsigned long long)streams->n_received, streams->off_until_ns > 0 ? "true" : "false");
}
