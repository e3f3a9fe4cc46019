/* A port where clients of the cluster's master are taken on: programs dial a worker
 * (grpc://worker0:2222), as TensorFlow's clusters have it, and their bytes go to the master and
 * back. Before them goes a header of the PROXY protocol, version 2, that tells the master who
 * the client is and, in a field for private use, through which task it came
 * (rpc/grpc/grpc_preface.h): that task is its session's default.
 *
 * HTTP/2 is not looked into. A connection that the master does not take yet waits for it, up to
 * CLIENT_PORT_WAIT_MS. What one side does not take is not read from the other. Loop thread only. */
#ifndef MILLRACE_RPC_RELAY_CLIENT_PORT_H
#define MILLRACE_RPC_RELAY_CLIENT_PORT_H

#include "rpc/membership/etcd.h"
#include "rpc/loop.h"

enum { CLIENT_PORT_WAIT_MS = 10000, CLIENT_PORT_MAX_CONNECTIONS = 10000 };

struct client_port;

struct client_port_options {
    const char *listen; /* "0.0.0.0:2222" */
    const char *task;   /* "/job:worker/replica:0/task:0" */
    const char *master; /* its address; NULL: it is looked up, for each connection, at */
    struct etcd *etcd;
    const char *master_key;
};

/* Strings are copied. Errors: as listener_new. */
struct status *client_port_new(struct loop *loop, const struct client_port_options *options,
                               struct client_port **ret) MUST_USE;
int client_port_number(const struct client_port *port);
/* Stops accepting; what is under way ends at once. The memory goes with the loop's next turns.
 * Accepts NULL. */
void client_port_close(struct client_port *port);
void client_port_describe(const struct client_port *port, struct str *out); /* a JSON object */

#endif
