/* Joins the stripes of large values as they arrive (worker/exchange/peer_streams.h).
 *
 *   first stripe of a value      the value's memory is that of its grant
 *   each stripe                  is read into its part of the memory; each must come once, and all
 *                                must agree about the value
 *   first stripes in a row       may be handed on in a growing buffer (peer_receiver.on_begun)
 *   last stripe                  delivers the value as a Push
 *   a failed stripe              ends the receiver's step with the sender's reason
 *
 * Stripes have no order, because they may come over several sockets. A stripe that breaks the rules
 * closes the peer's connections, which drops what has arrived of its values.
 *
 * Loop thread. */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_ARRIVALS_H
#define MILLRACE_WORKER_EXCHANGE_PEER_ARRIVALS_H

#include "worker/exchange/transport.h"

struct peer;

/* Drops the values that have not arrived completely. */
void peer_arrivals_drop(struct peer *peer);
/* Drops the memory of values that no step waits for any more. */
void peer_arrivals_drop_unwanted(struct peer *peer);
/* The alloc and on_message of struct wire_handlers, for a Stripe. */
struct buffer *peer_arrivals_alloc(struct peer *peer, struct transport_channel *channel,
                                   const struct wire_message *message, size_t size_bytes);
struct status *peer_arrivals_on_stripe(struct peer *peer, struct transport_channel *channel,
                                       struct wire_message *message) MUST_USE;

#endif
