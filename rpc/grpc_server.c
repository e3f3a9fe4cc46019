#include "rpc/grpc_server.h"

#include <stdlib.h>
#include <unistd.h>

#include "rpc/grpc_call.h"

static struct metric n_connections = METRIC_GAUGE_INIT("millrace_grpc_connections", "open gRPC connections");
static struct metric connections_total = METRIC_COUNTER_INIT("millrace_grpc_connections_total", "gRPC connections accepted");
static struct metric calls_total = METRIC_COUNTER_INIT("millrace_grpc_calls_total", "gRPC calls handed to a service");
struct metric grpc_server_bytes_received = METRIC_COUNTER_INIT("millrace_grpc_received_bytes_total", "bytes read from gRPC connections");
struct metric grpc_server_bytes_sent = METRIC_COUNTER_INIT("millrace_grpc_sent_bytes_total", "bytes written to gRPC connections");

#define REFUSAL(reason)                                                                                  \
    {                                                                                                    \
        .kind = METRIC_COUNTER, .name = "millrace_grpc_refused_total", .labels = "limit=\"" reason "\"", \
        .help = "gRPC connections and calls refused by a limit"                                          \
    }
static struct metric refused[N_REFUSALS] = {
    [REFUSED_CONNECTION] = REFUSAL("connections"),
    [REFUSED_STREAM] = REFUSAL("streams"),
    [REFUSED_HEADERS] = REFUSAL("header_bytes"),
    [REFUSED_MESSAGE] = REFUSAL("message_bytes"),
};

void grpc_server_count_refusal(enum grpc_refusal refusal) { metric_add(&refused[refusal], 1); }
void grpc_server_count_call(void) { metric_add(&calls_total, 1); }

static void register_metrics(void) {
    metrics_register(&n_connections);
    metrics_register(&connections_total);
    metrics_register(&calls_total);
    metrics_register(&grpc_server_bytes_received);
    metrics_register(&grpc_server_bytes_sent);
    for (size_t i = 0; i < N_REFUSALS; i++)
        metrics_register(&refused[i]);
}

void grpc_server_limits_default(struct grpc_server_limits *limits) {
    *limits = (struct grpc_server_limits){
        .max_message_bytes = INT32_MAX,
        .max_connections = 10000,
        .max_streams = 10000,
        .max_header_bytes = 16384,
        .max_resets_per_s = 1000,
        .max_inflight_bytes = (int64_t)16 << 30,
    };
}

static void fill_limits(struct grpc_server_limits *limits) {
    struct grpc_server_limits defaults;
    grpc_server_limits_default(&defaults);
#define FILL(field) limits->field = limits->field > 0 ? limits->field : defaults.field
    FILL(max_message_bytes);
    FILL(max_connections);
    FILL(max_streams);
    FILL(max_header_bytes);
    FILL(max_resets_per_s);
    FILL(max_inflight_bytes);
#undef FILL
    limits->max_streams = MIN(limits->max_streams, (int64_t)INT32_MAX);
    limits->max_header_bytes = MIN(limits->max_header_bytes, (int64_t)INT32_MAX);
}

/* ---- connections ---- */

void grpc_server_adopt(struct grpc_server *server, int fd_take) {
    const struct grpc_server_limits *limits = &server->options.limits;
    bool is_full = server->n_connections >= limits->max_connections;
    if (is_full || server->is_draining || server->is_closing) {
        if (is_full)
            grpc_server_count_refusal(REFUSED_CONNECTION);
        close(fd_take);
        return;
    }
    struct grpc_connection_limits session_limits = {
        .max_streams = limits->max_streams, .max_header_bytes = limits->max_header_bytes, .max_resets_per_s = limits->max_resets_per_s};
    struct grpc_connection *connection = grpc_connection_new(server->loop, fd_take, &grpc_server_role, server, &session_limits);
    list_push_back(&server->connections, &connection->link);
    server->n_connections++;
    metric_add(&n_connections, 1);
    metric_add(&connections_total, 1);
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
    if (!server->is_closing || server->report_is_due)
        return;
    void (*on_closed)(void *arg) = server->on_closed;
    void *arg = server->closed_arg;
    strmap_fini(&server->methods);
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

struct status *grpc_server_new(struct loop *loop, const char *address, const struct grpc_server_options *options,
                               struct grpc_server **ret_server) {
    register_metrics();
    struct grpc_server *server = xcalloc(1, sizeof(*server));
    server->loop = loop;
    server->options = *options;
    server->report.run = run_report;
    fill_limits(&server->options.limits);
    server->quota = (struct grpc_quota){.limit_bytes = server->options.limits.max_inflight_bytes,
                                        .max_message_bytes = server->options.limits.max_message_bytes};
    list_init(&server->connections);
    strmap_init(&server->methods);
    for (size_t i = 0; i < options->n_methods; i++)
        strmap_put(&server->methods, options->methods[i].path, (void *)&options->methods[i]);
    struct status *st = address ? listener_new(loop, address, on_accept, server, &server->listener) : NULL;
    if (st) {
        strmap_fini(&server->methods);
        free(server);
        return st;
    }
    *ret_server = server;
    return NULL;
}

int grpc_server_port(const struct grpc_server *server) { return server->listener ? listener_port(server->listener) : 0; }

void grpc_server_drain(struct grpc_server *server, void (*on_drained)(void *arg), void *arg) {
    CHECK(!server->is_draining);
    server->is_draining = true;
    server->on_drained = on_drained;
    server->drained_arg = arg;
    listener_close(server->listener);
    server->listener = NULL;
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
    LIST_FOR_EACH (link, &server->connections) {
        struct grpc_connection *connection = LIST_ENTRY(link, struct grpc_connection, link);
        grpc_connection_break(connection, status_unavailable("the server closed the connection"));
    }
    grpc_server_check_idle(server);
}
