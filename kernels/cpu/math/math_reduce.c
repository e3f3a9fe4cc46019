/* The engine of reductions over any set of axes: Sum, Prod, Mean, Max, Min, All, Any,
 * EuclideanNorm.
 *
 * Dimensions of size 1 are dropped. Neighbours of one kind (reduced or kept) are merged, so the
 * kinds alternate. Two forms remain:
 *
 *   … K R   the last dimension is reduced: each contiguous row is reduced to one accumulator
 *   … R K   the last dimension is kept: rows are added to a row of accumulators, tile by tile
 *
 * Work is split into units, which are outputs or tiles of outputs. When units are few and inputs
 * are large, the input of each unit is also split into chunks, whose partial results are merged in
 * order. So the result does not depend on the number of threads. */
#include "kernels/cpu/math/math_reduce.h"

#include <stdlib.h>

#include "kernels/cpu/math/math_picked.h"
#include "kernels/cpu/math/math_rows.h"
#include "kernels/support/half_blocks.h"
#include "kernels/support/reduction_checks.h"

enum {
    /* columns that are reduced together, whose accumulators stay in the first-level cache */
    TILE = REDUCE_TILE,
    OUTPUT_BLOCK = 64, /* row results that are finished together */
    SHORT_ROW = 32,
    CHUNK = 1 << 17, /* elements that are worth a share of their own */
    FEW_UNITS = 8,
    MAX_CHUNKS = 32,
    MAX_ACCUMULATOR = REDUCE_MAX_ACCUMULATOR,
    /* rows of fewer columns are folded: several rows are treated as one longer row */
    NARROW_FOLD = 16,
};

struct reduce_op {
    /* avx2_loops and avx512_loops are NULL except on x86 */
    const struct reduce_loops *loops, *avx2_loops, *avx512_loops;
    /* the reduction of one element is the element */
    bool is_identity_of_one;
};

static struct status *reduce_init(struct kernel_init *init) {
    const struct reduce_op *op = init->arg;
    struct reduce_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    state->dtype = (enum dtype)init->node->in_types[0];
    state->size = dtype_size(state->dtype);
    state->is_narrow = dtype_is_narrow_float(state->dtype);
    state->is_identity_of_one = op->is_identity_of_one;
    const struct reduce_loops *loops = op->avx512_loops && cpu_has_avx512() ? op->avx512_loops
                                       : op->avx2_loops && cpu_has_avx2()   ? op->avx2_loops
                                                                            : op->loops;
    state->loops = loops + (state->is_narrow ? DT_FLOAT : state->dtype);
    CHECK(state->loops->accumulator_size > 0 && state->loops->accumulator_size <= MAX_ACCUMULATOR);
    return node_get_b(init->node, "keep_dims", &state->keep_dims);
}

/* One reduction, in merged dimensions. */
struct reduction {
    const struct reduce_state *state;
    const char *in;
    char *out;
    int rank;
    bool last_is_reduced;
    int64_t dims[SHAPE_MAX_RANK + 1], strides[SHAPE_MAX_RANK + 1];
    int64_t n_outputs, n_reduced;
    int64_t inner; /* size of the last dimension */
    /* the product of the kept dimensions without a last one */
    int64_t n_outer;
    int64_t n_reduced_rows; /* the product of the reduced dimensions without a last one */
    int64_t n_tiles;        /* tiles of columns; 1 in the first form */
    int64_t n_chunks;       /* chunks of each unit's input */
    /* n_units · n_chunks · TILE accumulators (first form: n_units · n_chunks) when n_chunks > 1 */
    char *partials;
};

