/* Reduces segments: rows of data with the same id become one row of the output.
 *
 * Sorted forms (SegmentSum, …): ids do not decrease, so a segment is a run of rows, which the loops
 * of reductions reduce column by column. Sparse forms first gather the rows by an index. Both give
 * 0 where no row has the id (SegmentProd gives 1). Unsorted forms merge each row into its output
 * row, in any order. They leave out rows with negative ids, and an output row without data holds
 * the operation's neutral element. */
#include "kernels/cpu/math/math_segment.h"

#include <float.h>
#include <stdlib.h>

#include "kernels/support/cancel.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/half_blocks.h"
#include "kernels/cpu/math/math_reduce.h"

enum {
    TILE = 512,
    MAX_ACCUMULATOR = 16,
    ELEMENTS_PER_POLL = 1 << 20, /* about a millisecond */
    ROWS_PER_POLL = 1 << 14,     /* of the sparse forms */
};

struct status *segment_scalar(const struct tensor *t, const char *what, int64_t *ret) {
    if (t->rank != 0 || (t->dtype != DT_INT32 && t->dtype != DT_INT64)) {
        return status_invalid("%s should be a scalar, not shape %s", what,
                              SHAPE_TEXT(tensor_shape(t)));
    }
    *ret = tensor_index_at(t, 0);
    return NULL;
}

/* Makes an output of the shape [n_rows] + the sizes of `data` from dimension `from` on. */
struct status *segment_alloc(struct kernel_ctx *ctx, enum dtype dtype, int64_t n_rows,
                             const struct tensor *data, int from, int64_t *ret_inner) {
    int64_t dims[SHAPE_MAX_RANK + 1], inner = 1;
    int rank = 0;
    dims[rank++] = n_rows;
    for (int i = from; i < data->rank; i++)
        dims[rank++] = tensor_dim(data, i);
    TRY(kernel_alloc(ctx, 0, dtype, (struct shape){rank, dims}));
    for (int i = 1; i < rank && ctx->outputs[0].n_elements > 0; i++)
        inner *= dims[i];
    *ret_inner = inner;
    return NULL;
}

/* ---- sorted and sparse forms ---- */

struct segment_op {
    const struct reduce_loops *loops, *avx2_loops;
    bool fills_one;
    bool is_sparse, has_n_segments;
    enum segment_scale scale; /* sparse forms only */
};

struct segment_job {
    const struct segment_op *op;
    const struct reduce_loops *loops;
    enum dtype dtype;
    int64_t size, inner, n_tiles;
    const char *data;
    const struct tensor *indices; /* sparse forms only */
    const int64_t *first;         /* output row i reduces rows [first[i], first[i + 1]) */
    char *out;
};

/* Columns are reduced row by row, so pieces of rows give the bits of one call. */
static void accumulate_rows(const struct segment_job *job, const char *from, int64_t n_rows,
                            int64_t width, void *acc) {
    if (!dtype_is_narrow_float(job->dtype) && likely(n_rows <= ELEMENTS_PER_POLL / TILE)) {
        job->loops->columns(from, n_rows, job->inner, width, acc);
        return;
    }
    int64_t piece = MAX(ELEMENTS_PER_POLL / width, (int64_t)1), row_bytes = job->inner * job->size;
    if (!dtype_is_narrow_float(job->dtype)) {
        for (int64_t r = 0; r < n_rows && (r == 0 || !pool_is_unwanted()); r += piece)
            job->loops->columns(from + r * row_bytes, MIN(piece, n_rows - r), job->inner, width,
                                acc);
        return;
    }
    float block[TILE];
    for (int64_t r = 0; r < n_rows && (r == 0 || pool_goes_on(r)); r++) {
        half_block_load(job->dtype, block, (const uint16_t *)from + r * job->inner, width);
        job->loops->columns(block, 1, width, width, acc);
    }
}

static void finish_rows(const struct segment_job *job, const void *acc, char *out, int64_t width,
                        int64_t n_rows) {
    if (!dtype_is_narrow_float(job->dtype)) {
        job->loops->finish(acc, out, width, n_rows);
        return;
    }
    float block[TILE];
    job->loops->finish(acc, block, width, n_rows);
    half_block_store(job->dtype, (uint16_t *)out, block, width);
}

static void fill_row(const struct segment_job *job, char *out, int64_t width) {
    if (!job->op->fills_one) {
        memset(out, 0, (size_t)(width * job->size));
        return;
    }
    char acc[TILE * MAX_ACCUMULATOR] __attribute__((aligned(64)));
    job->loops->init(acc, width);
    finish_rows(job, acc, out, width, 1);
}

