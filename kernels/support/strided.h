/* Copies elements between two strided layouts. All kernels that move elements without looking at
 * them use this engine: transpose, slice, reverse, tile, broadcast, concat, pad, space-to-depth. A
 * copy is a nest of loops, each with a size and a stride on either side:
 *
 *   for i0 < dims[0]: for i1 < dims[1]: …
 *       to[i0·to[0] + i1·to[1] + …] = from[i0·from[0] + i1·from[1] + …]
 *
 * Strides count elements. A stride of 0 repeats an element (broadcast, fill), a negative one walks
 * back (reverse). Each element of `to` is written at most once, so the engine may swap, merge and
 * split the loops, and share them out to threads. Elements of any size are copied. Objects get a
 * reference, and the object that an element of `to` held before loses one. */
#ifndef MILLRACE_KERNELS_SUPPORT_STRIDED_H
#define MILLRACE_KERNELS_SUPPORT_STRIDED_H

#include "common/base/pool.h"
#include "common/tensor/tensor.h"

/* Up to two loops per dimension of a shape (tile, reverse of blocks). The struct has 12 KiB; keep
 * it on the stack, where nothing initialises what is not used. */
enum { STRIDED_MAX_LOOPS = 2 * SHAPE_MAX_RANK };

struct strided {
    int n_loops;
    int64_t dims[STRIDED_MAX_LOOPS], from[STRIDED_MAX_LOOPS], to[STRIDED_MAX_LOOPS];
};

static inline void strided_init(struct strided *s) { s->n_loops = 0; }

/* Adds a loop inside the existing ones. A loop of one iteration is left out; a loop that continues
 * the one around it is merged with it. */
static inline void strided_add(struct strided *s, int64_t n, int64_t from, int64_t to) {
    if (n == 1)
        return;
    int last = s->n_loops - 1;
    if (last >= 0 && n > 0 && s->from[last] == n * from && s->to[last] == n * to) {
        s->dims[last] *= n;
        s->from[last] = from;
        s->to[last] = to;
        return;
    }
    s->dims[s->n_loops] = n;
    s->from[s->n_loops] = from;
    s->to[s->n_loops] = to;
    s->n_loops++;
}

/* Runs the loops. `to` and `from` point to the elements of iteration 0, 0, … . The function changes
 * *s. `pool` may be NULL. */
void strided_run(struct strided *s, enum dtype dtype, void *to, const void *from,
                 struct pool *pool);

/* Copies n contiguous elements. */
void strided_copy_run(enum dtype dtype, void *to, const void *from, int64_t n, struct pool *pool);
/* Sets n contiguous elements to *value. */
void strided_fill(enum dtype dtype, void *to, const void *value, int64_t n, struct pool *pool);

/* Computes the row-major strides of `dims`, in elements. */
static inline void strides_of(const int64_t *dims, int rank, int64_t *ret) {
    uint64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        ret[i] = (int64_t)stride;
        /* a shape with a 0 may overflow in other sizes; its strides are never used */
        stride *= (uint64_t)dims[i];
    }
}

#endif
