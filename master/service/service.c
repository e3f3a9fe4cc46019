/* Implements the master service: the method table, calls that wait for tasks, RunStep and the small
 * methods. */
#include "master/service/service.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/tensor/tensor_proto.h"
#include "common/tensor/trim.h"
#include "master/compile/cost/link_table.h"
#include "master/request/budgets.h"
#include "master/step/callable.h"
#include "master/step/partial_run.h"
#include "master/request/request.h"
#include "master/service/service_internal.h"
#include "master/session/step_log.h"
#include "master/step/step.h"
#include "rpc/daemon/page.h"
#include "rpc/wire/heartbeat.h"

enum {
    TICK_MS = 250,
    MAX_LINKS_SHOWN = 1000, /* on /statusz */
};

struct metric service_sessions_gauge = METRIC_GAUGE_INIT("millrace_sessions", "Open sessions");
struct metric service_sessions_total =
    METRIC_COUNTER_INIT("millrace_sessions_total", "Sessions created");

void master_options_default(struct master_options *options) {
    *options = (struct master_options){.listen = "127.0.0.1:2222",
                                       .task_wait_ms = 10000,
                                       .save_wait_ms = 10000,
                                       .heartbeat_ms = HEARTBEAT_DEFAULT_MS,
                                       .session_ttl_ms = 3600 * 1000,
                                       .max_sessions = 10000,
                                       .max_steps = 100000,
                                       .max_session_steps = 10000,
                                       .session_clusters = SESSION_CLUSTERS_OWN,
                                       .max_session_clusters = 64,
                                       .max_nodes = 1000000,
                                       .max_executables = 1000};
    grpc_server_limits_default(&options->limits);
    compile_options_default(&options->compile);
}

/* ---- small helpers ---- */

void service_reply(struct grpc_call *call, const struct str *message) {
    struct grpc_body body;
    grpc_body_init(&body);
    if (message && message->len)
        grpc_body_add_copy(&body, message->data, message->len);
    grpc_call_reply(call, &body);
    grpc_body_fini(&body);
}

/* Borrowed; NULL if there is no session of that handle. */
static struct session *find_session(struct service *service, struct span handle) {
    return strmap_get_span(&service->by_handle, handle);
}

static COLD struct status *no_session(struct span handle) {
    return status_new(STATUS_ABORTED,
                      "Session %.*s is not found. Possibly, this master has restarted.",
                      (int)MIN(handle.len, (size_t)128), handle.data);
}

static void saw_client(struct service *service, struct session *session, uint64_t connection) {
    if (session->last_connection != connection)
        client_ids_note(&service->clients, connection, session->client);
    session->last_connection = connection;
    session->orphaned_since_ms = 0;
}

struct status *service_called_session(struct service *service, struct grpc_call *call,
                                      struct span *ret_handle, struct session **ret) {
    TRY(request_find_bytes(grpc_call_message(call)->body, 1, ret_handle));
    *ret = find_session(service, *ret_handle);
    if (!*ret)
        return no_session(*ret_handle);
    saw_client(service, *ret, grpc_call_connection_id(call));
    return NULL;
}

/* ---- calls that wait for tasks ---- */

struct waiting_call {
    struct list link; /* service->waiting_creates */
    struct grpc_call *call;
    struct session_config config;    /* all zero: every task is waited for */
    struct session_cluster *cluster; /* whose tasks are waited for; NULL: the master's */
    int64_t until_ns;
    bool only_tried; /* the tasks need not be ready: tasks_all_tried is enough */
    task_call_fn *go;
};

static void waiting_free(struct waiting_call *waiting) {
    list_remove(&waiting->link);
    session_cluster_free(waiting->cluster);
    session_config_fini(&waiting->config);
    free(waiting);
}

static void waiting_cancelled(struct grpc_call *call, void *user) {
    waiting_free(user);
    grpc_call_fail(call, status_new(STATUS_CANCELLED, "the client cancelled the call"));
}

static void fail_if(struct grpc_call *call, struct status *st) {
    if (st)
        grpc_call_fail(call, st);
}

