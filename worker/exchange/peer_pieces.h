/* Sends values while they are still being copied from a device (common/tensor/growing_buffer.h).
 *
 *   device      copies piece 0 │ piece 1 │ piece 2 │ …
 *   this task                    Stripe 0  Stripe 1  Stripe 2 …   each queued once it is there
 *   receiver                     reads each into its part of the granted buffer; the last one
 *                                delivers the value as a Push
 *
 * A growing value is announced, granted and pre-granted like others: its type, shape and size are
 * known. Each piece is a message of its own (peer_streams.h), so a device that is slow, or still
 * computes, keeps no socket busy: other values are sent between two pieces. Checksums and TLS work
 * as for every message. Nothing of the value is delivered before all pieces have arrived.
 *
 *   the copy fails                  a Stripe says so and why, in place of the pieces that are left;
 *                                   the receiver drops the others and ends its step with that error
 *   the step is cancelled here      the pieces are sent to the end; the receiver drops them
 *   the step has ended there        its receiver reads and drops the pieces
 *   the peer is lost                nothing more is sent; the receiver's step ends with the loss
 *   the peer takes no pieces,       the value is sent at once when it is whole: over the socket,
 *   or it granted a remote slot     or into the slot, which is declined if the copy fails; such a
 *                                   peer's step is ended by its master
 *
 * A record holds the value, and with it the memory that the copy fills, until its last piece is
 * queued. Nothing else waits for it: a Send has ended when its value is granted, and the step that
 * copies waits for the copy itself.
 *
 * Loop thread. */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_PIECES_H
#define MILLRACE_WORKER_EXCHANGE_PEER_PIECES_H

#include <stdbool.h>
#include <stdint.h>

struct peer;
struct peer_value;
struct rdma_remote_slot;
struct str;

enum { PEER_PIECE_BYTES = 4 << 20 }; /* of a value with more than PEER_MAX_PIECES of them: more */

struct peer_pieces {
    uint64_t n_values; /* that were sent in pieces, or began to be */
    uint64_t n_sent;   /* pieces */
    uint64_t n_early;  /* those among them that were sent before the value was whole */
    uint64_t n_failed; /* values whose copies failed */
};

/* Has the value a growing buffer that is not whole? Any thread. */
bool peer_value_is_growing(const struct peer_value *value);
/* Sends a growing value, in pieces if the peer takes them. Borrows the value. */
void peer_pieces_push(struct peer *peer, const struct peer_value *value);
/* Writes a growing value to a slot of that RDMA connection when it is whole. Takes the value. */
void peer_pieces_write(struct peer *peer, uint64_t rdma_connection,
                       const struct rdma_remote_slot *slot, struct peer_value *value_take);
void peer_pieces_describe(const struct peer *peer, struct str *out); /* appends a JSON object */

#endif
