/* Computes TopK, NthElement and InTopK.
 *
 * Elements of all dtypes become unsigned keys of the same order. A key is joined with its column,
 * so that no two entries are equal and the lower column is first among equal values. -0 equals 0,
 * and NaN is above infinity. Types of up to 32 bits make 64-bit entries (key, ~column). Wider types
 * make two such words, which are compared as one 128-bit number.
 *
 * For a small k a heap keeps the k best entries. It takes n log k steps at most, and most elements
 * need one comparison. For a large k, radix selection finds the k-th entry in linear time, whatever
 * the input, and the entries that are not below it are taken. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "kernels/cpu/nn/nn_internal.h"

typedef unsigned __int128 u128;

/* ---- keys ---- */

static inline __attribute__((always_inline)) uint64_t
key_of_float_bits(uint64_t bits, uint64_t sign, uint64_t infinity) {
    uint64_t magnitude = bits & (sign - 1);
    if (magnitude > infinity) /* a NaN of either sign */
        return sign | magnitude;
    if (magnitude == 0)
        return sign;
    return bits & sign ? sign - magnitude : sign | magnitude;
}

static inline __attribute__((always_inline)) uint64_t key_at(enum dtype dtype, const void *row,
                                                             int64_t i) {
    switch (dtype) {
    case DT_FLOAT:
        return key_of_float_bits(((const uint32_t *)row)[i], 0x80000000u, 0x7f800000u);
    case DT_DOUBLE:
        return key_of_float_bits(((const uint64_t *)row)[i], 1ull << 63, 0x7ff0000000000000u);
    case DT_HALF:
        return key_of_float_bits(((const uint16_t *)row)[i], 0x8000u, 0x7c00u);
    case DT_BFLOAT16:
        return key_of_float_bits(((const uint16_t *)row)[i], 0x8000u, 0x7f80u);
    case DT_INT8:
        return ((const uint8_t *)row)[i] ^ 0x80u;
    case DT_INT16:
        return ((const uint16_t *)row)[i] ^ 0x8000u;
    case DT_INT32:
        return ((const uint32_t *)row)[i] ^ 0x80000000u;
    case DT_INT64:
        return ((const uint64_t *)row)[i] ^ 1ull << 63;
    case DT_UINT8:
        return ((const uint8_t *)row)[i];
    case DT_UINT16:
        return ((const uint16_t *)row)[i];
    case DT_UINT32:
        return ((const uint32_t *)row)[i];
    default:
        return ((const uint64_t *)row)[i];
    }
}

/* Is a heap of k faster? A large heap is slower than selecting and sorting. */
static bool takes_heap(int64_t n, int64_t k) { return k <= 64 || k < n / 64; }

/* Sorts entries in descending order; see nn_topk_entries.inc. */
#define E uint64_t
#define ENTRY(f) f##_u64
#define ENTRY_BITS 64
#include "kernels/cpu/nn/nn_topk_entries.inc"
#undef E
#undef ENTRY
#undef ENTRY_BITS
#define E u128
#define ENTRY(f) f##_u128
#define ENTRY_BITS 128
#include "kernels/cpu/nn/nn_topk_entries.inc"
#include "common/tensor/element.h"
#undef E
#undef ENTRY
#undef ENTRY_BITS

/* Do the elements of a row fit in 64-bit entries? */
static bool is_short(enum dtype dtype, int64_t cols) {
    return dtype_size(dtype) <= 4 && cols < UINT32_MAX;
}

/* ---- TopK ---- */

struct top_k_state {
    int64_t k; /* TopK's attr; -1 when an input gives k */
    bool sorted;
    enum dtype index_type;
};

struct top_k_job {
    enum dtype dtype, index_type;
    size_t size;
    int64_t cols, k; /* k: how many entries of each row, or NthElement's n */
    bool sorted, is_nth;
    const char *x;
    char *values, *indices;
    _Atomic bool is_out_of_memory;
};

struct status *nn_top_k_init(struct kernel_init *init) {
    struct top_k_state state = {.k = -1, .index_type = DT_INT32};
    TRY(node_get_b(init->node, "sorted", &state.sorted));
    if (node_attr(init->node, "index_type"))
        TRY(node_get_type(init->node, "index_type", &state.index_type));
    if (node_attr(init->node, "k")) {
        TRY(node_get_i(init->node, "k", &state.k));
        if (state.k < 0)
            return status_invalid("Need k >= 0, got %lld", (long long)state.k);
    }
    init->state = xmalloc(sizeof(state));
    memcpy(init->state, &state, sizeof(state));
    return NULL;
}