static void segment_units(void *arg, int64_t begin, int64_t end) {
    const struct segment_job *job = arg;
    char acc[TILE * MAX_ACCUMULATOR] __attribute__((aligned(64)));
    for (; begin < end; begin++) {
        int64_t row = begin / job->n_tiles, column = begin % job->n_tiles * TILE,
                width = MIN(job->inner - column, TILE);
        int64_t first = job->first[row], n = job->first[row + 1] - first;
        char *out = job->out + (row * job->inner + column) * job->size;
        if (n == 0) {
            fill_row(job, out, width);
            continue;
        }
        job->loops->init(acc, width);
        if (!job->op->is_sparse)
            accumulate_rows(job, job->data + (first * job->inner + column) * job->size, n, width,
                            acc);
        for (int64_t i = first, past = first + n, part; job->op->is_sparse && i < past;) {
            if (i > first && pool_is_unwanted())
                return;
            for (part = MIN(past, i + ROWS_PER_POLL); i < part; i++)
                accumulate_rows(job,
                                job->data +
                                    (tensor_index_at(job->indices, i) * job->inner + column) *
                                        job->size,
                                1, width, acc);
        }
        /* real floats only, because the accumulators are doubles */
        if (job->op->scale != SCALE_NONE) {
            double scale = job->op->scale == SCALE_MEAN ? 1 / (double)n : 1 / sqrt((double)n);
            for (int64_t i = 0; i < width; i++)
                ((double *)acc)[i] *= scale;
        }
        finish_rows(job, acc, out, width, n);
    }
}

static struct status *check_ids(const struct tensor *ids, int64_t n_rows) {
    int64_t n = ids->n_elements;
    for (int64_t i = 1; i < n; i++) {
        TRY(kernel_loop_check(i));
        if (tensor_index_at(ids, i) < tensor_index_at(ids, i - 1))
            return status_invalid("segment ids are not increasing");
    }
    if (n == 0 || (tensor_index_at(ids, 0) >= 0 && tensor_index_at(ids, n - 1) < n_rows))
        return NULL;
    int64_t culprit =
        tensor_index_at(ids, 0) < 0 ? tensor_index_at(ids, 0) : tensor_index_at(ids, n - 1);
    return status_invalid("Segment id %lld out of range [0, %lld), possibly because 'segment_ids' "
                          "input is not sorted.",
                          (long long)culprit, (long long)n_rows);
}

/* Finds where each output row's ids begin (malloc'd). The caller has checked the ids. */
static struct status *find_segments(const struct tensor *ids, int64_t n_rows, int64_t **ret_first) {
    int64_t n = ids->n_elements, *first = malloc(((size_t)n_rows + 1) * sizeof(*first)), next = 0;
    if (!first)
        return status_exhausted("OOM when counting %lld segments", (long long)n_rows);
    for (int64_t i = 0, end; i < n;) {
        struct status *st = i > 0 ? kernel_loop_check(0) : NULL;
        if (st) {
            free(first);
            return st;
        }
        for (end = MIN(n, i + ELEMENTS_PER_POLL); i < end; i++)
            for (int64_t id = tensor_index_at(ids, i); next <= id; next++)
                first[next] = i;
    }
    for (; next <= n_rows; next++)
        first[next] = n;
    *ret_first = first;
    return NULL;
}

static struct status *check_indices(const struct tensor *indices, int64_t n_data_rows) {
    for (int64_t i = 0; i < indices->n_elements; i++) {
        TRY(kernel_loop_check(i));
        int64_t index = tensor_index_at(indices, i);
        if (index < 0 || index >= n_data_rows)
            return status_invalid("Bad: indices[%lld] == %lld out of range [0, %lld)", (long long)i,
                                  (long long)index, (long long)n_data_rows);
    }
    return NULL;
}

static struct status *check_arguments(const struct kernel_ctx *ctx, const struct segment_op *op) {
    const struct tensor *data = &ctx->inputs[0], *ids = &ctx->inputs[op->is_sparse ? 2 : 1];
    if (op->is_sparse && ctx->inputs[1].rank != 1)
        return status_invalid("indices should be a vector.");
    if (ids->rank != 1)
        return status_invalid("segment_ids should be a vector.");
    if (data->rank < 1)
        return op->is_sparse ? status_invalid("Shape must be at least rank 1")
                             : status_invalid("input must be at least rank 1");
    if (op->is_sparse && ids->n_elements != ctx->inputs[1].n_elements)
        return status_invalid("segment_ids and indices should have same size.");
    if (!op->is_sparse && ids->n_elements != tensor_dim(data, 0))
        return status_invalid("segment_ids should be the same size as dimension 0 of input.");
    return NULL;
}

