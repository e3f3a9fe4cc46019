/* Puts, adds, subtracts or compares slices at the positions that index rows name: ScatterNd and the
 * TensorScatter ops.
 *
 *   indices  [rows…, depth]      per row, a point in the output's first `depth` dimensions
 *   updates  [rows…, inner…]     per row, a slice
 *   output   [points…, inner…]   rows that name the same point are applied in order */
#include <math.h>
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "common/tensor/element.h"
#include "common/tensor/float16.h"
#include "kernels/cpu/array/array_index.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/dims.h"

enum scatter_op { SCATTER_PUT, SCATTER_ADD, SCATTER_SUB, SCATTER_MIN, SCATTER_MAX, N_SCATTER_OPS };

struct scatter_state {
    enum scatter_op op;
    enum bad_index_policy policy;
};

/* ---- one slice ---- */

typedef array_slice_fn slice_fn;

#define DEFINE_SLICE(name, type, expression)                              \
    static void name(void *to_bytes, const void *from_bytes, int64_t n) { \
        type *to = to_bytes;                                              \
        const type *from = from_bytes;                                    \
        for (int64_t i = 0; i < n; i++) {                                 \
            type a = to[i], b = from[i];                                  \
            to[i] = (type)(expression);                                   \
        }                                                                 \
    }

