/* Computes small values of one shape, and scalars with them, without a plan: each instruction has a
 * buffer of its own on the stack, unless it is an output, or one piece of code computes them all.
 * Planning would cost more than the elements.
 *
 * Small values of several shapes need a plan for blocks, with a stage for each shape. It takes more
 * than a microsecond, as much as some sixteen kernels lose by running one by one, and values of
 * this size stay in a cache anyway. Measured with bench/fused_kernel, row "normalise, scale": by
 * blocks 0.5 times as fast as one by one at 1 KB, 0.8 at 16 KB, as fast at 64 KB. */
#include "kernels/cpu/fused/fused_internal.h"

enum {
    SMALL_BYTES = 32768, /* of all buffers */
    CODE_BYTES = 65536,  /* of the largest value, where code computes all: a plan takes as long */
    MIXED_BYTES = 32768, /* of the largest input, and of the largest result */
    MIXED_INSTRUCTIONS = 16,
    CODE_LEAST = 64, /* elements */
    ALIGN = 64,
};

/* A value has all elements, or it is a scalar. */
struct small_value {
    char *data;
    bool is_scalar;
};

/* The number of elements, and the shape; 0 where the inputs have several shapes. */
static int64_t find_shape(const struct kernel_ctx *ctx, int n_inputs, struct small_value *values,
                          struct shape *ret) {
    const struct tensor *like = NULL;
    for (int i = 0; i < n_inputs; i++) {
        const struct tensor *in = &ctx->inputs[i];
        values[i] = (struct small_value){(char *)tensor_cdata(in), in->rank == 0};
        if (in->rank == 0)
            continue;
        if (like && !shape_equal(tensor_shape(like), tensor_shape(in)))
            return 0;
        like = in;
    }
    *ret = like ? tensor_shape(like) : SHAPE_SCALAR;
    return like ? like->n_elements : 1;
}

/* Sets whether the result is a scalar. False: the operands do not fit without a broadcast. */
static bool find_kind(const struct fused_instruction *instruction, const struct small_value *values,
                      bool *ret_is_scalar) {
    const int *operands = instruction->operands;
    int n_scalars = 0, n = instruction->n_operands;
    bool is_first_scalar = values[operands[0]].is_scalar;
    for (int i = 0; i < n; i++)
        n_scalars += values[operands[i]].is_scalar;
    *ret_is_scalar = n_scalars == n;
    if (n_scalars == 0 || n_scalars == n)
        return instruction->shapes != BLOCK_BIAS;
    switch (instruction->shapes) {
    case BLOCK_BROADCAST:
        return true;
    case BLOCK_SELECT:
        return is_first_scalar && n_scalars == 1;
    case BLOCK_CLIP:
        return !is_first_scalar;
    default:
        return false;
    }
}

