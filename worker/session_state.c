/* Keeps states of nodes and named values for a session. */
#include "worker/session_state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/map.h"

struct kept {
    const struct kernel_def *def;
    void *state;
};

struct value {
    struct tensor tensor;
    char name[];
};

struct session_state {
    _Atomic uint32_t n_refs;
    pthread_mutex_t lock;
    struct strmap by_state; /* name → struct kept; guarded by lock */
    struct strmap values;   /* name → struct value; guarded by lock */
    struct arena arena;     /* names and entries of by_state; guarded by lock */
};

struct session_state *session_state_new(void) {
    struct session_state *states = xcalloc(1, sizeof(*states));
    atomic_init(&states->n_refs, 1);
    CHECK(pthread_mutex_init(&states->lock, NULL) == 0);
    strmap_init(&states->by_state);
    strmap_init(&states->values);
    arena_init(&states->arena);
    return states;
}

struct session_state *session_state_ref(struct session_state *states) {
    atomic_fetch_add_explicit(&states->n_refs, 1, memory_order_relaxed);
    return states;
}

static void state_free(const struct kernel_def *def, void *state) {
    (def->fini ? def->fini : free)(state);
}

static void value_free(struct value *value) {
    tensor_clear(&value->tensor);
    free(value);
}

void session_state_unref(struct session_state *states) {
    if (!states || atomic_fetch_sub_explicit(&states->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    size_t cursor = 0;
    struct span name;
    void *value;
    while (strmap_next(&states->by_state, &cursor, &name, &value)) {
        struct kept *kept = value;
        state_free(kept->def, kept->state);
    }
    strmap_fini(&states->by_state);
    cursor = 0;
    while (strmap_next(&states->values, &cursor, &name, &value))
        value_free(value);
    strmap_fini(&states->values);
    arena_fini(&states->arena);
    pthread_mutex_destroy(&states->lock);
    free(states);
}

void session_state_share(struct session_state *states, struct kernel_instance *instance) {
    pthread_mutex_lock(&states->lock);
    const char *name = node_state_name(instance->node);
    struct kept *kept = strmap_get(&states->by_state, name);
    if (!kept) {
        kept = arena_new(&states->arena, struct kept);
        *kept = (struct kept){instance->def, instance->state};
        strmap_put(&states->by_state, arena_strdup(&states->arena, name), kept);
        instance->is_state_shared = true;
    } else if (
        kept->def ==
        instance
            /* Only a master that reuses a name makes the rows differ. Then each instance keeps its
             * own state. */
            ->def) {
        state_free(instance->def, instance->state);
        instance->state = kept->state;
        instance->is_state_shared = true;
    }
    pthread_mutex_unlock(&states->lock);
}

void session_state_put_value(struct session_state *states, const char *name,
                             const struct tensor *tensor) {
    size_t len = strlen(name);
    size_t size = (sizeof(struct value) + len + 1 + _Alignof(struct value) - 1) /
                  _Alignof(struct value) * _Alignof(struct value);
    struct value *value = aligned_alloc(_Alignof(struct value), size);
    CHECK(value);
    memcpy(value->name, name, len + 1);
    tensor_copy(&value->tensor, tensor);
    pthread_mutex_lock(&states->lock);
    CHECK(!strmap_get(&states->values, name));
    strmap_put(&states->values, value->name, value);
    pthread_mutex_unlock(&states->lock);
}

static struct status *no_such_value(struct span name) {
    return status_invalid("The tensor with handle '%.*s' is not in the session store.",
                          (int)MIN(name.len, (size_t)300), name.data);
}

struct status *session_state_get_value(struct session_state *states, struct span name,
                                       struct tensor *ret) {
    pthread_mutex_lock(&states->lock);
    struct value *value = strmap_get_span(&states->values, name);
    if (value)
        tensor_copy(ret, &value->tensor);
    pthread_mutex_unlock(&states->lock);
    return value ? NULL : no_such_value(name);
}

struct status *session_state_delete_value(struct session_state *states, struct span name) {
    pthread_mutex_lock(&states->lock);
    struct value *value = strmap_remove_span(&states->values, name);
    pthread_mutex_unlock(&states->lock);
    if (!value)
        return no_such_value(name);
    value_free(value);
    return NULL;
}
