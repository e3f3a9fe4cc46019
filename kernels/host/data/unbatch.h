/* The way back from a batch (batcher.h): rows find the steps that they came from, by the random
 * keys that Batch gave out.
 *
 *   Batch ─► step C: all rows, index [key, begin, end]… ─► … ─► Unbatch ─► its own rows, at once
 *        └─► steps A, B: no rows, their keys ─────────────────► Unbatch ─► wait for what C's Unbatch puts down under their keys
 *
 * UnbatchGrad goes the other way: each step puts its gradient down, and the one that had all
 * rows waits for all of them, in their order.
 *
 * What nobody picks up goes: rows after Unbatch's timeout, gradients after
 * UNBATCH_GRADIENT_LIFE_S, those excepted that a step is waiting for; and the oldest go where
 * more than UNBATCH_MAX_KEPT would lie there. Threads: any. */
#ifndef MILLRACE_KERNELS_HOST_DATA_UNBATCH_H
#define MILLRACE_KERNELS_HOST_DATA_UNBATCH_H

#include "common/base/alarm.h"
#include "kernels/host.h"

enum {
    UNBATCH_MAX_KEPT = 1 << 16,     /* values of a resource, and rows of an index */
    UNBATCH_GRADIENT_LIFE_S = 3600, /* steps of one batch come back that far apart at most */
};

extern const struct object_type unbatch_type, unbatch_grad_type;

/* either of them */
struct object *unbatch_new(const struct object_type *type, struct alarm_clock *alarms,
                           int64_t timeout_us);
/* What the kernels do. Borrow the resource. */
enum kernel_result unbatch_run(struct object *unbatch, struct kernel_ctx *ctx);
enum kernel_result unbatch_grad_run(struct object *unbatch, struct kernel_ctx *ctx);

#endif