/* Gives each instruction its memory: an output, or a piece of the buffer. */
static struct status *place_results(struct kernel_ctx *ctx, const struct fused_state *state,
                                    struct shape shape, int64_t n, char *buffer,
                                    struct small_value *values) {
    for (int k = 0; k < state->n_instructions; k++) {
        const struct fused_instruction *instruction = &state->instructions[k];
        struct small_value *value = &values[state->n_inputs + k];
        if (instruction->output >= 0) {
            TRY(kernel_alloc(ctx, instruction->output, (enum dtype)instruction->kernel.out_types[0],
                             value->is_scalar ? SHAPE_SCALAR : shape));
            value->data = tensor_data(&ctx->outputs[instruction->output]);
        } else {
            value->data = buffer;
            buffer += ((size_t)n * instruction->size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
        }
    }
    return NULL;
}

static bool knows_mixed = true;

void fused_set_mixed(bool is_on) { knows_mixed = is_on; }

/* Is what the inputs are broadcast to small, too? (A column and a row make a matrix.) */
static bool broadcasts_to_little(const struct kernel_ctx *ctx, const struct fused_state *state) {
    int64_t n = 1, most = MIXED_BYTES;
    int rank = 0;
    for (int k = 0; k < state->n_instructions; k++)
        most = MIN(most, MIXED_BYTES / (int64_t)state->instructions[k].size);
    for (int i = 0; i < state->n_inputs; i++)
        rank = MAX(rank, tensor_shape(&ctx->inputs[i]).rank);
    for (int axis = 1; axis <= rank && n <= most; axis++) { /* from the last one */
        int64_t size = 1;
        for (int i = 0; i < state->n_inputs; i++) {
            struct shape shape = tensor_shape(&ctx->inputs[i]);
            if (axis <= shape.rank)
                size = MAX(size, shape.dims[shape.rank - axis]);
        }
        n *= size;
    }
    return n <= most;
}

/* Only for inputs of several shapes. */
static bool is_small_mixed(const struct kernel_ctx *ctx, const struct fused_state *state) {
    if (!knows_mixed || state->n_instructions > MIXED_INSTRUCTIONS)
        return false;
    for (int i = 0; i < state->n_inputs; i++)
        if (tensor_size_bytes(&ctx->inputs[i]) > MIXED_BYTES)
            return false;
    return broadcasts_to_little(ctx, state);
}

static bool fits(const struct fused_state *state, int64_t n) {
    size_t bytes = 0;
    if (n == 0 || n > SMALL_BYTES)
        return false;
    for (int k = 0; k < state->n_instructions; k++)
        bytes += (size_t)n * state->instructions[k].size + ALIGN;
    return bytes <= SMALL_BYTES;
}

static unsigned run_all(const struct fused_state *state, const struct small_value *values,
                        int64_t n) {
    const void *operands[FUSED_MAX_OPERANDS];
    unsigned bad = 0;
    for (int k = 0; k < state->n_instructions; k++) {
        const struct fused_instruction *instruction = &state->instructions[k];
        const struct small_value *result = &values[state->n_inputs + k];
        unsigned ones = 0;
        for (int i = 0; i < instruction->n_operands; i++) {
            const struct small_value *operand = &values[instruction->operands[i]];
            operands[i] = operand->data;
            if (operand->is_scalar && !result->is_scalar)
                ones |= 1u << i;
        }
        bad |= instruction->engine->run(&instruction->kernel, operands, ones, result->data,
                                        result->is_scalar ? 1 : n);
    }
    return bad;
}

/* ---- one piece of code for all instructions ---- */

/* Finds the code, if no result is a scalar. */
static bool find_code(const struct fused_state *state, struct small_value *values, int64_t n,
                      struct fused_code *ret) {
    int members[FUSED_MAX_INSTRUCTIONS];
    bool is_one[FUSED_MAX_VALUES];
    for (int k = 0; k < state->n_instructions; k++) {
        struct small_value *value = &values[state->n_inputs + k];
        members[k] = k;
        value->data = NULL;
        if (!state->instructions[k].row || n > CODE_BYTES / (int64_t)state->instructions[k].size ||
            !find_kind(&state->instructions[k], values, &value->is_scalar) || value->is_scalar)
            return false;
    }
    for (int v = 0; v < state->n_inputs; v++)
        is_one[v] = values[v].is_scalar;
    return fused_code_length(state, members, state->n_instructions) == state->n_instructions &&
           fused_code_find(state, members, state->n_instructions, is_one, ret);
}

static struct status *run_code(struct kernel_ctx *ctx, const struct fused_code *code,
                               const struct small_value *values, struct shape shape, int64_t n) {
    const struct fused_state *state = ctx->instance->state;
    void *pointers[FUSED_MAX_POINTERS];
    for (int i = 0; i < code->n_operands; i++)
        pointers[i] = values[code->operands[i]].data;
    for (int i = 0; i < code->n_results; i++) {
        const struct fused_instruction *of = &state->instructions[code->results[i]];
        TRY(kernel_alloc(ctx, of->output, (enum dtype)of->kernel.out_types[0], shape));
        pointers[code->n_operands + i] = tensor_data(&ctx->outputs[of->output]);
    }
    emit_code_run(code->code, pointers, n);
    return NULL;
}

/* ---- one execution ---- */

enum fused_small_result fused_run_small(struct kernel_ctx *ctx) {
    const struct fused_state *state = ctx->instance->state;
    char buffer[SMALL_BYTES] __attribute__((aligned(ALIGN)));
    struct small_value values[FUSED_MAX_VALUES];
    struct fused_code code;
    struct shape shape;
    int64_t n = find_shape(ctx, state->n_inputs, values, &shape);
    if (n == 0 && is_small_mixed(ctx, state))
        return FUSED_SMALL_MIXED;
    if (n >= CODE_LEAST && find_code(state, values, n, &code)) {
        struct status *st = run_code(ctx, &code, values, shape, n);
        if (st)
            fused_fail(ctx, &state->instructions[state->n_instructions - 1], st);
        return FUSED_SMALL_DONE;
    }
    if (!fits(state, n))
        return FUSED_SMALL_UNFIT;
    for (int k = 0; k < state->n_instructions; k++)
        if (!find_kind(&state->instructions[k], values, &values[state->n_inputs + k].is_scalar))
            return FUSED_SMALL_UNFIT;
    struct status *st = place_results(ctx, state, shape, n, buffer, values);
    if (st) {
        fused_fail(ctx, &state->instructions[state->n_instructions - 1], st);
        return FUSED_SMALL_DONE;
    }
    return run_all(state, values, n) ? FUSED_SMALL_BAD : FUSED_SMALL_DONE;
}
