/* Runs an execution: takes nodes from the ready stack one by one, and completes what the mailbox
 * brings.
 *
 *   pop a ready node → run it → propagate its outputs → push what became ready → … nothing ready:
 *   flush what peers should get; take the mailbox; mailbox empty: give up ownership, or end */
#include "worker/executor/executor.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/pool_cancel.h"
#include "common/base/pool_load.h"
#include "common/tensor/tensor_pieces.h"
#include "kernels/cost.h"
#include "kernels/variable.h"
#include "worker/executor/executor_internal.h"

enum {
    /* after how many nodes the owner looks at the clock and the mailbox; a heavy node counts as all
     * */
    CHECK_EVERY_NODES = 64,
    /* the time slice: an execution gives its pool thread back after it, so that others run, too */
    POOL_SLICE_NS = 2000000,
};

/* ---- failure ---- */

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

/* ---- propagation ---- */

static COLD void grow_ready(struct executor *executor) {
    executor->ready_capacity *= 2;
    executor->ready =
        xreallocarray(executor->ready, executor->ready_capacity, sizeof *executor->ready);
}

void executor_push_ready(struct executor *executor, struct iteration *iteration, uint32_t node,
                         bool is_dead) {
    if (unlikely(executor->n_ready == executor->ready_capacity))
        grow_ready(executor);
    executor->ready[executor->n_ready++] = (struct ready){iteration, node, is_dead};
    iteration->n_outstanding++;
}

/* An edge into a Merge: the first live value makes it ready, or the last dead one, or a dead
 * Enter. */
static void propagate_to_merge(struct executor *executor, struct iteration *iteration,
                               const struct plan_edge *edge, struct tensor *value, bool is_dead) {
    struct node_state *state = &iteration->states[edge->state];
    int32_t n_data = executor->plan->nodes[edge->dst].n_inputs;
    bool is_ready, all_dead = false;
    if (edge->flags & EDGE_CONTROL) {
        state->pending -= 2;
        all_dead = state->n_dead >= n_data;
        is_ready = state->pending == 0 || (state->pending == 1 && all_dead);
    } else if (is_dead) {
        state->n_dead = edge->flags & EDGE_FROM_ENTER ? n_data : state->n_dead + 1;
        all_dead = state->n_dead >= n_data;
        is_ready = state->pending == 1 && all_dead;
    } else if (state->pending & 1) {
        is_ready = state->pending == 1;
        state->pending &= ~1;
        struct tensor *slot = &iteration->slots[edge->slot];
        if (edge->flags & EDGE_MOVE)
            tensor_move(slot, value);
        else
            tensor_copy(slot, value);
    } else {
        is_ready = false; /* a second live value: the first one counts */
    }
    if (is_ready)
        executor_push_ready(executor, iteration, edge->dst, all_dead && state->pending == 1);
}

static inline void propagate(struct executor *executor, struct iteration *iteration,
                             const struct plan_edge *edge, const struct plan_edge *end,
                             struct tensor *outputs, bool is_dead) {
    for (; edge < end; edge++) {
        bool is_control = edge->flags & EDGE_CONTROL;
        struct tensor *value = is_control ? NULL : &outputs[edge->output];
        bool edge_dead = is_dead || (value && value->storage == TENSOR_NONE);
        if (unlikely(edge->flags & EDGE_TO_MERGE)) {
            propagate_to_merge(executor, iteration, edge, value, edge_dead);
            continue;
        }
        struct node_state *state = &iteration->states[edge->state];
        if (edge_dead)
            state->n_dead++;
        else if (!is_control) {
            struct tensor *slot = &iteration->slots[edge->slot];
            if (edge->flags & EDGE_MOVE)
                tensor_move(slot, value);
            else
                tensor_copy(slot, value);
        }
        if (--state->pending == 0)
            executor_push_ready(executor, iteration, edge->dst, state->n_dead > 0);
    }
}

void executor_propagate(struct executor *executor, struct iteration *iteration,
                        const struct plan_node *node, struct tensor *outputs, bool is_dead) {
    const struct plan_edge *edge = &executor->plan->edges[node->first_edge];
    propagate(executor, iteration, edge, edge + node->n_edges, outputs, is_dead);
    for (unsigned i = 0; i < node->n_outputs; i++)
        tensor_clear(&outputs[i]);
}

