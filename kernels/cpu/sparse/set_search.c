/* Finds positions of values in sorted rows: LowerBound, UpperBound, Bucketize. */
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "common/tensor/float16.h"
#include "kernels/kernel.h"
#include "kernels/support/counting_checks.h"
#include "kernels/support/lanes.h"
#include "kernels/support/number_types.h"

extern const struct kernel_list set_search_kernels;

/* ---- LowerBound, UpperBound ---- */

/* Counts how many of the n sorted numbers are below the value (lower), or not above it (upper). A
 * NaN is above all numbers, and is not below anything.
 *
 * Several values are searched at a time, without branches, because the next half is as good as
 * random and the loads for one value then need not wait for those of another. All of them halve the
 * same range. Where there are few values, or the numbers are not sorted, which TensorFlow does not
 * check, the values are searched one by one. The search then compares with the same numbers as
 * std::lower_bound does, so that it has the same result. */
enum { SEARCH_LANES = 8 };
struct search_loops {
    bool (*is_sorted)(const void *numbers, int64_t n);
    /* counts for SEARCH_LANES values at a time */
    void (*many)(const void *sorted, int64_t n, const void *values, bool is_upper, int64_t *places);
    int64_t (*one)(const void *sorted, int64_t n, const void *value, bool is_upper);
};
#define SAME(v) (v)
#define V T
#define LOAD SAME
#define TEMPLATE "kernels/cpu/sparse/set_search_loops.inc"
#include "kernels/support/for_real_types.inc"
#undef TEMPLATE
#undef V
#undef LOAD
#define T uint16_t
#define V float
#define NAME(x) x##_half
#define LOAD half_to_float
#include "kernels/cpu/sparse/set_search_loops.inc"
#undef NAME
#undef LOAD
#define NAME(x) x##_bfloat16
#define LOAD bfloat16_to_float
#include "kernels/cpu/sparse/set_search_loops.inc"
#undef T
#undef V
#undef NAME
#undef LOAD
#define SEARCH_ENTRY(tag, T, W, DT, ...) [DT] = &search_##tag,
static const struct search_loops *const searches[DT_N_TYPES] = {
    NUMBERS_INTS(SEARCH_ENTRY) NUMBERS_FLOATS(SEARCH_ENTRY)[DT_HALF] = &search_half,
    [DT_BFLOAT16] = &search_bfloat16};

struct search_job {
    const struct search_loops *loops;
    const char *sorted, *values;
    int64_t n_sorted, n_values, size; /* of one row; size: bytes of an element */
    bool is_upper;
    struct tensor *out;
};

static void store_places(struct tensor *out, int64_t at, const int64_t *places, int64_t n) {
    if (out->dtype == DT_INT64) {
        memcpy((int64_t *)tensor_data(out) + at, places, (size_t)n * sizeof(*places));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)tensor_data(out))[at + i] = (int32_t)places[i];
}

/* Searches for values [begin, end), which are all in one row. */
static void search_row(const struct search_job *job, int64_t begin, int64_t end) {
    const char *sorted = job->sorted + begin / job->n_values * job->n_sorted * job->size;
    int64_t places[SEARCH_LANES];
    /* with fewer values the check costs more than it saves */
    if (job->n_sorted <= (end - begin) * 4 && job->loops->is_sorted(sorted, job->n_sorted)) {
        for (; begin + SEARCH_LANES <= end; begin += SEARCH_LANES) {
            job->loops->many(sorted, job->n_sorted, job->values + begin * job->size, job->is_upper,
                             places);
            store_places(job->out, begin, places, SEARCH_LANES);
        }
    }
    for (; begin < end; begin++) {
        places[0] =
            job->loops->one(sorted, job->n_sorted, job->values + begin * job->size, job->is_upper);
        store_places(job->out, begin, places, 1);
    }
}

static void search_range(void *arg, int64_t begin, int64_t end) {
    const struct search_job *job = arg;
    while (begin < end) {
        int64_t row_end = MIN(end, (begin / job->n_values + 1) * job->n_values);
        search_row(job, begin, row_end);
        begin = row_end;
    }
}

