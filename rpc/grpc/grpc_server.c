/* Accepts connections, finds methods, drains and closes a gRPC server. */
#include "rpc/grpc/grpc_server.h"

#include <stdlib.h>
#include <unistd.h>

#include "rpc/grpc/grpc_call.h"

static struct metric n_connections =
    METRIC_GAUGE_INIT("millrace_grpc_connections", "open gRPC connections");
static struct metric connections_total =
    METRIC_COUNTER_INIT("millrace_grpc_connections_total", "gRPC connections accepted");
static struct metric calls_total =
    METRIC_COUNTER_INIT("millrace_grpc_calls_total", "gRPC calls handed to a service");
struct metric grpc_server_bytes_received =
    METRIC_COUNTER_INIT("millrace_grpc_received_bytes_total", "bytes read from gRPC connections");
struct metric grpc_server_bytes_sent =
    METRIC_COUNTER_INIT("millrace_grpc_sent_bytes_total", "bytes written to gRPC connections");

void grpc_server_count_call(void) { metric_add(&calls_total, 1); }

static void register_metrics(void) {
    metrics_register(&n_connections);
    metrics_register(&connections_total);
    metrics_register(&calls_total);
    metrics_register(&grpc_server_bytes_received);
    metrics_register(&grpc_server_bytes_sent);
    grpc_limits_register_metrics();
}

/* ---- connections ---- */

/* A socket whose other end has ended already has no name. Its bytes are a stranger's all the
 * same. */
static void secure(struct grpc_server *server, struct grpc_connection *connection, int fd) {
    struct str peer = STR_INIT;
    if (net_is_unix(fd))
        return;
    net_peer_name(fd, &peer);
    grpc_connection_secure(connection, tls_stream_new(server->options.tls, true, str_text(&peer)));
    str_fini(&peer);
}

/* NULL: too many calls. */
static struct grpc_connection *adopt(struct grpc_server *server, int fd_take) {
    const struct grpc_server_limits *limits = &server->options.limits;
    bool is_full = server->n_connections >= limits->max_connections;
    if (is_full || server->is_draining || server->is_closing) {
        if (is_full)
            grpc_refusal_count(REFUSED_CONNECTION);
        close(fd_take);
        return NULL;
    }
    net_keep_alive(fd_take, limits->stall_timeout_ms);
    struct grpc_connection *connection =
        grpc_connection_new(server->loop, fd_take, &grpc_server_role, server, limits);
    if (server->options.tls)
        secure(server, connection, fd_take);
    list_push_back(&server->connections, &connection->link);
    server->n_connections++;
    metric_add(&n_connections, 1);
    metric_add(&connections_total, 1);
    return connection;
}

void grpc_server_adopt(struct grpc_server *server, int fd_take) { (void)adopt(server, fd_take); }

void grpc_server_adopt_refused(struct grpc_server *server, int fd_take, struct status *why_take) {
    struct grpc_connection *connection = adopt(server, fd_take);
    if (connection)
        grpc_connection_refuse_calls(connection, why_take);
    else
        status_unref(why_take);
}

static void on_accept(void *arg, int fd_take) { grpc_server_adopt(arg, fd_take); }

void grpc_server_on_connection_closed(struct grpc_connection *connection) {
    struct grpc_server *server = connection->owner;
    server->n_connections--;
    metric_add(&n_connections, -1);
    if (server->options.on_connection_closed)
        server->options.on_connection_closed(server->options.service, connection->id);
    grpc_server_check_idle(server);
}

/* ---- the server ---- */

static void run_report(struct loop_task *task) {
    struct grpc_server *server = CONTAINER_OF(task, struct grpc_server, report);
    server->report_is_due = false;
    if (server->n_connections > 0 || server->n_calls > 0)
        return;
    if (server->is_draining && !server->is_drained) {
        server->is_drained = true;
        if (server->on_drained)
            server->on_drained(server->drained_arg);
    }
    if (!server->is_closing || server->report_is_due || server->has_sweep || server->inflate_is_due)
        return;
    void (*on_closed)(void *arg) = server->on_closed;
    void *arg = server->closed_arg;
    grpc_health_free(server->health);
    strmap_fini(&server->methods);
    tls_unref(server->options.tls);
    free(server);
    if (on_closed)
        on_closed(arg);
}

