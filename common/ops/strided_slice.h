/* Resolves a strided slice: turns the begin, end and stride values and the masks of StridedSlice
 * and similar ops into one entry for each dimension of the input. Shape functions and kernels share
 * it. Any thread. */
#ifndef MILLRACE_COMMON_OPS_STRIDED_SLICE_H
#define MILLRACE_COMMON_OPS_STRIDED_SLICE_H

#include "common/graph/graph.h"

/* Bit i of a mask is for entry i of begin, end and strides. */
struct strided_slice_masks {
    /* the value is ignored: the slice starts at the first, or ends at the last, element */
    uint64_t begin, end;
    uint64_t ellipsis;    /* covers all dimensions that no other entry covers */
    uint64_t new_axis;    /* adds a dimension of size 1 to the output */
    uint64_t shrink_axis; /* takes one index and drops its dimension */
};
struct status *strided_slice_masks_read(const struct node *node,
                                        struct strided_slice_masks *ret) MUST_USE;

/* For each dimension of the input: the first index, the step, and the number of indices, -1 where
 * it is unknown. The struct has about 10 KiB and may be on the stack. */
enum { SLICE_NEW_AXIS = -1 };
struct strided_slice {
    int rank;
    int64_t begin[SHAPE_MAX_RANK], stride[SHAPE_MAX_RANK], size[SHAPE_MAX_RANK];
    int out_rank;
    /* sizes of the output, without shrunk dimensions and with new ones */
    int64_t out[SHAPE_MAX_RANK];
    /* for each output dimension: that of the input, or SLICE_NEW_AXIS */
    int source[SHAPE_MAX_RANK];
};
/* Resolves the slice. `begin` and `end` may be NULL during inference: sizes that depend on them are
 * -1 then. `in` must have a known rank. Errors: INVALID_ARGUMENT with TensorFlow's words. */
struct status *strided_slice_resolve(const struct strided_slice_masks *masks, struct shape in,
                                     const struct tensor *begin, const struct tensor *end,
                                     const struct tensor *strides,
                                     struct strided_slice *ret) MUST_USE;

#endif
