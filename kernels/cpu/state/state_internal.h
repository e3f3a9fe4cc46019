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

/* CountUpTo and ResourceCountUpTo. */
struct count_state {
    int64_t limit;
    enum dtype dtype;
};
struct status *count_init(struct kernel_init *init) MUST_USE;
kernel_fn count_up_to;

#endif
