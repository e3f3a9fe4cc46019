/* Relays the master's clients. The life of a relayed connection:
 *
 *   accepted ──► FINDING the master (a flag, or etcd) ──► CONNECTING ──► OPEN: bytes both ways
 *                   ▲                                        │             │ both sides have ended,
 *                   └── after a moment, for 10 s ◄── refused ┘             ▼ or one broke
 *                                                                        freed */
#include "rpc/relay/client_port.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "rpc/grpc/grpc_connect.h"
#include "rpc/grpc/grpc_preface.h"
#include "rpc/listen.h"
#include "rpc/membership/member.h"

enum { RETRY_MS = 200, READS_PER_EVENT = 16 };

static struct metric connections_total =
    METRIC_COUNTER_INIT("millrace_client_port_connections_total",
                        "Connections of clients that were relayed to the master");
static struct metric connections_now = METRIC_GAUGE_INIT(
    "millrace_client_port_connections", "Clients' connections that are relayed now");

struct client_port {
    struct loop *loop;
    struct listener *listener;
    /* master: the address from the flag, or the last one that etcd reported */
    char *task, *master, *master_key;
    bool is_fixed;
    struct etcd *etcd;
    struct list connections;
    int n_connections;
    bool is_closing;
};

/* One end of a relayed connection, and what waits to be written to it. */
struct relay_end {
    struct client_connection *connection;
    int fd;
    uv_poll_t poll;
    bool is_polled, has_ended; /* its other side sends no more */
    bool is_shut;              /* we send no more to it */
    struct str pending;
};

struct client_connection {
    struct list link;
    struct client_port *port;
    struct relay_end client, master;
    struct etcd_call lookup;
    struct grpc_connector *connector;
    struct loop_timer timer;
    int64_t until_ns;
    int n_handles;
    bool is_over;
};

/* ---- the end ---- */

static void free_port_if_unused(struct client_port *port) {
    if (!port->is_closing || port->n_connections > 0)
        return;
    free(port->task);
    free(port->master);
    free(port->master_key);
    free(port);
}

static void release(struct client_connection *c) {
    struct client_port *port = c->port;
    if (--c->n_handles > 0)
        return;
    str_fini(&c->client.pending);
    str_fini(&c->master.pending);
    list_remove(&c->link);
    free(c);
    port->n_connections--;
    metric_set(&connections_now, port->n_connections);
    free_port_if_unused(port);
}

static void on_poll_closed(uv_handle_t *handle) {
    release(CONTAINER_OF((uv_poll_t *)handle, struct relay_end, poll)->connection);
}
static void on_timer_closed(struct loop_timer *timer) {
    release(CONTAINER_OF(timer, struct client_connection, timer));
}
static void on_connector_gone(void *arg) { release(arg); }

static void close_end(struct relay_end *end) {
    if (end->is_polled)
        uv_close((uv_handle_t *)&end->poll, on_poll_closed);
    if (end->fd >= 0)
        close(end->fd);
    end->fd = -1;
}

static void finish(struct client_connection *c) {
    if (c->is_over)
        return;
    c->is_over = true;
    etcd_call_cancel(&c->lookup);
    if (c->connector)
        grpc_connector_cancel(c->connector, on_connector_gone);
    c->connector = NULL;
    close_end(&c->client);
    close_end(&c->master);
    loop_timer_close(&c->timer, on_timer_closed);
}

/* ---- bytes both ways ---- */

static void on_ready(uv_poll_t *poll, int status, int events);

static struct relay_end *other(struct relay_end *end) {
    return end == &end->connection->client ? &end->connection->master : &end->connection->client;
}

/* Polls an end. It is read only while the other end has taken everything that came before. */
static void set_events(struct relay_end *end) {
    int events = end->pending.len > 0 ? UV_WRITABLE : 0;
    if (!end->has_ended && other(end)->pending.len == 0)
        events |= UV_READABLE;
    if (events)
        uv_poll_start(&end->poll, events, on_ready);
    else
        uv_poll_stop(&end->poll);
}

