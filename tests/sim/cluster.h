/* The cluster of a run: the main functions of tf-master and tf-worker, each in a process of the
 * simulation. */
#ifndef MILLRACE_TESTS_SIM_CLUSTER_H
#define MILLRACE_TESTS_SIM_CLUSTER_H

#include "tests/sim/sim.h"

struct service;
struct worker_service;

enum {
    CLUSTER_MAX_NODES = 8,
    CLUSTER_FIRST_CLIENT_HOST = 8,
    CLUSTER_MASTER_PORT = 2222,
    CLUSTER_MAX_PS = 2
};

struct cluster_node {
    /* as messages name it: "/job:ps/replica:0/task:0" or "master" */
    char name[48];
    const char *job;
    int index, host;
    struct sim_process *process;           /* the latest */
    uint64_t n_starts;                     /* how many processes it has had */
    uint64_t n_changes;                    /* starts and ends */
    struct service *master_service;        /* of the latest process; NULL until it has one */
    struct worker_service *worker_service; /* likewise */
    int exit_code;
    int64_t vanished_ns; /* when its host last lost power; 0: never */
};

extern struct cluster {
    /* the master first, then ps tasks, then workers */
    struct cluster_node nodes[CLUSTER_MAX_NODES];
    int n_nodes, n_ps, n_workers;
} cluster;

void cluster_begin(void); /* draws a size and starts the cluster */
struct cluster_node *cluster_master(void);
struct cluster_node *cluster_ps(int index);
struct cluster_node *cluster_worker(int index);
/* Starts a process of a node that has none. */
void cluster_start(struct cluster_node *node);
/* Has the master's host vanished a short time ago? Calls to it then end only when the caller's
 * kernel gives up the connection, so nothing can be expected of them. */
bool cluster_master_vanished_lately(void);
void cluster_terminate(struct cluster_node *node);
void cluster_kill(struct cluster_node *node, bool is_vanished);

#endif
