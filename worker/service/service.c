/* Handles connections: their Hello, the messages that are answered at once, and the end of the
 * service. */
#include "worker/service/service.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/denormals.h"
#include "common/tensor/trim.h"
#include "common/base/log.h"
#include "kernels/host/files/checkpoint_saves.h"
#include "proto/worker.pb-c.h"
#include "rpc/host_id.h"
#include "rpc/listen.h"
#include "worker/exchange/rendezvous_pregrant.h"
#include "worker/service/service_internal.h"

enum { MAX_MASTER_ADDRESS_BYTES = 300 };

static const struct wire_handlers connection_handlers;

void worker_options_default(struct worker_options *options) {
    *options = (struct worker_options){.inline_budget_ns = 50000,
                                       .graph_grace_ms = 60000,
                                       .heartbeat_ms = HEARTBEAT_DEFAULT_MS,
                                       .step_ring_bytes = STEP_RING_BYTES,
                                       .max_in_flight_bytes = RENDEZVOUS_IN_FLIGHT_BYTES,
                                       .max_feed_bytes = 64ll << 30,
                                       .max_graph_bytes = 16ll << 30,
                                       .n_streams = 1,
                                       .max_shm_kept_bytes = PEER_SHM_MAX_KEPT_BYTES,
                                       .max_steps = 65536,
                                       .device_scale = 1,
                                       .device_hang_ms = 60000,
                                       .use_shm = true,
                                       .gpu_text = "",
                                       .use_unix = true};
}

/* ---- answers ---- */

void service_send(struct wire_conn *conn, enum wire_type type, uint64_t id, const void *meta,
                  size_t len) {
    struct wire_out out = {.type = type, .id = id, .meta = {meta, len}};
    wire_send(conn, &out);
}

/* ---- connections ---- */

static void connection_free(struct service_connection *connection) {
    struct worker_service *service = connection->service;
    list_remove(&connection->link);
    service_forget_caller(connection);
    service_forget_status(connection);
    service->n_connections--;
    if (connection->master) {
        service_cancel_runs_of(connection);
        master_leave(service, connection->master);
    }
    str_fini(&connection->hello_task);
    free(connection);
}

static void on_closed(void *owner, struct wire_conn *conn, struct status *why) {
    struct service_connection *connection = owner;
    struct worker_service *service = connection->service;
    if (why && !service->is_freed && status_code(why) != STATUS_UNAVAILABLE)
        log_event(EVENT_CONNECTION_CLOSED, "closed a connection: %s", status_message(why));
    connection_free(connection);
    wire_conn_unref(conn);
    service_maybe_free(service);
}

/* The other end is another task: its connection belongs to worker/exchange/peer from now on. */
static struct status *become_peer(struct service_connection *connection, struct exchange *exchange,
                                  const struct peer_greeting *greeting) {
    bool is_stream =
        greeting->kind > CHANNEL_STREAM && greeting->kind < CHANNEL_STREAM + PEER_MAX_STREAMS;
    if (greeting->kind > CHANNEL_ARENA && !is_stream)
        return status_invalid("Hello of task %s for channel %u", greeting->task, greeting->kind);
    TRY(peer_table_accept(exchange->peers, connection->wire, greeting));
    connection_free(connection);
    return NULL;
}

static void answer_hello(const struct exchange *exchange, struct wire_conn *conn, uint64_t id,
                         unsigned channel, uint64_t incarnation) {
    struct str answer = STR_INIT;
    peer_hello_write(&answer, exchange->task, incarnation, channel, 0);
    service_send(conn, WIRE_HELLO, id, answer.data, answer.len);
    str_fini(&answer);
}

/* The answer says that the stream is accepted. Before it nothing is sent on the stream, so its end
 * loses nothing. */
static struct status *become_stream(struct service_connection *connection,
                                    struct exchange *exchange, uint64_t id,
                                    const struct peer_greeting *greeting) {
    uint64_t incarnation = connection->service->incarnation;
    struct wire_conn *conn = connection->wire;
    unsigned channel = greeting->kind;
    TRY(become_peer(connection, exchange, greeting));
    answer_hello(exchange, conn, id, channel, incarnation);
    return NULL;
}