static struct tasks *tasks_of(struct service *service, struct session_cluster *cluster) {
    return cluster ? cluster->env.tasks : service->env.tasks;
}

static struct status *tell_missing(struct service *service, const struct session_config *config,
                                   struct session_cluster *cluster) {
    struct str missing = STR_INIT;
    tasks_describe_missing(tasks_of(service, cluster), config, &missing);
    struct status *st =
        status_unavailable("Waited %.1f s for tasks of the %scluster that are missing: %s",
                           (double)service->env.options.task_wait_ms / 1000,
                           cluster ? "session's " : "", str_text(&missing));
    str_fini(&missing);
    return st;
}

static uint64_t key_of(struct grpc_call *call) {
    return retry_filter_key(grpc_call_connection_id(call), grpc_call_message(call)->body);
}

static bool take_retry(struct service *service, struct grpc_call *call) {
    int64_t now_ns = clock_now_ns();
    return retry_filter_any(&service->retries, now_ns) &&
           retry_filter_take(&service->retries, key_of(call), now_ns);
}

/* Repeats the answer to a call that has waited, to a retry of it. */
static struct status *tell_again(struct service *service, struct grpc_call *call,
                                 const struct session_config *config) {
    bool is_told = service->told && service->told_key == key_of(call);
    return is_told ? status_ref(service->told) : tell_missing(service, config, NULL);
}

static struct waiting_call *begin_waiting(struct service *service, struct grpc_call *call,
                                          task_call_fn *go) {
    struct waiting_call *waiting = xcalloc(1, sizeof *waiting);
    waiting->call = call;
    waiting->go = go;
    waiting->until_ns = clock_now_ns() + service->env.options.task_wait_ms * 1000000;
    list_push_back(&service->waiting_creates, &waiting->link);
    grpc_call_set_user(call, waiting, waiting_cancelled);
    return waiting;
}

static void when_tasks_are_ready(struct service *service, struct grpc_call *call,
                                 struct session_config *config_take, task_call_fn *go) {
    struct session_cluster *cluster = NULL;
    bool is_ready = !config_take->cluster && tasks_all_ready(service->env.tasks, config_take);
    bool is_retry = !is_ready && take_retry(service, call);
    struct status *st = is_retry               ? tell_again(service, call, config_take)
                        : is_ready             ? go(service, call, config_take, NULL)
                        : config_take->cluster ? session_cluster_new(service, config_take, &cluster)
                                               : NULL;
    if (is_ready || is_retry || st) {
        fail_if(call, st);
        session_config_fini(config_take);
        return;
    }
    struct waiting_call *waiting = begin_waiting(service, call, go);
    waiting->config = *config_take;
    waiting->cluster = cluster;
}

void service_when_tasks_are_tried(struct service *service, struct grpc_call *call,
                                  task_call_fn *go) {
    struct session_config every = {.filters = NULL};
    if (tasks_all_tried(service->env.tasks))
        fail_if(call, go(service, call, &every, NULL));
    else
        begin_waiting(service, call, go)->only_tried = true;
}

/* The call is about to be answered with `st` (borrowed), and its retries will be, too. */
static void note_told(struct service *service, struct grpc_call *call, struct status *st,
                      int64_t now_ns) {
    service->told_key = key_of(call);
    status_unref(service->told);
    service->told = status_ref(st);
    retry_filter_note(&service->retries, service->told_key, now_ns);
}

static bool may_go(const struct waiting_call *waiting, const struct tasks *tasks, int64_t now_ns) {
    if (waiting->only_tried)
        return tasks_all_tried(tasks) || now_ns >= waiting->until_ns;
    return tasks_all_ready(tasks, &waiting->config);
}

