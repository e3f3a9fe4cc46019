/* Completes and hands out the tuples of barriers (kernels/host/resources/barrier.h). */
#include "kernels/host/resources/barrier.h"

#include <stdlib.h>

/* A tuple with gaps. Its missing components hold nothing. */
struct incomplete {
    struct span key; /* points into the tuple's last component, which keeps it alive */
    struct queue_element *element;
    int n_missing;
};

static void incomplete_drop_all(struct barrier *barrier) {
    size_t cursor = 0;
    struct span key;
    void *value;
    while (strmap_next(&barrier->incomplete, &cursor, &key, &value)) {
        struct incomplete *incomplete = value;
        strmap_remove_span(&barrier->incomplete, key);
        queue_element_free(incomplete->element, barrier->n_components + 1);
        free(incomplete);
    }
}

static void barrier_free(struct object *object) {
    struct barrier *barrier = (struct barrier *)object;
    incomplete_drop_all(barrier);
    strmap_fini(&barrier->incomplete);
    queue_elements_clear(&barrier->ready);
    shapes_free(barrier->shapes, barrier->n_components);
    wait_room_fini(&barrier->room);
    free(barrier->types);
    free(barrier->name);
    free(barrier);
}

const struct object_type barrier_type = {.name = "tensorflow::barrier::Barrier",
                                         .free = barrier_free};

struct barrier *barrier_new(const uint8_t *types, const struct shape *shapes, int n_components,
                            const char *name) {
    struct barrier *barrier = xcalloc(1, sizeof(*barrier));
    object_init(&barrier->object, &barrier_type);
    wait_room_init(&barrier->room, &barrier->object);
    barrier->name = xstrdup(name);
    barrier->types = xcalloc((size_t)n_components + 1, 1);
    memcpy(barrier->types, types, (size_t)n_components);
    barrier->shapes = xcalloc((size_t)n_components + 1, sizeof(*barrier->shapes));
    for (int i = 0; i < n_components; i++)
        barrier->shapes[i] = shape_keep(shapes[i]);
    barrier->n_components = n_components;
    strmap_init(&barrier->incomplete);
    queue_elements_init(&barrier->ready, QUEUE_PRIORITY, n_components + 1, 0, 0);
    barrier->next_index = INT64_MIN;
    return barrier;
}

void barrier_empty(struct object *object) {
    struct barrier *barrier = (struct barrier *)object;
    wait_room_lock(&barrier->room);
    incomplete_drop_all(barrier);
    queue_elements_clear(&barrier->ready);
    wait_room_unlock(&barrier->room);
}

/* ---- insert ---- */

static int64_t n_incomplete(const struct barrier *barrier) {
    return (int64_t)barrier->incomplete.n_entries;
}

static COLD struct status *closed(const struct barrier *barrier, int64_t n_keys) {
    return status_new(STATUS_CANCELLED,
                      "Barrier %s is closed.  Pending enqueues cancelled: %d.  Number of new "
                      "insertions: %lld.  Number of incomplete "
                      "keys: %lld.",
                      barrier->name, barrier->is_cancelled, (long long)n_keys,
                      (long long)n_incomplete(barrier));
}

static COLD struct status *new_key(const struct barrier *barrier, struct span key, int64_t at) {
    return status_new(STATUS_CANCELLED,
                      "Barrier %s is closed, but attempted to insert a brand new key: %.*s.  "
                      "Pending enqueues cancelled: %d.  Insertion "
                      "index: %lld.  Number of incomplete keys: %lld.",
                      barrier->name, (int)MIN(key.len, (size_t)256), key.data,
                      barrier->is_cancelled, (long long)at, (long long)n_incomplete(barrier));
}

static struct incomplete *incomplete_new(struct barrier *barrier, const struct tensor *keys,
                                         int64_t at) {
    struct incomplete *incomplete = xcalloc(1, sizeof(*incomplete));
    struct queue_element *element = queue_element_new(barrier->n_components + 1);
    struct object *key = ((struct object *const *)tensor_cdata(keys))[at];
    tensor_init_scalar_object(&element->components[barrier->n_components], DT_STRING,
                              object_ref(key));
    element->priority = barrier->next_index;
    incomplete->element = element;
    incomplete->n_missing = barrier->n_components;
    incomplete->key = tensor_string(&element->components[barrier->n_components], 0);
    strmap_put_span(&barrier->incomplete, incomplete->key, incomplete);
    return incomplete;
}