void grpc_server_check_idle(struct grpc_server *server) {
    bool has_news = server->is_closing || (server->is_draining && !server->is_drained);
    if (!has_news || server->n_connections > 0 || server->n_calls > 0 || server->report_is_due)
        return;
    server->report_is_due = true;
    loop_defer(server->loop, &server->report);
}

struct status *grpc_server_new(struct loop *loop, const char *address,
                               const struct grpc_server_options *options,
                               struct grpc_server **ret_server) {
    register_metrics();
    struct grpc_server *server = xcalloc(1, sizeof(*server));
    server->loop = loop;
    server->options = *options;
    tls_ref(server->options.tls);
    server->report.run = run_report;
    grpc_limits_fill(&server->options.limits);
    server->quota =
        (struct grpc_quota){.limit_bytes = server->options.limits.max_inflight_bytes,
                            .max_message_bytes = server->options.limits.max_message_bytes};
    server->inflate.run = grpc_server_run_inflate;
    list_init(&server->connections);
    list_init(&server->inprocs);
    list_init(&server->inflating);
    strmap_init(&server->methods);
    for (size_t i = 0; i < options->n_methods; i++)
        strmap_put(&server->methods, options->methods[i].path, (void *)&options->methods[i]);
    struct status *st =
        address ? listener_new(loop, address, on_accept, server, &server->listener) : NULL;
    if (st) {
        strmap_fini(&server->methods);
        tls_unref(server->options.tls);
        free(server);
        return st;
    }
    if (options->health_services)
        server->health = grpc_health_new(server);
    grpc_sweep_start(server);
    *ret_server = server;
    return NULL;
}

void grpc_server_review_health(struct grpc_server *server) { grpc_health_review(server->health); }

void grpc_server_describe(const struct grpc_server *server, struct str *out) {
    struct grpc_use use = {.connections = server->n_connections,
                           .calls = server->n_calls,
                           .inflight_bytes = server->quota.in_use_bytes};
    LIST_FOR_EACH (link, &server->connections)
        use.streams = MAX(use.streams, LIST_ENTRY(link, struct grpc_connection, link)->n_open);
    grpc_limits_describe(&server->options.limits, &use, out);
}

bool grpc_server_peer_name(const struct grpc_server *server, uint64_t connection_id,
                           struct str *out) {
    LIST_FOR_EACH (link, &server->connections) {
        const struct grpc_connection *connection = LIST_ENTRY(link, struct grpc_connection, link);
        if (connection->id == connection_id)
            return net_peer_name(connection->fd, out);
    }
    return false;
}

int grpc_server_port(const struct grpc_server *server) {
    return server->listener ? listener_port(server->listener) : 0;
}

void grpc_server_drain(struct grpc_server *server, void (*on_drained)(void *arg), void *arg) {
    CHECK(!server->is_draining);
    server->is_draining = true;
    server->on_drained = on_drained;
    server->drained_arg = arg;
    listener_close(server->listener);
    server->listener = NULL;
    grpc_health_stop(server->health);
    LIST_FOR_EACH (link, &server->connections)
        grpc_connection_drain(LIST_ENTRY(link, struct grpc_connection, link));
    grpc_server_check_idle(server);
}

void grpc_server_close(struct grpc_server *server, void (*on_closed)(void *arg), void *arg) {
    CHECK(!server->is_closing);
    server->is_closing = true;
    server->on_closed = on_closed;
    server->closed_arg = arg;
    listener_close(server->listener);
    server->listener = NULL;
    grpc_sweep_stop(server);
    LIST_FOR_EACH (link, &server->connections) {
        struct grpc_connection *connection = LIST_ENTRY(link, struct grpc_connection, link);
        grpc_connection_break(connection, status_unavailable("the server closed the connection"));
    }
    grpc_inproc_close_all(server);
    grpc_server_check_idle(server);
}
