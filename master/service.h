/* The master service: what a TensorFlow client calls (tensorflow.MasterService), under both path
 * families. Loop thread. */
#ifndef MILLRACE_MASTER_SERVICE_H
#define MILLRACE_MASTER_SERVICE_H

#include "common/base/pool.h"
#include "master/cuts.h"
#include "master/repeats.h"
#include "master/session.h"
#include "master/cluster/tasks.h"
#include "rpc/admin.h"
#include "rpc/grpc/grpc_server.h"

struct service_options {
    const char *listen; /* "127.0.0.1:2222" */
    struct grpc_server_limits limits;
    /* messages to and from tasks carry checksums (rpc/wire/wire.h) */
    bool use_sums;
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
    /* a save that asks for a consistent cut waits so long for it, then fails; default 10 s */
    int64_t cut_wait_ms;
    /* refuse graphs whose shapes cannot fit when they come; TensorFlow's servers do not */
    bool check_shapes;
    /* compiled signatures kept per session, default 1000: the one used longest ago goes */
    int max_executables;
};
void service_options_default(struct service_options *options);

struct service {
    struct loop *loop;
    struct pool *pool;
    struct tasks *tasks;
    struct grpc_server *server;
    struct service_options options;
    uint64_t incarnation;
    struct list sessions; /* struct session.link */
    struct strmap by_handle;
    int n_sessions, n_steps;
    struct cuts cuts;            /* who may run when a save asks for a consistent cut */
    struct list live_steps;      /* in the order of their ids */
    struct list waiting_creates; /* CreateSession and ListDevices calls that wait for tasks */
    struct repeats repeats;      /* of those that waited in vain */
    int64_t tidied_ms;
    struct loop_timer timer; /* once a second: waits that end, sessions to collect */
    bool is_draining, is_stopping, is_server_closed;
    /* in memory: closed ones, too, while steps or jobs of theirs go on; they need all of the
     * above */
    int n_held_sessions;
};

struct status *service_new(struct loop *loop, struct pool *pool, const struct cluster_spec *cluster,
                           const struct service_options *options, struct service **ret) MUST_USE;
/* TERM: refuses new sessions, lets running steps finish, then calls on_drained; service_free
 * after. */
void service_drain(struct service *service, void (*on_drained)(void *arg), void *arg);
/* Tells every task that is connected to drain and exit. Its own steps should have ended. */
void service_end_job(struct service *service);
/* ends every step; the memory goes when the last session's has gone */
void service_free(struct service *service);
void service_session_gone(struct service *service);
/* NULL; borrowed */
struct session *service_find_session(struct service *service, struct span handle);
bool service_is_ready(struct service *service, struct str *why_not);
void service_describe(struct service *service, struct str *out); /* /statusz, a JSON object */
/* /stepz: asks the tasks that running steps wait for; the reply is finished when they have
 * answered, or do not. */
void service_page_steps(struct service *service, struct admin_reply *reply);

#endif
