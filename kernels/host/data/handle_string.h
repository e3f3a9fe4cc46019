/* Writes handles of iterators as strings, and finds the resources that such strings name. A string
 * is a serialized ResourceHandleProto. */
#ifndef MILLRACE_KERNELS_HOST_DATA_HANDLE_STRING_H
#define MILLRACE_KERNELS_HOST_DATA_HANDLE_STRING_H

#include "kernels/host.h"

/* Sets output 0 to the handle in input 0 as a string. The handle must be one of a resource of that
 * type. */
enum kernel_result handle_to_string(struct kernel_ctx *ctx, const struct object_type *type);
/* Finds the resource of the handle in the scalar string of input 0. *ret_resource and *ret_handle
 * get a reference each. Errors: INVALID_ARGUMENT for a malformed string or another device;
 * NOT_FOUND. */
struct status *handle_of_string(struct kernel_ctx *ctx, const struct object_type *type,
                                struct object **ret_resource,
                                struct resource_handle **ret_handle) MUST_USE;

#endif
