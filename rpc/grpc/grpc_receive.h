/* One message on its way in: bytes of DATA frames become one aligned buffer. One stream's, loop
 * thread.
 *
 *   PREFIX ── 5 bytes ──► HEAD ── enough for the align function ──► BODY ── all bytes ──► DONE
 *      any of them ── broken rule or limit ──► REFUSED (all further bytes are ignored)
 *
 * A message without an align function, or compressed, skips HEAD; an empty one goes from PREFIX
 * to DONE.
 *
 * The quota is charged for bytes that came, not for bytes that a prefix claims: a peer that
 * claims much and sends little takes no room from others. What one connection claims is limited
 * by itself. */
#ifndef MILLRACE_RPC_GRPC_GRPC_RECEIVE_H
#define MILLRACE_RPC_GRPC_GRPC_RECEIVE_H

#include "rpc/grpc/grpc_limits.h"
#include "rpc/grpc/grpc_output.h"

enum { GRPC_HEAD_BYTES = 4096 }; /* what an align function may ask for */

/* Bytes of message bodies that live at once, and the longest message. One server's or client's. */
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
    size_t body_len; /* as claimed */
    char *head;      /* the first bytes, while there are too few for `align` */
    size_t n_head;
    struct buffer *buffer;
    char *body; /* inside the buffer */
    size_t n_body;
    size_t charged_bytes; /* of the quota */
    /* bytes that its connection's prefixes have claimed and that are still to come; NULL: not
     * counted */
    int64_t *claims;
    size_t claimed_bytes; /* of them */
    bool takes_compressed, is_compressed;
    enum grpc_refusal refusal; /* which limit refused it, if one did */
};

void grpc_receiver_init(struct grpc_receiver *in, struct grpc_quota *quota, grpc_align_fn *align);
void grpc_receiver_fini(struct grpc_receiver *in); /* also gives back the quota */
/* No more bytes will come: its connection goes. */
void grpc_receiver_unclaim(struct grpc_receiver *in);
/* Takes the next bytes of the stream. An error (RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL)
 * refuses the message. */
struct status *grpc_receiver_feed(struct grpc_receiver *in, const void *bytes, size_t len) MUST_USE;
/* The stream's end: an error when the message is not whole. */
struct status *grpc_receiver_end(struct grpc_receiver *in) MUST_USE;
/* The message is not wanted: gives back what it holds and ignores what still comes. */
void grpc_receiver_refuse(struct grpc_receiver *in);
/* Where the next body bytes go: reading them straight into this place saves their copy (feed
 * recognises the address). */
bool grpc_receiver_place(struct grpc_receiver *in, char **ret_place, size_t *ret_len);
/* The whole message, compressed if is_compressed; the buffer reference moves to the caller. */
struct grpc_message grpc_receiver_take(struct grpc_receiver *in);

#endif