/* ---- running a node ---- */

/* The strings of a large tensor are released on the pool, in pieces. */
static void clear_inputs(struct executor *executor, struct tensor *inputs, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        if (unlikely(inputs[i].storage == TENSOR_BUFFER && inputs[i].dtype == DT_STRING))
            tensor_release_later(executor->execution->pool, &inputs[i]);
        else
            tensor_clear(&inputs[i]);
    }
}

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

/* The elements of the largest input, on which a kernel's cost depends. */
static inline int64_t largest_input(const struct plan_node *node, const struct tensor *inputs) {
    int64_t n = 0;
    for (unsigned i = 0; i < node->n_inputs; i++)
        n = MAX(n, inputs[i].n_elements);
    return n;
}

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

static void start_async(struct executor *executor, struct iteration *iteration,
                        const struct plan_node *node, bool on_pool);

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
        start_async(executor, iteration, node, false);
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
        start_async(executor, iteration, node, false);
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
            start_async(executor, iteration, node, false);
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

static inline void node_completed(struct executor *executor, struct iteration *iteration) {
    iteration->n_executed++;
    executor->n_executed++;
    if (--iteration->n_outstanding == 0 && iteration->frame && !executor->is_aborted)
        frame_iteration_idle(executor, iteration);
}

/* Does a failure of the node's kernel name the node already? */
static bool names_nodes(const struct plan_node *node) {
    return node->instance && (node->instance->def->flags & KERNEL_NAMES_NODES);
}

void executor_finish_node(struct executor *executor, struct iteration *iteration,
                          const struct plan_node *node, struct tensor *outputs, bool is_dead,
                          struct status *status_take) {
    clear_inputs(executor, &iteration->slots[node->first_slot], node->n_inputs);
    if (unlikely(status_take != NULL)) {
        clear_inputs(executor, outputs, node->n_outputs);
        executor_fail(executor, names_nodes(node) ? NULL : node, status_take);
    } else if (likely(!executor->is_aborted)) {
        executor_propagate(executor, iteration, node, outputs, is_dead);
    } else {
        clear_inputs(executor, outputs, node->n_outputs);
    }
    node_completed(executor, iteration);
}

void executor_finish_feed(struct executor *executor, struct iteration *iteration,
                          const struct plan_node *node, struct tensor *value) {
    const struct plan_edge *preset = &executor->plan->edges[node->first_edge + node->n_edges];
    if (!executor->is_aborted)
        propagate(executor, iteration, preset, &executor->plan->edges[(node + 1)->first_edge],
                  value, false);
    executor_finish_node(executor, iteration, node, value, false, NULL);
}

static struct kernel_ctx kernel_context(struct executor *executor, const struct plan_node *node,
                                        struct tensor *inputs) {
    return (struct kernel_ctx){.inputs = inputs,
                               .outputs = executor->outputs,
                               .instance = node->instance,
                               .host = &executor_host,
                               .pool = executor->execution->pool,
                               .host_data = executor,
                               .step_id = executor->execution->step_id};
}

/* For a kernel with a large input, or for an op whose cost does not follow from the sizes of its
 * inputs. */
