/* Joins two connected sockets, one in the clear and one that speaks TLS: what comes out of one
 * goes into the other, until both have ended. For what cannot speak TLS itself (a TensorFlow
 * client, the HTTP library). What one side does not take is not read from the other; an end in
 * one direction is passed on, and the other direction goes on. Loop thread only. */
#ifndef MILLRACE_RPC_TLS_TLS_RELAY_H
#define MILLRACE_RPC_TLS_TLS_RELAY_H

#include "rpc/loop.h"
#include "rpc/tls/tls_stream.h"

struct tls_relay;

/* Both directions have ended (`why` NULL), or something broke; `has_moved`: bytes of the plain
 * side's peer had gone over by then. Called once; `why` is borrowed. The plain socket is the
 * callee's from then on, the relay's memory goes by itself. */
typedef void tls_relay_over_fn(void *arg, struct status *why, bool has_moved, int plain_fd_take);

struct tls_relay_options {
    int plain_fd_take, tls_fd_take; /* non-blocking */
    struct tls_stream *stream_take;
    int64_t handshake_ms; /* one that takes longer ends it; 0: 20 s */
    /* The plain side is not read before the other has said something, as HTTP/2 servers do when
     * all is well; for a second at most. */
    bool waits_for_tls;
    /* what the plain side said is not taken for so long: it ends; 0: it waits */
    int64_t stall_ms;
    bool ends_with_plain; /* the plain side's end is the end of all, once what it said is out */
    tls_relay_over_fn *on_over;
    void *arg;
};

struct tls_relay *tls_relay_new(struct loop *loop, const struct tls_relay_options *options);
/* At once, after what the plain side has said as far as the socket takes it; on_over is not
 * called. Not after it was. */
void tls_relay_close(struct tls_relay *relay);

#endif
