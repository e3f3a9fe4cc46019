/* Reduces rows piece by piece (math_rows.h). The order in which elements are added is that of the
 * loop `row` of math_reduce_loop.inc: its wide accumulators are columns, which the loop `columns`
 * continues, and they are merged at the end as there. */
#include "kernels/cpu/math/math_rows.h"

#include "kernels/cpu/math/math_reduce.h"
#include "kernels/support/half_blocks.h"

enum { BLOCK = 64, SHORT_ROW = 32 };

_Static_assert((int)MATH_ROW_ACCUMULATOR == (int)REDUCE_MAX_ACCUMULATOR, "one accumulator");
_Static_assert((int)MATH_ROW_WIDE == (int)REDUCE_WIDE_BYTES &&
                   REDUCE_LANES * REDUCE_MAX_ACCUMULATOR <= REDUCE_WIDE_BYTES,
               "the wide accumulators of every type");
_Static_assert(MATH_ROW_PIECE % HALF_BLOCK == 0 && MATH_ROW_PIECE % REDUCE_WIDE_BYTES == 0,
               "pieces end where blocks and wide accumulators do");

void math_rows_reduce(const struct kernel_instance *reduction, const void *in, int64_t n_rows,
                      int64_t n, void *out) {
    const struct reduce_state *state = reduction->state;
    const struct reduce_loops *loops = state->loops;
    char acc[BLOCK * REDUCE_MAX_ACCUMULATOR] __attribute__((aligned(64)));
    const char *from = in;
    char *to = out;
    for (int64_t done = 0, count; done < n_rows; done += count) {
        count = MIN(n_rows - done, (int64_t)BLOCK);
        loops->init(acc, count);
        if (n < SHORT_ROW && !state->is_narrow)
            loops->short_rows(from, count, n, acc);
        else
            for (int64_t i = 0; i < count; i++)
                reduce_run_row(state, from + i * n * (int64_t)state->size, n,
                               acc + i * (int64_t)loops->accumulator_size);
        reduce_run_finish(state, acc, to, count, n);
        from += count * n * (int64_t)state->size;
        to += count * (int64_t)state->size;
    }
}

/* ---- pieces ---- */

static int64_t n_wide(const struct reduce_state *state) {
    return (int64_t)(REDUCE_WIDE_BYTES / state->loops->accumulator_size);
}

void math_row_begin(const struct kernel_instance *reduction, int64_t n, struct math_row *row) {
    const struct reduce_state *state = reduction->state;
    row->is_long = !state->is_narrow && n >= 2 * n_wide(state);
    state->loops->init(row->accumulator, 1);
    if (row->is_long)
        state->loops->init(row->wide, n_wide(state));
}

/* Merges the wide accumulators, and takes the last elements, which are fewer than these. */
static void end_long(const struct reduce_state *state, struct math_row *row, const char *in,
                     int64_t n) {
    const struct reduce_loops *loops = state->loops;
    const int64_t size = (int64_t)loops->accumulator_size;
    for (int64_t k = REDUCE_LANES; k < n_wide(state); k += REDUCE_LANES)
        loops->merge(row->wide + k * size, row->wide, REDUCE_LANES);
    int64_t n_rows = n / REDUCE_LANES;
    if (n_rows > 0)
        loops->columns(in, n_rows, REDUCE_LANES, REDUCE_LANES, row->wide);
    for (int half = REDUCE_LANES / 2; half > 0; half /= 2)
        loops->merge(row->wide + half * size, row->wide, half);
    loops->merge(row->wide, row->accumulator, 1);
    int64_t done = n_rows * REDUCE_LANES;
    loops->short_rows(in + done * (int64_t)state->size, 1, n - done, row->accumulator);
}

void math_row_take(const struct kernel_instance *reduction, struct math_row *row, const void *in,
                   int64_t n, bool is_last) {
    const struct reduce_state *state = reduction->state;
    if (!row->is_long) {
        reduce_run_row(state, in, n, row->accumulator);
        return;
    }
    int64_t lanes = n_wide(state), done = n / lanes * lanes;
    state->loops->columns(in, n / lanes, lanes, lanes, row->wide);
    if (is_last)
        end_long(state, row, (const char *)in + done * (int64_t)state->size, n - done);
}

void math_row_finish(const struct kernel_instance *reduction, const struct math_row *row, int64_t n,
                     void *out) {
    reduce_run_finish(reduction->state, row->accumulator, out, 1, n);
}

/* ---- chunks ---- */

void math_row_keep(const struct math_row *row, void *to) {
    memcpy(to, row->accumulator, sizeof(row->accumulator));
}

void math_rows_merge(const struct kernel_instance *reduction, const struct math_rows *rows,
                     void *chunks, void *out) {
    const struct reduce_state *state = reduction->state;
    for (int64_t row = 0; row < rows->n_rows; row++) {
        char *first = (char *)chunks + row * rows->n_chunks * MATH_ROW_ACCUMULATOR;
        for (int64_t chunk = 1; chunk < rows->n_chunks; chunk++)
            state->loops->merge(first + chunk * MATH_ROW_ACCUMULATOR, first, 1);
        reduce_run_finish(state, first, (char *)out + row * (int64_t)state->size, 1,
                          rows->n_elements);
    }
}
