/* Divides a fused program with reductions into passes (fused_rows.h).
 *
 *   until all instructions are in a pass
 *       take the first reduction that is in none; what is reduced has the shape F
 *       passes for what does not wait for reductions and has a smaller shape than F
 *       the pass over F: every instruction of this shape, and reductions of it, that take only what
 *           is there or is in the pass; and what is computed from one value for each row
 *
 * A reduction has a pass of its own where it is not over the last dimensions, and where the rows
 * are too few for the threads that the work is worth. */
#include <stdlib.h>

#include "kernels/cpu/fused/fused_rows.h"
#include "kernels/support/reduction_checks.h"

/* As in pool_parallel_for: what is worth a thread. */
#define THREAD_NS 20000.0

/* ---- operands ---- */

static const struct fused_class *class_of(const struct rows_planner *p, int value) {
    return &p->run.classes[p->run.values[value].class_of];
}

/* Does the operand have its sizes before the columns, or those of the columns? The columns are the
 * last dimensions of the shape, with n elements together. */
static bool is_aligned(struct shape of, struct shape operand, int64_t n, bool has_rows) {
    int64_t columns = 1;
    for (int i = of.rank - 1, k = operand.rank - 1; i >= 0; i--, k--) {
        int64_t size = k >= 0 ? operand.dims[k] : 1;
        bool is_column = columns < n;
        if (size != (is_column != has_rows ? of.dims[i] : 1))
            return false;
        if (is_column)
            columns *= of.dims[i];
    }
    return true;
}

enum rows_place rows_place_of(const struct rows_planner *p, const struct rows_pass *pass,
                              int value) {
    const struct fused_class *of = &p->run.classes[pass->class_of], *operand = class_of(p, value);
    if (operand->n_elements == 1 && of->n_elements > 1)
        return ROWS_ONE;
    if (operand->n_elements == of->n_elements)
        return ROWS_SAME;
    if (is_aligned(of->shape, operand->shape, pass->rows.n_elements, true))
        return ROWS_OF_ROW;
    return is_aligned(of->shape, operand->shape, pass->rows.n_elements, false) ? ROWS_COLUMN
                                                                               : ROWS_COPIED;
}

static const struct fused_instruction *instruction_at(const struct rows_planner *p, int k) {
    return &p->state->instructions[k];
}

/* The instruction that an operand is; -1: it is an input. */
static int producer_of(const struct rows_planner *p, int value) {
    return value < p->state->n_inputs ? -1 : value - p->state->n_inputs;
}

static int value_of(const struct rows_planner *p, int k) { return p->state->n_inputs + k; }

/* ---- passes ---- */

static struct rows_pass *add_pass(struct rows_planner *p, int class_of) {
    struct rows_pass *pass = &p->plan->passes[p->plan->n_passes++];
    int64_t n = p->run.classes[class_of].n_elements;
    pass->kernel = -1;
    pass->class_of = class_of;
    pass->rows = (struct math_rows){n, 1, 1};
    return pass;
}

static void add_member(struct rows_planner *p, int k, enum rows_role role) {
    p->members[k].pass = p->plan->n_passes - 1;
    p->members[k].role = role;
    p->n_left--;
}

/* By instruction: does it wait for a reduction that is in no pass yet? */
static void find_waiting(const struct rows_planner *p, bool *ret) {
    for (int k = 0; k < p->state->n_instructions; k++) {
        const struct fused_instruction *instruction = instruction_at(p, k);
        ret[k] = p->members[k].pass < 0 && instruction->is_reduction;
        for (int i = 0; i < instruction->n_operands && p->members[k].pass < 0; i++) {
            int from = producer_of(p, instruction->operands[i]);
            ret[k] |= from >= 0 && ret[from];
        }
    }
}

/* A pass without reductions. Its rows are those of the last dimension where an operand is broadcast
 * along them. */
