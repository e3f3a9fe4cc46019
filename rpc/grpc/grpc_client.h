/* A gRPC client on a loop: one HTTP/2 connection to one server, unary calls. For the thin C
 * client and tfctl; speaks to our master and to TensorFlow's own server alike. Loop thread only. */
#ifndef MILLRACE_RPC_GRPC_GRPC_CLIENT_H
#define MILLRACE_RPC_GRPC_GRPC_CLIENT_H

#include "rpc/grpc/grpc.h"
#include "rpc/loop.h"

struct grpc_client;
struct grpc_client_call;

/* Takes the status (NULL: success) and, on success, the message's buffer reference. Called
 * exactly once. */
typedef void grpc_client_done_fn(void *arg, struct status *status_take,
                                 struct grpc_message message_take);

/* `target`: "host:port" or "unix:/path". Connects in the background; calls made meanwhile wait
 * for it and fail with UNAVAILABLE when it cannot be had (each call's timeout bounds the wait;
 * refused connections fail at once unless wait_for_ready). */
struct grpc_client *grpc_client_new(struct loop *loop, const char *target, bool wait_for_ready);
/* Right after: it speaks TLS (not over a Unix socket), with a server whose certificate carries
 * `name`; NULL: the target's host. */
struct tls;
void grpc_client_secure(struct grpc_client *client, struct tls *tls, const char *name);
/* ends live calls with CANCELLED */
void grpc_client_close(struct grpc_client *client, void (*on_closed)(void *arg), void *arg);

/* timeout_ms < 0: none. The body's contents are moved out. */
struct grpc_client_call *grpc_client_start(struct grpc_client *client, const char *path,
                                           struct grpc_body *body, int64_t timeout_ms,
                                           grpc_align_fn *align, grpc_client_done_fn *on_done,
                                           void *arg);
void grpc_client_cancel(struct grpc_client_call *call); /* on_done follows with CANCELLED */

#endif
