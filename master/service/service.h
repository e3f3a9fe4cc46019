/* The master service: the calls of TensorFlow clients (tensorflow.MasterService), also under the
 * paths of tensorflow.grpc.MasterService. Loop thread. */
#ifndef MILLRACE_MASTER_SERVICE_SERVICE_H
#define MILLRACE_MASTER_SERVICE_SERVICE_H

#include "master/request/retry_filter.h"
#include "master/service/client_ids.h"
#include "master/session/session.h"
#include "master/step/profiler.h"
#include "rpc/daemon/admin.h"
#include "rpc/grpc/grpc_server.h"

void master_options_default(struct master_options *options);

struct service {
    struct master_env env;
    struct grpc_server *server;
    struct list sessions;    /* struct session.link */
    struct list clusters;    /* struct session_cluster.link */
    struct list step_pages;  /* those that wait for tasks */
    struct list trace_pages; /* likewise */
    struct list graph_pages; /* likewise, and those that wait for the pool */
    struct step_log *log;    /* the last steps; one of its own */
    struct profiler profiler;
    int n_clusters;
    struct client_ids clients;
    struct strmap by_handle;
    int n_sessions;
    struct list waiting_creates; /* calls that wait for tasks */
    struct retry_filter retries; /* recognises retries of calls that have failed */
    struct status *told;         /* what the last of those calls was answered with; NULL: none */
    uint64_t told_key;
    int64_t trimmed_ms;              /* when memory was trimmed last */
    struct loop_timer timer;         /* ends waits, collects sessions */
    struct trace_query *trace_query; /* the one that waits for tasks; NULL: none */
    bool is_draining, is_stopping, is_server_closed;
    /* Sessions in memory, also closed ones whose steps or jobs still run. They use everything
     * above. */
    int n_held_sessions;
};

struct status *service_new(struct loop *loop, struct pool *pool, const struct cluster_spec *cluster,
                           const struct master_options *options, struct service **ret) MUST_USE;
/* Refuses new sessions and profiles, ends the running profiles, waits for the running steps, then
 * calls on_drained. The caller then calls service_free. */
void service_drain(struct service *service, void (*on_drained)(void *arg), void *arg);
/* Asks every connected task to drain and exit. Call it after the steps have ended. */
void service_end_job(struct service *service);
/* Drains the task that "task=NAME" in the query names (task_drain). Errors: NOT_FOUND, and
 * task_drain's. */
struct status *service_drain_task(struct service *service, const char *query) MUST_USE;
/* Ends every step. The memory is freed when the last session has been freed. */
void service_free(struct service *service);
bool service_is_ready(struct service *service, struct str *why_not);
/* Appends /statusz, a JSON object, with at most max_rows tasks. */
void service_describe(struct service *service, int max_rows, struct str *out);
/* Writes /sessionz as JSON: the sessions, and their compiled signatures. "session=HANDLE" in the
 * query chooses one session. Only an operator sees messages of errors. */
void service_page_sessions(struct service *service, const char *query, bool is_operator,
                           struct str *out);
/* Answers /stepz, as text or JSON. It first asks the tasks that running steps wait for, and waits
 * at most half a second for their replies (step_page.c). `reply` NULL: writes the lines to the
 * log. */
void service_page_steps(struct service *service, struct admin_reply *reply, bool is_json);
/* Answers /tracez as JSON: the last steps, with what the tasks say of them (trace_page.c). With
 * "steps=N" in the query: a file for Perfetto or chrome://tracing with the events of the last N
 * steps on all tasks (trace_events.h); "session=HANDLE" chooses a session's. */
void service_page_traces(struct service *service, const char *query, struct admin_reply *reply);
/* Answers /graphz as JSON: the compiled signatures; with "session=HANDLE", and perhaps
 * "signature=N", the placed graph of one of them, drawn (graph_page.c). */
void service_page_graph(struct service *service, const char *query, struct admin_reply *reply);

#endif
