/* The CPU's kernel of _MrFused (common/graph/fused.h): reads the program, and runs it in one of
 * seven ways: scalars straight through, small values of one shape, values by blocks, blocks behind
 * a product, a reduction of picked rows, rows with their reductions, or each instruction by its own
 * kernel. */
#include "kernels/cpu/fused/fused.h"

#include <stdlib.h>

#include "kernels/cost.h"
#include "kernels/cpu/fused/fused_internal.h"
#include "kernels/cpu/math/math_picked.h"
#include "kernels/cpu/math/math_rows.h"

/* ---- init ---- */

static void fused_fini(void *arg) {
    struct fused_state *state = arg;
    for (int k = 0; state && k < state->n_instructions; k++)
        kernel_instance_fini(&state->instructions[k].kernel);
    if (state) {
        fused_program_fini(&state->program);
        fused_rows_plans_free(state->plans);
        fused_codes_free(state->codes);
    }
    free(state);
}

/* Is operand 1 an input of the node? */
static bool takes_axes(const struct fused_state *state, const struct node *node) {
    return node->n_data == 2 && node->inputs[1].src->id < state->n_inputs;
}

static struct status *init_instruction(const struct kernel_init *init, struct fused_state *state,
                                       int k) {
    struct fused_instruction *made = &state->instructions[k];
    const struct node *node = state->program.instructions[k];
    TRY(kernel_instance_init(&made->kernel, node, "CPU", init->device, init->allocator,
                             init->host));
    state->n_instructions++;
    made->n_operands = node->n_data;
    made->size = dtype_size((enum dtype)node->out_types[0]);
    made->output = -1;
    if (state->gathers && (k == 0 || math_is_reduction(&made->kernel)))
        return NULL;
    if (k == 0 && (made->kernel.def->flags & KERNEL_PRODUCT)) {
        state->has_product = true;
        state->can_be_scalars = false;
        return NULL;
    }
    if (!state->has_product && takes_axes(state, node) && math_is_reduction(&made->kernel)) {
        made->is_reduction = state->reduces = true;
        state->can_be_scalars = false;
        made->ns_per_element = math_reduced_ns(&made->kernel);
        state->ns_per_element += made->ns_per_element;
        return NULL;
    }
    made->engine = fused_engine_find(made->kernel.def->compute);
    if (!(made->kernel.def->flags & KERNEL_ELEMENTWISE) || !made->engine)
        return status_invalid("Op '%s' of {{node %s}} cannot be part of a fused program",
                              node->op_name, node->name);
    made->shapes =
        made->engine->shapes_of ? made->engine->shapes_of(&made->kernel) : made->engine->shapes;
    if (made->n_operands > FUSED_MAX_OPERANDS)
        made->shapes = BLOCK_NEVER;
    state->can_be_blocks &= made->shapes != BLOCK_NEVER;
    state->can_be_scalars &= made->shapes != BLOCK_NEVER && made->shapes != BLOCK_BIAS;
    state->may_fail |= made->engine->may_fail && made->engine->may_fail(&made->kernel);
    made->in = node->n_data > 0 ? (enum dtype)node->in_types[node->n_data - 1] : DT_INVALID;
    made->row = emit_row_find(node->op_name, made->in, (enum dtype)node->out_types[0]);
    made->ns_per_element = fused_instruction_ns((double)made->kernel.cost->ns_per_element);
    state->ns_per_element += made->ns_per_element;
    return NULL;
}

/* The program's graph has the inputs and the instructions as its nodes, in this order, so ids are
 * the numbers of values. */
static void list_operands(struct fused_state *state) {
    struct arena *arena = &state->program.graph.arena;
    bool *is_read = arena_array(arena, bool, fused_n_values(state));
    uint64_t *readers = arena_array(arena, uint64_t, fused_n_values(state));
    for (int i = 0; i < state->n_outputs; i++)
        is_read[state->n_inputs + state->program.results[i]] = true;
    for (int k = state->n_instructions - 1; k >= 0; k--) {
        struct fused_instruction *instruction = &state->instructions[k];
        int n = instruction->n_operands, *operands = arena_array(arena, int, n + 1);
        bool *is_last_use = arena_array(arena, bool, n + 1);
        for (int i = n - 1; i >= 0; i--) {
            operands[i] = state->program.instructions[k]->inputs[i].src->id;
            CHECK(operands[i] < state->n_inputs + k);
            is_last_use[i] = !is_read[operands[i]];
            is_read[operands[i]] = true;
            readers[operands[i]] |= 1ull << k;
        }
        instruction->operands = operands;
        instruction->is_last_use = is_last_use;
    }
    state->readers = readers;
}

const bool *fused_program_axes(struct fused_program *program) {
    bool *is_axes = arena_array(&program->graph.arena, bool, program->n_inputs + 1);
    for (int k = 0; k < program->n_instructions; k++) {
        const struct node *node = program->instructions[k];
        int input = node->n_data == 2 ? node->inputs[1].src->id : program->n_inputs;
        if (input < program->n_inputs && node_attr(node, "Tidx"))
            is_axes[input] = true;
    }
    return is_axes;
}

