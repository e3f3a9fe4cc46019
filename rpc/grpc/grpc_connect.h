/* Connects a socket in the background: name → addresses → the first one that answers. Internal
 * to rpc/grpc/grpc*. Loop thread. */
#ifndef MILLRACE_RPC_GRPC_GRPC_CONNECT_H
#define MILLRACE_RPC_GRPC_GRPC_CONNECT_H

#include "rpc/listen.h"

struct grpc_connector;

/* The connected socket (non-blocking, TCP_NODELAY), or -1 and an UNAVAILABLE status that names
 * host, port and reason. */
typedef void grpc_connector_done_fn(void *arg, int fd_take, struct status *status_take);

/* on_done is called once, never inside this call. */
struct grpc_connector *grpc_connector_new(struct loop *loop, const struct net_address *address,
                                          grpc_connector_done_fn *on_done, void *arg);
/* on_done will not be called; on_gone(arg) when the memory is gone. Not after on_done. */
void grpc_connector_cancel(struct grpc_connector *connector, void (*on_gone)(void *arg));

#endif
