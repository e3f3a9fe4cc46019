/* Runs one seed: a cluster, its clients and its faults. */
#include "tests/sim/run.h"

#include <stdio.h>

#include "tests/sim/checks.h"
#include "tests/sim/client.h"
#include "tests/sim/faults.h"

/* Longer than anything waits for: the ends of cancelled steps, values for steps that never come
 * (RENDEZVOUS_ORPHAN_SECONDS), graphs of a master that has gone, sessions whose client has lost
 * their handle (--session-ttl in cluster.c). */
static const int64_t REST_NS = 140000000000;
static const int64_t LONGEST_END_NS = 40000000000;

static bool never(void) { return false; }

static bool is_reset;
static bool has_reset(void) { return is_reset; }

static void reset_containers(void *arg) {
    char target[64];
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_Status *status = TF_NewStatus();
    snprintf(target, sizeof(target), "grpc://10.0.0.1:%d", CLUSTER_MASTER_PORT);
    TF_SetTarget(options, target);
    TF_Reset(options, NULL, 0, status);
    if (TF_GetCode(status) != TF_OK)
        sim_fail("Reset: %s", TF_Message(status));
    is_reset = true;
}

static void run_to_the_end(int64_t settle_ns) {
    sim_run_until(never, settle_ns);
    sim_trace("faults are over");
    clients_settle();
    if (!sim_run_until(clients_are_done, settle_ns + LONGEST_END_NS))
        sim_fail("a client has not ended %.0f s after the last fault",
                 (double)LONGEST_END_NS / 1e9);
    sim_run_until(never, sim_now_ns() + REST_NS);
    checks_at_rest();
    sim_process_new("reset", SIM_MAX_HOSTS - 1, reset_containers, NULL);
    if (!sim_run_until(has_reset, sim_now_ns() + SIM_SECOND))
        sim_fail("Reset does not end");
    sim_run_until(never, sim_now_ns() + SIM_SECOND);
    checks_no_memory();
}

void run_seed(uint64_t seed, bool is_traced, struct run_result *ret) {
    *ret = (struct run_result){.seed = seed};
    is_reset = false;
    sim_begin(seed, is_traced);
    int64_t start_ns = sim_now_ns();
    sim_network_begin();
    cluster_begin();
    clients_begin();
    int64_t settle_ns = start_ns + sim_between(3 * SIM_SECOND, 25 * SIM_SECOND);
    faults_begin(start_ns + sim_between(0, SIM_SECOND), settle_ns);
    checks_begin();
    run_to_the_end(settle_ns);
    ret->trace_hash = sim_trace_hash();
    ret->virtual_seconds = (double)(sim_now_ns() - start_ns) / 1e9;
    ret->n_faults = faults_count();
    for (int i = 0; i < n_clients; i++)
        ret->n_steps += clients[i].n_done_well;
}