static void put_index(const struct top_k_job *job, int64_t at, int64_t column) {
    if (job->index_type == DT_INT32)
        ((int32_t *)(void *)job->indices)[at] = (int32_t)column;
    else if (job->index_type == DT_INT64)
        ((int64_t *)(void *)job->indices)[at] = column;
    else
        ((int16_t *)(void *)job->indices)[at] = (int16_t)column;
}

static void put(const struct top_k_job *job, int64_t row, int64_t place, int64_t column) {
    int64_t at = row * job->k + place;
    memcpy(job->values + (size_t)at * job->size,
           job->x + (size_t)(row * job->cols + column) * job->size, job->size);
    put_index(job, at, column);
}

static void top_k_row(const struct top_k_job *job, int64_t row, void *scratch) {
    const char *x = job->x + (size_t)(row * job->cols) * job->size;
    if (is_short(job->dtype, job->cols)) {
        uint64_t *entries = scratch;
        entries_top_u64(job->dtype, x, job->cols, job->k, job->sorted, entries);
        for (int64_t i = 0; i < job->k && pool_goes_on(i); i++)
            put(job, row, i, column_of_u64(entries[i]));
    } else {
        u128 *entries = scratch;
        entries_top_u128(job->dtype, x, job->cols, job->k, job->sorted, entries);
        for (int64_t i = 0; i < job->k && pool_goes_on(i); i++)
            put(job, row, i, column_of_u128(entries[i]));
    }
}

static void nth_row(const struct top_k_job *job, int64_t row, void *scratch) {
    const char *x = job->x + (size_t)(row * job->cols) * job->size;
    int64_t column;
    if (is_short(job->dtype, job->cols)) {
        entries_fill_all_u64(job->dtype, x, job->cols, scratch);
        column = column_of_u64(entries_select_u64(scratch, job->cols, job->k));
    } else {
        entries_fill_all_u128(job->dtype, x, job->cols, scratch);
        column = column_of_u128(entries_select_u128(scratch, job->cols, job->k));
    }
    if (!pool_is_unwanted()) /* else the entries may not be whole */
        memcpy(job->values + (size_t)row * job->size, x + (size_t)column * job->size, job->size);
}

static void top_k_rows(void *arg, int64_t begin, int64_t end) {
    struct top_k_job *job = arg;
    size_t entry = is_short(job->dtype, job->cols) ? sizeof(uint64_t) : sizeof(u128);
    u128 small[256];
    /* Radix selection and merging take up to two entries for each element. A heap takes two for
     * each entry that is kept. */
    bool is_heap = !job->is_nth && takes_heap(job->cols, job->k);
    size_t n_entries = 2 * (size_t)(is_heap ? job->k : job->cols);
    void *scratch = small, *large = NULL;
    if (n_entries > sizeof(small) / entry)
        scratch = large = n_entries < SIZE_MAX / entry ? malloc(n_entries * entry) : NULL;
    if (!scratch) {
        atomic_store(&job->is_out_of_memory, true);
        return;
    }
    for (int64_t row = begin; row < end; row++) {
        if (job->is_nth)
            nth_row(job, row, scratch);
        else
            top_k_row(job, row, scratch);
    }
    free(large);
}

static enum kernel_result run(struct kernel_ctx *ctx, struct top_k_job *job, int64_t rows) {
    double cost_ns = (double)job->cols * 2 + (double)(job->is_nth ? 0 : job->k) * 10 + 20;
    pool_parallel_for(ctx->pool, rows, cost_ns, top_k_rows, job);
    if (unlikely(job->is_out_of_memory))
        return kernel_fail(
            ctx, status_exhausted("no memory to sort rows of %lld elements", (long long)job->cols));
    return KERNEL_DONE;
}

/* The input's shape with the last size replaced (`last` >= 0) or left out. The sizes are stored in
 * `dims`. */
static struct shape reshaped(const struct tensor *input, int64_t last,
                             int64_t dims[SHAPE_MAX_RANK]) {
    memcpy(dims, tensor_dims(input), (size_t)input->rank * sizeof(*dims));
    dims[input->rank - 1] = last;
    return (struct shape){last < 0 ? input->rank - 1 : input->rank, dims};
}