static struct status *check_hello(const struct worker_service *service,
                                  const Millrace__Hello *hello) {
    if (hello->protocol != WIRE_PROTOCOL)
        return status_failed_precondition(
            "the other end speaks protocol %u of the worker wire, but this task speaks %d",
            hello->protocol, WIRE_PROTOCOL);
    if (hello->expected_incarnation != 0 && hello->expected_incarnation != service->incarnation)
        return status_failed_precondition("%s was restarted: the other end expects incarnation "
                                          "%016llx, but this process has %016llx",
                                          service->task,
                                          (unsigned long long)hello->expected_incarnation,
                                          (unsigned long long)service->incarnation);
    if (strlen(hello->task) > 512)
        return status_invalid("a task name of %zu bytes in Hello", strlen(hello->task));
    return NULL;
}

void worker_service_say_where(const struct worker_service *service, struct str *out) {
    if (service && service->master_address)
        str_addf(out, "dial the master at %s, ", service->master_address);
    else
        str_add(out, "dial the master's port, ");
    str_add(out, "or start this worker with --client-port");
}

static void refuse_clients(struct worker_service *service) {
    struct str words = STR_INIT;
    str_addf(&words, "this is a worker's port, where %s listens for the master and other tasks: ",
             service->task);
    worker_service_say_where(service, &words);
    wire_server_refuse_grpc(service->server, str_text(&words));
    str_fini(&words);
}

/* The address is shown to clients, so it must be one. */
static void note_master_address(struct service_connection *connection, const char *address) {
    struct worker_service *service = connection->service;
    const char *peer = wire_conn_peer(connection->wire);
    bool is_local = wire_conn_is_unix(connection->wire);
    struct net_address parsed;
    struct str text = STR_INIT;
    struct status *st = strlen(address) > MAX_MASTER_ADDRESS_BYTES
                            ? status_invalid("too long")
                            : net_address_parse(address, &parsed);
    bool is_good = !st && !parsed.is_unix;
    for (const char *at = address; is_good && *at; at++)
        is_good = *at > ' ' && *at <= '~';
    status_unref(st);
    if (!is_good)
        return;
    if (parsed.host[0])
        str_add(&text, address);
    else
        str_addf(&text, "%.*s:%d", is_local ? 9 : (int)(strrchr(peer, ':') - peer),
                 is_local ? "127.0.0.1" : peer, parsed.port);
    free(service->master_address);
    service->master_address = str_detach(&text);
    if (service->server)
        refuse_clients(service);
}

static struct status *greet_master(struct service_connection *connection, const char *as_task) {
    struct worker_service *service = connection->service;
    connection->master = master_join(service, connection->incarnation);
    if (!connection->master)
        return status_exhausted("more than %d masters", SERVICE_MAX_MASTERS);
    return *as_task ? master_enter_cluster(service, connection->master, as_task) : NULL;
}

/* Handles the Hello of a task, a master or a tool. */
static struct status *greet(struct service_connection *connection, struct exchange *exchange,
                            const Millrace__Hello *hello, uint64_t id) {
    const char *task = str_text(&connection->hello_task);
    unsigned channel = hello->channel;
    struct peer_greeting greeting = {.task = task,
                                     .own_task = hello->own_task,
                                     .incarnation = hello->incarnation,
                                     .kind = (enum channel_kind)channel,
                                     .n_streams = hello->streams,
                                     .takes_pieces = hello->takes_pieces,
                                     .epoch = hello->epoch};
    bool is_master = strcmp(task, "master") == 0;
    if (*task && channel > CHANNEL_STREAM && !is_master)
        return become_stream(connection, exchange, id, &greeting);
    answer_hello(exchange, connection->wire, id, channel, connection->service->incarnation);
    if (!*task)
        return NULL; /* a tool */
    connection->is_caller = channel == CHANNEL_PEER_CALLS;
    if (connection->is_caller)
        return NULL;
    if (is_master && *hello->client_address)
        note_master_address(connection, hello->client_address);
    return is_master ? greet_master(connection, hello->as_task)
                     : become_peer(connection, exchange, &greeting);
}

static struct status *on_hello(struct service_connection *connection,
                               const struct wire_message *message) {
    struct worker_service *service = connection->service;
    if (connection->is_greeted)
        return status_invalid("a second Hello");
    Millrace__Hello *hello =
        millrace__hello__unpack(NULL, message->meta.len, (const uint8_t *)message->meta.data);
    if (!hello)
        return status_invalid("malformed Hello");
    struct status *st = check_hello(service, hello);
    struct exchange *exchange = service_find_exchange(service, hello->cluster);
    if (!st && !exchange)
        st = status_failed_precondition("%s does not belong to the session's cluster %016llx",
                                        service->task, (unsigned long long)hello->cluster);
    if (!st && *hello->task) /* tools have no name */
        st = wire_conn_check_task(connection->wire, hello->cluster ? hello->own_task : hello->task);
    if (!st) {
        connection->is_greeted = true;
        connection->incarnation = hello->incarnation;
        str_add(&connection->hello_task, hello->task);
        st = greet(connection, exchange, hello, message->id);
    }
    millrace__hello__free_unpacked(hello, NULL);
    return st;
}