/* The number of output rows is given, or one more than the last id. */
static struct status *count_rows(const struct kernel_ctx *ctx, const struct segment_op *op,
                                 const struct tensor *ids, int64_t *ret) {
    int64_t last = ids->n_elements > 0 ? tensor_index_at(ids, ids->n_elements - 1) : -1;
    if (!op->has_n_segments) {
        *ret = last < 0 || last == INT64_MAX ? ids->n_elements > 0 : last + 1;
        return NULL;
    }
    TRY(segment_scalar(&ctx->inputs[3], "num_segments", ret));
    if (*ret < 0)
        return status_invalid("segment ids must be >= 0");
    return last >= *ret ? status_invalid("segment ids must be < num_segments") : NULL;
}

static enum kernel_result segment_compute(struct kernel_ctx *ctx) {
    const struct segment_op *op = ctx->instance->def->arg;
    const struct tensor *data = &ctx->inputs[0], *ids = &ctx->inputs[op->is_sparse ? 2 : 1];
    enum dtype dtype = (enum dtype)data->dtype;
    int64_t n_rows, *first = NULL;
    KERNEL_TRY(ctx, check_arguments(ctx, op));
    KERNEL_TRY(ctx, count_rows(ctx, op, ids, &n_rows));
    if (op->is_sparse)
        KERNEL_TRY(ctx, check_indices(&ctx->inputs[1], tensor_dim(data, 0)));
    KERNEL_TRY(ctx, check_ids(ids, n_rows));
    struct segment_job job = {.op = op,
                              .dtype = dtype,
                              .size = (int64_t)dtype_size(dtype),
                              .data = tensor_cdata(data),
                              .indices = &ctx->inputs[1]};
    job.loops = (op->avx2_loops && cpu_has_avx2() ? op->avx2_loops : op->loops) +
                (dtype_is_narrow_float(dtype) ? DT_FLOAT : dtype);
    KERNEL_TRY(ctx, segment_alloc(ctx, dtype, n_rows, data, 1, &job.inner));
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    KERNEL_TRY(ctx, find_segments(ids, n_rows, &first));
    job.first = first;
    job.out = tensor_data(&ctx->outputs[0]);
    job.n_tiles = (job.inner + TILE - 1) / TILE;
    double per_row = (double)ids->n_elements / (double)n_rows + 1;
    pool_parallel_for(ctx->pool, n_rows * job.n_tiles,
                      per_row * (5 + 0.5 * (double)MIN(job.inner, TILE)), segment_units, &job);
    free(first);
    return KERNEL_DONE;
}

/* ---- unsorted forms ---- */

typedef void merge_loop(void *to, const void *from, int64_t n);
typedef void fill_loop(void *to, int64_t n, enum dtype dtype);
#define UNSORTED_LOOPS(name, tag, T, W, DT, FIRST, STEP)                    \
    static void name##_merge_##tag(void *to, const void *from, int64_t n) { \
        typedef W wide __attribute__((unused));                             \
        T *out = to;                                                        \
        const T *in = from;                                                 \
        for (int64_t i = 0; i < n; i++) {                                   \
            T a = out[i], x = in[i];                                        \
            out[i] = (T)(STEP);                                             \
        }                                                                   \
    }                                                                       \
    static void name##_fill_##tag(void *to, int64_t n, enum dtype dtype) {  \
        for (int64_t i = 0; i < n; i++)                                     \
            ((T *)to)[i] = (T)(FIRST);                                      \
    }
