/* Limits the work that one connection's peer can cause with frames that complete no call. HTTP/2
 * allows any number of them: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, unknown types,
 * header blocks that are cut into pieces or grow when decoded, streams that are reset as soon as
 * they are open. nghttp2 1.52 limits the answers that it queues (1000 PING and SETTINGS
 * acknowledgements), the CONTINUATION frames of a block (8) and the entries of a SETTINGS frame
 * (32), but not the work of reading.
 *
 * Each such frame costs a token of a bucket, which fills at a rate and holds ten seconds of it.
 * Useful traffic gives tokens back: a call that begins gives 9, and each 4 KiB of a message in
 * either direction gives one, because of the window updates that they cause. So a busy, honest
 * client never runs out of tokens, whatever its rate of calls.
 *
 * One per connection. Loop thread. Internal to rpc/grpc. */
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
/* A frame begins. Returns REFUSED_NOTHING, or the limit that it breaks; then the caller ends the
 * connection. */
enum grpc_refusal grpc_guard_frame(struct grpc_guard *guard, const nghttp2_frame_hd *hd,
                                   int64_t now_ms);
/* A header field of `len` bytes has been decoded. Returns as above. */
enum grpc_refusal grpc_guard_field(struct grpc_guard *guard, size_t len);
/* We reset a stream because of what the peer sent. Returns as above. */
enum grpc_refusal grpc_guard_reset_sent(struct grpc_guard *guard, int64_t now_ms);
void grpc_guard_call_begins(struct grpc_guard *guard);
void grpc_guard_moved(struct grpc_guard *guard, size_t n_bytes);

#endif