/* Continues waiting calls whose tasks are all ready, and fails those that have waited too long. */
static void review_waiting(struct service *service) {
    int64_t now_ns = clock_now_ns();
    LIST_FOR_EACH_SAFE (link, next, &service->waiting_creates) {
        struct waiting_call *waiting = LIST_ENTRY(link, struct waiting_call, link);
        struct tasks *tasks = tasks_of(service, waiting->cluster);
        bool is_ready = may_go(waiting, tasks, now_ns);
        struct status *st = waiting->cluster ? tasks_check_distinct(tasks) : NULL;
        if (!is_ready && !st && now_ns < waiting->until_ns)
            continue;
        struct grpc_call *call = waiting->call;
        struct session_cluster *cluster = waiting->cluster;
        grpc_call_set_user(call, NULL, NULL);
        if (!st && is_ready) {
            waiting->cluster = NULL;
            st = waiting->go(service, call, &waiting->config, cluster);
        } else if (!st) {
            st = tell_missing(service, &waiting->config, cluster);
            note_told(service, call, st, now_ns);
        }
        fail_if(call, st);
        waiting_free(waiting);
    }
}

static void on_create_session(void *arg, struct grpc_call *call) {
    struct session_config config = {.filters = NULL};
    struct span bytes;
    struct status *st = request_find_bytes(grpc_call_message(call)->body, 2, &bytes);
    if (!st)
        st = session_config_parse(bytes, &config);
    if (!st && grpc_call_relay_task(call))
        config.default_task = xstrdup(grpc_call_relay_task(call));
    if (!st)
        st = session_cluster_check(arg, call, &config);
    if (!st) {
        when_tasks_are_ready(arg, call, &config, service_create_session);
        return;
    }
    session_config_fini(&config);
    grpc_call_fail(call, st);
}

/* ---- the other methods ---- */

static struct status *check_steps(const struct session *session) {
    const struct master_env *env = session->env->home;
    if (env->n_steps >= env->options.max_steps)
        return budget_refused(
            BUDGET_STEPS,
            status_exhausted("There are %d steps in flight already, the limit (--max-steps)",
                             env->n_steps));
    if (session->n_steps >= env->options.max_session_steps)
        return budget_refused(
            BUDGET_SESSION_STEPS,
            status_exhausted(
                "The session has %d steps in flight already, the limit (--max-session-steps)",
                session->n_steps));
    return NULL;
}

static void on_run_step(void *arg, struct grpc_call *call) {
    struct service *service = arg;
    struct run_step_request request;
    struct arena arena;
    arena_init(&arena);
    struct status *st = run_step_request_parse(grpc_call_message(call)->body, &arena, &request);
    struct session *session = st ? NULL : find_session(service, request.session_handle);
    if (!st && !session)
        st = no_session(request.session_handle);
    if (!st)
        st = check_steps(session);
    if (!st)
        st = session_note_request(session, "RunStep (Master)", request.request_id);
    if (!st && request.n_fetches == 0 && request.n_targets == 0 &&
        request.partial_run_handle.len == 0)
        st = status_invalid("Must specify at least one target to fetch or execute.");
    if (st) {
        grpc_call_fail(call, st);
        arena_fini(&arena);
        return;
    }
    saw_client(service, session, grpc_call_connection_id(call));
    if (request.partial_run_handle.len > 0)
        partial_run_call(session, call, &request);
    else
        step_run(session, call, STEP_FORM_RUN, &request, &arena);
    arena_fini(&arena);
}

static void on_partial_run_setup(void *arg, struct grpc_call *call) {
    struct service *service = arg;
    struct run_step_request request;
    struct session *session = NULL;
    struct span handle;
    struct arena arena;
    arena_init(&arena);
    struct status *st = service_called_session(service, call, &handle, &session);
    if (!st)
        st = partial_run_setup_parse(grpc_call_message(call)->body, &arena, &request);
    if (!st)
        st = check_steps(session);
    if (!st && session->partial_runs.n_entries >= (size_t)service->env.options.max_steps)
        st = status_exhausted("The session has %d partial runs already, the limit (--max-steps)",
                              service->env.options.max_steps);
    if (!st)
        st = session_note_request(session, "PartialRunSetup", request.request_id);
    if (st)
        grpc_call_fail(call, st);
    else
        partial_run_setup(session, call, &request, &arena);
    arena_fini(&arena);
}

