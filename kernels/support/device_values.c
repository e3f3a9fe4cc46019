/* Makes values in a device's memory by the engine of the device, so that what is enqueued for them
 * is a part of what a step repeats (device_engine.h). */
#include "kernels/support/device_engine.h"

struct status *kernel_new_on_device(struct kernel_ctx *ctx, enum dtype dtype, struct shape shape,
                                    bool is_zeroed, struct tensor *ret) {
    struct allocator *allocator = ctx->instance->allocator;
    if (unlikely(dtype_is_object(dtype))) /* lists and text are the host's */
        return tensor_new(allocator_host(), dtype, shape, ret);
    TRY(tensor_new_on_device(allocator, dtype, shape, ret));
    if (allocator->device_memory->set_holder && ret->storage == TENSOR_BUFFER)
        allocator->device_memory->set_holder(ret->buffer, ctx->instance->node->name);
    if (!is_zeroed || ret->n_elements == 0)
        return NULL;
    struct status *st = ctx->instance->engine->zero(ctx, tensor_data(ret), tensor_size_bytes(ret));
    if (st)
        tensor_clear(ret);
    return st;
}

struct status *kernel_clone(struct kernel_ctx *ctx, const struct tensor *from, struct tensor *ret) {
    if (likely(!kernel_is_for_device(ctx)) || !tensor_is_on_device(from))
        return tensor_clone(ctx->instance->allocator, from, ret);
    TRY(kernel_new_on_device(ctx, (enum dtype)from->dtype, tensor_shape(from), false, ret));
    if (ret->n_elements == 0)
        return NULL;
    struct status *st = ctx->instance->engine->copy(ctx, tensor_data(ret), tensor_cdata(from),
                                                    tensor_size_bytes(from));
    if (st)
        tensor_clear(ret);
    return st;
}
