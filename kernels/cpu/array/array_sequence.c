/* Makes sequences: Range, LinSpace, OneHot. */
#include <math.h>
#include <stdlib.h>

#include "common/tensor/element.h"
#include "common/tensor/float16.h"
#include "kernels/cpu/array/array_internal.h"
#include "kernels/support/cancel.h"
#include "kernels/support/dims.h"

/* ---- Range ---- */

static bool is_real(enum dtype dtype) { return dtype_in(dtype, DTYPES_REAL_FLOAT); }

static inline float as_is(float v) { return v; }
static inline float to_half(float v) { return half_to_float(half_from_float(v)); }
static inline float to_bfloat16(float v) { return bfloat16_to_float(bfloat16_from_float(v)); }

static struct status *range_check_real(double start, double limit, double delta) {
    if (delta == 0)
        return status_invalid("Requires delta != 0: %g", delta);
    if (delta > 0 && start > limit)
        return status_invalid("Requires start <= limit when delta > 0: %g/%g", start, limit);
    if (delta < 0 && start < limit)
        return status_invalid("Requires start >= limit when delta < 0: %g/%g", start, limit);
    return NULL;
}

/* Counts the elements in the dtype's own arithmetic: `round` rounds after each operation. */
static double count_in_float(float (*round)(float), float start, float limit, float delta) {
    return ceilf(fabsf(round(round(limit - start) / delta)));
}

static struct status *range_count_real(const struct tensor *start, const struct tensor *limit,
                                       const struct tensor *delta, int64_t *ret) {
    const void *a = tensor_cdata(start), *b = tensor_cdata(limit), *d = tensor_cdata(delta);
    double count;
    if (start->dtype == DT_DOUBLE) {
        double first = *(const double *)a, end = *(const double *)b, by = *(const double *)d;
        TRY(range_check_real(first, end, by));
        count = ceil(fabs((end - first) / by));
    } else {
        bool is_half = start->dtype == DT_HALF, is_float = start->dtype == DT_FLOAT;
        float (*round)(float) = is_float ? as_is : is_half ? to_half : to_bfloat16;
        float v[3];
        const void *in[3] = {a, b, d};
        for (int i = 0; i < 3; i++)
            v[i] = is_float  ? *(const float *)in[i]
                   : is_half ? half_to_float(*(const uint16_t *)in[i])
                             : bfloat16_to_float(*(const uint16_t *)in[i]);
        TRY(range_check_real(v[0], v[1], v[2]));
        count = count_in_float(round, v[0], v[1], v[2]);
    }
    if (!(count < 9.2e18))
        return status_invalid("Requires ((limit - start) / delta) <= 9223372036854775807");
    *ret = (int64_t)count;
    return NULL;
}

static struct status *range_count_int(int64_t start, int64_t limit, int64_t delta, int64_t *ret) {
    if (delta == 0)
        return status_invalid("Requires delta != 0: 0");
    if (delta > 0 && start > limit)
        return status_invalid("Requires start <= limit when delta > 0: %lld/%lld", (long long)start,
                              (long long)limit);
    if (delta < 0 && start < limit)
        return status_invalid("Requires start >= limit when delta < 0: %lld/%lld", (long long)start,
                              (long long)limit);
    uint64_t span =
        delta > 0 ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
    uint64_t step = delta > 0 ? (uint64_t)delta : 0 - (uint64_t)delta,
             n = span / step + (span % step != 0);
    if (n > INT64_MAX)
        return status_invalid("Requires ((limit - start) / delta) <= 9223372036854775807");
    *ret = (int64_t)n;
    return NULL;
}

static struct status *range_count_unsigned(uint64_t start, uint64_t limit, uint64_t delta,
                                           int64_t *ret) {
    if (delta == 0)
        return status_invalid("Requires delta != 0: 0");
    if (start > limit)
        return status_invalid("Requires start <= limit when delta > 0: %llu/%llu",
                              (unsigned long long)start, (unsigned long long)limit);
    uint64_t n = (limit - start) / delta + ((limit - start) % delta != 0);
    if (n > INT64_MAX)
        return status_invalid("Requires ((limit - start) / delta) <= 9223372036854775807");
    *ret = (int64_t)n;
    return NULL;
}

/* Writes start + i·delta in the dtype's own arithmetic, rounded after each operation. Integers
 * wrap. */
#define RANGE_LOOP(type)                                             \
    {                                                                \
        type *to = data, first = *(const type *)tensor_cdata(start), \
             by = *(const type *)tensor_cdata(delta);                \
        for (int64_t i = begin; i < end; i++)                        \
            to[i] = (type)(first + (type)((type)i * by));            \
        break;                                                       \
    }