static struct status *fused_init(struct kernel_init *init) {
    struct fused_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(fused_program_read(init->node, &state->program));
    state->n_inputs = state->program.n_inputs;
    state->n_outputs = state->program.n_outputs;
    state->gathers = fused_is_gather(&state->program);
    state->can_be_scalars = true;
    state->can_be_blocks = state->n_inputs + state->program.n_instructions <= FUSED_MAX_VALUES;
    state->instructions = arena_array(&state->program.graph.arena, struct fused_instruction,
                                      state->program.n_instructions);
    for (int k = 0; k < state->program.n_instructions; k++)
        TRY(init_instruction(init, state, k));
    list_operands(state);
    state->codes = fused_codes_new();
    if (state->reduces) {
        state->is_axes = fused_program_axes(&state->program);
        state->plans = fused_rows_plans_new();
    }
    for (int i = state->n_outputs - 1; i >= 0; i--)
        state->instructions[state->program.results[i]].output = i;
    return NULL;
}

double fused_ns_per_element(const struct kernel_instance *instance) {
    const struct fused_state *state = instance->state;
    return state->ns_per_element;
}

const bool *fused_axes_of(const struct kernel_instance *instance) {
    const struct fused_state *state = instance->state;
    return state->is_axes;
}

/* ---- compute ---- */

static bool inputs_are_scalars(const struct kernel_ctx *ctx, const struct fused_state *state) {
    for (int i = 0; i < state->n_inputs; i++)
        if (ctx->inputs[i].storage != TENSOR_INLINE || ctx->inputs[i].rank != 0)
            return false;
    return true;
}

/* Returns nonzero when a value was outside of a domain. */
static unsigned run_scalars(struct kernel_ctx *ctx, const struct fused_state *state) {
    char results[FUSED_MAX_INSTRUCTIONS][TENSOR_INLINE_BYTES] __attribute__((aligned(16)));
    const void *operands[FUSED_MAX_OPERANDS];
    unsigned bad = 0;
    for (int k = 0; k < state->n_instructions; k++) {
        const struct fused_instruction *instruction = &state->instructions[k];
        for (int i = 0; i < instruction->n_operands; i++) {
            int value = instruction->operands[i];
            operands[i] = value < state->n_inputs ? ctx->inputs[value].bytes
                                                  : results[value - state->n_inputs];
        }
        bad |= instruction->engine->run(&instruction->kernel, operands, 0, results[k], 1);
    }
    for (int i = 0; i < state->n_outputs && !bad; i++) {
        int k = state->program.results[i];
        tensor_init_scalar(&ctx->outputs[i], (enum dtype)state->instructions[k].kernel.out_types[0],
                           results[k]);
    }
    return bad;
}

static void clear_outputs(struct kernel_ctx *ctx, const struct fused_state *state) {
    for (int i = 0; i < state->n_outputs; i++)
        tensor_clear(&ctx->outputs[i]);
}

void fused_share_outputs(struct kernel_ctx *ctx, const struct fused_state *state) {
    if (unlikely(ctx->status != NULL))
        return;
    for (int i = 0; i < state->n_outputs; i++) {
        int first = state->instructions[state->program.results[i]].output;
        if (first != i)
            tensor_copy(&ctx->outputs[i], &ctx->outputs[first]);
    }
}

/* False: the instructions have to run one by one. */
static bool run_stages(struct fused_run *run) {
    int stages[FUSED_MAX_INSTRUCTIONS], n_stages = fused_plan_stages(run, stages);
    struct status *st = fused_plan_memory(run, stages, n_stages);
    unsigned bad = 0;
    for (int s = 0; s < n_stages && !st && !bad; s++)
        bad = fused_run_stage(run, stages[s]);
    if (st)
        fused_fail(run->ctx, &run->state->instructions[run->state->n_instructions - 1], st);
    else if (!bad)
        fused_share_outputs(run->ctx, run->state);
    if (st || bad)
        clear_outputs(run->ctx, run->state);
    return !bad;
}

static bool run_blocks(struct kernel_ctx *ctx, const struct fused_state *state) {
    struct fused_run run = {.ctx = ctx, .state = state};
    arena_init(&run.arena);
    bool is_done = fused_plan_shapes(&run, SHAPE_UNKNOWN) && run_stages(&run);
    for (int k = 0; k < state->n_instructions && run.scratch; k++)
        tensor_clear(&run.scratch[k]);
    arena_fini(&run.arena);
    return is_done;
}

static enum kernel_result fused_compute(struct kernel_ctx *ctx) {
    const struct fused_state *state = ctx->instance->state;
    if (state->has_product)
        return fused_run_product(ctx);
    if (state->gathers)
        return fused_run_gather(ctx);
    if (state->reduces)
        return fused_run_rows(ctx);
    if (state->can_be_scalars && inputs_are_scalars(ctx, state)) {
        if (likely(!run_scalars(ctx, state)))
            return KERNEL_DONE;
    } else if (state->can_be_blocks) {
        enum fused_small_result small = fused_run_small(ctx);
        if (small == FUSED_SMALL_DONE) {
            fused_share_outputs(ctx, state);
            return KERNEL_DONE;
        }
        if (small == FUSED_SMALL_BAD)
            clear_outputs(ctx, state);
        else if (small == FUSED_SMALL_UNFIT && run_blocks(ctx, state))
            return KERNEL_DONE;
    }
    return fused_run_apart(ctx, NULL);
}

static const struct kernel_def rows[] = {
    {OP_FUSED, {{NULL, 0}}, fused_compute, fused_init, fused_fini, .flags = KERNEL_NAMES_NODES},
};

const struct kernel_list fused_kernels = {rows, ARRAY_LEN(rows)};
