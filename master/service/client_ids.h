/* Which sessions belong to one client process? TensorFlow's client runs all sessions of a process
 * to one target over one connection, so sessions that were created over the same connection have
 * the same client. After a reconnect the first session to call again brings its client's id to the
 * new connection.
 *
 * The worker needs it to find the process whose Python functions a step calls
 * (worker/client_state.h). Loop thread. */
#ifndef MILLRACE_MASTER_SERVICE_CLIENT_IDS_H
#define MILLRACE_MASTER_SERVICE_CLIENT_IDS_H

#include "common/base/map.h"

struct client_ids {
    struct u64map by_connection; /* connection → uint64_t *, the client's id */
};

void client_ids_init(struct client_ids *ids);
void client_ids_fini(struct client_ids *ids);

/* The client of a connection: a new random id, never 0, where none is known. */
uint64_t client_ids_of(struct client_ids *ids, uint64_t connection);
/* A session of the client calls over that connection: it is the client's unless it had another. */
void client_ids_note(struct client_ids *ids, uint64_t connection, uint64_t client);
/* The connection has closed. */
void client_ids_forget(struct client_ids *ids, uint64_t connection);

#endif
