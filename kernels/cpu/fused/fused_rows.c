/* Runs fused programs with reductions, pass by pass, as their plan says (fused_rows.h). */
#include "kernels/cpu/fused/fused_rows.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
    STACK_BYTES = 65536, /* a thread with more buffers gets them from the heap */
    KEPT_PLANS = 4,
};

/* ---- plans that are kept ---- */

/* A slot is filled once. */
struct fused_rows_plans {
    _Atomic(struct rows_plan *) slots[KEPT_PLANS];
};

struct fused_rows_plans *fused_rows_plans_new(void) {
    return xcalloc(1, sizeof(struct fused_rows_plans));
}

void fused_rows_plans_free(struct fused_rows_plans *plans) {
    for (int i = 0; plans && i < KEPT_PLANS; i++)
        rows_plan_free(atomic_load(&plans->slots[i]));
    free(plans);
}

static bool has_axes(const struct tensor *t, const int64_t *axes) {
    for (int64_t i = 0; i < t->n_elements; i++)
        if (tensor_index_at(t, i) != axes[i])
            return false;
    return true;
}

static bool plan_suits(const struct rows_plan *plan, const struct kernel_ctx *ctx) {
    int n_inputs = ctx->instance->n_inputs;
    if (plan->n_threads != (ctx->pool ? pool_n_threads(ctx->pool) : 1))
        return false;
    for (int i = 0; i < n_inputs; i++)
        if (!shape_equal(plan->shapes[i], tensor_shape(&ctx->inputs[i])) ||
            (plan->axes[i] && !has_axes(&ctx->inputs[i], plan->axes[i])))
            return false;
    return true;
}

/* *ret_own is set if the plan is not kept. */
static const struct rows_plan *find_plan(struct kernel_ctx *ctx, struct rows_plan **ret_own) {
    const struct fused_state *state = ctx->instance->state;
    struct rows_plan *made = NULL;
    *ret_own = NULL;
    for (int i = 0; i < KEPT_PLANS; i++) {
        struct rows_plan *plan =
            atomic_load_explicit(&state->plans->slots[i], memory_order_acquire);
        if (plan && plan_suits(plan, ctx))
            return plan;
        if (plan)
            continue;
        made = rows_plan_new(ctx);
        if (atomic_compare_exchange_strong(&state->plans->slots[i], &plan, made))
            return made;
        rows_plan_free(made); /* another thread was faster, perhaps with other shapes */
        i--;
    }
    return *ret_own = rows_plan_new(ctx);
}

/* ---- one execution ---- */

struct rows_run {
    struct kernel_ctx *ctx;
    const struct fused_state *state;
    const struct rows_plan *plan;
    const struct rows_pass *pass; /* that runs */
    char *chunks;                 /* of the pass: the accumulators of each reduction; or NULL */
    char *data[FUSED_MAX_VALUES]; /* by value; NULL where it is in no memory */
    struct tensor scratch[FUSED_MAX_INSTRUCTIONS]; /* values in memory that are no output */
    _Atomic unsigned bad;
};

/* Where a thread is. */
struct rows_cursor {
    const struct rows_run *run;
    char *buffers;
    int64_t row, n_rows;      /* of the block */
    int64_t offset, n;        /* in a longer row: of the piece, and its elements */
    struct math_row *reduced; /* in a longer row: by reduction */
    unsigned bad;
};

static inline char *address_of(const struct rows_cursor *at, const struct rows_operand *operand) {
    char *base = operand->home == ROWS_IN_MEMORY
                     ? at->run->data[operand->value] + at->row * operand->row_step
                     : at->buffers + operand->offset;
    return base + at->offset * operand->piece_step;
}

/* ---- operands ---- */

static void run_copies(struct rows_cursor *at, int phase, bool is_first) {
    const struct rows_pass *pass = at->run->pass;
    for (int i = 0; i < pass->n_copies; i++) {
        const struct rows_copy *copy = &pass->copies[i];
        if (copy->phase != phase || (copy->repeats && !is_first))
            continue;
        broadcast_gather(copy->plan, 1, at->run->data[copy->value], copy->size,
                         at->row * pass->rows.n_elements + at->offset, at->n,
                         at->buffers + copy->offset);
    }
}