static void add_plain_pass(struct rows_planner *p, int class_of, const bool *waits) {
    struct rows_pass *pass = add_pass(p, class_of);
    const struct fused_class *of = &p->run.classes[class_of];
    bool is_broadcast = false;
    for (int k = 0; k < p->state->n_instructions; k++) {
        if (p->members[k].pass >= 0 || waits[k] ||
            p->run.values[value_of(p, k)].class_of != class_of)
            continue;
        add_member(p, k, ROWS_ELEMENTS);
        for (int i = 0; i < instruction_at(p, k)->n_operands; i++)
            is_broadcast |= rows_place_of(p, pass, instruction_at(p, k)->operands[i]) > ROWS_ONE;
    }
    if (!is_broadcast || of->shape.rank == 0)
        return;
    int64_t row = of->shape.dims[of->shape.rank - 1];
    if (of->n_elements / row >= p->plan->n_threads)
        pass->rows = (struct math_rows){of->n_elements / row, row, 1};
}

/* Plain passes for what waits for no reduction and has a shape before `end`, or that one. */
static void add_plain_passes(struct rows_planner *p, const struct fused_class *end, bool with_end) {
    bool waits[FUSED_MAX_INSTRUCTIONS];
    find_waiting(p, waits);
    for (;;) {
        int next = -1;
        for (int k = 0; k < p->state->n_instructions; k++) {
            int class = p->run.values[value_of(p, k)].class_of;
            const struct fused_class *of = &p->run.classes[class];
            if (p->members[k].pass >= 0 || waits[k] ||
                !(!end || fused_class_is_before(of, end) || (with_end && of == end)))
                continue;
            if (next < 0 || fused_class_is_before(of, &p->run.classes[next]))
                next = class;
        }
        if (next < 0)
            return;
        add_plain_pass(p, next, waits);
    }
}

/* ---- the pass over the rows of what is reduced ---- */

static bool find_rows(const struct rows_planner *p, int k, struct math_rows *ret) {
    const struct fused_instruction *instruction = instruction_at(p, k);
    struct shape shape = class_of(p, instruction->operands[0])->shape;
    bool is_reduced[SHAPE_MAX_RANK];
    memset(is_reduced, 0, (size_t)shape.rank);
    struct status *st =
        reduction_read_axes(&p->run.ctx->inputs[instruction->operands[1]], shape.rank, is_reduced);
    CHECK(!st); /* its shape is known */
    return math_rows_find(&instruction->kernel, shape, is_reduced, ret);
}

/* Is the value there before the pass? */
static bool is_there(const struct rows_planner *p, int value) {
    int from = producer_of(p, value);
    return from < 0 ||
           (p->members[from].pass >= 0 && p->members[from].pass < p->plan->n_passes - 1);
}

static bool is_in_pass(const struct rows_planner *p, int value) {
    int from = producer_of(p, value);
    return from >= 0 && p->members[from].pass == p->plan->n_passes - 1;
}

static bool is_elements(const struct rows_planner *p, int value) {
    return p->members[producer_of(p, value)].role == ROWS_ELEMENTS;
}

static bool may_reduce(const struct rows_planner *p, const struct rows_pass *pass, int k) {
    const struct fused_instruction *instruction = instruction_at(p, k);
    int from = instruction->operands[0];
    struct math_rows own;
    return p->run.values[from].class_of == pass->class_of &&
           (is_there(p, from) || (is_in_pass(p, from) && is_elements(p, from))) &&
           find_rows(p, k, &own) && own.n_rows == pass->rows.n_rows &&
           own.n_elements == pass->rows.n_elements && own.n_chunks == pass->rows.n_chunks;
}

static bool may_be_elements(const struct rows_planner *p, const struct rows_pass *pass, int k) {
    const struct fused_instruction *instruction = instruction_at(p, k);
    for (int i = 0; i < instruction->n_operands; i++) {
        int operand = instruction->operands[i];
        if (is_there(p, operand))
            continue;
        if (!is_in_pass(p, operand))
            return false;
        enum rows_place place = rows_place_of(p, pass, operand);
        if (!is_elements(p, operand) &&
            (pass->rows.n_chunks > 1 || (place != ROWS_OF_ROW && place != ROWS_ONE)))
            return false;
    }
    return true;
}

