/* The nghttp2 session of a connection: its callbacks, options and SETTINGS. Internal to
 * rpc/grpc. */
#ifndef MILLRACE_RPC_GRPC_GRPC_SESSION_H
#define MILLRACE_RPC_GRPC_GRPC_SESSION_H

#include "rpc/grpc/grpc_connection.h"

/* Makes connection->session and submits its first SETTINGS. */
void grpc_session_open(struct grpc_connection *connection);
/* The stream is no longer open: removes it from the connection, tells the role why, and drops the
 * session's reference. */
void grpc_session_detach(struct grpc_stream *stream, struct status *why_take);
/* Moves frames from nghttp2 to connection->out until enough bytes are queued there. Returns false
 * after a fatal error. */
bool grpc_session_pump(struct grpc_connection *connection);
/* Does the peer read? False when more of our frames are queued than its open streams explain. */
bool grpc_session_is_read(const struct grpc_connection *connection);
/* Returns the limit that a fatal error of nghttp2 stands for; REFUSED_NOTHING for other errors. */
enum grpc_refusal grpc_session_refusal_of(int error);
/* Sends GOAWAY with the highest stream id, and a PING after it. Its answer shows that the peer
 * knows, and then the drain is finished. */
void grpc_session_announce_drain(struct grpc_connection *connection);

#endif
