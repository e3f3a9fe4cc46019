/* Reads references to variables when the node runs that uses their values, and hands on those of
 * kernels that forward one. */
#include "common/base/clock.h"
#include "kernels/variable.h"
#include "worker/executor/executor_node.h"

struct status *executor_read_reference(const struct tensor *ref, struct tensor *ret) {
    struct tensor value;
    TRY(ref->has_ref_shape ? variable_read_sized(variable_of(ref->ref), ref->n_elements, &value)
                           : variable_read(variable_of(ref->ref), &value));
    if (!ref->has_ref_shape || ref->n_elements != value.n_elements) {
        tensor_move(ret, &value);
        return NULL;
    }
    struct status *st = tensor_reshape(&value, tensor_shape(ref), ret);
    tensor_clear(&value);
    return st;
}

/* Replaces references by the values that they lead to now. A Switch passes its data on as they
 * are. */
static struct status *deref_inputs(const struct plan_node *node, struct tensor *inputs) {
    for (unsigned i = node->kind == PLAN_SWITCH || node->kind == PLAN_SWITCH_N; i < node->n_inputs;
         i++) {
        if (inputs[i].storage != TENSOR_REF || dtype_is_ref((enum dtype)node->node->in_types[i]))
            continue;
        if ((node->flags & PLAN_TAKES_UNINITIALIZED) &&
            !variable_is_initialized(variable_of(inputs[i].ref)))
            continue;
        struct tensor value;
        TRY(executor_read_reference(&inputs[i], &value));
        tensor_clear(&inputs[i]);
        tensor_move(&inputs[i], &value);
    }
    return NULL;
}

/* An Identity of references makes sure that there are values, and notes their shapes: later reads
 * see new values of the same shape. */
static struct status *check_references(const struct plan_node *node, struct tensor *inputs) {
    for (unsigned i = 0; i < node->n_inputs; i++) {
        struct tensor value;
        if (inputs[i].storage != TENSOR_REF)
            continue;
        TRY(executor_read_reference(&inputs[i], &value));
        if (!inputs[i].has_ref_shape)
            tensor_set_ref_shape(&inputs[i], tensor_shape(&value), value.n_elements);
        tensor_clear(&value);
    }
    return NULL;
}

/* Runs a kernel that forwards a reference: it computes on the value as it is now, and its output is
 * the reference again, under the output's shape. False: it has not run, because the execution must
 * move to the pool first. */
static bool run_late_kernel(struct executor *executor, struct iteration *iteration,
                            const struct plan_node *node, struct tensor *inputs) {
    struct tensor ref, *output = &executor->outputs[0];
    tensor_copy(&ref, &inputs[0]);
    struct status *st = deref_inputs(node, inputs);
    if (!st && !executor->is_on_pool && executor->execution->inline_budget_ns > 0 &&
        executor->execution->pool && largest_input(node, inputs) > node->cheap_elements) {
        tensor_clear(&inputs[0]);
        tensor_move(&inputs[0], &ref);
        return false;
    }
    struct kernel_ctx ctx = kernel_context(executor, node, inputs);
    struct kernel_start start = {0};
    int64_t busy_ns = 0;
    if (unlikely(executor->is_timed))
        start = kernel_start_now();
    ctx.status = st;
    if (!st)
        node->compute(&ctx);
    if (unlikely(executor->is_timed))
        busy_ns = executor_slow_down(executor, start);
    if (!ctx.status && ref.storage == TENSOR_REF) {
        tensor_set_ref_shape(&ref, tensor_shape(output), output->n_elements);
        tensor_clear(output);
        tensor_move(output, &ref);
    }
    tensor_clear(&ref);
    if (unlikely(executor->times_nodes)) {
        struct node_stats *row = stats_node(executor, node, start.at_ns, clock_now_ns(), output);
        if (row)
            row->busy_ns = busy_ns;
    }
    executor_finish_node(executor, iteration, node, executor->outputs, false, ctx.status);
    return true;
}

/* As run_late_kernel, of an asynchronous kernel (CheckNumerics on a GPU). */
static struct status *start_late_kernel(struct executor *executor, struct iteration *iteration,
                                        const struct plan_node *node, struct tensor *inputs) {
    struct tensor ref;
    tensor_copy(&ref, &inputs[0]);
    struct status *st = deref_inputs(node, inputs);
    if (!st) {
        struct async_op *op = async_op_new(executor, iteration, node);
        tensor_move(&op->late, &ref);
        executor_begin_async(executor, op, false);
    }
    tensor_clear(&ref);
    return st;
}

unsigned executor_read_references(struct executor *executor, struct iteration *iteration,
                                  const struct plan_node *node, struct tensor *inputs) {
    bool is_late = node->flags & PLAN_LATE_READ;
    if (is_late && node->kind == PLAN_KERNEL && inputs[0].storage == TENSOR_REF) {
        if (run_late_kernel(executor, iteration, node, inputs))
            return LIGHT;
        executor->n_ready++;
        return MUST_MOVE;
    }
    bool starts = is_late && node->kind == PLAN_KERNEL_ASYNC && inputs[0].storage == TENSOR_REF;
    bool keeps = (is_late && node->kind == PLAN_IDENTITY) ||
                 (node->kind == PLAN_FETCH && !executor->execution->is_partial);
    struct status *st = starts  ? start_late_kernel(executor, iteration, node, inputs)
                        : keeps ? check_references(node, inputs)
                                : deref_inputs(node, inputs);
    if (!st)
        return starts ? LIGHT : NOT_RUN;
    executor_fail(executor, node, st);
    clear_inputs(executor, inputs, node->n_inputs);
    node_completed(executor, iteration);
    return LIGHT;
}
