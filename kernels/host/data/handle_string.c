/* Computes the strings of handles: the fields 1 to 3 and 5 of a ResourceHandleProto. */
#include "kernels/host/data/handle_string.h"

#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "kernels/support/named_resource.h"
#include "kernels/support/variable_input.h"

enum kernel_result handle_to_string(struct kernel_ctx *ctx, const struct object_type *type) {
    const struct resource_handle *handle = NULL;
    struct object *object = NULL;
    struct str text = STR_INIT;
    KERNEL_TRY(ctx, named_resource_of(ctx, 0, type, &object)); /* it must be one */
    object_unref(object);
    KERNEL_TRY(ctx, handle_of_input(ctx, 0, &handle));
    KERNEL_TRY(ctx,
               tensor_new(ctx->instance->allocator, DT_STRING, SHAPE_SCALAR, &ctx->outputs[0]));
    proto_add_bytes(&text, 1, handle->device, strlen(handle->device));
    proto_add_bytes(&text, 2, handle->container, strlen(handle->container));
    proto_add_bytes(&text, 3, handle->name, strlen(handle->name));
    proto_add_bytes(&text, 5, handle->type_name, strlen(handle->type_name));
    tensor_set_string(&ctx->outputs[0], 0, str_text(&text), text.len);
    str_fini(&text);
    return KERNEL_DONE;
}

/* Texts of the fields 1 to 3; freed by the caller. False when the bytes are no such message. */
static bool read_handle(struct span bytes, char *texts[3]) {
    struct proto_field field;
    int more;
    while ((more = proto_next(&bytes, &field)) > 0) {
        if (field.number < 1 || field.number > 3)
            continue;
        if (field.wire_type != 2 || memchr(field.bytes.data, 0, field.bytes.len))
            return false;
        free(texts[field.number - 1]);
        texts[field.number - 1] = xstrndup(field.bytes.data, field.bytes.len);
    }
    return more == 0 && texts[0] && texts[1] && texts[2];
}

/* Finds the resource. *ret_resource and *ret_handle get a reference each. */
static struct status *handle_of_string(struct kernel_ctx *ctx, const struct object_type *type,
                                       struct object **ret_resource,
                                       struct resource_handle **ret_handle) {
    const struct tensor *text = kernel_input(ctx, 0);
    char *texts[3] = {NULL};
    struct status *st = NULL;
    if (text->rank != 0)
        return status_invalid("string_handle must be a scalar");
    if (!read_handle(tensor_string(text, 0), texts))
        TRY_OUT(status_invalid("Could not parse string_handle as a valid ResourceHandle"));
    if (strcmp(texts[0], ctx->instance->device) != 0)
        TRY_OUT(status_invalid(
            "Attempted create an iterator on device \"%s\" from handle defined on device \"%s\"",
            ctx->instance->device, texts[0]));
    TRY_OUT(ctx->host->resource_lookup(ctx, texts[1], texts[2], type, ret_resource));
    *ret_handle = ctx->host->handle_make(ctx, texts[1], texts[2], type, DT_INVALID);
out:
    for (int i = 0; i < 3; i++)
        free(texts[i]);
    return st;
}

enum kernel_result handle_from_string(struct kernel_ctx *ctx, const struct object_type *type,
                                      handle_check_fn *check) {
    struct resource_handle *handle = NULL;
    struct object *object = NULL;
    KERNEL_TRY(ctx, handle_of_string(ctx, type, &object, &handle));
    struct status *st = check(ctx, object);
    object_unref(object);
    if (st) {
        object_unref(&handle->object);
        return kernel_fail(ctx, st);
    }
    tensor_init_scalar_object(&ctx->outputs[0], DT_RESOURCE, &handle->object);
    return KERNEL_DONE;
}