static int64_t n_rows_of(const struct tensor *input) {
    int64_t rows = 1;
    for (int i = 0; i + 1 < input->rank; i++) {
        if (mul_overflows_i64(rows, tensor_dim(input, i), &rows))
            /* only where the last size is 0: the output is empty too, or kernel_alloc refuses it */
            return INT64_MAX;
    }
    return rows;
}

/* TopK, TopKV2: the k largest of each row, and their columns, sorted unless the attr says that
 * order does not matter.
 *   input   T [..., cols]             k  Tk, scalar (TopK: an attr)
 *   values  T [..., k]                indices  index_type [..., k]
 * Among equal values the lower column wins. NaN is above infinity.
 * Errors   INVALID_ARGUMENT   input a scalar, k not a scalar, k negative or above cols, cols beyond
 *                             index_type
 * Cost     for a small k about cols, and cols · log k in the worst case; for a large k linear, plus
 *          sorting k */
enum kernel_result nn_top_k(struct kernel_ctx *ctx) {
    const struct top_k_state *state = ctx->instance->state;
    const struct tensor *input = kernel_input(ctx, 0);
    int64_t k = state->k, dims[SHAPE_MAX_RANK];
    if (k < 0) {
        const struct tensor *k_input = kernel_input(ctx, 1);
        if (unlikely(k_input->rank != 0)) {
            struct status *st =
                status_invalid("k must be scalar, got shape %s", TENSOR_SHAPE_TEXT(k_input));
            return kernel_fail(ctx, st);
        }
        k = tensor_int_at(k_input, 0);
        if (unlikely(k < 0))
            return kernel_fail(ctx, status_invalid("Need k >= 0, got %lld", (long long)k));
    }
    if (unlikely(input->rank < 1))
        return kernel_fail(ctx, status_invalid("input must be >= 1-D, got shape []"));
    int64_t cols = tensor_dim(input, input->rank - 1);
    if (unlikely(cols < k))
        return kernel_fail(
            ctx, status_invalid("input must have at least k columns. Had %lld, needed %lld",
                                (long long)cols, (long long)k));
    int64_t index_max = state->index_type == DT_INT16   ? INT16_MAX
                        : state->index_type == DT_INT32 ? INT32_MAX
                                                        : INT64_MAX;
    if (unlikely(cols > index_max))
        return kernel_fail(
            ctx, status_invalid("Second dimension of flattened input must be <= %lld, got %lld",
                                (long long)index_max, (long long)cols));
    struct shape shape = reshaped(input, k, dims);
    struct top_k_job job = {.dtype = (enum dtype)input->dtype,
                            .index_type = state->index_type,
                            .size = dtype_size((enum dtype)input->dtype),
                            .cols = cols,
                            .k = k,
                            .sorted = state->sorted,
                            .x = tensor_cdata(input)};
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, job.dtype, shape));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 1, job.index_type, shape));
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    job.values = tensor_data(&ctx->outputs[0]);
    job.indices = tensor_data(&ctx->outputs[1]);
    return run(ctx, &job, n_rows_of(input));
}

/* ---- NthElement ---- */

struct nth_state {
    bool reverse;
};

struct status *nn_nth_element_init(struct kernel_init *init) {
    struct nth_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    return node_get_b(init->node, "reverse", &state->reverse);
}

/* NthElement: of each row, the element that would be at index n (from 0) if the row were sorted,
 * descending if `reverse`.
 *   input  T [..., cols]    n  int32, scalar    values  T [...]
 * Errors   INVALID_ARGUMENT   input a scalar, n not a scalar, n outside of [0, cols) */