/* From values of the rows of this pass, and others with one for each row. */
static bool may_be_values(const struct rows_planner *p, const struct rows_pass *pass, int k) {
    const struct fused_instruction *instruction = instruction_at(p, k);
    bool takes_value = false;
    if (pass->rows.n_chunks > 1 || class_of(p, value_of(p, k))->n_elements != pass->rows.n_rows)
        return false;
    for (int i = 0; i < instruction->n_operands; i++) {
        int operand = instruction->operands[i];
        int64_t n = class_of(p, operand)->n_elements;
        bool is_value = is_in_pass(p, operand) && !is_elements(p, operand);
        if (!(is_value || is_there(p, operand)) || (n != pass->rows.n_rows && n != 1))
            return false;
        takes_value |= is_value;
    }
    return takes_value;
}

static double work_ns(const struct rows_planner *p, const struct rows_pass *pass) {
    double ns = 0;
    for (int k = 0; k < p->state->n_instructions; k++)
        if (p->members[k].pass == p->plan->n_passes - 1 && p->members[k].role != ROWS_VALUES)
            ns += instruction_at(p, k)->ns_per_element;
    return ns * (double)p->run.classes[pass->class_of].n_elements;
}

static bool has_too_few_rows(const struct rows_planner *p, const struct rows_pass *pass) {
    double threads = MIN((double)p->plan->n_threads, work_ns(p, pass) / THREAD_NS);
    return (double)(pass->rows.n_rows * pass->rows.n_chunks) < (double)(int)threads;
}

static void remove_pass(struct rows_planner *p) {
    int last = --p->plan->n_passes;
    for (int k = 0; k < p->state->n_instructions; k++)
        if (p->members[k].pass == last) {
            p->members[k].pass = -1;
            p->n_left++;
        }
    p->plan->passes[last] = (struct rows_pass){0};
}

/* False: the reduction is better off alone. */
static bool add_rows_pass(struct rows_planner *p, int reduction) {
    struct math_rows rows;
    if (!find_rows(p, reduction, &rows))
        return false;
    struct rows_pass *pass =
        add_pass(p, p->run.values[instruction_at(p, reduction)->operands[0]].class_of);
    pass->rows = rows;
    int n_elements = 0;
    for (int k = 0; k < p->state->n_instructions; k++) {
        if (p->members[k].pass >= 0)
            continue;
        bool is_reduction = instruction_at(p, k)->is_reduction,
             has_class = p->run.values[value_of(p, k)].class_of == pass->class_of;
        if (is_reduction && may_reduce(p, pass, k))
            add_member(p, k, ROWS_REDUCTION);
        else if (!is_reduction && has_class && may_be_elements(p, pass, k))
            add_member(p, k, ROWS_ELEMENTS), n_elements++;
        else if (!is_reduction && !has_class && may_be_values(p, pass, k))
            add_member(p, k, ROWS_VALUES);
    }
    CHECK(p->members[reduction].pass == p->plan->n_passes - 1);
    if (n_elements > 0 && !has_too_few_rows(p, pass))
        return true;
    remove_pass(p);
    return false;
}

/* The reduction and what it needs. */
static void add_kernel_pass(struct rows_planner *p, int k) {
    int from = instruction_at(p, k)->operands[0];
    add_plain_passes(p, class_of(p, from), true);
    add_pass(p, p->run.values[value_of(p, k)].class_of)->kernel = k;
    add_member(p, k, ROWS_REDUCTION);
}

static int first_reduction(const struct rows_planner *p) {
    for (int k = 0; k < p->state->n_instructions; k++)
        if (instruction_at(p, k)->is_reduction && p->members[k].pass < 0)
            return k;
    return -1;
}

static void find_passes(struct rows_planner *p) {
    while (p->n_left > 0) {
        int k = first_reduction(p);
        if (k < 0) {
            add_plain_passes(p, NULL, false);
            continue;
        }
        add_plain_passes(p, class_of(p, instruction_at(p, k)->operands[0]), false);
        if (!add_rows_pass(p, k))
            add_kernel_pass(p, k);
    }
}

/* ---- phases ---- */

static bool in_one_pass(const struct rows_planner *p, int a, int b) {
    return a >= 0 && p->members[a].pass == p->members[b].pass;
}

/* The earliest phase first; then elements move to the phase of their first taker, so that few of
 * them have to be kept from one phase to the next. */
