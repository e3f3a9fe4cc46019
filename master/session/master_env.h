/* What the sessions of a cluster share: the master's threads and limits, the cluster's tasks, and
 * its live steps.
 *
 * The service (master/service/service.h) owns that of the master's own cluster. A session that
 * brings a cluster has one of its own (master/service/session_cluster.h), because to its tasks it
 * is another master: with another incarnation and step ids of its own. Sessions and steps borrow it
 * for as long as they live. Loop thread. */
#ifndef MILLRACE_MASTER_SESSION_MASTER_ENV_H
#define MILLRACE_MASTER_SESSION_MASTER_ENV_H

#include "common/base/list.h"
#include "common/base/pool.h"
#include "master/cluster/tasks.h"
#include "master/compile/compile.h"
#include "master/session/save_barrier.h"
#include "rpc/grpc/grpc_server.h"

/* Whose addresses a session's cluster_def may have: --session-clusters. */
enum session_clusters_mode { SESSION_CLUSTERS_OFF, SESSION_CLUSTERS_OWN, SESSION_CLUSTERS_ANY };

struct master_options {
    const char *listen; /* "127.0.0.1:2222" */
    struct grpc_server_limits limits;
    /* messages to and from tasks carry checksums (rpc/wire/wire.h) */
    bool use_checksums;
    /* TLS for connections of clients and to tasks; NULL: none. Borrowed as long as the service
     * lives */
    struct tls *tls_clients, *tls_wire;
    struct compile_options compile; /* defaults for every session */
    /* measure the costs of all sessions; by default of those that are placed by cost */
    bool measures_all;
    /* place signatures again whose costs are measured to be others than estimated */
    bool replaces;
    /* how long CreateSession waits for missing tasks; default 10 s */
    int64_t task_wait_ms;
    /* time between pings to a task; a task that is silent for three of them is lost; default 2 s */
    int64_t heartbeat_ms;
    /* a session ends this long after its client's last connection has closed; default 1 h */
    int64_t session_ttl_ms;
    int max_sessions;      /* default 10000 */
    int max_steps;         /* in flight, default 100000 */
    int max_session_steps; /* of one session, default 10000 */
    int max_nodes;         /* per session graph, default 1,000,000 */
    /* how long a save waits at the save barrier before it fails; default 10 s */
    int64_t save_wait_ms;
    /* refuse a graph whose shapes cannot fit when it arrives; TensorFlow's servers accept it */
    bool check_shapes;
    /* which addresses a session's cluster may have; default: those of the master's own tasks */
    enum session_clusters_mode session_clusters;
    int max_session_clusters; /* at one time; default 64 */
    /* executables kept per session, default 1000; the least recently used one is freed first */
    int max_executables;
};

struct profiler;
struct service;
struct step_log;

struct master_env {
    struct service *service; /* the owner */
    /* that of the master's own cluster, perhaps this one: it counts the steps of all clusters */
    struct master_env *home;
    struct loop *loop;
    struct pool *pool;
    struct tasks *tasks;
    struct master_options options;
    /* what its tasks know the master by; tells this process from the one before it */
    uint64_t incarnation;
    struct profiler *profiler; /* home only */
    int n_steps;               /* of all sessions, also of other clusters; home only */
    struct step_log *log;      /* likewise; borrowed from the service */
    struct save_barrier
        save_barrier;       /* which steps may run when a save asks for a consistent checkpoint */
    struct list live_steps; /* struct step.live_link, in the order of their ids */
};

#endif
