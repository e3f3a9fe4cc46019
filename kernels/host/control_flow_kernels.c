/* Computes the ops that conditionals need and the executor does not run itself: predicates, and
 * choices among references. */
#include "kernels/kernel.h"
#include "kernels/support/device_engine.h"

extern const struct kernel_list control_flow_kernels;

/* Reads a number as a truth value: it is true unless it is zero. The sign bit, in the last byte of
 * a float, does not count. */
static bool number_is_true(const struct tensor *t) {
    const uint8_t *bytes = tensor_cdata(t);
    size_t size = dtype_size((enum dtype)t->dtype);
    bool has_sign = dtype_in((enum dtype)t->dtype, DTYPES_REAL_FLOAT);
    for (size_t i = 0; i < size; i++)
        if (bytes[i] & (has_sign && i + 1 == size ? 0x7f : 0xff))
            return true;
    return false;
}

/* The types whose scalars TensorFlow accepts as a condition, without strings. */
#define CONVERTIBLE                                                                          \
    (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPE_BIT(DT_INT8) | DTYPE_BIT(DT_INT16) | \
     DTYPE_BIT(DT_INT32) | DTYPE_BIT(DT_INT64) | DTYPE_BIT(DT_UINT8) | DTYPE_BIT(DT_BOOL))

/* ToBool: output = a predicate from anything.
 *   input    a scalar: a number is true unless it is 0, a string unless it is empty; any other
 *            shape: true when there are elements
 *   output   bool []
 * Errors   INVALID_ARGUMENT   a scalar of another type: halves, complex numbers, wide unsigned
 *                             integers, objects */
static enum kernel_result to_bool(struct kernel_ctx *ctx) {
    const struct tensor *t = kernel_input(ctx, 0);
    bool is_true = t->n_elements > 0;
    if (t->rank == 0 && t->dtype == DT_STRING)
        is_true = tensor_string(t, 0).len > 0;
    else if (t->rank == 0 && !dtype_in((enum dtype)t->dtype, CONVERTIBLE))
        return kernel_fail(ctx, status_invalid("%s cannot be converted to a boolean",
                                               dtype_name((enum dtype)t->dtype)));
    else if (t->rank == 0)
        is_true = number_is_true(t);
    tensor_init_scalar_bool(&ctx->outputs[0], is_true);
    return KERNEL_DONE;
}

/* RefSelect: output = the reference among `inputs` that index names. An assignment to the output
 * assigns to that variable.
 *   index    int32 []
 *   inputs   N references T of any shapes
 * Errors   INVALID_ARGUMENT   an index that is no scalar, or out of [0, N) */
static enum kernel_result ref_select(struct kernel_ctx *ctx) {
    const struct tensor *index = kernel_input(ctx, 0);
    int n = ctx->instance->n_inputs - 1;
    if (index->rank != 0)
        return kernel_fail(
            ctx, status_invalid("Index must be a scalar, but it has rank %d", index->rank));
    int32_t i = *(const int32_t *)tensor_cdata(index);
    if (i < 0 || i >= n)
        return kernel_fail(ctx,
                           status_invalid("Index must be in the range [0, %d) but got %d", n, i));
    kernel_pass(ctx, i + 1, 0);
    return KERNEL_DONE;
}

/* DeviceIndex: index = the position of this device's type in device_names, or their number when the
 * type is not among them.
 *   index    int32 [] */
static enum kernel_result device_index(struct kernel_ctx *ctx) {
    const struct attr_value *names = NULL;
    int n = 0, at = 0;
    KERNEL_TRY(ctx, node_get_list(ctx->instance->node, "device_names", &names, &n));
    while (at < n && !span_is(names[at].s, "CPU"))
        at++;
    tensor_init_scalar_i32(&ctx->outputs[0], at);
    return KERNEL_DONE;
}

/* FakeParam: output = a value that nobody reads, which stands for an argument of a function. It is
 * zeros, and empty where a size is unknown. */
static enum kernel_result fake_param(struct kernel_ctx *ctx) {
    struct shape declared;
    int64_t dims[SHAPE_MAX_RANK];
    KERNEL_TRY(ctx, node_get_shape(ctx->instance->node, "shape", &declared));
    for (int d = 0; d < declared.rank; d++)
        dims[d] = MAX(declared.dims[d], (int64_t)0);
    struct shape shape = {MAX(declared.rank, 0), dims};
    enum dtype dtype = (enum dtype)ctx->instance->out_types[0];
    KERNEL_TRY(ctx, kernel_alloc_zeroed(ctx, 0, dtype, shape));
    return KERNEL_DONE;
}

/* SyncDevice waits until all work of the device has ended. A CPU has none, because kernels end
 * before they answer. */
static enum kernel_result sync_device(struct kernel_ctx *ctx) { return KERNEL_DONE; }

#define REF_SELECT_TYPES (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_OBJECT)

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "ToBool", .compute = to_bool},
    {.op = "DeviceIndex", .compute = device_index, .flags = KERNEL_STATEFUL},
    {.op = "FakeParam", .compute = fake_param},
    {.op = "SyncDevice", .compute = sync_device, .flags = KERNEL_STATEFUL},
    {.op = "RefSelect", {{"T", REF_SELECT_TYPES}}, ref_select},
};
// clang-format on

const struct kernel_list control_flow_kernels = {rows, ARRAY_LEN(rows)};
