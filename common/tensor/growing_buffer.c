/* Buffers that are filled from the front while they are in use (growing_buffer.h). */
#include "common/tensor/growing_buffer.h"

#include <pthread.h>
#include <stdlib.h>

struct growing_buffer {
    struct buffer buffer;
    struct buffer *memory;
    _Atomic size_t n_filled; /* increases; changed under lock */
    pthread_mutex_t lock;
    struct list waits;                /* guarded by lock */
    bool has_ended;                   /* guarded by lock */
    _Atomic(struct status *) failure; /* set once, under lock */
};

static struct growing_buffer *of(const struct buffer *buffer) {
    return CONTAINER_OF(buffer, struct growing_buffer, buffer);
}

static void growing_free(struct allocator *allocator, struct buffer *buffer) {
    struct growing_buffer *growing = of(buffer);
    CHECK(list_is_empty(&growing->waits)); /* a waiter holds a reference */
    status_unref(atomic_load(&growing->failure));
    pthread_mutex_destroy(&growing->lock);
    buffer_unref(growing->memory);
    free(growing);
}

static struct allocator growing_allocator = {.name = "growing", .free = growing_free};

struct buffer *growing_buffer_over(struct buffer *memory_take, size_t size_bytes) {
    struct growing_buffer *growing = xcalloc(1, sizeof(*growing));
    growing->buffer = (struct buffer){
        .size_bytes = size_bytes, .data = memory_take->data, .allocator = &growing_allocator};
    atomic_init(&growing->buffer.n_refs, 1);
    growing->memory = memory_take;
    pthread_mutex_init(&growing->lock, NULL);
    list_init(&growing->waits);
    return &growing->buffer;
}

struct buffer *growing_buffer_new(struct allocator *allocator, size_t size_bytes) {
    struct buffer *memory = buffer_alloc(allocator, size_bytes);
    return memory ? growing_buffer_over(memory, size_bytes) : NULL;
}

size_t growing_buffer_filled(const struct buffer *buffer) {
    return atomic_load_explicit(&of(buffer)->n_filled, memory_order_acquire);
}

struct status *growing_buffer_failure(const struct buffer *buffer) {
    return atomic_load_explicit(&of(buffer)->failure, memory_order_acquire);
}

bool buffer_is_growing(const struct buffer *buffer) {
    return buffer->allocator == &growing_allocator &&
           growing_buffer_filled(buffer) < buffer->size_bytes;
}

/* Lock held. Moves the waits that end now to `ret`. */
static void take_reached(struct growing_buffer *growing, struct list *ret) {
    size_t n_filled = growing_buffer_filled(&growing->buffer);
    bool has_failed = growing_buffer_failure(&growing->buffer);
    LIST_FOR_EACH_SAFE (link, next, &growing->waits) {
        if (!has_failed && LIST_ENTRY(link, struct growing_wait, link)->n_bytes > n_filled)
            continue;
        list_remove(link);
        list_push_back(ret, link);
    }
}

static void tell(struct list *reached) {
    for (struct list *link; (link = list_pop_front(reached));) {
        struct growing_wait *wait = LIST_ENTRY(link, struct growing_wait, link);
        wait->on_reached(wait);
    }
}

void growing_buffer_advance(struct buffer *buffer, size_t n_bytes) {
    struct growing_buffer *growing = of(buffer);
    struct list reached;
    CHECK(buffer->allocator == &growing_allocator && n_bytes <= buffer->size_bytes);
    list_init(&reached);
    pthread_mutex_lock(&growing->lock);
    if (!growing->has_ended && n_bytes > growing_buffer_filled(buffer)) {
        atomic_store_explicit(&growing->n_filled, n_bytes, memory_order_release);
        take_reached(growing, &reached);
    }
    pthread_mutex_unlock(&growing->lock);
    tell(&reached);
}

void growing_buffer_end(struct buffer *buffer, struct status *failure) {
    struct growing_buffer *growing = of(buffer);
    struct list reached;
    CHECK(buffer->allocator == &growing_allocator);
    list_init(&reached);
    pthread_mutex_lock(&growing->lock);
    CHECK(!growing->has_ended);
    growing->has_ended = true;
    if (failure)
        atomic_store_explicit(&growing->failure, status_ref(failure), memory_order_release);
    else
        atomic_store_explicit(&growing->n_filled, buffer->size_bytes, memory_order_release);
    take_reached(growing, &reached);
    pthread_mutex_unlock(&growing->lock);
    tell(&reached);
}

bool growing_buffer_wait(struct buffer *buffer, struct growing_wait *wait, size_t n_bytes) {
    struct growing_buffer *growing = of(buffer);
    CHECK(buffer->allocator == &growing_allocator && n_bytes <= buffer->size_bytes);
    wait->n_bytes = n_bytes;
    pthread_mutex_lock(&growing->lock);
    bool is_reached =
        growing_buffer_filled(buffer) >= n_bytes || growing_buffer_failure(buffer) != NULL;
    if (!is_reached)
        list_push_back(&growing->waits, &wait->link);
    pthread_mutex_unlock(&growing->lock);
    return is_reached;
}