static void find_phases(struct rows_planner *p) {
    int first[FUSED_MAX_INSTRUCTIONS]; /* taker's phase */
    for (int k = 0; k < p->state->n_instructions; k++) {
        struct rows_member *member = &p->members[k];
        int n_operands = member->role == ROWS_REDUCTION ? 1 : instruction_at(p, k)->n_operands;
        member->phase = 0;
        for (int i = 0; i < n_operands; i++) {
            int from = producer_of(p, instruction_at(p, k)->operands[i]);
            if (in_one_pass(p, from, k))
                member->phase = MAX(member->phase, p->members[from].ready);
        }
        /* what is computed from values of rows runs at the end of the phase before */
        member->phase -= member->role == ROWS_VALUES;
        member->ready = member->phase + (member->role != ROWS_ELEMENTS);
        first[k] = INT32_MAX;
    }
    for (int k = p->state->n_instructions - 1; k >= 0; k--) {
        struct rows_member *member = &p->members[k];
        if (member->role == ROWS_ELEMENTS && first[k] != INT32_MAX)
            member->phase = first[k];
        for (int i = 0; i < instruction_at(p, k)->n_operands; i++) {
            int from = producer_of(p, instruction_at(p, k)->operands[i]);
            if (in_one_pass(p, from, k) && member->role != ROWS_VALUES)
                first[from] = MIN(first[from], member->phase);
        }
    }
}

/* ---- the plan ---- */

/* What the plan is for: the shapes of the inputs, and the axes. */
static void keep_key(struct rows_planner *p, const struct kernel_ctx *ctx) {
    struct rows_plan *plan = p->plan;
    const struct fused_state *state = p->state;
    plan->shapes = arena_array(&plan->arena, struct shape, state->n_inputs + 1);
    plan->axes = arena_array(&plan->arena, int64_t *, state->n_inputs + 1);
    for (int i = 0; i < state->n_inputs; i++) {
        struct shape shape = tensor_shape(&ctx->inputs[i]);
        int64_t *dims = arena_array(&plan->arena, int64_t, shape.rank + 1);
        for (int d = 0; d < shape.rank; d++)
            dims[d] = shape.dims[d];
        plan->shapes[i] = (struct shape){shape.rank, dims};
    }
    for (int k = 0; k < state->n_instructions; k++) {
        int input = instruction_at(p, k)->is_reduction ? instruction_at(p, k)->operands[1] : -1;
        if (input < 0 || plan->axes[input])
            continue;
        const struct tensor *axes = &ctx->inputs[input];
        plan->axes[input] = arena_array(&plan->arena, int64_t, axes->n_elements + 1);
        for (int64_t i = 0; i < axes->n_elements; i++)
            plan->axes[input][i] = tensor_index_at(axes, i);
    }
}

/* The types of axes are those of the signature, so that reading them cannot fail on those. */
struct rows_plan *rows_plan_new(struct kernel_ctx *ctx) {
    struct rows_plan *plan = xcalloc(1, sizeof(*plan));
    const struct fused_state *state = ctx->instance->state;
    struct rows_planner p = {.plan = plan, .state = state, .run = {.ctx = ctx, .state = state}};
    arena_init(&plan->arena);
    arena_init(&p.run.arena);
    plan->n_threads = ctx->pool ? pool_n_threads(ctx->pool) : 1;
    keep_key(&p, ctx);
    if (state->can_be_blocks && fused_plan_shapes(&p.run, SHAPE_UNKNOWN)) {
        p.members = arena_array(&p.run.arena, struct rows_member, state->n_instructions);
        for (int k = 0; k < state->n_instructions; k++)
            p.members[k].pass = -1;
        p.n_left = state->n_instructions;
        /* a pass has an instruction, and one more is made and removed again */
        plan->passes = arena_array(&plan->arena, struct rows_pass, state->n_instructions + 1);
        find_passes(&p);
        find_phases(&p);
        rows_plan_build(&p);
    }
    arena_fini(&p.run.arena);
    return plan;
}

void rows_plan_free(struct rows_plan *plan) {
    if (!plan)
        return;
    arena_fini(&plan->arena);
    free(plan);
}
