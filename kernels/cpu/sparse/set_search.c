/* Finds positions of values in sorted rows: LowerBound, UpperBound, Bucketize. */
#include <stdlib.h>

#include "common/tensor/float16.h"
#include "kernels/kernel.h"
#include "kernels/support/lanes.h"
#include "kernels/support/number_types.h"

extern const struct kernel_list set_search_kernels;

/* ---- LowerBound, UpperBound ---- */

/* How many of the n sorted numbers are below the value (lower), or not above it (upper). What is
 * no number is above all and below none.
 *
 * Several values side by side and without branches: which half comes next is as good as random,
 * and the loads of one value need not wait for another's; every value takes the same halves.
 * Where there are few values, or the numbers are not sorted, which TensorFlow does not check,
 * one value after the other, at the places that std::lower_bound looks at: so it comes to the
 * same. */
enum { SEARCH_LANES = 8 };
struct search_loops {
    bool (*is_sorted)(const void *numbers, int64_t n);
    /* SEARCH_LANES values */
    void (*many)(const void *sorted, int64_t n, const void *values, bool is_upper, int64_t *places);
    int64_t (*one)(const void *sorted, int64_t n, const void *value, bool is_upper);
};
#define SEARCH(tag, T, V, LOAD)                                                                \
    LANES_INLINE bool is_before_##tag(V number, V value, bool is_upper) {                      \
        return is_upper ? !(value < number) : number < value;                                  \
    }                                                                                          \
    static bool is_sorted_##tag(const void *numbers, int64_t n) {                              \
        const T *at = numbers;                                                                 \
        bool is_sorted = true;                                                                 \
        for (int64_t i = 1; i < n; i++)                                                        \
            is_sorted &= LOAD(at[i - 1]) <= LOAD(at[i]);                                       \
        return is_sorted;                                                                      \
    }                                                                                          \
    LANES_INLINE void search_lanes_##tag(const T *sorted, int64_t n, const T *values,          \
                                         const bool is_upper, int64_t *places) {               \
        const T *first[SEARCH_LANES];                                                          \
        V value[SEARCH_LANES];                                                                 \
        for (int k = 0; k < SEARCH_LANES; k++) {                                               \
            first[k] = sorted;                                                                 \
            value[k] = LOAD(values[k]);                                                        \
        }                                                                                      \
        for (int64_t left = n; left > 1; left -= left / 2)                                     \
            for (int k = 0; k < SEARCH_LANES; k++)                                             \
                first[k] += left / 2 & -(int64_t)is_before_##tag(LOAD(first[k][left / 2 - 1]), \
                                                                 value[k], is_upper);          \
        for (int k = 0; k < SEARCH_LANES; k++)                                                 \
            places[k] = first[k] - sorted +                                                    \
                        (n > 0 && is_before_##tag(LOAD(*first[k]), value[k], is_upper));       \
    }                                                                                          \
    static void search_many_##tag(const void *sorted, int64_t n, const void *values,           \
                                  bool is_upper, int64_t *places) {                            \
        if (is_upper)                                                                          \
            search_lanes_##tag(sorted, n, values, true, places);                               \
        else                                                                                   \
            search_lanes_##tag(sorted, n, values, false, places);                              \
    }                                                                                          \
    static int64_t search_one_##tag(const void *sorted_, int64_t n, const void *value,         \
                                    bool is_upper) {                                           \
        const T *sorted = sorted_;                                                             \
        int64_t low = 0, high = n;                                                             \
        while (low < high) {                                                                   \
            int64_t middle = low + (high - low) / 2;                                           \
            bool is_before =                                                                   \
                is_before_##tag(LOAD(sorted[middle]), LOAD(*(const T *)value), is_upper);      \
            *(is_before ? &low : &high) = is_before ? middle + 1 : middle;                     \
        }                                                                                      \
        return low;                                                                            \
    }                                                                                          \
    static const struct search_loops search_##tag = {is_sorted_##tag, search_many_##tag,       \
                                                     search_one_##tag};
#define SAME(v) (v)
#define SEARCH_NUMBER(tag, T, W, DT, ...) SEARCH(tag, T, T, SAME)
#define SEARCH_ENTRY(tag, T, W, DT, ...) [DT] = &search_##tag,
NUMBERS_INTS(SEARCH_NUMBER)
NUMBERS_FLOATS(SEARCH_NUMBER)
SEARCH(half, uint16_t, float, half_to_float)
SEARCH(bfloat16, uint16_t, float, bfloat16_to_float)
static const struct search_loops *const searches[DT_N_TYPES] = {
    NUMBERS_INTS(SEARCH_ENTRY) NUMBERS_FLOATS(SEARCH_ENTRY)[DT_HALF] = &search_half,
    [DT_BFLOAT16] = &search_bfloat16};

struct search_job {
    const struct search_loops *loops;
    const char *sorted, *values;
    int64_t n_sorted, n_values, size; /* per row; of an element */
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

/* Values [begin, end), all of one row. */
static void search_row(const struct search_job *job, int64_t begin, int64_t end) {
    const char *sorted = job->sorted + begin / job->n_values * job->n_sorted * job->size;
    int64_t places[SEARCH_LANES];
    /* else looking costs more than it saves */
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
    if (sorted->rank != 2)
        return kernel_fail(ctx, status_invalid("sorted input argument must be a matrix"));
    if (values->rank != 2)
        return kernel_fail(ctx, status_invalid("value argument must be a matrix"));
    if (tensor_dim(sorted, 0) != tensor_dim(values, 0))
        return kernel_fail(ctx, status_invalid("Leading dim_size of both tensors must match."));
    if (out_dtype == DT_INT32 && values->n_elements >= INT32_MAX)
        return kernel_fail(ctx, status_invalid("values tensor size must less than %d", INT32_MAX));
    if (out_dtype == DT_INT32 && tensor_dim(sorted, 1) >= INT32_MAX)
        return kernel_fail(
            ctx,
            status_invalid("trailing dim_size must less than %d for int32 output type", INT32_MAX));
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

/* A value is compared with a boundary as C compares it with a float: integers become floats
 * first. */
#define BUCKETIZE(tag, T)                                                              \
    static void bucketize_##tag(const struct boundaries *boundaries, const void *from, \
                                int32_t *to, int64_t n) {                              \
        const T *in = from;                                                            \
        for (int64_t i = 0; i < n; i++) {                                              \
            int64_t low = 0, high = boundaries->n;                                     \
            while (low < high) {                                                       \
                int64_t middle = low + (high - low) / 2;                               \
                if ((T)in[i] < boundaries->at[middle])                                 \
                    high = middle;                                                     \
                else                                                                   \
                    low = middle + 1;                                                  \
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
    {{"T", DTYPES_REAL}, {"out_type", DTYPES_INDEX}}, .compute = bound, .arg = &(side), \
    .cost_ns_per_element = 20}
static const struct kernel_def rows[] = {
    BOUND("LowerBound", lower),
    BOUND("UpperBound", upper),
    {.op = "Bucketize", .constraints = {{"T", BUCKET_TYPES}}, .compute = bucketize,
        .init = bucketize_init, .cost_ns_per_element = 10},
};
// clang-format on

const struct kernel_list set_search_kernels = {rows, ARRAY_LEN(rows)};
