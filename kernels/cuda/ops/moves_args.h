/* The arguments of the kernels in moves.cu. Plain C, read by both sides. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_MOVES_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_MOVES_ARGS_H

#include <stdint.h>

enum { MOVE_LOOPS = 8, MOVE_BATCH = 16, MOVE_TILE = 32, MOVE_TILE_ROWS = 8 };

/* A strided copy. Strides count elements of the kernel's size. The innermost loop is the last. */
struct move_loops {
    char *to;
    const char *from; /* NULL: every element becomes `value` */
    /* an element in the first bytes */
    uint64_t value[2] __attribute__((aligned(16)));
    int64_t end;     /* elements of this copy and of those before it */
    int64_t n_loops; /* at least 1 */
    int64_t dims[MOVE_LOOPS], from_strides[MOVE_LOOPS], to_strides[MOVE_LOOPS];
};

struct move_one_args {
    struct move_loops loops;
};

struct move_batch_args {
    int64_t n_copies;
    struct move_loops loops[MOVE_BATCH];
};

/* A transpose: to[… a + b·to_b] = from[… a·from_a + b] for a < n_a, b < n_b, in each iteration of
 * the loops. */
struct move_tiles_args {
    char *to;
    const char *from;
    int64_t n_a, n_b, from_a, to_b;
    int64_t n_tiles; /* of all iterations together */
    int64_t n_loops; /* may be 0 */
    int64_t dims[MOVE_LOOPS], from_strides[MOVE_LOOPS], to_strides[MOVE_LOOPS];
};

#endif
