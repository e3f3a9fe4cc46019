/* Finds the variable of an input; see variable_input.h. */
#include "kernels/support/variable_input.h"

#include "kernels/support/device_engine.h"

struct status *handle_of_input(const struct kernel_ctx *ctx, int input,
                               const struct resource_handle **ret) {
    const struct tensor *in = &ctx->inputs[input];
    struct object *object = in->dtype == DT_RESOURCE && in->n_elements > 0
                                ? *(struct object *const *)tensor_cdata(in)
                                : NULL;
    if (unlikely(!object || object->type != &resource_handle_type))
        return status_invalid("Input %d of %s holds no resource handle", input,
                              ctx->instance->node->name);
    *ret = (const struct resource_handle *)object;
    return NULL;
}

struct status *variable_of_input(struct kernel_ctx *ctx, int input, struct variable **ret) {
    const struct tensor *in = &ctx->inputs[input];
    if (in->storage == TENSOR_REF) {
        if (unlikely(!in->ref || in->ref->type != &variable_type))
            return status_invalid("Input %d of %s refers to no variable", input,
                                  ctx->instance->node->name);
        *ret = variable_of(object_ref(in->ref));
        return NULL;
    }
    const struct resource_handle *handle = NULL;
    TRY(handle_of_input(ctx, input, &handle));
    struct object *found = NULL;
    TRY(ctx->host->handle_lookup(ctx, handle, &variable_type, &found));
    *ret = variable_of(found);
    return NULL;
}

struct status *variable_check(const struct variable *variable, bool is_ref, enum dtype dtype) {
    if (unlikely(!tensor_has_value(&variable->value))) {
        if (is_ref)
            return status_failed_precondition("Attempting to use uninitialized value %s",
                                              variable->name);
        return status_failed_precondition(
            "Error while reading resource variable %s from Container: localhost. This could mean "
            "that the "
            "variable was uninitialized. Attempting to use uninitialized value %s",
            variable->name, variable->name);
    }
    if (unlikely(variable->value.dtype != dtype))
        return status_invalid("DType of variable handle and value does not match. Trying to use "
                              "variable %s with wrong dtype. Expected %s "
                              "got %s",
                              variable->name, dtype_name(dtype),
                              dtype_name((enum dtype)variable->value.dtype));
    return NULL;
}

enum { KEEP_SLACK_BYTES = 4096 };

struct allocator *variable_allocator(const struct kernel_ctx *ctx, enum dtype dtype) {
    bool is_host = kernel_is_for_device(ctx) && dtype_is_object(dtype);
    return is_host ? allocator_host() : ctx->instance->allocator;
}

static struct status *clone_value(struct kernel_ctx *ctx, const struct tensor *from,
                                  struct tensor *ret) {
    return tensor_is_on_device(from)
               ? kernel_clone(ctx, from, ret)
               : tensor_clone(variable_allocator(ctx, (enum dtype)from->dtype), from, ret);
}

struct status *variable_make_writable(struct kernel_ctx *ctx, struct variable *variable) {
    struct tensor *value = &variable->value, copy = TENSOR_INIT;
    TRY(variable_check(variable, true, (enum dtype)value->dtype));
    if (tensor_is_sole(value))
        return NULL;
    TRY(clone_value(ctx, value, &copy));
    tensor_clear(value);
    tensor_move(value, &copy);
    return NULL;
}

struct status *variable_keep(struct kernel_ctx *ctx, int input, struct tensor *ret) {
    struct tensor *in = &ctx->inputs[input];
    struct allocator *allocator = variable_allocator(ctx, (enum dtype)in->dtype);
    if (in->storage == TENSOR_BUFFER &&
        (in->buffer->size_bytes > 2 * tensor_size_bytes(in) + KEEP_SLACK_BYTES ||
         in->buffer->flags & BUFFER_IS_READ_ONLY || !allocator_likes(allocator, in->buffer)))
        return clone_value(ctx, in, ret);
    tensor_move(ret, in);
    return NULL;
}

struct status *indices_check(const struct tensor *indices, int64_t limit) {
    int64_t n = indices->n_elements;
    for (int64_t i = 0; i < n; i++) {
        int64_t index = tensor_index_at(indices, i);
        if (unlikely(index < 0 || index >= limit)) {
            return status_invalid("indices%s = %lld is not in [0, %lld)",
                                  SHAPE_INDEX_TEXT(tensor_shape(indices), i), (long long)index,
                                  (long long)limit);
        }
    }
    return NULL;
}
