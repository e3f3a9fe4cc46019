/* CreateSession and ExtendSession: adds a graph in a job on a pool thread and answers the client
 * when it is done. Also ends sessions. */
#include <stdlib.h>

#include "common/graph/graph_proto.h"
#include "common/tensor/tensor_proto.h"
#include "kernels/infer_eval.h"
#include "master/request/budgets.h"
#include "master/request/request.h"
#include "master/service/service_internal.h"
#include "master/step/partial_run.h"
#include "master/step/step.h"

/* The job of both methods. */
struct graph_job {
    struct session_job job;
    struct grpc_call *call;      /* NULL once the client has cancelled the call */
    struct grpc_message message; /* one reference: graph_def is part of it */
    struct span graph_def;
    bool is_create;
    int64_t expected_version;
    struct status *status;
};

static void rollback(struct graph *graph, int n_before) {
    for (int id = graph->n_nodes - 1; id >= n_before; id--)
        if (!graph->nodes[id]->is_removed)
            graph_remove_node(graph, graph->nodes[id]);
}

/* A graph frees its memory only as a whole, so the memory of refused parts adds up until the
 * session ends. */
static size_t held_bytes(const struct session *session, int first_tensor) {
    const struct graph *graph = &session->graph;
    size_t size = graph->arena.size_bytes + session->shapes.arena.size_bytes;
    for (int i = first_tensor; i < graph->n_tensors; i++)
        size += tensor_size_bytes(graph->tensors[i]);
    return size;
}

/* A graph whose shapes cannot fit is accepted, as TensorFlow's servers do, unless --check-shapes is
 * set. */
static struct status *infer_shapes(struct session *session) {
    struct infer_options options;
    infer_options_with_kernels(&options);
    options.refuses = session->env->options.check_shapes;
    return graph_infer_shapes(&session->graph, &session->shapes, &options);
}

static void graph_add(struct graph_job *job, struct session *session) {
    struct graph_limits limits;
    int n_before = session->graph.n_nodes;
    if (!job->is_create && job->expected_version != session->graph_version) {
        job->status =
            status_new(STATUS_ABORTED, "Current version is %lld but caller expected %lld.",
                       (long long)session->graph_version, (long long)job->expected_version);
        return;
    }
    graph_limits_default(&limits);
    limits.max_nodes = session->env->options.max_nodes;
    job->status = graph_add_graphdef(&session->graph, job->graph_def, &limits);
    if (status_code(job->status) == STATUS_RESOURCE_EXHAUSTED)
        budget_count(BUDGET_NODES);
    if (job->status)
        return;
    job->status = place_session(&session->graph, session->devices, &session->options);
    if (!job->status)
        job->status = infer_shapes(session);
    if (job->status)
        rollback(&session->graph, n_before);
}

static void graph_work(struct session_job *session_job) {
    struct graph_job *job = CONTAINER_OF(session_job, struct graph_job, job);
    struct session *session = session_job->session;
    int first_tensor = session->graph.n_tensors;
    size_t before = held_bytes(session, first_tensor);
    if (session->refused_bytes > SERVICE_MAX_REFUSED_BYTES) {
        job->status = status_exhausted(
            "Session %s holds %zu MiB of graphs that were refused; create a new one",
            session->handle, session->refused_bytes >> 20);
        return;
    }
    graph_add(job, session);
    if (job->status)
        session->refused_bytes += held_bytes(session, first_tensor) - before;
}

void service_end_session(struct session *session, struct status *why) {
    struct service *service = session->env->service;
    if (!session_begin_close(session))
        return;
    if (strmap_remove(&service->by_handle, session->handle)) {
        list_remove(&session->link);
        service->n_sessions--;
    }
    steps_cancel_all(session, why);
    partial_runs_drop(session);
    session_end_close(session);
}

