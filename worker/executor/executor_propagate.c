/* Completes nodes: hands their outputs to their consumers, and makes those ready that have all of
 * their inputs. */
#include "worker/executor/executor_node.h"

void executor_grow_ready(struct executor *executor) {
    executor->ready_capacity *= 2;
    executor->ready =
        xreallocarray(executor->ready, executor->ready_capacity, sizeof *executor->ready);
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
        push_ready(executor, iteration, edge->dst, all_dead && state->pending == 1);
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
            push_ready(executor, iteration, edge->dst, state->n_dead > 0);
    }
}

/* executor_propagate, where the compiler should copy it: completing a kernel. */
static inline void propagate_outputs(struct executor *executor, struct iteration *iteration,
                                     const struct plan_node *node, struct tensor *outputs,
                                     bool is_dead) {
    const struct plan_edge *edge = &executor->plan->edges[node->first_edge];
    propagate(executor, iteration, edge, edge + node->n_edges, outputs, is_dead);
    for (unsigned i = 0; i < node->n_outputs; i++)
        tensor_clear(&outputs[i]);
}

void executor_push_ready(struct executor *executor, struct iteration *iteration, uint32_t node,
                         bool is_dead) {
    push_ready(executor, iteration, node, is_dead);
}

void executor_propagate(struct executor *executor, struct iteration *iteration,
                        const struct plan_node *node, struct tensor *outputs, bool is_dead) {
    propagate_outputs(executor, iteration, node, outputs, is_dead);
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
        propagate_outputs(executor, iteration, node, outputs, is_dead);
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
