/* Runs an execution: takes nodes from the ready stack one by one, and completes what the mailbox
 * brings.
 *
 *   pop a ready node → run it → propagate its outputs → push what became ready → … nothing ready:
 *   flush what peers should get; take the mailbox; mailbox empty: give up ownership, or end */
#include "worker/executor/executor.h"

#include "common/base/clock.h"
#include "common/base/pool_load.h"
#include "worker/executor/executor_node.h"

enum {
    /* the time slice: an execution gives its pool thread back after it, so that others run, too */
    POOL_SLICE_NS = 2000000,
};

static void flush_sends(struct executor *executor) {
    if (executor->wants_flush) {
        executor->wants_flush = false;
        rendezvous_flush(executor->execution->rendezvous);
    }
}

void executor_flush(struct executor *executor) {
    if (unlikely(executor->plan->n_used_devices > 0))
        device_flush(executor);
    flush_sends(executor);
}

/* ---- the node on top of the ready stack ---- */

/* Fills preset inputs from constants and feeds. A second call does nothing: the execution may have
 * moved to the pool in between. */
static void fetch_presets(const struct executor *executor, const struct plan_node *node,
                          struct tensor *inputs) {
    const struct plan_preset *row = &executor->plan->presets[node->first_preset],
                             *end = row + node->n_presets;
    for (; row < end; row++)
        if (inputs[row->input].storage == TENSOR_NONE)
            tensor_copy(&inputs[row->input], row->is_feed ? &executor->execution->feeds[row->index]
                                                          : &executor->plan->constants[row->index]);
}

/* Runs the node on top of the ready stack. */
static inline unsigned run_next(struct executor *executor) {
    /* Nothing may take its address: the parts were stored one by one a moment ago, and one wide
     * load of them all would wait for the stores. */
    struct ready item = executor->ready[--executor->n_ready];
    const struct plan_node *node = &executor->plan->nodes[item.node];
    struct tensor *inputs = &item.iteration->slots[node->first_slot];
    if (unlikely(item.is_dead && !(node->flags & PLAN_TAKES_DEAD))) {
        clear_inputs(executor, inputs, node->n_inputs);
        executor_propagate(executor, item.iteration, node, executor->outputs, true);
        node_completed(executor, item.iteration);
        return LIGHT;
    }
    if (node->n_presets > 0 && !item.is_dead)
        fetch_presets(executor, node, inputs);
    if (unlikely(node->flags & (PLAN_DEREF | PLAN_ENQUEUES)) && !item.is_dead) {
        if ((node->flags & PLAN_ENQUEUES) && device_pauses(executor)) {
            executor->n_ready++; /* the node stays on top */
            return PAUSED;
        }
        unsigned cost = node->flags & PLAN_DEREF
                            ? executor_read_references(executor, item.iteration, node, inputs)
                            : NOT_RUN;
        if (cost != NOT_RUN)
            return cost;
    }
    if (likely(node->kind <= PLAN_KERNEL_ASYNC)) {
        unsigned cost = LIGHT;
        if (unlikely(largest_input(node, inputs) > node->cheap_elements) &&
            executor->execution->pool && executor_is_heavy(executor, node, inputs)) {
            if (!executor->is_on_pool && executor->execution->inline_budget_ns > 0) {
                executor->n_ready++; /* the node stays on top */
                return MUST_MOVE;
            }
            cost = executor_run_heavy(executor, item.iteration, node);
            if (cost == NOT_RUN)
                return LIGHT;
        }
        if (likely(node->kind == PLAN_KERNEL))
            executor_run_kernel(executor, item.iteration, node, inputs, cost == HEAVY);
        else
            executor_start_async(executor, item.iteration, node, false);
        return cost;
    }
    executor_run_plain(executor, item.iteration, node, inputs, item.is_dead);
    return node->kind == PLAN_FETCH ? UNCOUNTED : LIGHT;
}

/* ---- ownership ---- */

static void drop_ready(struct executor *executor) { executor->n_ready = 0; }

/* Completes the operations that were in the mailbox. */
static void take_mail(struct executor *executor, struct async_op *ops) {
    while (ops) {
        struct async_op *op = ops;
        ops = op->next;
        if (op->is_cancel) {
            executor_fail(executor, NULL, status_ref(executor->asked_why));
            continue;
        }
        if (unlikely(op->is_end)) {
            device_end_arrived(op);
            continue;
        }
        async_complete(op);
    }
}

static void go_on_pool(struct executor *executor) {
    executor->is_on_pool = true;
    pool_submit(executor->execution->pool, &executor->task);
}

/* What is held back for devices stays so if the execution goes on soon: where a slice ends is
 * another place in each step, and must not part what devices replay as one. Behind other tasks the
 * devices would be idle. */
