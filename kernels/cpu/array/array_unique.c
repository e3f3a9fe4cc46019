/* Finds elements by value: Unique, ListDiff, Where.
 *
 * Elements are equal when == says so. The two zeros of a float are therefore one value, and a NaN
 * equals nothing, not even itself. */
#include <math.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/map.h"
#include "common/base/pool_cancel.h"
#include "common/tensor/element.h"
#include "common/tensor/float16.h"
#include "kernels/cpu/array/array_internal.h"
#include "kernels/support/cancel.h"
#include "kernels/support/dims.h"
#include "kernels/support/lanes.h"
#include "kernels/support/half_blocks.h"

/* ---- slices with a hash ---- */

/* The slices [o, i, k] of a tensor that is seen as [outer, n, inner]; i numbers the slices. A
 * vector has outer = inner = 1. */
struct slices {
    enum dtype dtype;
    const char *data;
    int64_t n, outer, inner;
};

/* As dtype_size, but a constant where the compiler knows the dtype. */
static inline __attribute__((always_inline)) size_t element_size(enum dtype dtype) {
    return dtype == DT_INT32 ? 4 : dtype == DT_INT64 || dtype == DT_STRING ? 8 : dtype_size(dtype);
}

static inline __attribute__((always_inline)) uint64_t element_bits(enum dtype dtype,
                                                                   const void *at) {
    uint64_t bits = 0;
    memcpy(&bits, at, MIN(element_size(dtype), sizeof(bits)));
    bool is_zero = (dtype == DT_FLOAT && bits == 0x80000000u) ||
                   (dtype == DT_DOUBLE && bits == UINT64_C(1) << 63) ||
                   (dtype_is_narrow_float(dtype) && bits == 0x8000u);
    return is_zero ? 0 : bits;
}

static inline __attribute__((always_inline)) bool element_is_nan(enum dtype dtype, const void *at) {
    switch (dtype) {
    case DT_FLOAT:
        return isnan(*(const float *)at);
    case DT_DOUBLE:
        return isnan(*(const double *)at);
    case DT_HALF:
        return (*(const uint16_t *)at & 0x7fff) > 0x7c00;
    case DT_BFLOAT16:
        return (*(const uint16_t *)at & 0x7fff) > 0x7f80;
    default:
        return false;
    }
}

static inline __attribute__((always_inline)) uint64_t element_hash(enum dtype dtype, const void *at,
                                                                   uint64_t seed) {
    if (dtype == DT_STRING) {
        struct span text = bytes_span(*(struct bytes *const *)at);
        return hash_bytes(text.data, text.len, seed);
    }
    if (dtype == DT_COMPLEX128)
        return hash_bytes(at, 16, seed);
    return hash_mix(element_bits(dtype, at), seed);
}

static inline __attribute__((always_inline)) bool element_equal(enum dtype dtype, const void *a,
                                                                const void *b) {
    if (dtype == DT_STRING)
        return span_equal(bytes_span(*(struct bytes *const *)a),
                          bytes_span(*(struct bytes *const *)b));
    if (dtype == DT_COMPLEX128)
        return memcmp(a, b, 16) == 0;
    return element_bits(dtype, a) == element_bits(dtype, b) && !element_is_nan(dtype, a);
}

static inline __attribute__((always_inline)) const void *
slice_at(const struct slices *s, enum dtype dtype, int64_t o, int64_t i) {
    return s->data + (o * s->n + i) * s->inner * (int64_t)element_size(dtype);
}

static inline __attribute__((always_inline)) uint64_t
slice_hash(const struct slices *s, enum dtype dtype, int64_t i, uint64_t seed) {
    int64_t size = (int64_t)element_size(dtype);
    for (int64_t o = 0; o < s->outer; o++) {
        const char *at = slice_at(s, dtype, o, i);
        for (int64_t k = 0; k < s->inner; k++)
            seed = element_hash(dtype, at + k * size, seed);
    }
    return seed;
}

static inline __attribute__((always_inline)) bool slice_equal(const struct slices *a, int64_t i,
                                                              const struct slices *b, int64_t j,
                                                              enum dtype dtype) {
    int64_t size = (int64_t)element_size(dtype);
    for (int64_t o = 0; o < a->outer; o++) {
        const char *at_a = slice_at(a, dtype, o, i), *at_b = slice_at(b, dtype, o, j);
        for (int64_t k = 0; k < a->inner; k++) {
            if (!element_equal(dtype, at_a + k * size, at_b + k * size))
                return false;
        }
    }
    return true;
}

/* An open hash table of slice numbers, at most half full. An entry is 0 when it is free, and i + 1
 * for slice i. */
