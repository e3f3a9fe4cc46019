/* What a strided slice means: the begin, end and stride values and the masks of StridedSlice and
 * kin, made dense over the input's dimensions. Shape functions and kernels read it in the same
 * way. Any thread. */
#ifndef MILLRACE_COMMON_OPS_STRIDED_SLICE_H
#define MILLRACE_COMMON_OPS_STRIDED_SLICE_H

#include "common/graph/graph.h"

/* Bit i of a mask speaks of entry i of begin, end and strides. */
struct strided_slice_masks {
    uint64_t begin, end;  /* the value is ignored: from the very start, to the very end */
    uint64_t ellipsis;    /* stands for as many whole dimensions as are left */
    uint64_t new_axis;    /* a dimension of 1 appears */
    uint64_t shrink_axis; /* one index, whose dimension goes */
};
struct status *strided_slice_masks_read(const struct node *node,
                                        struct strided_slice_masks *ret) MUST_USE;

/* Per dimension of the input: the first index, the step, and how many are taken; -1 where a size
 * is not known. About 10 KiB: on the stack.
 */
enum { SLICE_NEW_AXIS = -1 };
struct strided_slice {
    int rank;
    int64_t begin[SHAPE_MAX_RANK], stride[SHAPE_MAX_RANK], size[SHAPE_MAX_RANK];
    int out_rank;
    /* the output's sizes: shrunk dimensions left out, new ones there */
    int64_t out[SHAPE_MAX_RANK];
    int source[SHAPE_MAX_RANK]; /* per output dimension: the input's, or SLICE_NEW_AXIS */
};
/* `begin` and `end` may be NULL while a graph is being typed: sizes that depend on them are then
 * -1. `in` has a known rank. Errors: INVALID_ARGUMENT as TensorFlow words them. */
struct status *strided_slice_resolve(const struct strided_slice_masks *masks, struct shape in,
                                     const struct tensor *begin, const struct tensor *end,
                                     const struct tensor *strides,
                                     struct strided_slice *ret) MUST_USE;

#endif
