/* Plans one execution of a fused program on a GPU: shapes, and which launch stores which output. */
#include <limits.h>

#include "kernels/cuda/ops/fused.h"
#include "kernels/support/broadcast.h"

/* ---- shapes ---- */

static void set_shape(struct gpu_fused_run *run, struct gpu_fused_value *value,
                      struct shape shape) {
    value->shape = shape_dup(shape, &run->arena);
    value->n_elements = 1;
    for (int i = 0; i < shape.rank; i++)
        value->n_elements *= shape.dims[i];
}

static bool set_broadcast(struct gpu_fused_run *run, const struct gpu_fused_instruction *of,
                          struct gpu_fused_value *ret) {
    struct broadcast plan;
    struct shape shapes[BROADCAST_MAX_OPERANDS];
    if (of->n_operands > BROADCAST_MAX_OPERANDS)
        return false;
    for (int i = 0; i < of->n_operands; i++)
        shapes[i] = run->values[of->operands[i]].shape;
    if (!broadcast_init(&plan, shapes, of->n_operands))
        return false;
    set_shape(run, ret, broadcast_shape(&plan));
    return true;
}

static bool is_bias_of(struct shape vector, struct shape of) {
    return of.rank >= 2 && vector.rank == 1 && vector.dims[0] == of.dims[of.rank - 1];
}

/* False where the kernel's own compute has to answer. */
static bool set_result(struct gpu_fused_run *run, const struct gpu_fused_instruction *of,
                       struct gpu_fused_value *ret) {
    const struct gpu_fused_value *values = run->values;
    const int *operands = of->operands;
    int like = operands[0]; /* the operand with the result's shape */
    bool fits = true;
    switch (of->shapes) {
    case BLOCK_BROADCAST:
        return set_broadcast(run, of, ret);
    case BLOCK_EQUAL:
        for (int i = 1; i < of->n_operands; i++)
            fits &= shape_equal(values[operands[i]].shape, values[like].shape);
        break;
    case BLOCK_SELECT:
        like = operands[1];
        fits = shape_equal(values[like].shape, values[operands[2]].shape) &&
               (values[operands[0]].shape.rank == 0 ||
                shape_equal(values[operands[0]].shape, values[like].shape));
        break;
    case BLOCK_CLIP:
        for (int i = 1; i < of->n_operands; i++)
            fits &= values[operands[i]].shape.rank == 0 ||
                    shape_equal(values[operands[i]].shape, values[like].shape);
        break;
    case BLOCK_BIAS:
        fits = is_bias_of(values[operands[1]].shape, values[like].shape);
        break;
    case BLOCK_NEVER:
        fits = false;
    }
    ret->shape = values[like].shape;
    ret->n_elements = values[like].n_elements;
    return fits;
}

static void set_input(struct gpu_fused_run *run, int i) {
    const struct tensor *in = kernel_input(run->ctx, i);
    struct gpu_fused_value *value = &run->values[i];
    set_shape(run, value, tensor_shape(in));
    value->size = dtype_size((enum dtype)in->dtype);
    value->stage = value->last_stage = -1;
    value->is_inline = in->storage == TENSOR_INLINE && in->n_elements == 1;
    if (value->is_inline)
        memcpy(&value->data, in->bytes, sizeof(value->data));
    else if (in->storage == TENSOR_BUFFER)
        value->data = (uint64_t)in->data;
}

static bool set_values(struct gpu_fused_run *run) {
    const struct gpu_fused_state *state = run->state;
    int n_values = state->n_inputs + state->n_instructions;
    run->values = arena_array(&run->arena, struct gpu_fused_value, n_values);
    for (int i = 0; i < state->n_inputs; i++) {
        set_input(run, i);
        if (run->values[i].n_elements == 0)
            return false;
    }
    for (int k = 0; k < state->n_instructions; k++) {
        struct gpu_fused_value *value = &run->values[state->n_inputs + k];
        value->size = state->instructions[k].size;
        value->stage = INT_MAX;
        if (!set_result(run, &state->instructions[k], value))
            return false;
    }
    return true;
}

/* ---- stages ---- */

/* Puts the output of an instruction into the stage of its shape. Smaller shapes come first, so that
 * a stage finds in memory what an earlier one has stored. */
static void add_stage(struct gpu_fused_run *run, int value) {
    int at = 0;
    for (; at < run->n_stages; at++) {
        const struct gpu_fused_value *other = &run->values[run->stages[at]];
        if (shape_equal(other->shape, run->values[value].shape))
            return;
        if (other->n_elements > run->values[value].n_elements)
            break;
    }
    memmove(&run->stages[at + 1], &run->stages[at], (size_t)(run->n_stages - at) * sizeof(int));
    run->stages[at] = value;
    run->n_stages++;
}

static void set_stages(struct gpu_fused_run *run) {
    const struct gpu_fused_state *state = run->state;
    run->stages = arena_array(&run->arena, int, state->n_outputs + 1);
    for (int i = 0; i < state->n_outputs; i++)
        add_stage(run, state->n_inputs + state->program.results[i]);
    for (int i = 0; i < state->n_outputs; i++) {
        struct gpu_fused_value *value = &run->values[state->n_inputs + state->program.results[i]];
        for (int s = 0; s < run->n_stages; s++)
            if (shape_equal(run->values[run->stages[s]].shape, value->shape))
                value->stage = s;
    }
}

void gpu_fused_mark_needed(const struct gpu_fused_run *run, int stage, bool *is_needed) {
    const struct gpu_fused_state *state = run->state;
    for (int k = state->n_instructions - 1; k >= 0; k--) {
        int value = state->n_inputs + k;
        if (run->values[value].stage < stage)
            continue; /* in memory */
        is_needed[value] |= run->values[value].stage == stage;
        for (int i = 0; is_needed[value] && i < state->instructions[k].n_operands; i++)
            is_needed[state->instructions[k].operands[i]] = true;
    }
}

static void find_last_stages(struct gpu_fused_run *run) {
    int n_values = run->state->n_inputs + run->state->n_instructions;
    bool *is_needed = arena_array(&run->arena, bool, n_values);
    for (int s = 0; s < run->n_stages; s++) {
        memset(is_needed, 0, (size_t)n_values * sizeof(*is_needed));
        gpu_fused_mark_needed(run, s, is_needed);
        for (int i = 0; i < run->state->n_inputs; i++)
            if (is_needed[i])
                run->values[i].last_stage = s;
    }
}

bool gpu_fused_plan(struct gpu_fused_run *run) {
    if (!set_values(run))
        return false;
    set_stages(run);
    find_last_stages(run);
    return true;
}
