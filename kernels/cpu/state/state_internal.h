/* Kernels that reference and resource variables share. */
#ifndef MILLRACE_KERNELS_CPU_STATE_STATE_INTERNAL_H
#define MILLRACE_KERNELS_CPU_STATE_STATE_INTERNAL_H

#include "kernels/kernel.h"
#include "kernels/support/update.h"
#include "kernels/support/variable_input.h"

/* AssignAdd and kin: (variable, value). The row's arg is one of these. */
struct assign_update_row {
    enum update_op op;
    bool is_ref; /* the reference goes on as output 0 */
};
/* add, subtract */
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
