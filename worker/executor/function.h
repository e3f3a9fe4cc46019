/* Functions that kernels call (kernels/host.h): plans of graphs that came with a partition, and
 * calls of them, each a step of its own.
 *
 *   graph entry ──► plan of the partition ──► function_table ──► plans of the functions ┄┄► (borrows the table)
 *   resource (an iterator) ──► struct function ──┘
 *
 * A table lives as long as the registered graph or anybody who holds one of its functions. Its
 * plans are made when the graph is registered. A call runs on the caller's thread at first, in a
 * recycled step; it has no rendezvous, since a function never leaves its task. Threads: any. */
#ifndef MILLRACE_WORKER_EXECUTOR_FUNCTION_H
#define MILLRACE_WORKER_EXECUTOR_FUNCTION_H

#include "kernels/host.h"
#include "worker/plan/plan.h"

struct step_run;

enum { FUNCTION_MAX_DEPTH = 64 }; /* of calls within calls, at run time */

/* A function as it arrives. */
struct function_source {
    const char *key, *name;
    struct span graphdef;
};

/* Makes the plans; sources are copied where they are needed again. Errors name the function. */
struct status *function_table_new(const struct plan_options *options,
                                  const struct function_source *sources, int n_sources,
                                  struct function_table **ret) MUST_USE;
struct function_table *function_table_ref(struct function_table *table);
void function_table_unref(struct function_table *table);            /* accepts NULL */
int function_table_n_functions(const struct function_table *table); /* 0 for NULL */

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
