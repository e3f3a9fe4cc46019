/* Copies tensors into one, each behind the one before, as stacks and concatenations of TensorArrays
 * and TensorLists do. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_JOIN_PARTS_H
#define MILLRACE_KERNELS_HOST_RESOURCES_JOIN_PARTS_H

#include "kernels/kernel.h"

struct join_parts {
    enum dtype dtype;
    const struct tensor *parts;
    const struct tensor *indices; /* part i is parts[indices[i]]; NULL: parts[i] */
    int64_t part_len;             /* elements of each part, unless offsets are given */
    /* where each part begins, and where the last one ends; NULL: parts are of equal length */
    const int64_t *offsets;
};

/* Fills output 0, which has been allocated, with `n` parts. A part without a value counts as zeros.
 * Large outputs are filled on the pool. Errors: of a device's copies. */
struct status *join_parts(struct kernel_ctx *ctx, const struct join_parts *join,
                          int64_t n) MUST_USE;

#endif