struct table {
    uint32_t *slots;
    uint64_t mask, seed;
};

static struct status *table_init(struct table *table, int64_t n) {
    uint64_t capacity = 16;
    if (n > INT32_MAX)
        return status_invalid("unique does not support input tensors larger than %d elements",
                              INT32_MAX);
    while (capacity < 2 * (uint64_t)n)
        capacity *= 2;
    table->mask = capacity - 1;
    table->seed = random_u64(); /* random, so that a client cannot choose values that collide */
    table->slots = calloc(capacity, sizeof(*table->slots));
    return table->slots
               ? NULL
               : status_exhausted("OOM: a table of %llu slots", (unsigned long long)capacity);
}

/* Finds the slice of `in` that equals slice i of `probe`, or -1. With `insert`, where probe is
 * `in`, slice i is added when there is no equal one. */
static inline __attribute__((always_inline)) int64_t
table_find(struct table *table, const struct slices *in, const struct slices *probe, int64_t i,
           enum dtype dtype, bool insert) {
    uint64_t at = slice_hash(probe, dtype, i, table->seed) & table->mask;
    for (; table->slots[at]; at = (at + 1) & table->mask) {
        if (slice_equal(in, table->slots[at] - 1, probe, i, dtype))
            return table->slots[at] - 1;
    }
    if (insert)
        table->slots[at] = (uint32_t)i + 1;
    return -1;
}

/* Runs a loop with the common dtypes as constants, so that the element functions shrink to a few
 * instructions. */
#define WITH_DTYPE(dtype, call)               \
    ((dtype) == DT_INT32    ? call(DT_INT32)  \
     : (dtype) == DT_INT64  ? call(DT_INT64)  \
     : (dtype) == DT_STRING ? call(DT_STRING) \
                            : call(dtype))

/* ---- Unique ---- */

enum { SLICES_PER_POLL = 1 << 13 };

static bool is_time_to_stop(int64_t i) { return i % SLICES_PER_POLL == 0 && pool_is_unwanted(); }

struct unique {
    struct slices in;
    int32_t *of;     /* per slice: the number of its distinct value */
    int32_t *firsts; /* per distinct value: the first slice that has it */
    int64_t n_unique;
};

static inline __attribute__((always_inline)) int64_t
unique_loop(struct unique *u, struct table *table, enum dtype dtype) {
    int64_t n_unique = 0;
    for (int64_t i = 0; i < u->in.n; i++) {
        if (is_time_to_stop(i))
            return 0; /* what has not been visited has no number */
        int64_t found = table_find(table, &u->in, &u->in, i, dtype, true);
        if (found < 0) {
            u->firsts[n_unique] = (int32_t)i;
            u->of[i] = (int32_t)n_unique++;
        } else {
            u->of[i] = u->of[found];
        }
    }
    return n_unique;
}

static struct status *unique_axis(struct kernel_ctx *ctx, bool has_axis, int *ret_axis) {
    const struct tensor *in = kernel_input(ctx, 0), *axis = has_axis ? kernel_input(ctx, 1) : NULL;
    *ret_axis = 0;
    if (axis && axis->rank != 1)
        return status_invalid("axis expects a 1D vector.");
    if (axis && axis->n_elements > 1)
        return status_invalid("axis does not support input tensors larger than 1 elements");
    if (!axis || axis->n_elements == 0)
        return in->rank == 1 ? NULL : status_invalid("unique expects a 1D vector.");
    int64_t at = tensor_index_at(axis, 0);
    at += at < 0 ? in->rank : 0;
    if (at < 0 || at >= in->rank)
        return status_invalid("axis has to be between [0, %d)", in->rank);
    *ret_axis = (int)at;
    return NULL;
}

static struct status *unique_outputs(struct kernel_ctx *ctx, const struct unique *u, int axis) {
    const struct tensor *in = kernel_input(ctx, 0);
    struct dims dims;
    dims_set(&dims, tensor_shape(in));
    dims.at[axis] = u->n_unique;
    TRY(kernel_alloc(ctx, 0, u->in.dtype, dims_shape(&dims)));
    struct tensor *out = &ctx->outputs[0], *of = &ctx->outputs[1];
    TRY(kernel_alloc(ctx, 1, kernel_out_dtype(ctx, 1), (struct shape){1, &u->in.n}));
    for (int64_t o = 0; o < u->in.outer; o++) {
        POOL_ROW_PIECES (begin, end, u->n_unique, u->in.inner)
            for (int64_t j = begin; j < end; j++)
                elements_copy(u->in.dtype, tensor_at(out, (o * u->n_unique + j) * u->in.inner),
                              slice_at(&u->in, u->in.dtype, o, u->firsts[j]), u->in.inner);
    }
    POOL_PIECES (begin, end, 0, u->in.n)
        for (int64_t i = begin; i < end; i++)
            tensor_set_index(of, i, u->of[i]);
    if (ctx->instance->n_outputs < 3)
        return NULL;
    TRY(tensor_new_zeroed(ctx->instance->allocator, kernel_out_dtype(ctx, 2),
                          (struct shape){1, &u->n_unique}, &ctx->outputs[2]));
    for (int64_t i = 0; i < u->in.n && pool_goes_on(i); i++) {
        struct tensor *counts = &ctx->outputs[2];
        tensor_set_index(counts, u->of[i], tensor_index_at(counts, u->of[i]) + 1);
    }
    return NULL;
}

