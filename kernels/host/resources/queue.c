/* Runs enqueues, dequeues and closes on queues (kernels/host/resources/queue.h). */
#include "kernels/host/resources/queue.h"

#include <stdlib.h>

#include "common/base/clock.h"

/* ---- lifetime ---- */

void queue_options_fini(struct queue_options *options) {
    free(options->types);
    shapes_free(options->shapes, options->n_shapes);
    *options = (struct queue_options){0};
}

static void queue_free(struct object *object) {
    struct queue *queue = (struct queue *)object;
    queue_elements_clear(&queue->elements);
    queue_options_fini(&queue->options);
    wait_room_fini(&queue->room);
    free(queue->name);
    free(queue);
}

const struct object_type queue_type = {.name = "tensorflow::QueueInterface", .free = queue_free};

static struct queue_options options_copy(const struct queue_options *from) {
    struct queue_options to = *from;
    to.types = xcalloc((size_t)from->n_components + 1, 1);
    memcpy(to.types, from->types, (size_t)from->n_components);
    to.shapes = xcalloc((size_t)from->n_shapes + 1, sizeof(*to.shapes));
    for (int i = 0; i < from->n_shapes; i++)
        to.shapes[i] = shape_keep(from->shapes[i]);
    return to;
}

struct queue *queue_new(const struct queue_options *options, const char *name) {
    struct queue *queue = xcalloc(1, sizeof(*queue));
    uint64_t seed = (uint64_t)options->seed, seed2 = (uint64_t)options->seed2;
    object_init(&queue->object, &queue_type);
    wait_room_init(&queue->room, &queue->object);
    queue->name = xstrdup(name);
    queue->options = options_copy(options);
    if (options->order == QUEUE_RANDOM && seed == 0 && seed2 == 0) {
        seed = random_u64();
        seed2 = random_u64();
    }
    queue_elements_init(&queue->elements, options->order, options->n_components, seed, seed2);
    return queue;
}

void queue_empty(struct object *object) {
    struct queue *queue = (struct queue *)object;
    wait_room_lock(&queue->room);
    queue_elements_clear(&queue->elements);
    wait_room_unlock(&queue->room);
}

/* ---- sharing ---- */

static COLD struct status *types_differ(const struct queue *queue,
                                        const struct queue_options *wanted) {
    struct str have = STR_INIT, want = STR_INIT;
    types_print(queue->options.types, queue->options.n_components, &have);
    types_print(wanted->types, wanted->n_components, &want);
    struct status *st = status_invalid(
        "Shared queue '%s' has component types %s but requested component types were %s",
        queue->name, str_text(&have), str_text(&want));
    str_fini(&have);
    str_fini(&want);
    return st;
}

static COLD struct status *shapes_differ(const struct queue *queue,
                                         const struct queue_options *wanted) {
    struct str have = STR_INIT, want = STR_INIT;
    shapes_print(queue->options.shapes, queue->options.n_shapes, &have);
    shapes_print(wanted->shapes, wanted->n_shapes, &want);
    struct status *st = status_invalid(
        "Shared queue '%s' has component shapes %s but requested component shapes were %s",
        queue->name, str_text(&have), str_text(&want));
    str_fini(&have);
    str_fini(&want);
    return st;
}

/* Partial shapes agree when one full shape could fit both. */
static bool shapes_agree(const struct queue_options *a, const struct queue_options *b) {
    if (a->n_shapes != b->n_shapes)
        return false;
    for (int i = 0; i < a->n_shapes; i++)
        if (!shape_is_compatible(a->shapes[i], b->shapes[i]))
            return false;
    return true;
}

struct status *queue_check_shared(const struct queue *queue, const struct queue_options *wanted) {
    const struct queue_options *have = &queue->options;
    if (have->order != wanted->order)
        return status_invalid("Shared queue '%s': Expected %s, found %s", queue->name, have->op,
                              wanted->op);
    if (have->capacity != wanted->capacity)
        return status_invalid("Shared queue '%s' has capacity %lld but requested capacity was %lld",
                              queue->name, (long long)have->capacity, (long long)wanted->capacity);
    if (have->min_after_dequeue != wanted->min_after_dequeue)
        return status_invalid("Shared queue '%s' has min_after_dequeue %lld but requested "
                              "min_after_dequeue was %lld.",
                              queue->name, (long long)have->min_after_dequeue,
                              (long long)wanted->min_after_dequeue);
    if ((wanted->seed != 0 || wanted->seed2 != 0) &&
        (have->seed != wanted->seed || have->seed2 != wanted->seed2))
        return status_invalid(
            "Shared queue '%s' has random seeds (%lld, %lld) but requested seeds are (%lld, %lld).",
            queue->name, (long long)have->seed, (long long)have->seed2, (long long)wanted->seed,
            (long long)wanted->seed2);
    if (have->n_components != wanted->n_components ||
        memcmp(have->types, wanted->types, (size_t)have->n_components) != 0)
        return types_differ(queue, wanted);
    return shapes_agree(have, wanted) ? NULL : shapes_differ(queue, wanted);
}