/* Merges the dimensions. False when nothing is reduced. */
static bool reduction_plan(struct reduction *r, struct shape shape, const bool *is_reduced) {
    bool last_kind = false;
    r->rank = 0;
    r->n_outputs = r->n_reduced = 1;
    bool reduces = false;
    for (int i = 0; i < shape.rank; i++) {
        int64_t dim = shape.dims[i];
        int64_t *n = is_reduced[i] ? &r->n_reduced : &r->n_outputs;
        /* wraps only when another size is 0, and then nobody reads it */
        *n = (int64_t)((uint64_t)*n * (uint64_t)dim);
        if (dim == 1)
            continue;
        reduces |= is_reduced[i];
        if (r->rank > 0 && last_kind == is_reduced[i]) {
            r->dims[r->rank - 1] = (int64_t)((uint64_t)r->dims[r->rank - 1] * (uint64_t)dim);
        } else {
            r->dims[r->rank++] = dim;
            last_kind = is_reduced[i];
        }
    }
    if (!reduces && r->rank > 0) { /* nothing is reduced, so each element is a result of its own */
        r->dims[r->rank++] = 1;
        last_kind = true;
    } else if (r->rank == 0) {
        r->dims[r->rank++] = 1;
        last_kind = true;
    }
    r->last_is_reduced = last_kind;
    int64_t stride = 1;
    for (int i = r->rank - 1; i >= 0; i--) {
        r->strides[i] = stride;
        stride = (int64_t)((uint64_t)stride * (uint64_t)r->dims[i]);
    }
    r->inner = r->dims[r->rank - 1];
    r->n_outer = r->last_is_reduced ? r->n_outputs : r->n_outputs / MAX(r->inner, 1);
    r->n_reduced_rows = r->last_is_reduced ? r->n_reduced / MAX(r->inner, 1) : r->n_reduced;
    return reduces;
}

/* The offset of position `index` among the dimensions of one kind, which are first, first + 2, …,
 * without a last dimension that the row covers. */
static int64_t position_offset(const struct reduction *r, int last, int64_t index) {
    int64_t offset = 0;
    for (int i = last; i >= 0; i -= 2) {
        offset += index % r->dims[i] * r->strides[i];
        index /= r->dims[i];
    }
    return offset;
}
static inline int64_t kept_offset(const struct reduction *r, int64_t index) {
    return position_offset(r, r->last_is_reduced ? r->rank - 2 : r->rank - 3, index);
}
static inline int64_t reduced_offset(const struct reduction *r, int64_t index) {
    return position_offset(r, r->last_is_reduced ? r->rank - 3 : r->rank - 2, index);
}

/* ---- loops, with a conversion of narrow floats ---- */

void reduce_run_row(const struct reduce_state *state, const char *in, int64_t n, void *acc) {
    if (!state->is_narrow) {
        state->loops->row(in, n, acc);
        return;
    }
    float block[HALF_BLOCK];
    for (int64_t done = 0; done < n; done += HALF_BLOCK) {
        int64_t count = MIN(n - done, HALF_BLOCK);
        half_block_load(state->dtype, block, (const uint16_t *)in + done, count);
        state->loops->row(block, count, acc);
    }
}

static void run_columns(const struct reduce_state *state, const char *in, int64_t n_rows,
                        int64_t stride, int64_t n, void *acc) {
    if (!state->is_narrow) {
        state->loops->columns(in, n_rows, stride, n, acc);
        return;
    }
    float block[TILE];
    for (int64_t r = 0; r < n_rows; r++) {
        half_block_load(state->dtype, block, (const uint16_t *)in + r * stride, n);
        state->loops->columns(block, 1, n, n, acc);
    }
}

void reduce_run_finish(const struct reduce_state *state, const void *acc, char *out, int64_t n,
                       int64_t n_reduced) {
    if (!state->is_narrow) {
        state->loops->finish(acc, out, n, n_reduced);
        return;
    }
    float block[TILE];
    state->loops->finish(acc, block, n, n_reduced);
    half_block_store(state->dtype, (uint16_t *)out, block, n);
}

/* ---- the first form: rows ---- */

