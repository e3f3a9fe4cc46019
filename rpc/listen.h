/* Addresses of processes, and listening on them: what the gRPC server, the worker wire and the
 * admin port share. */
#ifndef MILLRACE_RPC_LISTEN_H
#define MILLRACE_RPC_LISTEN_H

#include <sys/socket.h>

#include "common/base/status.h"
#include "common/base/str.h"
#include "rpc/loop.h"

/* "host:port", "[v6 address]:port", ":port" and "*:port" (all interfaces), or "unix:/path". */
struct net_address {
    bool is_unix;
    uint16_t port;
    char host[256]; /* without brackets; "" for all interfaces; the path of a Unix socket */
};

/* Errors: INVALID_ARGUMENT naming the text (no port, port above 65535, path too long, …). */
struct status *net_address_parse(const char *text, struct net_address *ret_address) MUST_USE;
/* A Unix or numeric address as the kernel wants it; 0 for a name, which needs a resolver. */
socklen_t net_address_to_sockaddr(const struct net_address *address,
                                  struct sockaddr_storage *ret_sockaddr);

/* "192.0.2.1:2222" or "[::1]:2222" of a TCP socket's other end. False, and "?", where it is
 * none. */
bool net_peer_name(int fd, struct str *out);
/* Of the machine alone? Asks the socket, not its connection, which may be gone; false where
 * nobody can tell. */
bool net_is_unix(int fd);

/* Has the kernel end a connection whose other end has vanished without a word: when what was
 * sent has not been acknowledged for `vanish_ms`, or, on an idle one, its probes. Does nothing
 * to a Unix socket. */
void net_keep_alive(int fd, int64_t vanish_ms);

/* Takes the accepted socket: non-blocking, close-on-exec, TCP_NODELAY set. */
typedef void listener_accept_fn(void *arg, int fd_take);

struct listener;

/* Binds and listens at once; accepts on the loop. "localhost" listens on 127.0.0.1 and ::1 under
 * one port, "[::]" on both families; a stale Unix socket file is replaced, one that a process
 * answers on is not. Port 0: any. Errors: INVALID_ARGUMENT (the text), UNAVAILABLE naming the
 * address and the reason. Loop thread. */
struct status *listener_new(struct loop *loop, const char *address, listener_accept_fn *on_accept,
                            void *arg, struct listener **ret_listener) MUST_USE;
int listener_port(const struct listener *listener); /* the bound port, 0 for Unix */
/* Stops at once and removes the Unix socket file; the memory goes with the loop's next turn.
 * Accepts NULL. */
void listener_close(struct listener *listener);

#endif
