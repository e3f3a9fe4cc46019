/* The GPU's kernel of _MrFused (fused.h): reads the program, and runs it by launches of the
 * interpreter, or each instruction by its own kernel. The latter is the way for all that does not
 * fit: no elements, shapes that do not fit together, programs beyond a limit of fused_args.h. So
 * results and errors are those of the nodes that were fused. */
#include "kernels/cuda/ops/fused.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/ops/elementwise_launch.h"
#include "kernels/support/device_engine.h"

enum { MAX_NODES_NAMED = 16 };

_Static_assert(sizeof(struct fused_args) <= GPU_MAX_ARGS_BYTES, "the argument of a launch");

/* ---- init ---- */

int gpu_fused_kind(const char *kernel_name) {
#define FUSED_INSTRUCTION(name) {#name, FUSED_##name},
    static const struct {
        const char *name;
        int kind;
    } kinds[] = {
#include "kernels/cuda/ops/fused_instructions.inc"
    };
#undef FUSED_INSTRUCTION
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].name, kernel_name) == 0)
            return kinds[i].kind;
    return -1;
}

static enum block_shapes shapes_of(const struct kernel_instance *kernel) {
    static const struct {
        kernel_fn *compute;
        enum block_shapes shapes;
    } rules[] = {
        {elementwise_unary, BLOCK_BROADCAST},
        {elementwise_cast, BLOCK_BROADCAST},
        {elementwise_binary, BLOCK_BROADCAST},
        {elementwise_equal, BLOCK_BROADCAST},
        {elementwise_select_v2, BLOCK_BROADCAST},
        {elementwise_function_gradient, BLOCK_EQUAL},
        {elementwise_activation_gradient, BLOCK_EQUAL},
        {elementwise_approximate_equal, BLOCK_EQUAL},
        {elementwise_add_n, BLOCK_EQUAL},
        {elementwise_select, BLOCK_SELECT},
        {elementwise_clip, BLOCK_CLIP},
        {elementwise_bias_add, BLOCK_BIAS},
    };
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (rules[i].compute == kernel->def->compute)
            return rules[i].shapes;
    return BLOCK_NEVER;
}

static int kind_of(const char *stem, const char *from, const char *to) {
    char name[64];
    snprintf(name, sizeof(name), "%s_%s%s%s", stem, from, to ? "_" : "", to ? to : "");
    return gpu_fused_kind(name);
}

/* AddN is additions, and casts around them where floats are narrow. */
static void set_sum(struct gpu_fused_instruction *made, enum dtype dtype) {
    const char *suffix = gpu_dtype_suffix(dtype);
    made->is_sum = true;
    made->widen = made->narrow = -1;
    if (made->n_operands == 1) {
        made->kind = kind_of("fill", gpu_size_suffix(made->size), NULL);
    } else if (dtype_is_narrow_float(dtype)) {
        made->kind = kind_of("add", "f32", NULL);
        made->widen = kind_of("cast", suffix, "f32");
        made->narrow = kind_of("cast", "f32", suffix);
    } else {
        made->kind = kind_of("add", suffix, NULL);
    }
    if (made->n_operands > ADD_N_MAX) /* its kernel rounds between launches */
        made->kind = -1;
}

static void set_kind(struct gpu_fused_instruction *made) {
    const struct elementwise_state *own = made->kernel.state;
    const struct node *node = made->kernel.node;
    made->shapes = shapes_of(&made->kernel);
    made->alpha = own->alpha;
    made->cut_bits = own->cut_bits;
    if (made->shapes == BLOCK_NEVER)
        return;
    if (made->kernel.def->compute == elementwise_add_n)
        set_sum(made, (enum dtype)node->out_types[0]);
    else if (own->is_pass)
        made->kind = kind_of("fill", gpu_size_suffix(made->size), NULL);
    else
        made->kind = gpu_fused_kind(gpu_function_name(own->function));
    if (made->kind < 0 || own->is_nchw)
        made->shapes = BLOCK_NEVER;
}

static struct status *init_instruction(const struct kernel_init *init,
                                       struct gpu_fused_state *state, int k) {
    struct gpu_fused_instruction *made = &state->instructions[k];
    const struct node *node = state->program.instructions[k];
    TRY(kernel_instance_init(&made->kernel, node, "GPU", init->device, init->allocator,
                             init->host));
    state->n_instructions++;
    made->n_operands = node->n_data;
    made->size = dtype_size((enum dtype)node->out_types[0]);
    made->output = -1;
    if (!(made->kernel.def->flags & KERNEL_ELEMENTWISE))
        return status_invalid("Op '%s' of {{node %s}} cannot be part of a fused program on a GPU",
                              node->op_name, node->name);
    set_kind(made);
    state->can_be_steps &= made->shapes != BLOCK_NEVER;
    return NULL;
}

