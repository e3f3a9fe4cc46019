/* Builds a stage of a fused program: groups instructions to steps, finds the operands that are
 * stretched, and gives buffers to the values between the steps. */
#include "kernels/cpu/fused/fused_stage.h"

#include "kernels/cpu/fused/fused.h"

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

static void release_operands(struct scan *scan, int at, const int *operands, int n) {
    for (int i = 0; i < n; i++) {
        int operand = operands[i], buffer = scan->buffer_of[operand];
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

static struct step *new_step(struct scan *scan, const int *operands, int n_operands,
                             int n_results) {
    struct fused_stage *stage = scan->stage;
    struct arena *arena = &stage->run->arena;
    struct step *step = &stage->steps[stage->n_steps++];
    int n = n_operands + n_results;
    struct place *places = arena_alloc(arena, (size_t)n * sizeof(*places));
    *step = (struct step){
        .places = places, .n_operands = n_operands, .n_results = n_results, .row_operand = -1};
    for (int i = 0; i < n_operands; i++) {
        places[i] = place_of_operand(scan, operands[i]);
        stage->widest = MAX(stage->widest, stage->run->values[operands[i]].size);
    }
    return step;
}

static void note_ones(struct step *step) {
    for (int i = 0; i < step->n_operands; i++)
        if (step->places[i].step == 0 && !(step->rows && step->row_operand == i))
            step->ones |= 1u << i;
}

/* Returns the result's place, whose buffer is still to be found. */
static struct place *add_result(struct scan *scan, struct step *step, int i, int value) {
    const struct fused_value *of = &scan->stage->run->values[value];
    struct place *place = &step->places[step->n_operands + i];
    *place = (struct place){of->data, of->size, -1};
    scan->stage->widest = MAX(scan->stage->widest, of->size);
    return place;
}

static void add_step(struct scan *scan, int k) {
    struct fused_stage *stage = scan->stage;
    const struct fused_instruction *instruction = &stage->run->state->instructions[k];
    int value = stage->run->state->n_inputs + k, at = stage->n_steps;
    struct step *step = new_step(scan, instruction->operands, instruction->n_operands, 1);
    step->instruction = instruction;
    step->rows = rows_of(stage, instruction, &step->row_operand);
    note_ones(step);
    struct place *place = add_result(scan, step, 0, value);
    if (!place->base)
        place->buffer = scan->buffer_of[value] = buffer_for_result(scan, at, instruction, value);
    release_operands(scan, at, instruction->operands, instruction->n_operands);
    stage->cost_ns += instruction->ns_per_element;
}

/* ---- runs of instructions ---- */

/* The value whose rows the code of the instruction has to run by; -1: none. */
static int row_value_of(const struct scan *scan, int k) {
    const struct fused_instruction *instruction = &scan->stage->run->state->instructions[k];
    for (int i = 0; i < instruction->n_operands; i++)
        if (is_stretched(scan->stage, instruction->operands[i]) &&
            scan->buffer_of[instruction->operands[i]] < 0)
            return instruction->operands[i];
    return -1;
}

/* Which operands are one element for all, in each row where the run goes by rows. */
static void find_ones(const struct scan *scan, int row_value, bool *ret) {
    const struct fused_run *run = scan->stage->run;
    for (int v = 0; v < fused_n_values(run->state); v++)
        ret[v] =
            scan->stage->n_elements > 1 && run->classes[run->values[v].class_of].n_elements == 1;
    if (row_value >= 0)
        ret[row_value] = stretch_of(scan->stage, row_value)->plan.inner_stretched >> 1 & 1;
}

/* Returns the length of the run with which the instructions begin, and its code; 0: there is none.
 * A run has one operand at most that it goes by the rows of. */
static int find_run(const struct scan *scan, const int *members, int n, struct fused_code *ret,
                    int *ret_row_value) {
    const struct fused_state *state = scan->stage->run->state;
    bool is_one[FUSED_MAX_VALUES];
    int length = 0, row_value = -1;
    for (n = fused_code_length(state, members, n); length < n; length++) {
        int own = row_value_of(scan, members[length]);
        if (own >= 0 && row_value >= 0 && own != row_value)
            break;
        row_value = own >= 0 ? own : row_value;
    }
    if (length < 2)
        return 0;
    find_ones(scan, row_value, is_one);
    *ret_row_value = row_value;
    return fused_code_find_longest(state, members, length, is_one, ret);
}

static void add_run(struct scan *scan, const int *members, int n, const struct fused_code *code,
                    int row_value) {
    struct fused_stage *stage = scan->stage;
    const struct fused_state *state = stage->run->state;
    int at = stage->n_steps;
    struct step *step = new_step(scan, code->operands, code->n_operands, code->n_results);
    step->code = code->code;
    for (int i = 0; i < code->n_operands && row_value >= 0; i++)
        if (code->operands[i] == row_value) {
            step->rows = stretch_of(stage, row_value);
            step->row_operand = i;
        }
    for (int i = 0; i < code->n_results; i++) {
        int value = state->n_inputs + code->results[i];
        struct place *place = add_result(scan, step, i, value);
        if (!place->base)
            place->buffer = scan->buffer_of[value] = buffer_for(scan, value);
    }
    release_operands(scan, at, code->operands, code->n_operands);
    for (int m = 0; m < n; m++)
        stage->cost_ns += FUSED_CODE_SHARE * state->instructions[members[m]].ns_per_element;
}

/* A product is computed by its own kernel. */
static bool is_of_stage(const struct fused_stage *stage, int k) {
    const struct fused_state *state = stage->run->state;
    return stage->run->values[state->n_inputs + k].class_of == stage->class_of &&
           !(state->has_product && k == 0);
}

static int list_members(const struct fused_stage *stage, int *ret) {
    int n = 0;
    for (int k = 0; k < stage->run->state->n_instructions; k++)
        if (is_of_stage(stage, k))
            ret[n++] = k;
    return n;
}

static void note_last_steps(struct scan *scan, const int *members, int n, int at) {
    const struct fused_state *state = scan->stage->run->state;
    for (int m = 0; m < n; m++)
        for (int i = 0; i < state->instructions[members[m]].n_operands; i++)
            scan->last_step[state->instructions[members[m]].operands[i]] = at;
}

/* Instructions that become one step. */
struct group {
    int n, row_value;
    struct fused_code code;
};

static int find_groups(struct scan *scan, const int *members, int n, struct group **ret) {
    int n_groups = 0;
    for (int at = 0; at < n; n_groups++) {
        struct group group;
        int length = find_run(scan, members + at, n - at, &group.code, &group.row_value);
        size_t size = length ? sizeof(group) : offsetof(struct group, code);
        group.n = MAX(length, 1);
        ret[n_groups] = arena_alloc(&scan->stage->run->arena, size);
        memcpy(ret[n_groups], &group, size);
        note_last_steps(scan, members + at, group.n, n_groups);
        at += group.n;
    }
    return n_groups;
}

static void add_steps(struct scan *scan) {
    struct group *groups[FUSED_MAX_INSTRUCTIONS];
    int members[FUSED_MAX_INSTRUCTIONS], at = 0;
    int n = list_members(scan->stage, members);
    for (int m = 0; m < n; m++)
        add_copies(scan, &scan->stage->run->state->instructions[members[m]]);
    int n_groups = find_groups(scan, members, n, groups);
    for (int g = 0; g < n_groups; at += groups[g++]->n)
        if (groups[g]->n > 1)
            add_run(scan, members + at, groups[g]->n, &groups[g]->code, groups[g]->row_value);
        else
            add_step(scan, members[at]);
}

/* A block of whole rows has the same elements of a row that repeats as the block before. */
static void choose_block(struct fused_stage *stage) {
    size_t bytes = BLOCK_BYTES;
    if (stage->n_buffers > 0)
        bytes = MIN(bytes, STACK_BYTES / (size_t)stage->n_buffers & ~(size_t)63);
    bool is_one_pass = stage->n_steps == 1 && stage->n_buffers == 0;
    stage->block = is_one_pass ? stage->n_elements : (int64_t)(bytes / stage->widest);
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

void fused_stage_build(struct fused_stage *stage) {
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
    add_steps(&scan);
    stage->cost_ns += move_ns(stage);
    choose_block(stage);
}
