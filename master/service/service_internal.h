/* What the files of the master service share: service.c (the method table, calls that wait for
 * tasks, RunStep and the small methods), service_sessions.c (CreateSession, ExtendSession, the end
 * of a session), step_page.c and service_reset.c. Loop thread. */
#ifndef MILLRACE_MASTER_SERVICE_SERVICE_INTERNAL_H
#define MILLRACE_MASTER_SERVICE_SERVICE_INTERNAL_H

#include "common/base/metrics.h"
#include "master/service/service.h"
#include "master/service/session_cluster.h"
#include "master/request/session_config.h"

/* memory that one session may hold for graphs that were refused */
enum { SERVICE_MAX_REFUSED_BYTES = 256 << 20 };

extern struct metric service_sessions_gauge, service_sessions_total;

/* ---- service.c ---- */
/* Answers a call with the bytes of a message; NULL: an empty message. */
void service_reply(struct grpc_call *call, const struct str *message);
/* Finds the session that field 1 of the call's message names, and notes that its client is alive.
 * Errors: ABORTED if there is no such session. */
struct status *service_called_session(struct service *service, struct grpc_call *call,
                                      struct span *ret_handle, struct session **ret) MUST_USE;
/* What a call does after it has waited for tasks. `cluster_take` is the session's own; NULL: none.
 * Returns NULL if the call has been answered or will be; with a status, the caller answers it. */
typedef struct status *task_call_fn(struct service *service, struct grpc_call *call,
                                    const struct session_config *config,
                                    struct session_cluster *cluster_take);
/* Calls `go`, now or later, once each task of the master's cluster is connected or has failed to be
 * (tasks_all_tried), or --task-wait is over. */
void service_when_tasks_are_tried(struct service *service, struct grpc_call *call,
                                  task_call_fn *go);
/* The callbacks of tables of tasks (master/cluster/tasks.h); arg: the service. */
void service_task_ready(void *arg, struct task *task);
void service_task_lost(void *arg, struct task *task);
void service_write_holdings(void *arg, const struct task *task, struct str *out);
/* A session's memory is about to be freed: session_new's on_end. */
void service_session_ended(struct session *session);

/* ---- service_sessions.c ---- */
/* Creates a session, of that cluster or, if it is NULL, of the master's. NULL: the call is answered
 * later. A status: the caller answers the call. */
struct status *service_create_session(struct service *service, struct grpc_call *call,
                                      const struct session_config *config,
                                      struct session_cluster *cluster_take) MUST_USE;
/* Ends its steps with `why` (shared), drops its executables at the tasks, and takes it out of the
 * service's table. */
void service_end_session(struct session *session, struct status *why);
void service_extend_session(void *service, struct grpc_call *call);

/* Calls `visit` for each task of the master's cluster and of those of sessions. Returns how many
 * there are. `visit` may be NULL, and must not end a cluster. */
int service_for_each_task(struct service *service,
                          void (*visit)(void *arg, struct task *task, int index), void *arg);

/* ---- step_page.c ---- */
/* Finishes the pages that still wait for tasks, because the service ends. */
void service_end_step_pages(struct service *service);

/* ---- trace_page.c ---- */
/* Asks the ready tasks what they have kept of these steps. `done` is called once, not inside this
 * call: when all have replied, or after a second. It frees the query with trace_query_free. There
 * must be no other query (service->trace_query). */
struct trace_query;
struct Millrace__Traces;
struct trace_query *trace_query_start(struct service *service, const uint64_t *step_ids, int n,
                                      void (*done)(struct trace_query *query, void *arg),
                                      void *arg);
int trace_query_n_tasks(const struct trace_query *query);
/* NULL: the task did not reply. */
const struct Millrace__Traces *trace_query_traces(const struct trace_query *query, int task);
const char *trace_query_task(const struct trace_query *query, int task);
/* How many tasks' replies were left out, since all of them together were too large. */
int trace_query_n_left_out(const struct trace_query *query);
void trace_query_free(struct trace_query *query);      /* also before `done`; accepts NULL */
void service_end_trace_pages(struct service *service); /* likewise */

/* ---- graph_page.c ---- */
void service_end_graph_pages(struct service *service); /* likewise */

/* ---- service_reset.c ---- */
void service_reset(void *service, struct grpc_call *call);

/* ---- service_profiler.c ---- */
void service_profile(void *service, struct grpc_call *call);
void service_profile_terminate(void *service, struct grpc_call *call);
void service_profile_monitor(void *service, struct grpc_call *call);

#endif