/* Reduces elements [begin, end) of the input of output `index`, counted over its reduced rows. */
static void reduce_span(const struct reduction *r, int64_t index, int64_t begin, int64_t end,
                        void *acc) {
    const char *base = r->in + kept_offset(r, index) * (int64_t)r->state->size;
    while (begin < end) {
        int64_t row = begin / r->inner, at = begin % r->inner, n = MIN(r->inner - at, end - begin);
        reduce_run_row(r->state, base + (reduced_offset(r, row) + at) * (int64_t)r->state->size, n,
                       acc);
        begin += n;
    }
}

static void reduce_rows(void *arg, int64_t begin, int64_t end) {
    const struct reduction *r = arg;
    const struct reduce_state *state = r->state;
    char acc[OUTPUT_BLOCK * MAX_ACCUMULATOR] __attribute__((aligned(64)));
    bool is_short = r->n_reduced_rows == 1 && r->inner < SHORT_ROW && !state->is_narrow;
    while (begin < end) {
        int64_t n = MIN(end - begin, OUTPUT_BLOCK);
        state->loops->init(acc, n);
        /* no outer dimension is reduced, so consecutive outputs have consecutive rows */
        if (is_short)
            state->loops->short_rows(r->in + begin * r->inner * (int64_t)state->size, n, r->inner,
                                     acc);
        else
            for (int64_t i = 0; i < n; i++)
                reduce_span(r, begin + i, 0, r->n_reduced,
                            acc + i * (int64_t)state->loops->accumulator_size);
        reduce_run_finish(state, acc, r->out + begin * (int64_t)state->size, n, r->n_reduced);
        begin += n;
    }
}

static int64_t chunk_begin(const struct reduction *r, int64_t total, int64_t chunk) {
    return chunk == r->n_chunks ? total : total / r->n_chunks * chunk;
}

static void reduce_row_chunks(void *arg, int64_t begin, int64_t end) {
    const struct reduction *r = arg;
    for (; begin < end; begin++) {
        int64_t index = begin / r->n_chunks, chunk = begin % r->n_chunks;
        void *acc = r->partials + begin * (int64_t)r->state->loops->accumulator_size;
        r->state->loops->init(acc, 1);
        reduce_span(r, index, chunk_begin(r, r->n_reduced, chunk),
                    chunk_begin(r, r->n_reduced, chunk + 1), acc);
    }
}

/* ---- the second form: columns ---- */

static inline int64_t tile_width(const struct reduction *r, int64_t tile) {
    return MIN(r->inner - tile * TILE, TILE);
}

/* Reduces few columns: `fold` rows are treated as one row of fold · inner columns, and the groups
 * are merged at the end. */
static void reduce_folded(const struct reduction *r, const char *in, int64_t n_rows, void *acc) {
    const struct reduce_state *state = r->state;
    char wide[TILE * MAX_ACCUMULATOR] __attribute__((aligned(64)));
    int64_t fold = TILE / r->inner, width = fold * r->inner, n_wide = n_rows / fold;
    state->loops->init(wide, width);
    run_columns(state, in, n_wide, width, width, wide);
    for (int64_t k = 0; k < fold; k++)
        state->loops->merge(wide + k * r->inner * (int64_t)state->loops->accumulator_size, acc,
                            r->inner);
    run_columns(state, in + n_wide * width * (int64_t)state->size, n_rows - n_wide * fold, r->inner,
                r->inner, acc);
}

/* Reduces rows [begin, end) of the reduced positions, for one tile of one outer position. */
static void reduce_tile(const struct reduction *r, int64_t outer, int64_t tile, int64_t begin,
                        int64_t end, void *acc) {
    const char *base = r->in + (kept_offset(r, outer) + tile * TILE) * (int64_t)r->state->size;
    /* the last reduced dimension, whose rows are `inner` apart */
    int64_t run_dim = r->dims[r->rank - 2], width = tile_width(r, tile);
    while (begin < end) {
        int64_t at = begin % run_dim, n = MIN(run_dim - at, end - begin);
        const char *in = base + reduced_offset(r, begin) * (int64_t)r->state->size;
        if (r->inner < NARROW_FOLD && n >= 2 * (TILE / r->inner))
            reduce_folded(r, in, n, acc);
        else
            run_columns(r->state, in, n, r->inner, width, acc);
        begin += n;
    }
}

