/* Returns rows from a batch (batcher.h) to the steps that they came from, by the random keys that
 * Batch gave out.
 *
 *   Batch ─► step C: all rows, index [key, begin, end]… ─► … ─► Unbatch ─► its own rows, at once
 *        └─► steps A, B: no rows, their keys ─► Unbatch ─► wait for the rows that C's Unbatch
 *                                                          keeps under their keys
 *
 * UnbatchGrad takes the opposite direction: each step keeps its gradient under its key, and the
 * step that had all rows waits for all gradients, in their order.
 *
 * Values that nobody fetches are dropped: rows after Unbatch's timeout, gradients after
 * UNBATCH_GRADIENT_LIFE_S unless a step waits for them, and the oldest values when there are more
 * than UNBATCH_MAX_KEPT. A step that waits for a gradient that long fails with DEADLINE_EXCEEDED.
 * Any thread. */
#ifndef MILLRACE_KERNELS_HOST_DATA_UNBATCH_H
#define MILLRACE_KERNELS_HOST_DATA_UNBATCH_H

#include "common/base/alarm.h"
#include "kernels/host.h"

enum {
    /* the limit on the values that a resource keeps, and on the rows of an index */
    UNBATCH_MAX_KEPT = 1 << 16,
    UNBATCH_GRADIENT_LIFE_S = 600, /* the longest time between the gradients of one batch */
};

extern const struct object_type unbatch_type, unbatch_grad_type;

/* Makes a resource of either type, with one reference. */
struct object *unbatch_new(const struct object_type *type, struct alarm_clock *alarms,
                           int64_t timeout_us);
/* Compute the ops. Borrow the resource. Return what the kernel must return. */
enum kernel_result unbatch_run(struct object *unbatch, struct kernel_ctx *ctx);
enum kernel_result unbatch_grad_run(struct object *unbatch, struct kernel_ctx *ctx);

#endif
