/* Makes the steps of one stage of a fused program on a GPU: slots for the values, loads where a
 * value is first read, stores where an output is computed; and how inputs are broadcast. */
#include <limits.h>

#include "kernels/cuda/ops/fused.h"

struct maker {
    struct gpu_fused_run *run;
    struct fused_args *args;
    struct gpu_fused_reads *reads;
    int stage;
    int *slot;      /* by value: its slot, or -1 */
    int *last_read; /* by value: the last instruction of the stage that reads it, or -1 */
    int n_inputs, n_outputs;
    unsigned slots_in_use;     /* a bit each */
    struct fused_step nowhere; /* a step that there is no place for */
    bool is_full;              /* something has a limit that the stage exceeds */
};

static struct fused_step *add_step(struct maker *m, int kind) {
    if (m->args->n_steps == FUSED_MAX_STEPS) {
        m->is_full = true;
        return &m->nowhere;
    }
    struct fused_step *step = &m->args->steps[m->args->n_steps++];
    *step = (struct fused_step){.kind = (uint16_t)kind};
    return step;
}

static int take_slot(struct maker *m) {
    for (int i = 0; i < FUSED_MAX_SLOTS; i++)
        if (!(m->slots_in_use >> i & 1)) {
            m->slots_in_use |= 1u << i;
            return i;
        }
    m->is_full = true;
    return 0;
}

static void drop_slot(struct maker *m, int slot) { m->slots_in_use &= ~(1u << slot); }

static int by_size(size_t size, int kind_of_1) {
    return kind_of_1 + (size > 1) + (size > 2) + (size > 4);
}

static const struct gpu_fused_value *value_of(const struct maker *m, int value) {
    return &m->run->values[value];
}

/* ---- operands ---- */

/* The slot of a value; one in memory is loaded where it is first read. */
static int slot_of(struct maker *m, int value) {
    if (m->slot[value] >= 0)
        return m->slot[value];
    m->slot[value] = take_slot(m);
    if (m->n_inputs == FUSED_MAX_INPUTS) {
        m->is_full = true;
        return 0;
    }
    m->reads->input[value] = m->n_inputs++;
    struct fused_step *step = add_step(m, by_size(value_of(m, value)->size, FUSED_LOAD_1));
    step->to = (uint8_t)m->slot[value];
    step->a = (uint8_t)m->reads->input[value];
    return m->slot[value];
}

/* Frees the slot of operand i of instruction k if nothing reads it afterwards. */
static void drop_operand(struct maker *m, int k, int i) {
    const struct gpu_fused_instruction *of = &m->run->state->instructions[k];
    int value = of->operands[i];
    for (int later = i + 1; later < of->n_operands; later++)
        if (of->operands[later] == value)
            return;
    if (m->last_read[value] > k || m->slot[value] < 0)
        return;
    drop_slot(m, m->slot[value]);
    m->slot[value] = -1;
}

/* ---- instructions ---- */

static void add_plain(struct maker *m, int k, int to) {
    const struct gpu_fused_instruction *of = &m->run->state->instructions[k];
    uint8_t from[3] = {0};
    for (int i = 0; i < of->n_operands; i++)
        from[i] = (uint8_t)slot_of(m, of->operands[i]);
    struct fused_step *step = add_step(m, of->kind);
    step->to = (uint8_t)to;
    step->a = from[0];
    step->b = from[1];
    step->c = from[2];
    step->alpha = of->alpha;
    step->cut_bits = (uint16_t)of->cut_bits;
    for (int i = 0; i < of->n_operands; i++)
        drop_operand(m, k, i);
}

static void add_unary(struct maker *m, int kind, int to, int from) {
    struct fused_step *step = add_step(m, kind);
    step->to = (uint8_t)to;
    step->a = (uint8_t)from;
}

/* AddN adds in order. Narrow floats are added as floats, and their sum is rounded once. */
static void add_sum(struct maker *m, int k, int to) {
    const struct gpu_fused_instruction *of = &m->run->state->instructions[k];
    int wide = of->widen >= 0 ? take_slot(m) : -1, first = -1;
    for (int i = 0; i < of->n_operands; i++) {
        int from = slot_of(m, of->operands[i]);
        if (of->widen >= 0) {
            add_unary(m, of->widen, i == 0 ? to : wide, from);
            from = i == 0 ? to : wide;
        }
        if (i == 0) {
            first = from; /* of wide types, the operand's own slot, until the first addition */
        } else {
            struct fused_step *step = add_step(m, of->kind);
            step->to = (uint8_t)to;
            step->a = (uint8_t)first;
            step->b = (uint8_t)from;
            first = to;
        }
        if (i > 0)
            drop_operand(m, k, i);
    }
    drop_operand(m, k, 0);
    if (of->widen >= 0) {
        add_unary(m, of->narrow, to, to);
        drop_slot(m, wide);
    }
}

static void add_store(struct maker *m, int k) {
    int value = m->run->state->n_inputs + k;
    if (m->n_outputs == FUSED_MAX_OUTPUTS) {
        m->is_full = true;
        return;
    }
    struct fused_step *step = add_step(m, by_size(value_of(m, value)->size, FUSED_STORE_1));
    step->to = (uint8_t)m->n_outputs++;
    step->a = (uint8_t)m->slot[value];
}