#define SPREAD_AS(type)                                   \
    do {                                                  \
        const type *x = (const type *)(const void *)from; \
        type *out = (type *)(void *)to;                   \
        for (int64_t r = 0; r < n_rows; r++)              \
            for (int64_t i = 0; i < row; i++)             \
                out[r * row + i] = x[r];                  \
    } while (0)

/* Copies a value for each row as often as a row has elements. */
static void spread(const char *from, size_t size, int64_t n_rows, int64_t row, char *to) {
    switch (size) {
    case 1:
        SPREAD_AS(uint8_t);
        break;
    case 2:
        SPREAD_AS(uint16_t);
        break;
    case 4:
        SPREAD_AS(uint32_t);
        break;
    case 8:
        SPREAD_AS(uint64_t);
        break;
    default:
        for (int64_t r = 0; r < n_rows; r++)
            for (int64_t i = 0; i < row; i++)
                memcpy(to + (size_t)(r * row + i) * size, from + (size_t)r * size, size);
    }
}

/* ---- steps ---- */

/* Operands come first, and then results. */
static void call(struct rows_cursor *at, const struct rows_step *step, void *const *pointers,
                 int64_t n) {
    if (step->code)
        emit_code_run(step->code, pointers, n);
    else
        at->bad |= step->instruction->engine->run(&step->instruction->kernel,
                                                  (const void *const *)pointers, step->ones,
                                                  pointers[step->n_operands], n);
}

static void call_by_rows(struct rows_cursor *at, const struct rows_step *step, void **pointers) {
    int64_t row = at->run->pass->rows.n_elements;
    for (int64_t r = 0; r < at->n_rows; r++) {
        call(at, step, pointers, row);
        for (int i = 0; i < step->n_operands + step->n_results; i++)
            pointers[i] = (char *)pointers[i] + step->operands[i].row_step;
    }
}

/* Computes n elements, or values of rows. */
static void run_elements(struct rows_cursor *at, const struct rows_step *step, int64_t n) {
    void *pointers[FUSED_MAX_POINTERS];
    for (int i = 0; i < step->n_operands + step->n_results; i++) {
        const struct rows_operand *operand = &step->operands[i]; /* results are behind operands */
        pointers[i] = address_of(at, operand);
        if (!operand->is_spread)
            continue;
        spread(pointers[i], operand->size, at->n_rows, at->run->pass->rows.n_elements,
               at->buffers + operand->spread);
        pointers[i] = at->buffers + operand->spread;
    }
    if (step->by_rows)
        call_by_rows(at, step, pointers);
    else
        call(at, step, pointers, n);
}

/* ---- whole rows ---- */

static void run_block(struct rows_cursor *at, bool is_first) {
    const struct rows_pass *pass = at->run->pass;
    at->n = at->n_rows * pass->rows.n_elements;
    if (pass->n_copies > 0)
        run_copies(at, 0, is_first);
    for (const struct rows_step *step = pass->steps; step < pass->steps + pass->n_steps; step++) {
        if (step->role == ROWS_REDUCTION)
            math_rows_reduce(&step->instruction->kernel, address_of(at, &step->operands[0]),
                             at->n_rows, pass->rows.n_elements, address_of(at, &step->results[0]));
        else
            run_elements(at, step, step->role == ROWS_VALUES ? at->n_rows : at->n);
    }
}

static void run_blocks(struct rows_cursor *at, int64_t begin, int64_t end) {
    const struct rows_pass *pass = at->run->pass;
    for (at->row = begin; at->row < end; at->row += at->n_rows) {
        at->n_rows = MIN(pass->block_rows, end - at->row);
        run_block(at, at->row == begin);
    }
}

/* ---- rows in pieces ---- */

static void run_piece(struct rows_cursor *at, int phase, bool is_last) {
    const struct rows_pass *pass = at->run->pass;
    run_copies(at, phase, true);
    for (int s = pass->first_of_phase[phase]; s < pass->first_of_phase[phase + 1]; s++) {
        const struct rows_step *step = &pass->steps[s];
        if (step->role == ROWS_REDUCTION)
            math_row_take(&step->instruction->kernel, &at->reduced[step->number],
                          address_of(at, &step->operands[0]), at->n, is_last);
        else if (step->role == ROWS_ELEMENTS)
            run_elements(at, step, at->n);
    }
}