/* Returns false when the connection broke. */
static bool write_end(struct relay_end *end, const char *data, size_t len, size_t *ret_n) {
    ssize_t n = len > 0 ? send(end->fd, data, len, MSG_NOSIGNAL) : 0;
    *ret_n = n > 0 ? (size_t)n : 0;
    return n >= 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static bool flush(struct relay_end *end) {
    size_t n;
    if (!write_end(end, end->pending.data, end->pending.len, &n))
        return false;
    end->pending.len -= n;
    if (n > 0)
        memmove(end->pending.data, end->pending.data + n, end->pending.len);
    return true;
}

/* Passes bytes on to the other end. When that end does not take all of them, the rest is kept and
 * reading pauses. */
static bool move(struct relay_end *from) {
    struct relay_end *to = other(from);
    char *buffer = loop_read_buffer(from->connection->port->loop);
    for (int i = 0; i < READS_PER_EVENT && to->pending.len == 0; i++) {
        size_t n_written = 0;
        ssize_t n = read(from->fd, buffer, LOOP_READ_BUFFER_BYTES);
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        if (n == 0) {
            from->has_ended = true;
            return true;
        }
        if (!write_end(to, buffer, (size_t)n, &n_written))
            return false;
        str_add_bytes(&to->pending, buffer + n_written, (size_t)n - n_written);
    }
    return true;
}

/* Shuts an end that has been sent everything and will be sent no more. */
static void shut_if_drained(struct relay_end *end) {
    if (!end->is_shut && other(end)->has_ended && end->pending.len == 0) {
        end->is_shut = true;
        shutdown(end->fd, SHUT_WR);
    }
}

static void on_ready(uv_poll_t *poll, int status, int events) {
    struct relay_end *end = CONTAINER_OF(poll, struct relay_end, poll);
    struct client_connection *c = end->connection;
    bool is_good = status >= 0;
    if (is_good && (events & UV_WRITABLE))
        is_good = flush(end);
    if (is_good && (events & UV_READABLE))
        is_good = move(end);
    if (is_good) {
        shut_if_drained(&c->client);
        shut_if_drained(&c->master);
    }
    if (!is_good || (c->client.is_shut && c->master.is_shut)) {
        finish(c);
        return;
    }
    set_events(&c->client);
    set_events(&c->master);
}

static void poll_end(struct relay_end *end) {
    CHECK(uv_poll_init(loop_uv(end->connection->port->loop), &end->poll, end->fd) == 0);
    end->is_polled = true;
    end->connection->n_handles++;
}

/* ---- to the master ---- */

static void find_master(struct client_connection *c);

static void retry(struct client_connection *c, const char *why) {
    if (clock_now_ns() < c->until_ns) {
        loop_timer_start(&c->timer, RETRY_MS, 0);
        return;
    }
    log_event(EVENT_CLIENT_UNSERVED, "client port: no master for a client: %s", why);
    finish(c);
}

static void on_connected(void *arg, int fd_take, struct status *status_take) {
    struct client_connection *c = arg;
    c->connector = NULL;
    c->n_handles--;
    if (status_take) {
        retry(c, status_message(status_take));
        status_unref(status_take);
        return;
    }
    c->master.fd = fd_take;
    grpc_preface_write(&c->master.pending, c->client.fd, c->port->task);
    loop_timer_stop(&c->timer);
    poll_end(&c->client);
    poll_end(&c->master);
    set_events(&c->client);
    set_events(&c->master);
}

static void connect_to(struct client_connection *c, const char *address) {
    struct net_address parsed;
    struct status *st = net_address_parse(address, &parsed);
    if (st) {
        retry(c, status_message(st));
        status_unref(st);
        return;
    }
    c->n_handles++; /* the connector's */
    c->connector = grpc_connector_new(c->port->loop, &parsed, on_connected, c);
}

/* While etcd does not answer, the last known address of the master is used. */
static void on_found(struct etcd_call *call, struct status *status_take,
                     const struct etcd_reply *reply) {
    struct client_connection *c = CONTAINER_OF(call, struct client_connection, lookup);
    struct client_port *port = c->port;
    struct arena arena;
    struct cluster_member member;
    arena_init(&arena);
    if (!status_take && reply->n_ranges > 0 && reply->ranges[0].n > 0) {
        status_take = member_parse(reply->ranges[0].kvs[0].value, &arena, &member);
        if (!status_take) {
            free(port->master);
            port->master = xstrdup(member.address);
        }
    }
    if (port->master)
        connect_to(c, port->master);
    else
        retry(c, status_take ? status_message(status_take) : "none is registered");
    status_unref(status_take);
    arena_fini(&arena);
}

static void find_master(struct client_connection *c) {
    if (c->port->is_fixed) {
        connect_to(c, c->port->master);
        return;
    }
    c->lookup.on_reply = on_found;
    etcd_range(c->port->etcd, &c->lookup, c->port->master_key, false);
}

static void on_timer(struct loop_timer *timer) {
    find_master(CONTAINER_OF(timer, struct client_connection, timer));
}

static void on_accept(void *arg, int fd_take) {
    struct client_port *port = arg;
    if (port->n_connections >= CLIENT_PORT_MAX_CONNECTIONS) {
        close(fd_take);
        return;
    }
    struct client_connection *c = xcalloc(1, sizeof(*c));
    c->port = port;
    c->client = (struct relay_end){.connection = c, .fd = fd_take};
    c->master = (struct relay_end){.connection = c, .fd = -1};
    c->until_ns = clock_now_ns() + CLIENT_PORT_WAIT_MS * 1000000ll;
    c->n_handles = 1;
    list_push_back(&port->connections, &c->link);
    port->n_connections++;
    metric_add(&connections_total, 1);
    metric_set(&connections_now, port->n_connections);
    loop_timer_init(port->loop, &c->timer, on_timer);
    find_master(c);
}

/* ---- the port ---- */

struct status *client_port_new(struct loop *loop, const struct client_port_options *options,
                               struct client_port **ret) {
    struct client_port *port = xcalloc(1, sizeof(*port));
    port->loop = loop;
    list_init(&port->connections);
    struct status *st = listener_new(loop, options->listen, on_accept, port, &port->listener);
    if (st) {
        free(port);
        return status_prefix_take(st, "client port: ");
    }
    port->task = xstrdup(options->task);
    port->is_fixed = options->master != NULL;
    port->master = options->master ? xstrdup(options->master) : NULL;
    port->master_key = options->master_key ? xstrdup(options->master_key) : NULL;
    port->etcd = options->etcd;
    metrics_register(&connections_total);
    metrics_register(&connections_now);
    *ret = port;
    return NULL;
}

int client_port_number(const struct client_port *port) { return listener_port(port->listener); }

void client_port_close(struct client_port *port) {
    if (!port || port->is_closing)
        return;
    port->is_closing = true;
    listener_close(port->listener);
    LIST_FOR_EACH (link, &port->connections)
        finish(LIST_ENTRY(link, struct client_connection, link));
    free_port_if_unused(port);
}

void client_port_describe(const struct client_port *port, struct str *out) {
    str_addf(out, "{\"port\": %d, \"connections\": %d, \"master\": \"", client_port_number(port),
             port->n_connections);
    str_add_json_escaped(out, port->master ? port->master : "",
                         port->master ? strlen(port->master) : 0);
    str_add(out, "\"}");
}
