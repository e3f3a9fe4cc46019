/* Lets a kernel that computes, reads or writes for long ask whether its step is still wanted. Ask
 * at least once per 10 ms of work; asking takes about a nanosecond. Any thread. */
#ifndef MILLRACE_KERNELS_SUPPORT_CANCEL_H
#define MILLRACE_KERNELS_SUPPORT_CANCEL_H

#include "common/base/pool_cancel.h"
#include "kernels/host.h"

/* True once the step has been cancelled or has failed. False where the host has no steps. */
static inline bool kernel_is_cancelled(struct kernel_ctx *ctx) {
    return ctx->host && ctx->host->is_cancelled && ctx->host->is_cancelled(ctx);
}

/* Returns CANCELLED once the step has been cancelled or has failed, else NULL. */
static inline MUST_USE struct status *kernel_check_cancelled(struct kernel_ctx *ctx) {
    return unlikely(kernel_is_cancelled(ctx))
               ? status_new(STATUS_CANCELLED, "The step was cancelled while this op ran")
               : NULL;
}

/* Does the same for element i of a loop over cheap elements, once in 65536, in a kernel that a
 * pool_cancel watches. */
static inline MUST_USE struct status *kernel_loop_check(int64_t i) {
    return likely(pool_goes_on(i))
               ? NULL
               : status_new(STATUS_CANCELLED, "The step was cancelled while this op ran");
}

#endif