/* Sums wrap. Unsigned arithmetic on the bits gives the right sum for both signs. */
#define DEFINE_SUMS(suffix, type)           \
    DEFINE_SLICE(add_##suffix, type, a + b) \
    DEFINE_SLICE(sub_##suffix, type, a - b)
DEFINE_SUMS(u8, uint8_t)
DEFINE_SUMS(u16, uint16_t)
DEFINE_SUMS(u32, uint32_t)
DEFINE_SUMS(u64, uint64_t)
DEFINE_SUMS(f32, float)
DEFINE_SUMS(f64, double)

#define DEFINE_EXTREMES(suffix, type)               \
    DEFINE_SLICE(min_##suffix, type, b < a ? b : a) \
    DEFINE_SLICE(max_##suffix, type, a < b ? b : a)
DEFINE_EXTREMES(i8, int8_t)
DEFINE_EXTREMES(i16, int16_t)
DEFINE_EXTREMES(i32, int32_t)
DEFINE_EXTREMES(i64, int64_t)
DEFINE_EXTREMES(u8, uint8_t)
DEFINE_EXTREMES(u16, uint16_t)
DEFINE_EXTREMES(u32, uint32_t)
DEFINE_EXTREMES(u64, uint64_t)
DEFINE_EXTREMES(f32, float)
DEFINE_EXTREMES(f64, double)

#define DEFINE_NARROW(suffix, to_float, from_float)                             \
    DEFINE_SLICE(add_##suffix, uint16_t, from_float(to_float(a) + to_float(b))) \
    DEFINE_SLICE(sub_##suffix, uint16_t, from_float(to_float(a) - to_float(b))) \
    DEFINE_SLICE(min_##suffix, uint16_t, to_float(b) < to_float(a) ? b : a)     \
    DEFINE_SLICE(max_##suffix, uint16_t, to_float(a) < to_float(b) ? b : a)
DEFINE_NARROW(f16, half_to_float, half_from_float)
DEFINE_NARROW(bf16, bfloat16_to_float, bfloat16_from_float)

DEFINE_SLICE(or_bool, uint8_t, a | b)

static void add_complex64(void *to, const void *from, int64_t n) { add_f32(to, from, 2 * n); }
static void sub_complex64(void *to, const void *from, int64_t n) { sub_f32(to, from, 2 * n); }
static void add_complex128(void *to, const void *from, int64_t n) { add_f64(to, from, 2 * n); }
static void sub_complex128(void *to, const void *from, int64_t n) { sub_f64(to, from, 2 * n); }

static void add_strings(void *to_bytes, const void *from_bytes, int64_t n) {
    struct object **to = to_bytes;
    struct object *const *from = from_bytes;
    for (int64_t i = 0; i < n; i++) {
        struct span a = bytes_span((struct bytes *)to[i]), b = bytes_span((struct bytes *)from[i]);
        struct bytes *joined = bytes_new_uninit(a.len + b.len);
        if (a.len)
            memcpy(joined->data, a.data, a.len);
        if (b.len)
            memcpy(joined->data + a.len, b.data, b.len);
        object_unref(to[i]);
        to[i] = (struct object *)joined;
    }
}

// clang-format off
static slice_fn *const slice_fns[DT_N_TYPES][N_SCATTER_OPS] = {
    [DT_FLOAT]      = {NULL, add_f32, sub_f32, min_f32, max_f32},
    [DT_DOUBLE]     = {NULL, add_f64, sub_f64, min_f64, max_f64},
    [DT_HALF]       = {NULL, add_f16, sub_f16, min_f16, max_f16},
    [DT_BFLOAT16]   = {NULL, add_bf16, sub_bf16, min_bf16, max_bf16},
    [DT_INT8]       = {NULL, add_u8, sub_u8, min_i8, max_i8},
    [DT_INT16]      = {NULL, add_u16, sub_u16, min_i16, max_i16},
    [DT_INT32]      = {NULL, add_u32, sub_u32, min_i32, max_i32},
    [DT_INT64]      = {NULL, add_u64, sub_u64, min_i64, max_i64},
    [DT_UINT8]      = {NULL, add_u8, sub_u8, min_u8, max_u8},
    [DT_UINT16]     = {NULL, add_u16, sub_u16, min_u16, max_u16},
    [DT_UINT32]     = {NULL, add_u32, sub_u32, min_u32, max_u32},
    [DT_UINT64]     = {NULL, add_u64, sub_u64, min_u64, max_u64},
    [DT_COMPLEX64]  = {NULL, add_complex64, sub_complex64},
    [DT_COMPLEX128] = {NULL, add_complex128, sub_complex128},
    [DT_BOOL]       = {NULL, or_bool},
    [DT_STRING]     = {NULL, add_strings},
};
// clang-format on

array_slice_fn *array_add_fn(enum dtype dtype) { return slice_fns[dtype][SCATTER_ADD]; }

static void put_slice(enum dtype dtype, char *to, const char *from, int64_t len, size_t bytes) {
    if (!dtype_is_object(dtype)) {
        memcpy(to, from, bytes);
        return;
    }
    for (int64_t i = 0; i < len; i++) {
        struct object **at = (struct object **)(void *)to + i, *old = *at;
        *at = object_ref(((struct object *const *)(const void *)from)[i]);
        object_unref(old);
    }
}

/* ---- the whole ---- */

static struct status *scatter_check(const struct tensor *indices, const struct tensor *updates,
                                    struct shape out) {
    if (indices->rank < 1)
        return status_invalid("Indices shape must have rank at least one. Found: %s",
                              TENSOR_SHAPE_TEXT(indices));
    if (updates->rank < 1)
        return status_invalid("Updates shape must have rank at least one. Found: %s",
                              TENSOR_SHAPE_TEXT(updates));
    if (out.rank < 1)
        return status_invalid("Output must be at least 1-D, got shape: %s", SHAPE_TEXT(out));
    int n_rows = indices->rank - 1;
    int64_t depth = tensor_dim(indices, n_rows);
    if (depth > out.rank)
        return status_invalid(
            "Index innermost dimension length must be <= output rank; saw: %lld vs. %d",
            (long long)depth, out.rank);
    for (int i = 0; i < n_rows; i++) {
        if (i >= updates->rank || tensor_dim(indices, i) != tensor_dim(updates, i))
            return status_invalid("Dimensions [0,%d) of indices[shape=%s] must match dimensions "
                                  "[0,%d) of updates[shape=%s]",
                                  n_rows, TENSOR_SHAPE_TEXT(indices), n_rows,
                                  TENSOR_SHAPE_TEXT(updates));
    }
    bool matches = updates->rank - n_rows == out.rank - depth;
    for (int i = 0; matches && i < out.rank - depth; i++)
        matches = tensor_dim(updates, n_rows + i) == out.dims[depth + i];
    if (!matches)
        return status_invalid("Dimensions [%lld,%d) of input[shape=%s] must match dimensions "
                              "[%d,%d) of updates[shape=%s]",
                              (long long)depth, out.rank, SHAPE_TEXT(out), n_rows, updates->rank,
                              TENSOR_SHAPE_TEXT(updates));
    return NULL;
}

/* TensorFlow also refuses updates without indices (index rows of depth 0), with this message. */
static struct status *scatter_check_empty(const struct tensor *indices,
                                          const struct tensor *updates, int64_t n_out) {
    if ((n_out == 0 && (indices->n_elements > 0 || updates->n_elements > 0)) ||
        (indices->n_elements == 0 && updates->n_elements > 0))
        return status_invalid("Indices and updates specified for empty output shape");
    return NULL;
}

static struct status *scatter_on_device(struct kernel_ctx *ctx, const struct tensor *indices,
                                        const struct tensor *updates, int depth, int64_t n,
                                        struct tensor *out) {
    static const enum update_op ops[N_SCATTER_OPS] = {
        [SCATTER_PUT] = UPDATE_ASSIGN, [SCATTER_ADD] = UPDATE_ADD, [SCATTER_SUB] = UPDATE_SUB,
        [SCATTER_MIN] = UPDATE_MIN,    [SCATTER_MAX] = UPDATE_MAX,
    };
    const struct scatter_state *state = ctx->instance->state;
    struct device_scatter job = {.op = ops[state->op],
                                 .dtype = tensor_dtype(out),
                                 .params = tensor_data(out),
                                 .updates = tensor_cdata(updates)};
    TRY(device_slices_init(&job.slices, indices, depth, tensor_shape(out), n));
    return n > 0 && job.slices.len > 0 ? ctx->instance->engine->scatter(ctx, &job) : NULL;
}

/* Applies the updates to `out`, whose elements may be written. */
static struct status *scatter_apply(struct kernel_ctx *ctx, const struct tensor *indices,
                                    const struct tensor *updates, struct tensor *out) {
    const struct scatter_state *state = ctx->instance->state;
    struct shape shape = tensor_shape(out);
    TRY(scatter_check(indices, updates, shape));
    if (updates->n_elements == 0)
        return NULL;
    int depth = (int)tensor_dim(indices, indices->rank - 1);
    int64_t len = dims_product(shape.dims, depth, shape.rank),
            n = updates->n_elements / MAX(len, 1);
    if (out->n_elements == 0 && len > 0 && indices->n_elements > 0 &&
        state->policy == BAD_INDEX_FAILS)
        return kernel_is_for_device(ctx)
                   ? status_invalid("indices of shape %s do not index into shape %s",
                                    TENSOR_SHAPE_TEXT(indices), SHAPE_TEXT(shape))
                   : index_row_bad(indices, depth, 0, "shape", shape);
    if (kernel_is_for_device(ctx))
        return out->n_elements > 0 ? scatter_on_device(ctx, indices, updates, depth, n, out) : NULL;
    int64_t *at = malloc((size_t)n * sizeof(*at));
    if (!at)
        return status_exhausted("OOM: %lld indices of a scatter", (long long)n);
    enum dtype dtype = tensor_dtype(out);
    int64_t bad = index_rows_flatten(indices, depth, shape, n, at);
    if (bad >= 0 && state->policy == BAD_INDEX_FAILS) {
        free(at);
        return index_row_bad(indices, depth, bad, "shape", shape);
    }
    slice_fn *apply = slice_fns[dtype][state->op];
    size_t bytes = (size_t)len * dtype_size(dtype);
    const char *from = tensor_cdata(updates);
    char *to = tensor_data(out);
    for (int64_t row = 0; row < n && pool_goes_on_rows(row, len); row++) {
        if (at[row] < 0)
            continue;
        if (state->op == SCATTER_PUT)
            put_slice(dtype, to + (size_t)at[row] * bytes, from + (size_t)row * bytes, len, bytes);
        else
            apply(to + (size_t)at[row] * bytes, from + (size_t)row * bytes, len);
    }
    free(at);
    return NULL;
}

static struct status *scatter_init(struct kernel_init *init) {
    struct scatter_state state = {.op = (enum scatter_op)(uintptr_t)init->arg};
    TRY(bad_index_policy_read(init->node, &state.policy));
    init->state = xmalloc(sizeof(state));
    *(struct scatter_state *)init->state = state;
    return NULL;
}

static enum kernel_result scatter_nd(struct kernel_ctx *ctx) {
    const struct tensor *indices = kernel_input(ctx, 0), *updates = kernel_input(ctx, 1),
                        *sizes = kernel_input(ctx, 2);
    if (sizes->rank != 1 || sizes->n_elements > SHAPE_MAX_RANK)
        return kernel_fail(
            ctx, status_invalid("Shape must be a vector, got shape %s", TENSOR_SHAPE_TEXT(sizes)));
    struct dims dims;
    dims.rank = (int)sizes->n_elements;
    int64_t n;
    for (int i = 0; i < dims.rank; i++)
        dims.at[i] = tensor_int_at(sizes, i);
    KERNEL_TRY(ctx, shape_n_elements(dims_shape(&dims), &n));
    KERNEL_TRY(ctx, scatter_check_empty(indices, updates, n));
    KERNEL_TRY(ctx, scatter_check(indices, updates, dims_shape(&dims)));
    KERNEL_TRY(ctx, kernel_alloc_zeroed(ctx, 0, tensor_dtype(updates), dims_shape(&dims)));
    KERNEL_TRY(ctx, scatter_apply(ctx, indices, updates, &ctx->outputs[0]));
    return KERNEL_DONE;
}

static enum kernel_result tensor_scatter(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0), *indices = kernel_input(ctx, 1),
                        *updates = kernel_input(ctx, 2);
    KERNEL_TRY(ctx, scatter_check_empty(indices, updates, in->n_elements));
    KERNEL_TRY(ctx, scatter_check(indices, updates, tensor_shape(in)));
    if (tensor_is_sole(in))
        kernel_pass(ctx, 0, 0);
    else
        KERNEL_TRY(ctx, kernel_clone(ctx, in, &ctx->outputs[0]));
    KERNEL_TRY(ctx, scatter_apply(ctx, indices, updates, &ctx->outputs[0]));
    return KERNEL_DONE;
}

#define ARG(op) ((const void *)(uintptr_t)(op))
#define PUT_TYPES (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING))

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "ScatterNd", .constraints = {{"T", PUT_TYPES}}, .compute = scatter_nd,
        .init = scatter_init, .arg = ARG(SCATTER_ADD)},
    {.op = "TensorScatterUpdate", .constraints = {{"Tindices", DTYPES_INDEX}},
        .compute = tensor_scatter, .init = scatter_init, .arg = ARG(SCATTER_PUT)},
    {.op = "TensorScatterAdd", .constraints = {{"T", DTYPES_NUMBER}}, .compute = tensor_scatter,
        .init = scatter_init, .arg = ARG(SCATTER_ADD)},
    {.op = "TensorScatterSub", .constraints = {{"T", DTYPES_NUMBER}}, .compute = tensor_scatter,
        .init = scatter_init, .arg = ARG(SCATTER_SUB)},
    {.op = "TensorScatterMin", .constraints = {{"T", DTYPES_REAL}}, .compute = tensor_scatter,
        .init = scatter_init, .arg = ARG(SCATTER_MIN)},
    {.op = "TensorScatterMax", .constraints = {{"T", DTYPES_REAL}}, .compute = tensor_scatter,
        .init = scatter_init, .arg = ARG(SCATTER_MAX)},
};
// clang-format on

const struct kernel_list array_scatter_kernels = {rows, ARRAY_LEN(rows)};