#define RANGE_LOOP_INT(type, wide)                                                                \
    {                                                                                             \
        type *to = data;                                                                          \
        wide first = *(const type *)tensor_cdata(start), by = *(const type *)tensor_cdata(delta); \
        for (int64_t i = begin; i < end; i++)                                                     \
            to[i] = (type)(first + (wide)i * by);                                                 \
        break;                                                                                    \
    }
#define RANGE_LOOP_NARROW(to_float, from_float, round)                  \
    {                                                                   \
        uint16_t *to = data;                                            \
        float first = to_float(*(const uint16_t *)tensor_cdata(start)), \
              by = to_float(*(const uint16_t *)tensor_cdata(delta));    \
        for (int64_t i = begin; i < end; i++)                           \
            to[i] = from_float(first + round(round((float)i) * by));    \
        break;                                                          \
    }

static void range_fill(const struct tensor *start, const struct tensor *delta, int64_t begin,
                       int64_t end, void *data) {
    switch ((enum dtype)start->dtype) {
    case DT_FLOAT:
        RANGE_LOOP(float)
    case DT_DOUBLE:
        RANGE_LOOP(double)
    case DT_HALF:
        RANGE_LOOP_NARROW(half_to_float, half_from_float, to_half)
    case DT_BFLOAT16:
        RANGE_LOOP_NARROW(bfloat16_to_float, bfloat16_from_float, to_bfloat16)
    default: /* integers wrap, so the unsigned type of the same size computes both signs */
        switch (dtype_size((enum dtype)start->dtype)) {
        case 1:
            RANGE_LOOP_INT(uint8_t, uint32_t)
        case 2:
            RANGE_LOOP_INT(uint16_t, uint32_t)
        case 4:
            RANGE_LOOP_INT(uint32_t, uint32_t)
        default:
            RANGE_LOOP_INT(uint64_t, uint64_t)
        }
    }
}

struct range_job {
    struct kernel_ctx *ctx;
    void *data;
};

/* This many elements are filled between two checks for cancellation, which takes about 1 ms. */
enum { RANGE_CHUNK = 1 << 20 };

static void range_part(void *arg, int64_t begin, int64_t end) {
    const struct range_job *job = arg;
    for (; begin < end && !kernel_is_cancelled(job->ctx); begin += RANGE_CHUNK)
        range_fill(kernel_input(job->ctx, 0), kernel_input(job->ctx, 2), begin,
                   MIN(end, begin + RANGE_CHUNK), job->data);
}

static enum kernel_result range(struct kernel_ctx *ctx) {
    static const char *const names[] = {"start", "limit", "delta"};
    const struct tensor *start = kernel_input(ctx, 0), *limit = kernel_input(ctx, 1),
                        *delta = kernel_input(ctx, 2);
    for (int i = 0; i < 3; i++) {
        const struct tensor *in = kernel_input(ctx, i);
        if (in->rank > 1 || in->n_elements != 1)
            return kernel_fail(ctx, status_invalid("%s must be a scalar, not shape %s", names[i],
                                                   TENSOR_SHAPE_TEXT(in)));
    }
    enum dtype dtype = tensor_dtype(start);
    int64_t n;
    if (is_real(dtype))
        KERNEL_TRY(ctx, range_count_real(start, limit, delta, &n));
    else if (dtype == DT_UINT64)
        KERNEL_TRY(ctx, range_count_unsigned(*(const uint64_t *)tensor_cdata(start),
                                             *(const uint64_t *)tensor_cdata(limit),
                                             *(const uint64_t *)tensor_cdata(delta), &n));
    else
        KERNEL_TRY(ctx, range_count_int(tensor_int_at(start, 0), tensor_int_at(limit, 0),
                                        tensor_int_at(delta, 0), &n));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, (struct shape){1, &n}));
    if (kernel_is_for_device(ctx)) {
        if (n > 0)
            KERNEL_TRY(ctx, ctx->instance->engine->range(ctx, dtype, tensor_cdata(start),
                                                         tensor_cdata(delta),
                                                         tensor_data(&ctx->outputs[0]), n));
        return KERNEL_DONE;
    }
    struct range_job job = {ctx, tensor_data(&ctx->outputs[0])};
    pool_parallel_for(ctx->pool, n, 0.5, range_part, &job);
    KERNEL_TRY(ctx, kernel_check_cancelled(ctx));
    return KERNEL_DONE;
}

/* ---- LinSpace ---- */

#define LINSPACE(type)                                                                             \
    {                                                                                              \
        type first = *(const type *)tensor_cdata(start), last = *(const type *)tensor_cdata(stop); \
        type *to = tensor_data(&ctx->outputs[0]);                                                  \
        to[0] = first;                                                                             \
        if (n > 1) {                                                                               \
            type step = (last - first) / (type)(n - 1);                                            \
            POOL_PIECES (begin, end, 1, n - 1)                                                     \
                for (int64_t i = begin; i < end; i++)                                              \
                    to[i] = first + step * (type)i;                                                \
            to[n - 1] = last;                                                                      \
        }                                                                                          \
        break;                                                                                     \
    }
