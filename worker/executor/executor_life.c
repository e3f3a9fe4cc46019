/* Manages an executor's memory, which its plan recycles; starts and cancels its execution, and ends
 * it. */
#include <stdlib.h>

#include "worker/container.h"
#include "worker/executor/executor_internal.h"

enum {
    MAX_FREE_EXECUTORS = 8, /* how many executors a plan keeps for its next executions */
    /* The limit for a kept executor, and for all that a plan keeps beyond the first. Memory beyond
     * it is freed when the execution ends. */
    EXECUTOR_KEPT_BYTES = 4 << 20,
    PLAN_KEPT_BYTES = 64 << 20,
    /* An execution of more nodes does not fit into a loop thread's budget. It begins on the pool,
     * so that its memory stays in one core's cache. One that uses devices does, too, because
     * staging a value for a copy may take long. */
    LARGE_PLAN_NODES = 4096,
};

/* ---- memory ---- */

static struct executor *executor_new(struct plan *plan) {
    struct executor *executor = aligned_alloc(64, (sizeof *executor + 63) & ~(size_t)63);
    if (!executor)
        out_of_memory(sizeof *executor);
    memset(executor, 0, sizeof *executor);
    executor->plan = plan;
    executor->free_iterations = xcalloc(plan->n_frames, sizeof(struct iteration *));
    executor->free_frames = xcalloc(plan->n_frames, sizeof(struct frame *));
    executor->ready_capacity = plan->n_roots + 64;
    executor->ready = xcalloc(executor->ready_capacity, sizeof *executor->ready);
    executor->outputs = aligned_alloc(64, (size_t)(plan->max_outputs + 1) * sizeof(struct tensor));
    CHECK(executor->outputs);
    memset(executor->outputs, 0, (size_t)(plan->max_outputs + 1) * sizeof(struct tensor));
    pthread_mutex_init(&executor->lock, NULL);
    list_init(&executor->pending);
    list_init(&executor->deferred_link);
    list_init(&executor->cancel_hooks);
    list_init(&executor->end_hooks);
    return executor;
}

static void executor_free(struct executor *executor) {
    for (uint32_t i = 0; i < executor->plan->n_frames; i++)
        for (struct iteration *iteration = executor->free_iterations[i], *next; iteration;
             iteration = next) {
            next = iteration->next_free;
            iteration_free(iteration);
        }
    for (uint32_t i = 0; i < executor->plan->n_frames; i++)
        for (struct frame *frame = executor->free_frames[i], *next; frame; frame = next) {
            next = frame->next_free;
            frame_free(frame);
        }
    for (struct async_op *op = executor->free_ops, *next; op; op = next) {
        next = op->next;
        async_op_free(op);
    }
    saves_free(executor);
    pthread_mutex_destroy(&executor->lock);
    free(executor->free_iterations);
    free(executor->free_frames);
    free(executor->ready);
    free(executor->outputs);
    free(executor);
}

static void executors_free(struct executor *first) {
    for (struct executor *executor = first, *next; executor; executor = next) {
        next = executor->next_free;
        executor_free(executor);
    }
}

static struct executor *executor_take(struct plan *plan) {
    pthread_mutex_lock(&plan->lock);
    struct executor *executor = plan->free_executors;
    if (executor) {
        plan->free_executor_bytes -= executor->memory_bytes;
        plan->free_executors = executor->next_free;
        plan->n_free_executors--;
    }
    pthread_mutex_unlock(&plan->lock);
    return executor ? executor : executor_new(plan);
}

/* Frees what a loop with many overlapping iterations, or many waits at once, left beyond
 * EXECUTOR_KEPT_BYTES. The first iteration and instance of each frame stay, whatever their size. */
static void executor_trim(struct executor *executor) {
    for (uint32_t i = 0; i < executor->plan->n_frames; i++) {
        const struct plan_frame *plan = &executor->plan->frames[i];
        struct iteration *iteration = executor->free_iterations[i], *spare;
        while (iteration && executor->memory_bytes > EXECUTOR_KEPT_BYTES &&
               (spare = iteration->next_free)) {
            iteration->next_free = spare->next_free;
            iteration_free(spare);
            executor->memory_bytes -= iteration_bytes(plan);
        }
        struct frame *frame = executor->free_frames[i], *other;
        while (frame && executor->memory_bytes > EXECUTOR_KEPT_BYTES &&
               (other = frame->next_free)) {
            frame->next_free = other->next_free;
            frame_free(other);
            executor->memory_bytes -= frame_bytes(plan);
        }
    }
    struct async_op *op;
    while (executor->memory_bytes > EXECUTOR_KEPT_BYTES && (op = executor->free_ops)) {
        executor->free_ops = op->next;
        async_op_free(op);
        executor->memory_bytes -= async_op_bytes(executor->plan);
    }
}

static void executor_give_back(struct executor *executor) {
    struct plan *plan = executor->plan;
    if (unlikely(executor->memory_bytes > EXECUTOR_KEPT_BYTES))
        executor_trim(executor);
    pthread_mutex_lock(&plan->lock);
    bool keep = plan->n_free_executors == 0 ||
                (plan->n_free_executors < MAX_FREE_EXECUTORS &&
                 plan->free_executor_bytes + executor->memory_bytes <= PLAN_KEPT_BYTES);
    if (keep) {
        plan->free_executor_bytes += executor->memory_bytes;
        executor->next_free = plan->free_executors;
        plan->free_executors = executor;
        plan->n_free_executors++;
        plan->executors_free = executors_free;
    }
    pthread_mutex_unlock(&plan->lock);
    if (!keep)
        executor_free(executor);
    plan_unref(plan);
}

