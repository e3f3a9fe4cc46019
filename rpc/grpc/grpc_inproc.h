/* Calls a server of the same process without a connection (gRPC's in-process transport): for a
 * local session, whose master is in the client's process. The server's user cannot tell such a call
 * from another, but for its connection id, 0. Loop thread only, the server's. */
#ifndef MILLRACE_RPC_GRPC_GRPC_INPROC_H
#define MILLRACE_RPC_GRPC_GRPC_INPROC_H

#include "rpc/grpc/grpc_server.h"

struct grpc_inproc;

/* Starts a call; the result is valid until on_done. timeout_ms < 0: no timeout. The body's contents
 * are moved out. `align` says where the reply's first large tensor begins. Errors, by on_done: as
 * for a call over a connection. */
struct grpc_inproc *grpc_inproc_start(struct grpc_server *server, const char *path,
                                      struct grpc_body *body, int64_t timeout_ms,
                                      grpc_align_fn *align, grpc_done_fn *on_done, void *arg);
void grpc_inproc_cancel(struct grpc_inproc *call); /* on_done follows with CANCELLED */

/* ---- for rpc/grpc ---- */

/* The server's call has an answer, a body or else a status; a later one is dropped. */
void grpc_inproc_answer(struct grpc_inproc *inproc, struct status *status_take,
                        const struct grpc_body *body);
/* The server's call is not used any more. */
void grpc_inproc_forget(struct grpc_inproc *inproc);
/* Ends all calls of a server that closes. */
void grpc_inproc_close_all(struct grpc_server *server);

#endif
