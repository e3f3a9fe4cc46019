/* What one connection's peer may do to a server by frames alone. HTTP/2 lets a peer send frames
 * without end that cost work and move no call on: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty
 * DATA, unknown types, header blocks that are cut into pieces or grow when decoded, streams that
 * are reset as soon as they are open. nghttp2 1.52 bounds the answers that it queues (1000 PING
 * and SETTINGS acknowledgements), the CONTINUATION frames of a block (8) and the entries of a
 * SETTINGS frame (32); not the work of reading.
 *
 * Each such frame costs a token of a bucket that fills at a rate and holds ten seconds of it.
 * Use gives tokens back: a call that begins 9, and a message's bytes one per 4 KiB either way,
 * for the window updates that they bring about. So a busy honest client never runs dry, whatever
 * its rate of calls.
 *
 * One connection's, loop thread. Internal to rpc/grpc/grpc*. */
#ifndef MILLRACE_RPC_GRPC_GRPC_GUARD_H
#define MILLRACE_RPC_GRPC_GRPC_GUARD_H

#include <nghttp2/nghttp2.h>

#include "rpc/grpc/grpc_limits.h"

struct grpc_bucket {
    int64_t per_s, level_milli, filled_ms;
};

struct grpc_guard {
    bool is_on;                       /* a client trusts its server */
    int64_t max_block_bytes;          /* of one header block, as sent and as decoded */
    int64_t block_bytes, field_bytes; /* of the present one */
    size_t moved_bytes;               /* of messages, not given back as a token yet */
    struct grpc_bucket frames, resets;
};

void grpc_guard_init(struct grpc_guard *guard, const struct grpc_server_limits *limits,
                     int64_t now_ms);
/* A frame begins. REFUSED_NOTHING, or the limit that it breaks: the connection ends. */
enum grpc_refusal grpc_guard_frame(struct grpc_guard *guard, const nghttp2_frame_hd *hd,
                                   int64_t now_ms);
/* A decoded header field. */
enum grpc_refusal grpc_guard_field(struct grpc_guard *guard, size_t len);
/* We had to reset a stream because of what the peer sent. */
enum grpc_refusal grpc_guard_reset_sent(struct grpc_guard *guard, int64_t now_ms);
void grpc_guard_call_begins(struct grpc_guard *guard);
void grpc_guard_moved(struct grpc_guard *guard, size_t n_bytes);

#endif