static void reduce_tiles(void *arg, int64_t begin, int64_t end) {
    const struct reduction *r = arg;
    char acc[TILE * MAX_ACCUMULATOR] __attribute__((aligned(64)));
    for (; begin < end; begin++) {
        int64_t outer = begin / r->n_tiles, tile = begin % r->n_tiles;
        r->state->loops->init(acc, tile_width(r, tile));
        reduce_tile(r, outer, tile, 0, r->n_reduced_rows, acc);
        reduce_run_finish(r->state, acc,
                          r->out + (outer * r->inner + tile * TILE) * (int64_t)r->state->size,
                          tile_width(r, tile), r->n_reduced);
    }
}

static void reduce_tile_chunks(void *arg, int64_t begin, int64_t end) {
    const struct reduction *r = arg;
    for (; begin < end; begin++) {
        int64_t unit = begin / r->n_chunks, chunk = begin % r->n_chunks, tile = unit % r->n_tiles;
        void *acc = r->partials + begin * TILE * (int64_t)r->state->loops->accumulator_size;
        r->state->loops->init(acc, tile_width(r, tile));
        reduce_tile(r, unit / r->n_tiles, tile, chunk_begin(r, r->n_reduced_rows, chunk),
                    chunk_begin(r, r->n_reduced_rows, chunk + 1), acc);
    }
}

/* ---- both forms ---- */

/* Merges each unit's chunks in order, and finishes the results. */
static void merge_chunks(const struct reduction *r, int64_t n_units, int64_t accumulators) {
    const struct reduce_loops *loops = r->state->loops;
    int64_t step = accumulators * (int64_t)loops->accumulator_size;
    for (int64_t unit = 0; unit < n_units; unit++) {
        char *first = r->partials + unit * r->n_chunks * step;
        int64_t tile = unit % r->n_tiles, width = r->last_is_reduced ? 1 : tile_width(r, tile);
        for (int64_t chunk = 1; chunk < r->n_chunks; chunk++)
            loops->merge(first + chunk * step, first, width);
        int64_t at = r->last_is_reduced ? unit : unit / r->n_tiles * r->inner + tile * TILE;
        reduce_run_finish(r->state, first, r->out + at * (int64_t)r->state->size, width,
                          r->n_reduced);
    }
}

static int64_t n_chunks_of(int64_t n_units, int64_t unit_elements, int64_t divisible) {
    return n_units < FEW_UNITS ? MIN(MIN(unit_elements / CHUNK, MAX_CHUNKS), divisible) : 1;
}

static int64_t n_tiles_of(int64_t inner) { return (inner + TILE - 1) / TILE; }

static void reduction_run(struct reduction *r, struct pool *pool) {
    int64_t accumulators = r->last_is_reduced ? 1 : TILE;
    r->n_tiles = r->last_is_reduced ? 1 : n_tiles_of(r->inner);
    int64_t n_units = r->n_outer * r->n_tiles,
            unit_elements = r->n_reduced * (r->last_is_reduced ? 1 : MIN(r->inner, TILE));
    int64_t divisible = r->last_is_reduced ? r->n_reduced : r->n_reduced_rows;
    r->n_chunks = n_chunks_of(n_units, unit_elements, divisible);
    double cost = r->state->is_narrow ? 1 : 0.4;
    if (r->n_chunks <= 1) {
        pool_parallel_for(pool, n_units, 5 + cost * (double)unit_elements,
                          r->last_is_reduced ? reduce_rows : reduce_tiles, r);
        return;
    }
    r->partials =
        xmalloc((size_t)(n_units * r->n_chunks * accumulators) * r->state->loops->accumulator_size);
    pool_parallel_for(pool, n_units * r->n_chunks, cost * (double)(unit_elements / r->n_chunks),
                      r->last_is_reduced ? reduce_row_chunks : reduce_tile_chunks, r);
    merge_chunks(r, n_units, accumulators);
    free(r->partials);
}

