/* A port in the clear that leads to a port with TLS, for clients that cannot speak it: each
 * connection that is accepted here becomes one there. A connection waits a while for a target
 * that does not answer; where one cannot be had, the first call is answered with the reason,
 * since gRPC clients are who comes. Loop thread only. */
#ifndef MILLRACE_RPC_RELAY_TLS_TUNNEL_H
#define MILLRACE_RPC_RELAY_TLS_TUNNEL_H

#include "rpc/listen.h"
#include "rpc/tls/tls.h"

enum { TLS_TUNNEL_WAIT_MS = 10000, TLS_TUNNEL_MAX_CONNECTIONS = 10000 };

struct tls_tunnel;

struct tls_tunnel_options {
    const char *listen; /* "127.0.0.1:2222" */
    const char *target; /* "host:port" */
    const char *name;   /* that the target's certificate must carry; NULL: the target's host */
    struct tls *tls;    /* borrowed for its life */
    int64_t wait_ms;    /* 0: TLS_TUNNEL_WAIT_MS */
};

/* Strings are copied. Errors: as listener_new; INVALID_ARGUMENT (the target). */
struct status *tls_tunnel_new(struct loop *loop, const struct tls_tunnel_options *options,
                              struct tls_tunnel **ret_tunnel) MUST_USE;
int tls_tunnel_port(const struct tls_tunnel *tunnel);
int tls_tunnel_count(const struct tls_tunnel *tunnel); /* connections */
/* Accepts no more; on_drained comes once when the last connection has ended. */
void tls_tunnel_drain(struct tls_tunnel *tunnel, void (*on_drained)(void *arg), void *arg);
/* At once. The memory goes with the loop's next turns. Accepts NULL. */
void tls_tunnel_close(struct tls_tunnel *tunnel);

#endif
