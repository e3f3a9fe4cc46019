/* Receives one message: collects the bytes of DATA frames in one aligned buffer. One per stream.
 * Loop thread.
 *
 *   PREFIX ── 5 bytes ──► HEAD ── enough for the align function ──► BODY ── all bytes ──► DONE
 *      any of them ── broken rule or limit ──► REFUSED (further bytes are ignored)
 *
 * A message without an align function, or compressed, skips HEAD; an empty one goes from PREFIX to
 * DONE.
 *
 * The quota is charged for bytes that have arrived, not for bytes that a prefix announces. So a
 * peer that announces much and sends little takes nothing from others. What the prefixes of one
 * connection announce has a limit of its own. */
#ifndef MILLRACE_RPC_GRPC_GRPC_RECEIVE_H
#define MILLRACE_RPC_GRPC_GRPC_RECEIVE_H

#include "rpc/grpc/grpc_limits.h"
#include "rpc/grpc/grpc_output.h"

/* How many bytes of message bodies are in memory, and the longest message. One per server or
 * client. */
struct grpc_quota {
    int64_t in_use_bytes, limit_bytes, max_message_bytes;
};

enum grpc_receive_state {
    RECEIVE_PREFIX,
    RECEIVE_HEAD,
    RECEIVE_BODY,
    RECEIVE_DONE,
    RECEIVE_REFUSED
};

struct grpc_receiver {
    enum grpc_receive_state state;
    struct grpc_quota *quota;
    grpc_align_fn *align; /* may be NULL */
    uint8_t prefix[GRPC_PREFIX_BYTES];
    size_t n_prefix;
    size_t body_len; /* as the prefix announces */
    char *head;      /* the first bytes, while there are too few for `align` */
    size_t n_head;
    struct buffer *buffer;
    char *body; /* inside the buffer */
    size_t n_body;
    size_t charged_bytes; /* of the quota */
    /* the bytes that prefixes of the connection have announced and that have not arrived yet; NULL:
     * not counted */
    int64_t *claims;
    size_t claimed_bytes; /* of them */
    bool takes_compressed, is_compressed;
    enum grpc_refusal refusal; /* which limit refused it, if one did */
};

void grpc_receiver_init(struct grpc_receiver *in, struct grpc_quota *quota, grpc_align_fn *align);
void grpc_receiver_fini(struct grpc_receiver *in); /* returns the quota, too */
/* No more bytes will arrive, because the connection ends. */
void grpc_receiver_unclaim(struct grpc_receiver *in);
/* Takes the next bytes of the stream. An error (RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL)
 * refuses the message. */
struct status *grpc_receiver_feed(struct grpc_receiver *in, const void *bytes, size_t len) MUST_USE;
/* The stream has ended. Returns an error when the message is not whole. */
struct status *grpc_receiver_end(struct grpc_receiver *in) MUST_USE;
/* The message is not wanted: frees what it holds and ignores further bytes. */
void grpc_receiver_refuse(struct grpc_receiver *in);
/* Returns where the next bytes of the body belong. A caller that reads them there and then
 * feeds them saves a copy, because feed recognises the address. Returns false when there is no
 * memory for them yet. */
bool grpc_receiver_destination(struct grpc_receiver *in, char **ret_to, size_t *ret_len);
/* Returns the whole message, compressed if is_compressed. Its buffer reference is the caller's. */
struct grpc_message grpc_receiver_take(struct grpc_receiver *in);

#endif