enum kernel_result nn_nth_element(struct kernel_ctx *ctx) {
    const struct nth_state *state = ctx->instance->state;
    const struct tensor *input = kernel_input(ctx, 0), *n_input = kernel_input(ctx, 1);
    int64_t dims[SHAPE_MAX_RANK];
    if (unlikely(n_input->rank != 0))
        return kernel_fail(ctx, status_invalid("N must be scalar but has rank %d", n_input->rank));
    int64_t n = tensor_index_at(n_input, 0);
    if (unlikely(n < 0))
        return kernel_fail(ctx, status_invalid("n must be non-negative but is %lld", (long long)n));
    if (unlikely(input->rank < 1))
        return kernel_fail(ctx, status_invalid("Input must be at least rank 1 but is rank 0"));
    int64_t cols = tensor_dim(input, input->rank - 1);
    if (unlikely(n >= cols))
        return kernel_fail(
            ctx, status_invalid("Input must have last dimension > n = %lld", (long long)n));
    struct top_k_job job = {.dtype = (enum dtype)input->dtype,
                            .size = dtype_size((enum dtype)input->dtype),
                            .cols = cols,
                            .k = state->reverse ? n : cols - 1 - n,
                            .is_nth = true,
                            .x = tensor_cdata(input)};
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, job.dtype, reshaped(input, -1, dims)));
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    job.values = tensor_data(&ctx->outputs[0]);
    return run(ctx, &job, n_rows_of(input));
}

/* ---- InTopK ---- */

enum { IN_TOP_K_BLOCK = 32 };

struct in_top_k_state {
    int64_t k;
    bool has_k; /* InTopK has k as an attr, InTopKV2 as an input */
};

struct status *nn_in_top_k_init(struct kernel_init *init) {
    struct in_top_k_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    state->has_k = node_attr(init->node, "k") != NULL;
    return state->has_k ? node_get_i(init->node, "k", &state->k) : NULL;
}

struct in_top_k_job {
    const float *predictions;
    const struct tensor *targets;
    int64_t classes, k;
    bool *out;
};

/* The answer is false when the target is outside of the classes, or when any number of the row is
 * not finite. */
static void in_top_k_rows(void *arg, int64_t begin, int64_t end) {
    const struct in_top_k_job *job = arg;
    for (int64_t row = begin; row < end; row++) {
        const float *x = job->predictions + row * job->classes;
        int64_t target = tensor_index_at(job->targets, row), n_above = 0, n_not_finite = 0;
        job->out[row] = false;
        if (target < 0 || target >= job->classes)
            continue;
        float at_target = x[target];
        /* stops when k are above it, because the answer is then known */
        for (int64_t first = 0; first < job->classes && n_above < job->k && pool_goes_on(first);
             first += IN_TOP_K_BLOCK) {
            int64_t last = MIN(first + IN_TOP_K_BLOCK, job->classes);
            for (int64_t i = first; i < last; i++) {
                n_above += x[i] > at_target;
                n_not_finite += !(fabsf(x[i]) < INFINITY);
            }
        }
        job->out[row] = n_not_finite == 0 && n_above < job->k;
    }
}

/* InTopK, InTopKV2: is the target's prediction among the k largest of its row? Predictions that tie
 * with the k-th largest count as among them.
 *   predictions  float [batch, classes]
 *   targets, k   T [batch], T scalar (InTopK: an attr)
 *   precision    bool [batch]
 * Errors   INVALID_ARGUMENT   ranks, or sizes that differ */
enum kernel_result nn_in_top_k(struct kernel_ctx *ctx) {
    const struct in_top_k_state *state = ctx->instance->state;
    const struct tensor *predictions = kernel_input(ctx, 0), *targets = kernel_input(ctx, 1);
    int64_t k = state->k;
    if (unlikely(predictions->rank != 2))
        return kernel_fail(ctx, status_invalid("predictions must be 2-dimensional"));
    if (unlikely(targets->rank != 1))
        return kernel_fail(ctx, status_invalid("targets must be 1-dimensional"));
    int64_t rows = tensor_dim(predictions, 0);
    if (unlikely(rows != tensor_dim(targets, 0)))
        return kernel_fail(
            ctx,
            status_invalid("First dimension of predictions %lld must match length of targets %lld",
                           (long long)rows, (long long)tensor_dim(targets, 0)));
    if (!state->has_k) {
        const struct tensor *k_input = kernel_input(ctx, 2);
        if (unlikely(k_input->rank != 0)) {
            struct status *st =
                status_invalid("k must be 0-D, got shape %s", TENSOR_SHAPE_TEXT(k_input));
            return kernel_fail(ctx, st);
        }
        k = tensor_index_at(k_input, 0);
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_BOOL, (struct shape){1, &rows}));
    struct in_top_k_job job = {tensor_cdata(predictions), targets, tensor_dim(predictions, 1), k,
                               tensor_data(&ctx->outputs[0])};
    pool_parallel_for(ctx->pool, rows, (double)job.classes + 5, in_top_k_rows, &job);
    return KERNEL_DONE;
}
