/* Makes values and passes them on: Const, Placeholder, Identity and its variants, Fill, and shapes
 * as values. */
#include <stdlib.h>

#include "common/tensor/element.h"
#include "kernels/cpu/array/array_internal.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/dims.h"

static enum kernel_result no_op(struct kernel_ctx *ctx) {
    (void)ctx;
    return KERNEL_DONE;
}

/* ---- Const: the state is the tensor ---- */

static struct status *const_init(struct kernel_init *init) {
    const struct tensor *value;
    enum dtype dtype;
    TRY(node_get_tensor(init->node, "value", &value));
    TRY(node_get_type(init->node, "dtype", &dtype));
    if (value->dtype != dtype)
        return status_invalid("Inconsistent values for attr 'dtype' %s vs. %s of the value",
                              dtype_name(dtype), dtype_name(tensor_dtype(value)));
    struct tensor *state = aligned_alloc(_Alignof(struct tensor), sizeof(*state));
    if (!state)
        out_of_memory(sizeof(*state));
    tensor_copy(state, value);
    init->state = state;
    return NULL;
}

static void const_fini(void *state) {
    tensor_clear(state);
    free(state);
}

static enum kernel_result const_cpu(struct kernel_ctx *ctx) {
    tensor_copy(&ctx->outputs[0], ctx->instance->state);
    return KERNEL_DONE;
}

/* ---- Placeholder ---- */

static enum kernel_result placeholder(struct kernel_ctx *ctx) {
    const struct node *node = ctx->instance->node;
    struct shape shape;
    KERNEL_TRY(ctx, node_get_shape(node, "shape", &shape));
    const char *dtype = dtype_name(kernel_out_dtype(ctx, 0));
    if (shape.rank > 0)
        return kernel_fail(
            ctx, status_invalid(
                     "You must feed a value for placeholder tensor '%s' with dtype %s and shape %s",
                     node->name, dtype, SHAPE_TEXT(shape)));
    return kernel_fail(
        ctx, status_invalid("You must feed a value for placeholder tensor '%s' with dtype %s",
                            node->name, dtype));
}

/* ---- identities ---- */

static enum kernel_result identity_n(struct kernel_ctx *ctx) {
    for (int i = 0; i < ctx->instance->n_outputs; i++)
        kernel_pass(ctx, i, i);
    return KERNEL_DONE;
}

static enum kernel_result deep_copy(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, kernel_clone(ctx, kernel_input(ctx, 0), &ctx->outputs[0]));
    return KERNEL_DONE;
}

/* EnsureShape keeps the shape as its state. The sizes belong to the node. */
static struct status *ensure_shape_init(struct kernel_init *init) {
    struct shape shape;
    TRY(node_get_shape(init->node, "shape", &shape));
    init->state = xmalloc(sizeof(shape));
    *(struct shape *)init->state = shape;
    return NULL;
}

static enum kernel_result ensure_shape(struct kernel_ctx *ctx) {
    const struct node *node = ctx->instance->node;
    struct shape expected = *(const struct shape *)ctx->instance->state;
    const struct tensor *in = kernel_input(ctx, 0);
    if (!shape_is_compatible(tensor_shape(in), expected))
        return kernel_fail(
            ctx, status_invalid("Shape of tensor %s %s is not compatible with expected shape %s.",
                                node->n_data ? node->inputs[0].src->name : node->name,
                                TENSOR_SHAPE_TEXT(in), SHAPE_TEXT(expected)));
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

/* Bitcast: keeps the bytes. When the element sizes differ, a last dimension of their ratio is added
 * or removed. */
static enum kernel_result bitcast(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    enum dtype to = kernel_out_dtype(ctx, 0);
    int64_t in_size = (int64_t)dtype_size(tensor_dtype(in)), out_size = (int64_t)dtype_size(to);
    struct dims dims;
    dims_set(&dims, tensor_shape(in));
    if (in_size < out_size) {
        if (dims.rank == 0 || dims.at[dims.rank - 1] != out_size / in_size)
            return kernel_fail(ctx, status_invalid("Cannot bitcast from %s to %s: shape %s",
                                                   dtype_name(tensor_dtype(in)), dtype_name(to),
                                                   TENSOR_SHAPE_TEXT(in)));
        dims.rank--;
    } else if (in_size > out_size) {
        if (!dims_add(&dims, in_size / out_size))
            return kernel_fail(
                ctx, status_invalid("Bitcast of a tensor of rank %d would pass the limit of %d",
                                    dims.rank, SHAPE_MAX_RANK));
    } else {
        kernel_pass(ctx, 0, 0);
        tensor_set_dtype(&ctx->outputs[0], to);
        return KERNEL_DONE;
    }
    /* The bytes are copied, because a view must stay aligned for the wider type. */
    struct tensor *out = &ctx->outputs[0];
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, to, dims_shape(&dims)));
    struct strided s;
    strided_init(&s);
    strided_add(&s, (int64_t)tensor_size_bytes(in), 1, 1);
    KERNEL_TRY(ctx, move_run(ctx, &s, DT_UINT8, tensor_data(out), tensor_cdata(in)));
    return KERNEL_DONE;
}

/* ---- shapes as values ---- */