/* The caller holds the lock. *value is taken on success. */
static struct status *insert_one(struct barrier *barrier, int component, const struct tensor *keys,
                                 int64_t at, struct tensor *value, bool *has_new) {
    struct span key = tensor_string(keys, at);
    struct incomplete *incomplete = strmap_get_span(&barrier->incomplete, key);
    if (!incomplete && barrier->is_closed)
        return new_key(barrier, key, at);
    if (!incomplete) {
        incomplete = incomplete_new(barrier, keys, at);
        *has_new = true;
    }
    if (incomplete->element->components[component].storage != TENSOR_NONE)
        return status_invalid("Key %.*s already has a value for component %d in barrier %s",
                              (int)MIN(key.len, (size_t)256), key.data, component, barrier->name);
    tensor_move(&incomplete->element->components[component], value);
    if (--incomplete->n_missing == 0) {
        strmap_remove_span(&barrier->incomplete, incomplete->key);
        queue_elements_put(&barrier->ready, incomplete->element);
        free(incomplete);
    }
    return NULL;
}

static struct status *value_at(struct allocator *allocator, const struct tensor *values, int64_t i,
                               struct tensor *ret) {
    return values->rank == 0 ? tensor_clone(allocator, values, ret)
                             : queue_row(allocator, values, i, ret);
}

static struct status *insert_all(struct barrier *barrier, struct allocator *allocator,
                                 int component, const struct tensor *keys,
                                 const struct tensor *values, bool *has_new) {
    for (int64_t i = 0; i < keys->n_elements; i++) {
        struct tensor value = TENSOR_INIT;
        TRY(value_at(allocator, values, i, &value));
        struct status *st = insert_one(barrier, component, keys, i, &value, has_new);
        tensor_clear(&value);
        TRY(st);
    }
    return NULL;
}

struct status *barrier_insert(struct barrier *barrier, struct allocator *allocator, int component,
                              const struct tensor *keys, const struct tensor *values) {
    bool has_new = false;
    struct status *st = NULL;
    wait_room_lock(&barrier->room);
    if (barrier->is_closed &&
        (barrier->is_cancelled || (keys->n_elements > 0 && n_incomplete(barrier) == 0)))
        st = closed(barrier, keys->n_elements);
    else if (barrier->next_index == INT64_MAX)
        st = status_exhausted(
            "Barrier has had %lld insertions and can no longer keep track of new ones.",
            (long long)INT64_MAX);
    else
        st = insert_all(barrier, allocator, component, keys, values, &has_new);
    barrier->next_index += has_new;
    wait_room_unlock(&barrier->room);
    return st;
}

/* ---- take ---- */

struct take {
    struct wait wait;
    struct barrier *barrier; /* the wait holds a reference */
    int64_t n;
    bool is_small_allowed, has_entered;
    struct queue_element **taken;
    int64_t n_taken;
};

static enum wait_result take_fails(struct take *take, int64_t n_total) {
    take->wait.status = status_out_of_range(
        "Barrier '%s' is closed and has insufficient elements (requested %lld, total size %lld)",
        take->barrier->name, (long long)take->n, (long long)n_total);
    return WAIT_ENDED;
}

/* Called once a take sees the closed barrier. Can it still get anything? */
static bool take_enters(struct take *take) {
    struct barrier *barrier = take->barrier;
    int64_t n_total = barrier->ready.n;
    if (take->has_entered || !barrier->is_closed)
        return take->has_entered = true;
    take->has_entered = true;
    if (take->is_small_allowed)
        take->n = MIN(take->n, n_total);
    else
        n_total += n_incomplete(barrier);
    if (n_total >= MAX(take->n, (int64_t)1))
        return true;
    take_fails(take, n_total);
    return false;
}

