/* Makes the steps of a plan's passes, and finds buffers and memory for values (fused_rows.h). A
 * linear scan gives the buffer of a block to the next value as soon as the last reader has run. */
#include "kernels/cpu/fused/fused_rows.h"

#include "kernels/cpu/fused/fused.h"

struct builder {
    struct rows_planner *p;
    struct rows_pass *pass;
    int number;                            /* of the pass */
    struct rows_operand *homes;            /* by instruction of the pass: where its value is */
    int last_step[FUSED_MAX_INSTRUCTIONS]; /* by instruction: the last step that reads its block */
    int order[FUSED_MAX_INSTRUCTIONS];     /* the n_order instructions as they are computed */
    int n_order;
    /* by buffer of a block: the instruction whose value it has, FREE, KEPT or SPREAD */
    int holder[FUSED_MAX_VALUES];
    int n_blocks;
    int64_t n_block;                 /* elements */
    size_t block_bytes, other_bytes; /* of one buffer of a block; of the other buffers together */
};

enum { FREE = -1, KEPT = -2, SPREAD = -3 };

static const struct fused_instruction *instruction_at(const struct builder *b, int k) {
    return &b->p->state->instructions[k];
}
static int value_of(const struct builder *b, int k) { return b->p->state->n_inputs + k; }
static size_t size_of(const struct builder *b, int value) { return b->p->run.values[value].size; }
static bool is_in_pass(const struct builder *b, int k) {
    return k >= 0 && b->p->members[k].pass == b->number;
}
static int producer_of(const struct builder *b, int value) {
    return value < b->p->state->n_inputs ? -1 : value - b->p->state->n_inputs;
}
/* Those that are read while a pass runs; the axes are known. */
static int n_read(const struct fused_instruction *instruction) {
    return instruction->is_reduction ? 1 : instruction->n_operands;
}
static bool is_long(const struct rows_pass *pass) { return pass->block_rows == 0; }

static size_t aligned(size_t bytes) { return (bytes + ROWS_ALIGN - 1) & ~(size_t)(ROWS_ALIGN - 1); }

/* ---- blocks ---- */

static void choose_block(struct builder *b) {
    struct rows_pass *pass = b->pass;
    size_t widest = 1;
    int64_t row = pass->rows.n_elements;
    for (int k = 0; k < b->p->state->n_instructions; k++) {
        if (!is_in_pass(b, k) || b->p->members[k].role == ROWS_VALUES)
            continue;
        widest = MAX(widest, size_of(b, value_of(b, k)));
        for (int i = 0; i < n_read(instruction_at(b, k)); i++)
            widest = MAX(widest, size_of(b, instruction_at(b, k)->operands[i]));
    }
    bool fits = row <= ROWS_BLOCK_LEAST || row * (int64_t)widest <= ROWS_BLOCK_BYTES;
    if (fits && pass->rows.n_chunks == 1) {
        int64_t n = MAX(ROWS_BLOCK_BYTES / (int64_t)widest / row, 1);
        pass->block_rows = MIN(n, pass->rows.n_rows);
        b->n_block = pass->block_rows * row;
    } else {
        pass->piece = ROWS_BLOCK_BYTES / (int64_t)widest / MATH_ROW_PIECE * MATH_ROW_PIECE;
        b->n_block = pass->piece;
    }
    b->block_bytes = aligned((size_t)b->n_block * widest);
}

/* ---- buffers ---- */

/* A copy is made before the first step runs, so no earlier step may have had its buffer. */
static size_t add_block(struct builder *b, int holder) {
    for (int i = 0; i < b->n_blocks && holder != KEPT; i++)
        if (b->holder[i] == FREE) {
            b->holder[i] = holder;
            return (size_t)i * b->block_bytes;
        }
    CHECK(b->n_blocks < FUSED_MAX_VALUES);
    b->holder[b->n_blocks] = holder;
    return (size_t)b->n_blocks++ * b->block_bytes;
}

