/* The executor's heart: a ready stack, one node after another, and the mailbox. See executor.h
 * and worker/README.md.
 *
 *   pop a ready node → run it → hand its outputs on → what became ready is pushed → … nothing
 *   ready: flush what peers should get; take the mailbox; mailbox empty: let go of the step, or
 *   end it */
#include "worker/executor/executor.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "kernels/cost.h"
#include "kernels/variable.h"
#include "worker/executor/executor_internal.h"

enum {
    /* how often the owner looks at the clock, and at what has arrived; after a heavy one, too */
    CHECK_EVERY_NODES = 64,
    /* a step gives its pool thread back after so long, so that others get their turn */
    POOL_QUANTUM_NS = 2000000,
};

/* ---- failure ---- */

void step_fail(struct step *step, const struct plan_node *node, struct status *status_take) {
    if (step->status) {
        status_unref(status_take);
        return;
    }
    step->status = node ? status_suffix_take(status_take, "\n\t [[{{node %s}}]]", node->node->name)
                        : status_take;
    step->is_aborted = true;
    atomic_store_explicit(&step->has_failed, true, memory_order_relaxed);
    async_cancel_waits(step);
}

/* ---- propagation ---- */

static COLD void grow_ready(struct step *step) {
    step->ready_capacity *= 2;
    step->ready = xreallocarray(step->ready, step->ready_capacity, sizeof *step->ready);
}

void step_push_ready(struct step *step, struct iteration *iteration, uint32_t node, bool is_dead) {
    if (unlikely(step->n_ready == step->ready_capacity))
        grow_ready(step);
    step->ready[step->n_ready++] = (struct ready){iteration, node, is_dead};
    iteration->n_outstanding++;
}

/* An edge into a Merge: the first live value makes it ready, or the last dead one, or a dead
 * Enter. */
static void propagate_to_merge(struct step *step, struct iteration *iteration,
                               const struct plan_edge *edge, struct tensor *value, bool is_dead) {
    struct node_state *state = &iteration->states[edge->state];
    int32_t n_data = step->plan->nodes[edge->dst].n_inputs;
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
        step_push_ready(step, iteration, edge->dst, all_dead && state->pending == 1);
}

