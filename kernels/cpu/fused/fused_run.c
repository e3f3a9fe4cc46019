/* Computes one stage of a fused program: all instructions whose results have one shape, block by
 * block, so that the values between them stay in the cache.
 *
 *   for each block of the share of a thread
 *       copy the elements of operands that are broadcast, in the order of the result
 *       for each instruction: its engine, from block to block
 *
 * An instruction with one operand that is broadcast along long rows needs no copy: its engine is
 * called row by row.
 *
 * A value that an output or a later stage needs is written where it belongs. The others are written
 * to buffers, which a linear scan gives to the next value as soon as the last reader has run. */
#include <stdatomic.h>

#include "kernels/cost.h"
#include "kernels/cpu/fused/fused.h"
#include "kernels/cpu/fused/fused_internal.h"
#include "kernels/support/broadcast.h"

enum {
    BLOCK_BYTES = 8192,  /* of the widest value; several blocks fit the first-level cache */
    STACK_BYTES = 65536, /* of all buffers of a thread */
    FEW_STRETCHES = 4,
    LONG_ROW = 64, /* elements; copies of shorter ones cost less than a call for each row */
};

/* Where a block of a value is. */
struct place {
    char *base;  /* element 0 of the stage; NULL: in a buffer */
    size_t step; /* bytes from element to element; 0: one element stands for all */
    int buffer;
};

/* An operand that is stretched to the shape of the stage. */
struct stretch {
    struct broadcast plan; /* of the result and the operand */
    int value;
    int buffer;   /* for a copy in the order of the result; -1: no step needs one */
    bool repeats; /* each block has the same elements */
};

struct step {
    const struct fused_instruction *instruction;
    const struct place *operands;
    unsigned ones;
    struct place result;
    const struct stretch *rows; /* of operand `row_operand`: run row by row; or NULL */
    int row_operand;
};

struct fused_stage {
    struct fused_run *run;
    int class_of;
    int64_t n_elements, block; /* elements */
    size_t buffer_bytes;       /* of one buffer */
    struct step *steps;
    struct stretch **stretches;
    struct stretch *few; /* the first ones, on the stack because they are large */
    int n_steps, n_stretches;
    int n_buffers;
    size_t widest;
    double cost_ns;
    _Atomic unsigned bad;
};

/* ---- buffers ---- */

/* Which value a buffer holds now: a value's number, or FREE, or COPIED for the whole stage. */
enum { FREE = -1, COPIED = -2 };

struct scan {
    struct fused_stage *stage;
    int holder[FUSED_MAX_VALUES];
    int *buffer_of; /* by value, -1 where it is in none */
    int *last_step; /* by value: the last step of the stage that reads it */
};

static int buffer_for(struct scan *scan, int holder) {
    struct fused_stage *stage = scan->stage;
    for (int b = 0; b < stage->n_buffers; b++)
        if (scan->holder[b] == FREE) {
            scan->holder[b] = holder;
            return b;
        }
    CHECK(stage->n_buffers < FUSED_MAX_VALUES);
    scan->holder[stage->n_buffers] = holder;
    return stage->n_buffers++;
}

/* The buffer of an operand that the step is the last to read, if its elements are as wide as the
 * result's; engines may write there. Else a free one. */
static int buffer_for_result(struct scan *scan, int at, const struct fused_instruction *instruction,
                             int value) {
    const struct fused_value *values = scan->stage->run->values;
    for (int i = 0; i < instruction->n_operands; i++) {
        int operand = instruction->operands[i], buffer = scan->buffer_of[operand];
        if (buffer < 0 || scan->holder[buffer] != operand || scan->last_step[operand] != at ||
            values[operand].size != values[value].size)
            continue;
        scan->holder[buffer] = value;
        return buffer;
    }
    return buffer_for(scan, value);
}

static void release_operands(struct scan *scan, int at,
                             const struct fused_instruction *instruction) {
    for (int i = 0; i < instruction->n_operands; i++) {
        int operand = instruction->operands[i], buffer = scan->buffer_of[operand];
        if (buffer >= 0 && scan->holder[buffer] == operand && scan->last_step[operand] == at)
            scan->holder[buffer] = FREE;
    }
}

