/* Joins two connected sockets, one without TLS and one with TLS, and passes bytes on in both
 * directions until both have ended. For programs that do not speak TLS themselves (a TensorFlow
 * client, the HTTP library). What one side does not take is not read from the other. The end of one
 * direction is passed on, and the other direction continues. Loop thread only. */
#ifndef MILLRACE_RPC_TLS_TLS_RELAY_H
#define MILLRACE_RPC_TLS_TLS_RELAY_H

#include "rpc/loop.h"
#include "rpc/tls/tls_stream.h"

struct tls_relay;

/* Called once when both directions have ended (`why` is NULL) or something broke. `why` is
 * borrowed. `has_moved` says that bytes had been passed on by then. The plain socket is the
 * callee's from then on; the relay frees itself. */
typedef void tls_relay_over_fn(void *arg, struct status *why, bool has_moved, int plain_fd_take);

struct tls_relay_options {
    int plain_fd_take, tls_fd_take; /* non-blocking */
    struct tls_stream *stream_take;
    int64_t handshake_ms; /* how long the handshake may take; 0: 20 s */
    /* The plain side is not read before the TLS side has sent something, for at most a second. An
     * HTTP/2 server sends first if it accepts the connection. */
    bool waits_for_tls;
    /* the relay ends when the TLS side takes nothing for this long; 0: it waits */
    int64_t stall_ms;
    bool ends_with_plain; /* it ends when the plain side has ended and all its bytes are sent */
    tls_relay_over_fn *on_over;
    void *arg;
};

struct tls_relay *tls_relay_new(struct loop *loop, const struct tls_relay_options *options);
/* Ends it at once, after sending as much of the plain side's bytes as the socket takes. on_over is
 * not called. Not to be called after on_over. */
void tls_relay_close(struct tls_relay *relay);

#endif
