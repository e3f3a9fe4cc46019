/* Kernels that reference variables and resource variables share. */
#ifndef MILLRACE_KERNELS_CPU_STATE_STATE_INTERNAL_H
#define MILLRACE_KERNELS_CPU_STATE_STATE_INTERNAL_H

#include "kernels/kernel.h"
#include "kernels/support/update.h"
#include "kernels/support/variable_input.h"

/* The row's arg for AssignAdd, AssignSub and their resource forms, whose inputs are (variable,
 * value). */
struct assign_update_row {
    enum update_op op;
    bool is_ref; /* output 0 is the variable's reference */
};
/* [0] adds, [1] subtracts */
extern const struct assign_update_row assign_update_ref[2], assign_update_resource[2];
kernel_fn assign_update;

/* Changes a variable, whose lock the caller holds, as the kernel's inputs and its row's arg say. */
typedef struct status *variable_change_fn(struct kernel_ctx *ctx, struct variable *variable,
                                          const void *arg);
/* Calls `change` for the variable of input 0, under its lock. With is_ref it then passes the
 * reference on to output 0. Returns what the kernel must return. */
enum kernel_result variable_change(struct kernel_ctx *ctx, variable_change_fn *change, bool is_ref);

/* CountUpTo and ResourceCountUpTo. */
struct count_state {
    int64_t limit;
    enum dtype dtype;
};
struct status *count_init(struct kernel_init *init) MUST_USE;
kernel_fn count_up_to;

#endif
