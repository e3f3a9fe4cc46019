/* Checks a cluster that is at rest or works again after the faults. */
#include "tests/sim/checks.h"

#include "master/service/service.h"
#include "master/cluster/tasks_internal.h"
#include "tests/sim/client.h"
#include "tests/sim/faults.h"

/* Two structs have the name: the master's idea of a task's process, and the worker's of its
 * master. They are apart. */
#include "worker/exchange/rendezvous_internal.h"
#include "worker/service/service_internal.h"

/* A silent task is lost after three heartbeats of 2 s, at most 8 s; then its step ends within a
 * second. Making a session waits 10 s more.
 */
static const int64_t CALL_ENDS_NS = 10500000000, CREATE_ENDS_NS = 21000000000;

static void check_calls(void) {
    for (int i = 0; i < n_clients; i++) {
        const struct sim_client *client = &clients[i];
        int64_t limit_ns =
            client->call && strcmp(client->call, "create") == 0 ? CREATE_ENDS_NS : CALL_ENDS_NS;
        bool is_excused = faults_disturbed(CLUSTER_FIRST_CLIENT_HOST + i, 0) ||
                          faults_disturbed(cluster_master()->host, 0) ||
                          cluster_master_vanished_lately();
        int64_t since_ns = MAX(client->began_ns, faults_last_change_ns());
        if (client->call && client->process->is_alive && !is_excused &&
            sim_now_ns() - since_ns > limit_ns)
            sim_fail("%s: %s has had no answer for %.1f s", client->name, client->call,
                     (double)(sim_now_ns() - client->began_ns) / 1e9);
    }
}

static void check_grants(const struct cluster_node *node) {
    const struct rendezvous_table *table = node->worker_service->home->rendezvous;
    int64_t in_flight = atomic_load(&table->in_flight_bytes);
    if (in_flight < 0 || in_flight > table->max_in_flight_bytes)
        sim_fail("%s has granted %lld bytes and has room for %lld", node->name,
                 (long long)in_flight, (long long)table->max_in_flight_bytes);
    int64_t ahead = atomic_load(&table->pregrant_bytes),
            ahead_room = table->max_in_flight_bytes / RENDEZVOUS_PREGRANT_SHARE;
    if (ahead < 0 || ahead > ahead_room)
        sim_fail("%s has granted %lld bytes ahead and has room for %lld", node->name,
                 (long long)ahead, (long long)ahead_room);
}

static bool is_up(const struct cluster_node *node) {
    return node->process->is_alive && (node->worker_service || node->master_service);
}

static void look(void *arg, uint64_t number) {
    check_calls();
    for (int i = 1; i < cluster.n_nodes; i++)
        if (is_up(&cluster.nodes[i]))
            check_grants(&cluster.nodes[i]);
    sim_at(sim_now_ns() + SIM_SECOND / 2, look, NULL, 0);
}

void checks_begin(void) { sim_at(sim_now_ns() + SIM_SECOND, look, NULL, 0); }

/* ---- at rest ---- */

static void expect_none(const char *who, const char *what, int64_t n) {
    if (n != 0)
        sim_fail("%s has %lld %s left", who, (long long)n, what);
}

static int64_t list_length(const struct list *list) {
    int64_t n = 0;
    LIST_FOR_EACH (link, list)
        n++;
    return n;
}

static void check_worker(const struct cluster_node *node) {
    struct worker_service *service = node->worker_service;
    struct rendezvous_table *table = service->home->rendezvous;
    expect_none(node->name, "steps", service->n_runs);
    expect_none(node->name, "steps by id", (int64_t)service->by_step.n_entries);
    expect_none(node->name, "early cancels", (int64_t)service->early_cancels.n_entries);
    expect_none(node->name, "registrations under way", service->n_registering);
    expect_none(node->name, "graphs", (int64_t)graph_cache_n_graphs(service->graphs));
    expect_none(node->name, "rendezvous", (int64_t)table->steps.n_entries);
    expect_none(node->name, "bytes granted", atomic_load(&table->in_flight_bytes));
    expect_none(node->name, "bytes granted ahead", atomic_load(&table->pregrant_bytes));
    expect_none(node->name, "bytes that came early", atomic_load(&table->early_bytes));
    expect_none(node->name, "rendezvous in line", list_length(&table->pending));
    if (service->home)
        for (int i = 1; i < cluster.n_nodes; i++) {
            struct peer *peer = peer_find(service->home->peers, cluster.nodes[i].name);
            if (!peer)
                continue;
            expect_none(node->name, "bytes granted to a peer",
                        atomic_load(peer_in_flight_bytes(peer)));
            expect_none(node->name, "bytes granted to a peer ahead",
                        atomic_load(peer_pregrant_bytes(peer)));
            expect_none(node->name, "grants ahead that a peer has sent",
                        atomic_load(peer_n_pending_pregrants(peer)));
        }
}

static void check_master(const struct cluster_node *node) {
    struct service *service = node->master_service;
    expect_none(node->name, "sessions", service->n_sessions);
    expect_none(node->name, "sessions in memory", service->n_held_sessions);
    expect_none(node->name, "steps", service->env.n_steps);
    expect_none(node->name, "live steps", list_length(&service->env.live_steps));
    expect_none(node->name, "calls that wait for tasks", list_length(&service->waiting_creates));
    for (int i = 0; i < tasks_count(service->env.tasks); i++) {
        const struct task *task = tasks_at(service->env.tasks, i);
        const struct heartbeat *heartbeat = &task->health.heartbeat;
        expect_none(node->name, "calls to a task", (int64_t)task->calls.n_entries);
        if (task->state != TASK_READY ||
            sim_now_ns() - heartbeat->heard_ns > 2 * heartbeat->interval_ns)
            sim_fail("%s has heard nothing from %s for %.1f s", node->name, task->name,
                     (double)(sim_now_ns() - heartbeat->heard_ns) / 1e9);
    }
}

void checks_at_rest(void) {
    for (int i = 0; i < cluster.n_nodes; i++) {
        if (!is_up(&cluster.nodes[i]))
            sim_fail("%s does not run at the end; it exited with %d", cluster.nodes[i].name,
                     cluster.nodes[i].exit_code);
        if (i == 0)
            check_master(&cluster.nodes[i]);
        else
            check_worker(&cluster.nodes[i]);
    }
}

void checks_no_memory(void) {
    for (int i = 1; i < cluster.n_nodes; i++) {
        const struct worker_service *service = cluster.nodes[i].worker_service;
        for (int d = 0; d < service->options.n_devices; d++)
            expect_none(cluster.nodes[i].name, "bytes of tensors",
                        atomic_load(&service->options.devices[d].allocator->in_use_bytes));
    }
}