/* Without input elements every output is the result of reducing nothing. */
static void fill_empty(const struct reduction *r) {
    char acc[TILE * MAX_ACCUMULATOR] __attribute__((aligned(64)));
    for (int64_t done = 0; done < r->n_outputs; done += TILE) {
        int64_t n = MIN(r->n_outputs - done, TILE);
        r->state->loops->init(acc, n);
        reduce_run_finish(r->state, acc, r->out + done * (int64_t)r->state->size, n, 0);
    }
}

static enum kernel_result reduce_compute(struct kernel_ctx *ctx) {
    const struct reduce_state *state = ctx->instance->state;
    const struct tensor *in = &ctx->inputs[0];
    struct shape shape = tensor_shape(in);
    bool is_reduced[SHAPE_MAX_RANK];
    memset(is_reduced, 0, (size_t)shape.rank);
    KERNEL_TRY(ctx, reduction_read_axes(&ctx->inputs[1], shape.rank, is_reduced));
    int64_t dims[SHAPE_MAX_RANK];
    struct shape out_shape = reduction_output_shape(shape, is_reduced, state->keep_dims, dims);
    /* not initialised: its long lists of sizes are set only as far as they are used */
    struct reduction r;
    r.state = state;
    r.in = tensor_cdata(in);
    r.partials = NULL;
    bool reduces = reduction_plan(&r, shape, is_reduced);
    if (!reduces && state->is_identity_of_one && r.n_reduced == 1) {
        KERNEL_TRY(ctx, tensor_reshape(in, out_shape, &ctx->outputs[0]));
        return KERNEL_DONE;
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->dtype, out_shape));
    r.out = tensor_data(&ctx->outputs[0]);
    if (in->n_elements == 0)
        fill_empty(&r);
    else
        reduction_run(&r, ctx->pool);
    return KERNEL_DONE;
}

/* ---- rows (math_rows.h) ---- */

struct shape math_reduced_shape(const struct kernel_instance *reduction, struct shape shape,
                                const bool *is_reduced, int64_t *dims) {
    const struct reduce_state *state = reduction->state;
    return reduction_output_shape(shape, is_reduced, state->keep_dims, dims);
}

double math_reduced_ns(const struct kernel_instance *reduction) {
    const struct reduce_state *state = reduction->state;
    return state->is_narrow ? 0.7 : 0.1;
}

bool math_rows_find(const struct kernel_instance *reduction, struct shape shape,
                    const bool *is_reduced, struct math_rows *ret) {
    struct reduction r;
    r.state = reduction->state;
    if (!reduction_plan(&r, shape, is_reduced) || !r.last_is_reduced || r.n_reduced_rows != 1 ||
        r.n_outputs == 0 || r.n_reduced == 0)
        return false;
    *ret = (struct math_rows){r.n_outputs, r.n_reduced,
                              MAX(n_chunks_of(r.n_outputs, r.n_reduced, r.n_reduced), 1)};
    return true;
}

/* ---- picked rows (math_picked.h) ---- */

bool math_is_reduction(const struct kernel_instance *instance) {
    return instance->def->compute == reduce_compute;
}

bool math_picked_suits(const struct math_picked *job) {
    return job->n_reduced > 1 && job->inner >= NARROW_FOLD &&
           n_chunks_of(job->n_outer * n_tiles_of(job->inner),
                       job->n_reduced * MIN(job->inner, (int64_t)TILE), job->n_reduced) <= 1;
}

struct picked_run {
    const struct reduce_state *state;
    const struct math_picked *job;
};

/* Rows come from all over the matrix, so the processor does not foresee them. */
static inline void fetch_early(const struct picked_run *run, const int64_t *rows, int64_t i,
                               int64_t first, int64_t width) {
    enum { AHEAD = 8, LINE = 64 };
    const struct math_picked *job = run->job;
    const int64_t size = (int64_t)run->state->size;
    if (i + AHEAD >= job->n_reduced)
        return;
    const char *row = (const char *)job->from + (rows[i + AHEAD] * job->inner + first) * size;
    for (int64_t at = 0; at < width * size; at += LINE)
        __builtin_prefetch(row + at);
}

