/* Starts and ends the daemons of a simulated cluster. */
#include "tests/sim/cluster.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "master/service/service.h"
#include "worker/service/service.h"

struct cluster cluster;

/* ---- the daemons' mains, and what they make ---- */

int tf_master_main(int argc, char **argv);
int tf_worker_main(int argc, char **argv);
struct status *__real_service_new(struct loop *loop, struct pool *pool,
                                  const struct cluster_spec *spec,
                                  const struct master_options *options,
                                  struct service **ret) MUST_USE;
struct status *__wrap_service_new(struct loop *loop, struct pool *pool,
                                  const struct cluster_spec *spec,
                                  const struct master_options *options,
                                  struct service **ret) MUST_USE;
struct status *__real_worker_service_new(struct loop *loop, const struct worker_options *options,
                                         struct worker_service **ret) MUST_USE;
struct status *__wrap_worker_service_new(struct loop *loop, const struct worker_options *options,
                                         struct worker_service **ret) MUST_USE;
void __wrap_watchdog_end_in_time(int exit_code);
_Noreturn void __wrap_watchdog_end_now(int exit_code);

static struct cluster_node *node_of(const struct sim_process *process) {
    for (int i = 0; i < cluster.n_nodes; i++)
        if (cluster.nodes[i].process == process)
            return &cluster.nodes[i];
    CHECK(false);
}

struct status *__wrap_service_new(struct loop *loop, struct pool *pool,
                                  const struct cluster_spec *spec,
                                  const struct master_options *options, struct service **ret) {
    TRY(__real_service_new(loop, pool, spec, options, ret));
    node_of(sim_current)->master_service = *ret;
    return NULL;
}

struct status *__wrap_worker_service_new(struct loop *loop, const struct worker_options *options,
                                         struct worker_service **ret) {
    TRY(__real_worker_service_new(loop, options, ret));
    node_of(sim_current)->worker_service = *ret;
    return NULL;
}

/* Daemons share the process. Their threads are events, so nothing hangs. */
void __wrap_watchdog_end_in_time(int exit_code) {}
void __wrap_watchdog_end_now(int exit_code) { CHECK(false); }

/* ---- command lines ---- */

static void describe_cluster(struct str *out) {
    for (int i = 1; i < cluster.n_nodes; i++) {
        const struct cluster_node *node = &cluster.nodes[i];
        bool is_first =
            strcmp(node->job, cluster.nodes[i - 1].job ? cluster.nodes[i - 1].job : "") != 0;
        if (is_first)
            str_addf(out, "%s%s=", i > 1 ? "," : "", node->job);
        str_addf(out, "%s10.0.0.%d:%d", is_first ? "" : ";", node->host + 1, 2300);
    }
}

/* A ghost's exit is none. */
static void note_exit(struct cluster_node *node) { node->n_changes += sim_current->is_alive; }

static void master_main(void *arg) {
    struct str spec = STR_INIT;
    char listen[32];
    snprintf(listen, sizeof(listen), "10.0.0.1:%d", CLUSTER_MASTER_PORT);
    describe_cluster(&spec);
    char *argv[] = {"tf-master", "--insecure", "--admin",       "off",
                    "--threads", "2",          "--session-ttl", "60s",
                    "--listen",  listen,       "--cluster",     (char *)(uintptr_t)str_text(&spec),
                    NULL};
    struct cluster_node *node = arg;
    node->exit_code = tf_master_main(ARRAY_LEN(argv) - 1, argv);
    str_fini(&spec);
    note_exit(node);
}

static void worker_main(void *arg) {
    struct cluster_node *node = arg;
    char listen[32], index[16];
    snprintf(listen, sizeof(listen), "10.0.0.%d:%d", node->host + 1, 2300);
    snprintf(index, sizeof(index), "%d", node->index);
    char *argv[] = {"tf-worker",
                    "--insecure",
                    "--admin",
                    "off",
                    "--threads",
                    "2",
                    "--rdma",
                    "off",
                    "--unix",
                    "off",
                    "--shm",
                    "off",
                    "--max-inflight",
                    "1M",
                    "--job",
                    (char *)(uintptr_t)node->job,
                    "--task",
                    index,
                    "--listen",
                    listen,
                    NULL};
    node->exit_code = tf_worker_main(ARRAY_LEN(argv) - 1, argv);
    note_exit(node);
}

/* ---- nodes ---- */

struct cluster_node *cluster_master(void) {
    return &cluster.nodes[0];
}
struct cluster_node *cluster_ps(int index) {
    return &cluster.nodes[1 + index];
}
struct cluster_node *cluster_worker(int index) {
    return &cluster.nodes[1 + cluster.n_ps + index];
}

static void add_node(const char *job, int index) {
    struct cluster_node *node = &cluster.nodes[cluster.n_nodes];
    *node = (struct cluster_node){.job = job, .index = index, .host = cluster.n_nodes++};
    if (job)
        snprintf(node->name, sizeof(node->name), "/job:%s/replica:0/task:%d", job, index);
    else
        snprintf(node->name, sizeof(node->name), "master");
}

void cluster_start(struct cluster_node *node) {
    CHECK(!node->process || !node->process->is_alive);
    node->master_service = NULL;
    node->worker_service = NULL;
    node->n_starts++;
    node->n_changes++;
    node->process =
        sim_process_new(node->name, node->host, node->job ? worker_main : master_main, node);
}

void cluster_terminate(struct cluster_node *node) {
    node->master_service = NULL; /* nobody may look at what is being freed */
    node->worker_service = NULL;
    sim_process_signal(node->process, SIGTERM);
}

bool cluster_master_vanished_lately(void) {
    enum { NOTICED_SECONDS = 31 };
    int64_t vanished_ns = cluster_master()->vanished_ns;
    return vanished_ns != 0 && sim_now_ns() - vanished_ns < NOTICED_SECONDS * SIM_SECOND;
}

void cluster_kill(struct cluster_node *node, bool is_vanished) {
    if (!node->process->is_alive)
        return;
    node->n_changes++;
    node->vanished_ns = is_vanished ? sim_now_ns() : node->vanished_ns;
    sim_process_kill(node->process, is_vanished);
}

void cluster_begin(void) {
    memset(&cluster, 0, sizeof(cluster));
    cluster.n_ps = (int)sim_between(1, CLUSTER_MAX_PS);
    cluster.n_workers = (int)sim_between(1, 2);
    add_node(NULL, 0);
    for (int i = 0; i < cluster.n_ps; i++)
        add_node("ps", i);
    for (int i = 0; i < cluster.n_workers; i++)
        add_node("worker", i);
    for (int i = 0; i < cluster.n_nodes; i++)
        cluster_start(&cluster.nodes[i]);
}