/* A buffer behind those of blocks; its offset is set right at the end. */
static size_t add_other(struct builder *b, size_t bytes) {
    size_t offset = b->other_bytes;
    b->other_bytes += aligned(bytes);
    return offset;
}

/* The block of an operand that the step is the last to read, if its elements are as wide; engines
 * may write there. Else a free one. */
static size_t block_for_result(struct builder *b, const struct rows_step *step, int at, int k) {
    for (int i = 0; i < step->n_operands; i++) {
        const struct rows_operand *operand = &step->operands[i];
        int from = producer_of(b, operand->value);
        size_t buffer = operand->offset / b->block_bytes;
        if (operand->home != ROWS_IN_BLOCK || operand->place != ROWS_SAME || from < 0 ||
            b->holder[buffer] != from || b->last_step[from] != at ||
            operand->size != step->results[0].size)
            continue;
        b->holder[buffer] = k;
        return operand->offset;
    }
    return add_block(b, k);
}

static void release_operands(struct builder *b, const struct rows_step *step, int at) {
    for (int i = 0; i < step->n_operands; i++) {
        const struct rows_operand *operand = &step->operands[i];
        int from = producer_of(b, operand->value);
        size_t buffer = operand->offset / b->block_bytes;
        if (operand->home == ROWS_IN_BLOCK && from >= 0 && b->holder[buffer] == from &&
            b->last_step[from] == at)
            b->holder[buffer] = FREE;
        if (operand->is_spread)
            b->holder[operand->spread / b->block_bytes] = FREE;
    }
}

/* ---- operands ---- */

static void set_steps(const struct rows_pass *pass, enum rows_role role,
                      struct rows_operand *operand) {
    int64_t size = (int64_t)operand->size, row = pass->rows.n_elements * size;
    bool is_elements =
        role != ROWS_VALUES && operand->place != ROWS_OF_ROW && operand->place != ROWS_ONE;
    if (role == ROWS_VALUES)
        operand->row_step = operand->place == ROWS_ONE ? 0 : size;
    else if (is_elements)
        operand->row_step = row;
    else
        operand->row_step = operand->place == ROWS_OF_ROW ? size : 0;
    if (is_elements && (operand->home == ROWS_IN_MEMORY || operand->home == ROWS_IN_ROW))
        operand->piece_step = size;
    if (operand->place == ROWS_COLUMN)
        operand->row_step = 0;
}

static const struct broadcast *broadcast_of(struct builder *b, int value) {
    struct broadcast *plan = arena_new(&b->p->plan->arena, struct broadcast);
    const struct fused_run *run = &b->p->run;
    struct shape shapes[2] = {run->classes[b->pass->class_of].shape,
                              run->classes[run->values[value].class_of].shape};
    CHECK(broadcast_init(plan, shapes, 2));
    return plan;
}

/* A copy of the operand for the steps of the phase; those of whole rows have one for all phases. */
static void copy_operand(struct builder *b, struct rows_operand *operand, int phase) {
    struct rows_pass *pass = b->pass;
    struct rows_copy *copy = pass->copies;
    phase = is_long(pass) ? phase : 0;
    while (copy < pass->copies + pass->n_copies &&
           (copy->value != operand->value || copy->phase != phase))
        copy++;
    if (copy == pass->copies + pass->n_copies) {
        pass->n_copies++;
        *copy = (struct rows_copy){.value = operand->value,
                                   .size = operand->size,
                                   .offset = add_block(b, KEPT),
                                   .plan = broadcast_of(b, operand->value),
                                   .repeats = operand->place == ROWS_COLUMN && !is_long(pass),
                                   .phase = phase};
    }
    operand->place = ROWS_COPIED;
    operand->home = ROWS_IN_BLOCK;
    operand->offset = copy->offset;
}

static enum rows_place place_in(const struct builder *b, enum rows_role role, int value) {
    const struct fused_run *run = &b->p->run;
    if (role == ROWS_ELEMENTS)
        return rows_place_of(b->p, b->pass, value);
    if (role == ROWS_REDUCTION)
        return ROWS_SAME;
    return run->classes[run->values[value].class_of].n_elements == b->pass->rows.n_rows ? ROWS_SAME
                                                                                        : ROWS_ONE;
}

