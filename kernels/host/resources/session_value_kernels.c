/* Computes the ops behind session.run's handles: tensors that stay from step to step in the task
 * that made them. Text that a client may hold names each of them. They are freed when they are
 * deleted, or with their session. */
#include <inttypes.h>

#include "common/base/str.h"
#include "kernels/host.h"
#include "kernels/support/device_engine.h"

extern const struct kernel_list session_value_kernels;

static struct status *no_session(struct kernel_ctx *ctx) {
    return status_failed_precondition("%s called on null session state",
                                      ctx->instance->node->op->name);
}

static struct status *handle_of(struct kernel_ctx *ctx, struct span *ret) {
    const struct tensor *handle = kernel_input(ctx, 0);
    if (handle->n_elements != 1)
        return status_invalid("%s: a handle is a scalar, and this has %lld elements",
                              ctx->instance->node->op->name, (long long)handle->n_elements);
    *ret = tensor_string(handle, 0);
    return NULL;
}

/* GetSessionHandle: handle = the name under which the session keeps value from now on.
 *   value    T, any shape
 *   handle   string []: "NODE;NUMBER;DEVICE"; clients read the device from it
 * Errors   FAILED_PRECONDITION   inside of a function */
static enum kernel_result get_session_handle(struct kernel_ctx *ctx) {
    if (!ctx->host->session_value_put)
        return kernel_fail(ctx, no_session(ctx));
    struct str name = STR_INIT;
    str_addf(&name, "%s;%" PRIu64 ";%s", ctx->instance->node->name, ctx->host->unique_id(),
             ctx->instance->device);
    struct status *st = ctx->host->session_value_put(ctx, str_text(&name), kernel_input(ctx, 0));
    if (!st)
        st = kernel_alloc(ctx, 0, DT_STRING, SHAPE_SCALAR);
    if (!st)
        tensor_set_string(&ctx->outputs[0], 0, str_text(&name), name.len);
    str_fini(&name);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* Is a kept tensor where this node's device cannot use it? The host never uses a GPU's memory, a
 * GPU does not take a value in host memory, which may be inline, nor one of another GPU, whose
 * streams it does not wait for. */
static bool is_elsewhere(const struct kernel_ctx *ctx, const struct tensor *value) {
    bool is_on_device = tensor_is_on_device(value);
    if (value->n_elements == 0 || (!is_on_device && !kernel_is_for_device(ctx)))
        return false;
    return !is_on_device || value->buffer->allocator != ctx->instance->allocator;
}

/* GetSessionTensor: value = the tensor that a handle names.
 *   handle   string, one element
 *   value    dtype, any shape: the kept memory itself
 * Errors   INVALID_ARGUMENT      the session keeps no such tensor in this task; a tensor of another
 *                                type, or in the memory of another kind of device
 *          FAILED_PRECONDITION   inside of a function */
static enum kernel_result get_session_tensor(struct kernel_ctx *ctx) {
    struct span handle;
    if (!ctx->host->session_value_get)
        return kernel_fail(ctx, no_session(ctx));
    KERNEL_TRY(ctx, handle_of(ctx, &handle));
    KERNEL_TRY(ctx, ctx->host->session_value_get(ctx, handle, &ctx->outputs[0]));
    enum dtype is = (enum dtype)ctx->outputs[0].dtype,
               wanted = (enum dtype)ctx->instance->out_types[0];
    if (is_elsewhere(ctx, &ctx->outputs[0])) {
        tensor_clear(&ctx->outputs[0]);
        return kernel_fail(
            ctx,
            status_invalid("The tensor with handle '%.*s' is not in the memory of %s",
                           (int)MIN(handle.len, (size_t)200), handle.data, ctx->instance->device));
    }
    if (is != wanted) {
        tensor_clear(&ctx->outputs[0]);
        return kernel_fail(ctx,
                           status_invalid("The tensor with handle '%.*s' is of type %s, not %s",
                                          (int)MIN(handle.len, (size_t)200), handle.data,
                                          dtype_name(is), dtype_name(wanted)));
    }
    return KERNEL_DONE;
}

/* DeleteSessionTensor: releases the tensor that a handle names.
 *   handle   string, one element
 * Errors   as GetSessionTensor */
static enum kernel_result delete_session_tensor(struct kernel_ctx *ctx) {
    struct span handle;
    if (!ctx->host->session_value_delete)
        return kernel_fail(ctx, no_session(ctx));
    KERNEL_TRY(ctx, handle_of(ctx, &handle));
    KERNEL_TRY(ctx, ctx->host->session_value_delete(ctx, handle));
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "GetSessionHandle", {{"T", DTYPES_ALL}}, get_session_handle, .flags = KERNEL_STATEFUL},
    {.op = "GetSessionTensor", {{"dtype", DTYPES_ALL}}, get_session_tensor,
     .flags = KERNEL_STATEFUL},
    {.op = "DeleteSessionTensor", .compute = delete_session_tensor, .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list session_value_kernels = {rows, ARRAY_LEN(rows)};
