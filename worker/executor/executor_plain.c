/* Runs nodes that have no kernel: they hand values on, take part in control flow, send, receive,
 * feed and fetch. */
#include "common/base/clock.h"
#include "worker/executor/executor_node.h"

static COLD struct status *bad_predicate(const struct tensor *pred) {
    struct str shape = STR_INIT;
    shape_print(tensor_shape(pred), &shape);
    struct status *st =
        pred->dtype != DT_BOOL
            ? status_invalid("The second input must be a bool, but it is %s",
                             dtype_name((enum dtype)pred->dtype))
            : status_invalid("The second input must be a scalar, but it has shape %s",
                             str_text(&shape));
    str_fini(&shape);
    return st;
}

static void run_switch(const struct plan_node *node, struct tensor *inputs,
                       struct tensor *outputs) {
    bool taken = *(const bool *)tensor_cdata(&inputs[1]);
    tensor_move(&outputs[taken], &inputs[0]);
}

/* An index out of range takes the last output. */
static void run_switch_n(const struct plan_node *node, struct tensor *inputs,
                         struct tensor *outputs) {
    int32_t index = *(const int32_t *)tensor_cdata(&inputs[1]);
    tensor_move(&outputs[index >= 0 && index < node->n_outputs ? index : node->n_outputs - 1],
                &inputs[0]);
}

static void run_merge(const struct plan_node *node, struct tensor *inputs, struct tensor *outputs) {
    for (int32_t i = 0; i < node->n_inputs; i++)
        if (inputs[i].storage != TENSOR_NONE) {
            tensor_move(&outputs[0], &inputs[i]);
            tensor_init_scalar_i32(&outputs[1], i);
            return;
        }
}

void executor_finish_fetch(struct executor *executor, const struct plan_node *node,
                           struct tensor *value, bool is_dead) {
    struct tensor *fetch = &executor->execution->fetches[node->aux];
    if (unlikely(executor->execution->is_partial)) {
        if (is_dead) {
            tensor_clear(value);
            tensor_init_dead(value);
        }
        partial_hand_out(executor, node->aux, value);
        return;
    }
    tensor_clear(fetch); /* two nodes may name one place */
    if (is_dead)
        tensor_init_dead(fetch);
    else
        tensor_move(fetch, value);
}

/* False: the value is large, or the receiver has not taken earlier values. Then the Send waits for
 * a grant, as an asynchronous operation. */
static bool run_send(struct executor *executor, struct iteration *iteration,
                     const struct plan_node *node, struct tensor *inputs, bool is_dead) {
    executor->wants_flush = true;
    if (is_dead) {
        tensor_clear(&inputs[0]); /* a control input may be what is dead */
        tensor_init_dead(&inputs[0]);
    } else if (dtype_is_object((enum dtype)inputs[0].dtype) ||
               tensor_size_bytes(&inputs[0]) > RENDEZVOUS_PUSH_LIMIT_BYTES) {
        executor_start_async(executor, iteration, node, false);
        return false;
    }
    bool is_sent;
    size_t row = unlikely(executor->stats != NULL)
                     ? stats_send_begin(executor, iteration, node, &inputs[0])
                     : 0;
    struct status *st =
        rendezvous_try_send(executor->execution->rendezvous, &executor->plan->channels[node->aux],
                            iteration->frame_iter, &inputs[0], &is_sent);
    if (unlikely(executor->stats != NULL && (st || is_sent)))
        stats_send_end(executor, row);
    else if (unlikely(executor->stats != NULL))
        stats_send_undo(executor, row);
    if (st)
        executor_fail(executor, node, st);
    else if (unlikely(!is_sent))
        executor_start_async(executor, iteration, node, false);
    return st || is_sent;
}

/* Runs every node except kernels and Recv. True: the caller propagates the outputs. */
static bool run_special(struct executor *executor, struct iteration *iteration,
                        const struct plan_node *node, struct tensor *inputs, struct tensor *outputs,
                        bool is_dead) {
    switch ((enum plan_kind)node->kind) {
    case PLAN_CONST:
        tensor_copy(&outputs[0], &executor->plan->constants[node->aux]);
        return true;
    case PLAN_SWITCH:
        if (unlikely(inputs[1].dtype != DT_BOOL || inputs[1].rank != 0))
            executor_fail(executor, node, bad_predicate(&inputs[1]));
        else
            run_switch(node, inputs, outputs);
        return true;
    case PLAN_SWITCH_N:
        if (unlikely(inputs[1].dtype != DT_INT32 || inputs[1].rank != 0))
            executor_fail(executor, node,
                          status_invalid("branch_index must be scalar, and an int32"));
        else
            run_switch_n(node, inputs, outputs);
        return true;
    case PLAN_MERGE:
        if (!is_dead)
            run_merge(node, inputs, outputs);
        return true;
    case PLAN_ENTER:
        frame_enter(executor, iteration, node, &inputs[0], is_dead);
        return false;
    case PLAN_EXIT:
        frame_exit(executor, iteration, node, &inputs[0], is_dead);
        return false;
    case PLAN_NEXT_ITERATION:
        frame_next_iteration(executor, iteration, node, &inputs[0], is_dead);
        return false;
    case PLAN_SEND:
        return run_send(executor, iteration, node, inputs, is_dead);
    case PLAN_FEED:
        if (unlikely(executor->execution->is_partial)) {
            executor_start_async(executor, iteration, node, false);
            return false;
        }
        tensor_copy(&outputs[0], &executor->execution->feeds[node->aux]);
        return true;
    case PLAN_FETCH:
        executor_finish_fetch(executor, node, &inputs[0], is_dead);
        return true;
    default:
        return true; /* NOOP, CONTROL_TRIGGER */
    }
}

void executor_run_plain(struct executor *executor, struct iteration *iteration,
                        const struct plan_node *node, struct tensor *inputs, bool is_dead) {
    if (node->kind == PLAN_IDENTITY) {
        if (unlikely(executor->times_nodes))
            stats_node(executor, node, clock_now_ns(), 0, node->n_outputs ? &inputs[0] : NULL);
        executor_propagate(executor, iteration, node, inputs, false);
    } else if (node->kind == PLAN_RECV || node->kind == PLAN_COPY ||
               (node->kind == PLAN_FETCH && !is_dead && tensor_is_on_device(&inputs[0]))) {
        executor_start_async(executor, iteration, node, false);
        return;
    } else {
        if (unlikely(executor->times_nodes) && node->kind != PLAN_SEND)
            stats_node(executor, node, clock_now_ns(), 0, NULL);
        if (run_special(executor, iteration, node, inputs, executor->outputs, is_dead)) {
            clear_inputs(executor, inputs, node->n_inputs);
            executor_propagate(executor, iteration, node, executor->outputs,
                               is_dead && node->kind != PLAN_CONTROL_TRIGGER);
        } else if (node->kind == PLAN_SEND || node->kind == PLAN_FEED) {
            return; /* it completes by itself, later */
        }
    }
    node_completed(executor, iteration);
}