static void add_operands(struct builder *b, struct rows_step *step, const int *values) {
    const struct rows_pass *pass = b->pass;
    bool has_rows = false;
    for (int i = 0; i < step->n_operands; i++) {
        struct rows_operand *operand = &step->operands[i];
        int value = values[i], from = producer_of(b, value);
        *operand =
            is_in_pass(b, from) ? b->homes[from] : (struct rows_operand){.home = ROWS_IN_MEMORY};
        operand->value = value;
        operand->size = size_of(b, value);
        operand->place = place_in(b, step->role, value);
        has_rows |= operand->place == ROWS_OF_ROW;
    }
    step->by_rows = has_rows && !is_long(pass) && pass->rows.n_elements >= ROWS_SPREAD_BELOW;
    for (int i = 0; i < step->n_operands; i++) {
        struct rows_operand *operand = &step->operands[i];
        if (operand->place == ROWS_COPIED ||
            (operand->place == ROWS_COLUMN && !is_long(pass) && !step->by_rows))
            copy_operand(b, operand, step->phase);
        operand->is_spread = operand->place == ROWS_OF_ROW && !is_long(pass) && !step->by_rows;
        if (operand->is_spread)
            operand->spread = add_block(b, SPREAD);
        else if (operand->place == ROWS_ONE || operand->place == ROWS_OF_ROW)
            step->ones |= 1u << i;
        set_steps(pass, step->role, operand);
    }
}

/* ---- steps ---- */

/* Is the value taken in a later phase than the one that makes it? */
static bool is_kept(const struct builder *b, int k) {
    for (int t = k + 1; t < b->p->state->n_instructions; t++)
        for (int i = 0; is_in_pass(b, t) && i < n_read(instruction_at(b, t)); i++)
            if (instruction_at(b, t)->operands[i] == value_of(b, k) &&
                b->p->members[t].phase > b->p->members[k].phase)
                return true;
    return false;
}

/* The result's home, but for the place of a block. */
static void choose_home(struct builder *b, int k) {
    struct rows_member *member = &b->p->members[k];
    struct rows_operand *home = &b->homes[k];
    size_t size = size_of(b, value_of(b, k));
    *home = (struct rows_operand){.value = value_of(b, k), .size = size, .place = ROWS_SAME};
    bool is_whole = member->role == ROWS_ELEMENTS && is_long(b->pass) && is_kept(b, k);
    size_t row_bytes = (size_t)b->pass->rows.n_elements * size;
    member->in_memory |= is_whole && row_bytes > ROWS_WHOLE_BYTES;
    member->in_memory |= member->role == ROWS_REDUCTION && b->pass->rows.n_chunks > 1;
    if (member->in_memory) {
        home->home = ROWS_IN_MEMORY;
    } else if (member->role != ROWS_ELEMENTS) {
        home->home = ROWS_IN_VALUES;
        home->offset = add_other(b, (size_t)MAX(b->pass->block_rows, 1) * size);
    } else if (is_whole) {
        home->home = ROWS_IN_ROW;
        home->offset = add_other(b, row_bytes);
    } else {
        home->home = ROWS_IN_BLOCK;
    }
}

static struct rows_step *new_step(struct builder *b, int first, const int *operands, int n_operands,
                                  int n_results) {
    const struct rows_member *member = &b->p->members[first];
    struct rows_step *step = &b->pass->steps[b->pass->n_steps++];
    step->role = member->role;
    step->phase = member->phase;
    step->n_operands = n_operands;
    step->n_results = n_results;
    step->operands = arena_array(&b->p->plan->arena, struct rows_operand, n_operands + n_results);
    step->results = step->operands + n_operands;
    step->number = member->role == ROWS_REDUCTION ? b->pass->n_reductions++ : -1;
    add_operands(b, step, operands);
    return step;
}