static inline void propagate(struct step *step, struct iteration *iteration,
                             const struct plan_edge *edge, const struct plan_edge *end,
                             struct tensor *outputs, bool is_dead) {
    for (; edge < end; edge++) {
        bool is_control = edge->flags & EDGE_CONTROL;
        struct tensor *value = is_control ? NULL : &outputs[edge->output];
        bool edge_dead = is_dead || (value && value->storage == TENSOR_NONE);
        if (unlikely(edge->flags & EDGE_TO_MERGE)) {
            propagate_to_merge(step, iteration, edge, value, edge_dead);
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
            step_push_ready(step, iteration, edge->dst, state->n_dead > 0);
    }
}

void step_propagate(struct step *step, struct iteration *iteration, const struct plan_node *node,
                    struct tensor *outputs, bool is_dead) {
    const struct plan_edge *edge = &step->plan->edges[node->first_edge];
    propagate(step, iteration, edge, edge + node->n_edges, outputs, is_dead);
    for (unsigned i = 0; i < node->n_outputs; i++)
        tensor_clear(&outputs[i]);
}

/* ---- running a node ---- */

static void clear_inputs(struct tensor *inputs, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        tensor_clear(&inputs[i]);
}

/* Brings what constants and feeds settle. A second time it does nothing: the step may have moved
 * to the pool in between. */
static void fetch_settled(const struct step *step, const struct plan_node *node,
                          struct tensor *inputs) {
    const struct plan_settled *row = &step->plan->settled[node->first_settled],
                              *end = row + node->n_settled;
    for (; row < end; row++)
        if (inputs[row->input].storage == TENSOR_NONE)
            tensor_copy(&inputs[row->input], row->is_feed ? &step->run->feeds[row->index]
                                                          : &step->plan->constants[row->index]);
}

/* Replaces references by the values they lead to now. A late read only makes sure that there is
 * one; a Switch hands its data on as they are. */
static struct status *deref_inputs(const struct plan_node *node, struct tensor *inputs) {
    for (unsigned i = node->kind == PLAN_SWITCH || node->kind == PLAN_SWITCH_N; i < node->n_inputs;
         i++) {
        if (inputs[i].storage != TENSOR_REF || dtype_is_ref((enum dtype)node->node->in_types[i]))
            continue;
        struct tensor value;
        TRY(variable_read(variable_of(inputs[i].ref), &value));
        if (node->flags & PLAN_LATE_READ) {
            tensor_clear(&value);
            return NULL;
        }
        tensor_clear(&inputs[i]);
        tensor_move(&inputs[i], &value);
    }
    return NULL;
}

/* The elements of the largest input, which a kernel's cost goes by. */
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

static void run_fetch(struct step *step, const struct plan_node *node, struct tensor *inputs,
                      bool is_dead) {
    struct tensor *fetch = &step->run->fetches[node->aux];
    if (unlikely(step->run->is_partial)) {
        if (is_dead) {
            tensor_clear(&inputs[0]);
            tensor_init_dead(&inputs[0]);
        }
        partial_hand_out(step, node->aux, &inputs[0]);
        return;
    }
    tensor_clear(fetch); /* two nodes may name one place */
    if (is_dead)
        tensor_init_dead(fetch);
    else
        tensor_move(fetch, &inputs[0]);
}

static void start_async(struct step *step, struct iteration *iteration,
                        const struct plan_node *node, bool on_pool);

/* False: the value is large, or its receiver has not taken what came before it: it waits for a
 * grant, as an asynchronous operation. */
static bool run_send(struct step *step, struct iteration *iteration, const struct plan_node *node,
                     struct tensor *inputs, bool is_dead) {
    step->wants_flush = true;
    if (is_dead) {
        tensor_clear(&inputs[0]); /* a control input may be what is dead */
        tensor_init_dead(&inputs[0]);
    } else if (dtype_is_object((enum dtype)inputs[0].dtype) ||
               tensor_size_bytes(&inputs[0]) > RENDEZVOUS_PUSH_LIMIT_BYTES) {
        start_async(step, iteration, node, false);
        return false;
    }
    bool is_sent;
    struct status *st = rendezvous_try_send(step->run->rendezvous, &step->plan->channels[node->aux],
                                            iteration->frame_iter, &inputs[0], &is_sent);
    if (st)
        step_fail(step, node, st);
    else if (unlikely(!is_sent))
        start_async(step, iteration, node, false);
    return st || is_sent;
}

/* Everything but kernels and Recv. True when outputs are to be propagated by the caller. */
static bool run_special(struct step *step, struct iteration *iteration,
                        const struct plan_node *node, struct tensor *inputs, struct tensor *outputs,
                        bool is_dead) {
    switch ((enum plan_kind)node->kind) {
    case PLAN_CONST:
        tensor_copy(&outputs[0], &step->plan->constants[node->aux]);
        return true;
    case PLAN_SWITCH:
        if (unlikely(inputs[1].dtype != DT_BOOL || inputs[1].rank != 0))
            step_fail(step, node, bad_predicate(&inputs[1]));
        else
            run_switch(node, inputs, outputs);
        return true;
    case PLAN_SWITCH_N:
        if (unlikely(inputs[1].dtype != DT_INT32 || inputs[1].rank != 0))
            step_fail(step, node, status_invalid("branch_index must be scalar, and an int32"));
        else
            run_switch_n(node, inputs, outputs);
        return true;
    case PLAN_MERGE:
        if (!is_dead)
            run_merge(node, inputs, outputs);
        return true;
    case PLAN_ENTER:
        frame_enter(step, iteration, node, &inputs[0], is_dead);
        return false;
    case PLAN_EXIT:
        frame_exit(step, iteration, node, &inputs[0], is_dead);
        return false;
    case PLAN_NEXT_ITERATION:
        frame_next_iteration(step, iteration, node, &inputs[0], is_dead);
        return false;
    case PLAN_SEND:
        return run_send(step, iteration, node, inputs, is_dead);
    case PLAN_FEED:
        if (unlikely(step->run->is_partial)) {
            start_async(step, iteration, node, false);
            return false;
        }
        tensor_copy(&outputs[0], &step->run->feeds[node->aux]);
        return true;
    case PLAN_FETCH:
        run_fetch(step, node, inputs, is_dead);
        return true;
    default:
        return true; /* NOOP, CONTROL_TRIGGER */
    }
}

static inline void node_completed(struct step *step, struct iteration *iteration) {
    iteration->n_executed++;
    step->n_executed++;
    if (--iteration->n_outstanding == 0 && iteration->frame && !step->is_aborted)
        frame_iteration_settled(step, iteration);
}

void step_finish_node(struct step *step, struct iteration *iteration, const struct plan_node *node,
                      struct tensor *outputs, bool is_dead, struct status *status_take) {
    clear_inputs(&iteration->slots[node->first_slot], node->n_inputs);
    if (unlikely(status_take != NULL)) {
        clear_inputs(outputs, node->n_outputs);
        step_fail(step, node, status_take);
    } else if (likely(!step->is_aborted)) {
        step_propagate(step, iteration, node, outputs, is_dead);
    } else {
        clear_inputs(outputs, node->n_outputs);
    }
    node_completed(step, iteration);
}

void step_finish_feed(struct step *step, struct iteration *iteration, const struct plan_node *node,
                      struct tensor *value) {
    const struct plan_edge *settled = &step->plan->edges[node->first_edge + node->n_edges];
    if (!step->is_aborted)
        propagate(step, iteration, settled, &step->plan->edges[(node + 1)->first_edge], value,
                  false);
    step_finish_node(step, iteration, node, value, false, NULL);
}

static struct kernel_ctx kernel_context(struct step *step, const struct plan_node *node,
                                        struct tensor *inputs) {
    return (struct kernel_ctx){.inputs = inputs,
                               .outputs = step->outputs,
                               .instance = node->instance,
                               .host = &executor_host,
                               .pool = step->run->pool,
                               .step = step,
                               .step_id = step->run->step_id};
}

/* Of a kernel with an input that is large, or of an op whose inputs' sizes do not tell. */
static bool is_heavy(struct step *step, const struct plan_node *node, struct tensor *inputs) {
    struct kernel_ctx ctx = kernel_context(step, node, inputs);
    return cost_is_heavy(&ctx);
}

/* Its output lies where it belongs. What was just written field by field is not moved in large
 * pieces, for which the core would wait. */
static inline void finish_direct(struct step *step, struct iteration *iteration,
                                 const struct plan_node *node, const struct plan_edge *edge) {
    struct node_state *state = &iteration->states[edge->state];
    clear_inputs(&iteration->slots[node->first_slot], node->n_inputs);
    if (--state->pending == 0)
        step_push_ready(step, iteration, edge->dst, state->n_dead > 0);
    node_completed(step, iteration);
}

static void run_kernel(struct step *step, struct iteration *iteration, const struct plan_node *node,
                       struct tensor *inputs) {
    const struct plan_edge *edge =
        node->flags & PLAN_DIRECT ? &step->plan->edges[node->first_edge] : NULL;
    struct kernel_ctx ctx = kernel_context(step, node, inputs);
    if (edge)
        ctx.outputs = &iteration->slots[edge->slot];
    int64_t start_ns = unlikely(step->stats != NULL) ? clock_now_ns() : 0;
    node->compute(&ctx);
    if (unlikely(step->stats != NULL))
        stats_node(step, node, start_ns, clock_now_ns(), node->n_outputs ? &ctx.outputs[0] : NULL);
    if (edge && likely(!ctx.status && !step->is_aborted && ctx.outputs->storage != TENSOR_NONE))
        finish_direct(step, iteration, node, edge);
    else
        step_finish_node(step, iteration, node, ctx.outputs, false, ctx.status);
}

static void start_async(struct step *step, struct iteration *iteration,
                        const struct plan_node *node, bool on_pool) {
    struct async_op *op = async_op_new(step, iteration, node);
    step->n_async++;
    if (on_pool) {
        async_start_on_pool(op);
        return;
    }
    if (async_start(op))
        async_home(op);
}

/* What waits to be sent must not wait for what takes long. */
static void flush(struct step *step) {
    if (step->wants_flush) {
        step->wants_flush = false;
        rendezvous_flush(step->run->rendezvous);
    }
}

/* What a node has cost, as nodes; MUST_MOVE: it has not run, the step must first move to the
 * pool. */
enum { MUST_MOVE = 0, LIGHT = 1, HEAVY = CHECK_EVERY_NODES };

/* Runs the node on top of the ready stack. */
static unsigned run_next(struct step *step) {
    struct ready item = step->ready[--step->n_ready];
    const struct plan_node *node = &step->plan->nodes[item.node];
    struct tensor *inputs = &item.iteration->slots[node->first_slot];
    struct status *st;
    if (unlikely(item.is_dead && !(node->flags & PLAN_TAKES_DEAD))) {
        clear_inputs(inputs, node->n_inputs);
        step_propagate(step, item.iteration, node, step->outputs, true);
        node_completed(step, item.iteration);
        return LIGHT;
    }
    if (node->n_settled > 0 && !item.is_dead)
        fetch_settled(step, node, inputs);
    if (unlikely(node->flags & PLAN_DEREF) && !item.is_dead && (st = deref_inputs(node, inputs))) {
        step_fail(step, node, st);
        clear_inputs(inputs, node->n_inputs);
        node_completed(step, item.iteration);
        return LIGHT;
    }
    if (likely(node->kind <= PLAN_KERNEL_ASYNC)) {
        unsigned cost = LIGHT;
        if (unlikely(largest_input(node, inputs) > node->cheap_elements) && step->run->pool &&
            is_heavy(step, node, inputs)) {
            if (!step->is_on_pool && step->run->inline_budget_ns > 0) {
                step->n_ready++; /* stays on top */
                return MUST_MOVE;
            }
            if (step->n_ready > 0 && node->kind == PLAN_KERNEL) {
                start_async(step, item.iteration, node, true);
                return LIGHT;
            }
            flush(step);
            steps_woken_go_first();
            cost = HEAVY;
        }
        if (likely(node->kind == PLAN_KERNEL))
            run_kernel(step, item.iteration, node, inputs);
        else
            start_async(step, item.iteration, node, false);
        return cost;
    }
    if (node->kind == PLAN_IDENTITY) {
        if (unlikely(step->stats != NULL))
            stats_node(step, node, clock_now_ns(), 0, node->n_outputs ? &inputs[0] : NULL);
        step_propagate(step, item.iteration, node, inputs, false);
    } else if (node->kind == PLAN_RECV) {
        start_async(step, item.iteration, node, false);
        return LIGHT;
    } else {
        if (unlikely(step->stats != NULL))
            stats_node(step, node, clock_now_ns(), 0, NULL);
        if (run_special(step, item.iteration, node, inputs, step->outputs, item.is_dead)) {
            clear_inputs(inputs, node->n_inputs);
            step_propagate(step, item.iteration, node, step->outputs,
                           item.is_dead && node->kind != PLAN_CONTROL_TRIGGER);
        } else if (node->kind == PLAN_SEND || node->kind == PLAN_FEED) {
            return LIGHT; /* it comes home by itself */
        }
    }
    node_completed(step, item.iteration);
    return LIGHT;
}

/* ---- ownership ---- */

static void drop_ready(struct step *step) { step->n_ready = 0; }

/* Takes in what the mailbox brought. */
static void take_mail(struct step *step, struct async_op *ops) {
    while (ops) {
        struct async_op *op = ops;
        ops = op->next;
        if (op->is_cancel) {
            step_fail(step, NULL, status_ref(step->asked_why));
            continue;
        }
        async_home(op);
    }
}

void step_move_to_pool(struct step *step) {
    flush(step);
    step->is_on_pool = true;
    pool_submit(step->run->pool, &step->task);
}

/* The node that has waited longest comes to the top: a loop that never pauses must not keep the
 * rest of its step from starting. */
static void turn_ready(struct step *step) {
    struct ready *last = &step->ready[step->n_ready - 1], bottom = step->ready[0];
    step->ready[0] = *last;
    *last = bottom;
}

/* Runs what is ready, until something has arrived or nothing is left: true; or until the turn is
 * over: false, the step has moved. */
static bool run_ready(struct step *step, int64_t until_ns, unsigned *n_since_check) {
    while (step->n_ready > 0) {
        unsigned cost = run_next(step);
        if (unlikely(cost == MUST_MOVE)) {
            step_move_to_pool(step);
            return false;
        }
        *n_since_check += cost;
        if (unlikely(*n_since_check >= CHECK_EVERY_NODES)) {
            if (step->n_ready == 0)
                return true; /* and looks when there is something again */
            *n_since_check = 0;
            turn_ready(step);
            steps_woken_go_first();
            /* before the mail: there may always be some */
            if (until_ns != INT64_MAX && clock_now_ns() > until_ns) {
                step_move_to_pool(step);
                return false;
            }
            if (atomic_load_explicit(&step->mailbox, memory_order_relaxed))
                return true;
        }
        if (unlikely(step->is_aborted))
            drop_ready(step);
    }
    return true;
}

void step_own(struct step *step, struct async_op *mail) {
    int64_t budget = step->is_on_pool ? POOL_QUANTUM_NS : step->run->inline_budget_ns;
    int64_t until = budget > 0 && step->run->pool ? clock_now_ns() + budget : INT64_MAX;
    unsigned n_since_check = 0;
    take_mail(step, mail);
    for (;;) {
        if (unlikely(step->is_aborted))
            drop_ready(step);
        if (!run_ready(step, until, &n_since_check))
            return;
        if (step->n_ready == 0)
            flush(step);
        struct async_op *expected = NULL;
        struct async_op *arrived = atomic_load_explicit(&step->mailbox, memory_order_acquire);
        if (arrived) {
            arrived = atomic_exchange_explicit(&step->mailbox, NULL, memory_order_acquire);
            take_mail(step, arrived);
            continue;
        }
        if (step->n_ready > 0)
            continue;
        if (step->n_async == 0) {
            step_end(step);
            return;
        }
        if (atomic_compare_exchange_strong_explicit(&step->mailbox, &expected, MAILBOX_IDLE,
                                                    memory_order_release, memory_order_relaxed))
            return; /* whoever posts next owns the step */
    }
}

bool step_mailbox_post(struct step *step, struct async_op *op) {
    struct async_op *head = atomic_load_explicit(&step->mailbox, memory_order_relaxed);
    for (;;) {
        bool is_idle = head == MAILBOX_IDLE;
        op->next = is_idle ? NULL : head;
        if (atomic_compare_exchange_weak_explicit(&step->mailbox, &head, is_idle ? NULL : op,
                                                  memory_order_acq_rel, memory_order_relaxed))
            return is_idle;
    }
}

void step_post(struct async_op *op) {
    struct step *step = op->step;
    if (step_mailbox_post(step, op))
        step_wake(step, op);
}