static enum wait_result take_attempt(struct wait *wait) {
    struct take *take = CONTAINER_OF(wait, struct take, wait);
    struct barrier *barrier = take->barrier;
    if (!take_enters(take))
        return WAIT_ENDED;
    bool is_through = barrier->is_closed && n_incomplete(barrier) == 0;
    if (barrier->ready.n < take->n && is_through) {
        if (!take->is_small_allowed || barrier->ready.n == 0)
            return take_fails(take, barrier->ready.n);
        take->n = barrier->ready.n;
    }
    if (barrier->ready.n < take->n)
        return WAIT_STUCK;
    take->taken = xcalloc((size_t)take->n + 1, sizeof(struct queue_element *));
    while (take->n_taken < take->n)
        take->taken[take->n_taken++] = queue_elements_take(&barrier->ready);
    return WAIT_ENDED;
}

static struct status *take_finish(struct wait *wait) {
    struct take *take = CONTAINER_OF(wait, struct take, wait);
    const struct barrier *barrier = take->barrier;
    struct kernel_ctx *ctx = wait->ctx;
    struct allocator *allocator = ctx->instance->allocator;
    struct shape shape = {1, &take->n_taken};
    TRY(tensor_new(allocator, DT_INT64, shape, &ctx->outputs[0]));
    for (int64_t i = 0; i < take->n_taken; i++)
        ((int64_t *)tensor_data(&ctx->outputs[0]))[i] = take->taken[i]->priority;
    TRY(queue_batch(allocator, DT_STRING, SHAPE_SCALAR, false, barrier->n_components, take->taken,
                    take->n_taken, &ctx->outputs[1]));
    for (int i = 0; i < barrier->n_components; i++)
        TRY(queue_batch(allocator, (enum dtype)barrier->types[i], barrier->shapes[i], false, i,
                        take->taken, take->n_taken, &ctx->outputs[2 + i]));
    return NULL;
}

static int64_t take_weight(const struct wait *wait) {
    const struct take *take = CONTAINER_OF(wait, struct take, wait);
    return queue_batch_bytes(take->taken, take->n_taken, take->barrier->n_components + 1);
}

static void take_free(struct wait *wait) {
    struct take *take = CONTAINER_OF(wait, struct take, wait);
    for (int64_t i = 0; i < take->n_taken; i++)
        queue_element_free(take->taken[i], take->barrier->n_components + 1);
    free(take->taken);
    free(take);
}

static const struct wait_kind take_kind = {.cancelled = "Dequeue operation was cancelled",
                                           .attempt = take_attempt,
                                           .finish = take_finish,
                                           .weight = take_weight,
                                           .free = take_free};

enum kernel_result barrier_take(struct barrier *barrier, struct kernel_ctx *ctx, int64_t n,
                                bool is_small_allowed) {
    struct take *take = xcalloc(1, sizeof(*take));
    take->wait.kind = &take_kind;
    take->barrier = barrier;
    take->n = n;
    take->is_small_allowed = is_small_allowed;
    return wait_room_enter(&barrier->room, QUEUE_LINE_OUT, ctx, &take->wait);
}

/* ---- closing, inspection ---- */

struct status *barrier_close(struct barrier *barrier, bool cancels) {
    struct status *st = NULL;
    wait_room_lock(&barrier->room);
    if (barrier->is_closed && (barrier->is_cancelled || !cancels)) {
        st = status_new(STATUS_CANCELLED, "Barrier '%s' is already closed.", barrier->name);
    } else {
        barrier->is_closed = true;
        barrier->is_cancelled = cancels;
        if (cancels)
            incomplete_drop_all(barrier);
    }
    wait_room_unlock(&barrier->room);
    return st;
}

int64_t barrier_ready_size(struct barrier *barrier) {
    wait_room_lock(&barrier->room);
    int64_t n = barrier->ready.n;
    pthread_mutex_unlock(&barrier->room.lock);
    return n;
}

int64_t barrier_incomplete_size(struct barrier *barrier) {
    wait_room_lock(&barrier->room);
    int64_t n = n_incomplete(barrier);
    pthread_mutex_unlock(&barrier->room.lock);
    return n;
}
