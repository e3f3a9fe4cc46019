/* gRPC over HTTP/2 (nghttp2), unary calls only: what the server and the client share.
 *
 * The body of a message is received into one counted buffer, placed so that the first large
 * tensor_content inside it is 64-byte aligned: tensors are views on it. A reply is a list of
 * slices, written by reference with writev. */
#ifndef MILLRACE_RPC_GRPC_GRPC_H
#define MILLRACE_RPC_GRPC_GRPC_H

#include "common/base/status.h"
#include "common/tensor/buffer.h"

/* One message body, received. */
struct grpc_message {
    struct buffer *buffer; /* NULL for an empty message; the receiver holds one reference */
    struct span body;      /* inside the buffer, without the 5-byte prefix */
};

/* A message to send: slices of bytes, each kept alive by an optional buffer reference. */
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
/* By reference: takes one reference on `buffer`. */
void grpc_body_add_shared(struct grpc_body *body, const void *bytes, size_t len,
                          struct buffer *buffer_take);

/* How a message finds where its large tensor content lies, so that it lands aligned: given the
 * first bytes of a message (at least min(len, 4096) of body_len), returns the offset of the
 * first byte that should be 64-byte aligned, or 0 when it does not matter. Pure, any bytes. */
typedef size_t grpc_align_fn(struct span head, size_t body_len);

/* grpc-message percent-encoding (bytes outside 0x20..0x7e, and '%'); the encoded text is cut at
 * 6000 bytes. */
struct str;
void grpc_percent_encode(const char *text, struct str *out);
void grpc_percent_decode(struct span text, struct str *out);

/* "1510m" → milliseconds, rounded up; INT64_MAX milliseconds or more means none. False when
 * malformed. */
bool grpc_timeout_parse(struct span text, int64_t *ret_ms);

#endif
