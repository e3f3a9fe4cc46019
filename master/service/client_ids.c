/* Maps connections to clients: client_ids.h. */
#include "master/service/client_ids.h"

#include <stdlib.h>

#include "common/base/base.h"
#include "common/base/clock.h"

void client_ids_init(struct client_ids *ids) { u64map_init(&ids->by_connection); }

void client_ids_fini(struct client_ids *ids) {
    size_t cursor = 0;
    uint64_t connection;
    void *client;
    while (u64map_next(&ids->by_connection, &cursor, &connection, &client))
        free(client);
    u64map_fini(&ids->by_connection);
}

void client_ids_note(struct client_ids *ids, uint64_t connection, uint64_t client) {
    if (u64map_get(&ids->by_connection, connection))
        return;
    uint64_t *known = xmalloc(sizeof(*known));
    *known = client;
    u64map_put(&ids->by_connection, connection, known);
}

uint64_t client_ids_of(struct client_ids *ids, uint64_t connection) {
    const uint64_t *known = u64map_get(&ids->by_connection, connection);
    if (known)
        return *known;
    uint64_t client = random_u64();
    client_ids_note(ids, connection, client);
    return client;
}

void client_ids_forget(struct client_ids *ids, uint64_t connection) {
    free(u64map_remove(&ids->by_connection, connection));
}