/* The program's graph has the inputs and the instructions as its nodes, in this order, so ids are
 * the numbers of values. */
static void list_operands(struct gpu_fused_state *state) {
    struct arena *arena = &state->program.graph.arena;
    bool *is_read = arena_array(arena, bool, state->n_inputs + state->n_instructions);
    for (int i = 0; i < state->n_outputs; i++)
        is_read[state->n_inputs + state->program.results[i]] = true;
    for (int k = state->n_instructions - 1; k >= 0; k--) {
        struct gpu_fused_instruction *instruction = &state->instructions[k];
        int n = instruction->n_operands, *operands = arena_array(arena, int, n + 1);
        bool *is_last_use = arena_array(arena, bool, n + 1);
        for (int i = n - 1; i >= 0; i--) {
            operands[i] = state->program.instructions[k]->inputs[i].src->id;
            is_last_use[i] = !is_read[operands[i]];
            is_read[operands[i]] = true;
        }
        instruction->operands = operands;
        instruction->is_last_use = is_last_use;
    }
}

/* A launch computes all nodes at once, so a failure of it is the failure of none in particular. */
static const char *name_nodes(const struct fused_program *program, struct arena *arena) {
    struct str text = STR_INIT;
    for (int k = 0; k < program->n_instructions && k < MAX_NODES_NAMED; k++)
        str_addf(&text, "%s{{node %s}}", k > 0 ? ", " : "", program->instructions[k]->name);
    if (program->n_instructions > MAX_NODES_NAMED)
        str_addf(&text, " and %d more", program->n_instructions - MAX_NODES_NAMED);
    const char *kept = arena_strdup(arena, str_text(&text));
    str_fini(&text);
    return kept;
}

struct status *gpu_fused_init(struct kernel_init *init) {
    struct gpu_fused_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(fused_program_read(init->node, &state->program));
    state->n_inputs = state->program.n_inputs;
    state->n_outputs = state->program.n_outputs;
    state->can_be_steps = true;
    state->instructions = arena_array(&state->program.graph.arena, struct gpu_fused_instruction,
                                      state->program.n_instructions);
    for (int k = 0; k < state->program.n_instructions; k++)
        TRY(init_instruction(init, state, k));
    list_operands(state);
    state->nodes = name_nodes(&state->program, &state->program.graph.arena);
    for (int i = state->n_outputs - 1; i >= 0; i--)
        state->instructions[state->program.results[i]].output = i;
    return gpu_function_find(gpu_of_init(init), "fused", &state->function);
}

void gpu_fused_fini(void *arg) {
    struct gpu_fused_state *state = arg;
    for (int k = 0; state && k < state->n_instructions; k++)
        kernel_instance_fini(&state->instructions[k].kernel);
    if (state)
        fused_program_fini(&state->program);
    free(state);
}

/* ---- the instructions one by one ---- */

static struct status *of_node_take(struct status *st, const struct gpu_fused_instruction *of) {
    return st ? status_suffix_take(st, "\n\t [[{{node %s}}]]", of->kernel.node->name) : NULL;
}

/* An operand that nobody else reads is moved, so that the kernel can take over its memory. */
static void take_operands(struct kernel_ctx *ctx, const struct gpu_fused_instruction *of,
                          struct tensor *results, struct tensor *ret) {
    int n_inputs = ctx->instance->n_inputs;
    for (int i = 0; i < of->n_operands; i++) {
        int value = of->operands[i];
        struct tensor *from = value < n_inputs ? &ctx->inputs[value] : &results[value - n_inputs];
        if (of->is_last_use[i])
            tensor_move(&ret[i], from);
        else
            tensor_copy(&ret[i], from);
    }
}

