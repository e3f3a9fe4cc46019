/* What all sessions of a master share: its threads, its tasks, its limits and its live steps.
 *
 * The service (master/service/service.h) owns it; sessions and steps borrow it for as long as they
 * live. Loop thread. */
#ifndef MILLRACE_MASTER_SESSION_MASTER_ENV_H
#define MILLRACE_MASTER_SESSION_MASTER_ENV_H

#include "common/base/list.h"
#include "common/base/pool.h"
#include "master/cluster/tasks.h"
#include "master/compile/compile.h"
#include "master/session/save_barrier.h"
#include "rpc/grpc/grpc_server.h"

struct master_options {
    const char *listen; /* "127.0.0.1:2222" */
    struct grpc_server_limits limits;
    /* messages to and from tasks carry checksums (rpc/wire/wire.h) */
    bool use_checksums;
    /* of clients, of tasks; NULL: in the clear. Borrowed for the service's life */
    struct tls *tls_clients, *tls_wire;
    struct compile_options compile; /* defaults for every session */
    /* CreateSession waits so long for missing tasks; default 10 s */
    int64_t task_wait_ms;
    /* between pings to a task; after three without a sign of life it is lost. Default 2 s */
    int64_t heartbeat_ms;
    int64_t session_ttl_ms; /* after the client's last connection closed; default 1 h */
    int max_sessions;       /* default 10000 */
    int max_steps;          /* in flight, default 100000 */
    int max_session_steps;  /* of one session, default 10000 */
    int max_nodes;          /* per session graph, default 1,000,000 */
    /* a save that asks for a consistent checkpoint waits so long for it, then fails; default 10 s */
    int64_t save_wait_ms;
    /* refuse graphs whose shapes cannot fit when they come; TensorFlow's servers do not */
    bool check_shapes;
    /* compiled signatures kept per session, default 1000: the one used longest ago goes */
    int max_executables;
};

struct master_env {
    struct loop *loop;
    struct pool *pool;
    struct tasks *tasks;
    struct master_options options;
    uint64_t incarnation; /* tells this process from the one before it at the same address */
    int n_steps;          /* of all sessions */
    struct save_barrier save_barrier; /* who may run when a save asks for a consistent checkpoint */
    struct list live_steps;           /* struct step.live_link, in the order of their ids */
};

#endif
