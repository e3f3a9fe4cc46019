/* Finds which values of a plan need memory, and which results may take over that of an input
 * (fused_rows.h). */
#include "kernels/cpu/fused/fused_rows.h"

void rows_plan_find_memory(struct rows_planner *p) {
    for (int k = 0; k < p->state->n_instructions; k++) {
        const struct fused_instruction *instruction = &p->state->instructions[k];
        p->members[k].in_memory |= instruction->output >= 0;
        for (int i = 0; i < instruction->n_operands; i++) {
            int from = instruction->operands[i] - p->state->n_inputs;
            if (from >= 0 && p->members[from].pass != p->members[k].pass)
                p->members[from].in_memory = true;
        }
    }
}

static const struct rows_step *step_of(const struct rows_planner *p, int k) {
    const struct rows_pass *pass = &p->plan->passes[p->members[k].pass];
    return pass->kernel >= 0 ? NULL : &pass->steps[p->members[k].step];
}

static const struct rows_operand *operand_of(const struct rows_step *step, int value) {
    int i = 0;
    while (step->operands[i].value != value)
        i++;
    return &step->operands[i];
}

/* Does the step read an operand at the places where another step of the pass writes a result of the
 * role? Then it has read an element before that is written. */
static bool reads_in_place(const struct rows_step *step, const struct rows_operand *operand,
                           enum rows_role role) {
    if (role == ROWS_ELEMENTS)
        return step->role != ROWS_VALUES && operand->place == ROWS_SAME;
    return step->role == ROWS_VALUES
               ? operand->place == ROWS_SAME
               : operand->place == ROWS_OF_ROW && operand->home == ROWS_IN_MEMORY;
}

/* May the result of instruction `at` take over the memory of the input? */
static bool is_free_after(const struct rows_planner *p, int input, int at) {
    const struct rows_member *writer = &p->members[at];
    for (int k = 0; k < p->state->n_instructions; k++) {
        const struct fused_instruction *reader = &p->state->instructions[k];
        const struct rows_step *step = step_of(p, k);
        int n = step && reader->is_reduction ? 1 : reader->n_operands;
        for (int i = 0; i < n; i++) {
            if (reader->operands[i] != input)
                continue;
            /* a kernel gets the tensor of the input, and its result may be the same memory */
            if (!step || p->members[k].at > writer->at ||
                (p->members[k].pass == writer->pass &&
                 !reads_in_place(step, operand_of(step, input), writer->role)))
                return false;
        }
    }
    return true;
}

static void find_inputs_to_take(const struct rows_planner *p, struct rows_result *result) {
    const struct fused_state *state = p->state;
    int value = state->n_inputs + result->instruction, n = 0;
    int *inputs = arena_array(&p->plan->arena, int, state->n_inputs + 1);
    bool is_output = state->instructions[result->instruction].output >= 0;
    /* the instructions may have to run once more */
    for (int i = 0; i < state->n_inputs && is_output && !state->may_fail; i++)
        if (p->run.values[i].size == p->run.values[value].size &&
            p->run.classes[p->run.values[i].class_of].n_elements ==
                p->run.classes[p->run.values[value].class_of].n_elements &&
            is_free_after(p, i, result->instruction))
            inputs[n++] = i;
    result->inputs = inputs;
    result->n_inputs = n;
}

static struct shape copied_shape(struct arena *arena, struct shape shape) {
    int64_t *dims = arena_array(arena, int64_t, shape.rank + 1);
    for (int i = 0; i < shape.rank; i++)
        dims[i] = shape.dims[i];
    return (struct shape){shape.rank, dims};
}

void rows_plan_list_results(struct rows_planner *p) {
    struct rows_plan *plan = p->plan;
    plan->results = arena_array(&plan->arena, struct rows_result, p->state->n_instructions);
    for (int k = 0; k < p->state->n_instructions; k++) {
        if (!p->members[k].in_memory || plan->passes[p->members[k].pass].kernel >= 0)
            continue;
        struct rows_result *result = &plan->results[plan->n_results++];
        int class_of = p->run.values[p->state->n_inputs + k].class_of;
        result->instruction = k;
        result->shape = copied_shape(&plan->arena, p->run.classes[class_of].shape);
        find_inputs_to_take(p, result);
    }
}
