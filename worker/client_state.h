/* Keeps the objects of one client process on this task, which all sessions of the client share. One
 * such object is the service that carries calls of Python functions to the client
 * (kernels/host/calls/py_service.h).
 *
 * The master tells clients apart by their connections, and names each client by a random number
 * (RegisterGraph.client). The state is freed when no session of the client has a graph here and no
 * plan of one runs. Any thread. */
#ifndef MILLRACE_WORKER_CLIENT_STATE_H
#define MILLRACE_WORKER_CLIENT_STATE_H

#include "common/base/status.h"
#include "common/tensor/object.h"

struct client_state;

struct client_state *client_state_new(void); /* the caller holds one reference */
struct client_state *client_state_ref(struct client_state *client);
void client_state_unref(struct client_state *client); /* accepts NULL */

/* Returns the client's object of that type; the caller gets a reference. At first use `make` makes
 * it. `make` may be called under a lock, so it must not use the client state. */
struct object *client_state_object(struct client_state *client, const struct object_type *type,
                                   struct object *(*make)(void));

#endif
