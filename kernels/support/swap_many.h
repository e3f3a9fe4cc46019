/* Moves several tensors between a device's memory and the host's, one after another, for a kernel
 * that ends when all are there (swap.h has single ones): the tensors in a variant, which may be an
 * optional or a list, and the outputs of one node. */
#ifndef MILLRACE_KERNELS_SUPPORT_SWAP_MANY_H
#define MILLRACE_KERNELS_SUPPORT_SWAP_MANY_H

#include "kernels/support/swap.h"
#include "kernels/support/variant_copy.h"

/* The first member of a record that the kernel has allocated. */
struct swap_many {
    /* Called once: frees the record, and returns `st_take`, or another failure. Set by the kernel,
     * as are the places, which are freed afterwards. */
    struct status *(*finish)(struct swap_many *many, struct status *st_take);
    struct variant_places places; /* the tensors, each replaced by its copy */
    bool to_host;
    /* the rest is swap_many_start's */
    struct kernel_ctx *ctx;
    int64_t next; /* of the places */
    struct device_copy copy;
    struct tensor made;
    struct pool_task task;
};

/* Starts the copies. */
enum kernel_result swap_many_start(struct kernel_ctx *ctx, struct swap_many *many);

/* Is more than 70 % of the limit of the node's device in use? Then makes *ret, which holds nothing,
 * a copy of the variant `value`, and *ret_places those tensors in it that are to leave the device:
 * those for which swap_is_wanted. Without such a tensor both are empty. Errors: those of
 * variant_copy_begin. */
struct status *swap_variant_begin(const struct kernel_ctx *ctx, const struct tensor *value,
                                  struct tensor *ret, struct variant_places *ret_places) MUST_USE;

/* Brings back the outputs that are in the host's memory, for a kernel that has set them all. Its
 * row for the device has the flag KERNEL_ASYNC. */
enum kernel_result swap_in_outputs(struct kernel_ctx *ctx);

#endif
