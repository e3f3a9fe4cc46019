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
#include "kernels/cpu/fused/fused_stage.h"

#include <stdatomic.h>

#include "kernels/cost.h"

static char *address_of(const struct fused_stage *stage, const struct place *place, char *buffers,
                        int64_t begin) {
    return place->base ? place->base + begin * (int64_t)place->step
                       : buffers + (size_t)place->buffer * stage->buffer_bytes;
}

/* Operands come first, and then results. */
static unsigned run_step(const struct step *step, void *const *pointers, unsigned ones, int64_t n) {
    if (step->code) {
        emit_code_run(step->code, pointers, n);
        return 0;
    }
    return step->instruction->engine->run(&step->instruction->kernel, (const void *const *)pointers,
                                          ones, pointers[step->n_operands], n);
}

/* Runs n elements from element `begin` on, one call for each row of the stretched operand. */
static unsigned run_rows(const struct fused_stage *stage, const struct step *step, void **pointers,
                         int64_t begin, int64_t n) {
    const struct broadcast *plan = &step->rows->plan;
    const struct fused_value *value = &stage->run->values[step->rows->value];
    unsigned bad = 0, ones = step->ones | (plan->inner_stretched >> 1 & 1) << step->row_operand;
    struct broadcast_cursor cursor;
    broadcast_seek(plan, begin, &cursor);
    for (int64_t done = 0, count; done < n; done += count) {
        count = MIN(plan->dims[plan->rank - 1] - cursor.inner, n - done);
        pointers[step->row_operand] =
            value->data + broadcast_offset(plan, &cursor, 1) * (int64_t)value->size;
        bad |= run_step(step, pointers, ones, count);
        for (int i = 0; i < step->n_operands + step->n_results; i++)
            pointers[i] = (char *)pointers[i] + count * (int64_t)step->places[i].step;
        broadcast_next_row(plan, &cursor);
    }
    return bad;
}

static unsigned run_steps(const struct fused_stage *stage, char *buffers, int64_t begin,
                          int64_t n) {
    void *pointers[FUSED_MAX_POINTERS];
    unsigned bad = 0;
    for (const struct step *step = stage->steps; step < stage->steps + stage->n_steps; step++) {
        for (int i = 0; i < step->n_operands + step->n_results; i++)
            pointers[i] = address_of(stage, &step->places[i], buffers, begin);
        bad |= step->rows ? run_rows(stage, step, pointers, begin, n)
                          : run_step(step, pointers, step->ones, n);
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
    fused_stage_build(&stage);
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
    fused_stage_build(stage);
    return stage;
}

void fused_stage_run_part(struct fused_stage *stage, int64_t begin, int64_t end) {
    if (stage->n_steps > 0)
        run_range(stage, begin, end);
}
