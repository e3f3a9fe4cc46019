/* Runs the instructions of a fused program one after the other, each by its own kernel. This is the
 * way for all that does not fit blocks: no elements, shapes that do not fit together, elements
 * outside of a domain. So the results and the errors are those of the nodes that were fused. */
#include "kernels/cpu/fused/fused_internal.h"

enum { FEW_TENSORS = 16 };

enum kernel_result fused_fail(struct kernel_ctx *ctx, const struct fused_instruction *instruction,
                              struct status *status_take) {
    return kernel_fail(ctx, status_suffix_take(status_take, "\n\t [[{{node %s}}]]",
                                               instruction->kernel.node->name));
}

struct tensor *fused_tensors_new(struct arena *arena, int n) {
    struct tensor *tensors =
        arena_alloc_aligned(arena, (size_t)(n + 1) * sizeof(*tensors), _Alignof(struct tensor));
    for (int i = 0; i < n; i++)
        tensors[i] = TENSOR_INIT;
    return tensors;
}

/* An operand that nobody else reads is moved, so that the kernel can take over its memory. */
static void take_operands(struct kernel_ctx *ctx, const struct fused_instruction *instruction,
                          struct tensor *results, struct tensor *ret) {
    int n_inputs = ctx->instance->n_inputs;
    for (int i = 0; i < instruction->n_operands; i++) {
        int value = instruction->operands[i];
        struct tensor *from = value < n_inputs ? &ctx->inputs[value] : &results[value - n_inputs];
        if (instruction->is_last_use[i])
            tensor_move(&ret[i], from);
        else
            tensor_copy(&ret[i], from);
    }
}

void fused_run_instruction(struct kernel_ctx *ctx, const struct fused_instruction *instruction,
                           struct tensor *operands, struct tensor *ret) {
    struct kernel_ctx own = {.inputs = operands,
                             .outputs = ret,
                             .instance = &instruction->kernel,
                             .host = ctx->host,
                             .pool = ctx->pool,
                             .host_data = ctx->host_data,
                             .step_id = ctx->step_id};
    CHECK(instruction->kernel.compute(&own) == KERNEL_DONE);
    if (own.status)
        fused_fail(ctx, instruction, own.status);
    for (int i = 0; i < instruction->n_operands; i++)
        tensor_clear(&operands[i]);
}

/* On the stack if there are few, because small values are computed in less time than malloc. */
static struct tensor *make_tensors(struct arena *arena, struct tensor *few, int n) {
    if (n > FEW_TENSORS)
        return fused_tensors_new(arena, n);
    for (int i = 0; i < n; i++)
        few[i] = TENSOR_INIT;
    return few;
}

enum kernel_result fused_run_apart(struct kernel_ctx *ctx, struct tensor *product) {
    const struct fused_state *state = ctx->instance->state;
    struct tensor few_results[FEW_TENSORS], few_operands[FEW_TENSORS];
    struct arena arena;
    int most_operands = 0;
    for (int k = 0; k < state->n_instructions; k++)
        most_operands = MAX(most_operands, state->instructions[k].n_operands);
    arena_init(&arena);
    struct tensor *results = make_tensors(&arena, few_results, state->n_instructions),
                  *operands = make_tensors(&arena, few_operands, most_operands);
    if (product)
        tensor_move(&results[0], product);
    for (int k = product != NULL; k < state->n_instructions && !ctx->status; k++) {
        take_operands(ctx, &state->instructions[k], results, operands);
        fused_run_instruction(ctx, &state->instructions[k], operands, &results[k]);
    }
    for (int i = 0; i < state->n_outputs && !ctx->status; i++)
        tensor_copy(&ctx->outputs[i], &results[state->program.results[i]]);
    for (int k = 0; k < state->n_instructions; k++)
        tensor_clear(&results[k]);
    arena_fini(&arena);
    return KERNEL_DONE;
}
