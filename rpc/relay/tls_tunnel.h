/* Listens on a port without TLS and passes bytes on to a target port with TLS, for clients that do
 * not speak TLS. Each accepted connection gets its own connection to the target. If the target
 * cannot be reached within `wait_ms`, the client's first gRPC call ends with the reason. Loop
 * thread only. */
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
    struct tls *tls;    /* the tunnel takes a reference */
    int64_t wait_ms;    /* how long a connection waits for the target; 0: TLS_TUNNEL_WAIT_MS */
};

/* Copies the strings. Errors: as listener_new; INVALID_ARGUMENT (the target). */
struct status *tls_tunnel_new(struct loop *loop, const struct tls_tunnel_options *options,
                              struct tls_tunnel **ret_tunnel) MUST_USE;
int tls_tunnel_port(const struct tls_tunnel *tunnel);  /* the bound port */
int tls_tunnel_count(const struct tls_tunnel *tunnel); /* the present number of connections */
/* Stops accepting. Calls on_drained once, when the last connection has ended. */
void tls_tunnel_drain(struct tls_tunnel *tunnel, void (*on_drained)(void *arg), void *arg);
/* Ends all connections at once. The loop frees the memory later. Accepts NULL. */
void tls_tunnel_close(struct tls_tunnel *tunnel);

#endif
