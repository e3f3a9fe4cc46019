/* A worker's port for the master's clients. Programs dial a worker (grpc://worker0:2222), as with
 * TensorFlow's clusters, and the port relays their bytes to the master and back. First it sends a
 * header of the PROXY protocol, version 2, which tells the master who the client is and, in a field
 * for private use, through which task it came (rpc/grpc/grpc_preface.h). That task is the default
 * of the client's session.
 *
 * The port does not parse HTTP/2. While the master does not accept, a connection waits for it,
 * at most CLIENT_PORT_WAIT_MS. What one side does not take is not read from the other. Loop
 * thread only. */
#ifndef MILLRACE_RPC_RELAY_CLIENT_PORT_H
#define MILLRACE_RPC_RELAY_CLIENT_PORT_H

#include "rpc/membership/etcd.h"
#include "rpc/loop.h"

enum { CLIENT_PORT_WAIT_MS = 10000, CLIENT_PORT_MAX_CONNECTIONS = 10000 };

struct client_port;

struct client_port_options {
    const char *listen;     /* "0.0.0.0:2222" */
    const char *task;       /* "/job:worker/replica:0/task:0" */
    const char *master;     /* the master's address; NULL: etcd is asked for each connection */
    struct etcd *etcd;      /* needed without `master` */
    const char *master_key; /* the master's key in etcd */
};

/* Copies the strings; `etcd` must outlive the port. Errors: as listener_new. */
struct status *client_port_new(struct loop *loop, const struct client_port_options *options,
                               struct client_port **ret) MUST_USE;
int client_port_number(const struct client_port *port); /* the bound port */
/* Stops accepting and ends all connections at once. The loop frees the memory later.
 * Accepts NULL. */
void client_port_close(struct client_port *port);
/* Appends a JSON object: port, connections, master. */
void client_port_describe(const struct client_port *port, struct str *out);

#endif
