/* Plans how up to three operands are broadcast to one shape. Elementwise kernels walk the plan.
 *
 * Adjacent dimensions in which the same operands are stretched are merged. The most common shapes
 * therefore end with few dimensions: one for equal shapes and for a scalar with a tensor, two for a
 * bias. Offsets and strides count elements. A plan owns no memory, and its user keeps it on the
 * stack. It takes ranks up to 254, and init writes only the members that its rank needs. */
#ifndef MILLRACE_KERNELS_SUPPORT_BROADCAST_H
#define MILLRACE_KERNELS_SUPPORT_BROADCAST_H

#include "common/tensor/shape.h"

enum { BROADCAST_MAX_OPERANDS = 3 };

struct broadcast {
    int n_operands;
    int out_rank;
    int64_t n_elements; /* of the output */
    int rank;           /* merged; at least 1 */
    /* bit k is set when operand k has one element along the last merged dimension */
    unsigned inner_stretched;
    unsigned ever_stretched; /* bit k is set when operand k is stretched in any dimension */
    int64_t dims[SHAPE_MAX_RANK + 1]; /* merged, outermost first */
    int64_t strides[BROADCAST_MAX_OPERANDS][SHAPE_MAX_RANK + 1];
    int64_t out_dims[SHAPE_MAX_RANK];
};

/* Fills the plan. Answers false when the shapes cannot be broadcast together, or when an int64
 * cannot count the result's elements; the caller then writes the message with the shapes. */
bool broadcast_init(struct broadcast *plan, const struct shape *operands, int n_operands) MUST_USE;
static inline struct shape broadcast_shape(const struct broadcast *plan) {
    return (struct shape){plan->out_rank, plan->out_dims};
}

/* A position in the output. It moves run by run; a run is the rest of the last merged dimension. */
struct broadcast_cursor {
    int64_t inner; /* position in the last merged dimension */
    /* offset of each operand at the start of the current run's row */
    int64_t outer[BROADCAST_MAX_OPERANDS];
    int64_t index[SHAPE_MAX_RANK + 1]; /* of all merged dimensions but the last */
};
void broadcast_seek(const struct broadcast *plan, int64_t position, struct broadcast_cursor *ret);
/* Returns operand k's offset at the cursor. */
static inline int64_t broadcast_offset(const struct broadcast *plan,
                                       const struct broadcast_cursor *cursor, int k) {
    return cursor->outer[k] + (plan->inner_stretched >> k & 1 ? 0 : cursor->inner);
}
void broadcast_next_row(const struct broadcast *plan, struct broadcast_cursor *cursor);

/* Copies elements [begin, begin + n) of operand k, as they are after stretching, to `to`.
 * element_size is 1, 2, 4, 8 or 16. The elements are plain memory, so object dtypes must not come
 * here. */
void broadcast_gather(const struct broadcast *plan, int k, const void *from, size_t element_size,
                      int64_t begin, int64_t n, void *to);

#endif
