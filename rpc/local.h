/* Connects parts of one process with each other: a master and a worker that share a process, and
 * the client that started both (client/local). "local:NAME" is an address that only this process
 * knows, so nobody else can dial it, and no port or file is taken. Both ends are one pair of
 * connected Unix sockets.
 *
 * Used by rpc/listen, rpc/wire and rpc/grpc: whoever takes an address takes this one, too. */
#ifndef MILLRACE_RPC_LOCAL_H
#define MILLRACE_RPC_LOCAL_H

#include "rpc/listen.h"

struct local_listener;

/* Accepts connections to the name from now on. `on_accept` is called on the loop. Errors:
 * UNAVAILABLE, the name is taken. Loop thread. */
struct status *local_listen(struct loop *loop, const char *name, listener_accept_fn *on_accept,
                            void *arg, struct local_listener **ret) MUST_USE;
/* Sockets that were dialled and not accepted are closed. The loop frees the memory later. Loop
 * thread. */
void local_listener_close(struct local_listener *listener);

/* Connects: *ret_fd is a connected, non-blocking socket, whose other end is accepted soon. Errors:
 * UNAVAILABLE (nobody listens to the name, no more descriptors). Any thread. */
struct status *local_dial(const char *name, int *ret_fd) MUST_USE;

#endif
