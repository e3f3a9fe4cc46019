/* Who has used a piece of memory: the last write, and the reads since that nothing orders among
 * each other. Device pages and pinned pages have such a history. */
#ifndef MILLRACE_TESTS_CUDA_SIM_DEVICE_ACCESS_H
#define MILLRACE_TESTS_CUDA_SIM_DEVICE_ACCESS_H

#include "tests/cuda/sim/device.h"

struct access {
    uint32_t clock; /* 0: none */
    uint32_t stream : 8, name : 24;
};

enum { MAX_READS = 6 };
struct access_history {
    struct access write;
    struct access reads[MAX_READS];
};

/* Adds the running operation's use of the address, and reports each operation whose use conflicts
 * with it and that nothing orders. */
void access_note(struct access_history *history, uint64_t address, bool is_write);

/* An access that the clocks do not know; NULL: they know all. */
const struct access *access_unknown_to(const struct access_history *history,
                                       const struct clocks *clocks);

#endif