static struct status *not_for_masters(const struct wire_message *message) {
    return status_invalid("a message of type %d, which a worker's service does not take",
                          (int)message->type);
}

static void told_to_drain(struct worker_service *service, const char *why) {
    if (service->options.on_told_to_drain)
        service->options.on_told_to_drain(service->options.on_told_to_drain_arg, why);
}

static struct status *on_master_message(struct service_connection *connection,
                                        struct wire_message *message) {
    if (!connection->master)
        return status_new(STATUS_PERMISSION_DENIED,
                          "a message of type %d over a connection that is not a master's",
                          (int)message->type);
    switch (message->type) {
    case WIRE_RUN_GRAPH:
        return service_run_graph(connection, message);
    case WIRE_CANCEL_STEP:
        return service_cancel_step(connection, message);
    case WIRE_FEED_STEP:
        return service_feed_step(connection, message);
    case WIRE_REGISTER_GRAPH:
        return service_register_graph(connection, message);
    case WIRE_DEREGISTER_GRAPH:
        return service_deregister_graph(connection, message);
    case WIRE_CLOSE_SESSION:
        return service_close_session(connection, message);
    case WIRE_KEEP_GRAPHS:
        return service_keep_graphs(connection, message);
    case WIRE_LEAVE:
        service_master_leaves(connection);
        return NULL;
    case WIRE_END_JOB:
        told_to_drain(connection->service, "the job has ended");
        return NULL;
    case WIRE_DRAIN:
        told_to_drain(connection->service, "an operator drains this task");
        return NULL;
    default:
        return service_reset_containers(connection, message);
    }
}

static void answer_ping(struct service_connection *connection, const struct wire_message *message) {
    struct str answer = STR_INIT;
    heartbeat_answer(message->meta, clock_wall_us(), &answer);
    if (connection->master)
        peer_table_report_links(exchange_of(connection)->peers, &answer);
    service_send(connection->wire, WIRE_PONG, message->id, answer.data, answer.len);
    str_fini(&answer);
    if (connection->master)
        master_pinged(connection->master, message->meta, clock_now_ns());
}

static struct status *dispatch(struct service_connection *connection,
                               struct wire_message *message) {
    if (message->type == WIRE_HELLO)
        return on_hello(connection, message);
    if (!connection->is_greeted)
        return status_invalid("the first message is of type %d, not Hello", (int)message->type);
    if (connection->master)
        heartbeat_heard(&connection->master->heartbeat, clock_now_ns());
    switch (message->type) {
    case WIRE_PING:
        answer_ping(connection, message);
        return NULL;
    case WIRE_PEER_REQUEST:
        return service_serve_call(connection, message);
    case WIRE_GET_STEPS:
        service_send_steps(connection, message->id);
        return NULL;
    case WIRE_GET_TRACES:
        return service_send_traces(connection, message);
    case WIRE_GET_STATUS:
        service_answer_status(connection, message->id);
        return NULL;
    case WIRE_RUN_GRAPH:
    case WIRE_CANCEL_STEP:
    case WIRE_FEED_STEP:
    case WIRE_REGISTER_GRAPH:
    case WIRE_DEREGISTER_GRAPH:
    case WIRE_CLOSE_SESSION:
    case WIRE_KEEP_GRAPHS:
    case WIRE_END_JOB:
    case WIRE_DRAIN:
    case WIRE_LEAVE:
    case WIRE_RESET:
        return on_master_message(connection, message);
    default:
        return not_for_masters(message);
    }
}

static void on_message(void *owner, struct wire_conn *conn, struct wire_message *message) {
    struct service_connection *connection = owner;
    if (connection->service->is_freed)
        return;
    struct status *st = dispatch(connection, message);
    if (st)
        wire_conn_close(conn, st);
}

/* Answers a message for whose payload there is no memory. It fails what the message is about, not
 * the connection. */
