/* Runs kernels: on the owner's thread, or, where they are heavy, on the pool. */
#include "common/base/clock.h"
#include "common/base/pool_cancel.h"
#include "kernels/cost.h"
#include "worker/executor/executor_node.h"

bool executor_is_heavy(struct executor *executor, const struct plan_node *node,
                       struct tensor *inputs) {
    struct kernel_ctx ctx = kernel_context(executor, node, inputs);
    return cost_is_heavy(&ctx);
}

/* Completes a kernel that wrote its output into its consumer's slot. A value that was just written
 * field by field is not moved in large pieces, because the core would wait for that. */
static inline void finish_direct(struct executor *executor, struct iteration *iteration,
                                 const struct plan_node *node, const struct plan_edge *edge) {
    struct node_state *state = &iteration->states[edge->state];
    clear_inputs(executor, &iteration->slots[node->first_slot], node->n_inputs);
    if (--state->pending == 0)
        push_ready(executor, iteration, edge->dst, state->n_dead > 0);
    node_completed(executor, iteration);
}

static bool is_unwanted(void *arg) { return executor_is_unwanted(arg); }

/* Half an update of a variable is worse than none. */
static bool has_effects(const struct plan_node *node) {
    if (node->instance->def->flags & KERNEL_STOPPABLE)
        return false;
    if ((node->instance->def->flags & (KERNEL_STATEFUL | KERNEL_ASYNC)) ||
        node_is_stateful(node->node))
        return true;
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (dtype_is_ref((enum dtype)node->node->in_types[i]))
            return true;
    return false;
}

void executor_compute_long(const struct plan_node *node, struct kernel_ctx *ctx) {
    if (has_effects(node)) {
        node->compute(ctx);
        return;
    }
    struct pool_cancel cancel = {is_unwanted, ctx->host_data};
    const struct pool_cancel *before = pool_set_cancel(&cancel);
    node->compute(ctx);
    pool_set_cancel(before);
    if (unlikely(is_unwanted(cancel.arg)) && !ctx->status)
        ctx->status = status_new(STATUS_CANCELLED, "The step was cancelled while this op ran");
}

/* A kernel of a traced step, or one that a test makes slower, has run. */
static void end_timed(struct executor *executor, const struct plan_node *node,
                      struct kernel_start start, const struct tensor *output) {
    int64_t busy_ns = executor_slow_down(executor, start);
    if (!executor->times_nodes)
        return;
    struct node_stats *row = stats_node(executor, node, start.at_ns, clock_now_ns(), output);
    if (row)
        row->busy_ns = busy_ns;
    if (node->flags & PLAN_ENQUEUES)
        stats_enqueue_end(executor, node, true);
}

void executor_run_kernel(struct executor *executor, struct iteration *iteration,
                         const struct plan_node *node, struct tensor *inputs, bool is_long) {
    const struct plan_edge *edge =
        node->flags & PLAN_DIRECT ? &executor->plan->edges[node->first_edge] : NULL;
    struct kernel_ctx ctx = kernel_context(executor, node, inputs);
    if (edge)
        ctx.outputs = &iteration->slots[edge->slot];
    struct kernel_start start = {0};
    if (unlikely(executor->is_timed))
        start = kernel_start_now();
    if (unlikely(executor->times_nodes && (node->flags & PLAN_ENQUEUES)))
        stats_enqueue_begin(executor, node);
    if (unlikely(is_long))
        executor_compute_long(node, &ctx);
    else
        node->compute(&ctx);
    if (unlikely(executor->is_timed))
        end_timed(executor, node, start, node->n_outputs ? &ctx.outputs[0] : NULL);
    if (edge && likely(!ctx.status && !executor->is_aborted && ctx.outputs->storage != TENSOR_NONE))
        finish_direct(executor, iteration, node, edge);
    else
        executor_finish_node(executor, iteration, node, ctx.outputs, false, ctx.status);
}

void executor_begin_async(struct executor *executor, struct async_op *op, bool on_pool) {
    const struct plan_node *node = op->node;
    executor->n_async++;
    if (on_pool) {
        async_start_on_pool(op);
        return;
    }
    bool is_enqueued = unlikely(executor->times_nodes) &&
                       ((node->flags & PLAN_ENQUEUES) || node->kind == PLAN_COPY);
    if (unlikely(is_enqueued))
        stats_enqueue_begin(executor, node);
    bool has_ended = async_start(op);
    if (has_ended)
        async_complete(op);
    if (unlikely(is_enqueued))
        stats_enqueue_end(executor, node, has_ended);
}

void executor_start_async(struct executor *executor, struct iteration *iteration,
                          const struct plan_node *node, bool on_pool) {
    executor_begin_async(executor, async_op_new(executor, iteration, node), on_pool);
}

/* With late Recvs, values arrive while kernels run, and an end starts the next Recv. */
static bool awaits_late_values(const struct executor *executor) {
    return executor->plan->late_edges.n > 0 && executor->n_async > 0;
}

unsigned executor_run_heavy(struct executor *executor, struct iteration *iteration,
                            const struct plan_node *node) {
    if (node->flags & PLAN_ENQUEUES)
        return LIGHT;
    if (node->kind == PLAN_KERNEL && (executor->n_ready > 0 || awaits_late_values(executor))) {
        executor_start_async(executor, iteration, node, true);
        return NOT_RUN;
    }
    executor_flush(executor);
    wake_submit_deferred();
    return HEAVY;
}
