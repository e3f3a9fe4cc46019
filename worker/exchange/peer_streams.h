/* Sends large values over several sockets at once.
 *
 *   sender                                             receiver
 *   a granted value of 8 MB or more, in n stripes
 *   Stripe 0 over the bulk channel ──────────────────►  reads each into its part of the buffer;
 *   Stripe 1 … n-1, each over a stream of its own ───►  the last one delivers the value as a Push
 *
 * This helps where one connection does not use the whole link, because each connection has a
 * limited window, or because a network card uses one core for each connection. Over loopback the
 * copies are the limit, and one socket is as fast.
 *
 * A stream is a channel that carries values in one direction. Its sender opens it in the background
 * when it has the first value that is large enough. A value is divided over the streams whose Hello
 * has been answered. While there is none, the whole value is sent over the bulk channel.
 *
 * A stream that ends before its Hello is answered, or whose Hello is not answered within
 * PEER_STREAMS_GREET_HEARTBEATS heartbeats, has carried nothing. Its end loses nothing, and the
 * stream is tried again after PEER_STREAMS_RETRY_MS, then each time after twice as long. The same
 * holds at the receiver for a stream over which no stripe has arrived.
 *
 * The loss of a stream in use is the loss of the peer, as for every channel, and the steps that
 * exchange with the peer end. For PEER_STREAMS_OFF_MS after it, the peer's values are sent over the
 * bulk channel only, so that a network which does not allow more connections fails no second step.
 *
 * Each stripe names its value by its step and by the meta of the Push, which has edge, frame and
 * iteration. Like every message it is accepted only from the right process (the incarnations in the
 * stream's Hello) and for a grant. So the stripes of one value, and values that are sent at the
 * same time, may arrive in any order.
 *
 * A step that ends returns the credit for what it was granted. Within a tick of the heartbeat the
 * stripes that have arrived are dropped, and those that arrive later are read and dropped.
 *
 * A piece of a value that is still growing (worker/exchange/peer_pieces.h) is a Stripe, too. The
 * pieces of a value have equal sizes, and there may be more of them than sockets.
 *
 * Loop thread. */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_STREAMS_H
#define MILLRACE_WORKER_EXCHANGE_PEER_STREAMS_H

#include "common/base/list.h"
#include "worker/exchange/transport.h"

struct peer;
struct peer_value;

enum {
    PEER_MAX_STREAMS = 8, /* sockets for one value, including that of the bulk channel */
    PEER_STRIPE_MIN_BYTES = 8 << 20,
    PEER_STREAMS_OFF_MS = 60000,
    PEER_STREAMS_RETRY_MS = 1000,
    PEER_STREAMS_RETRY_MAX_MS = 600000,
    PEER_STREAMS_GREET_HEARTBEATS = 3,
    /* values of one peer that are arriving, including those of ended steps */
    PEER_STREAMS_MAX_ARRIVALS = 16384,
    PEER_STREAMS_MAX_OPEN = 1024, /* of one task to all peers, and the same number from all */
    PEER_MAX_PIECES = 4096,       /* of one value */
    PEER_PIECE_MIN_BYTES = 1 << 20,
};

struct peer_streams {
    /* over how many sockets the peer accepts a value; 0: it has not said */
    unsigned n_theirs;
    /* the streams that this task has opened; [0] stays NULL */
    struct transport_channel *to_peer[PEER_MAX_STREAMS];
    struct transport_channel *from_peer[PEER_MAX_STREAMS]; /* those that the peer has opened */
    uint32_t greeted; /* a bit for each of to_peer: its Hello is answered */
    uint32_t used;    /* a bit for each of from_peer: a stripe has begun to arrive */
    /* until when the streams of to_peer may wait for the answer to their Hello */
    int64_t greet_until_ns;
    struct list arrivals; /* values of which stripes have arrived (peer_arrivals.c) */
    int n_arrivals;
    int64_t off_until_ns; /* no stream is opened before, because one was lost or has failed */
    int64_t retry_ms;     /* how long the last failed attempt has kept streams off */
    uint64_t n_sent, n_received; /* values */
    uint64_t n_pieces_received;
    uint64_t n_handed_on; /* values that were handed on before they were whole */
};

/* How a value is divided: each stripe but the last has stripe_bytes. */
struct stripe_division {
    uint64_t total_bytes, stripe_bytes;
    unsigned n;
};
/* What a Stripe says about its value. stripe_bytes 0: into n that are about equal. */
struct stripe_division stripe_division_of(uint64_t total_bytes, uint64_t stripe_bytes, unsigned n);
/* Returns where stripe `index` begins; for index n, the end. */
uint64_t stripe_division_begin(struct stripe_division division, unsigned index);

void peer_streams_init(struct peer_streams *streams);
/* Closes all streams and drops the values that have not arrived completely. `why` is borrowed. */
void peer_streams_reset(struct peer *peer, struct status *why);
/* Sends the value over streams. Returns false, with nothing done, when the value is too small or
 * streams cannot be used now. Borrows the value. */
bool peer_streams_push(struct peer *peer, const struct peer_value *value);
/* Sends a part of a value of PEER_STRIPE_MIN_BYTES or more, which begins at index · piece_bytes.
 * Pieces take turns on the sockets. Returns false when there is no connection, after the steps that
 * exchange with the peer have been told. Borrows the value. */
bool peer_streams_push_piece(struct peer *peer, const struct peer_value *value,
                             uint64_t piece_bytes, unsigned index);
/* The remaining pieces of the value do not come: the receiver's step ends with `why` (borrowed). */
void peer_streams_fail_pieces(struct peer *peer, const struct peer_value *value,
                              struct status *why);
/* Checks whether the peer may open this stream. Closes an earlier stream of this index that has
 * carried nothing. Errors: INVALID_ARGUMENT (the index), FAILED_PRECONDITION (no control channel),
 * RESOURCE_EXHAUSTED (PEER_STREAMS_MAX_OPEN). */
struct status *peer_streams_check_room(struct peer *peer, unsigned index) MUST_USE;
/* Adds a stream that the peer has opened, after peer_streams_check_room. */
void peer_streams_add(struct peer *peer, unsigned index, struct transport_channel *channel_take);
/* The peer has answered the Hello of a stream of ours. */
void peer_streams_on_greeted(struct peer *peer, const struct transport_channel *channel);
/* A stripe has begun to arrive over a stream of the peer's. */
void peer_streams_on_used(struct peer *peer, const struct transport_channel *channel);
/* To be called at each tick of the heartbeat. */
void peer_streams_tick(struct peer *peer, int64_t now_ns);
/* A stream has ended. Returns true when it was in use; then the caller ends the peer's other
 * channels (peer_lost). */
bool peer_streams_on_closed(struct peer *peer, struct transport_channel *channel,
                            struct status *why);
void peer_streams_describe(const struct peer *peer, struct str *out); /* appends a JSON object */

#endif
