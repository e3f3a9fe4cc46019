/* Keeps a client's objects by their type. */
#include "worker/client_state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/base.h"

enum { MAX_OBJECTS = 4 }; /* how many types of objects kernels ask for */

struct client_state {
    _Atomic uint32_t n_refs;
    pthread_mutex_t lock;
    struct object *objects[MAX_OBJECTS]; /* guarded by lock */
};

struct client_state *client_state_new(void) {
    struct client_state *client = xcalloc(1, sizeof(*client));
    atomic_init(&client->n_refs, 1);
    CHECK(pthread_mutex_init(&client->lock, NULL) == 0);
    return client;
}

struct client_state *client_state_ref(struct client_state *client) {
    atomic_fetch_add_explicit(&client->n_refs, 1, memory_order_relaxed);
    return client;
}

void client_state_unref(struct client_state *client) {
    if (!client || atomic_fetch_sub_explicit(&client->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    for (int i = 0; i < MAX_OBJECTS; i++)
        if (client->objects[i])
            object_unref(client->objects[i]);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

struct object *client_state_object(struct client_state *client, const struct object_type *type,
                                   struct object *(*make)(void)) {
    int i = 0;
    pthread_mutex_lock(&client->lock);
    while (i < MAX_OBJECTS && client->objects[i] && client->objects[i]->type != type)
        i++;
    CHECK(i < MAX_OBJECTS);
    if (!client->objects[i])
        client->objects[i] = make();
    struct object *object = object_ref(client->objects[i]);
    pthread_mutex_unlock(&client->lock);
    return object;
}
