/* Where values belong among sorted ones: LowerBound, UpperBound, Bucketize. */
#include <stdlib.h>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/math_internal.h"
#include "kernels/cpu/state_internal.h"

extern const struct kernel_list set_search_kernels;

/* ---- LowerBound, UpperBound ---- */

/* How many of the n sorted numbers are below the value (lower), or not above it (upper). What is no number is above all and below none.
 *
 * The places that std::lower_bound looks at, so that numbers that are not sorted get its answers, but several values side by side and
 * without branches: which half comes next is as good as random, and the loads of one value need not wait for another's. */
enum { SEARCH_LANES = 8 };
typedef void search_fn(const void *sorted, int64_t n, const void *values, int count, bool is_upper, int64_t *places);
#define SEARCH(tag, T, V, LOAD)                                                                                              \
    LANES_INLINE void search_some_##tag(const T *sorted, int64_t n, const T *values, const int count, const bool is_upper,   \
                                        int64_t *first) {                                                                    \
        V value[SEARCH_LANES];                                                                                               \
        int64_t left[SEARCH_LANES];                                                                                          \
        for (int k = 0; k < count; k++) {                                                                                    \
            value[k] = LOAD(values[k]);                                                                                      \
            left[k] = n;                                                                                                     \
            first[k] = 0;                                                                                                    \
        }                                                                                                                    \
        for (int64_t most = n; most > 0; most /= 2) { /* the longest of what is left */                                      \
            for (int k = 0; k < count; k++) {                                                                                \
                int64_t half = left[k] / 2, at = first[k] + half;                                                            \
                V middle = LOAD(sorted[at - (at == n)]); /* a search that is over may stand at the end */                    \
                bool is_before = (is_upper ? !(value[k] < middle) : middle < value[k]) & (left[k] > 0);                      \
                first[k] += is_before ? half + 1 : 0;                                                                        \
                left[k] = is_before ? left[k] - half - 1 : half;                                                             \
            }                                                                                                                \
        }                                                                                                                    \
    }                                                                                                                        \
    static void search_##tag(const void *sorted, int64_t n, const void *values, int count, bool is_upper, int64_t *places) { \
        const T *value = values;                                                                                             \
        if (count == SEARCH_LANES && is_upper)                                                                               \
            search_some_##tag(sorted, n, value, SEARCH_LANES, true, places);                                                 \
        else if (count == SEARCH_LANES)                                                                                      \
            search_some_##tag(sorted, n, value, SEARCH_LANES, false, places);                                                \
        else                                                                                                                 \
            for (int k = 0; k < count; k++)                                                                                  \
                search_some_##tag(sorted, n, value + k, 1, is_upper, places + k);                                            \
    }
#define SAME(v) (v)
#define SEARCH_NUMBER(tag, T, W, DT, ...) SEARCH(tag, T, T, SAME)
#define SEARCH_ENTRY(tag, T, W, DT, ...) [DT] = search_##tag,
MATH_INTS(SEARCH_NUMBER)
MATH_FLOATS(SEARCH_NUMBER)
SEARCH(half, uint16_t, float, half_to_float)
SEARCH(bfloat16, uint16_t, float, bfloat16_to_float)
static search_fn *const searches[DT_N_TYPES] = {
    MATH_INTS(SEARCH_ENTRY) MATH_FLOATS(SEARCH_ENTRY)[DT_HALF] = search_half, [DT_BFLOAT16] = search_bfloat16};

struct search_job {
    search_fn *search;
    const char *sorted, *values;
    int64_t n_sorted, n_values, size; /* per row; of an element */
    bool is_upper;
    struct tensor *out;
};

static void search_range(void *arg, int64_t begin, int64_t end) {
    const struct search_job *job = arg;
    void *out = tensor_data(job->out);
    while (begin < end) {
        int64_t row = begin / job->n_values, places[SEARCH_LANES];
        int count = (int)MIN(MIN(end, (row + 1) * job->n_values) - begin, SEARCH_LANES);
        job->search(job->sorted + row * job->n_sorted * job->size, job->n_sorted, job->values + begin * job->size, count, job->is_upper,
                    places);
        if (job->out->dtype == DT_INT32)
            for (int k = 0; k < count; k++)
                ((int32_t *)out)[begin + k] = (int32_t)places[k];
        else
            memcpy((int64_t *)out + begin, places, (size_t)count * sizeof(*places));
        begin += count;
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
        return kernel_fail(ctx, status_invalid("trailing dim_size must less than %d for int32 output type", INT32_MAX));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, out_dtype, tensor_shape(values)));
    struct search_job job = {.search = searches[values->dtype],
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

/* A value is compared with a boundary as C compares it with a float: integers become floats first. */
#define BUCKETIZE(tag, T)                                                                                        \
    static void bucketize_##tag(const struct boundaries *boundaries, const void *from, int32_t *to, int64_t n) { \
        const T *in = from;                                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                        \
            int64_t low = 0, high = boundaries->n;                                                               \
            while (low < high) {                                                                                 \
                int64_t middle = low + (high - low) / 2;                                                         \
                if ((T)in[i] < boundaries->at[middle])                                                           \
                    high = middle;                                                                               \
                else                                                                                             \
                    low = middle + 1;                                                                            \
            }                                                                                                    \
            to[i] = (int32_t)low;                                                                                \
        }                                                                                                        \
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
#define BOUND(name, side) {.op = (name), .constraints = {{"T", DTYPES_REAL}, {"out_type", DTYPES_INDEX}}, .compute = bound, .arg = &(side), .cost_ns_per_element = 20}
static const struct kernel_def rows[] = {
    BOUND("LowerBound", lower),
    BOUND("UpperBound", upper),
    {.op = "Bucketize", .constraints = {{"T", BUCKET_TYPES}}, .compute = bucketize, .init = bucketize_init, .cost_ns_per_element = 10},
};
// clang-format on

const struct kernel_list set_search_kernels = {rows, ARRAY_LEN(rows)};
