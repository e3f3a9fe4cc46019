/* What a client's process keeps on a task, shared by all of its sessions: today the service that
 * brings calls of its Python functions to it (kernels/host/calls/py_service.h).
 *
 * The master tells clients apart by their connections and names each by a random number
 * (RegisterGraph.client). The state lives as long as a session of the client has a graph here, or
 * a plan of one still runs. Any thread. */
#ifndef MILLRACE_WORKER_CLIENT_STATE_H
#define MILLRACE_WORKER_CLIENT_STATE_H

#include "common/base/status.h"
#include "common/tensor/object.h"

struct client_state;

struct client_state *client_state_new(void); /* one reference */
struct client_state *client_state_ref(struct client_state *client);
void client_state_unref(struct client_state *client); /* accepts NULL */

/* The client's object of that type, with one reference; `make` makes it at first use. */
struct object *client_state_object(struct client_state *client, const struct object_type *type,
                                   struct object *(*make)(void));

#endif
