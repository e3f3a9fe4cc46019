/* From a kernel's input to its variable, and the checks that variables' kernels share. */
#ifndef MILLRACE_KERNELS_SUPPORT_VARIABLE_INPUT_H
#define MILLRACE_KERNELS_SUPPORT_VARIABLE_INPUT_H

#include "kernels/host.h"
#include "kernels/kernel.h"
#include "kernels/variable.h"

/* The variable of a reference or resource input, with a reference of its own. Errors: what the
 * lookup says. */
struct status *variable_of_input(struct kernel_ctx *ctx, int input, struct variable **ret) MUST_USE;
/* The handle of a resource input. Errors: INVALID_ARGUMENT when it holds none. */
struct status *handle_of_input(const struct kernel_ctx *ctx, int input,
                               const struct resource_handle **ret) MUST_USE;
static inline void variable_unref(struct variable *variable) {
    if (variable)
        object_unref(&variable->object);
}
/* With the lock held: there is a value, of this dtype. Errors: FAILED_PRECONDITION,
 * INVALID_ARGUMENT. */
struct status *variable_check(const struct variable *variable, bool is_ref,
                              enum dtype dtype) MUST_USE;

/* Moves an input's value out to be kept for long: *ret, which must hold nothing, shares no
 * buffer much larger than itself. Errors: RESOURCE_EXHAUSTED. */
struct status *variable_keep(struct kernel_ctx *ctx, int input, struct tensor *ret) MUST_USE;

/* Every index is in [0, limit). Errors: INVALID_ARGUMENT that names the first one that is not. */
struct status *indices_check(const struct tensor *indices, int64_t limit) MUST_USE;

#endif
