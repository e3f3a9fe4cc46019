/* How an execution fails: once, with the first failure, which names its node. */
#include "worker/executor/executor_internal.h"

/* Borrowed until the execution ends. execution_cancel sets it before it lets the lock go. */
static struct status *why_cancelled(struct executor *executor) {
    struct execution *execution = executor->execution;
    pthread_mutex_lock(&execution->lock);
    struct status *why = executor->asked_why;
    pthread_mutex_unlock(&execution->lock);
    return why;
}

/* A kernel that stops because its execution is cancelled fails with CANCELLED, perhaps before the
 * cancel message has come. The execution ends with what the message says. */
static bool is_cancelled_kernel(struct executor *executor, const struct status *status) {
    return status_code(status) == STATUS_CANCELLED &&
           atomic_load_explicit(&executor->cancel_asked, memory_order_relaxed);
}

/* A copy between memories is the plan's, so the client hears of the node whose value is copied. */
struct status *executor_name_take(const struct executor *executor, const struct plan_node *node,
                                  struct status *st) {
    const struct node *named = node->node;
    if (node->kind == PLAN_COPY) {
        const struct plan_copy *copy = &executor->plan->copies[node->aux];
        st = status_suffix_take(st, " (a copy %s %s)", copy->dst ? "to" : "from",
                                (copy->dst ? copy->dst : copy->src)->full_name);
        named = device_copied_node(node);
    }
    return status_suffix_take(st, "\n\t [[{{node %s}}]]", named->name);
}

void executor_fail(struct executor *executor, const struct plan_node *node,
                   struct status *status_take) {
    if (executor->status) {
        status_unref(status_take);
        return;
    }
    struct status *before = device_take_failure(executor);
    if (unlikely(before != NULL)) {
        status_unref(status_take);
        status_take = before;
        node = NULL;
    }
    if (is_cancelled_kernel(executor, status_take)) {
        status_unref(status_take);
        status_take = status_ref(why_cancelled(executor));
        node = NULL;
    }
    executor->status = node ? executor_name_take(executor, node, status_take) : status_take;
    executor->is_aborted = true;
    atomic_store_explicit(&executor->has_failed, true, memory_order_relaxed);
    async_cancel_waits(executor);
}