/* ---- building ---- */

static bool is_stretched(const struct fused_stage *stage, int value) {
    const struct fused_run *run = stage->run;
    int64_t n = run->classes[run->values[value].class_of].n_elements;
    return n > 1 && n < stage->n_elements;
}

static struct stretch *stretch_of(struct fused_stage *stage, int value) {
    struct fused_run *run = stage->run;
    for (int i = 0; i < stage->n_stretches; i++)
        if (stage->stretches[i]->value == value)
            return stage->stretches[i];
    struct stretch *stretch = stage->n_stretches < FEW_STRETCHES
                                  ? &stage->few[stage->n_stretches]
                                  : arena_alloc(&run->arena, sizeof(*stretch));
    struct shape shapes[2] = {run->classes[stage->class_of].shape,
                              run->classes[run->values[value].class_of].shape};
    CHECK(broadcast_init(&stretch->plan, shapes, 2));
    stretch->value = value;
    stretch->buffer = -1;
    stretch->repeats = stretch->plan.rank == 2 && !(stretch->plan.inner_stretched & 2);
    stage->stretches[stage->n_stretches++] = stretch;
    return stretch;
}

/* A row that repeats and that a block holds is copied once. */
static bool suits_rows(const struct fused_stage *stage, const struct stretch *stretch) {
    int64_t row = stretch->plan.dims[stretch->plan.rank - 1];
    bool is_copied_once =
        stretch->repeats && (size_t)row * stage->run->values[stretch->value].size <= BLOCK_BYTES;
    return row >= LONG_ROW && !is_copied_once;
}

/* The stretch whose rows the instruction runs by, or NULL. */
static struct stretch *rows_of(struct fused_stage *stage,
                               const struct fused_instruction *instruction, int *ret_operand) {
    struct stretch *found = NULL;
    for (int i = 0; i < instruction->n_operands; i++) {
        if (!is_stretched(stage, instruction->operands[i]))
            continue;
        if (found || i >= BROADCAST_MAX_OPERANDS)
            return NULL;
        found = stretch_of(stage, instruction->operands[i]);
        *ret_operand = i;
    }
    return found && suits_rows(stage, found) ? found : NULL;
}

/* The buffers of copies come first, because they are filled before the first step of a block. */
static void add_copies(struct scan *scan, const struct fused_instruction *instruction) {
    struct fused_stage *stage = scan->stage;
    int operand;
    if (rows_of(stage, instruction, &operand))
        return;
    for (int i = 0; i < instruction->n_operands; i++) {
        int value = instruction->operands[i];
        if (is_stretched(stage, value) && scan->buffer_of[value] < 0)
            stretch_of(stage, value)->buffer = scan->buffer_of[value] = buffer_for(scan, COPIED);
    }
}

static struct place place_of_operand(const struct scan *scan, int value) {
    const struct fused_run *run = scan->stage->run;
    const struct fused_value *v = &run->values[value];
    int64_t n = run->classes[v->class_of].n_elements;
    if (scan->buffer_of[value] >= 0)
        return (struct place){NULL, v->size, scan->buffer_of[value]};
    return (struct place){v->data, n < scan->stage->n_elements ? 0 : v->size, -1};
}

static void add_step(struct scan *scan, int k) {
    struct fused_stage *stage = scan->stage;
    struct fused_run *run = stage->run;
    const struct fused_instruction *instruction = &run->state->instructions[k];
    struct step *step = &stage->steps[stage->n_steps];
    int value = run->state->n_inputs + k, at = stage->n_steps++;
    struct place *operands =
        arena_alloc(&run->arena, (size_t)instruction->n_operands * sizeof(*operands));
    step->instruction = instruction;
    step->operands = operands;
    step->ones = 0;
    step->row_operand = -1;
    step->rows = rows_of(stage, instruction, &step->row_operand);
    for (int i = 0; i < instruction->n_operands; i++) {
        operands[i] = place_of_operand(scan, instruction->operands[i]);
        stage->widest = MAX(stage->widest, run->values[instruction->operands[i]].size);
        if (operands[i].step == 0 && !(step->rows && step->row_operand == i))
            step->ones |= 1u << i;
    }
    step->result = (struct place){run->values[value].data, run->values[value].size, -1};
    if (!step->result.base)
        step->result.buffer = scan->buffer_of[value] =
            buffer_for_result(scan, at, instruction, value);
    release_operands(scan, at, instruction);
    stage->widest = MAX(stage->widest, step->result.step);
    stage->cost_ns += instruction->ns_per_element;
}