#define UNSORTED_ENTRY(name, tag, T, W, DT, FIRST, STEP) \
    [DT] = {name##_merge_##tag, name##_fill_##tag},
struct unsorted_loops {
    merge_loop *merge;
    fill_loop *fill;
};
/* The largest finite number of a dtype that is computed in float. */
static inline float widest(enum dtype dtype) {
    return dtype == DT_HALF ? 65504.0f : dtype == DT_BFLOAT16 ? 0x1.fep127f : FLT_MAX;
}

// clang-format off
#define UNSORTED_INTS(X, name, FIRST, STEP)                          \
    X(name, i8, int8_t, uint32_t, DT_INT8, FIRST(INT8), STEP)        \
    X(name, i16, int16_t, uint32_t, DT_INT16, FIRST(INT16), STEP)    \
    X(name, i32, int32_t, uint32_t, DT_INT32, FIRST(INT32), STEP)    \
    X(name, i64, int64_t, uint64_t, DT_INT64, FIRST(INT64), STEP)    \
    X(name, u8, uint8_t, uint32_t, DT_UINT8, FIRST(UINT8), STEP)     \
    X(name, u16, uint16_t, uint32_t, DT_UINT16, FIRST(UINT16), STEP) \
    X(name, u32, uint32_t, uint32_t, DT_UINT32, FIRST(UINT32), STEP) \
    X(name, u64, uint64_t, uint64_t, DT_UINT64, FIRST(UINT64), STEP)
#define UINT8_MIN 0
#define UINT16_MIN 0
#define UINT32_MIN 0
#define UINT64_MIN 0
#define ZERO(type) 0
#define ONE(type) 1
#define LEAST(type) type##_MIN
#define MOST(type) type##_MAX
#define UNSORTED_SUM(X)                                                \
    UNSORTED_INTS(X, unsorted_sum, ZERO, (wide)a + (wide)x)            \
    X(unsorted_sum, f32, float, float, DT_FLOAT, 0, a + x)             \
    X(unsorted_sum, f64, double, double, DT_DOUBLE, 0, a + x)          \
    X(unsorted_sum, c64, float complex, float, DT_COMPLEX64, 0, a + x) \
    X(unsorted_sum, c128, double complex, double, DT_COMPLEX128, 0, a + x)
#define UNSORTED_PROD(X)                                                \
    UNSORTED_INTS(X, unsorted_prod, ONE, (wide)a * (wide)x)             \
    X(unsorted_prod, f32, float, float, DT_FLOAT, 1, a * x)             \
    X(unsorted_prod, f64, double, double, DT_DOUBLE, 1, a * x)          \
    X(unsorted_prod, c64, float complex, float, DT_COMPLEX64, 1, a * x) \
    X(unsorted_prod, c128, double complex, double, DT_COMPLEX128, 1, a * x)
#define UNSORTED_MAX(X)                                                                   \
    UNSORTED_INTS(X, unsorted_max, LEAST, x > a ? x : a)                                  \
    X(unsorted_max, f32, float, float, DT_FLOAT, -widest(dtype), x > a || x != x ? x : a) \
    X(unsorted_max, f64, double, double, DT_DOUBLE, -DBL_MAX, x > a || x != x ? x : a)
#define UNSORTED_MIN(X)                                                                  \
    UNSORTED_INTS(X, unsorted_min, MOST, x < a ? x : a)                                  \
    X(unsorted_min, f32, float, float, DT_FLOAT, widest(dtype), x < a || x != x ? x : a) \
    X(unsorted_min, f64, double, double, DT_DOUBLE, DBL_MAX, x < a || x != x ? x : a)
// clang-format on
UNSORTED_SUM(UNSORTED_LOOPS)
UNSORTED_PROD(UNSORTED_LOOPS)
UNSORTED_MAX(UNSORTED_LOOPS)
UNSORTED_MIN(UNSORTED_LOOPS)
static const struct unsorted_loops unsorted_sum_loops[DT_N_TYPES] = {UNSORTED_SUM(UNSORTED_ENTRY)};
static const struct unsorted_loops unsorted_prod_loops[DT_N_TYPES] = {
    UNSORTED_PROD(UNSORTED_ENTRY)};
static const struct unsorted_loops unsorted_max_loops[DT_N_TYPES] = {UNSORTED_MAX(UNSORTED_ENTRY)};
static const struct unsorted_loops unsorted_min_loops[DT_N_TYPES] = {UNSORTED_MIN(UNSORTED_ENTRY)};

static inline int64_t id_at(const struct tensor *t, int64_t i) {
    return t->dtype == DT_INT16 ? ((const int16_t *)tensor_cdata(t))[i] : tensor_index_at(t, i);
}

struct unsorted_job {
    const struct unsorted_loops *loops;
    enum dtype dtype;
    int64_t size, inner, n_rows; /* size of a compute element */
    const struct tensor *ids;
    const char *data;
    char *out;
};

/* Merges columns [begin, end) of all rows, so two shares never write the same element. */
static void unsorted_columns(void *arg, int64_t begin, int64_t end) {
    const struct unsorted_job *job = arg;
    int64_t n = end - begin;
    for (int64_t row = 0; row < job->n_rows; row++)
        job->loops->fill(job->out + (row * job->inner + begin) * job->size, n, job->dtype);
    for (int64_t i = 0; i < job->ids->n_elements && pool_goes_on(i); i++) {
        int64_t id = id_at(job->ids, i);
        if (id < 0)
            continue;
        char *to = job->out + (id * job->inner + begin) * job->size;
        if (!dtype_is_narrow_float(job->dtype)) {
            job->loops->merge(to, job->data + (i * job->inner + begin) * job->size, n);
            continue;
        }
        float block[HALF_BLOCK];
        for (int64_t done = 0; done < n; done += HALF_BLOCK) {
            int64_t count = MIN(n - done, HALF_BLOCK);
            half_block_load(job->dtype, block,
                            (const uint16_t *)job->data + i * job->inner + begin + done, count);
            job->loops->merge((float *)(void *)to + done, block, count);
        }
    }
}

static struct status *check_unsorted(const struct tensor *data, const struct tensor *ids,
                                     int64_t n_rows) {
    if (n_rows < 0)
        return status_invalid("Input num_segments == %lld must not be negative.",
                              (long long)n_rows);
    bool starts_with = data->rank >= ids->rank;
    for (int i = 0; starts_with && i < ids->rank; i++)
        starts_with = tensor_dim(data, i) == tensor_dim(ids, i);
    if (!starts_with) {
        return status_invalid("data.shape = %s does not start with segment_ids.shape = %s",
                              SHAPE_TEXT(tensor_shape(data)), SHAPE_TEXT(tensor_shape(ids)));
    }
    /* without data no id is used, and none is checked */
    bool is_read = data->n_elements > 0 && !tensor_is_on_device(ids);
    for (int64_t i = 0; is_read && i < ids->n_elements; i++) {
        TRY(kernel_loop_check(i));
        if (id_at(ids, i) >= n_rows)
            return status_invalid("segment_ids[%lld] = %lld is out of range [0, %lld)",
                                  (long long)i, (long long)id_at(ids, i), (long long)n_rows);
    }
    return NULL;
}

static struct status *unsorted_on_device(struct kernel_ctx *ctx, int64_t n_rows) {
    const struct tensor *data = &ctx->inputs[0], *ids = &ctx->inputs[1];
    const struct unsorted_loops *loops = ctx->instance->def->arg;
    struct tensor *out = &ctx->outputs[0];
    struct device_segments job = {
        .op = loops == unsorted_sum_loops    ? UPDATE_ADD
              : loops == unsorted_prod_loops ? UPDATE_MUL
              : loops == unsorted_min_loops  ? UPDATE_MIN
                                             : UPDATE_MAX,
        .dtype = (enum dtype)data->dtype,
        .out = tensor_data(out),
        .data = tensor_cdata(data),
        .n_out = out->n_elements,
    };
    TRY(device_slices_init(&job.slices, ids, 1, tensor_shape(out),
                           data->n_elements > 0 ? ids->n_elements : 0));
    job.slices.dims[0] = n_rows;
    return ctx->instance->engine->segments(ctx, &job);
}

static enum kernel_result unsorted_compute(struct kernel_ctx *ctx) {
    const struct tensor *data = &ctx->inputs[0], *ids = &ctx->inputs[1];
    enum dtype dtype = (enum dtype)data->dtype;
    bool is_narrow = dtype_is_narrow_float(dtype);
    int64_t n_rows;
    KERNEL_TRY(ctx, segment_scalar(&ctx->inputs[2], "num_segments", &n_rows));
    KERNEL_TRY(ctx, check_unsorted(data, ids, n_rows));
    const struct unsorted_loops *loops = ctx->instance->def->arg;
    struct unsorted_job job = {.loops = loops + (is_narrow ? DT_FLOAT : dtype),
                               .dtype = dtype,
                               .n_rows = n_rows,
                               .ids = ids,
                               .data = tensor_cdata(data)};
    job.size = (int64_t)dtype_size(is_narrow ? DT_FLOAT : dtype);
    KERNEL_TRY(ctx, segment_alloc(ctx, dtype, n_rows, data, ids->rank, &job.inner));
    struct tensor *out = &ctx->outputs[0];
    if (out->n_elements == 0)
        return KERNEL_DONE;
    if (kernel_is_for_device(ctx)) {
        KERNEL_TRY(ctx, unsorted_on_device(ctx, n_rows));
        return KERNEL_DONE;
    }
    float *wide = NULL;
    job.out = tensor_data(out);
    if (is_narrow) {
        wide = malloc((size_t)out->n_elements * sizeof(*wide));
        if (!wide)
            return kernel_fail(ctx, status_exhausted("OOM when widening %lld elements",
                                                     (long long)out->n_elements));
        job.out = (char *)wide;
    }
    double per_column = (double)n_rows + 2 * (double)ids->n_elements;
    if (job.inner >= 64)
        pool_parallel_for(ctx->pool, job.inner, per_column, unsorted_columns, &job);
    else
        unsorted_columns(&job, 0, job.inner);
    if (is_narrow)
        half_block_store(dtype, tensor_data(out), wide, out->n_elements);
    free(wide);
    return KERNEL_DONE;
}

/* ---- rows ---- */

#if HAS_AVX2_FILES
#define LOOPS(name) .loops = name##_loops_base, .avx2_loops = name##_loops_avx2
#else
#define LOOPS(name) .loops = name##_loops_base
#endif
static const struct segment_op segment_sum = {LOOPS(sum)}, segment_mean = {LOOPS(mean)},
                               segment_min = {LOOPS(min)}, segment_max = {LOOPS(max)};
static const struct segment_op segment_prod = {LOOPS(prod), .fills_one = true};
#define SPARSE(name, how)                                                          \
    static const struct segment_op sparse_##name = {LOOPS(sum), .is_sparse = true, \
                                                    .scale = (how)};               \
    static const struct segment_op sparse_##name##_sized = {                       \
        LOOPS(sum), .is_sparse = true, .has_n_segments = true, .scale = (how)};
