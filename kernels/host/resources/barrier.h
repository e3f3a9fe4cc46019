/* A barrier: collects, key by key, the components of tuples that arrive one at a time, in any
 * order; complete tuples are taken in the order in which their keys first arrived.
 *
 *   insert(component i, keys, values) ──► incomplete: key → tuple with gaps ── the last gap filled ──► ready ──► take (waits)
 *
 * Nothing limits it. Closed, it takes no new keys; it is through when the incomplete ones are
 * complete, or dropped by a close that cancels. */
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
    struct queue_elements ready; /* of n_components + 1: the key last */
    int64_t next_index;          /* of the next insertion that brings new keys; from INT64_MIN */
    bool is_closed, is_cancelled;
};
extern const struct object_type barrier_type;

/* Copies types and shapes. */
struct barrier *barrier_new(const uint8_t *types, const struct shape *shapes, int n_components,
                            const char *name);
void barrier_empty(struct object *barrier);
/* Row i of `values` becomes component `component` of key i. Shapes and dtypes have been checked.
 * Errors: CANCELLED when closed, INVALID_ARGUMENT when a key has that component already; keys
 * before it stay inserted. */
struct status *barrier_insert(struct barrier *barrier, struct allocator *allocator, int component,
                              const struct tensor *keys, const struct tensor *values) MUST_USE;
/* A kernel's whole answer: outputs are indices, keys and the components of n tuples, of fewer
 * when is_small_allowed and the barrier is closed. Errors: OUT_OF_RANGE. */
enum kernel_result barrier_take(struct barrier *barrier, struct kernel_ctx *ctx, int64_t n,
                                bool is_small_allowed);
struct status *barrier_close(struct barrier *barrier, bool cancels) MUST_USE;
int64_t barrier_ready_size(struct barrier *barrier);
int64_t barrier_incomplete_size(struct barrier *barrier);

#endif