static void add_step(struct builder *b, int k) {
    int at = b->pass->n_steps;
    const struct fused_instruction *instruction = instruction_at(b, k);
    struct rows_step *step = new_step(b, k, instruction->operands, n_read(instruction), 1);
    step->instruction = instruction;
    step->ns_per_element = instruction->ns_per_element;
    step->results[0] = b->homes[k];
    if (step->results[0].home == ROWS_IN_BLOCK)
        step->results[0].offset = b->homes[k].offset = block_for_result(b, step, at, k);
    set_steps(b->pass, step->role == ROWS_ELEMENTS ? ROWS_ELEMENTS : ROWS_VALUES,
              &step->results[0]);
    release_operands(b, step, at);
}

/* ---- runs of instructions ---- */

/* Elements of one phase. */
static int list_run(const struct builder *b, int at) {
    const struct rows_member *first = &b->p->members[b->order[at]];
    int n = 0;
    while (at + n < b->n_order && first->role == ROWS_ELEMENTS &&
           b->p->members[b->order[at + n]].role == ROWS_ELEMENTS &&
           b->p->members[b->order[at + n]].phase == first->phase)
        n++;
    return n;
}

/* Which values are one element for all that an engine or code is called for. */
static void find_ones(const struct builder *b, bool *ret) {
    bool is_of_rows = is_long(b->pass) || b->pass->rows.n_elements >= ROWS_SPREAD_BELOW;
    for (int v = 0; v < fused_n_values(b->p->state); v++) {
        enum rows_place place = rows_place_of(b->p, b->pass, v);
        ret[v] = place == ROWS_ONE || (place == ROWS_OF_ROW && is_of_rows);
    }
}

/* How many instructions from place `at` of the order on become one step: 1, or those of a run. */
static int find_run(const struct builder *b, int at, const bool *is_one, struct fused_code *ret) {
    int n = fused_code_length(b->p->state, b->order + at, list_run(b, at));
    return MAX(fused_code_find_longest(b->p->state, b->order + at, n, is_one, ret), 1);
}

static void add_run(struct builder *b, const int *members, int n, const struct fused_code *code) {
    int at = b->pass->n_steps;
    struct rows_step *step =
        new_step(b, members[0], code->operands, code->n_operands, code->n_results);
    step->code = code->code;
    for (int m = 0; m < n; m++)
        step->ns_per_element += FUSED_CODE_SHARE * instruction_at(b, members[m])->ns_per_element;
    for (int i = 0; i < code->n_results; i++) {
        struct rows_operand *home = &b->homes[code->results[i]];
        if (home->home == ROWS_IN_BLOCK)
            home->offset = add_block(b, code->results[i]);
        step->results[i] = *home;
        set_steps(b->pass, ROWS_ELEMENTS, &step->results[i]);
    }
    release_operands(b, step, at);
}

/* ---- the order ---- */

static void find_order(struct builder *b) {
    for (int phase = 0; phase < b->pass->n_phases; phase++)
        for (int last = 0; last < 2; last++) /* values of rows come last in their phase */
            for (int k = 0; k < b->p->state->n_instructions; k++)
                if (is_in_pass(b, k) && b->p->members[k].phase == phase &&
                    (b->p->members[k].role == ROWS_VALUES) == last)
                    b->order[b->n_order++] = k;
}

/* Notes which step instructions n from place `at` of the order on belong to. */
static void note_step(struct builder *b, int at, int n, int step) {
    for (int m = at; m < at + n; m++) {
        int k = b->order[m];
        b->p->members[k].step = step;
        b->p->members[k].at = b->number * FUSED_MAX_INSTRUCTIONS + m;
        b->last_step[k] = step; /* if nobody takes it */
        for (int i = 0; i < n_read(instruction_at(b, k)); i++) {
            int from = producer_of(b, instruction_at(b, k)->operands[i]);
            if (is_in_pass(b, from))
                b->last_step[from] = step;
        }
    }
}