static void refuse_payload(struct service_connection *connection,
                           const struct wire_message *message, int64_t limit_bytes) {
    bool is_graph = message->type == WIRE_REGISTER_GRAPH;
    const char *what = is_graph ? "the part of a graph, with its constants and functions, that is"
                                : "feeds that are";
    const char *task = connection->service->task;
    struct status *why =
        (int64_t)message->payload_len > limit_bytes
            ? status_exhausted("%s takes at most %lld bytes for %s sent to it; these are %zu", task,
                               (long long)limit_bytes, what, message->payload_len)
            : status_exhausted("%s has no memory for %zu bytes of %s sent to it", task,
                               message->payload_len, what);
    if (is_graph)
        service_refuse_graph(connection, message, why);
    else if (message->type == WIRE_RUN_GRAPH)
        service_refuse_run(connection, message, why);
    else
        service_refuse_feed(connection, message, why);
}

/* Only graphs and feeds have a payload. */
static struct buffer *on_alloc(void *owner, struct wire_conn *conn,
                               const struct wire_message *message, size_t size_bytes) {
    struct service_connection *connection = owner;
    const struct worker_options *options = &connection->service->options;
    bool is_graph = message->type == WIRE_REGISTER_GRAPH,
         is_feed = message->type == WIRE_RUN_GRAPH || message->type == WIRE_FEED_STEP;
    if (!connection->master || connection->service->is_freed || !(is_graph || is_feed))
        return NULL;
    int64_t limit = is_graph ? options->max_graph_bytes : options->max_feed_bytes;
    struct buffer *buffer =
        (int64_t)size_bytes > limit ? NULL : buffer_alloc(allocator_host(), size_bytes);
    if (buffer)
        return buffer;
    refuse_payload(connection, message, limit);
    return wire_discard;
}

static const struct wire_handlers connection_handlers = {
    .on_message = on_message, .alloc = on_alloc, .on_closed = on_closed};

static void on_accept(void *arg, struct wire_conn *conn_take) {
    struct worker_service *service = arg;
    struct service_connection *connection = xcalloc(1, sizeof(*connection));
    connection->service = service;
    connection->wire = conn_take;
    connection->since_ns = clock_now_ns();
    list_init(&connection->served_calls);
    list_push_back(&service->connections, &connection->link);
    service->n_connections++;
    wire_conn_set_owner(conn_take, connection, &connection_handlers);
    if (service->n_connections > SERVICE_MAX_CONNECTIONS)
        wire_conn_close(conn_take, status_exhausted("%d connections are open already",
                                                    SERVICE_MAX_CONNECTIONS));
}

/* ---- beginning and end ---- */

void connections_expire(struct worker_service *service, int64_t now_ns) {
    LIST_FOR_EACH (link, &service->connections) {
        struct service_connection *connection = LIST_ENTRY(link, struct service_connection, link);
        if (!connection->is_greeted &&
            now_ns - connection->since_ns > SERVICE_HELLO_SECONDS * 1000000000ll)
            wire_conn_close(connection->wire,
                            status_new(STATUS_DEADLINE_EXCEEDED, "no Hello from %s within %d s",
                                       wire_conn_peer(connection->wire), SERVICE_HELLO_SECONDS));
    }
}

/* Called once, because it may end the service. */
static void check_masters_gone(struct worker_service *service, int64_t now_ns) {
    if (service->options.master_wait_ms <= 0 || service->masterless_ns == 0 ||
        !service->options.on_masters_gone ||
        now_ns - service->masterless_ns < service->options.master_wait_ms * 1000000)
        return;
    void (*on_masters_gone)(void *arg) = service->options.on_masters_gone;
    service->options.on_masters_gone = NULL;
    on_masters_gone(service->options.on_masters_gone_arg);
}

void service_check_awake(struct worker_service *service, int64_t now_ns) {
    if (likely(now_ns - service->beat_ns <
               2 * heartbeat_tick_ms(service->options.heartbeat_ms) * 1000000))
        return;
    service->beat_ns = now_ns;
    LIST_FOR_EACH (link, &service->connections) {
        struct service_connection *connection = LIST_ENTRY(link, struct service_connection, link);
        if (connection->master && wire_conn_is_hung_up(connection->wire))
            wire_conn_close(connection->wire,
                            status_unavailable("%s was given up by its masters while it slept",
                                               wire_conn_peer(connection->wire)));
    }
}

