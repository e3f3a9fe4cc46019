/* Divides large values into stripes over several sockets, and joins the stripes that arrive. */
#include "worker/exchange/peer_streams.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "proto/worker.pb-c.h"
#include "worker/exchange/peer_internal.h"

enum { STRIPE_ALIGN = 64 << 10, MAX_WHY_BYTES = 4096 };
/* the payload of one message at most (rpc/wire/wire.h) */
static const uint64_t max_value_bytes = 1ull << 40;

/* A value whose stripes are arriving. */
struct arrival {
    struct list link;
    uint64_t step, frame_iter; /* the name of the value, together with the edge */
    uint32_t edge;
    struct str push; /* the meta of the Push, which is the same in all stripes */
    /* For the whole value. NULL: the value is not wanted any more, and the remaining stripes are
     * dropped. */
    struct buffer *buffer;
    uint64_t total_bytes, stripe_bytes;
    unsigned n_stripes, n_begun, n_done;
    /* the sender gives it up: dropped once no stripe of it is being read */
    bool has_failed;
    uint64_t begun[]; /* a bit per stripe */
};

void peer_streams_init(struct peer_streams *streams) {
    *streams = (struct peer_streams){0};
    list_init(&streams->arrivals);
}

static void arrival_free(struct peer *peer, struct arrival *arrival) {
    peer->streams.n_arrivals--;
    list_remove(&arrival->link);
    str_fini(&arrival->push);
    buffer_unref(arrival->buffer);
    free(arrival);
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
    LIST_FOR_EACH_SAFE (link, next, &streams->arrivals)
        arrival_free(peer, LIST_ENTRY(link, struct arrival, link));
}

/* ---- stripes ---- */

/* How a value is divided. */
struct division {
    uint64_t total_bytes, stripe_bytes;
    unsigned n;
};

/* One stripe for each socket. A value of PEER_STRIPE_MIN_BYTES or more has no empty stripe. */
static struct division divide_evenly(uint64_t total_bytes, unsigned n) {
    uint64_t each = (total_bytes / n + STRIPE_ALIGN - 1) & ~(uint64_t)(STRIPE_ALIGN - 1);
    return (struct division){total_bytes, each, n};
}

/* Returns where stripe `index` begins; for index n, the end. */
static uint64_t stripe_begin(struct division division, unsigned index) {
    return index < division.n ? division.stripe_bytes * index : division.total_bytes;
}

static struct division division_of(const Millrace__Stripe *stripe) {
    return stripe->stripe_bytes == 0
               ? divide_evenly(stripe->total_bytes, stripe->n_stripes)
               : (struct division){stripe->total_bytes, stripe->stripe_bytes, stripe->n_stripes};
}

static bool is_good_division(const Millrace__Stripe *stripe) {
    unsigned n = stripe->n_stripes;
    if (n < 2 || stripe->index >= n || stripe->total_bytes < PEER_STRIPE_MIN_BYTES ||
        stripe->total_bytes > max_value_bytes)
        return false;
    if (stripe->stripe_bytes == 0)
        return n <= PEER_MAX_STREAMS;
    return n <= PEER_MAX_PIECES && stripe->stripe_bytes >= PEER_PIECE_MIN_BYTES &&
           stripe->stripe_bytes <= stripe->total_bytes &&
           (stripe->total_bytes - 1) / stripe->stripe_bytes + 1 == n;
}