static void run_instruction(struct kernel_ctx *ctx, const struct gpu_fused_instruction *of,
                            struct tensor *operands, struct tensor *ret) {
    struct kernel_ctx own = {.inputs = operands,
                             .outputs = ret,
                             .instance = &of->kernel,
                             .host = ctx->host,
                             .pool = ctx->pool,
                             .host_data = ctx->host_data,
                             .step_id = ctx->step_id};
    /* the plan has done so for nodes that are not fused */
    for (int i = 0; i < of->n_operands && !own.status; i++)
        if (!(of->kernel.def->flags & KERNEL_TAKES_INLINE))
            own.status = device_input(&own, i);
    if (!own.status)
        CHECK(of->kernel.compute(&own) == KERNEL_DONE);
    if (own.status)
        kernel_fail(ctx, of_node_take(own.status, of));
    for (int i = 0; i < of->n_operands; i++)
        tensor_clear(&operands[i]);
}

static struct tensor *tensors_new(struct arena *arena, int n) {
    struct tensor *tensors =
        arena_alloc_aligned(arena, (size_t)(n + 1) * sizeof(*tensors), _Alignof(struct tensor));
    for (int i = 0; i < n; i++)
        tensors[i] = TENSOR_INIT;
    return tensors;
}

static enum kernel_result run_apart(struct kernel_ctx *ctx) {
    const struct gpu_fused_state *state = ctx->instance->state;
    struct arena arena;
    int most_operands = 0;
    for (int k = 0; k < state->n_instructions; k++)
        most_operands = MAX(most_operands, state->instructions[k].n_operands);
    arena_init(&arena);
    struct tensor *results = tensors_new(&arena, state->n_instructions),
                  *operands = tensors_new(&arena, most_operands);
    for (int k = 0; k < state->n_instructions && !ctx->status; k++) {
        take_operands(ctx, &state->instructions[k], results, operands);
        run_instruction(ctx, &state->instructions[k], operands, &results[k]);
    }
    for (int i = 0; i < state->n_outputs && !ctx->status; i++)
        tensor_copy(&ctx->outputs[i], &results[state->program.results[i]]);
    for (int k = 0; k < state->n_instructions; k++)
        tensor_clear(&results[k]);
    arena_fini(&arena);
    return KERNEL_DONE;
}

/* ---- by launches of the interpreter ---- */

/* An input whose memory the output of instruction k may take: a step of the stage has loaded it by
 * then, and nothing loads it afterwards. -1: there is none. */
static int input_to_take(const struct gpu_fused_run *run, int stage, int k,
                         const struct gpu_fused_reads *reads) {
    const struct gpu_fused_value *result = &run->values[run->state->n_inputs + k];
    for (int i = 0; i < run->state->n_inputs; i++) {
        const struct tensor *in = kernel_input(run->ctx, i);
        if (in->storage == TENSOR_BUFFER && buffer_is_sole(in->buffer) &&
            run->values[i].n_elements == result->n_elements &&
            run->values[i].size == result->size && run->values[i].last_stage <= stage &&
            (reads->first_read[i] <= k || run->values[i].last_stage < stage))
            return i;
    }
    return -1;
}

static struct status *make_output(struct gpu_fused_run *run, int stage, int k,
                                  const struct gpu_fused_reads *reads) {
    const struct gpu_fused_instruction *of = &run->state->instructions[k];
    struct gpu_fused_value *value = &run->values[run->state->n_inputs + k];
    enum dtype dtype = (enum dtype)of->kernel.out_types[0];
    int taken = input_to_take(run, stage, k, reads);
    if (taken >= 0)
        TRY(kernel_forward_or_alloc(run->ctx, taken, of->output, dtype, value->shape));
    else
        TRY(kernel_alloc(run->ctx, of->output, dtype, value->shape));
    value->data = (uint64_t)run->ctx->outputs[of->output].data;
    return NULL;
}

static struct status *run_stage(struct gpu_fused_run *run, int stage, struct fused_args *args,
                                const struct gpu_fused_reads *reads) {
    const struct gpu_fused_state *state = run->state;
    int n_outputs = 0;
    for (int k = 0; k < state->n_instructions; k++)
        if (run->values[state->n_inputs + k].stage == stage) {
            TRY(of_node_take(make_output(run, stage, k, reads), &state->instructions[k]));
            args->out[n_outputs++] = run->values[state->n_inputs + k].data;
        }
    for (int value = 0; value < state->n_inputs + state->n_instructions; value++)
        if (reads->input[value] >= 0)
            args->in[reads->input[value]] = run->values[value].data;
    struct status *st =
        run->compiled[stage]
            ? gpu_fused_launch_compiled(run->ctx, run->compiled[stage], args, state->nodes)
            : gpu_launch_nodes(
                  run->ctx, state->function,
                  gpu_grid_for(run->ctx, (args->n + FUSED_ELEMENTS - 1) / FUSED_ELEMENTS), args,
                  GPU_ARGS_BYTES(args), state->nodes);
    return st ? status_suffix_take(st, "\n\t [[%s]]", state->nodes) : NULL;
}

