/* A queue of tuples of tensors, a resource [WP 4.6, OSDI 3.1]: producers and consumers, which
 * may be steps of different sessions, wait for each other in its wait room.
 *
 *   enqueues, closes ──► line 0 ──► elements (in one of four orders, at most `capacity`) ──► line 1 ◄── dequeues
 *
 * An enqueue of many puts in what fits and waits with the rest. A dequeue of many takes what is
 * there and waits for more, so that a batch may be larger than the capacity; when it ends
 * without success it puts back what it took, in its place, even where that is more than fits. A
 * close stands in line 0 with the enqueues: those before it go through, those after it fail. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_QUEUE_H
#define MILLRACE_KERNELS_HOST_RESOURCES_QUEUE_H

#include "kernels/support/named_resource.h"
#include "kernels/support/philox_words.h"
#include "kernels/support/wait_room.h"

enum queue_order {
    QUEUE_FIFO,
    QUEUE_PADDING_FIFO, /* first in, first out; elements' shapes may differ, batches are padded */
    QUEUE_RANDOM,       /* any of those that are there */
    QUEUE_PRIORITY,     /* the smallest first component first; first in, first out among equals */
};

enum { QUEUE_UNBOUNDED = INT32_MAX };

/* ---- elements and their order: no lock, no waiting (queue_elements.c) ---- */

struct queue_element {
    int64_t priority;
    uint64_t number; /* of its arrival */
    struct tensor components[];
};

struct queue_elements {
    enum queue_order order;
    int n_components;
    struct queue_element **items; /* a ring from `head`; a heap at 0 for QUEUE_PRIORITY */
    int64_t head, n, capacity;
    uint64_t next_number;
    struct philox_words random;
};

struct queue_element *queue_element_new(int n_components); /* components hold nothing */
void queue_element_free(struct queue_element *element, int n_components);

void queue_elements_init(struct queue_elements *elements, enum queue_order order, int n_components,
                         uint64_t seed, uint64_t seed2);
void queue_elements_clear(struct queue_elements *elements); /* drops all, and the memory */
void queue_elements_put(struct queue_elements *elements, struct queue_element *element_take);
/* Back where it was taken from: who gives back several starts with the last one taken. */
void queue_elements_put_back(struct queue_elements *elements, struct queue_element *element_take);
struct queue_element *queue_elements_take(struct queue_elements *elements); /* there is one */

/* Output `output` = component `component` of n elements, one after the other under a new first
 * dimension; `shape` is what is known of each one's shape. With is_padded they may differ, and
 * the batch has the largest size of each dimension: zeros or empty strings beyond an element's
 * own; else all have `shape`. Errors: RESOURCE_EXHAUSTED, INVALID_ARGUMENT for a size beyond
 * int64. */
struct status *queue_batch(struct allocator *allocator, enum dtype dtype, struct shape shape,
                           bool is_padded, int component, struct queue_element *const *elements,
                           int64_t n, struct tensor *ret) MUST_USE;
/* About how many bytes the batches of all components take. */
int64_t queue_batch_bytes(struct queue_element *const *elements, int64_t n, int n_components);
/* A copy of row i of a tensor of rank >= 1. */
struct status *queue_row(struct allocator *allocator, const struct tensor *rows, int64_t i,
                         struct tensor *ret) MUST_USE;

/* ---- queues (queue.c) ---- */

struct queue_options {
    enum queue_order order;
    const char *op; /* as the node calls it, for messages: "FIFOQueue" */
    uint8_t *types;
    struct shape *shapes;
    int n_components, n_shapes; /* n_shapes: n_components, or 0 when nothing is known */
    int64_t capacity, min_after_dequeue;
    int64_t seed, seed2;
};
void queue_options_fini(struct queue_options *options);

struct queue {
    struct object object;
    struct wait_room room;
    char *name;
    struct queue_options options; /* owned; constant */
    /* guarded by room.lock */
    struct queue_elements elements;
    bool is_closed;
};
extern const struct object_type queue_type;

enum { QUEUE_LINE_IN, QUEUE_LINE_OUT };

/* Copies the options. */
struct queue *queue_new(const struct queue_options *options, const char *name);
void queue_empty(struct object *queue); /* drops all elements */
/* A node that declares `wanted` may share this queue. Errors: INVALID_ARGUMENT that names the
 * first difference. */
struct status *queue_check_shared(const struct queue *queue,
                                  const struct queue_options *wanted) MUST_USE;
static inline void queue_unref(struct queue *queue) {
    if (queue)
        object_unref(&queue->object);
}

/* Each is a kernel's whole answer on a queue. The caller keeps its reference.
 *   enqueue  takes `elements`, an array of n, and what is in it. Errors: CANCELLED "… is closed."
 *   dequeue  into outputs: one tuple, or with is_batch a batch of n (of fewer when is_small_allowed and the queue is closed).
 *            Errors: OUT_OF_RANGE "… is closed and has insufficient elements (requested %d,
 *            current size %d)"
 *   close    Errors: CANCELLED "… is already closed." */
enum kernel_result queue_enqueue(struct queue *queue, struct kernel_ctx *ctx,
                                 struct queue_element **elements_take, int64_t n);
struct queue_request {
    int64_t n;
    bool is_batch, is_small_allowed;
};
enum kernel_result queue_dequeue(struct queue *queue, struct kernel_ctx *ctx,
                                 struct queue_request request);
enum kernel_result queue_close(struct queue *queue, struct kernel_ctx *ctx, bool cancels_enqueues);
int64_t queue_size(struct queue *queue);
bool queue_is_closed(struct queue *queue);

#endif
