/* The master service's methods: see service.h. RunStep's way is in step.c. */
#include "master/service.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/graph/graph_proto.h"
#include "common/tensor/tensor_proto.h"
#include "master/request.h"
#include "master/step.h"
#include "proto/worker.pb-c.h"

enum { TICK_MS = 250, MAX_REFUSED_BYTES = 256 << 20 };

static struct metric sessions_gauge = METRIC_GAUGE_INIT("millrace_sessions", "Open sessions");
static struct metric sessions_total = METRIC_COUNTER_INIT("millrace_sessions_total", "Sessions created");

void service_options_default(struct service_options *options) {
    *options = (struct service_options){.listen = "127.0.0.1:2222",
                                        .task_wait_ms = 10000,
                                        .session_ttl_ms = 3600 * 1000,
                                        .max_sessions = 10000,
                                        .max_steps = 100000,
                                        .max_nodes = 1000000,
                                        .max_executables = 1000};
    grpc_server_limits_default(&options->limits);
    compile_options_default(&options->compile);
}

/* ---- small helpers ---- */

static void reply_str(struct grpc_call *call, const struct str *message) {
    struct grpc_body body;
    grpc_body_init(&body);
    if (message && message->len)
        grpc_body_add_copy(&body, message->data, message->len);
    grpc_call_reply(call, &body);
    grpc_body_fini(&body);
}

/* The first field of that number, length-delimited; empty when absent. */
static struct status *find_field(struct span message, uint32_t number, struct span *ret) {
    struct proto_field field;
    int more;
    *ret = (struct span){"", 0};
    while ((more = proto_next(&message, &field)) > 0)
        if (field.number == number && field.wire_type == 2)
            *ret = field.bytes;
    return more < 0 ? status_invalid("Malformed request: a field is cut short or has an unknown wire type") : NULL;
}

struct session *service_find_session(struct service *service, struct span handle) {
    return strmap_get_span(&service->by_handle, handle);
}

static struct status *session_gone(struct span handle) {
    return status_new(STATUS_ABORTED, "Session %.*s is not found. Possibly, this master has restarted.", (int)MIN(handle.len, (size_t)128),
                      handle.data);
}

static struct status *find_called_session(struct service *service, struct grpc_call *call, struct span *ret_handle, struct session **ret) {
    TRY(find_field(grpc_call_message(call)->body, 1, ret_handle));
    *ret = service_find_session(service, *ret_handle);
    if (!*ret)
        return session_gone(*ret_handle);
    (*ret)->last_connection = grpc_call_connection_id(call);
    (*ret)->orphaned_since_ms = 0;
    return NULL;
}

/* ---- CreateSession and ExtendSession ---- */

/* What both do on the pool. */
struct graph_job {
    struct session_job job;
    struct grpc_call *call;      /* NULL once the client gave up */
    struct grpc_message message; /* one reference: graph_def lies in it */
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

/* A graph gives memory back only as a whole: what refused parts of it hold adds up until the session ends. */
static size_t held_bytes(const struct graph *graph, int first_tensor) {
    size_t size = graph->arena.size_bytes;
    for (int i = first_tensor; i < graph->n_tensors; i++)
        size += tensor_size_bytes(graph->tensors[i]);
    return size;
}

static void graph_add(struct graph_job *job, struct session *session) {
    struct graph_limits limits;
    int n_before = session->graph.n_nodes;
    if (!job->is_create && job->expected_version != session->graph_version) {
        job->status = status_new(STATUS_ABORTED, "Current version is %lld but caller expected %lld.", (long long)session->graph_version,
                                 (long long)job->expected_version);
        return;
    }
    graph_limits_default(&limits);
    limits.max_nodes = session->service->options.max_nodes;
    job->status = graph_add_graphdef(&session->graph, job->graph_def, &limits);
    if (job->status)
        return;
    job->status = place_session(&session->graph, session->devices, &session->options);
    if (job->status)
        rollback(&session->graph, n_before);
}

static void graph_work(struct session_job *session_job) {
    struct graph_job *job = CONTAINER_OF(session_job, struct graph_job, job);
    struct session *session = session_job->session;
    int first_tensor = session->graph.n_tensors;
    size_t before = held_bytes(&session->graph, first_tensor);
    if (session->refused_bytes > MAX_REFUSED_BYTES) {
        job->status = status_exhausted("Session %s holds %zu MiB of graphs that were refused; create a new one", session->handle,
                                       session->refused_bytes >> 20);
        return;
    }
    graph_add(job, session);
    if (job->status)
        session->refused_bytes += held_bytes(&session->graph, first_tensor) - before;
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
        session_close(session, job->status);
    } else if (job->is_create && job->call == NULL) {
        struct status *why = status_new(STATUS_CANCELLED, "the client gave up creating the session");
        session_close(session, why);
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
            reply_str(job->call, &reply);
    }
    str_fini(&reply);
    status_unref(job->status);
    buffer_unref(job->message.buffer);
    free(job);
}

