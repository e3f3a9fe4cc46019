/* The functions of the rows of ops that select, count and order elements
 * (kernels/cuda/rows/select.inc). */
#ifndef MILLRACE_KERNELS_CUDA_OPS_SELECT_H
#define MILLRACE_KERNELS_CUDA_OPS_SELECT_H

#include "kernels/cuda/ops/order.h"
#include "kernels/kernel.h"

kernel_fn select_where, select_unique, select_partition; /* may answer KERNEL_PENDING */
struct status *top_k_init(struct kernel_init *init);
kernel_fn select_top_k;

/* Groups of equal sorted keys: see struct groups_args. `marks` may be NULL; *total becomes the
 * number of groups. */
struct select_bounds {
    uint64_t distinct_above, n_valid;
};
struct status *select_groups(struct kernel_ctx *ctx, const struct order_sort *sort,
                             const struct select_bounds *bounds, int64_t *heads, int64_t *starts,
                             int64_t *marks, int64_t *total) MUST_USE;

#endif