static bool is_heavy(struct executor *executor, const struct plan_node *node,
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
        executor_push_ready(executor, iteration, edge->dst, state->n_dead > 0);
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

static void run_kernel(struct executor *executor, struct iteration *iteration,
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

static void begin_async(struct executor *executor, struct async_op *op, bool on_pool) {
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

static void start_async(struct executor *executor, struct iteration *iteration,
                        const struct plan_node *node, bool on_pool) {
    begin_async(executor, async_op_new(executor, iteration, node), on_pool);
}

static void flush_sends(struct executor *executor) {
    if (executor->wants_flush) {
        executor->wants_flush = false;
        rendezvous_flush(executor->execution->rendezvous);
    }
}

/* Sends what is queued for peers, and enqueues what is held back for devices, so that it does not
 * wait for what takes long. */
static void flush(struct executor *executor) {
    if (unlikely(executor->plan->n_used_devices > 0))
        device_flush(executor);
    flush_sends(executor);
}

/* The cost of running a node, counted in nodes. MUST_MOVE: the node has not run, because the
 * execution must move to the pool first. PAUSED: it has not run, because a device must catch up.
 * UNCOUNTED: a fetch, which becomes ready when a copy has ended, and must not change after which
 * nodes the others are rotated: a device replays what comes in the same order. */
enum { MUST_MOVE = 0, LIGHT = 1, HEAVY = CHECK_EVERY_NODES, NOT_RUN, PAUSED, UNCOUNTED };

/* As run_late_kernel, of an asynchronous kernel (CheckNumerics on a GPU). */
static struct status *start_late_kernel(struct executor *executor, struct iteration *iteration,
                                        const struct plan_node *node, struct tensor *inputs) {
    struct tensor ref;
    tensor_copy(&ref, &inputs[0]);
    struct status *st = deref_inputs(node, inputs);
    if (!st) {
        struct async_op *op = async_op_new(executor, iteration, node);
        tensor_move(&op->late, &ref);
        begin_async(executor, op, false);
    }
    tensor_clear(&ref);
    return st;
}

/* Replaces references among the inputs of the node that was on top of the ready stack by values,
 * unless the node takes references. NOT_RUN: the node is still to be run. */
COLD static unsigned read_references(struct executor *executor, struct iteration *iteration,
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

/* Runs a node that has no kernel: it hands values on, or takes part in control flow, sends,
 * receives, feeds and fetches. */
static void run_plain(struct executor *executor, struct iteration *iteration,
                      const struct plan_node *node, struct tensor *inputs, bool is_dead) {
    if (node->kind == PLAN_IDENTITY) {
        if (unlikely(executor->times_nodes))
            stats_node(executor, node, clock_now_ns(), 0, node->n_outputs ? &inputs[0] : NULL);
        executor_propagate(executor, iteration, node, inputs, false);
    } else if (node->kind == PLAN_RECV || node->kind == PLAN_COPY ||
               (node->kind == PLAN_FETCH && !is_dead && tensor_is_on_device(&inputs[0]))) {
        start_async(executor, iteration, node, false);
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

/* With late Recvs, values arrive while kernels run, and an end starts the next Recv. */
static bool awaits_late_values(const struct executor *executor) {
    return executor->plan->late_edges.n > 0 && executor->n_async > 0;
}

/* Hands a heavy kernel to the pool if other nodes are ready or may soon be, which is answered with
 * NOT_RUN. Otherwise the caller runs it, at the cost that is returned. What a device computes is
 * heavy for nobody here: one thread enqueues it, in an order that comes again and can be
 * replayed. */
static unsigned run_heavy(struct executor *executor, struct iteration *iteration,
                          const struct plan_node *node) {
    if (node->flags & PLAN_ENQUEUES)
        return LIGHT;
    if (node->kind == PLAN_KERNEL && (executor->n_ready > 0 || awaits_late_values(executor))) {
        start_async(executor, iteration, node, true);
        return NOT_RUN;
    }
    flush(executor);
    wake_submit_deferred();
    return HEAVY;
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
                            ? read_references(executor, item.iteration, node, inputs)
                            : NOT_RUN;
        if (cost != NOT_RUN)
            return cost;
    }
    if (likely(node->kind <= PLAN_KERNEL_ASYNC)) {
        unsigned cost = LIGHT;
        if (unlikely(largest_input(node, inputs) > node->cheap_elements) &&
            executor->execution->pool && is_heavy(executor, node, inputs)) {
            if (!executor->is_on_pool && executor->execution->inline_budget_ns > 0) {
                executor->n_ready++; /* the node stays on top */
                return MUST_MOVE;
            }
            cost = run_heavy(executor, item.iteration, node);
            if (cost == NOT_RUN)
                return LIGHT;
        }
        if (likely(node->kind == PLAN_KERNEL))
            run_kernel(executor, item.iteration, node, inputs, cost == HEAVY);
        else
            start_async(executor, item.iteration, node, false);
        return cost;
    }
    run_plain(executor, item.iteration, node, inputs, item.is_dead);
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
    flush(executor);
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
        executor_push_ready(executor, executor->root, i, false);
        run_next(executor);
    }
}

/* Runs what is ready. True: something has arrived, or nothing can run now. False: the time slice is
 * over, and the execution has moved to the pool. */
static bool run_ready(struct executor *executor, int64_t until_ns) {
    while (executor->n_ready > 0 && !executor->is_paused) {
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
        bool can_run = executor->n_ready > 0 && !executor->is_paused;
        if (!can_run) {
            flush(executor);
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