/* The first instruction that reads an input. */
static const struct gpu_fused_instruction *reader_of(const struct gpu_fused_state *state,
                                                     int input) {
    for (int k = 0; k < state->n_instructions; k++)
        for (int i = 0; i < state->instructions[k].n_operands; i++)
            if (state->instructions[k].operands[i] == input)
                return &state->instructions[k];
    return &state->instructions[0];
}

/* Puts small host values of several elements into scratch memory. */
static struct status *stage_inputs(struct gpu_fused_run *run, struct buffer **ret_staged) {
    for (int i = 0; i < run->state->n_inputs; i++) {
        const struct tensor *in = kernel_input(run->ctx, i);
        if (in->storage != TENSOR_INLINE || run->values[i].is_inline)
            continue;
        struct status *st = gpu_stage(run->ctx, in->bytes, tensor_size_bytes(in), &ret_staged[i]);
        TRY(of_node_take(st, reader_of(run->state, i)));
        run->values[i].data = (uint64_t)ret_staged[i]->data;
    }
    return NULL;
}

static struct status *run_stages(struct gpu_fused_run *run, struct fused_args *args,
                                 struct gpu_fused_reads *reads) {
    struct buffer **staged = arena_array(&run->arena, struct buffer *, run->state->n_inputs + 1);
    struct status *st = stage_inputs(run, staged);
    for (int s = 0; s < run->n_stages && !st; s++) {
        if (run->n_stages > 1) /* the arguments are those of the last stage that was tried */
            CHECK(gpu_fused_make_steps(run, s, args, reads));
        st = run_stage(run, s, args, reads);
    }
    for (int i = 0; i < run->state->n_inputs; i++)
        buffer_unref(staged[i]);
    return st;
}

static void share_outputs(struct kernel_ctx *ctx, const struct gpu_fused_state *state) {
    for (int i = 0; i < state->n_outputs; i++) {
        int first = state->instructions[state->program.results[i]].output;
        if (first != i)
            tensor_copy(&ctx->outputs[i], &ctx->outputs[first]);
    }
}

/* The interpreter takes some 8 ps for each element and instruction on an H200, and a kernel of a
 * single op 2.5 us and 3.5 ps for each element. */
enum { INTERPRETER_MAX_ELEMENTS = 1 << 19 };

/* Makes the steps of each stage, those of the last one for the caller, and finds what was compiled
 * for them. False: the instructions have to run one by one. */
static bool find_launches(struct gpu_fused_run *run, struct fused_args *args,
                          struct gpu_fused_reads *reads) {
    bool is_slow = false;
    run->compiled = arena_array(&run->arena, const struct gpu_function *, run->n_stages + 1);
    for (int s = 0; s < run->n_stages; s++) {
        if (!gpu_fused_make_steps(run, s, args, reads))
            return false;
        run->compiled[s] = gpu_fused_compiled(run->ctx, args);
        is_slow |= !run->compiled[s] && args->n > INTERPRETER_MAX_ELEMENTS;
    }
    return !is_slow;
}

/* False: the instructions have to run one by one, and nothing has happened. */
static bool run_together(struct gpu_fused_run *run) {
    struct fused_args args;
    struct gpu_fused_reads reads;
    if (!gpu_fused_plan(run) || !find_launches(run, &args, &reads))
        return false;
    struct status *st = run_stages(run, &args, &reads);
    if (!st) {
        share_outputs(run->ctx, run->state);
        return true;
    }
    for (int i = 0; i < run->state->n_outputs; i++)
        tensor_clear(&run->ctx->outputs[i]);
    kernel_fail(run->ctx, st);
    return true;
}

enum kernel_result gpu_fused_compute(struct kernel_ctx *ctx) {
    const struct gpu_fused_state *state = ctx->instance->state;
    struct gpu_fused_run run = {.ctx = ctx, .state = state};
    arena_init(&run.arena);
    bool is_done = state->can_be_steps && run_together(&run);
    arena_fini(&run.arena);
    return is_done ? KERNEL_DONE : run_apart(ctx);
}