static enum kernel_result unique(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    int axis;
    KERNEL_TRY(ctx, unique_axis(ctx, ctx->instance->n_inputs > 1, &axis));
    struct unique u = {.in = {tensor_dtype(in), tensor_cdata(in), tensor_dim(in, axis),
                              dims_product(tensor_dims(in), 0, axis),
                              dims_product(tensor_dims(in), axis + 1, in->rank)}};
    struct table table = {0};
    struct status *st = table_init(&table, u.in.n);
    if (!st) {
        u.of = malloc((size_t)(u.in.n + 1) * sizeof(*u.of));
        u.firsts = malloc((size_t)(u.in.n + 1) * sizeof(*u.firsts));
        if (!u.of || !u.firsts)
            st = status_exhausted("OOM: indices of %lld elements", (long long)u.in.n);
    }
    if (!st) {
#define UNIQUE_LOOP(dtype) unique_loop(&u, &table, (dtype))
        u.n_unique = WITH_DTYPE(u.in.dtype, UNIQUE_LOOP);
        st = pool_is_unwanted() ? kernel_check_cancelled(ctx) : unique_outputs(ctx, &u, axis);
    }
    free(table.slots);
    free(u.of);
    free(u.firsts);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- ListDiff: what of x is not in y ---- */

static enum kernel_result list_diff(struct kernel_ctx *ctx) {
    const struct tensor *x = kernel_input(ctx, 0), *y = kernel_input(ctx, 1);
    if (x->rank != 1)
        return kernel_fail(ctx, status_invalid("x should be a 1D vector."));
    if (y->rank != 1)
        return kernel_fail(ctx, status_invalid("y should be a 1D vector."));
    struct slices in_y = {tensor_dtype(y), tensor_cdata(y), y->n_elements, 1, 1},
                  in_x = {tensor_dtype(x), tensor_cdata(x), x->n_elements, 1, 1};
    struct table table = {0};
    int64_t n = 0, *kept = malloc((size_t)(x->n_elements + 1) * sizeof(*kept));
    struct status *st =
        kept ? table_init(&table, y->n_elements)
             : status_exhausted("OOM: indices of %lld elements", (long long)x->n_elements);
    if (st)
        goto out;
    for (int64_t i = 0; i < in_y.n && !is_time_to_stop(i); i++)
        table_find(&table, &in_y, &in_y, i, in_y.dtype, true);
    for (int64_t i = 0; i < in_x.n && !is_time_to_stop(i); i++) {
        if (table_find(&table, &in_y, &in_x, i, in_x.dtype, false) < 0)
            kept[n++] = i;
    }
    TRY_OUT(kernel_alloc(ctx, 0, in_x.dtype, (struct shape){1, &n}));
    TRY_OUT(kernel_alloc(ctx, 1, kernel_out_dtype(ctx, 1), (struct shape){1, &n}));
    for (int64_t i = 0; i < n && pool_goes_on(i); i++) {
        elements_copy(in_x.dtype, tensor_at(&ctx->outputs[0], i), tensor_cat(x, kept[i]), 1);
        tensor_set_index(&ctx->outputs[1], i, kept[i]);
    }
out:
    free(kept);
    free(table.slots);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- Where: the coordinates of elements that are not 0 ---- */

#define COUNT_LOOP(type, test)                      \
    {                                               \
        const type *at = data;                      \
        POOL_PIECES (begin, end, 0, n) {            \
            for (int64_t i = begin; i < end; i++) { \
                type v = at[i];                     \
                is_set[i] = (test);                 \
                count += is_set[i];                 \
            }                                       \
        }                                           \
        break;                                      \
    }

static int64_t mark_set(enum dtype dtype, const void *data, int64_t n, bool *is_set) {
    int64_t count = 0;
    switch (dtype) {
    case DT_FLOAT:
        COUNT_LOOP(float, v != 0)
    case DT_DOUBLE:
        COUNT_LOOP(double, v != 0)
    case DT_HALF:
    case DT_BFLOAT16:
        COUNT_LOOP(uint16_t, (v & 0x7fff) != 0)
    case DT_COMPLEX64:
        COUNT_LOOP(_Complex float, __real__ v != 0 || __imag__ v != 0)
    case DT_COMPLEX128:
        COUNT_LOOP(_Complex double, __real__ v != 0 || __imag__ v != 0)
    default:
        switch (dtype_size(dtype)) {
        case 1:
            COUNT_LOOP(uint8_t, v != 0)
        case 2:
            COUNT_LOOP(uint16_t, v != 0)
        case 4:
            COUNT_LOOP(uint32_t, v != 0)
        default:
            COUNT_LOOP(uint64_t, v != 0)
        }
    }
    return count;
}

/* Writes the coordinates of the set marks from `i` to n of a run. `at` has the coordinates of the
 * other dimensions. Returns where the next coordinates are written. The coordinates of every mark
 * are written, but the next ones overwrite them unless the mark is set, so no branch is
 * mispredicted. Nothing is written at `end` or later. Eight marks that are not set are skipped at
 * once. */
LANES_INLINE int64_t *write_run(const bool *is_set, int64_t i, int64_t n, const int64_t *at,
                                const int rank, int64_t *to, const int64_t *end) {
    while (i < n && to < end) {
        int64_t stop = MIN(i + 8, n);
        if (stop - i == 8 && memcmp(is_set + i, (const bool[8]){false}, 8) == 0) {
            i = stop;
            continue;
        }
        for (; i < stop && to < end; i++) {
            for (int d = 0; d < rank - 1; d++)
                to[d] = at[d];
            to[rank - 1] = i;
            to += rank & -(int)is_set[i];
        }
    }
    return to;
}

/* Writes a row of coordinates for each set mark. The last dimension is the inner loop, and the
 * other dimensions are counted like an odometer. */
static void write_places(struct shape shape, const bool *is_set, int64_t *to, int64_t count) {
    int64_t at[SHAPE_MAX_RANK] = {0}, row = shape.dims[shape.rank - 1],
            n_rows = dims_product(shape.dims, 0, shape.rank - 1);
    const int64_t *end = to + count * shape.rank;
    for (int64_t r = 0; r < n_rows && pool_goes_on_rows(r, row); r++, is_set += row) {
        POOL_PIECES (first, last, 0, row) {
            if (shape.rank == 1)
                to = write_run(is_set, first, last, at, 1, to, end);
            else if (shape.rank == 2)
                to = write_run(is_set, first, last, at, 2, to, end);
            else
                to = write_run(is_set, first, last, at, shape.rank, to, end);
        }
        for (int d = shape.rank - 2; d >= 0 && ++at[d] == shape.dims[d]; d--)
            at[d] = 0;
    }
}

static enum kernel_result where(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    int64_t n = in->n_elements;
    if (in->rank == 0)
        return kernel_fail(ctx, status_invalid("WhereOp : Unhandled input dimensions: 0"));
    bool small[64], *is_set = n <= 64 ? small : malloc((size_t)n);
    if (!is_set)
        return kernel_fail(ctx, status_exhausted("OOM: marks of %lld elements", (long long)n));
    int64_t dims[2] = {mark_set(tensor_dtype(in), tensor_cdata(in), n, is_set), in->rank};
    struct status *st = kernel_alloc(ctx, 0, DT_INT64, (struct shape){2, dims});
    if (!st && dims[0] > 0)
        write_places(tensor_shape(in), is_set, tensor_data(&ctx->outputs[0]), dims[0]);
    if (is_set != small)
        free(is_set);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

#define VALUE_TYPES (DTYPES_REAL | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING))
#define UNIQUE(name) \
    { .op = (name), .constraints = {{"T", VALUE_TYPES}}, .compute = unique }

// clang-format off
static const struct kernel_def rows[] = {
    UNIQUE("Unique"),
    UNIQUE("UniqueV2"),
    UNIQUE("UniqueWithCounts"),
    UNIQUE("UniqueWithCountsV2"),
    {.op = "ListDiff", .constraints = {{"T", VALUE_TYPES & ~DTYPE_BIT(DT_BOOL)}},
        .compute = list_diff},
    {.op = "Where", .constraints = {{"T", DTYPES_NUMBER | DTYPE_BIT(DT_BOOL)}}, .compute = where},
};
// clang-format on

const struct kernel_list array_unique_kernels = {rows, ARRAY_LEN(rows)};