static Millrace__Stripe *stripe_unpack(const struct wire_message *message) {
    Millrace__Stripe *stripe =
        millrace__stripe__unpack(NULL, message->meta.len, (const uint8_t *)message->meta.data);
    if (!stripe)
        return NULL;
    if (is_good_division(stripe)) {
        struct division division = division_of(stripe);
        uint64_t size =
            stripe_begin(division, stripe->index + 1) - stripe_begin(division, stripe->index);
        if (message->payload_len == (stripe->failed_code ? 0 : size))
            return stripe;
    }
    millrace__stripe__free_unpacked(stripe, NULL);
    return NULL;
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
    struct division division = division_of(stripe);
    uint64_t begin = stripe_begin(division, stripe->index),
             end = stripe_begin(division, stripe->index + 1);
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

/* ---- what comes ---- */

/* Returns the value that the stripe belongs to; NULL when this is its first stripe. */
static struct arrival *arrival_find(struct peer *peer, uint64_t step,
                                    const struct edge_message *edge) {
    LIST_FOR_EACH (link, &peer->streams.arrivals) {
        struct arrival *arrival = LIST_ENTRY(link, struct arrival, link);
        if (arrival->step == step && arrival->edge == edge->edge &&
            arrival->frame_iter == edge->frame_iter)
            return arrival;
    }
    return NULL;
}

static bool is_same_push(const struct arrival *arrival, const Millrace__Stripe *stripe) {
    return arrival->push.len == stripe->push.len &&
           memcmp(arrival->push.data, stripe->push.data, stripe->push.len) == 0;
}

/* The first stripe of a value: allocates memory for the whole value. Returns NULL when `alloc` did
 * not return a buffer; *ret_buffer is then NULL or wire_discard. */
static struct arrival *arrival_new(struct peer *peer, uint64_t step, const Millrace__Stripe *stripe,
                                   const struct edge_message *edge, struct buffer **ret_buffer) {
    struct wire_message push = {.type = WIRE_PUSH,
                                .id = step,
                                .meta = {(const char *)stripe->push.data, stripe->push.len},
                                .payload_len = stripe->total_bytes};
    *ret_buffer = peer->streams.n_arrivals < PEER_STREAMS_MAX_ARRIVALS
                      ? peer_alloc_push(peer, &push, edge, stripe->total_bytes)
                      : NULL;
    if (!*ret_buffer || *ret_buffer == wire_discard)
        return NULL;
    struct arrival *arrival =
        xcalloc(1, sizeof(*arrival) + (stripe->n_stripes + 63) / 64 * sizeof(uint64_t));
    arrival->step = step;
    arrival->edge = edge->edge;
    arrival->frame_iter = edge->frame_iter;
    str_add_bytes(&arrival->push, stripe->push.data, stripe->push.len);
    arrival->buffer = *ret_buffer;
    arrival->total_bytes = stripe->total_bytes;
    arrival->stripe_bytes = stripe->stripe_bytes;
    arrival->n_stripes = stripe->n_stripes;
    list_push_back(&peer->streams.arrivals, &arrival->link);
    peer->streams.n_arrivals++;
    return arrival;
}

/* Drops the memory of a value that is not wanted any more. Stripes that are being read keep it
 * until they have arrived. */
static void drop_unwanted(struct peer *peer, struct arrival *arrival) {
    struct peer_table *table = peer->table;
    if (!arrival->buffer || !table->receiver ||
        table->receiver->is_wanted(table->receiver_arg, peer, arrival->step, arrival->edge,
                                   arrival->frame_iter))
        return;
    buffer_unref(arrival->buffer);
    arrival->buffer = NULL;
}

/* Does nothing more come of the value? */
static bool is_over(const struct arrival *arrival) {
    return arrival->n_done == arrival->n_stripes ||
           (arrival->has_failed && arrival->n_done == arrival->n_begun);
}

static void release_whole(void *arg) { buffer_unref(arg); }

/* Returns the part of the buffer for a stripe. Each stripe must come once, and all must agree about
 * the value. May free the arrival. */
static struct buffer *part_of(struct peer *peer, struct arrival *arrival,
                              const Millrace__Stripe *stripe, size_t size_bytes) {
    uint64_t *begun = &arrival->begun[stripe->index / 64], bit = 1ull << stripe->index % 64;
    if (arrival->total_bytes != stripe->total_bytes ||
        arrival->stripe_bytes != stripe->stripe_bytes || arrival->n_stripes != stripe->n_stripes ||
        (*begun & bit) || !is_same_push(arrival, stripe))
        return NULL;
    *begun |= bit;
    arrival->n_begun++;
    drop_unwanted(peer, arrival);
    if (!arrival->buffer) {
        arrival->n_done++;
        if (is_over(arrival))
            arrival_free(peer, arrival);
        return wire_discard;
    }
    uint64_t begin = stripe_begin(division_of(stripe), stripe->index);
    return buffer_wrap(arrival->buffer->data + begin, size_bytes, release_whole,
                       buffer_ref(arrival->buffer));
}

/* `input->edge` is what the stripe says about the Push. */
static struct buffer *alloc_stripe(struct peer *peer, const struct wire_message *message,
                                   const Millrace__Stripe *stripe, struct channel_input *input,
                                   size_t size_bytes) {
    struct buffer *buffer = NULL;
    struct arrival *arrival = arrival_find(peer, message->id, &input->edge);
    if (!arrival)
        arrival = arrival_new(peer, message->id, stripe, &input->edge, &buffer);
    input->arrival = arrival;
    return arrival ? part_of(peer, arrival, stripe, size_bytes) : buffer;
}

struct buffer *peer_streams_alloc(struct peer *peer, struct transport_channel *channel,
                                  const struct wire_message *message, size_t size_bytes) {
    struct channel_input *input = peer_channel_input(channel);
    Millrace__Stripe *stripe = stripe_unpack(message);
    if (!stripe)
        return NULL;
    peer->streams.n_pieces_received += stripe->stripe_bytes > 0;
    struct status *st = edge_message_read(
        (struct span){(const char *)stripe->push.data, stripe->push.len}, &input->edge);
    struct buffer *buffer = st ? NULL : alloc_stripe(peer, message, stripe, input, size_bytes);
    input->is_read = buffer && buffer != wire_discard;
    status_unref(st);
    millrace__stripe__free_unpacked(stripe, NULL);
    return buffer;
}

/* The last stripe has arrived. `edge` is what all of them say about the value. */
static struct status *deliver_whole(struct peer *peer, struct arrival *arrival,
                                    const struct edge_message *edge) {
    struct peer_table *table = peer->table;
    struct wire_message push = {.type = WIRE_PUSH,
                                .id = arrival->step,
                                .meta = {arrival->push.data, arrival->push.len},
                                .payload = arrival->buffer,
                                .payload_len = arrival->total_bytes};
    arrival->buffer = NULL;
    list_remove(&arrival->link);
    list_init(&arrival->link); /* delivering the value may reset the streams */
    peer->streams.n_received++;
    struct status *st = table->receiver
                            ? table->receiver->on_message(table->receiver_arg, peer, &push, edge)
                            : NULL;
    buffer_unref(push.payload);
    arrival_free(peer, arrival);
    return st;
}

/* The value may have been dropped with the peer's channels while the stripe was read. */
static bool is_here(const struct peer *peer, const struct arrival *arrival) {
    LIST_FOR_EACH (link, &peer->streams.arrivals)
        if (LIST_ENTRY(link, struct arrival, link) == arrival)
            return true;
    return false;
}

/* The sender cannot go on with a value: its step ends here, too. A stripe that is being read on
 * another socket needs the arrival until it has been read. */
static void on_failed(struct peer *peer, uint64_t step, const Millrace__Stripe *stripe,
                      const struct edge_message *edge) {
    struct peer_table *table = peer->table;
    const char *message = stripe->failed_message;
    struct arrival *arrival = arrival_find(peer, step, edge);
    if (arrival) {
        arrival->has_failed = true;
        buffer_unref(arrival->buffer);
        arrival->buffer = NULL;
        if (is_over(arrival))
            arrival_free(peer, arrival);
    }
    struct status *why =
        status_from_wire((int)stripe->failed_code,
                         (struct span){message, MIN(strlen(message), (size_t)MAX_WHY_BYTES)});
    if (table->receiver && table->receiver->on_steps_lost)
        table->receiver->on_steps_lost(table->receiver_arg, peer, &step, 1, why);
    status_unref(why);
}

/* A stripe without payload, so peer_streams_alloc was not called. */
static struct status *on_empty_stripe(struct peer *peer, const struct wire_message *message) {
    Millrace__Stripe *stripe = stripe_unpack(message);
    struct edge_message edge;
    struct status *st = NULL;
    if (!stripe)
        return status_invalid("task %s sent a malformed stripe", peer->task);
    st = edge_message_read((struct span){(const char *)stripe->push.data, stripe->push.len}, &edge);
    if (!st)
        on_failed(peer, message->id, stripe, &edge);
    millrace__stripe__free_unpacked(stripe, NULL);
    return status_prefix_take(st, "from task %s: ", peer->task);
}

struct status *peer_streams_on_stripe(struct peer *peer, struct transport_channel *channel,
                                      struct wire_message *message) {
    struct channel_input *input = channel->input;
    if (!input || !input->is_read)
        return on_empty_stripe(peer, message);
    struct arrival *arrival = input->arrival;
    input->is_read = false;
    if (!is_here(peer, arrival))
        return NULL;
    arrival->n_done++;
    buffer_unref(message->payload); /* so that the value's buffer has one holder only */
    message->payload = NULL;
    if (!is_over(arrival))
        return NULL;
    if (arrival->buffer)
        return deliver_whole(peer, arrival, &input->edge);
    arrival_free(peer, arrival);
    return NULL;
}

void peer_streams_tick(struct peer *peer, int64_t now_ns) {
    struct peer_streams *streams = &peer->streams;
    LIST_FOR_EACH (link, &streams->arrivals)
        drop_unwanted(peer, LIST_ENTRY(link, struct arrival, link));
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
