/* Tells early that a save holds its values.
 *
 * A save may begin to write when its values have been copied from the device to the host. What it
 * saves is decided before: each copy holds a reference to its value from its start, so a later
 * update of the variable makes a new value. So steps that wait for a save to hold its values
 * (master/session/save_barrier.h) go on once the copies have begun, and not when the last one has
 * arrived.
 *
 * A save holds its values when all that it still waits for is copies under way. That is looked at
 * where nothing is ready to run, because all copies that can begin have begun then. */
#include <stdlib.h>

#include "worker/executor/executor_internal.h"

/* What is known of the saves of a plan's root frame. */
struct save_states {
    bool *is_under_way; /* by plan->copies */
    bool *is_told;      /* by plan->saves */
};

static bool is_off(const struct executor *executor) {
    return likely(executor->plan->n_saves == 0) || !executor->execution->on_inputs_taken;
}

void saves_begin(struct executor *executor) {
    const struct plan *plan = executor->plan;
    if (is_off(executor))
        return;
    if (!executor->saves) {
        executor->saves = xcalloc(1, sizeof(*executor->saves));
        executor->saves->is_under_way = xcalloc(plan->n_copies, sizeof(bool));
        executor->saves->is_told = xcalloc(plan->n_saves, sizeof(bool));
        return;
    }
    memset(executor->saves->is_under_way, 0, plan->n_copies * sizeof(bool));
    memset(executor->saves->is_told, 0, plan->n_saves * sizeof(bool));
}

void saves_free(struct executor *executor) {
    if (!executor->saves)
        return;
    free(executor->saves->is_under_way);
    free(executor->saves->is_told);
    free(executor->saves);
}

void saves_note_copy(const struct async_op *op, bool is_under_way) {
    struct executor *executor = op->executor;
    if (!is_off(executor) && op->iteration == executor->root)
        executor->saves->is_under_way[op->node->aux] = is_under_way;
}

/* A variable of the host that has arrived is read when the save runs: it may be updated until then.
 */
static bool has_reference(const struct executor *executor, const struct plan_node *node) {
    const struct tensor *inputs = &executor->root->slots[node->first_slot];
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (inputs[i].storage == TENSOR_REF)
            return true;
    return false;
}

static bool holds_values(const struct executor *executor, const struct plan_save *save) {
    const struct plan_node *node = &executor->plan->nodes[save->node];
    const struct node_state *state = &executor->root->states[node->state];
    int32_t n_under_way = 0;
    if (has_reference(executor, node))
        return false;
    for (uint32_t i = 0; i < save->n_copies; i++)
        n_under_way += executor->saves->is_under_way[save->copies[i]];
    return state->n_dead == 0 && n_under_way > 0 && state->pending == n_under_way;
}

void saves_look(struct executor *executor) {
    const struct plan *plan = executor->plan;
    if (is_off(executor) || executor->is_aborted)
        return;
    for (uint32_t i = 0; i < plan->n_saves; i++)
        if (!executor->saves->is_told[i] && holds_values(executor, &plan->saves[i])) {
            executor->saves->is_told[i] = true;
            executor->execution->on_inputs_taken(executor->execution);
        }
}

bool saves_is_told(const struct executor *executor, const struct kernel_instance *instance) {
    const struct plan *plan = executor->plan;
    for (uint32_t i = 0; !is_off(executor) && i < plan->n_saves; i++)
        if (plan->nodes[plan->saves[i].node].instance == instance)
            return executor->saves->is_told[i];
    return false;
}