static void begin_reductions(struct rows_cursor *at, int phase, int64_t n) {
    const struct rows_pass *pass = at->run->pass;
    for (int s = pass->first_of_phase[phase]; s < pass->first_of_phase[phase + 1]; s++)
        if (pass->steps[s].role == ROWS_REDUCTION)
            math_row_begin(&pass->steps[s].instruction->kernel, n,
                           &at->reduced[pass->steps[s].number]);
}

/* Chunks are kept until all are there. Else the results are there, and what is computed of them. */
static void end_reductions(struct rows_cursor *at, int phase, int64_t unit) {
    const struct rows_run *run = at->run;
    const struct rows_pass *pass = run->pass;
    int64_t n_units = pass->rows.n_rows * pass->rows.n_chunks;
    at->offset = 0;
    at->n_rows = 1;
    for (int s = pass->first_of_phase[phase]; s < pass->first_of_phase[phase + 1]; s++) {
        const struct rows_step *step = &pass->steps[s];
        if (step->role == ROWS_REDUCTION && run->chunks)
            math_row_keep(&at->reduced[step->number],
                          run->chunks + (step->number * n_units + unit) * MATH_ROW_ACCUMULATOR);
        else if (step->role == ROWS_REDUCTION)
            math_row_finish(&step->instruction->kernel, &at->reduced[step->number],
                            pass->rows.n_elements, address_of(at, &step->results[0]));
        else if (step->role == ROWS_VALUES)
            run_elements(at, step, 1);
    }
}

/* A unit is a chunk of a row; mostly a row has one. */
static void run_pieces(struct rows_cursor *at, int64_t unit) {
    const struct rows_pass *pass = at->run->pass;
    int64_t chunk = unit % pass->rows.n_chunks, begin = math_chunk_begin(&pass->rows, chunk),
            end = math_chunk_begin(&pass->rows, chunk + 1);
    at->row = unit / pass->rows.n_chunks;
    for (int phase = 0; phase < pass->n_phases; phase++) {
        begin_reductions(at, phase, end - begin);
        for (at->offset = begin; at->offset < end; at->offset += pass->piece) {
            at->n = MIN(pass->piece, end - at->offset);
            run_piece(at, phase, at->offset + at->n == end);
        }
        end_reductions(at, phase, unit);
    }
}

/* ---- passes ---- */

static void run_range(void *arg, int64_t begin, int64_t end) {
    struct rows_run *run = arg;
    const struct rows_pass *pass = run->pass;
    char stack[STACK_BYTES] __attribute__((aligned(ROWS_ALIGN)));
    bool is_large = pass->buffer_bytes > sizeof(stack);
    char *heap = is_large ? xmalloc(pass->buffer_bytes + ROWS_ALIGN) : NULL;
    struct math_row reduced[FUSED_MAX_INSTRUCTIONS];
    struct rows_cursor at = {.run = run, .buffers = stack, .reduced = reduced};
    if (is_large)
        at.buffers = heap + (ROWS_ALIGN - (uintptr_t)heap % ROWS_ALIGN);
    if (pass->block_rows > 0)
        run_blocks(&at, begin, end);
    else
        for (; begin < end; begin++)
            run_pieces(&at, begin);
    free(heap);
    if (unlikely(at.bad))
        atomic_store_explicit(&run->bad, at.bad, memory_order_relaxed);
}

static void merge_chunks(struct rows_run *run) {
    const struct rows_pass *pass = run->pass;
    int64_t n_units = pass->rows.n_rows * pass->rows.n_chunks;
    for (int s = 0; s < pass->n_steps; s++) {
        const struct rows_step *step = &pass->steps[s];
        if (step->role == ROWS_REDUCTION)
            math_rows_merge(&step->instruction->kernel, &pass->rows,
                            run->chunks + step->number * n_units * MATH_ROW_ACCUMULATOR,
                            run->data[step->results[0].value]);
    }
}

static void run_rows_pass(struct rows_run *run) {
    const struct rows_pass *pass = run->pass;
    int64_t n_units = pass->rows.n_rows * pass->rows.n_chunks;
    run->chunks = pass->rows.n_chunks > 1
                      ? xmalloc((size_t)(pass->n_reductions * n_units) * MATH_ROW_ACCUMULATOR)
                      : NULL;
    pool_parallel_for(run->ctx->pool, n_units, pass->unit_ns, run_range, run);
    if (run->chunks)
        merge_chunks(run);
    free(run->chunks);
}

