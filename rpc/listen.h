/* Parses the addresses of processes and listens on them, for the gRPC server, the worker wire, the
 * admin port and the relays. */
#ifndef MILLRACE_RPC_LISTEN_H
#define MILLRACE_RPC_LISTEN_H

#include <sys/socket.h>

#include "common/base/status.h"
#include "common/base/str.h"
#include "rpc/loop.h"

/* "host:port", "[v6 address]:port", ":port" and "*:port" (all interfaces), "unix:/path", or
 * "local:NAME", where only the worker wire listens, and which only this process can dial. */
struct net_address {
    bool is_unix;  /* its sockets are Unix sockets */
    bool is_local; /* of this process; is_unix is true, too, as its user is known */
    uint16_t port;
    char host[256]; /* without brackets; "" for all interfaces; the path of a Unix socket; a NAME */
};

/* Errors: INVALID_ARGUMENT, which quotes the text (no port, a port above 65535, a path that is too
 * long, …). */
struct status *net_address_parse(const char *text, struct net_address *ret_address) MUST_USE;
/* Writes a Unix or numeric address in the kernel's form and returns its length. Returns 0 for a
 * name, which needs a resolver, and for an address of this process, which the kernel does not
 * know. */
socklen_t net_address_to_sockaddr(const struct net_address *address,
                                  struct sockaddr_storage *ret_sockaddr);

/* Appends the address of a TCP socket's other end, "192.0.2.1:2222" or "[::1]:2222". For any other
 * socket it appends "?" and returns false. */
bool net_peer_name(int fd, struct str *out);
/* Is it a Unix socket? Works also after the connection has ended. False on an error. */
bool net_is_unix(int fd);

/* Is the process at the other end of a Unix socket of this process' user, or of root? */
bool net_is_owner(int fd);

/* Makes the kernel end a TCP connection when the other end acknowledges neither data nor, on an
 * idle connection, keep-alive probes for `vanish_ms`. So a host that disappears is noticed. Does
 * nothing to a Unix socket. */
void net_keep_alive(int fd, int64_t vanish_ms);

/* Called on the loop thread with an accepted socket, which the callee owns: non-blocking,
 * close-on-exec, TCP_NODELAY set. */
typedef void listener_accept_fn(void *arg, int fd_take);

struct listener;

/* Binds and listens before it returns, and accepts on the loop. "localhost" listens on 127.0.0.1
 * and ::1 under one port, "[::]" on both families. Port 0 means any free port. The file of a
 * Unix socket on which no process answers is replaced. Errors: INVALID_ARGUMENT (the text is no
 * address of a socket), UNAVAILABLE, which names the address and the reason. Loop thread. */
struct status *listener_new(struct loop *loop, const char *address, listener_accept_fn *on_accept,
                            void *arg, struct listener **ret_listener) MUST_USE;
int listener_port(const struct listener *listener); /* the bound port, 0 for Unix */
/* Stops accepting at once and removes the Unix socket file. The loop frees the memory later.
 * Accepts NULL. */
void listener_close(struct listener *listener);

#endif
