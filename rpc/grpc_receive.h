/* One message on its way in: bytes of DATA frames become one aligned buffer. One stream's, loop thread.
 *
 *   PREFIX ── 5 bytes ──► HEAD ── enough for the align function ──► BODY ── all bytes ──► DONE
 *      any of them ── broken rule or limit ──► REFUSED (all further bytes are ignored)
 *
 * A message without an align function skips HEAD, an empty one goes from PREFIX to DONE. */
#ifndef MILLRACE_RPC_GRPC_RECEIVE_H
#define MILLRACE_RPC_GRPC_RECEIVE_H

#include "rpc/grpc.h"
#include "rpc/grpc_output.h"

enum { GRPC_HEAD_BYTES = 4096 }; /* what an align function may ask for */

/* Bytes of message bodies that live at once, and the longest message. One server's or client's. */
struct grpc_quota {
    int64_t in_use_bytes, limit_bytes, max_message_bytes;
};

enum grpc_receive_state { RECEIVE_PREFIX, RECEIVE_HEAD, RECEIVE_BODY, RECEIVE_DONE, RECEIVE_REFUSED };

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
};

void grpc_receiver_init(struct grpc_receiver *in, struct grpc_quota *quota, grpc_align_fn *align);
void grpc_receiver_fini(struct grpc_receiver *in); /* also gives back the quota */
/* Takes the next bytes of the stream. An error (RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL) refuses the message. */
struct status *grpc_receiver_feed(struct grpc_receiver *in, const void *bytes, size_t len) MUST_USE;
/* The stream's end: an error when the message is not whole. */
struct status *grpc_receiver_end(struct grpc_receiver *in) MUST_USE;
/* The message is not wanted: gives back what it holds and ignores what still comes. */
void grpc_receiver_refuse(struct grpc_receiver *in);
/* Where the next body bytes go: reading them straight into this place saves their copy (feed recognises the address). */
bool grpc_receiver_place(struct grpc_receiver *in, char **ret_place, size_t *ret_len);
/* The whole message; the buffer reference moves to the caller. */
struct grpc_message grpc_receiver_take(struct grpc_receiver *in);

#endif