/* The job goes on without its client; what it changed stays (extend) or is closed (create). */
static void graph_call_cancelled(struct grpc_call *call, void *user) {
    struct graph_job *job = user;
    job->call = NULL;
    grpc_call_fail(call, status_new(STATUS_CANCELLED, "the client gave up"));
}

static void start_graph_job(struct session *session, struct grpc_call *call, struct span graph_def, bool is_create,
                            int64_t expected_version) {
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

static struct status *read_graph_options(struct span options, struct session *session) {
    struct proto_field field, inner;
    int more;
    while ((more = proto_next(&options, &field)) > 0) {
        if (field.number != 3 || field.wire_type != 2)
            continue;
        struct span optimizer = field.bytes;
        int more_inner;
        while ((more_inner = proto_next(&optimizer, &inner)) > 0)
            if (inner.number == 3 && inner.wire_type == 0 && (int32_t)inner.value == -1) /* OptimizerOptions.L0 */
                session->options.no_fold = session->options.no_cse = true;
        if (more_inner < 0)
            return status_invalid("Malformed ConfigProto.graph_options.optimizer_options");
    }
    return more < 0 ? status_invalid("Malformed ConfigProto.graph_options") : NULL;
}

/* The fields of ConfigProto that mean something here; docs/compatibility.md lists them all. */
static struct status *read_config(struct span config, struct session *session) {
    struct proto_field field;
    int more;
    while ((more = proto_next(&config, &field)) > 0) {
        switch (field.number) {
        case 7:
            session->options.allow_soft_placement = field.value != 0;
            break;
        case 10:
            if (field.wire_type == 2)
                TRY(read_graph_options(field.bytes, session));
            break;
        case 11:
            session->operation_timeout_ms = (int64_t)field.value;
            break;
        case 15:
            if (field.wire_type == 0 && field.value)
                return status_unimplemented("ConfigProto.isolate_session_state is not implemented yet");
            break;
        }
    }
    return more < 0 ? status_invalid("Malformed ConfigProto") : NULL;
}

static struct status *create_session(struct service *service, struct grpc_call *call) {
    struct span body = grpc_call_message(call)->body, graph_def, config;
    if (service->is_draining)
        return status_unavailable("This master is shutting down");
    if (service->n_sessions >= service->options.max_sessions)
        return status_exhausted("There are %d sessions already, the limit (--max-sessions)", service->n_sessions);
    TRY(find_field(body, 1, &graph_def));
    TRY(find_field(body, 2, &config));
    struct session *session = session_new(service);
    struct status *st = read_config(config, session);
    if (st) {
        session_unref(session);
        return st;
    }
    list_push_back(&service->sessions, &session->link);
    strmap_put(&service->by_handle, session->handle, session);
    service->n_sessions++;
    session->last_connection = grpc_call_connection_id(call);
    metric_set(&sessions_gauge, service->n_sessions);
    metric_add(&sessions_total, 1);
    start_graph_job(session, call, graph_def, true, 0);
    return NULL;
}

static void on_extend_session(void *arg, struct grpc_call *call) {
    struct service *service = arg;
    struct session *session;
    struct span handle, graph_def, body = grpc_call_message(call)->body;
    struct proto_field field;
    int64_t version = 0;
    struct status *st = find_called_session(service, call, &handle, &session);
    if (!st)
        st = find_field(body, 2, &graph_def);
    if (st) {
        grpc_call_fail(call, st);
        return;
    }
    while (proto_next(&body, &field) > 0)
        if (field.number == 3 && field.wire_type == 0)
            version = (int64_t)field.value;
    start_graph_job(session, call, graph_def, false, version);
}

/* ---- calls that wait for tasks ---- */

struct waiting_call {
    struct list link; /* service->waiting_creates */
    struct grpc_call *call;
    int64_t until_ns;
    struct status *(*go)(struct service *service, struct grpc_call *call);
};

static void waiting_cancelled(struct grpc_call *call, void *user) {
    struct waiting_call *waiting = user;
    list_remove(&waiting->link);
    free(waiting);
    grpc_call_fail(call, status_new(STATUS_CANCELLED, "the client gave up"));
}

static void fail_if(struct grpc_call *call, struct status *st) {
    if (st)
        grpc_call_fail(call, st);
}

static void when_tasks_are_ready(struct service *service, struct grpc_call *call,
                                 struct status *(*go)(struct service *, struct grpc_call *)) {
    if (tasks_all_ready(service->tasks)) {
        fail_if(call, go(service, call));
        return;
    }
    struct waiting_call *waiting = xcalloc(1, sizeof *waiting);
    waiting->call = call;
    waiting->go = go;
    waiting->until_ns = clock_now_ns() + service->options.task_wait_ms * 1000000;
    list_push_back(&service->waiting_creates, &waiting->link);
    grpc_call_set_user(call, waiting, waiting_cancelled);
}

/* Lets waiting calls go on when all tasks are there, and fails those that waited too long. */
static void review_waiting(struct service *service) {
    bool all_ready = tasks_all_ready(service->tasks);
    int64_t now_ns = clock_now_ns();
    LIST_FOR_EACH_SAFE (link, next, &service->waiting_creates) {
        struct waiting_call *waiting = LIST_ENTRY(link, struct waiting_call, link);
        if (!all_ready && now_ns < waiting->until_ns)
            continue;
        struct grpc_call *call = waiting->call;
        struct status *(*go)(struct service *, struct grpc_call *) = waiting->go;
        list_remove(&waiting->link);
        free(waiting);
        grpc_call_set_user(call, NULL, NULL);
        if (all_ready) {
            fail_if(call, go(service, call));
            continue;
        }
        struct str missing = STR_INIT;
        tasks_describe_missing(service->tasks, &missing);
        grpc_call_fail(call, status_unavailable("Waited %.1f s for tasks of the cluster that are missing: %s",
                                                (double)service->options.task_wait_ms / 1000, str_text(&missing)));
        str_fini(&missing);
    }
}

static void on_create_session(void *arg, struct grpc_call *call) { when_tasks_are_ready(arg, call, create_session); }

/* ---- the other methods ---- */

static void on_run_step(void *arg, struct grpc_call *call) {
    struct service *service = arg;
    struct run_step_request request;
    struct arena arena;
    arena_init(&arena);
    struct status *st = run_step_request_parse(grpc_call_message(call)->body, &arena, &request);
    struct session *session = st ? NULL : service_find_session(service, request.session_handle);
    if (!st && !session)
        st = session_gone(request.session_handle);
    if (!st && request.partial_run_handle.len)
        st = status_unimplemented("Partial runs are not implemented yet");
    if (!st && service->n_steps >= service->options.max_steps)
        st = status_exhausted("There are %d steps in flight already, the limit (--max-steps)", service->n_steps);
    if (!st && !session_note_request(session, request.request_id))
        st = status_new(STATUS_ABORTED, "The same RunStep (Master) request was received twice: request id %lld",
                        (long long)request.request_id);
    if (!st && request.n_fetches == 0 && request.n_targets == 0)
        st = status_invalid("Must specify at least one target to fetch or execute.");
    if (st) {
        grpc_call_fail(call, st);
        arena_fini(&arena);
        return;
    }
    session->last_connection = grpc_call_connection_id(call);
    session->orphaned_since_ms = 0;
    step_run(session, call, &request, &arena);
    arena_fini(&arena);
}

static void on_close_session(void *arg, struct grpc_call *call) {
    struct service *service = arg;
    struct session *session;
    struct span handle;
    struct status *st = find_called_session(service, call, &handle, &session);
    if (st) {
        grpc_call_fail(call, st);
        return;
    }
    struct status *why = status_new(STATUS_CANCELLED, "Step was cancelled by an explicit call to `Session::Close()`.");
    session_close(session, why);
    status_unref(why);
    metric_set(&sessions_gauge, service->n_sessions);
    reply_str(call, NULL);
}

static void add_device(const struct device_info *device, uint32_t field, struct str *out) {
    struct str message = STR_INIT;
    uint64_t incarnation = device->incarnation;
    proto_add_bytes(&message, 1, device->full_name, strlen(device->full_name));
    proto_add_bytes(&message, 2, device->type, strlen(device->type));
    proto_add_int(&message, 4, (uint64_t)device->memory_limit_bytes);
    proto_add_tag(&message, 5, 2);
    proto_add_varint(&message, 0);
    proto_add_tag(&message, 6, 1);
    str_add_bytes(&message, &incarnation, sizeof incarnation);
    proto_add_bytes(&message, 7, device->description, strlen(device->description));
    proto_add_int(&message, 8, (uint64_t)(int64_t)-1);
    proto_add_bytes(out, field, message.data, message.len);
    str_fini(&message);
}

static struct status *list_devices(struct service *service, struct grpc_call *call) {
    struct span handle;
    struct str reply = STR_INIT;
    TRY(find_field(grpc_call_message(call)->body, 1, &handle));
    if (handle.len && !service_find_session(service, handle))
        return status_invalid("Session %.*s is not found. Possibly, this master has restarted.", (int)MIN(handle.len, (size_t)128),
                              handle.data);
    struct device_table *devices = tasks_devices(service->tasks);
    int local = devices->default_device < 0 ? -1 : devices->devices[devices->default_device].task;
    for (int i = 0; i < devices->n_devices; i++)
        add_device(&devices->devices[i], devices->devices[i].task == local ? 1 : 2, &reply);
    reply_str(call, &reply);
    str_fini(&reply);
    device_table_unref(devices);
    return NULL;
}

static void on_list_devices(void *arg, struct grpc_call *call) { when_tasks_are_ready(arg, call, list_devices); }

static void on_unimplemented(void *arg, struct grpc_call *call) {
    const char *method = strrchr(grpc_call_path(call), '/');
    grpc_call_fail(call, status_unimplemented("%s is not implemented yet", method ? method + 1 : grpc_call_path(call)));
}

/* ---- Reset ---- */

struct reset_part {
    struct task_call call;
    struct reset *reset;
};

struct reset {
    struct grpc_call *call;
    int n_waiting;
    struct status *status;
    struct reset_part parts[];
};

static void reset_settle(struct reset *reset) {
    if (--reset->n_waiting > 0)
        return;
    if (reset->call && reset->status)
        grpc_call_fail(reset->call, status_ref(reset->status));
    else if (reset->call)
        reply_str(reset->call, NULL);
    status_unref(reset->status);
    free(reset);
}

static void on_reset_reply(struct task_call *call, struct status *status_take, struct wire_message *message) {
    struct reset *reset = CONTAINER_OF(call, struct reset_part, call)->reset;
    if (status_take && !reset->status)
        reset->status = status_take;
    else
        status_unref(status_take);
    reset_settle(reset);
}

static void reset_cancelled(struct grpc_call *call, void *user) {
    struct reset *reset = user;
    reset->call = NULL;
    grpc_call_fail(call, status_new(STATUS_CANCELLED, "the client gave up"));
}

/* Closes every session, then drops the named containers on all tasks; the default one when none is named. */
static void on_reset(void *arg, struct grpc_call *call) {
    struct service *service = arg;
    struct span body = grpc_call_message(call)->body;
    struct proto_field field;
    struct str meta = STR_INIT;
    int more;
    while ((more = proto_next(&body, &field)) > 0)
        if (field.number == 1 && field.wire_type == 2)
            proto_add_bytes(&meta, 1, field.bytes.data, field.bytes.len);
    if (more < 0) {
        grpc_call_fail(call, status_invalid("Malformed ResetRequest"));
        str_fini(&meta);
        return;
    }
    if (meta.len == 0)
        proto_add_bytes(&meta, 1, "", 0); /* a worker calls its default container so */
    struct status *why = status_new(STATUS_CANCELLED, "The session was closed by a Reset of the cluster");
    while (!list_is_empty(&service->sessions))
        session_close(LIST_ENTRY(service->sessions.next, struct session, link), why);
    status_unref(why);
    metric_set(&sessions_gauge, service->n_sessions);
    int n = tasks_count(service->tasks);
    struct reset *reset = xcalloc(1, sizeof *reset + (size_t)n * sizeof reset->parts[0]);
    reset->call = call;
    reset->n_waiting = n + 1;
    grpc_call_set_user(call, reset, reset_cancelled);
    for (int i = 0; i < n; i++) {
        struct wire_out out = {.type = WIRE_RESET, .meta = {meta.data, meta.len}};
        reset->parts[i].reset = reset;
        reset->parts[i].call.on_reply = on_reset_reply;
        task_call_start(tasks_at(service->tasks, i), &reset->parts[i].call, &out);
    }
    str_fini(&meta);
    reset_settle(reset);
}

/* ---- the service ---- */

#define METHOD(name, handler, align) \
    {"/tensorflow.MasterService/" name, handler, align}, { "/tensorflow.grpc.MasterService/" name, handler, align }
// clang-format off
static const struct grpc_method methods[] = {
    METHOD("RunStep", on_run_step, run_step_request_align),
    METHOD("CreateSession", on_create_session, NULL),
    METHOD("ExtendSession", on_extend_session, NULL),
    METHOD("CloseSession", on_close_session, NULL),
    METHOD("ListDevices", on_list_devices, NULL),
    METHOD("Reset", on_reset, NULL),
    METHOD("PartialRunSetup", on_unimplemented, NULL),
    METHOD("MakeCallable", on_unimplemented, NULL),
    METHOD("RunCallable", on_unimplemented, NULL),
    METHOD("ReleaseCallable", on_unimplemented, NULL),
};
// clang-format on

static void on_task_ready(void *arg, struct task *task) { review_waiting(arg); }
static void on_task_lost(void *arg, struct task *task) {}

/* A session whose client's connection closed is collected later, unless another connection uses it meanwhile. */
static void on_connection_closed(void *arg, uint64_t connection_id) {
    struct service *service = arg;
    LIST_FOR_EACH (link, &service->sessions) {
        struct session *session = LIST_ENTRY(link, struct session, link);
        if (session->last_connection == connection_id)
            session->orphaned_since_ms = clock_now_ns() / 1000000;
    }
}

static void on_tick(struct loop_timer *timer) {
    struct service *service = CONTAINER_OF(timer, struct service, timer);
    int64_t now_ms = clock_now_ns() / 1000000;
    review_waiting(service);
    LIST_FOR_EACH_SAFE (link, next, &service->sessions) {
        struct session *session = LIST_ENTRY(link, struct session, link);
        if (session->orphaned_since_ms == 0 || session->n_steps > 0 ||
            now_ms - session->orphaned_since_ms < service->options.session_ttl_ms)
            continue;
        struct status *why = status_new(STATUS_CANCELLED, "The session was collected: its client has been gone for too long");
        log_info("session %s is collected: its client has been gone for %lld s", session->handle,
                 (long long)(now_ms - session->orphaned_since_ms) / 1000);
        session_close(session, why);
        status_unref(why);
    }
    metric_set(&sessions_gauge, service->n_sessions);
}

struct status *service_new(struct loop *loop, struct pool *pool, const struct cluster_spec *cluster, const struct service_options *options,
                           struct service **ret) {
    struct service *service = xcalloc(1, sizeof *service);
    service->loop = loop;
    service->pool = pool;
    service->options = *options;
    service->incarnation = random_u64();
    list_init(&service->sessions);
    list_init(&service->live_steps);
    list_init(&service->waiting_creates);
    strmap_init(&service->by_handle);
    struct grpc_server_options server_options = {.methods = methods,
                                                 .n_methods = ARRAY_LEN(methods),
                                                 .service = service,
                                                 .on_connection_closed = on_connection_closed,
                                                 .limits = options->limits};
    struct status *st = grpc_server_new(loop, options->listen, &server_options, &service->server);
    if (st) {
        strmap_fini(&service->by_handle);
        free(service);
        return st;
    }
    metrics_register(&sessions_gauge);
    metrics_register(&sessions_total);
    step_metrics_register();
    service->tasks = tasks_new(loop, cluster, service->incarnation, on_task_ready, on_task_lost, service);
    loop_timer_init(loop, &service->timer, on_tick);
    loop_timer_start(&service->timer, TICK_MS, TICK_MS);
    *ret = service;
    return NULL;
}

void service_drain(struct service *service, void (*on_drained)(void *arg), void *arg) {
    service->is_draining = true;
    grpc_server_drain(service->server, on_drained, arg);
}

static void timer_closed(struct loop_timer *timer) {
    struct service *service = CONTAINER_OF(timer, struct service, timer);
    strmap_fini(&service->by_handle);
    free(service);
}

static void server_closed(void *arg) {
    struct service *service = arg;
    tasks_free(service->tasks);
    service->tasks = NULL;
    loop_timer_close(&service->timer, timer_closed);
}

void service_free(struct service *service) {
    struct status *why = status_new(STATUS_CANCELLED, "the master is stopping");
    while (!list_is_empty(&service->sessions))
        session_close(LIST_ENTRY(service->sessions.next, struct session, link), why);
    status_unref(why);
    loop_timer_stop(&service->timer);
    grpc_server_close(service->server, server_closed, service);
}

/* ---- pages ---- */

bool service_is_ready(struct service *service, struct str *why_not) {
    if (service->is_draining)
        str_add(why_not, "shutting down");
    else if (!tasks_all_ready(service->tasks)) {
        struct str missing = STR_INIT;
        tasks_describe_missing(service->tasks, &missing);
        str_addf(why_not, "missing tasks: %s", str_text(&missing));
        str_fini(&missing);
    }
    return why_not->len == 0;
}

void service_describe(struct service *service, struct str *out) {
    str_addf(out, "{\"incarnation\": \"%016llx\", \"draining\": %s, \"sessions\": %d, \"steps\": %d, \"tasks\": ",
             (unsigned long long)service->incarnation, service->is_draining ? "true" : "false", service->n_sessions, service->n_steps);
    tasks_describe(service->tasks, out);
    str_addf(out,
             ", \"limits\": {\"max_sessions\": %d, \"max_steps\": %d, \"max_nodes\": %d, \"max_executables\": %d, \"task_wait_ms\": %lld, "
             "\"session_ttl_ms\": %lld}}",
             service->options.max_sessions, service->options.max_steps, service->options.max_nodes, service->options.max_executables,
             (long long)service->options.task_wait_ms, (long long)service->options.session_ttl_ms);
}

void service_describe_steps(struct service *service, struct str *out) {
    LIST_FOR_EACH (link, &service->sessions) {
        const struct session *session = LIST_ENTRY(link, struct session, link);
        LIST_FOR_EACH (step_link, &session->steps)
            step_describe(step_of_session_link(step_link), out);
    }
}
