/* Broadcasting of up to three operands to one shape: the plan that elementwise kernels walk.
 *
 * Adjacent dimensions in which the same operands are stretched are merged, so that the most
 * common shapes end with one or two dimensions: the same shape or scalar ⊕ tensor: 1; a bias: 2.
 * Offsets and strides count elements. A plan is plain memory on the stack of who uses it (only
 * what its rank needs is touched); any rank up to 254. */
#ifndef MILLRACE_KERNELS_SUPPORT_BROADCAST_H
#define MILLRACE_KERNELS_SUPPORT_BROADCAST_H

#include "common/tensor/shape.h"

enum { BROADCAST_MAX_OPERANDS = 3 };

struct broadcast {
    int n_operands;
    int out_rank;
    int64_t n_elements; /* of the output */
    int rank;           /* merged; at least 1 */
    /* bit k: operand k has one element along the last merged dimension */
    unsigned inner_stretched;
    unsigned ever_stretched;          /* bit k: operand k is stretched somewhere */
    int64_t dims[SHAPE_MAX_RANK + 1]; /* merged, outermost first */
    int64_t strides[BROADCAST_MAX_OPERANDS][SHAPE_MAX_RANK + 1];
    int64_t out_dims[SHAPE_MAX_RANK];
};

/* False: the shapes cannot be broadcast together, or the result is too large to count (the
 * caller names them). */
bool broadcast_init(struct broadcast *plan, const struct shape *operands, int n_operands) MUST_USE;
static inline struct shape broadcast_shape(const struct broadcast *plan) {
    return (struct shape){plan->out_rank, plan->out_dims};
}

/* A place in the output: moves run by run, a run being the rest of the last merged dimension. */
struct broadcast_cursor {
    int64_t inner; /* place in the last merged dimension */
    /* offset of each operand at the start of the current run's row */
    int64_t outer[BROADCAST_MAX_OPERANDS];
    int64_t index[SHAPE_MAX_RANK + 1]; /* of all merged dimensions but the last */
};
void broadcast_seek(const struct broadcast *plan, int64_t position, struct broadcast_cursor *ret);
/* Offset of operand k at the cursor. */
static inline int64_t broadcast_offset(const struct broadcast *plan,
                                       const struct broadcast_cursor *cursor, int k) {
    return cursor->outer[k] + (plan->inner_stretched >> k & 1 ? 0 : cursor->inner);
}
void broadcast_next_row(const struct broadcast *plan, struct broadcast_cursor *cursor);

/* Writes elements [begin, begin + n) of operand k, stretched, to `to`. Elements are plain memory
 * of size 1, 2, 4, 8 or 16. */
void broadcast_gather(const struct broadcast *plan, int k, const void *from, size_t element_size,
                      int64_t begin, int64_t n, void *to);

#endif
