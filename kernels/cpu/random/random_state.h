/* Where the random numbers of a kernel begin: a generator that advances with each execution of a
 * node, or one made from a seed. */
#ifndef MILLRACE_KERNELS_CPU_RANDOM_RANDOM_STATE_H
#define MILLRACE_KERNELS_CPU_RANDOM_RANDOM_STATE_H

#include <stdatomic.h>
#include "kernels/kernel.h"
#include "kernels/support/philox.h"

struct random_state {
    struct philox start;
    _Atomic uint64_t n_used; /* how many blocks have been taken */
};
/* Reads the attrs seed and seed2. When both are 0, takes seeds from the operating system. */
struct status *random_state_seed(struct random_state *state, const struct node *node) MUST_USE;
/* An init function for kernels whose state is only a random_state. */
struct status *random_state_init(struct kernel_init *init);
/* Takes `n_blocks` blocks of the stream of the node, whose state begins with a random_state. The
 * stream repeats after 2^64 blocks. */
struct philox random_state_reserve(struct kernel_ctx *ctx, uint64_t n_blocks);
/* Blocks that TensorFlow takes per output when an output may need many of them. */
enum { RANDOM_BLOCKS_PER_OUTPUT = 256 };

/* Makes a generator from a seed of shape [2] (int32 or int64). Errors: INVALID_ARGUMENT. */
struct status *random_from_seed(const struct tensor *seed, struct philox *ret) MUST_USE;

#endif