/* ---- texts for messages ---- */

/* What messages call the kind of queue. A padding queue is called one of first in, first out. */
static const char *kind_words(const struct queue *queue) {
    static const char *const words[] = {"FIFOQueue", "FIFOQueue", "RandomShuffleQueue",
                                        "PriorityQueue"};
    return words[queue->options.order];
}

static COLD struct status *closed(const struct queue *queue) {
    return status_new(STATUS_CANCELLED, "%s '%s' is closed.", kind_words(queue), queue->name);
}

static COLD struct status *insufficient(const struct queue *queue, int64_t requested) {
    return status_out_of_range(
        "%s '%s' is closed and has insufficient elements (requested %lld, current size %lld)",
        kind_words(queue), queue->name, (long long)requested, (long long)queue->elements.n);
}

/* ---- enqueue ---- */

struct enqueue {
    struct wait wait;
    struct queue *queue; /* the wait holds a reference */
    struct queue_element **elements;
    int64_t n, n_done;
};

static enum wait_result enqueue_attempt(struct wait *wait) {
    struct enqueue *enqueue = CONTAINER_OF(wait, struct enqueue, wait);
    struct queue *queue = enqueue->queue;
    int64_t before = enqueue->n_done;
    if (queue->is_closed) {
        wait->status = closed(queue);
        return WAIT_ENDED;
    }
    while (enqueue->n_done < enqueue->n && queue->elements.n < queue->options.capacity)
        queue_elements_put(&queue->elements, enqueue->elements[enqueue->n_done++]);
    if (enqueue->n_done == enqueue->n)
        return WAIT_ENDED;
    return enqueue->n_done > before ? WAIT_ADVANCED : WAIT_STUCK;
}

static void enqueue_free(struct wait *wait) {
    struct enqueue *enqueue = CONTAINER_OF(wait, struct enqueue, wait);
    for (int64_t i = enqueue->n_done; i < enqueue->n; i++)
        queue_element_free(enqueue->elements[i], enqueue->queue->options.n_components);
    free(enqueue->elements);
    free(enqueue);
}

static const struct wait_kind enqueue_kind = {.cancelled = "Enqueue operation was cancelled",
                                              .attempt = enqueue_attempt,
                                              .free = enqueue_free};

enum kernel_result queue_enqueue(struct queue *queue, struct kernel_ctx *ctx,
                                 struct queue_element **elements, int64_t n) {
    struct enqueue *enqueue = xcalloc(1, sizeof(*enqueue));
    enqueue->wait.kind = &enqueue_kind;
    enqueue->queue = queue;
    enqueue->elements = elements;
    enqueue->n = n;
    return wait_room_enter(&queue->room, QUEUE_LINE_IN, ctx, &enqueue->wait);
}

/* ---- dequeue ---- */

struct dequeue {
    struct wait wait;
    struct queue *queue; /* the wait holds a reference */
    struct queue_request request;
    struct queue_element **taken;
    int64_t n_taken, capacity;
};

static void dequeue_give_back(struct wait *wait) {
    struct dequeue *dequeue = CONTAINER_OF(wait, struct dequeue, wait);
    while (dequeue->n_taken > 0)
        queue_elements_put_back(&dequeue->queue->elements, dequeue->taken[--dequeue->n_taken]);
}

static void dequeue_take(struct dequeue *dequeue) {
    if (dequeue->n_taken == dequeue->capacity) {
        dequeue->capacity = MIN(MAX(2 * dequeue->capacity, (int64_t)4), dequeue->request.n);
        dequeue->taken = xreallocarray(dequeue->taken, (size_t)dequeue->capacity,
                                       sizeof(struct queue_element *));
    }
    dequeue->taken[dequeue->n_taken++] = queue_elements_take(&dequeue->queue->elements);
}

/* The queue is closed and has too few elements: takes the rest if the op allows that, or fails. */
static enum wait_result dequeue_from_closed(struct dequeue *dequeue) {
    struct queue *queue = dequeue->queue;
    dequeue_give_back(&dequeue->wait);
    if (!dequeue->request.is_small_allowed || queue->elements.n == 0) {
        dequeue->wait.status = insufficient(queue, dequeue->request.n);
        return WAIT_ENDED;
    }
    dequeue->request.n = queue->elements.n;
    while (dequeue->n_taken < dequeue->request.n)
        dequeue_take(dequeue);
    return WAIT_ENDED;
}