static void with_session(struct service *service, struct grpc_call *call, bool is_step,
                         void (*go)(struct session *session, struct grpc_call *call)) {
    struct session *session = NULL;
    struct span handle;
    struct status *st = service_called_session(service, call, &handle, &session);
    if (!st && is_step)
        st = check_steps(session);
    if (st)
        grpc_call_fail(call, st);
    else
        go(session, call);
}

static void on_make_callable(void *arg, struct grpc_call *call) {
    with_session(arg, call, false, callable_make);
}
static void on_run_callable(void *arg, struct grpc_call *call) {
    with_session(arg, call, true, callable_run);
}
static void on_release_callable(void *arg, struct grpc_call *call) {
    with_session(arg, call, false, callable_release);
}

static void on_close_session(void *arg, struct grpc_call *call) {
    struct service *service = arg;
    struct session *session;
    struct span handle;
    struct status *st = service_called_session(service, call, &handle, &session);
    if (st) {
        grpc_call_fail(call, st);
        return;
    }
    struct status *why = status_new(
        STATUS_CANCELLED, "Step was cancelled by an explicit call to `Session::Close()`.");
    service_end_session(session, why);
    status_unref(why);
    metric_set(&service_sessions_gauge, service->n_sessions);
    service_reply(call, NULL);
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

static void reply_devices(struct grpc_call *call, struct device_table *devices_take) {
    struct device_table *devices = devices_take;
    struct str reply = STR_INIT;
    int local = devices->default_device < 0 ? -1 : devices->devices[devices->default_device].task;
    for (int i = 0; i < devices->n_devices; i++)
        add_device(&devices->devices[i], devices->devices[i].task == local ? 1 : 2, &reply);
    service_reply(call, &reply);
    str_fini(&reply);
    device_table_unref(devices);
}

static struct status *list_all_devices(struct service *service, struct grpc_call *call,
                                       const struct session_config *config,
                                       struct session_cluster *cluster_take) {
    reply_devices(call, tasks_devices(service->env.tasks));
    return NULL;
}

/* Without a session, the devices are those of the cluster. A session has the devices that it was
 * placed on. */
static void on_list_devices(void *arg, struct grpc_call *call) {
    struct service *service = arg;
    struct session_config every = {.filters = NULL};
    struct span handle;
    struct status *st = request_find_bytes(grpc_call_message(call)->body, 1, &handle);
    const struct session *session = st || !handle.len ? NULL : find_session(service, handle);
    if (!st && handle.len && !session)
        st = status_invalid("Session %.*s is not found. Possibly, this master has restarted.",
                            (int)MIN(handle.len, (size_t)128), handle.data);
    if (st)
        grpc_call_fail(call, st);
    else if (session)
        reply_devices(call, device_table_ref(session->devices));
    else
        when_tasks_are_ready(service, call, &every, list_all_devices);
}

/* ---- the service ---- */

#define METHOD(name, handler, align)                           \
    {"/tensorflow.MasterService/" name, handler, align}, {     \
        "/tensorflow.grpc.MasterService/" name, handler, align \
    }
// clang-format off
static const struct grpc_method methods[] = {
    METHOD("RunStep", on_run_step, run_step_request_align),
    METHOD("CreateSession", on_create_session, NULL),
    METHOD("ExtendSession", service_extend_session, NULL),
    METHOD("CloseSession", on_close_session, NULL),
    METHOD("ListDevices", on_list_devices, NULL),
    METHOD("Reset", service_reset, NULL),
    METHOD("PartialRunSetup", on_partial_run_setup, NULL),
    METHOD("MakeCallable", on_make_callable, NULL),
    METHOD("RunCallable", on_run_callable, run_callable_request_align),
    METHOD("ReleaseCallable", on_release_callable, NULL),
    {"/tensorflow.ProfilerService/Profile", service_profile, NULL},
    {"/tensorflow.ProfilerService/Terminate", service_profile_terminate, NULL},
    {"/tensorflow.ProfilerService/Monitor", service_profile_monitor, NULL},
};
// clang-format on

/* grpc.health.v1.Health has these services: the server, and this service by its name. Both are
 * ready together. */
static const char *const health_services[] = {"", "tensorflow.MasterService", NULL};

static bool is_serving(void *arg) {
    struct service *service = arg;
    return !service->is_draining && service->env.tasks && tasks_all_ready(service->env.tasks, NULL);
}

void service_write_holdings(void *arg, const struct task *task, struct str *out) {
    const struct service *service = arg;
    struct str graphs = STR_INIT;
    LIST_FOR_EACH (link, &service->sessions) {
        const struct session *session = LIST_ENTRY(link, struct session, link);
        if (session->env->tasks != task_table(task))
            continue; /* of another cluster, which has another master there */
        session_graphs_at(session, task, &graphs);
        if (session->is_isolated)
            proto_add_bytes(out, 2, session->handle, strlen(session->handle));
    }
    if (graphs.len > 0)
        proto_add_bytes(out, 1, graphs.data, graphs.len); /* packed */
    str_fini(&graphs);
}

void service_task_ready(void *arg, struct task *task) {
    struct service *service = arg;
    review_waiting(service);
    grpc_server_review_health(service->server);
}

void service_task_lost(void *arg, struct task *task) {
    grpc_server_review_health(((struct service *)arg)->server);
}

/* Does a client wait for one of the session's steps? Between two calls of a partial run no client
 * waits. */
static bool is_awaited(const struct session *session) {
    LIST_FOR_EACH (link, &session->steps)
        if (step_is_awaited(step_of_session_link(link)))
            return true;
    return false;
}

/* A session whose client's connection closed is collected later, unless another connection uses
 * it meanwhile. */
static void on_connection_closed(void *arg, uint64_t connection_id) {
    struct service *service = arg;
    client_ids_forget(&service->clients, connection_id);
    LIST_FOR_EACH (link, &service->sessions) {
        struct session *session = LIST_ENTRY(link, struct session, link);
        if (session->last_connection == connection_id)
            session->orphaned_since_ms = clock_now_ns() / 1000000;
    }
}

static void on_tick(struct loop_timer *timer) {
    struct service *service = CONTAINER_OF(timer, struct service, timer);
    int64_t now_ms = clock_now_ns() / 1000000;
    if (service->is_stopping)
        return; /* The timer only keeps the loop running until the last session is freed. */
    review_waiting(service);
    steps_expire_saves(&service->env);
    LIST_FOR_EACH (link, &service->clusters)
        steps_expire_saves(&LIST_ENTRY(link, struct session_cluster, link)->env);
    grpc_server_review_health(service->server);
    if (now_ms - service->trimmed_ms > MEMORY_TRIM_INTERVAL_MS) {
        service->trimmed_ms = now_ms;
        memory_trim(service->env.pool);
    }
    LIST_FOR_EACH_SAFE (link, next, &service->sessions) {
        struct session *session = LIST_ENTRY(link, struct session, link);
        if (session->orphaned_since_ms == 0 || is_awaited(session) ||
            now_ms - session->orphaned_since_ms < service->env.options.session_ttl_ms)
            continue;
        struct status *why =
            status_new(STATUS_CANCELLED,
                       "The session was collected: its client has been disconnected for too long");
        log_event(EVENT_SESSION_COLLECTED,
                  "session %s is collected: its client has been disconnected for %lld s",
                  session->handle, (long long)(now_ms - session->orphaned_since_ms) / 1000);
        service_end_session(session, why);
        status_unref(why);
    }
    metric_set(&service_sessions_gauge, service->n_sessions);
}

struct status *service_new(struct loop *loop, struct pool *pool, const struct cluster_spec *cluster,
                           const struct master_options *options, struct service **ret) {
    struct service *service = xcalloc(1, sizeof *service);
    service->env.service = service;
    service->env.home = &service->env;
    profiler_init(&service->profiler, loop, pool);
    service->env.profiler = &service->profiler;
    service->env.loop = loop;
    service->env.pool = pool;
    save_barrier_init(&service->env.save_barrier);
    service->env.options = *options;
    service->env.incarnation = random_u64();
    list_init(&service->sessions);
    list_init(&service->clusters);
    list_init(&service->step_pages);
    list_init(&service->trace_pages);
    list_init(&service->graph_pages);
    service->log = xcalloc(1, sizeof *service->log);
    service->env.log = service->log;
    list_init(&service->env.live_steps);
    list_init(&service->waiting_creates);
    strmap_init(&service->by_handle);
    client_ids_init(&service->clients);
    struct grpc_server_options server_options = {.methods = methods,
                                                 .n_methods = ARRAY_LEN(methods),
                                                 .service = service,
                                                 .on_connection_closed = on_connection_closed,
                                                 .health_services = health_services,
                                                 .is_serving = is_serving,
                                                 .limits = options->limits,
                                                 .tls = options->tls_clients};
    struct status *st = grpc_server_new(loop, options->listen, &server_options, &service->server);
    if (st) {
        strmap_fini(&service->by_handle);
        client_ids_fini(&service->clients);
        free(service->log);
        free(service);
        return st;
    }
    metrics_register(&service_sessions_gauge);
    metrics_register(&service_sessions_total);
    step_metrics_register();
    budgets_register_metrics();
    service->env.tasks =
        tasks_new(loop, cluster, service->env.incarnation, options->heartbeat_ms,
                  service_task_ready, service_task_lost, service_write_holdings, service);
    tasks_set_tls(service->env.tasks, options->tls_wire);
    tasks_set_checksums(service->env.tasks, options->use_checksums);
    if (options->listen)
        tasks_set_client_address(service->env.tasks, options->listen,
                                 grpc_server_port(service->server));
    loop_timer_init(loop, &service->timer, on_tick);
    loop_timer_start(&service->timer, TICK_MS, TICK_MS);
    *ret = service;
    return NULL;
}

int service_for_each_task(struct service *service,
                          void (*visit)(void *arg, struct task *task, int index), void *arg) {
    enum { MAX_CLUSTERS = 1024 /* as many as --max-session-clusters may allow */ };
    struct tasks *tables[1 + MAX_CLUSTERS] = {service->env.tasks};
    int n_tables = 1, n = 0;
    LIST_FOR_EACH (link, &service->clusters)
        if (n_tables < (int)ARRAY_LEN(tables))
            tables[n_tables++] = LIST_ENTRY(link, struct session_cluster, link)->env.tasks;
    for (int t = 0; t < n_tables; t++)
        for (int i = 0; i < tasks_count(tables[t]); i++, n++)
            if (visit)
                visit(arg, tasks_at(tables[t], i), n);
    return n;
}

void service_end_job(struct service *service) {
    for (int i = 0; i < tasks_count(service->env.tasks); i++)
        task_send_in_order(tasks_at(service->env.tasks, i),
                           &(struct wire_out){.type = WIRE_END_JOB});
}

struct status *service_drain_task(struct service *service, const char *query) {
    struct tasks *tasks = service->env.tasks;
    for (int i = 0; i < tasks_count(tasks); i++)
        if (page_query_is(query, "task", task_name(tasks_at(tasks, i)))) {
            TRY(task_drain(tasks_at(tasks, i)));
            log_event(EVENT_TASK_DRAINED, "task %s is drained: an operator asked for it",
                      task_name(tasks_at(tasks, i)));
            return NULL;
        }
    return status_new(STATUS_NOT_FOUND, "the query names no task of this cluster, as "
                                        "task=/job:worker/replica:0/task:0 would");
}

void service_drain(struct service *service, void (*on_drained)(void *arg), void *arg) {
    service->is_draining = true;
    profiler_end_all(&service->profiler); /* a capture may take longer than the drain timeout */
    grpc_server_drain(service->server, on_drained, arg);
}

static void timer_closed(struct loop_timer *timer) {
    struct service *service = CONTAINER_OF(timer, struct service, timer);
    strmap_fini(&service->by_handle);
    client_ids_fini(&service->clients);
    status_unref(service->told);
    free(service->log);
    free(service);
}

static void end_when_unused(struct service *service) {
    if (!service->is_server_closed || service->n_held_sessions > 0)
        return;
    tasks_free(service->env.tasks);
    service->env.tasks = NULL;
    profiler_close(&service->profiler);
    loop_timer_close(&service->timer, timer_closed);
}

void service_session_ended(struct session *session) {
    struct service *service = session->env->service;
    callables_free(session->callables);
    session_cluster_free(session_cluster_of(session));
    service->n_held_sessions--;
    end_when_unused(service);
}

static void server_closed(void *arg) {
    struct service *service = arg;
    service->is_server_closed = true;
    end_when_unused(service);
}

void service_free(struct service *service) {
    service->is_stopping = true;
    service_end_step_pages(service);
    service_end_trace_pages(service);
    service_end_graph_pages(service);
    struct status *why = status_new(STATUS_CANCELLED, "the master is stopping");
    while (!list_is_empty(&service->sessions))
        service_end_session(LIST_ENTRY(service->sessions.next, struct session, link), why);
    status_unref(why);
    tasks_close(service->env.tasks); /* a task that does not answer does not delay the others */
    grpc_server_close(service->server, server_closed, service);
}

/* ---- pages ---- */

bool service_is_ready(struct service *service, struct str *why_not) {
    if (service->is_draining)
        str_add(why_not, "shutting down");
    else if (!tasks_all_ready(service->env.tasks, NULL)) {
        struct str missing = STR_INIT;
        tasks_describe_missing(service->env.tasks, NULL, &missing);
        str_addf(why_not, "missing tasks: %s", str_text(&missing));
        str_fini(&missing);
    }
    return why_not->len == 0;
}

static void describe_budgets(const struct service *service, struct str *out) {
    const struct master_options *options = &service->env.options;
    enum { NOT_COUNTED = -1 };
    int most_steps = 0;
    LIST_FOR_EACH (link, &service->sessions)
        most_steps = MAX(most_steps, LIST_ENTRY(link, struct session, link)->n_steps);
    const struct budget_row rows[N_BUDGETS] = {
        [BUDGET_SESSIONS] = {options->max_sessions, service->n_sessions},
        [BUDGET_STEPS] = {options->max_steps, service->env.n_steps},
        [BUDGET_SESSION_STEPS] = {options->max_session_steps, most_steps},
        [BUDGET_SESSION_CLUSTERS] = {options->max_session_clusters, service->n_clusters},
        [BUDGET_NODES] = {options->max_nodes, NOT_COUNTED},
        [BUDGET_FOLD] = {options->compile.fold_budget_ns / 1000000, NOT_COUNTED},
    };
    budgets_describe(rows, out);
}

void service_describe(struct service *service, int max_rows, struct str *out) {
    str_addf(out,
             "{\"incarnation\": \"%016llx\", \"draining\": %s, \"sessions\": %d, \"steps\": %d, "
             "\"tasks\": ",
             (unsigned long long)service->env.incarnation, service->is_draining ? "true" : "false",
             service->n_sessions, service->env.n_steps);
    tasks_describe(service->env.tasks, max_rows, out);
    str_add(out, ", \"links\": ");
    link_table_describe(tasks_links(service->env.tasks), MIN(max_rows, (int)MAX_LINKS_SHOWN), out);
    session_clusters_describe(service, out);
    str_addf(out,
             ", \"limits\": {\"max_sessions\": %d, \"max_steps\": %d, \"max_nodes\": %d, "
             "\"max_executables\": %d, \"task_wait_ms\": %lld, "
             "\"session_ttl_ms\": %lld}, \"budgets\": ",
             service->env.options.max_sessions, service->env.options.max_steps,
             service->env.options.max_nodes, service->env.options.max_executables,
             (long long)service->env.options.task_wait_ms,
             (long long)service->env.options.session_ttl_ms);
    describe_budgets(service, out);
    str_add(out, ", \"grpc\": ");
    grpc_server_describe(service->server, out);
    str_add_char(out, '}');
}
