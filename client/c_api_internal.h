/* What the files of the C client share: the structs behind the opaque names. */
#ifndef MILLRACE_CLIENT_C_API_INTERNAL_H
#define MILLRACE_CLIENT_C_API_INTERNAL_H

#include <pthread.h>

#include "client/c_api.h"
#include "client/call_loop.h"
#include "common/base/status.h"
#include "common/base/str.h"
#include "common/tensor/tensor.h"
#include "rpc/grpc/grpc_client.h"

struct TF_Status {
    struct status *status;
};

struct TF_Tensor {
    struct tensor value;
};

struct local_cluster;
struct local_plugin;

struct TF_DeprecatedSession {
    struct call_loop calls;     /* the threads that are in calls */
    struct grpc_client *client; /* NULL: a local session, which has: */
    const struct local_plugin *local;
    struct local_cluster *cluster;
    char *target;
    struct str config;
    int64_t timeout_ms;
    pthread_mutex_t lock; /* guards what follows, and is held while the graph is sent */
    struct str handle;    /* set once */
    int64_t graph_version;
    bool is_closed;
};

/* A call of a method of the session's master, until its end has been told. */
struct master_call {
    struct grpc_client_call *remote;
    struct grpc_inproc *local;
};

/* Starts a call, whose end on_done is told, never inside this call. The body's contents are moved
 * out. Loop thread. */
void session_start_call(TF_DeprecatedSession *session, const char *path, struct grpc_body *body,
                        grpc_done_fn *on_done, void *arg, struct master_call *ret);
/* on_done follows with CANCELLED. Loop thread. */
void session_cancel_call(TF_DeprecatedSession *session, const struct master_call *call);
/* Creates the session at the master unless that has been done. Afterwards its handle may be read
 * without the lock. Errors: FAILED_PRECONDITION, it is closed; those of the master. */
struct status *session_open(TF_DeprecatedSession *session) MUST_USE;
/* Calls a method of the master and waits for the reply. On success the reply's buffer is the
 * caller's. Any thread. */
struct status *session_call(TF_DeprecatedSession *session, const char *method,
                            const struct str *request, struct grpc_message *ret) MUST_USE;

/* Adds the nodes of a GraphDef; the first call creates the session at the master. Any thread. */
struct status *session_add_graph(TF_DeprecatedSession *session, struct span graph_def) MUST_USE;
/* INVALID_ARGUMENT: "TF_Function: what is NULL". */
COLD struct status *null_refused(const char *function, const char *what) MUST_USE;

/* Sets the caller's TF_Status, unless it is NULL; takes `status_take`. */
void tf_status_set(TF_Status *to, struct status *status_take);

#endif