static void graph_done(struct session_job *session_job) {
    struct graph_job *job = CONTAINER_OF(session_job, struct graph_job, job);
    struct session *session = session_job->session;
    struct str reply = STR_INIT;
    if (!job->status && !job->is_create)
        session->graph_version++;
    if (!job->status && session->is_closed)
        job->status = status_new(STATUS_CANCELLED, "Session %s was closed", session->handle);
    if (job->is_create && job->status) {
        service_end_session(session, job->status);
    } else if (job->is_create && job->call == NULL) {
        struct status *why =
            status_new(STATUS_CANCELLED, "the client cancelled the creation of the session");
        service_end_session(session, why);
        status_unref(why);
    }
    if (job->call) {
        if (job->is_create) {
            proto_add_bytes(&reply, 1, session->handle, strlen(session->handle));
            proto_add_int(&reply, 2, (uint64_t)session->graph_version);
        } else {
            proto_add_int(&reply, 4, (uint64_t)session->graph_version);
        }
        if (job->status)
            grpc_call_fail(job->call, status_ref(job->status));
        else
            service_reply(job->call, &reply);
    }
    str_fini(&reply);
    status_unref(job->status);
    buffer_unref(job->message.buffer);
    free(job);
}

/* The job continues without its client. An extension stays; a new session is closed. */
static void graph_call_cancelled(struct grpc_call *call, void *user) {
    struct graph_job *job = user;
    job->call = NULL;
    grpc_call_fail(call, status_new(STATUS_CANCELLED, "the client cancelled the call"));
}

static void start_graph_job(struct session *session, struct grpc_call *call, struct span graph_def,
                            bool is_create, int64_t expected_version) {
    struct graph_job *job = xcalloc(1, sizeof *job);
    job->call = call;
    job->message = *grpc_call_message(call);
    if (job->message.buffer)
        buffer_ref(job->message.buffer);
    job->graph_def = graph_def;
    job->is_create = is_create;
    job->expected_version = expected_version;
    job->job.work = graph_work;
    job->job.done = graph_done;
    grpc_call_set_user(call, job, graph_call_cancelled);
    session_run_job(session, &job->job);
}

static struct status *check_create(struct service *service, struct grpc_call *call,
                                   struct span *ret_graph_def) {
    if (service->is_draining)
        return status_unavailable("This master is shutting down");
    if (service->n_sessions >= service->env.options.max_sessions)
        return budget_refused(
            BUDGET_SESSIONS,
            status_exhausted("There are %d sessions already, the limit (--max-sessions)",
                             service->n_sessions));
    return request_find_bytes(grpc_call_message(call)->body, 1, ret_graph_def);
}

struct status *service_create_session(struct service *service, struct grpc_call *call,
                                      const struct session_config *config,
                                      struct session_cluster *cluster_take) {
    struct span graph_def;
    struct status *st = check_create(service, call, &graph_def);
    if (st) {
        session_cluster_free(cluster_take);
        return st;
    }
    struct session *session = session_new(cluster_take ? &cluster_take->env : &service->env, config,
                                          service_session_ended);
    service->n_held_sessions++;
    if (session->devices->n_devices == 0) {
        session_unref(session);
        return status_invalid("No task of the cluster matches ConfigProto.device_filters");
    }
    list_push_back(&service->sessions, &session->link);
    strmap_put(&service->by_handle, session->handle, session);
    service->n_sessions++;
    session->last_connection = grpc_call_connection_id(call);
    session->client = client_ids_of(&service->clients, session->last_connection);
    metric_set(&service_sessions_gauge, service->n_sessions);
    metric_add(&service_sessions_total, 1);
    start_graph_job(session, call, graph_def, true, 0);
    return NULL;
}

void service_extend_session(void *arg, struct grpc_call *call) {
    struct service *service = arg;
    struct session *session;
    struct span handle, graph_def, body = grpc_call_message(call)->body;
    struct proto_field field;
    int64_t version = 0;
    struct status *st = service_called_session(service, call, &handle, &session);
    if (!st)
        st = request_find_bytes(body, 2, &graph_def);
    if (st) {
        grpc_call_fail(call, st);
        return;
    }
    while (proto_next(&body, &field) > 0)
        if (field.number == 3 && field.wire_type == 0)
            version = (int64_t)field.value;
    start_graph_job(session, call, graph_def, false, version);
}