/* Reduces a tile of one outer position, two rows at a time. Each accumulator takes the rows in
 * order, as it does when they are side by side. */
static void reduce_picked(const struct picked_run *run, const int64_t *rows, int64_t first,
                          int64_t width, void *acc) {
    const struct math_picked *job = run->job;
    const int64_t size = (int64_t)run->state->size;
    for (int64_t i = 0; i < job->n_reduced; i += 2) {
        bool has_two = i + 1 < job->n_reduced;
        fetch_early(run, rows, i, first, width);
        fetch_early(run, rows, i + 1, first, width);
        int64_t apart = has_two ? (rows[i + 1] - rows[i]) * job->inner : 0;
        run_columns(run->state, (const char *)job->from + (rows[i] * job->inner + first) * size,
                    1 + has_two, apart, width, acc);
    }
}

/* Units are tiles of outer positions. */
static void picked_range(void *arg, int64_t begin, int64_t end) {
    const struct picked_run *run = arg;
    const struct math_picked *job = run->job;
    char acc[TILE * MAX_ACCUMULATOR] __attribute__((aligned(64)));
    for (int64_t n_tiles = n_tiles_of(job->inner); begin < end; begin++) {
        int64_t outer = begin / n_tiles, first = begin % n_tiles * TILE,
                width = MIN(job->inner - first, (int64_t)TILE);
        run->state->loops->init(acc, width);
        reduce_picked(run, job->rows + outer * job->n_reduced, first, width, acc);
        reduce_run_finish(run->state, acc,
                          (char *)job->to +
                              (outer * job->inner + first) * (int64_t)run->state->size,
                          width, job->n_reduced);
    }
}

void math_reduce_picked(const struct kernel_instance *reduction, const struct math_picked *job,
                        struct pool *pool) {
    struct picked_run run = {reduction->state, job};
    pool_parallel_for(pool, job->n_outer * n_tiles_of(job->inner),
                      5 + 0.5 * (double)(job->n_reduced * MIN(job->inner, (int64_t)TILE)),
                      picked_range, &run);
}

#if HAS_AVX2_FILES
#define LOOPS_OF(name) name##_loops_base, name##_loops_avx2, name##_loops_avx512
#else
#define LOOPS_OF(name) name##_loops_base, NULL, NULL
#endif
#define REDUCE_OP(name, is_identity_of_one) \
    static const struct reduce_op reduce_##name = {LOOPS_OF(name), is_identity_of_one};
REDUCE_OP(sum, true)
REDUCE_OP(prod, true)
REDUCE_OP(mean, true)
REDUCE_OP(max, true)
REDUCE_OP(min, true)
REDUCE_OP(all, true)
REDUCE_OP(any, true)
REDUCE_OP(norm, false)

#define REDUCTION(op, name, types)                                                   \
    {                                                                                \
        (op), {{"T", (types)}, {"Tidx", DTYPES_INDEX}}, reduce_compute, reduce_init, \
            .arg = &reduce_##name                                                    \
    }
// clang-format off
static const struct kernel_def rows[] = {
    REDUCTION("Sum", sum, DTYPES_NUMBER), REDUCTION("Prod", prod, DTYPES_NUMBER),
    REDUCTION("Mean", mean, DTYPES_NUMBER),
    REDUCTION("Max", max, DTYPES_REAL), REDUCTION("Min", min, DTYPES_REAL),
    REDUCTION("EuclideanNorm", norm, DTYPES_NUMBER),
    {"All", {{"Tidx", DTYPES_INDEX}}, reduce_compute, reduce_init, .arg = &reduce_all},
    {"Any", {{"Tidx", DTYPES_INDEX}}, reduce_compute, reduce_init, .arg = &reduce_any},
};
// clang-format on

const struct kernel_list math_reduce_kernels = {rows, ARRAY_LEN(rows)};