#define LINSPACE_NARROW(to_float, from_float)                                                    \
    {                                                                                            \
        uint16_t *to = tensor_data(&ctx->outputs[0]);                                            \
        float first = to_float(*(const uint16_t *)tensor_cdata(start)),                          \
              last = to_float(*(const uint16_t *)tensor_cdata(stop));                            \
        for (int64_t i = 0; i < n && pool_goes_on(i); i++)                                       \
            to[i] = from_float(                                                                  \
                i && i == n - 1 ? last                                                           \
                                : first + (i ? (last - first) / (float)(n - 1) * (float)i : 0)); \
        break;                                                                                   \
    }

static enum kernel_result lin_space(struct kernel_ctx *ctx) {
    static const char *const names[] = {"start", "stop", "num"};
    const struct tensor *start = kernel_input(ctx, 0), *stop = kernel_input(ctx, 1);
    for (int i = 0; i < 3; i++) {
        if (kernel_input(ctx, i)->rank != 0)
            return kernel_fail(ctx, status_invalid("%s must be a scalar, not shape %s", names[i],
                                                   TENSOR_SHAPE_TEXT(kernel_input(ctx, i))));
    }
    int64_t n = tensor_index_at(kernel_input(ctx, 2), 0);
    if (n <= 0)
        return kernel_fail(ctx, status_invalid("Requires num > 0: %lld", (long long)n));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(start), (struct shape){1, &n}));
    switch ((enum dtype)start->dtype) {
    case DT_FLOAT:
        LINSPACE(float)
    case DT_DOUBLE:
        LINSPACE(double)
    case DT_HALF:
        LINSPACE_NARROW(half_to_float, half_from_float)
    default:
        LINSPACE_NARROW(bfloat16_to_float, bfloat16_from_float)
    }
    return KERNEL_DONE;
}

/* ---- OneHot: the state is the axis ----
 *
 *   indices [prefix…, suffix…]   output [prefix…, depth, suffix…]                       */

static struct status *one_hot_init(struct kernel_init *init) {
    return kernel_init_int_attr(init, "axis");
}

static void one_hot_set(const struct tensor *indices, const struct tensor *on, int64_t depth,
                        int64_t prefix, int64_t suffix, struct tensor *out) {
    enum dtype dtype = tensor_dtype(on);
    size_t size = dtype_size(dtype);
    for (int64_t p = 0; p < prefix && pool_goes_on_rows(p, suffix); p++) {
        for (int64_t s = 0; s < suffix && pool_goes_on(s + 1); s++) {
            int64_t index = tensor_int_at(indices, p * suffix + s);
            if (index < 0 || index >= depth)
                continue;
            char *to = tensor_at(out, (p * depth + index) * suffix + s);
            if (size == 4) {
                memcpy(to, tensor_cdata(on), 4);
            } else if (dtype_is_object(dtype)) {
                struct object *old = *(struct object **)(void *)to;
                *(struct object **)(void *)to =
                    object_ref(*(struct object *const *)tensor_cdata(on));
                object_unref(old);
            } else {
                memcpy(to, tensor_cdata(on), size);
            }
        }
    }
}