/* A product is computed by its own kernel. */
static bool is_of_stage(const struct fused_stage *stage, int k) {
    const struct fused_state *state = stage->run->state;
    return stage->run->values[state->n_inputs + k].class_of == stage->class_of &&
           !(state->has_product && k == 0);
}

static void find_last_steps(struct scan *scan) {
    const struct fused_state *state = scan->stage->run->state;
    for (int k = 0, at = 0; k < state->n_instructions; k++) {
        if (!is_of_stage(scan->stage, k))
            continue;
        for (int i = 0; i < state->instructions[k].n_operands; i++)
            scan->last_step[state->instructions[k].operands[i]] = at;
        at++;
    }
}

/* A block of whole rows has the same elements of a row that repeats as the block before. */
static void choose_block(struct fused_stage *stage) {
    size_t bytes = BLOCK_BYTES;
    if (stage->n_buffers > 0)
        bytes = MIN(bytes, STACK_BYTES / (size_t)stage->n_buffers & ~(size_t)63);
    stage->block = (int64_t)(bytes / stage->widest);
    stage->buffer_bytes = bytes;
    for (int i = 0; i < stage->n_stretches; i++) {
        struct stretch *stretch = stage->stretches[i];
        int64_t row = stretch->plan.dims[stretch->plan.rank - 1];
        if (stretch->buffer >= 0 && stretch->repeats && row <= stage->block) {
            stage->block = stage->block / row * row;
            break;
        }
    }
    for (int i = 0; i < stage->n_stretches; i++) {
        struct stretch *stretch = stage->stretches[i];
        stretch->repeats &= stage->block % stretch->plan.dims[stretch->plan.rank - 1] == 0;
    }
}

/* What reading and writing memory takes for an element of the stage. */
static double move_ns(const struct fused_stage *stage) {
    const struct fused_run *run = stage->run;
    int n_moved = 0;
    for (int v = 0; v < fused_n_values(run->state); v++)
        n_moved += run->values[v].data && run->values[v].class_of == stage->class_of;
    return FUSED_MOVE_NS * n_moved;
}

static void build(struct fused_stage *stage) {
    struct fused_run *run = stage->run;
    int n_values = fused_n_values(run->state);
    struct scan scan;
    scan.stage = stage;
    scan.buffer_of = arena_alloc(&run->arena, (size_t)n_values * sizeof(int));
    scan.last_step = arena_alloc(&run->arena, (size_t)n_values * sizeof(int));
    for (int v = 0; v < n_values; v++)
        scan.buffer_of[v] = scan.last_step[v] = -1;
    stage->steps =
        arena_alloc(&run->arena, (size_t)run->state->n_instructions * sizeof(*stage->steps));
    stage->stretches = arena_alloc(&run->arena, (size_t)n_values * sizeof(struct stretch *));
    find_last_steps(&scan);
    for (int k = 0; k < run->state->n_instructions; k++)
        if (is_of_stage(stage, k))
            add_copies(&scan, &run->state->instructions[k]);
    for (int k = 0; k < run->state->n_instructions; k++)
        if (is_of_stage(stage, k))
            add_step(&scan, k);
    stage->cost_ns += move_ns(stage);
    choose_block(stage);
}

/* ---- running ---- */

static char *address_of(const struct fused_stage *stage, const struct place *place, char *buffers,
                        int64_t begin) {
    return place->base ? place->base + begin * (int64_t)place->step
                       : buffers + (size_t)place->buffer * stage->buffer_bytes;
}