static void on_beat(struct loop_timer *timer) {
    struct worker_service *service = CONTAINER_OF(timer, struct worker_service, beat);
    int64_t now_ns = clock_now_ns();
    service_check_awake(service, now_ns);
    masters_beat(service, now_ns);
    service->beat_ns = now_ns;
    check_masters_gone(service, now_ns);
    log_flush_repeats(false);
}

static void on_tick(struct loop_timer *timer) {
    struct worker_service *service = CONTAINER_OF(timer, struct worker_service, tick);
    int64_t now_ns = clock_now_ns();
    connections_expire(service, now_ns);
    masters_expire(service, now_ns);
    steps_expire(service, now_ns);
    rendezvous_expire(service->home->rendezvous, now_ns);
    service_health_tick(service);
    LIST_FOR_EACH (link, &service->exchanges)
        rendezvous_expire(LIST_ENTRY(link, struct exchange, link)->rendezvous, now_ns);
    if (now_ns - service->trimmed_ns > MEMORY_TRIM_INTERVAL_MS * 1000000ll) {
        service->trimmed_ns = now_ns;
        memory_trim(service->options.pool);
    }
}

static void timer_closed(struct worker_service *service) {
    service->n_open_timers--;
    service_maybe_free(service);
}
static void on_tick_closed(struct loop_timer *timer) {
    timer_closed(CONTAINER_OF(timer, struct worker_service, tick));
}
static void on_beat_closed(struct loop_timer *timer) {
    timer_closed(CONTAINER_OF(timer, struct worker_service, beat));
}
static void on_alarm_timer_closed(struct loop_timer *timer) {
    timer_closed(CONTAINER_OF(timer, struct worker_service, alarm_timer));
}
static void on_drain_timer_closed(struct loop_timer *timer) {
    timer_closed(CONTAINER_OF(timer, struct worker_service, drain_timer));
}

static struct status *listen_both(struct worker_service *service) {
    TRY(wire_listen(service->loop, service->options.listen, on_accept, service, &service->server));
    wire_server_secure(service->server, service->options.tls);
    if (service->options.use_checksums)
        wire_server_use_checksums(service->server);
    refuse_clients(service);
    if (!service->options.use_unix)
        return NULL;
    char address[64];
    snprintf(address, sizeof(address), "unix:@millrace-%016llx",
             (unsigned long long)service->incarnation);
    struct status *st =
        wire_listen(service->loop, address, on_accept, service, &service->unix_server);
    if (st) {
        log_event(EVENT_NO_UNIX_SOCKET, "no Unix socket, so tasks of this host will use TCP: %s",
                  status_message(st));
        status_unref(st);
        return NULL;
    }
    wire_server_secure(service->unix_server, service->options.tls);
    if (service->options.use_checksums)
        wire_server_use_checksums(service->unix_server);
    free(service->unix_address);
    service->unix_address = xstrdup(address);
    return NULL;
}

static void register_metrics(void) {
    checkpoint_register_metrics();
    metrics_register(&worker_steps_total);
    metrics_register(&worker_steps_failed_total);
    metrics_register(&worker_steps_live);
    metrics_register(&worker_step_duration);
    metrics_register(&worker_graphs);
    metrics_register(&worker_pregrants_total);
    metrics_register(&worker_pregranted_received_total);
    metrics_register(&worker_pregranted_sent_total);
}

struct status *worker_service_new(struct loop *loop, const struct worker_options *options,
                                  struct worker_service **ret_service) {
    struct worker_service *service = xcalloc(1, sizeof(*service));
    denormals_flush_to_zero(); /* steps run on the loop thread, which this is */
    service->loop = loop;
    service->options = *options;
    service->task = xstrdup(options->task);
    service->unix_address = xstrdup("");
    service->incarnation = random_u64();
    list_init(&service->connections);
    list_init(&service->masters);
    list_init(&service->status_waits);
    list_init(&service->runs);
    u64map_init(&service->early_cancels);
    u64map_init(&service->by_step);
    CHECK(pthread_mutex_init(&service->lock, NULL) == 0);
    struct status *st = listen_both(service);
    if (st) {
        pthread_mutex_destroy(&service->lock);
        free(service->task);
        free(service->unix_address);
        free(service);
        return st;
    }
    register_metrics();
    list_init(&service->exchanges);
    service->home = exchange_new(loop, options, service->incarnation, 0, service->task,
                                 service_exchange_freed, service);
    service->n_exchanges = 1;
    peer_table_set_on_lost(service->home->peers, service_on_peer_lost, service);
    service->containers = container_table_new();
    service->ring = step_ring_new((size_t)options->step_ring_bytes);
    struct plan_options plan_options = {
        .devices = options->devices, .n_devices = options->n_devices, .host = &executor_host};
    service->graphs = graph_cache_new(loop, options->pool, &plan_options);
    loop_timer_init(loop, &service->tick, on_tick);
    loop_timer_start(&service->tick, SERVICE_TICK_MS, SERVICE_TICK_MS);
    loop_timer_init(loop, &service->beat, on_beat);
    loop_timer_start(&service->beat, heartbeat_tick_ms(options->heartbeat_ms),
                     heartbeat_tick_ms(options->heartbeat_ms));
    service->beat_ns = clock_now_ns();
    service_alarms_init(service);
    service_drain_init(service);
    service_health_init(service);
    service->n_open_timers = 4;
    *ret_service = service;
    return NULL;
}

