/* Calls of functions: worker/executor/function.h.
 *
 * The caller's thread and the one on which the step ends may be two. Whoever comes second by
 * `phase` knows that the other is through:
 *
 *   function_call ─ executor_start ─ RETURNED ──┐ second: KERNEL_DONE
 *   on_done ──────────────────────── ENDED ─────┘ second: call->on_done */
#include <stdlib.h>

#include "common/base/clock.h"
#include "worker/container.h"
#include "worker/executor/executor_internal.h"
#include "worker/executor/function_internal.h"

enum { PHASE_NONE, PHASE_RETURNED, PHASE_ENDED };
enum { MAX_FREE_RUNS = 8 };

static struct bound_function *bound_of(const struct function_call *call) {
    return CONTAINER_OF(call->function, struct bound_function, base);
}

void nested_run_free(struct nested_run *run) {
    step_run_fini(&run->run);
    free(run);
}

static struct nested_run *run_take(struct bound_function *bound) {
    pthread_mutex_lock(&bound->lock);
    struct nested_run *run = bound->free_runs;
    if (run) {
        bound->free_runs = run->next_free;
        bound->n_free_runs--;
    }
    pthread_mutex_unlock(&bound->lock);
    if (run)
        return run;
    run = xcalloc(1, sizeof(*run));
    step_run_init(&run->run);
    return run;
}

void function_finish(struct function_call *call) {
    struct bound_function *bound = bound_of(call);
    struct nested_run *run = call->record;
    call->record = NULL;
    status_unref(run->run.cancelled_before); /* a cancel that came after the end */
    run->run.cancelled_before = NULL;
    pthread_mutex_lock(&bound->lock);
    bool keep = bound->n_free_runs < MAX_FREE_RUNS;
    if (keep) {
        run->next_free = bound->free_runs;
        bound->free_runs = run;
        bound->n_free_runs++;
    }
    pthread_mutex_unlock(&bound->lock);
    if (!keep)
        nested_run_free(run);
    object_unref(&bound->base.object);
}

static void on_done(struct step_run *step_run, struct status *status_take) {
    struct nested_run *run = CONTAINER_OF(step_run, struct nested_run, run);
    struct function_call *call = run->call;
    call->status = status_take;
    if (atomic_exchange_explicit(&run->phase, PHASE_ENDED, memory_order_acq_rel) == PHASE_RETURNED)
        call->on_done(call);
}

static struct status *check_args(const struct function_call *call) {
    const struct function *function = call->function;
    if (call->n_args < function->n_args)
        return status_invalid("Function %s takes %d arguments, %d are given", function->name,
                              function->n_args, call->n_args);
    for (int i = 0; i < function->n_args; i++) {
        const struct tensor *arg = &call->args[i];
        if (function->arg_types[i] == DT_INVALID ||
            (tensor_has_value(arg) && arg->dtype == function->arg_types[i]))
            continue;
        return status_invalid(
            "Argument %d of function %s is %s, which should be %s", i, function->name,
            tensor_has_value(arg) ? dtype_name((enum dtype)arg->dtype) : "a reference or nothing",
            dtype_name((enum dtype)function->arg_types[i]));
    }
    return NULL;
}

void function_prepare(struct function_call *call) {
    struct bound_function *bound = bound_of(call);
    struct nested_run *run = run_take(bound);
    object_ref(&bound->base.object);
    atomic_store_explicit(&run->phase, PHASE_NONE, memory_order_relaxed);
    run->call = call;
    call->record = run;
}

enum kernel_result function_call(struct function_call *call) {
    struct bound_function *bound = bound_of(call);
    struct nested_run *run = call->record;
    call->status = check_args(call);
    if (call->status)
        return KERNEL_DONE;
    run->run.plan = bound->row->plan;
    run->run.step_id = bound->base.host->unique_id() | UINT64_C(1) << 63; /* no master's */
    run->run.feeds = call->args;
    run->run.fetches = call->rets;
    run->run.rendezvous = NULL;
    run->run.containers = bound->containers;
    run->run.pool = bound->base.pool;
    run->run.io_pool = bound->io_pool;
    run->run.alarms = bound->alarms;
    run->run.inline_budget_ns = bound->inline_budget_ns;
    run->run.depth = bound->depth;
    run->run.on_done = on_done;
    executor_start(&run->run);
    return atomic_exchange_explicit(&run->phase, PHASE_RETURNED, memory_order_acq_rel) ==
                   PHASE_ENDED
               ? KERNEL_DONE
               : KERNEL_PENDING;
}

void function_cancel(struct function_call *call, struct status *why) {
    struct nested_run *run = call->record;
    executor_cancel(&run->run, why);
}