static void add_instruction(struct maker *m, int k) {
    const struct gpu_fused_state *state = m->run->state;
    const struct gpu_fused_instruction *of = &state->instructions[k];
    int value = state->n_inputs + k, to = take_slot(m);
    if (of->is_sum && of->n_operands > 1)
        add_sum(m, k, to);
    else
        add_plain(m, k, to);
    m->slot[value] = to;
    if (value_of(m, value)->stage == m->stage)
        add_store(m, k);
    if (m->last_read[value] < 0) {
        drop_slot(m, to);
        m->slot[value] = -1;
    }
}

/* ---- how inputs are broadcast ---- */

/* The stride of a value along dimension d of the stage's shape. */
static int64_t stride_of(const struct gpu_fused_value *value, struct shape to, int d) {
    int own = d - (to.rank - value->shape.rank);
    int64_t stride = 1;
    if (own < 0 || value->shape.dims[own] == 1)
        return 0;
    for (int i = own + 1; i < value->shape.rank; i++)
        stride *= value->shape.dims[i];
    return stride;
}

/* Adds a dimension inside of those that there are, or merges it with the last one. */
static bool add_dim(struct maker *m, struct shape to, int d, int64_t *dims, uint32_t strided,
                    const int *values) {
    struct fused_args *args = m->args;
    int64_t strides[FUSED_MAX_INPUTS] = {0};
    bool can_merge = args->rank > 0;
    int last = args->rank - 1;
    for (int k = 0; k < m->n_inputs; k++) {
        if (!(strided >> k & 1))
            continue;
        strides[k] = stride_of(value_of(m, values[k]), to, d);
        can_merge &= last >= 0 && args->strides[k][last] == strides[k] * to.dims[d];
    }
    if (!can_merge) {
        if (args->rank == FUSED_MAX_RANK)
            return false;
        last = args->rank++;
        dims[last] = 1;
    }
    dims[last] *= to.dims[d];
    for (int k = 0; k < m->n_inputs; k++)
        args->strides[k][last] = strides[k];
    return true;
}

static bool set_broadcast(struct maker *m) {
    struct shape to = value_of(m, m->run->stages[m->stage])->shape;
    struct fused_args *args = m->args;
    int values[FUSED_MAX_INPUTS] = {0}, n_values = m->run->state->n_inputs;
    int64_t dims[FUSED_MAX_RANK];
    uint32_t strided = 0;
    n_values += m->run->state->n_instructions;
    for (int value = 0; value < n_values; value++) {
        int k = m->reads->input[value];
        if (k < 0)
            continue;
        const struct gpu_fused_value *in = value_of(m, value);
        values[k] = value;
        if (in->is_inline)
            args->is_inline |= 1u << k;
        else if (in->n_elements == 1)
            args->is_single |= 1u << k;
        else if (in->n_elements == args->n)
            args->is_flat |= 1u << k;
        else
            strided |= 1u << k;
    }
    for (int d = 0; strided && d < to.rank; d++)
        if (to.dims[d] != 1 && !add_dim(m, to, d, dims, strided, values))
            return false;
    for (int d = 0; d < args->rank; d++)
        args->dims[d] = gpu_divisor_of(dims[d], args->n);
    return true;
}

/* ---- a stage ---- */

static void find_reads(struct maker *m, const bool *is_needed) {
    const struct gpu_fused_state *state = m->run->state;
    for (int k = 0; k < state->n_instructions; k++) {
        int value = state->n_inputs + k;
        if (!is_needed[value] || m->run->values[value].stage < m->stage)
            continue;
        for (int i = 0; i < state->instructions[k].n_operands; i++) {
            int operand = state->instructions[k].operands[i];
            m->last_read[operand] = k;
            m->reads->first_read[operand] = MIN(m->reads->first_read[operand], k);
        }
    }
}

bool gpu_fused_make_steps(struct gpu_fused_run *run, int stage, struct fused_args *ret_args,
                          struct gpu_fused_reads *ret_reads) {
    const struct gpu_fused_state *state = run->state;
    int n_values = state->n_inputs + state->n_instructions;
    bool *is_needed = arena_array(&run->arena, bool, n_values);
    ret_reads->input = arena_array(&run->arena, int, n_values);
    ret_reads->first_read = arena_array(&run->arena, int, n_values);
    struct maker m = {.run = run,
                      .args = ret_args,
                      .reads = ret_reads,
                      .stage = stage,
                      .slot = arena_array(&run->arena, int, n_values),
                      .last_read = arena_array(&run->arena, int, n_values)};
    for (int i = 0; i < n_values; i++) {
        m.slot[i] = m.last_read[i] = ret_reads->input[i] = -1;
        ret_reads->first_read[i] = INT_MAX;
    }
    memset(ret_args, 0, sizeof(*ret_args));
    ret_args->n = run->values[run->stages[stage]].n_elements;
    gpu_fused_mark_needed(run, stage, is_needed);
    find_reads(&m, is_needed);
    for (int k = 0; k < state->n_instructions && !m.is_full; k++)
        if (is_needed[state->n_inputs + k] && run->values[state->n_inputs + k].stage >= stage)
            add_instruction(&m, k);
    return !m.is_full && set_broadcast(&m);
}