static bool any_run(const struct graph_run *run, const void *arg) { return true; }

void service_exchange_freed(void *arg) {
    struct worker_service *service = arg;
    if (--service->n_exchanges == 0 && !service->is_ending)
        service_maybe_free(service);
}

/* Frees the service when the last step, connection, registration and timer have ended. */
void service_maybe_free(struct worker_service *service) {
    if (!service->is_freed || service->n_connections > 0 || service->n_registering > 0 ||
        service->n_served_calls > 0 || service->n_open_timers > 0 ||
        service->rates_phase == RATES_MEASURING || service_alarms_is_busy(service) ||
        service_health_is_busy(service))
        return;
    pthread_mutex_lock(&service->lock);
    int n_runs = service->n_runs;
    service->is_end_watched = n_runs > 0; /* the last one calls this again */
    pthread_mutex_unlock(&service->lock);
    if (n_runs > 0)
        return;
    /* What holds an exchange goes first. The last one to be freed calls this again. */
    service->is_ending = true; /* it would call this inside itself */
    masters_free(service);
    graph_cache_remove_all(service->graphs);
    if (service->home) {
        struct exchange *home = service->home;
        service->home = NULL;
        exchange_unref(home);
    }
    service->is_ending = false;
    if (service->n_exchanges > 0)
        return;
    early_cancels_clear(service);
    u64map_fini(&service->early_cancels);
    graph_cache_free(service->graphs);
    container_table_free(service->containers);
    step_ring_free(service->ring);
    /* resources in containers may set alarms until they are freed */
    alarm_clock_free(service->alarms);
    graph_runs_free(service);
    u64map_fini(&service->by_step);
    pthread_mutex_destroy(&service->lock);
    void (*on_freed)(void *arg) = service->on_freed;
    void *arg = service->on_freed_arg;
    free(service->task);
    free(service->unix_address);
    free(service->master_address);
    status_unref(service->refusal);
    free(service);
    if (on_freed)
        on_freed(arg);
}

void worker_service_free(struct worker_service *service, void (*on_freed)(void *arg), void *arg) {
    if (!service)
        return;
    struct status *why = status_unavailable("%s is stopping", service->task);
    service->on_freed = on_freed;
    service->on_freed_arg = arg;
    if (service->is_draining)
        service_tell_masters(service, heartbeat_add_leaving);
    wire_server_close(service->server);
    wire_server_close(service->unix_server);
    service->server = service->unix_server = NULL;
    service_cancel_runs(service, any_run, NULL, why);
    peer_call_table_stop(service->home->peer_calls);
    LIST_FOR_EACH (link, &service->exchanges)
        peer_call_table_stop(LIST_ENTRY(link, struct exchange, link)->peer_calls);
    LIST_FOR_EACH (link, &service->connections)
        wire_conn_close(LIST_ENTRY(link, struct service_connection, link)->wire, status_ref(why));
    status_unref(why);
    service->is_freed = true;
    loop_timer_close(&service->tick, on_tick_closed);
    loop_timer_close(&service->beat, on_beat_closed);
    service_alarms_close(service, on_alarm_timer_closed);
    service_drain_close(service, on_drain_timer_closed);
    service_health_close(service);
}

int worker_service_port(const struct worker_service *service) {
    return wire_server_port(service->server);
}
uint64_t worker_service_incarnation(const struct worker_service *service) {
    return service->incarnation;
}
const char *worker_service_unix_address(const struct worker_service *service) {
    return service->unix_address;
}
