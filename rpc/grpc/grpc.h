/* What the gRPC server and client share: messages, bodies, header encodings. gRPC is spoken over
 * HTTP/2 (nghttp2), unary calls only.
 *
 * The body of a message is received into one counted buffer, placed so that the first large
 * tensor_content inside it is aligned to 64 bytes. So tensors are views on the buffer. A body to
 * send is a list of slices, written by reference with writev. Source: gRPC over HTTP/2. */
#ifndef MILLRACE_RPC_GRPC_GRPC_H
#define MILLRACE_RPC_GRPC_GRPC_H

#include "common/base/status.h"
#include "common/tensor/buffer.h"

/* The body of a received message. */
struct grpc_message {
    struct buffer *buffer; /* NULL for an empty message; the receiver holds one reference */
    struct span body;      /* inside the buffer, without the 5-byte prefix */
};

/* A piece of a message to send. */
struct grpc_slice {
    struct span bytes;
    struct buffer *buffer; /* one reference, or NULL when the bytes are in `scratch` (below) */
};

struct grpc_body {
    struct grpc_slice *slices;
    size_t n_slices, capacity;
    size_t size_bytes;
    struct grpc_scratch *scratch; /* copies of small pieces, freed with the body */
};

void grpc_body_init(struct grpc_body *body);
void grpc_body_fini(struct grpc_body *body);
/* Copies `bytes`; adjacent copies coalesce into one slice. */
void grpc_body_add_copy(struct grpc_body *body, const void *bytes, size_t len);
/* Adds the bytes without a copy. They are inside the buffer, whose reference is taken. */
void grpc_body_add_shared(struct grpc_body *body, const void *bytes, size_t len,
                          struct buffer *buffer_take);

/* Called exactly once when a call of a client has ended, never inside the function that starts it.
 * The callee owns the status (NULL: success) and, on success, the message's buffer reference. */
typedef void grpc_done_fn(void *arg, struct status *status_take, struct grpc_message message_take);

/* An alignment function: says where the first large tensor of a message begins, so that it can be
 * received aligned. `head` is the beginning of the message, at least min(body_len, GRPC_HEAD_BYTES)
 * bytes.
 * Returns the offset of the byte that should be aligned to 64 bytes, or 0 when it does not matter.
 * Pure. Must accept any bytes. */
typedef size_t grpc_align_fn(struct span head, size_t body_len);
enum { GRPC_HEAD_BYTES = 4096 }; /* what an alignment function may ask for */
/* Copies a body into one message, placed as the alignment function says (NULL: anywhere). Errors:
 * RESOURCE_EXHAUSTED, no memory. */
struct status *grpc_body_gather(const struct grpc_body *body, grpc_align_fn *align,
                                struct grpc_message *ret) MUST_USE;
/* For alignment functions of protobuf messages: returns the offset of the contents of the first
 * field of at least min_bytes that is found by following field numbers through nested messages; 0
 * when there is none in the head. */
size_t grpc_find_large(struct span head, size_t body_len, const uint32_t *path, size_t path_len,
                       size_t min_bytes);

/* Encode and decode the text of the header grpc-message: bytes outside 0x20..0x7e and '%' become
 * %XX. The encoded text is cut at 6000 bytes. */
struct str;
void grpc_percent_encode(const char *text, struct str *out);
void grpc_percent_decode(struct span text, struct str *out);

/* Reads the header grpc-timeout: "1510m" is 1510 ms. Rounds up. *ret_ms is INT64_MAX for a time
 * that is longer. Returns false for malformed text. */
bool grpc_timeout_parse(struct span text, int64_t *ret_ms);

#endif
