/* The cluster that a session has brought: ConfigProto.cluster_def.
 *
 * The client lists tasks with job names of its own choice. The master connects to them as another
 * master would: with an incarnation of its own, so that tasks keep apart what belongs to whom
 * (master/session/master_env.h, worker/service/exchange.h). The cluster belongs to one session,
 * which is isolated, and ends with it.
 *
 *   CreateSession ─► session_cluster_check ─► session_cluster_new ─► all tasks READY ─► session
 *                    which tasks are meant?   connects               within --task-wait
 *
 * What an entry of cluster_def means:
 *
 *   the address that the client dialled   the master, which is no task: the entry is left out. If
 *                                         it is the client port of a task, that task
 *   the address of a task of the          that task, under the client's name
 *   master's own cluster
 *   any other address                     the task that answers there, if --session-clusters=any
 *
 * Loop thread. */
#ifndef MILLRACE_MASTER_SERVICE_SESSION_CLUSTER_H
#define MILLRACE_MASTER_SERVICE_SESSION_CLUSTER_H

#include "master/request/session_config.h"
#include "master/session/session.h"

struct session_cluster {
    struct list link; /* service->clusters */
    struct master_env env;
};

/* Checks a config's cluster against what the master allows, and replaces the entries by the tasks
 * that they mean. Sets config->default_task. Does nothing without a cluster. Errors:
 * PERMISSION_DENIED (--session-clusters), INVALID_ARGUMENT (no task is left; two entries for the
 * address that the client dialled). */
struct status *session_cluster_check(struct service *service, struct grpc_call *call,
                                     struct session_config *config) MUST_USE;
/* Begins to connect to the tasks of a config's cluster, which has been checked. Errors:
 * RESOURCE_EXHAUSTED (--max-session-clusters), UNAVAILABLE while the master is draining. */
struct status *session_cluster_new(struct service *service, const struct session_config *config,
                                   struct session_cluster **ret) MUST_USE;
/* Tells the tasks to free everything, and frees the cluster. No session uses it. Accepts NULL. */
void session_cluster_free(struct session_cluster *cluster);
/* NULL: the session uses the master's own cluster. */
struct session_cluster *session_cluster_of(const struct session *session);
/* Appends a member "session_clusters" of a JSON object, for /statusz. */
void session_clusters_describe(struct service *service, struct str *out);

#endif