static void end_slice(struct executor *executor) {
    flush_sends(executor);
    if (unlikely(executor->plan->n_used_devices > 0) && pool_is_busy(executor->execution->pool))
        device_flush(executor);
    go_on_pool(executor);
}

void executor_move_to_pool(struct executor *executor) {
    executor_flush(executor);
    go_on_pool(executor);
}

/* Moves the node that has waited longest to the top, so that a loop that never pauses does not keep
 * the rest of its execution from starting. */
static void rotate_ready(struct executor *executor) {
    struct ready *last = &executor->ready[executor->n_ready - 1], bottom = executor->ready[0];
    executor->ready[0] = *last;
    *last = bottom;
}

/* Runs the early nodes. What they make ready waits on the stack until all of them have run. In a
 * partial run, one whose handle is fed is left to the feed's edge. */
static COLD void run_early(struct executor *executor) {
    const struct plan *plan = executor->plan;
    while (executor->n_early < plan->n_early && !executor->is_aborted) {
        uint32_t i = plan->early[executor->n_early++];
        struct node_state *state = &executor->root->states[plan->nodes[i].state];
        if (--state->pending > 0)
            continue;
        push_ready(executor, executor->root, i, false);
        run_next(executor);
    }
}

/* Runs what is ready. True: something has arrived, or nothing can run now. False: the time slice is
 * over, and the execution has moved to the pool. */
static bool run_ready(struct executor *executor, int64_t until_ns) {
    while (executor->n_ready > 0 && !executor->paused_for) {
        unsigned cost = run_next(executor);
        if (unlikely(cost == MUST_MOVE)) {
            executor_move_to_pool(executor);
            return false;
        }
        if (unlikely(cost == PAUSED))
            return true;
        bool is_counted = likely(cost != UNCOUNTED);
        executor->n_since_check += is_counted ? cost : 0;
        if (unlikely(executor->n_since_check >= CHECK_EVERY_NODES && is_counted)) {
            if (executor->n_ready == 0)
                return true; /* the mailbox is checked again when there is something to run */
            executor->n_since_check = 0;
            rotate_ready(executor);
            wake_submit_deferred();
            /* Before the mail, because mail may arrive without end. */
            if (until_ns != INT64_MAX && clock_now_ns() > until_ns) {
                end_slice(executor);
                return false;
            }
            if (atomic_load_explicit(&executor->mailbox, memory_order_relaxed))
                return true;
        }
        if (unlikely(executor->is_aborted))
            drop_ready(executor);
    }
    return true;
}

void executor_run(struct executor *executor, struct async_op *mail) {
    int64_t budget = executor->is_on_pool ? POOL_SLICE_NS : executor->execution->inline_budget_ns;
    int64_t until = budget > 0 && executor->execution->pool ? clock_now_ns() + budget : INT64_MAX;
    take_mail(executor, mail);
    if (executor->n_early < executor->plan->n_early)
        run_early(executor);
    for (;;) {
        if (unlikely(executor->is_aborted))
            drop_ready(executor);
        if (!run_ready(executor, until))
            return;
        bool can_run = executor->n_ready > 0 && !executor->paused_for;
        if (!can_run) {
            executor_flush(executor);
            saves_look(executor);
        }
        struct async_op *expected = NULL;
        struct async_op *arrived = atomic_load_explicit(&executor->mailbox, memory_order_acquire);
        if (arrived) {
            arrived = atomic_exchange_explicit(&executor->mailbox, NULL, memory_order_acquire);
            take_mail(executor, arrived);
            continue;
        }
        if (can_run)
            continue;
        if (executor->n_async == 0 &&
            (likely(executor->plan->n_used_devices == 0) || device_may_end(executor)) &&
            (likely(!atomic_load_explicit(&executor->has_end_hooks, memory_order_acquire)) ||
             executor_end_hooks(executor))) {
            executor_end(executor);
            return;
        }
        if (atomic_compare_exchange_strong_explicit(&executor->mailbox, &expected, MAILBOX_IDLE,
                                                    memory_order_release, memory_order_relaxed))
            return; /* from here on, the next thread that posts becomes the owner */
    }
}

bool executor_mailbox_post(struct executor *executor, struct async_op *op) {
    struct async_op *head = atomic_load_explicit(&executor->mailbox, memory_order_relaxed);
    for (;;) {
        bool is_idle = head == MAILBOX_IDLE;
        op->next = is_idle ? NULL : head;
        if (atomic_compare_exchange_weak_explicit(&executor->mailbox, &head, is_idle ? NULL : op,
                                                  memory_order_acq_rel, memory_order_relaxed))
            return is_idle;
    }
}

void executor_post(struct async_op *op) {
    struct executor *executor = op->executor;
    if (executor_mailbox_post(executor, op))
        executor_wake(executor, op);
}