/* ---- the end ---- */

/* A fetched reference is read when everything else has run, so that it shows the updates of its own
 * step, as TensorFlow's fetches do. */
static struct status *settle_fetch(struct tensor *fetch, uint32_t position) {
    if (fetch->storage == TENSOR_NONE)
        return status_invalid(
            "Retval[%u] does not have value: the step ended, and its node never ran", position);
    if (likely(fetch->storage != TENSOR_REF))
        return NULL;
    struct tensor value;
    TRY(executor_read_reference(fetch, &value));
    tensor_clear(fetch);
    tensor_move(fetch, &value);
    return NULL;
}

void executor_end(struct executor *executor) {
    struct execution *execution = executor->execution;
    struct status *st = executor->status;
    pthread_mutex_lock(&execution->lock);
    execution->executor = NULL; /* execution_cancel finds nothing from here on */
    partial_end(execution);
    pthread_mutex_unlock(&execution->lock);
    for (uint32_t i = 0; i < executor->plan->n_fetches && !st; i++)
        st = settle_fetch(&execution->fetches[i], i);
    if (st)
        for (uint32_t i = 0; i < executor->plan->n_fetches; i++)
            tensor_clear(&execution->fetches[i]);
    if (executor->root->n_executed != executor->plan->frames[0].n_nodes ||
        executor->root->n_child_frames > 0 || executor->is_aborted) {
        frames_drop_all(executor);
        executor->root->n_executed = UINT32_MAX;
    }
    iteration_recycle(executor, executor->root);
    container_table_free(executor->own_container);
    status_unref(executor->cancel_why);
    status_unref(executor->asked_why);
    executor->own_container = NULL;
    executor->cancel_why = executor->asked_why = NULL;
    execution->n_executed = executor->n_executed;
    if (unlikely(executor->stats != NULL))
        stats_end(executor);
    execution->stats = executor->stats;
    executor->stats = NULL;
    device_steps_end(executor);
    executor_give_back(executor);
    execution->on_done(execution, st);
}

/* ---- start and cancel ---- */

void execution_start(struct execution *execution) {
    struct executor *executor = executor_take(execution->plan);
    plan_ref(execution->plan);
    executor->execution = execution;
    executor->status = NULL;
    executor->is_aborted = executor->wants_flush = false;
    executor->paused_for = NULL;
    executor->is_on_pool = pool_is_current();
    executor->n_async = 0;
    executor->n_since_check = 0;
    executor->n_executed = 0;
    executor->n_ready = 0;
    executor->n_early = 0;
    executor->end_phase = 0;
    executor->task.run = executor_drive_on_pool;
    atomic_store_explicit(&executor->mailbox, NULL, memory_order_relaxed);
    atomic_store_explicit(&executor->cancel_asked, false, memory_order_relaxed);
    atomic_store_explicit(&executor->has_failed, false, memory_order_relaxed);
    execution->stats = NULL;
    execution->n_executed = 0;
    executor->times_nodes = execution->stats_level >= EXECUTION_STATS_NODES;
    executor->is_timed = executor->times_nodes || execution->scale > 1;
    if (execution->stats_level != EXECUTION_STATS_NONE)
        stats_begin(executor);
    device_steps_begin(executor);
    saves_begin(executor);
    executor->root = iteration_new(executor, 0);
    partial_begin(execution, executor->root);
    for (uint32_t i = 0; i < execution->plan->n_roots; i++)
        if (likely(!execution->is_partial) ||
            executor->root->states[execution->plan->nodes[execution->plan->roots[i]].state]
                    .pending == 0)
            executor_push_ready(executor, executor->root, execution->plan->roots[i], false);
    pthread_mutex_lock(&execution->lock);
    execution->executor = executor;
    struct status *why = execution->cancelled_before;
    execution->cancelled_before = NULL;
    pthread_mutex_unlock(&execution->lock);
    if (why)
        executor_fail(executor, NULL, why);
    bool is_for_pool = execution->plan->n_nodes > LARGE_PLAN_NODES ||
                       execution->plan->n_used_devices > 0 || execution->scale > 1;
    if (is_for_pool && execution->inline_budget_ns > 0 && execution->pool && !executor->is_on_pool)
        executor_move_to_pool(executor);
    else
        executor_drive(executor, NULL);
}

void execution_cancel(struct execution *execution, struct status *why) {
    struct executor *executor;
    bool owns = false;
    pthread_mutex_lock(&execution->lock);
    executor = execution->executor;
    if (executor &&
        !atomic_exchange_explicit(&executor->cancel_asked, true, memory_order_relaxed)) {
        executor->asked_why = status_ref(why);
        executor->cancel_op.executor = executor;
        executor->cancel_op.is_cancel = true;
        owns = executor_mailbox_post(executor, &executor->cancel_op);
    } else if (!executor && !execution->cancelled_before) {
        execution->cancelled_before = status_ref(why);
    }
    pthread_mutex_unlock(&execution->lock);
    if (owns)
        executor_wake(executor, &executor->cancel_op);
}

void execution_init(struct execution *execution) {
    memset(execution, 0, sizeof *execution);
    pthread_mutex_init(&execution->lock, NULL);
}

void execution_fini(struct execution *execution) {
    status_unref(execution->cancelled_before);
    execution->cancelled_before = NULL;
    pthread_mutex_destroy(&execution->lock);
}
