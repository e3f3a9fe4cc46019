/* Calls functions (worker/executor/function.h).
 *
 * The thread that calls and the thread on which the execution ends may differ. `phase` tells the
 * second of them that the first is done:
 *
 *   function_call ─ execution_start ─ RETURNED ─┐ second: KERNEL_DONE
 *   on_done ──────────────────────── ENDED ─────┘ second: call->on_done */
#include <stdlib.h>

#include "common/base/clock.h"
#include "worker/container.h"
#include "worker/executor/executor_internal.h"
#include "worker/executor/function_internal.h"

enum { PHASE_NONE, PHASE_RETURNED, PHASE_ENDED };
enum { MAX_FREE_EXECUTIONS = 8 };

static struct bound_function *bound_of(const struct function_call *call) {
    return CONTAINER_OF(call->function, struct bound_function, base);
}

void function_execution_free(struct function_execution *nested) {
    execution_fini(&nested->execution);
    free(nested);
}

static struct function_execution *nested_take(struct bound_function *bound) {
    pthread_mutex_lock(&bound->lock);
    struct function_execution *nested = bound->free_executions;
    if (nested) {
        bound->free_executions = nested->next_free;
        bound->n_free_executions--;
    }
    pthread_mutex_unlock(&bound->lock);
    if (nested)
        return nested;
    nested = xcalloc(1, sizeof(*nested));
    execution_init(&nested->execution);
    return nested;
}

void function_finish(struct function_call *call) {
    struct bound_function *bound = bound_of(call);
    struct function_execution *nested = call->record;
    call->record = NULL;
    status_unref(nested->execution.cancelled_before); /* a cancel that came after the end */
    nested->execution.cancelled_before = NULL;
    pthread_mutex_lock(&bound->lock);
    bool keep = bound->n_free_executions < MAX_FREE_EXECUTIONS;
    if (keep) {
        nested->next_free = bound->free_executions;
        bound->free_executions = nested;
        bound->n_free_executions++;
    }
    pthread_mutex_unlock(&bound->lock);
    if (!keep)
        function_execution_free(nested);
    object_unref(&bound->base.object);
}

static void on_done(struct execution *execution, struct status *status_take) {
    struct function_execution *nested =
        CONTAINER_OF(execution, struct function_execution, execution);
    struct function_call *call = nested->call;
    call->status = status_take;
    if (atomic_exchange_explicit(&nested->phase, PHASE_ENDED, memory_order_acq_rel) ==
        PHASE_RETURNED)
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
    struct function_execution *nested = nested_take(bound);
    object_ref(&bound->base.object);
    atomic_store_explicit(&nested->phase, PHASE_NONE, memory_order_relaxed);
    nested->call = call;
    call->record = nested;
}

enum kernel_result function_call(struct function_call *call) {
    struct bound_function *bound = bound_of(call);
    struct function_execution *nested = call->record;
    call->status = check_args(call);
    if (call->status)
        return KERNEL_DONE;
    nested->execution.plan = bound->row->plan;
    nested->execution.step_id = bound->base.host->unique_id() | UINT64_C(1) << 63; /* no master's */
    nested->execution.feeds = call->args;
    nested->execution.fetches = call->rets;
    nested->execution.rendezvous = NULL;
    nested->execution.containers = bound->containers;
    nested->execution.pool = bound->base.pool;
    nested->execution.io_pool = bound->io_pool;
    nested->execution.alarms = bound->alarms;
    nested->execution.inline_budget_ns = bound->inline_budget_ns;
    nested->execution.scale = bound->scale;
    nested->execution.depth = bound->depth;
    nested->execution.on_done = on_done;
    execution_start(&nested->execution);
    return atomic_exchange_explicit(&nested->phase, PHASE_RETURNED, memory_order_acq_rel) ==
                   PHASE_ENDED
               ? KERNEL_DONE
               : KERNEL_PENDING;
}

void function_cancel(struct function_call *call, struct status *why) {
    struct function_execution *nested = call->record;
    execution_cancel(&nested->execution, why);
}
