/* Runs a fused program that begins with a product: MatMul, Conv2D and others of KERNEL_PRODUCT.
 *
 *   begin   the product's shape is known: plan shapes and memory, run the stages before the product
 *   take    elements of the product are there: run the instructions of its shape on them, while a
 *           cache has them
 *   then    run the stages after it
 *
 * The product is computed by its own kernel and the instructions by the engines of blocks, so every
 * value is the same to the bit as with separate nodes. Small products, and what does not fit
 * blocks, run one by one. */
#include <stdatomic.h>

#include "kernels/cost.h"
#include "kernels/cpu/fused/fused.h"
#include "kernels/cpu/fused/fused_internal.h"

enum {
    /* Values that a first-level cache holds anyway: see fused_small.c. */
    SMALL_BYTES = 32768,
    FEW_INSTRUCTIONS = 16,
};

struct product_run {
    struct kernel_epilogue epilogue; /* the first member: product_run_of */
    struct fused_run run;
    int stages[FUSED_MAX_INSTRUCTIONS], n_stages, n_before;
    struct fused_stage *stage; /* the product's; NULL: the instructions run one by one */
    atomic_bool is_taken;      /* elements have been handed over */
};

static struct product_run *product_run_of(const struct kernel_ctx *ctx) {
    return (struct product_run *)(void *)(uintptr_t)ctx->epilogue;
}

/* ---- what the product's kernel calls ---- */

static bool is_small(const struct fused_state *state, enum dtype dtype, struct shape shape) {
    int64_t bytes = (int64_t)dtype_size(dtype);
    for (int i = 0; i < shape.rank && bytes <= SMALL_BYTES; i++)
        bytes *= shape.dims[i];
    return bytes <= TENSOR_INLINE_BYTES ||
           (bytes <= SMALL_BYTES && state->n_instructions <= FEW_INSTRUCTIONS);
}

/* Stages of smaller shapes cannot depend on the product. */
static void run_stages_before(struct product_run *own) {
    struct fused_run *run = &own->run;
    int product_class = run->values[run->state->n_inputs].class_of;
    for (; own->stages[own->n_before] != product_class; own->n_before++)
        (void)fused_run_stage(run, own->stages[own->n_before]);
    own->stage = fused_stage_new(run, product_class);
}

static struct status *begin_product(struct kernel_ctx *ctx, enum dtype dtype, struct shape shape) {
    struct product_run *own = product_run_of(ctx);
    struct fused_run *run = &own->run;
    const struct fused_state *state = run->state;
    if (!state->can_be_blocks || state->may_fail || is_small(state, dtype, shape) ||
        !fused_plan_shapes(run, shape))
        return kernel_alloc(ctx, 0, dtype, shape);
    own->n_stages = fused_plan_stages(run, own->stages);
    TRY(fused_plan_memory(run, own->stages, own->n_stages));
    int output = state->instructions[0].output;
    tensor_copy(&ctx->outputs[0], output >= 0 ? &run->ctx->outputs[output] : &run->scratch[0]);
    run_stages_before(own);
    return NULL;
}

static void take_elements(const struct kernel_ctx *ctx, int64_t begin, int64_t end) {
    struct product_run *own = product_run_of(ctx);
    if (!own->stage)
        return;
    atomic_store_explicit(&own->is_taken, true, memory_order_relaxed);
    fused_stage_run_part(own->stage, begin, end);
}

/* ---- the program ---- */

static void run_stages_after(struct product_run *own) {
    int at = own->n_before;
    if (!atomic_load_explicit(&own->is_taken, memory_order_relaxed))
        (void)fused_run_stage(&own->run, own->stages[at]);
    while (++at < own->n_stages)
        (void)fused_run_stage(&own->run, own->stages[at]);
    fused_share_outputs(own->run.ctx, own->run.state);
}

static void compute_product(struct product_run *own, struct tensor *operands, struct tensor *ret) {
    struct kernel_ctx *ctx = own->run.ctx;
    const struct fused_instruction *product = &own->run.state->instructions[0];
    struct kernel_ctx inner = {.inputs = operands,
                               .outputs = ret,
                               .instance = &product->kernel,
                               .host = ctx->host,
                               .pool = ctx->pool,
                               .host_data = ctx->host_data,
                               .step_id = ctx->step_id,
                               .epilogue = &own->epilogue};
    for (int i = 0; i < product->n_operands; i++)
        tensor_copy(&operands[i], &ctx->inputs[product->operands[i]]);
    CHECK(product->kernel.compute(&inner) == KERNEL_DONE);
    for (int i = 0; i < product->n_operands; i++)
        tensor_clear(&operands[i]);
    if (inner.status)
        fused_fail(ctx, product, inner.status);
}

enum kernel_result fused_run_product(struct kernel_ctx *ctx) {
    const struct fused_state *state = ctx->instance->state;
    struct product_run own = {.epilogue = {begin_product, take_elements},
                              .run = {.ctx = ctx, .state = state}};
    struct tensor product = TENSOR_INIT;
    arena_init(&own.run.arena);
    struct tensor *operands = fused_tensors_new(&own.run.arena, state->instructions[0].n_operands);
    compute_product(&own, operands, &product);
    if (!ctx->status && own.stage)
        run_stages_after(&own);
    for (int k = 0; k < state->n_instructions && own.run.scratch; k++)
        tensor_clear(&own.run.scratch[k]);
    if (!ctx->status && !own.stage)
        fused_run_apart(ctx, &product);
    tensor_clear(&product);
    arena_fini(&own.run.arena);
    return KERNEL_DONE;
}

/* ---- cost ---- */

double fused_product_ns(const struct kernel_ctx *ctx) {
    const struct fused_state *state = ctx->instance->state;
    const struct fused_instruction *product = &state->instructions[0];
    struct tensor operands[FUSED_MAX_OPERANDS];
    if (!(state->has_product || state->gathers) || product->n_operands > FUSED_MAX_OPERANDS)
        return 0;
    for (int i = 0; i < product->n_operands; i++)
        operands[i] = ctx->inputs[product->operands[i]]; /* borrowed */
    struct kernel_ctx own = {.inputs = operands, .instance = &product->kernel};
    return cost_ns_of_execution(&own);
}
