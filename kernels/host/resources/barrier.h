/* Collects the components of tuples by key. Components arrive one at a time, in any order. Complete
 * tuples are taken in the order in which their keys first arrived.
 *
 *   insert(component i, keys, values) ──► incomplete: key → tuple with gaps
 *   the last gap filled ──► ready ──► take (waits)
 *
 * A barrier has no capacity. A closed barrier takes no new keys. It is finished when each
 * incomplete tuple is complete, or when a close that cancels has dropped them. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_BARRIER_H
#define MILLRACE_KERNELS_HOST_RESOURCES_BARRIER_H

#include "common/base/map.h"
#include "kernels/host/resources/queue.h"

struct barrier {
    struct object object;
    struct wait_room room;
    char *name;
    uint8_t *types; /* constant, like the next two */
    struct shape *shapes;
    int n_components;
    /* guarded by room.lock */
    struct strmap incomplete;    /* key → struct incomplete */
    struct queue_elements ready; /* tuples of n_components + 1 tensors: the key is the last */
    int64_t next_index;          /* index of the next insertion of new keys; starts at INT64_MIN */
    bool is_closed, is_cancelled;
};
extern const struct object_type barrier_type;

/* A barrier with one reference. Copies types and shapes. */
struct barrier *barrier_new(const uint8_t *types, const struct shape *shapes, int n_components,
                            const char *name);
void barrier_empty(struct object *barrier);
/* Sets component `component` of key i to row i of `values`, for all i. The caller has checked
 * shapes and dtypes. Any thread. Errors: CANCELLED when the barrier is closed; INVALID_ARGUMENT
 * when a key has that component already, and then the keys before it stay inserted. */
struct status *barrier_insert(struct barrier *barrier, struct allocator *allocator, int component,
                              const struct tensor *keys, const struct tensor *values) MUST_USE;
/* Computes a take op: waits for n complete tuples and sets the outputs to their indices, keys and
 * components. With is_small_allowed a closed barrier gives fewer. Returns what the kernel must
 * return. Errors: OUT_OF_RANGE. */
enum kernel_result barrier_take(struct barrier *barrier, struct kernel_ctx *ctx, int64_t n,
                                bool is_small_allowed);
struct status *barrier_close(struct barrier *barrier, bool cancels) MUST_USE;
int64_t barrier_ready_size(struct barrier *barrier);
int64_t barrier_incomplete_size(struct barrier *barrier);

#endif