/* Runs n elements from element `begin` on, one call for each row of the stretched operand. */
static unsigned run_rows(const struct fused_stage *stage, const struct step *step,
                         const void *const *operands, char *result, int64_t begin, int64_t n) {
    const struct broadcast *plan = &step->rows->plan;
    const struct fused_value *value = &stage->run->values[step->rows->value];
    const void *own[BROADCAST_MAX_OPERANDS];
    unsigned bad = 0, ones = step->ones | (plan->inner_stretched >> 1 & 1) << step->row_operand;
    struct broadcast_cursor cursor;
    broadcast_seek(plan, begin, &cursor);
    for (int64_t done = 0, count; done < n; done += count) {
        count = MIN(plan->dims[plan->rank - 1] - cursor.inner, n - done);
        for (int i = 0; i < step->instruction->n_operands; i++)
            own[i] = (const char *)operands[i] + done * (int64_t)step->operands[i].step;
        own[step->row_operand] =
            value->data + broadcast_offset(plan, &cursor, 1) * (int64_t)value->size;
        bad |= step->instruction->engine->run(&step->instruction->kernel, own, ones,
                                              result + done * (int64_t)step->result.step, count);
        broadcast_next_row(plan, &cursor);
    }
    return bad;
}

static unsigned run_steps(const struct fused_stage *stage, char *buffers, int64_t begin,
                          int64_t n) {
    const void *operands[FUSED_MAX_OPERANDS];
    unsigned bad = 0;
    for (const struct step *step = stage->steps; step < stage->steps + stage->n_steps; step++) {
        const struct fused_instruction *instruction = step->instruction;
        char *result = address_of(stage, &step->result, buffers, begin);
        for (int i = 0; i < instruction->n_operands; i++)
            operands[i] = address_of(stage, &step->operands[i], buffers, begin);
        bad |= step->rows ? run_rows(stage, step, operands, result, begin, n)
                          : instruction->engine->run(&instruction->kernel, operands, step->ones,
                                                     result, n);
    }
    return bad;
}

static void run_range(void *arg, int64_t begin, int64_t end) {
    struct fused_stage *stage = arg;
    char buffers[STACK_BYTES] __attribute__((aligned(64)));
    unsigned bad = 0;
    for (bool is_first = true; begin < end; begin += stage->block, is_first = false) {
        int64_t n = MIN(end - begin, stage->block);
        for (int i = 0; i < stage->n_stretches; i++) {
            const struct stretch *stretch = stage->stretches[i];
            const struct fused_value *value = &stage->run->values[stretch->value];
            if (stretch->buffer >= 0 && (is_first || !stretch->repeats))
                broadcast_gather(&stretch->plan, 1, value->data, value->size, begin, n,
                                 buffers + (size_t)stretch->buffer * stage->buffer_bytes);
        }
        bad |= run_steps(stage, buffers, begin, n);
    }
    if (unlikely(bad))
        atomic_store_explicit(&stage->bad, bad, memory_order_relaxed);
}

unsigned fused_run_stage(struct fused_run *run, int class_of) {
    struct stretch few[FEW_STRETCHES];
    struct fused_stage stage = {.run = run,
                                .few = few,
                                .class_of = class_of,
                                .widest = 1,
                                .n_elements = run->classes[class_of].n_elements};
    build(&stage);
    if (stage.n_steps == 0)
        return 0;
    pool_parallel_for(run->ctx->pool, stage.n_elements, stage.cost_ns, run_range, &stage);
    return atomic_load_explicit(&stage.bad, memory_order_relaxed);
}

struct fused_stage *fused_stage_new(struct fused_run *run, int class_of) {
    struct fused_stage *stage = arena_new(&run->arena, struct fused_stage);
    stage->run = run;
    stage->few = arena_alloc(&run->arena, FEW_STRETCHES * sizeof(*stage->few));
    stage->class_of = class_of;
    stage->n_elements = run->classes[class_of].n_elements;
    stage->widest = 1;
    build(stage);
    return stage;
}

void fused_stage_run_part(struct fused_stage *stage, int64_t begin, int64_t end) {
    if (stage->n_steps > 0)
        run_range(stage, begin, end);
}