static void add_steps(struct builder *b) {
    struct arena *arena = &b->p->run.arena;
    struct fused_code *codes = arena_array(arena, struct fused_code, b->n_order + 1);
    int *lengths = arena_array(arena, int, b->n_order + 1), n_steps = 0;
    bool is_one[FUSED_MAX_VALUES];
    find_ones(b, is_one);
    for (int at = 0; at < b->n_order; at += lengths[n_steps++]) {
        lengths[n_steps] = find_run(b, at, is_one, &codes[n_steps]);
        note_step(b, at, lengths[n_steps], n_steps);
    }
    for (int s = 0, at = 0; s < n_steps; at += lengths[s++])
        if (lengths[s] > 1)
            add_run(b, b->order + at, lengths[s], &codes[s]);
        else
            add_step(b, b->order[at]);
}

static void move_others_behind_blocks(struct builder *b) {
    size_t first = (size_t)b->n_blocks * b->block_bytes;
    for (int s = 0; s < b->pass->n_steps; s++) {
        struct rows_step *step = &b->pass->steps[s];
        for (int i = 0; i < step->n_operands + step->n_results; i++) {
            struct rows_operand *operand = &step->operands[i]; /* results are behind operands */
            if (operand->home == ROWS_IN_ROW || operand->home == ROWS_IN_VALUES)
                operand->offset += first;
        }
    }
    b->pass->buffer_bytes = first + b->other_bytes;
}

static void find_first_of_phase(struct rows_pass *pass, struct arena *arena) {
    pass->first_of_phase = arena_array(arena, int, pass->n_phases + 1);
    for (int phase = 0, s = 0; phase <= pass->n_phases; phase++) {
        while (s < pass->n_steps && pass->steps[s].phase < phase)
            s++;
        pass->first_of_phase[phase] = s;
    }
}

/* ---- cost ---- */

/* What a unit takes: a row, or a chunk of one. The move of an element is that of fused_run.c. */
static double unit_ns(const struct builder *b) {
    const struct rows_pass *pass = b->pass;
    double ns = 0, fixed = 5;
    for (int s = 0; s < pass->n_steps; s++) {
        const struct rows_step *step = &pass->steps[s];
        double own = step->ns_per_element;
        for (int i = 0; i < step->n_operands + step->n_results; i++) {
            const struct rows_operand *operand = &step->operands[i];
            bool is_elements =
                i < step->n_operands ? step->role != ROWS_VALUES : step->role == ROWS_ELEMENTS;
            if (is_elements && operand->home == ROWS_IN_MEMORY && operand->place == ROWS_SAME)
                ns += FUSED_MOVE_NS;
        }
        *(step->role == ROWS_VALUES ? &fixed : &ns) += own;
    }
    return fixed + ns * (double)(pass->rows.n_elements / pass->rows.n_chunks);
}

/* ---- passes ---- */

static void build_pass(struct rows_planner *p, int number) {
    struct builder b = {.p = p, .pass = &p->plan->passes[number], .number = number};
    struct rows_pass *pass = b.pass;
    struct arena *arena = &p->plan->arena;
    int n_operands = 0, n = 0;
    if (pass->kernel >= 0) {
        p->members[pass->kernel].at = number * FUSED_MAX_INSTRUCTIONS;
        return;
    }
    b.homes = arena_array(&p->run.arena, struct rows_operand, p->state->n_instructions);
    choose_block(&b);
    for (int k = 0; k < p->state->n_instructions; k++)
        if (is_in_pass(&b, k)) {
            choose_home(&b, k);
            pass->n_phases = MAX(pass->n_phases, p->members[k].phase + 1);
            n_operands += instruction_at(&b, k)->n_operands;
            n++;
        }
    pass->steps = arena_array(arena, struct rows_step, n);
    pass->copies = arena_array(arena, struct rows_copy, n_operands + 1);
    find_order(&b);
    add_steps(&b);
    find_first_of_phase(pass, arena);
    move_others_behind_blocks(&b);
    pass->unit_ns = unit_ns(&b);
}

/* ---- the plan ---- */

void rows_plan_build(struct rows_planner *p) {
    rows_plan_find_memory(p);
    for (int i = 0; i < p->plan->n_passes; i++)
        build_pass(p, i);
    rows_plan_list_results(p);
}
