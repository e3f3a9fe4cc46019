/* The last bytes between two processes of which one is about to end. What it has sent over each of
 * its connections counts, although these end one after the other:
 *
 *   the process that ends    wire_conn_unarrived_bytes is 0 for all connections, then it ends
 *   the other process        a connection has ended, so wire_conn_read_rest of the others */
#ifndef MILLRACE_RPC_WIRE_WIRE_LAST_H
#define MILLRACE_RPC_WIRE_WIRE_LAST_H

#include "rpc/wire/wire.h"

/* How much of what was sent has not arrived at the other end's host (TCP), or has not been read by
 * the other end (Unix sockets, and within the process). 0 for a connection that has ended. Loop
 * thread. */
size_t wire_conn_unarrived_bytes(struct wire_conn *conn);
/* Delivers what has arrived and has not been read, at most 16 MiB, which is more than the kernel
 * holds for a socket. May find the end of the connection, and calls on_closed then. Does nothing
 * within the process, where ends and messages of all connections are delivered in the order in
 * which they were sent. Loop thread, from a callback of another connection. */
void wire_conn_read_rest(struct wire_conn *conn);

#endif