static enum kernel_result one_hot(struct kernel_ctx *ctx) {
    const struct tensor *indices = kernel_input(ctx, 0), *depth_in = kernel_input(ctx, 1),
                        *on = kernel_input(ctx, 2), *off = kernel_input(ctx, 3);
    int64_t axis = *(const int64_t *)ctx->instance->state;
    int rank = indices->rank;
    if (axis != -1 && (axis < 0 || axis > rank))
        return kernel_fail(
            ctx, status_invalid("Expected axis to be -1 or between [0, %d).  But received: %lld",
                                rank + 1, (long long)axis));
    if (depth_in->rank != 0)
        return kernel_fail(ctx, status_invalid("depth must be a scalar, but got: %s",
                                               TENSOR_SHAPE_TEXT(depth_in)));
    if (on->rank != 0)
        return kernel_fail(
            ctx, status_invalid("on_value must be a scalar, but got: %s", TENSOR_SHAPE_TEXT(on)));
    if (off->rank != 0)
        return kernel_fail(
            ctx, status_invalid("off_value must be a scalar, but got: %s", TENSOR_SHAPE_TEXT(off)));
    int64_t depth = tensor_index_at(depth_in, 0);
    if (depth < 0)
        return kernel_fail(
            ctx, status_invalid("depth must be non-negative, got: %lld", (long long)depth));
    int at = axis == -1 ? rank : (int)axis;
    struct dims dims;
    dims.rank = 0;
    for (int i = 0; i <= rank; i++) {
        if (!dims_add(&dims, i < at    ? tensor_dim(indices, i)
                             : i == at ? depth
                                       : tensor_dim(indices, i - 1)))
            return kernel_fail(
                ctx, status_invalid("The output would pass the rank limit of %d", SHAPE_MAX_RANK));
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(on), dims_shape(&dims)));
    struct tensor *out = &ctx->outputs[0];
    if (out->n_elements == 0)
        return KERNEL_DONE;
    if (kernel_is_for_device(ctx)) {
        KERNEL_TRY(ctx, device_input(ctx, 0));
        struct device_one_hot job = {.to = tensor_data(out),
                                     .indices = tensor_cdata(indices),
                                     .index_dtype = tensor_dtype(indices),
                                     .element_bytes = dtype_size(tensor_dtype(on)),
                                     .on = device_scalar_of(on),
                                     .off = device_scalar_of(off),
                                     .prefix = dims_product(dims.at, 0, at),
                                     .depth = depth,
                                     .suffix = dims_product(dims.at, at + 1, dims.rank)};
        KERNEL_TRY(ctx, ctx->instance->engine->one_hot(ctx, &job));
        return KERNEL_DONE;
    }
    strided_fill(tensor_dtype(on), tensor_data(out), tensor_cdata(off), out->n_elements, ctx->pool);
    one_hot_set(indices, on, depth, dims_product(dims.at, 0, at),
                dims_product(dims.at, at + 1, dims.rank), out);
    return KERNEL_DONE;
}

/* ---- UnravelIndex ---- */

static struct status *unravel_dims(const struct tensor *dims, int64_t *ret_total) {
    *ret_total = 1;
    if (dims->rank != 1)
        return status_invalid("The dims tensor must be 1-D, got rank %d", dims->rank);
    for (int64_t i = 0; i < dims->n_elements; i++) {
        int64_t size = tensor_index_at(dims, i);
        if (size == 0)
            return status_invalid(
                "Input dims cannot contain a dim of zero, but dims contains zero at index %lld",
                (long long)i);
        if (size < 0)
            return status_invalid("Input dims cannot be negative. Got dim = %lld at index %lld",
                                  (long long)size, (long long)i);
        if (mul_overflows_i64(*ret_total, size, ret_total) ||
            (dims->dtype == DT_INT32 && *ret_total > INT32_MAX))
            return status_invalid("Input dims product is causing integer overflow");
    }
    return NULL;
}

/* UnravelIndex: turns positions in a flattened array into coordinates.
 *   indices  Tidx, scalar or [n]    dims  Tidx [rank]    output  Tidx [rank], or [rank, n]
 * Errors   INVALID_ARGUMENT   shapes; no index; a size below 1; sizes whose product overflows; an
 *                             index outside */
static enum kernel_result unravel_index(struct kernel_ctx *ctx) {
    const struct tensor *indices = kernel_input(ctx, 0), *dims = kernel_input(ctx, 1);
    int64_t total, n = indices->n_elements, shape[2] = {dims->n_elements, n};
    bool is_wide = indices->dtype == DT_INT64;
    KERNEL_TRY(ctx, unravel_dims(dims, &total));
    if (n == 0)
        return kernel_fail(ctx, status_invalid("received empty tensor indices"));
    if (indices->rank > 1)
        return kernel_fail(
            ctx,
            status_invalid("The indices can only be scalar or vector, got rank %d", indices->rank));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)indices->dtype,
                                 (struct shape){1 + indices->rank, shape}));
    void *out = tensor_data(&ctx->outputs[0]);
    for (int64_t i = 0; i < n && pool_goes_on(i); i++) {
        int64_t left = tensor_index_at(indices, i);
        if (left < 0 || left >= total)
            return kernel_fail(
                ctx, status_invalid("index is out of bound as with dims: %lld is not in [0, %lld)",
                                    (long long)left, (long long)total));
        for (int64_t d = dims->n_elements - 1; d >= 0; d--) {
            int64_t size = tensor_index_at(dims, d), at = left % size;
            left /= size;
            if (is_wide)
                ((int64_t *)out)[d * n + i] = at;
            else
                ((int32_t *)out)[d * n + i] = (int32_t)at;
        }
    }
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {"UnravelIndex", {{"Tidx", DTYPES_INDEX}}, unravel_index},
    {.op = "Range", .compute = range},
    {.op = "LinSpace", .compute = lin_space},
    {.op = "OneHot", .compute = one_hot, .init = one_hot_init},
};
// clang-format on

const struct kernel_list array_sequence_kernels = {rows, ARRAY_LEN(rows)};
