/* Where a kernel's random numbers begin: a generator that each execution moves on, or one made
 * from a seed. */
#ifndef MILLRACE_KERNELS_CPU_RANDOM_RANDOM_STATE_H
#define MILLRACE_KERNELS_CPU_RANDOM_RANDOM_STATE_H

#include <stdatomic.h>
#include "kernels/kernel.h"
#include "kernels/support/philox.h"

struct random_state {
    struct philox start;
    _Atomic uint64_t n_used; /* blocks given out */
};
/* Reads attrs seed and seed2; both 0: seeds from the machine. */
struct status *random_state_seed(struct random_state *state, const struct node *node) MUST_USE;
struct status *random_state_init(struct kernel_init *init); /* the whole state of a node */
/* Takes `n_blocks` of the stream of the node, whose state begins with a random_state; beyond
 * 2^64 blocks it repeats. */
struct philox random_state_reserve(struct kernel_ctx *ctx, uint64_t n_blocks);
/* What TensorFlow takes for n outputs that may need many blocks each: 256 apiece. */
enum { RANDOM_BLOCKS_PER_OUTPUT = 256 };

/* A generator from a seed of shape [2] (int32, int64). Errors: INVALID_ARGUMENT. */
struct status *random_from_seed(const struct tensor *seed, struct philox *ret) MUST_USE;

#endif
