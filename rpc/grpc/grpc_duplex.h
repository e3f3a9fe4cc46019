/* A gRPC call that sends and receives messages, for a thread that may block: no loop serves it. It
 * has a connection of its own, without TLS. Debug ops send tensors to TensorFlow's debug servers
 * with it.
 *
 *   open ──► send, receive, … ──► finish ──► receive until it is ended ──► close
 *
 * Nothing of a caller's bytes is sent before the server has sent its HTTP/2 settings, so a server
 * of another protocol never sees them. No call blocks for longer than its limits, and each ends
 * with CANCELLED within DUPLEX_POLL_MS once is_unwanted says so; only the resolver of names may
 * take longer. Errors name the address. One thread at a time. Source: gRPC over HTTP/2. */
#ifndef MILLRACE_RPC_GRPC_GRPC_DUPLEX_H
#define MILLRACE_RPC_GRPC_GRPC_DUPLEX_H

#include "common/base/status.h"
#include "common/base/str.h"

enum {
    DUPLEX_POLL_MS = 50,
    /* A reply of more bytes ends the call, and so do replies of more bytes that nobody receives. */
    DUPLEX_MAX_REPLY_BYTES = 16 << 20,
};

struct grpc_duplex_options {
    const char *address; /* "HOST:PORT" */
    const char *path;    /* "/SERVICE/METHOD" */
    int64_t connect_ms;  /* a server that is away is tried again for this long */
    int64_t stall_ms;    /* the longest time in which a server takes nothing of a message */
    bool (*is_unwanted)(void *arg);
    void *arg;
};

struct grpc_duplex;

/* Connects, and begins the call. Errors: INVALID_ARGUMENT for an address that is none; UNAVAILABLE
 * after connect_ms, with the reason; DEADLINE_EXCEEDED for a server that does not speak HTTP/2. */
struct status *grpc_duplex_open(const struct grpc_duplex_options *options,
                                struct grpc_duplex **ret) MUST_USE;
/* Returns once the socket has taken the message, whose bytes are borrowed until then. Errors:
 * DEADLINE_EXCEEDED after stall_ms without progress; UNAVAILABLE for a connection that has ended;
 * the status that the server has given, if it has ended the call. */
struct status *grpc_duplex_send(struct grpc_duplex *duplex, struct span message) MUST_USE;
/* Appends the next message to *ret, waiting for it for at most wait_ms (< 0: without limit; a
 * server's host that vanishes is noticed). *ret_is_ended: the server has ended the call with OK,
 * and there is no message. Errors: as grpc_duplex_send. */
struct status *grpc_duplex_receive(struct grpc_duplex *duplex, int64_t wait_ms, struct str *ret,
                                   bool *ret_is_ended) MUST_USE;
/* Tells the server that no more messages follow. */
struct status *grpc_duplex_finish(struct grpc_duplex *duplex) MUST_USE;
/* Closes the connection at once. Accepts NULL. */
void grpc_duplex_close(struct grpc_duplex *duplex);

#endif
