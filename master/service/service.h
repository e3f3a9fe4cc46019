/* The master service: what a TensorFlow client calls (tensorflow.MasterService), under both path
 * families. Loop thread. */
#ifndef MILLRACE_MASTER_SERVICE_SERVICE_H
#define MILLRACE_MASTER_SERVICE_SERVICE_H

#include "master/request/retry_filter.h"
#include "master/service/client_ids.h"
#include "master/session/session.h"
#include "rpc/daemon/admin.h"
#include "rpc/grpc/grpc_server.h"

void master_options_default(struct master_options *options);

struct service {
    struct master_env env;
    struct grpc_server *server;
    struct list sessions; /* struct session.link */
    struct client_ids clients;
    struct strmap by_handle;
    int n_sessions;
    struct list waiting_creates; /* CreateSession and ListDevices calls that wait for tasks */
    struct retry_filter retries; /* of those that waited in vain */
    int64_t tidied_ms;
    struct loop_timer timer; /* once a second: waits that end, sessions to collect */
    bool is_draining, is_stopping, is_server_closed;
    /* in memory: closed ones, too, while steps or jobs of theirs go on; they need all of the
     * above */
    int n_held_sessions;
};

struct status *service_new(struct loop *loop, struct pool *pool, const struct cluster_spec *cluster,
                           const struct master_options *options, struct service **ret) MUST_USE;
/* TERM: refuses new sessions, lets running steps finish, then calls on_drained; service_free
 * after. */
void service_drain(struct service *service, void (*on_drained)(void *arg), void *arg);
/* Tells every task that is connected to drain and exit. Its own steps should have ended. */
void service_end_job(struct service *service);
/* ends every step; the memory goes when the last session's has gone */
void service_free(struct service *service);
/* NULL; borrowed */
struct session *service_find_session(struct service *service, struct span handle);
bool service_is_ready(struct service *service, struct str *why_not);
void service_describe(struct service *service, struct str *out); /* /statusz, a JSON object */
/* /stepz: asks the tasks that running steps wait for; the reply is finished when they have
 * answered, or do not. */
void service_page_steps(struct service *service, struct admin_reply *reply);

#endif
