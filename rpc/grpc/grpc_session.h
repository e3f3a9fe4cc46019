/* The nghttp2 side of a connection: its callbacks, options and SETTINGS. Internal to
 * rpc/grpc/grpc*. */
#ifndef MILLRACE_RPC_GRPC_GRPC_SESSION_H
#define MILLRACE_RPC_GRPC_GRPC_SESSION_H

#include "rpc/grpc/grpc_connection.h"

/* Makes connection->session and submits its first SETTINGS. */
void grpc_session_open(struct grpc_connection *connection);
/* The stream is no longer open: its link goes, the role learns why, the session's reference
 * goes. */
void grpc_session_detach(struct grpc_stream *stream, struct status *why_take);
/* Moves frames from nghttp2 to connection->out until that is long enough. False after a fatal
 * error. */
bool grpc_session_pump(struct grpc_connection *connection);
/* False when the peer lets more answers pile up than its open streams explain. */
bool grpc_session_is_read(const struct grpc_connection *connection);
/* The limit behind a fatal error of nghttp2's; REFUSED_NOTHING when it is none. */
enum grpc_refusal grpc_session_refusal_of(int error);
/* GOAWAY with the highest stream id, and a PING behind it whose answer finishes the drain. */
void grpc_session_announce_drain(struct grpc_connection *connection);

#endif
