/* Turns the instructions of a run into vector operations, for the vectors of an iteration side by
 * side. */
#include <stdlib.h>
#include <string.h>

#include "common/base/base.h"
#include "kernels/cpu/emit/emit_internal.h"

static int operand_value(struct emitter *e, int operand, int turn) {
    bool is_bool = e->pointer_types[operand] == DT_BOOL;
    enum vector_operation operation = e->is_one[operand] ? VECTOR_OP_ONE
                                      : is_bool          ? VECTOR_OP_LOAD_BOOL
                                                         : VECTOR_OP_LOAD;
    int value = emit_add(e, operation, -1, -1, -1, 0);
    e->ops[value].pointer = (uint8_t)operand;
    e->ops[value].turn = (uint8_t)turn;
    return value;
}

static void store_results(struct emitter *e, const struct emit_run *run, int k, int value,
                          int turn) {
    for (int i = 0; i < run->n_results; i++) {
        if (run->results[i] != k)
            continue;
        bool is_bool = run->instructions[k].out == DT_BOOL;
        int at = emit_add(e, is_bool ? VECTOR_OP_STORE_BOOL : VECTOR_OP_STORE, value, -1, -1, 0);
        e->ops[at].pointer = (uint8_t)(run->n_operands + i);
        e->ops[at].turn = (uint8_t)turn;
    }
}

/* Puts the operations from `begins[0]` on in a new order: those that are no leaf in turn, one of
 * each vector, so that the processor, which looks a limited number of instructions ahead, always
 * has some that do not wait for each other. Those of a vector are from its begin on to the next. */
static void interleave(struct emitter *e, const int begins[EMIT_TURNS + 1], int *values[]) {
    const int first = begins[0], n = begins[EMIT_TURNS] - first;
    if (n == 0)
        return;
    struct vector_op *old = xmalloc((size_t)n * sizeof(*old));
    int *number_of = xcalloc((size_t)n, sizeof(*number_of)), next = first;
    int at[EMIT_TURNS];
    memcpy(old, e->ops + first, (size_t)n * sizeof(*old));
    memcpy(at, begins, sizeof(at));
    for (int i = 0; i < n; i++)
        if (old[i].n_sources == 0)
            number_of[i] = next++;
    for (int turn = 0, n_left = begins[EMIT_TURNS] - next; n_left > 0;
         turn = (turn + 1) % EMIT_TURNS) {
        while (at[turn] < begins[turn + 1] && old[at[turn] - first].n_sources == 0)
            at[turn]++;
        if (at[turn] == begins[turn + 1])
            continue;
        number_of[at[turn]++ - first] = next++;
        n_left--;
    }
    for (int i = 0; i < n; i++) {
        struct vector_op *op = &e->ops[number_of[i]];
        *op = old[i];
        for (int s = 0; s < op->n_sources; s++)
            if (op->source[s] >= first)
                op->source[s] = (int16_t)number_of[op->source[s] - first];
    }
    for (int i = 0; i < e->n_numbers; i++)
        if (e->numbers[i] >= first)
            e->numbers[i] = (int16_t)number_of[e->numbers[i] - first];
    for (int turn = 0; turn < EMIT_TURNS; turn++)
        if (*values[turn] >= first)
            *values[turn] = number_of[*values[turn] - first];
    free(old);
    free(number_of);
}

static void find_last_uses(struct emitter *e) {
    for (int i = 0; i < e->n_ops; i++)
        e->ops[i].last_use = -1;
    for (int i = 0; i < e->n_ops; i++)
        for (int s = 0; s < e->ops[i].n_sources; s++)
            e->ops[e->ops[i].source[s]].last_use = (int16_t)i;
}

void emit_lower(struct emitter *e, const struct emit_run *run) {
    int values[EMIT_TURNS][EMIT_MAX_OPERANDS + EMIT_MAX_INSTRUCTIONS], own[EMIT_MAX_OPERANDS];
    for (int turn = 0; turn < e->n_turns; turn++)
        for (int i = 0; i < run->n_operands; i++)
            values[turn][i] = turn > 0 && e->is_one[i] ? values[0][i] : operand_value(e, i, turn);
    for (int k = 0; k < run->n_instructions; k++) {
        int begins[EMIT_TURNS + 1], *made[EMIT_TURNS];
        for (int turn = 0; turn < e->n_turns; turn++) {
            const struct emit_instruction *instruction = &run->instructions[k];
            for (int i = 0; i < instruction->n_operands; i++)
                own[i] = values[turn][instruction->operands[i]];
            begins[turn] = e->n_ops;
            values[turn][run->n_operands + k] = emit_row_lower(e, instruction, own);
            made[turn] = &values[turn][run->n_operands + k];
        }
        begins[EMIT_TURNS] = e->n_ops;
        if (e->n_turns == EMIT_TURNS && e->is_wide && !e->is_full)
            interleave(e, begins, made);
        for (int turn = 0; turn < e->n_turns; turn++)
            store_results(e, run, k, *made[turn], turn);
    }
    find_last_uses(e);
}
