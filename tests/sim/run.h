/* One run: a cluster, clients and faults, drawn from a seed. */
#ifndef MILLRACE_TESTS_SIM_RUN_H
#define MILLRACE_TESTS_SIM_RUN_H

#include "tests/sim/sim.h"

struct run_result {
    uint64_t seed, trace_hash;
    bool has_failed;
    char message[512]; /* why */
    double virtual_seconds;
    uint64_t n_steps, n_faults;
};

/* Returns when the run has succeeded. Otherwise sim_on_fail is called. Call it once in a process,
 * because the memory of a run is not freed. */
void run_seed(uint64_t seed, bool is_traced, struct run_result *ret);

#endif
