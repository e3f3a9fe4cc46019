/* Finds runs of instructions that one piece of code computes (kernels/cpu/emit), and keeps the code
 * with the program.
 *
 * What code a run needs depends on the instructions and on which operands are one element that
 * stands for all: shapes are no part of it. So a program has few codes, which are made when they
 * are first needed. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/cpu/fused/fused_internal.h"

enum { KEPT_CODES = 16 };

struct entry {
    uint64_t members, ones;
    struct emit_code *code; /* NULL: there can be none */
};

/* An entry is not changed after it has been counted. */
struct fused_codes {
    pthread_mutex_t lock; /* of those who add an entry */
    _Atomic int n;
    struct entry entries[KEPT_CODES];
};

struct fused_codes *fused_codes_new(void) {
    struct fused_codes *codes = xcalloc(1, sizeof(*codes));
    pthread_mutex_init(&codes->lock, NULL);
    return codes;
}

void fused_codes_free(struct fused_codes *codes) {
    if (!codes)
        return;
    for (int i = 0; i < atomic_load(&codes->n); i++)
        emit_code_free(codes->entries[i].code);
    pthread_mutex_destroy(&codes->lock);
    free(codes);
}

int fused_code_length(const struct fused_state *state, const int *members, int n) {
    int width = 0, length = 0;
    if (!emit_is_on())
        return 0;
    for (; length < n; length++) {
        const struct fused_instruction *instruction = &state->instructions[members[length]];
        if (!instruction->row || instruction->n_operands > EMIT_MAX_OPERANDS)
            break;
        int own = emit_width(instruction->in, (enum dtype)instruction->kernel.out_types[0]);
        if (width && own && own != width)
            break;
        width = own ? own : width;
    }
    return length >= 2 ? length : 0;
}

static bool is_member(const struct fused_state *state, uint64_t members, int value) {
    return value >= state->n_inputs && members >> (value - state->n_inputs) & 1;
}

/* Returns the operand's number, or -1 where there are too many. */
static int add_operand(struct fused_code *code, int value) {
    int i = 0;
    while (i < code->n_operands && code->operands[i] != value)
        i++;
    if (i == EMIT_MAX_OPERANDS)
        return -1;
    code->operands[i] = value;
    code->n_operands = MAX(code->n_operands, i + 1);
    return i;
}

static bool is_result(const struct fused_state *state, int member, uint64_t mask) {
    return state->instructions[member].output >= 0 ||
           state->readers[state->n_inputs + member] & ~mask;
}

static bool find_operands(const struct fused_state *state, const int *members, int n, uint64_t mask,
                          struct fused_code *ret) {
    for (int m = 0; m < n; m++) {
        const struct fused_instruction *instruction = &state->instructions[members[m]];
        for (int i = 0; i < instruction->n_operands; i++)
            if (!is_member(state, mask, instruction->operands[i]) &&
                add_operand(ret, instruction->operands[i]) < 0)
                return false;
        if (!is_result(state, members[m], mask))
            continue;
        if (ret->n_results == EMIT_MAX_VECTORS)
            return false;
        ret->results[ret->n_results++] = members[m];
    }
    return ret->n_results > 0;
}

/* ---- compiling ---- */

/* The number of a value in the run: its operands come first. */
static int number_of(const struct fused_state *state, const struct fused_code *code,
                     const int *members, int n, int value) {
    for (int i = 0; i < code->n_operands; i++)
        if (code->operands[i] == value)
            return i;
    for (int m = 0; m < n; m++)
        if (state->n_inputs + members[m] == value)
            return code->n_operands + m;
    CHECK(false);
    return -1;
}

static enum dtype dtype_of(const struct fused_state *state, int value) {
    return (enum dtype)(value < state->n_inputs
                            ? state->program.inputs[value]->out_types[0]
                            : state->instructions[value - state->n_inputs].kernel.out_types[0]);
}

