/* Finds the variable of a kernel's input, and holds the checks that kernels of variables share. */
#ifndef MILLRACE_KERNELS_SUPPORT_VARIABLE_INPUT_H
#define MILLRACE_KERNELS_SUPPORT_VARIABLE_INPUT_H

#include "kernels/host.h"
#include "kernels/kernel.h"
#include "kernels/variable.h"

/* Returns the variable of a reference or resource input. The caller unrefs *ret. Errors: what the
 * lookup of the resource says. */
struct status *variable_of_input(struct kernel_ctx *ctx, int input, struct variable **ret) MUST_USE;
/* Returns the handle of a resource input; *ret is borrowed from the input. Errors: INVALID_ARGUMENT
 * when the input holds no handle. */
struct status *handle_of_input(const struct kernel_ctx *ctx, int input,
                               const struct resource_handle **ret) MUST_USE;
static inline void variable_unref(struct variable *variable) {
    if (variable)
        object_unref(&variable->object);
}
/* Checks that the variable has a value, of this dtype. The caller holds the variable's lock.
 * Errors: FAILED_PRECONDITION, INVALID_ARGUMENT. */
struct status *variable_check(const struct variable *variable, bool is_ref,
                              enum dtype dtype) MUST_USE;

/* Returns whose memory holds the values of the kernel's variables: the host's for text, handles and
 * lists, whatever the device. */
struct allocator *variable_allocator(const struct kernel_ctx *ctx, enum dtype dtype);

/* Makes the value's elements writable, by copying them when somebody else holds them; on a device
 * as a part of the step's work. The caller holds the lock, before and after. Errors: as
 * variable_read, and RESOURCE_EXHAUSTED. */
struct status *variable_make_writable(struct kernel_ctx *ctx, struct variable *variable) MUST_USE;

/* Moves the value of an input out, for a variable to keep. *ret must hold nothing. The value shares
 * no buffer that is much larger than the value, so that a small slice does not keep a large buffer
 * alive. Errors: RESOURCE_EXHAUSTED. */
struct status *variable_keep(struct kernel_ctx *ctx, int input, struct tensor *ret) MUST_USE;

/* Checks that every index is in [0, limit). Errors: INVALID_ARGUMENT, which names the first bad
 * index. */
struct status *indices_check(const struct tensor *indices, int64_t limit) MUST_USE;

#endif
