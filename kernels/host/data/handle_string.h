/* Writes handles of iterators as strings, and finds the resources that such strings name. A string
 * is a serialized ResourceHandleProto. */
#ifndef MILLRACE_KERNELS_HOST_DATA_HANDLE_STRING_H
#define MILLRACE_KERNELS_HOST_DATA_HANDLE_STRING_H

#include "kernels/host.h"

/* Sets output 0 to the handle in input 0 as a string. The handle must be one of a resource of that
 * type. */
enum kernel_result handle_to_string(struct kernel_ctx *ctx, const struct object_type *type);
/* Checks the resource that a string names. */
typedef struct status *handle_check_fn(struct kernel_ctx *ctx, struct object *resource);
/* Sets output 0 to the handle that the scalar string of input 0 holds, once `check` has accepted
 * the handle's resource. Errors: INVALID_ARGUMENT for a malformed string or another device;
 * NOT_FOUND; those of `check`. */
enum kernel_result handle_from_string(struct kernel_ctx *ctx, const struct object_type *type,
                                      handle_check_fn *check);

#endif
