/* A gRPC client on a loop: one HTTP/2 connection to one server, unary calls. The C client and tfctl
 * use it; it works with our master and with TensorFlow's own server. Loop thread only. */
#ifndef MILLRACE_RPC_GRPC_GRPC_CLIENT_H
#define MILLRACE_RPC_GRPC_GRPC_CLIENT_H

#include "rpc/grpc/grpc.h"
#include "rpc/loop.h"

struct grpc_client;
struct grpc_client_call;

/* `target` is "host:port" or "unix:/path". Connects in the background. Calls wait for the
 * connection, at most until their timeouts. When it cannot be made, they fail with UNAVAILABLE
 * at once; with `wait_for_ready` the client tries again until their timeouts. */
struct grpc_client *grpc_client_new(struct loop *loop, const char *target, bool wait_for_ready);
/* Call it right after grpc_client_new: the client speaks TLS (not over a Unix socket), and the
 * server's certificate must carry `name`; NULL means the target's host. */
struct tls;
void grpc_client_secure(struct grpc_client *client, struct tls *tls, const char *name);
/* Ends live calls with CANCELLED, closes the connection and frees the client; then calls
 * on_closed. */
void grpc_client_close(struct grpc_client *client, void (*on_closed)(void *arg), void *arg);

/* Starts a call; it is freed after on_done. timeout_ms < 0: no timeout. The body's contents are
 * moved out. */
struct grpc_client_call *grpc_client_start(struct grpc_client *client, const char *path,
                                           struct grpc_body *body, int64_t timeout_ms,
                                           grpc_align_fn *align, grpc_done_fn *on_done, void *arg);
void grpc_client_cancel(struct grpc_client_call *call); /* on_done follows with CANCELLED */

#endif
