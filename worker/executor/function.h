/* Functions that kernels call (kernels/host.h): a row of a function table, bound to what the
 * caller's execution runs on; and calls of it, each an execution of its own.
 *
 *   graph entry ──► plan of the partition ──► function_table ──► plans of the functions
 *   resource (an iterator) ──► struct function ──┘
 *
 * A call starts on the caller's thread, in a recycled executor. It has no rendezvous, because a
 * function never leaves its task. Threads: any. */
#ifndef MILLRACE_WORKER_EXECUTOR_FUNCTION_H
#define MILLRACE_WORKER_EXECUTOR_FUNCTION_H

#include "kernels/host.h"
#include "worker/plan/function_table.h"

enum { FUNCTION_MAX_DEPTH = 64 }; /* of calls within calls, at run time */

/* The host's part (kernels/host.h). */
struct status *function_find(struct kernel_ctx *ctx, const char *attr,
                             struct function **ret) MUST_USE;
struct status *function_fresh(struct function *function, struct object **scope,
                              struct function **ret) MUST_USE;
void function_prepare(struct function_call *call);
enum kernel_result function_call(struct function_call *call);
void function_cancel(struct function_call *call, struct status *why);
void function_finish(struct function_call *call);

#endif
