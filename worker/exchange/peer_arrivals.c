/* Joins the stripes of large values that arrive (peer_arrivals.h). */
#include "worker/exchange/peer_arrivals.h"

#include <stdlib.h>

#include "common/tensor/growing_buffer.h"
#include "proto/worker.pb-c.h"
#include "worker/exchange/peer_internal.h"

enum { MAX_WHY_BYTES = 4096 };
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
    /* The buffer grows: the value was handed on, and who has it reads the first n_front stripes. */
    bool is_growing;
    uint64_t total_bytes, stripe_bytes;
    unsigned n_stripes, n_begun, n_done;
    unsigned n_front; /* this many stripes are there without a gap, from the first one */
    /* the sender gives it up: dropped once no stripe of it is being read */
    bool has_failed;
    uint64_t *done;   /* a bit per stripe that is there */
    uint64_t begun[]; /* a bit per stripe of which the first byte was there; then `done` */
};

static void arrival_free(struct peer *peer, struct arrival *arrival) {
    peer->streams.n_arrivals--;
    list_remove(&arrival->link);
    str_fini(&arrival->push);
    buffer_unref(arrival->buffer);
    free(arrival);
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

static struct stripe_division division_of(const Millrace__Stripe *stripe) {
    return stripe_division_of(stripe->total_bytes, stripe->stripe_bytes, stripe->n_stripes);
}

static Millrace__Stripe *stripe_unpack(const struct wire_message *message) {
    Millrace__Stripe *stripe =
        millrace__stripe__unpack(NULL, message->meta.len, (const uint8_t *)message->meta.data);
    if (!stripe)
        return NULL;
    if (is_good_division(stripe)) {
        struct stripe_division division = division_of(stripe);
        uint64_t size = stripe_division_begin(division, stripe->index + 1) -
                        stripe_division_begin(division, stripe->index);
        if (message->payload_len == (stripe->failed_code ? 0 : size))
            return stripe;
    }
    millrace__stripe__free_unpacked(stripe, NULL);
    return NULL;
}

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
    size_t n_words = (stripe->n_stripes + 63) / 64;
    struct arrival *arrival = xcalloc(1, sizeof(*arrival) + 2 * n_words * sizeof(uint64_t));
    arrival->done = arrival->begun + n_words;
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
    uint64_t begin = stripe_division_begin(division_of(stripe), stripe->index);
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
    input->stripe = stripe->index;
    return arrival ? part_of(peer, arrival, stripe, size_bytes) : buffer;
}

struct buffer *peer_arrivals_alloc(struct peer *peer, struct transport_channel *channel,
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

/* Reads what all stripes say about the value. Spans in *ret are of the arrival. */
static void read_edge(const struct arrival *arrival, struct edge_message *ret) {
    struct status *st =
        edge_message_read((struct span){arrival->push.data, arrival->push.len}, ret);
    CHECK(!st); /* it was read before without an error */
}

/* The last stripe has arrived. */
static struct status *deliver_whole(struct peer *peer, struct arrival *arrival) {
    struct edge_message edge;
    struct peer_table *table = peer->table;
    struct wire_message push = {.type = WIRE_PUSH,
                                .id = arrival->step,
                                .meta = {arrival->push.data, arrival->push.len},
                                .payload = arrival->buffer,
                                .payload_len = arrival->total_bytes};
    read_edge(arrival, &edge);
    arrival->buffer = NULL;
    list_remove(&arrival->link);
    list_init(&arrival->link); /* delivering the value may reset the streams */
    peer->streams.n_received++;
    struct status *st = table->receiver
                            ? table->receiver->on_message(table->receiver_arg, peer, &push, &edge)
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

/* Hands the value on if it is wanted before it is whole. */
static void hand_on(struct peer *peer, struct arrival *arrival) {
    struct peer_table *table = peer->table;
    struct edge_message edge;
    if (!table->receiver || !table->receiver->on_begun)
        return;
    read_edge(arrival, &edge);
    struct buffer *growing =
        table->receiver->on_begun(table->receiver_arg, peer, arrival->step, &edge, arrival->buffer);
    if (!growing)
        return;
    if (!is_here(peer, arrival)) { /* handing it on may reset the streams */
        buffer_unref(growing);
        return;
    }
    buffer_unref(arrival->buffer);
    arrival->buffer = growing;
    arrival->is_growing = true;
    peer->streams.n_handed_on++;
}

/* A stripe has arrived, and others are missing. */
static void advance(struct peer *peer, struct arrival *arrival) {
    unsigned n = arrival->n_front;
    while (arrival->done[n / 64] & 1ull << n % 64)
        n++;
    if (n == arrival->n_front || !arrival->buffer)
        return;
    arrival->n_front = n;
    if (!arrival->is_growing)
        hand_on(peer, arrival);
    if (!is_here(peer, arrival) || !arrival->is_growing)
        return;
    struct stripe_division division =
        stripe_division_of(arrival->total_bytes, arrival->stripe_bytes, arrival->n_stripes);
    growing_buffer_advance(arrival->buffer, stripe_division_begin(division, n));
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

/* A stripe without payload, so peer_arrivals_alloc was not called. */
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

struct status *peer_arrivals_on_stripe(struct peer *peer, struct transport_channel *channel,
                                       struct wire_message *message) {
    struct channel_input *input = channel->input;
    if (!input || !input->is_read)
        return on_empty_stripe(peer, message);
    struct arrival *arrival = input->arrival;
    input->is_read = false;
    if (!is_here(peer, arrival))
        return NULL;
    arrival->n_done++;
    arrival->done[input->stripe / 64] |= 1ull << input->stripe % 64;
    buffer_unref(message->payload); /* so that the value's buffer has one holder only */
    message->payload = NULL;
    if (!is_over(arrival)) {
        advance(peer, arrival);
        return NULL;
    }
    if (arrival->buffer)
        return deliver_whole(peer, arrival);
    arrival_free(peer, arrival);
    return NULL;
}

void peer_arrivals_drop(struct peer *peer) {
    LIST_FOR_EACH_SAFE (link, next, &peer->streams.arrivals)
        arrival_free(peer, LIST_ENTRY(link, struct arrival, link));
}

void peer_arrivals_drop_unwanted(struct peer *peer) {
    LIST_FOR_EACH (link, &peer->streams.arrivals)
        drop_unwanted(peer, LIST_ENTRY(link, struct arrival, link));
}