static enum wait_result dequeue_attempt(struct wait *wait) {
    struct dequeue *dequeue = CONTAINER_OF(wait, struct dequeue, wait);
    struct queue *queue = dequeue->queue;
    int64_t before = dequeue->n_taken,
            kept = queue->is_closed ? 0 : queue->options.min_after_dequeue;
    if (queue->is_closed && queue->elements.n < dequeue->request.n - dequeue->n_taken)
        return dequeue_from_closed(dequeue);
    while (dequeue->n_taken < dequeue->request.n && queue->elements.n > kept)
        dequeue_take(dequeue);
    if (dequeue->n_taken == dequeue->request.n)
        return WAIT_ENDED;
    return dequeue->n_taken > before ? WAIT_ADVANCED : WAIT_STUCK;
}

static struct status *dequeue_finish(struct wait *wait) {
    struct dequeue *dequeue = CONTAINER_OF(wait, struct dequeue, wait);
    const struct queue_options *options = &dequeue->queue->options;
    struct kernel_ctx *ctx = wait->ctx;
    bool is_padded = options->order == QUEUE_PADDING_FIFO;
    for (int i = 0; i < options->n_components; i++) {
        if (dequeue->request.is_batch)
            TRY(queue_batch(ctx->instance->allocator, (enum dtype)options->types[i],
                            options->shapes[i], is_padded, i, dequeue->taken, dequeue->n_taken,
                            &ctx->outputs[i]));
        else
            tensor_move(&ctx->outputs[i], &dequeue->taken[0]->components[i]);
    }
    return NULL;
}

static int64_t dequeue_bytes(const struct wait *wait) {
    const struct dequeue *dequeue = CONTAINER_OF(wait, struct dequeue, wait);
    return dequeue->request.is_batch ? queue_batch_bytes(dequeue->taken, dequeue->n_taken,
                                                         dequeue->queue->options.n_components)
                                     : 0;
}

static void dequeue_free(struct wait *wait) {
    struct dequeue *dequeue = CONTAINER_OF(wait, struct dequeue, wait);
    for (int64_t i = 0; i < dequeue->n_taken; i++)
        queue_element_free(dequeue->taken[i], dequeue->queue->options.n_components);
    free(dequeue->taken);
    free(dequeue);
}

static const struct wait_kind dequeue_kind = {.cancelled = "Dequeue operation was cancelled",
                                              .attempt = dequeue_attempt,
                                              .give_back = dequeue_give_back,
                                              .finish = dequeue_finish,
                                              .weight = dequeue_bytes,
                                              .free = dequeue_free};

enum kernel_result queue_dequeue(struct queue *queue, struct kernel_ctx *ctx,
                                 struct queue_request request) {
    struct dequeue *dequeue = xcalloc(1, sizeof(*dequeue));
    dequeue->wait.kind = &dequeue_kind;
    dequeue->queue = queue;
    dequeue->request = request;
    /* succeeds even when the queue is closed */
    if (request.is_batch && request.n == 0) {
        struct status *st = NULL;
        dequeue->wait.ctx = ctx;
        st = dequeue_finish(&dequeue->wait);
        dequeue_free(&dequeue->wait);
        KERNEL_TRY(ctx, st);
        return KERNEL_DONE;
    }
    return wait_room_enter(&queue->room, QUEUE_LINE_OUT, ctx, &dequeue->wait);
}

/* ---- close ---- */

struct close {
    struct wait wait;
    struct queue *queue; /* the wait holds a reference */
};

static enum wait_result close_attempt(struct wait *wait) {
    struct queue *queue = CONTAINER_OF(wait, struct close, wait)->queue;
    if (queue->is_closed)
        wait->status = status_new(STATUS_CANCELLED, "Queue '%s' is already closed.", queue->name);
    queue->is_closed = true;
    return WAIT_ENDED;
}

static const struct wait_kind close_kind = {.cancelled = "Close operation was cancelled",
                                            .attempt = close_attempt};

enum kernel_result queue_close(struct queue *queue, struct kernel_ctx *ctx, bool cancels_enqueues) {
    if (cancels_enqueues) {
        struct status *why = status_new(STATUS_CANCELLED, "%s", enqueue_kind.cancelled);
        wait_room_lock(&queue->room);
        queue->is_closed = true;
        wait_room_fail_line(&queue->room, QUEUE_LINE_IN, why);
        wait_room_unlock(&queue->room);
        status_unref(why);
        return KERNEL_DONE;
    }
    struct close *wait = xcalloc(1, sizeof(*wait));
    wait->wait.kind = &close_kind;
    wait->queue = queue;
    return wait_room_enter(&queue->room, QUEUE_LINE_IN, ctx, &wait->wait);
}

/* ---- inspection ---- */

int64_t queue_size(struct queue *queue) {
    wait_room_lock(&queue->room);
    int64_t n = queue->elements.n;
    pthread_mutex_unlock(&queue->room.lock);
    return n;
}

bool queue_is_closed(struct queue *queue) {
    wait_room_lock(&queue->room);
    bool is = queue->is_closed;
    pthread_mutex_unlock(&queue->room.lock);
    return is;
}