static struct status *set_shape_value(struct kernel_ctx *ctx, int output, const struct tensor *in) {
    enum dtype dtype = kernel_out_dtype(ctx, output);
    int64_t rank = in->rank;
    const int64_t *dims = tensor_dims(in);
    TRY(kernel_alloc(ctx, output, dtype, (struct shape){1, &rank}));
    void *to = tensor_data(&ctx->outputs[output]);
    if (dtype == DT_INT64) {
        if (rank > 0)
            memcpy(to, dims, (size_t)rank * sizeof(*dims));
        return NULL;
    }
    for (int i = 0; i < rank; i++) {
        if (dims[i] > INT32_MAX)
            return status_invalid("Shape output type is 32-bit but dim %d is %lld", i,
                                  (long long)dims[i]);
        ((int32_t *)to)[i] = (int32_t)dims[i];
    }
    return NULL;
}

static enum kernel_result shape_n(struct kernel_ctx *ctx) {
    for (int i = 0; i < ctx->instance->n_outputs; i++)
        KERNEL_TRY(ctx, set_shape_value(ctx, i, kernel_input(ctx, i)));
    return KERNEL_DONE;
}

static enum kernel_result rank(struct kernel_ctx *ctx) {
    tensor_init_scalar_i32(&ctx->outputs[0], kernel_input(ctx, 0)->rank);
    return KERNEL_DONE;
}

static enum kernel_result size(struct kernel_ctx *ctx) {
    int64_t n = tensor_n_elements(kernel_input(ctx, 0));
    if (kernel_out_dtype(ctx, 0) == DT_INT64) {
        tensor_init_scalar_i64(&ctx->outputs[0], n);
        return KERNEL_DONE;
    }
    if (n > INT32_MAX)
        return kernel_fail(
            ctx, status_invalid(
                     "Number of elements was larger than representable by 32-bit output type: %lld",
                     (long long)n));
    tensor_init_scalar_i32(&ctx->outputs[0], (int32_t)n);
    return KERNEL_DONE;
}

/* ---- filled tensors ---- */

static enum kernel_result fill(struct kernel_ctx *ctx) {
    const struct tensor *sizes = kernel_input(ctx, 0), *value = kernel_input(ctx, 1);
    struct dims dims;
    KERNEL_TRY(ctx, dims_of_fill(sizes, value, &dims));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(value), dims_shape(&dims)));
    strided_fill(tensor_dtype(value), tensor_data(&ctx->outputs[0]), tensor_cdata(value),
                 tensor_n_elements(&ctx->outputs[0]), ctx->pool);
    return KERNEL_DONE;
}

static enum kernel_result empty(struct kernel_ctx *ctx) {
    const struct tensor *sizes = kernel_input(ctx, 0);
    if (sizes->rank != 1)
        return kernel_fail(ctx, status_invalid("shape must be a vector of int32, got shape %s",
                                               TENSOR_SHAPE_TEXT(sizes)));
    struct dims dims;
    KERNEL_TRY(ctx, dims_read(sizes, "shape", &dims));
    /* The memory is always zeroed, because undefined elements would let a client read another's
     * memory. */
    KERNEL_TRY(ctx, kernel_alloc_zeroed(ctx, 0, kernel_out_dtype(ctx, 0), dims_shape(&dims)));
    return KERNEL_DONE;
}

static enum kernel_result zeros_like(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, tensor_new_zeroed(ctx->instance->allocator, tensor_dtype(in), tensor_shape(in),
                                      &ctx->outputs[0]));
    return KERNEL_DONE;
}

static enum kernel_result ones_like(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    enum dtype dtype = tensor_dtype(in);
    char one[16] __attribute__((aligned(16)));
    element_set_one(dtype, one);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, tensor_shape(in)));
    strided_fill(dtype, tensor_data(&ctx->outputs[0]), one, tensor_n_elements(&ctx->outputs[0]),
                 ctx->pool);
    return KERNEL_DONE;
}

#define ZERO_TYPES                                                                  \
    (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING) | DTYPES_QUANTIZED | \
     DTYPES_FLOAT8 | DTYPES_TINY)

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "NoOp", .compute = no_op},
    {.op = "Const", .compute = const_cpu, .init = const_init, .fini = const_fini},
    {.op = "Placeholder", .compute = placeholder},
    {.op = "PlaceholderV2", .compute = placeholder},
    {.op = "PlaceholderWithDefault", .compute = kernel_identity},
    {.op = "Identity", .compute = kernel_identity},
    {.op = "RefIdentity", .compute = kernel_identity},
    {.op = "IdentityN", .compute = identity_n},
    {.op = "StopGradient", .compute = kernel_identity},
    {.op = "PreventGradient", .compute = kernel_identity},
    {.op = "Snapshot", .compute = kernel_identity},
    {.op = "DebugGradientIdentity", .compute = kernel_identity},
    {.op = "DebugGradientRefIdentity", .compute = kernel_identity},
    {.op = "GuaranteeConst", .compute = kernel_identity},
    {.op = "DeepCopy", .compute = deep_copy},
    {.op = "EnsureShape", .compute = ensure_shape, .init = ensure_shape_init},
    {.op = "Bitcast", .compute = bitcast},
    {.op = "Shape", .compute = shape_n},
    {.op = "ShapeN", .compute = shape_n},
    {.op = "Rank", .compute = rank},
    {.op = "Size", .compute = size},
    {.op = "Fill", .compute = fill},
    {.op = "Empty", .compute = empty},
    {.op = "ZerosLike", .constraints = {{"T", ZERO_TYPES}}, .compute = zeros_like},
    {.op = "OnesLike", .constraints = {{"T", DTYPES_NUMBER | DTYPE_BIT(DT_BOOL)}},
        .compute = ones_like},
};
// clang-format on

const struct kernel_list array_kernels = {rows, ARRAY_LEN(rows)};