/* The tensor of a value in memory. */
static struct tensor *tensor_of(struct rows_run *run, int value) {
    int k = value - run->state->n_inputs;
    if (k < 0)
        return &run->ctx->inputs[value];
    int output = run->state->instructions[k].output;
    return output >= 0 ? &run->ctx->outputs[output] : &run->scratch[k];
}

static void run_kernel_pass(struct rows_run *run) {
    struct kernel_ctx *ctx = run->ctx;
    const struct fused_instruction *instruction = &run->state->instructions[run->pass->kernel];
    int value = run->state->n_inputs + run->pass->kernel;
    struct tensor operands[2] = {TENSOR_INIT, TENSOR_INIT};
    for (int i = 0; i < 2; i++)
        tensor_copy(&operands[i], tensor_of(run, instruction->operands[i]));
    fused_run_instruction(ctx, instruction, operands, tensor_of(run, value));
    if (!ctx->status)
        run->data[value] = (char *)tensor_cdata(tensor_of(run, value));
}

/* ---- memory ---- */

static int input_to_take(const struct kernel_ctx *ctx, const struct rows_result *result) {
    for (int i = 0; i < result->n_inputs; i++) {
        const struct tensor *in = &ctx->inputs[result->inputs[i]];
        if (in->storage == TENSOR_BUFFER && buffer_is_sole(in->buffer))
            return result->inputs[i];
    }
    return -1;
}

static struct status *make_memory(struct rows_run *run) {
    struct kernel_ctx *ctx = run->ctx;
    for (int i = 0; i < run->state->n_inputs; i++)
        run->data[i] = (char *)tensor_cdata(&ctx->inputs[i]);
    for (int i = 0; i < run->plan->n_results; i++) {
        const struct rows_result *result = &run->plan->results[i];
        const struct fused_instruction *of = &run->state->instructions[result->instruction];
        enum dtype dtype = (enum dtype)of->kernel.out_types[0];
        int value = run->state->n_inputs + result->instruction, taken = input_to_take(ctx, result);
        if (of->output < 0)
            TRY(kernel_new(ctx, dtype, result->shape, &run->scratch[result->instruction]));
        else if (taken >= 0)
            TRY(kernel_forward_or_alloc(ctx, taken, of->output, dtype, result->shape));
        else
            TRY(kernel_alloc(ctx, of->output, dtype, result->shape));
        run->data[value] = tensor_data(tensor_of(run, value));
    }
    return NULL;
}

/* False: an element is outside of a domain. */
static bool run_plan(struct kernel_ctx *ctx, const struct rows_plan *plan) {
    struct rows_run run;
    run.ctx = ctx;
    run.state = ctx->instance->state;
    run.plan = plan;
    atomic_init(&run.bad, 0);
    for (int k = 0; k < run.state->n_instructions; k++)
        run.scratch[k] = TENSOR_INIT;
    struct status *st = make_memory(&run);
    if (st)
        fused_fail(ctx, &run.state->instructions[run.state->n_instructions - 1], st);
    for (int i = 0; i < plan->n_passes && !ctx->status && !atomic_load(&run.bad); i++) {
        run.pass = &plan->passes[i];
        (run.pass->kernel >= 0 ? run_kernel_pass : run_rows_pass)(&run);
    }
    for (int k = 0; k < run.state->n_instructions; k++)
        tensor_clear(&run.scratch[k]);
    bool is_good = !atomic_load(&run.bad);
    if (is_good)
        fused_share_outputs(ctx, run.state);
    if (ctx->status || !is_good)
        for (int i = 0; i < run.state->n_outputs; i++)
            tensor_clear(&ctx->outputs[i]);
    return is_good;
}

enum kernel_result fused_run_rows(struct kernel_ctx *ctx) {
    struct rows_plan *own;
    const struct rows_plan *plan = find_plan(ctx, &own);
    bool is_done = plan->passes && run_plan(ctx, plan);
    rows_plan_free(own);
    return is_done ? KERNEL_DONE : fused_run_apart(ctx, NULL);
}
