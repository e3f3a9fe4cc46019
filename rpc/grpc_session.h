/* The nghttp2 side of a connection: its callbacks, options and SETTINGS. Internal to rpc/grpc*. */
#ifndef MILLRACE_RPC_GRPC_SESSION_H
#define MILLRACE_RPC_GRPC_SESSION_H

#include "rpc/grpc_connection.h"

/* Makes connection->session and submits its first SETTINGS. */
void grpc_session_open(struct grpc_connection *connection, const struct grpc_connection_limits *limits);
/* The stream is no longer open: its link goes, the role learns why, the session's reference goes. */
void grpc_session_detach(struct grpc_stream *stream, struct status *why_take);
/* Moves frames from nghttp2 to connection->out until that is long enough. False after a fatal error. */
bool grpc_session_pump(struct grpc_connection *connection);

#endif
