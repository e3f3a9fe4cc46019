/* Queues what a connection has to send: frame headers are copied, the bytes of messages are
 * referenced, and writev sends them together. One per connection. Loop thread. */
#ifndef MILLRACE_RPC_GRPC_GRPC_OUTPUT_H
#define MILLRACE_RPC_GRPC_GRPC_OUTPUT_H

#include "rpc/grpc/grpc.h"

enum { GRPC_PREFIX_BYTES = 5 };

/* A message that is being sent: the 5-byte prefix, then the body's slices. Its stream holds a
 * reference, and so does every queued piece of it. */
struct grpc_sender {
    unsigned n_refs;
    struct grpc_body body;
    uint8_t prefix[GRPC_PREFIX_BYTES];
    size_t offset;              /* queued so far, of prefix and body together */
    size_t slice, slice_offset; /* the place in the body */
};

/* Moves the body's contents out: it is empty after. The caller holds one reference. */
struct grpc_sender *grpc_sender_new(struct grpc_body *body);
void grpc_sender_unref(struct grpc_sender *sender); /* accepts NULL */
static inline size_t grpc_sender_left(const struct grpc_sender *sender) {
    return GRPC_PREFIX_BYTES + sender->body.size_bytes - sender->offset;
}

/* A run of bytes to write. */
struct grpc_output_piece {
    struct grpc_sender *sender; /* one reference; NULL: the bytes are in `copied` */
    const char *data;           /* the sender's */
    uint64_t copied_at;         /* position in the stream of all copied bytes */
    size_t len;
};

struct grpc_output {
    struct grpc_output_piece *pieces; /* [first, end) are queued */
    size_t first, end, capacity;
    char *copied; /* bytes [copied_base, copied_base + copied_len) of the stream of copied bytes */
    size_t copied_len, copied_capacity;
    uint64_t copied_base;
    size_t size_bytes; /* queued, all together */
};

void grpc_output_init(struct grpc_output *out);
void grpc_output_fini(struct grpc_output *out); /* drops what is queued */
void grpc_output_add_copy(struct grpc_output *out, const void *bytes, size_t len);
/* Queues the sender's next `len` bytes (at most what is left). */
void grpc_output_add_message(struct grpc_output *out, struct grpc_sender *sender, size_t len);
struct tls_stream;
/* Writes as much as the socket takes; `tls` may be NULL. Returns 0 when all has been written (with
 * TLS: encrypted, see tls_stream_has_output). Returns EAGAIN when the socket is full, TLS is not
 * ready, or TLS has used its share of this turn. Otherwise returns the errno. */
int grpc_output_write(struct grpc_output *out, int fd, struct tls_stream *tls, size_t *ret_written);

#endif