static struct emit_code *compile(const struct fused_state *state, const int *members, int n,
                                 uint64_t ones, const struct fused_code *of) {
    struct emit_instruction instructions[FUSED_MAX_INSTRUCTIONS];
    int operands[FUSED_MAX_INSTRUCTIONS][EMIT_MAX_OPERANDS], results[EMIT_MAX_VECTORS];
    enum dtype types[EMIT_MAX_OPERANDS];
    for (int i = 0; i < of->n_operands; i++)
        types[i] = dtype_of(state, of->operands[i]);
    for (int m = 0; m < n; m++) {
        const struct fused_instruction *instruction = &state->instructions[members[m]];
        for (int i = 0; i < instruction->n_operands; i++)
            operands[m][i] = number_of(state, of, members, n, instruction->operands[i]);
        instructions[m] = (struct emit_instruction){instruction->row, instruction->in,
                                                    (enum dtype)instruction->kernel.out_types[0],
                                                    operands[m], instruction->n_operands};
    }
    for (int i = 0; i < of->n_results; i++)
        results[i] =
            number_of(state, of, members, n, state->n_inputs + of->results[i]) - of->n_operands;
    struct emit_run run = {types, ones, of->n_operands, instructions, n, results, of->n_results};
    return emit_code_new(&run);
}

static const struct entry *find_entry(struct fused_codes *codes, uint64_t members, uint64_t ones) {
    int n = atomic_load_explicit(&codes->n, memory_order_acquire);
    for (int i = 0; i < n; i++)
        if (codes->entries[i].members == members && codes->entries[i].ones == ones)
            return &codes->entries[i];
    return NULL;
}

bool fused_code_find(const struct fused_state *state, const int *members, int n, const bool *is_one,
                     struct fused_code *ret) {
    struct fused_codes *codes = state->codes;
    uint64_t mask = 0, ones = 0;
    for (int m = 0; m < n; m++)
        mask |= 1ull << members[m];
    ret->n_operands = ret->n_results = 0;
    if (!find_operands(state, members, n, mask, ret))
        return false;
    for (int i = 0; i < ret->n_operands; i++)
        ones |= (uint64_t)is_one[ret->operands[i]] << i;
    if (!emit_vectors_fit(ret->n_operands, ones, ret->n_results))
        return false; /* no entry: lengths that do not fit would fill them */
    const struct entry *found = find_entry(codes, mask, ones);
    if (!found && atomic_load_explicit(&codes->n, memory_order_relaxed) < KEPT_CODES) {
        pthread_mutex_lock(&codes->lock);
        found = find_entry(codes, mask, ones);
        int at = atomic_load(&codes->n);
        if (!found && at < KEPT_CODES) {
            codes->entries[at] = (struct entry){mask, ones, compile(state, members, n, ones, ret)};
            found = &codes->entries[at];
            atomic_store_explicit(&codes->n, at + 1, memory_order_release);
        }
        pthread_mutex_unlock(&codes->lock);
    }
    ret->code = found ? found->code : NULL;
    return ret->code != NULL;
}

/* ---- the longest run ---- */

/* Lists the lengths of runs whose operands and results have registers, short ones first. A longer
 * run has no operand less, but perhaps fewer results. */
static int list_lengths(const struct fused_state *state, const int *members, int n,
                        const bool *is_one, int *ret) {
    bool is_operand[FUSED_MAX_VALUES] = {false};
    uint64_t mask = 0, ones = 0;
    int n_operands = 0, n_lengths = 0;
    for (int length = 1; length <= n; length++) {
        const struct fused_instruction *last = &state->instructions[members[length - 1]];
        int n_results = 0;
        for (int i = 0; i < last->n_operands; i++) {
            int value = last->operands[i];
            if (is_operand[value] || is_member(state, mask, value))
                continue;
            if (n_operands == EMIT_MAX_OPERANDS)
                return n_lengths;
            is_operand[value] = true;
            ones |= (uint64_t)is_one[value] << n_operands++;
        }
        mask |= 1ull << members[length - 1];
        if (!emit_vectors_fit(n_operands, ones, 1))
            return n_lengths;
        for (int m = 0; m < length; m++)
            n_results += is_result(state, members[m], mask);
        if (length >= 2 && emit_vectors_fit(n_operands, ones, n_results))
            ret[n_lengths++] = length;
    }
    return n_lengths;
}

int fused_code_find_longest(const struct fused_state *state, const int *members, int n,
                            const bool *is_one, struct fused_code *ret) {
    int lengths[FUSED_MAX_INSTRUCTIONS];
    int n_lengths = list_lengths(state, members, n, is_one, lengths);
    while (n_lengths > 0 && !fused_code_find(state, members, lengths[n_lengths - 1], is_one, ret))
        n_lengths--;
    return n_lengths > 0 ? lengths[n_lengths - 1] : 0;
}
