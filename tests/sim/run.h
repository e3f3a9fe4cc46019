/* One run: a cluster, clients and faults, all drawn from a seed. */
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

/* Returns when all is well; else sim_on_fail has been called. Once in a process: nothing of a
 * run is given back. */
void run_seed(uint64_t seed, bool is_traced, struct run_result *ret);

#endif