static enum kernel_result bound(struct kernel_ctx *ctx) {
    const struct tensor *sorted = &ctx->inputs[0], *values = &ctx->inputs[1];
    enum dtype out_dtype = (enum dtype)ctx->instance->out_types[0];
    KERNEL_TRY(ctx, bound_check(ctx));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, out_dtype, tensor_shape(values)));
    struct search_job job = {.loops = searches[values->dtype],
                             .sorted = tensor_cdata(sorted),
                             .values = tensor_cdata(values),
                             .n_sorted = tensor_dim(sorted, 1),
                             .n_values = tensor_dim(values, 1),
                             .size = (int64_t)dtype_size((enum dtype)values->dtype),
                             .is_upper = *(const bool *)ctx->instance->def->arg,
                             .out = &ctx->outputs[0]};
    pool_parallel_for(ctx->pool, values->n_elements, 20, search_range, &job);
    return KERNEL_DONE;
}

/* ---- Bucketize ---- */

struct boundaries {
    int64_t n;
    float at[];
};

static struct status *bucketize_init(struct kernel_init *init) {
    const struct attr_value *values;
    int n = 0;
    TRY(node_get_list(init->node, "boundaries", &values, &n));
    struct boundaries *boundaries = xmalloc(sizeof(*boundaries) + (size_t)n * sizeof(float));
    init->state = boundaries;
    boundaries->n = n;
    for (int i = 0; i < n; i++) {
        boundaries->at[i] = values[i].f;
        if (i > 0 && boundaries->at[i] < boundaries->at[i - 1])
            return status_invalid("Expected sorted boundaries");
    }
    return NULL;
}

/* A value is compared with a boundary as C compares it with a float, so integers become floats
 * first. */
#define BUCKETIZE(tag, T)                                                              \
    static void bucketize_##tag(const struct boundaries *boundaries, const void *from, \
                                int32_t *to, int64_t n) {                              \
        for (int64_t i = 0; i < n && pool_goes_on(i); i++) {                           \
            const T x = ((const T *)from)[i];                                          \
            int64_t low = 0, high = boundaries->n;                                     \
            while (low < high) {                                                       \
                int64_t middle = low + (high - low) / 2;                               \
                bool is_below = x < boundaries->at[middle];                            \
                *(is_below ? &high : &low) = is_below ? middle : middle + 1;           \
            }                                                                          \
            to[i] = (int32_t)low;                                                      \
        }                                                                              \
    }
BUCKETIZE(i32, int32_t)
BUCKETIZE(i64, int64_t)
BUCKETIZE(f32, float)
BUCKETIZE(f64, double)

static enum kernel_result bucketize(struct kernel_ctx *ctx) {
    const struct tensor *in = &ctx->inputs[0];
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT32, tensor_shape(in)));
    const struct boundaries *boundaries = ctx->instance->state;
    const void *from = tensor_cdata(in);
    int32_t *to = tensor_data(&ctx->outputs[0]);
    switch (in->dtype) {
    case DT_INT32:
        bucketize_i32(boundaries, from, to, in->n_elements);
        break;
    case DT_INT64:
        bucketize_i64(boundaries, from, to, in->n_elements);
        break;
    case DT_FLOAT:
        bucketize_f32(boundaries, from, to, in->n_elements);
        break;
    default:
        bucketize_f64(boundaries, from, to, in->n_elements);
    }
    return KERNEL_DONE;
}

static const bool lower = false, upper = true;
#define BUCKET_TYPES (DTYPES_INDEX | DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE))
// clang-format off
#define BOUND(name, side) {.op = (name), .constraints =                                 \
    {{"T", DTYPES_REAL}, {"out_type", DTYPES_INDEX}}, .compute = bound, .arg = &(side)}
static const struct kernel_def rows[] = {
    BOUND("LowerBound", lower),
    BOUND("UpperBound", upper),
    {.op = "Bucketize", .constraints = {{"T", BUCKET_TYPES}}, .compute = bucketize,
        .init = bucketize_init},
};
// clang-format on

const struct kernel_list set_search_kernels = {rows, ARRAY_LEN(rows)};