SPARSE(sum, SCALE_NONE)
SPARSE(mean, SCALE_MEAN)
SPARSE(sqrt_n, SCALE_SQRT_N)

#define SORTED_ROW(op, name, types) \
    { (op), {{"T", (types)}, {"Tindices", DTYPES_INDEX}}, segment_compute, .arg = &(name) }
#define UNSORTED_ROW(op, name, types, index)                                           \
    {                                                                                  \
        (op), {{"T", (types)}, {"Tindices", (index)}, {"Tnumsegments", DTYPES_INDEX}}, \
            unsorted_compute, .arg = (name)                                            \
    }
#define SPARSE_ROW(op, name, types)                                                    \
    {                                                                                  \
        (op), {{"T", (types)}, {"Tidx", DTYPES_INDEX}, {"Tsegmentids", DTYPES_INDEX}}, \
            segment_compute, .arg = &(name)                                            \
    }
// clang-format off
static const struct kernel_def rows[] = {
    SORTED_ROW("SegmentSum", segment_sum, DTYPES_NUMBER),
    SORTED_ROW("SegmentMean", segment_mean, DTYPES_NUMBER),
    SORTED_ROW("SegmentProd", segment_prod, DTYPES_NUMBER),
    SORTED_ROW("SegmentMin", segment_min, DTYPES_REAL),
    SORTED_ROW("SegmentMax", segment_max, DTYPES_REAL),
    UNSORTED_ROW("UnsortedSegmentSum", unsorted_sum_loops, DTYPES_NUMBER, DTYPES_INDEX |
        DTYPE_BIT(DT_INT16)),
    UNSORTED_ROW("UnsortedSegmentProd", unsorted_prod_loops, DTYPES_NUMBER, DTYPES_INDEX),
    UNSORTED_ROW("UnsortedSegmentMax", unsorted_max_loops, DTYPES_REAL, DTYPES_INDEX),
    UNSORTED_ROW("UnsortedSegmentMin", unsorted_min_loops, DTYPES_REAL, DTYPES_INDEX),
    SPARSE_ROW("SparseSegmentSum", sparse_sum, DTYPES_REAL),
    SPARSE_ROW("SparseSegmentSumWithNumSegments", sparse_sum_sized, DTYPES_REAL),
    SPARSE_ROW("SparseSegmentMean", sparse_mean, DTYPES_REAL_FLOAT),
    SPARSE_ROW("SparseSegmentMeanWithNumSegments", sparse_mean_sized, DTYPES_REAL_FLOAT),
    SPARSE_ROW("SparseSegmentSqrtN", sparse_sqrt_n, DTYPES_REAL_FLOAT),
    SPARSE_ROW("SparseSegmentSqrtNWithNumSegments", sparse_sqrt_n_sized, DTYPES_REAL_FLOAT),
};
// clang-format on
const struct kernel_list math_segment_kernels = {rows, ARRAY_LEN(rows)};
