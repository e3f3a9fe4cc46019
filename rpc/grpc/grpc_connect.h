/* Connects a socket in the background: resolves a name and tries its addresses until one answers.
 * Loop thread. */
#ifndef MILLRACE_RPC_GRPC_GRPC_CONNECT_H
#define MILLRACE_RPC_GRPC_GRPC_CONNECT_H

#include "rpc/listen.h"

struct grpc_connector;

/* Called with the connected socket (non-blocking, TCP_NODELAY), which the callee owns, or with
 * -1 and an UNAVAILABLE status that names host, port and reason. The connector has been freed. */
typedef void grpc_connector_done_fn(void *arg, int fd_take, struct status *status_take);

/* Starts to connect. on_done is called once, never inside this call. */
struct grpc_connector *grpc_connector_new(struct loop *loop, const struct net_address *address,
                                          grpc_connector_done_fn *on_done, void *arg);
/* Stops it: on_done is not called, and on_gone(arg) when the memory has been freed. Not to be
 * called after on_done. */
void grpc_connector_cancel(struct grpc_connector *connector, void (*on_gone)(void *arg));

#endif
