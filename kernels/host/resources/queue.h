/* Queues tuples of tensors, as a resource [WP 4.6, OSDI 3.1]. Producers and consumers may be steps
 * of different sessions. They wait for each other in the queue's wait room, which has two lines.
 *
 *   enqueues, closes ──► line 0 ──► elements ──► line 1 ◄── dequeues
 *                                   in one of four orders, at most `capacity`
 *
 * An enqueue of many elements puts in what fits and waits with the rest. A dequeue of many elements
 * takes what is there and waits for more, so a batch may be larger than the capacity. A dequeue
 * that fails puts back what it took, at the same place, even beyond the capacity. A close waits in
 * line 0 with the enqueues: enqueues before it succeed, enqueues after it fail. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_QUEUE_H
#define MILLRACE_KERNELS_HOST_RESOURCES_QUEUE_H

#include "kernels/support/named_resource.h"
#include "kernels/support/philox_words.h"
#include "kernels/support/wait_room.h"

enum queue_order {
    QUEUE_FIFO,
    QUEUE_PADDING_FIFO, /* first in, first out; elements' shapes may differ, batches are padded */
    QUEUE_RANDOM,       /* a random element */
    QUEUE_PRIORITY,     /* the smallest first component first; first in, first out among equals */
};

enum { QUEUE_UNBOUNDED = INT32_MAX };

/* ---- queue_elements.c: elements in their order. No lock is taken and nothing waits. ---- */

struct queue_element {
    int64_t priority;
    uint64_t number; /* numbers elements in the order of their arrival */
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
/* drops all elements and frees the memory */
void queue_elements_clear(struct queue_elements *elements);
void queue_elements_put(struct queue_elements *elements, struct queue_element *element_take);
/* Puts an element back where it was taken from. A caller that took several gives back the last one
 * first. */
void queue_elements_put_back(struct queue_elements *elements, struct queue_element *element_take);
struct queue_element *queue_elements_take(struct queue_elements *elements); /* must not be empty */

/* Stacks component `component` of n elements under a new first dimension. `shape` is what is known
 * of the component's shape. With is_padded the shapes may differ: the batch has the largest size of
 * each dimension, filled up with zeros or empty strings. Otherwise all elements have `shape`.
 * Errors: RESOURCE_EXHAUSTED; INVALID_ARGUMENT for a size beyond int64. */
struct status *queue_batch(struct allocator *allocator, enum dtype dtype, struct shape shape,
                           bool is_padded, int component, struct queue_element *const *elements,
                           int64_t n, struct tensor *ret) MUST_USE;
/* An estimate of the bytes of the batches of all components. */
int64_t queue_batch_bytes(struct queue_element *const *elements, int64_t n, int n_components);
/* A copy of row i of a tensor of rank >= 1. */
struct status *queue_row(struct allocator *allocator, const struct tensor *rows, int64_t i,
                         struct tensor *ret) MUST_USE;

/* ---- queues (queue.c) ---- */

struct queue_options {
    enum queue_order order;
    const char *op; /* the op's name for error messages: "FIFOQueue" */
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
/* Checks that a node which declares `wanted` may share this queue. Errors: INVALID_ARGUMENT that
 * names the first difference. */
struct status *queue_check_shared(const struct queue *queue,
                                  const struct queue_options *wanted) MUST_USE;
static inline void queue_unref(struct queue *queue) {
    if (queue)
        object_unref(&queue->object);
}

/* Compute the queue ops. Each returns what the kernel must return. The caller keeps its reference
 * on the queue.
 *   enqueue  takes the array `elements` of n elements. Errors: CANCELLED "… is closed."
 *   dequeue  sets the outputs to one tuple, or with is_batch to a batch of n. With
 *            is_small_allowed a closed queue gives fewer.
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
