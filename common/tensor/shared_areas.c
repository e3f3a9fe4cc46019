/* Keeps the list of shared areas, and tells the watcher (shared_areas.h). */
#include "common/tensor/shared_areas.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static struct {
    pthread_mutex_t lock; /* guards the areas */
    struct shared_area *areas;
    size_t n, capacity;
    _Atomic bool is_watched;
    pthread_mutex_t watcher_lock; /* guards what follows */
    pthread_cond_t ended;
    int n_calls; /* of on_release, under way. They may take long, and do not wait for each other. */
    void (*on_release)(const char *data, size_t size_bytes);
} state = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .watcher_lock = PTHREAD_MUTEX_INITIALIZER,
           .ended = PTHREAD_COND_INITIALIZER};

void shared_areas_add(const char *base, size_t size_bytes, bool is_read_only) {
    pthread_mutex_lock(&state.lock);
    if (state.n == state.capacity) {
        state.capacity = state.capacity ? state.capacity * 2 : 4;
        state.areas = xreallocarray(state.areas, state.capacity, sizeof(*state.areas));
    }
    state.areas[state.n++] = (struct shared_area){base, size_bytes, is_read_only};
    pthread_mutex_unlock(&state.lock);
}

void shared_areas_remove(const char *base) {
    struct shared_area found = {NULL, 0, false};
    pthread_mutex_lock(&state.lock);
    for (size_t i = 0; i < state.n && !found.base; i++)
        if (state.areas[i].base == base) {
            found = state.areas[i];
            state.areas[i] = state.areas[--state.n];
        }
    if (state.n == 0) {
        free(state.areas);
        state.areas = NULL;
        state.capacity = 0;
    }
    pthread_mutex_unlock(&state.lock);
    if (found.base)
        shared_areas_release(found.base, found.size_bytes);
}

bool shared_areas_find(const char *data, size_t size_bytes, struct shared_area *ret) {
    bool is_found = false;
    uintptr_t at = (uintptr_t)data;
    pthread_mutex_lock(&state.lock);
    for (size_t i = 0; i < state.n && !is_found; i++) {
        const struct shared_area *area = &state.areas[i];
        uintptr_t base = (uintptr_t)area->base;
        is_found = at >= base && at - base < area->size_bytes &&
                   size_bytes <= area->size_bytes - (at - base);
        if (is_found)
            *ret = *area;
    }
    pthread_mutex_unlock(&state.lock);
    return is_found;
}

bool shared_areas_are_watched(void) {
    return atomic_load_explicit(&state.is_watched, memory_order_acquire);
}

void shared_areas_release(const char *data, size_t size_bytes) {
    if (likely(!shared_areas_are_watched()))
        return;
    pthread_mutex_lock(&state.watcher_lock);
    void (*on_release)(const char *data, size_t size_bytes) = state.on_release;
    state.n_calls += on_release != NULL;
    pthread_mutex_unlock(&state.watcher_lock);
    if (!on_release)
        return;
    on_release(data, size_bytes);
    pthread_mutex_lock(&state.watcher_lock);
    if (--state.n_calls == 0)
        pthread_cond_broadcast(&state.ended);
    pthread_mutex_unlock(&state.watcher_lock);
}

void shared_areas_watch(void (*on_release)(const char *data, size_t size_bytes)) {
    pthread_mutex_lock(&state.watcher_lock);
    state.on_release = on_release;
    atomic_store_explicit(&state.is_watched, on_release != NULL, memory_order_release);
    while (state.n_calls > 0)
        pthread_cond_wait(&state.ended, &state.watcher_lock);
    pthread_mutex_unlock(&state.watcher_lock);
}
