/* What running one node is made of, shared by the executor's files that run nodes. All of it is
 * called by the owner. */
#ifndef MILLRACE_WORKER_EXECUTOR_EXECUTOR_NODE_H
#define MILLRACE_WORKER_EXECUTOR_EXECUTOR_NODE_H

#include "common/tensor/tensor_pieces.h"
#include "worker/executor/executor_internal.h"

/* after how many nodes the owner looks at the clock and the mailbox; a heavy node counts as all */
enum { CHECK_EVERY_NODES = 64 };

/* The cost of running a node, counted in nodes. MUST_MOVE: the node has not run, because the
 * execution must move to the pool first. PAUSED: it has not run, because a device must catch up.
 * UNCOUNTED: a fetch, which becomes ready when a copy has ended, and must not change after which
 * nodes the others are rotated: a device replays what comes in the same order. */
enum { MUST_MOVE = 0, LIGHT = 1, HEAVY = CHECK_EVERY_NODES, NOT_RUN, PAUSED, UNCOUNTED };

/* ---- executor_propagate.c ---- */
COLD void executor_grow_ready(struct executor *executor); /* doubles the ready stack */

/* ---- here, because they run once for each node ---- */
static inline void push_ready(struct executor *executor, struct iteration *iteration, uint32_t node,
                              bool is_dead) {
    if (unlikely(executor->n_ready == executor->ready_capacity))
        executor_grow_ready(executor);
    executor->ready[executor->n_ready++] = (struct ready){iteration, node, is_dead};
    iteration->n_outstanding++;
}

/* The strings of a large tensor are released on the pool, in pieces. */
static inline void clear_inputs(struct executor *executor, struct tensor *inputs, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        if (unlikely(inputs[i].storage == TENSOR_BUFFER && inputs[i].dtype == DT_STRING))
            tensor_release_later(executor->execution->pool, &inputs[i]);
        else
            tensor_clear(&inputs[i]);
    }
}

static inline struct kernel_ctx
kernel_context(struct executor *executor, const struct plan_node *node, struct tensor *inputs) {
    return (struct kernel_ctx){.inputs = inputs,
                               .outputs = executor->outputs,
                               .instance = node->instance,
                               .host = &executor_host,
                               .pool = executor->execution->pool,
                               .host_data = executor,
                               .step_id = executor->execution->step_id};
}

/* The elements of the largest input, on which a kernel's cost depends. */
static inline int64_t largest_input(const struct plan_node *node, const struct tensor *inputs) {
    int64_t n = 0;
    for (unsigned i = 0; i < node->n_inputs; i++)
        n = MAX(n, inputs[i].n_elements);
    return n;
}

/* Counts a node off whose outputs have been propagated. */
static inline void node_completed(struct executor *executor, struct iteration *iteration) {
    iteration->n_executed++;
    executor->n_executed++;
    if (--iteration->n_outstanding == 0 && iteration->frame && !executor->is_aborted)
        frame_iteration_idle(executor, iteration);
}

/* ---- executor.c ---- */
/* Sends what is queued for peers, and enqueues what is held back for devices, so that it does not
 * wait for what takes long. */
void executor_flush(struct executor *executor);

/* ---- executor_kernel.c ---- */
/* For a kernel with a large input, or for an op whose cost does not follow from the sizes of its
 * inputs. */
bool executor_is_heavy(struct executor *executor, const struct plan_node *node,
                       struct tensor *inputs);
/* Runs a kernel that ends where it runs, and completes its node. */
void executor_run_kernel(struct executor *executor, struct iteration *iteration,
                         const struct plan_node *node, struct tensor *inputs, bool is_long);
/* Hands a heavy kernel to the pool if other nodes are ready or may soon be. The result is then
 * NOT_RUN. Otherwise the caller runs it, at the cost that is returned. What a device computes is
 * heavy for nobody here: one thread enqueues it, in an order that comes again and can be
 * replayed. */
unsigned executor_run_heavy(struct executor *executor, struct iteration *iteration,
                            const struct plan_node *node);
/* Starts a node that may end later, or a kernel on the pool. */
void executor_start_async(struct executor *executor, struct iteration *iteration,
                          const struct plan_node *node, bool on_pool);
/* The same with a record that has been made: executor_async.c's async_op_new. */
void executor_begin_async(struct executor *executor, struct async_op *op, bool on_pool);

/* ---- executor_plain.c ---- */
/* Runs a node that has no kernel: it hands values on, or takes part in control flow, sends,
 * receives, feeds and fetches. */
void executor_run_plain(struct executor *executor, struct iteration *iteration,
                        const struct plan_node *node, struct tensor *inputs, bool is_dead);

/* ---- executor_references.c ---- */
/* Replaces references among the inputs of the node that was on top of the ready stack by values,
 * unless the node takes references. NOT_RUN: the node is still to be run. */
COLD unsigned executor_read_references(struct executor *executor, struct iteration *iteration,
                                       const struct plan_node *node, struct tensor *inputs);

#endif
