/* Large values over several sockets at once.
 *
 *   sender                                             receiver
 *   a granted value of 8 MB and more, cut in n stripes
 *   Stripe 0 over the bulk channel ──────────────────►  reads each into its part of the buffer;
 *   Stripe 1 … n-1, each over a stream of its own ───►  the last one delivers the value as a Push
 *
 * A stream is a channel that its sender opens in the background, with the first value that is
 * large enough; it carries values one way. Values are cut over the streams that have answered
 * the Hello; while there is none, they go over the bulk channel as a whole. One that ends before
 * its answer, or has none after PEER_STREAMS_GREET_HEARTBEATS, has carried nothing: that is no
 * loss, and it is tried again after PEER_STREAMS_RETRY_MS, each time after twice as long. The
 * same holds for the receiver's end of one over which no stripe has come. Each stripe names its
 * value (step, and the Push's meta with edge, frame and iteration) and is fenced as every
 * message is: by the incarnations in its stream's Hello and by the grant. Values that are under
 * way together, and the stripes of one, may come in any order. A stream in use that is lost is
 * the peer's loss, as any channel's: the steps that exchange with it end. For
 * PEER_STREAMS_OFF_MS its values then go over the bulk channel alone, so that a path which
 * cannot have more sockets costs no second step.
 *
 * Memory: a step that ends gives back the room for what it was granted. What has come of a value
 * is then dropped, within a tick of the heartbeat, and what comes of it later is read past.
 *
 * What it is for: a link that one connection does not fill (a window per connection, a core per
 * queue of the card). Over loopback the copies are the limit, and one socket is as fast.
 *
 * Loop thread. */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_STREAMS_H
#define MILLRACE_WORKER_EXCHANGE_PEER_STREAMS_H

#include "common/base/list.h"
#include "worker/exchange/transport.h"

struct peer;
struct peer_value;

enum {
    PEER_MAX_STREAMS = 8, /* sockets for one value, the bulk channel among them */
    PEER_STRIPE_MIN_BYTES = 8 << 20,
    PEER_STREAMS_OFF_MS = 60000,
    PEER_STREAMS_RETRY_MS = 1000,
    PEER_STREAMS_RETRY_MAX_MS = 600000,
    PEER_STREAMS_GREET_HEARTBEATS = 3,
    PEER_STREAMS_MAX_ARRIVALS = 16384, /* of one peer, those of ended steps among them */
    PEER_STREAMS_MAX_OPEN = 1024,      /* of one task, to all peers; and as many from all */
};

struct peer_streams {
    /* sockets that the peer takes for a value; 0: it has not said */
    unsigned n_theirs;
    /* that this task has opened; [0] stays NULL */
    struct transport_channel *to_peer[PEER_MAX_STREAMS];
    struct transport_channel *from_peer[PEER_MAX_STREAMS]; /* that the peer has opened */
    /* a bit for each of to_peer: its Hello is answered */
    uint32_t greeted;
    /* a bit for each of from_peer: a stripe has begun to come */
    uint32_t used;
    /* for those of to_peer that have not answered; 0: there was none */
    int64_t greet_until_ns;
    struct list arrivals; /* values of which stripes have come */
    int n_arrivals;
    int64_t off_until_ns;        /* none is opened before: one was lost, or did not come about */
    int64_t retry_ms;            /* how long the last that did not come about has kept them off */
    uint64_t n_sent, n_received; /* values */
};

void peer_streams_init(struct peer_streams *streams);
/* Closes all and forgets what has not come as a whole. */
void peer_streams_reset(struct peer *peer, struct status *why);
/* Sends the value; false: it is not for streams, nothing was done. */
bool peer_streams_push(struct peer *peer, const struct peer_value *value);
/* Is there room for a stream that the peer has opened? One in its place that carried nothing
 * makes way. Errors: INVALID_ARGUMENT, FAILED_PRECONDITION, RESOURCE_EXHAUSTED. */
struct status *peer_streams_check_room(struct peer *peer, unsigned index) MUST_USE;
void peer_streams_add(struct peer *peer, unsigned index, struct transport_channel *channel_take);
void peer_streams_on_greeted(struct peer *peer, const struct transport_channel *channel);
void peer_streams_on_used(struct peer *peer, const struct transport_channel *channel);
void peer_streams_tick(struct peer *peer, int64_t now_ns);
/* True when it was in use: the peer is lost. */
bool peer_streams_on_closed(struct peer *peer, struct transport_channel *channel,
                            struct status *why);
/* Of a Stripe; the contracts are those of struct wire_handlers. */
struct buffer *peer_streams_alloc(struct peer *peer, struct transport_channel *channel,
                                  const struct wire_message *message, size_t size_bytes);
struct status *peer_streams_on_stripe(struct peer *peer, struct transport_channel *channel,
                                      struct wire_message *message) MUST_USE;
/* A JSON object. */
void peer_streams_describe(const struct peer *peer, struct str *out);

#endif
