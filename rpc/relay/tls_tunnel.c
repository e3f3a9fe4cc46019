/* Joins each accepted connection to one with TLS. The life of a connection:
 *
 *   accepted ──► CONNECTING ──► RELAYED: tls_relay.h ──► freed
 *                 ▲      │ refused   │ TLS failed before any byte was passed on
 *                 └──────┤           │
 *            after wait_ms └─────────┴──► a gRPC server ends the first call with the reason */
#include "rpc/relay/tls_tunnel.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "rpc/grpc/grpc_connect.h"
#include "rpc/grpc/grpc_server.h"
#include "rpc/tls/tls_relay.h"

enum { RETRY_MS = 200 };

struct tls_tunnel {
    struct loop *loop;
    struct listener *listener;
    struct net_address target;
    char *target_text, *name;
    struct tls *tls;
    int64_t wait_ms;
    struct grpc_server *refuser;
    struct list connections;
    int n_connections, n_open; /* n_connections: in memory; n_open: not over yet */
    bool is_draining, is_closing;
    void (*on_drained)(void *arg);
    void *on_drained_arg;
};

struct tunnel_connection {
    struct list link;
    struct tls_tunnel *tunnel;
    int plain_fd; /* -1: the relay owns it */
    struct grpc_connector *connector;
    struct tls_relay *relay;
    struct loop_timer timer; /* of the next attempt */
    bool is_over;
    int64_t until_ns;
    int n_handles;
};

/* ---- the end ---- */

static void free_tunnel_if_unused(struct tls_tunnel *tunnel) {
    if (!tunnel->is_closing || tunnel->n_connections > 0)
        return;
    tls_unref(tunnel->tls);
    free(tunnel->target_text);
    free(tunnel->name);
    free(tunnel);
}

static void release(struct tunnel_connection *c) {
    struct tls_tunnel *tunnel = c->tunnel;
    if (--c->n_handles > 0)
        return;
    list_remove(&c->link);
    free(c);
    tunnel->n_connections--;
    free_tunnel_if_unused(tunnel);
}

static void on_timer_closed(struct loop_timer *timer) {
    release(CONTAINER_OF(timer, struct tunnel_connection, timer));
}
static void on_connector_gone(void *arg) { release(arg); }

static void report_drained(struct tls_tunnel *tunnel) {
    if (!tunnel->is_draining || tunnel->n_open > 0 || !tunnel->on_drained || tunnel->is_closing)
        return;
    void (*on_drained)(void *arg) = tunnel->on_drained;
    tunnel->on_drained = NULL;
    on_drained(tunnel->on_drained_arg);
}

static void finish(struct tunnel_connection *c) {
    if (c->is_over)
        return;
    c->is_over = true;
    if (c->connector)
        grpc_connector_cancel(c->connector, on_connector_gone);
    if (c->relay)
        tls_relay_close(c->relay);
    if (c->plain_fd >= 0)
        close(c->plain_fd);
    c->connector = NULL;
    c->relay = NULL;
    c->plain_fd = -1;
    c->tunnel->n_open--;
    loop_timer_close(&c->timer, on_timer_closed);
    report_drained(c->tunnel);
}

/* Ends the first gRPC call of the client with the reason. */
static void refuse(struct tunnel_connection *c, struct status *why_take) {
    int fd = c->plain_fd;
    log_event(EVENT_TUNNEL_FAILED, "no tunnel to %s: %s", c->tunnel->target_text,
              status_message(why_take));
    c->plain_fd = -1;
    grpc_server_adopt_refused(
        c->tunnel->refuser, fd,
        status_prefix_take(why_take, "no tunnel to %s: ", c->tunnel->target_text));
    finish(c);
}

/* ---- to the target ---- */

static void on_relay_over(void *arg, struct status *why, bool has_moved, int plain_fd_take) {
    struct tunnel_connection *c = arg;
    c->relay = NULL;
    c->plain_fd = plain_fd_take;
    if (why && !has_moved)
        refuse(c, status_new(STATUS_UNAUTHENTICATED, "%s", status_message(why)));
    else
        finish(c);
}

static void on_connected(void *arg, int fd_take, struct status *status_take) {
    struct tunnel_connection *c = arg;
    struct tls_tunnel *tunnel = c->tunnel;
    c->connector = NULL;
    c->n_handles--;
    if (!status_take) {
        struct tls_stream *stream = tls_stream_new(tunnel->tls, false, tunnel->target_text);
        tls_stream_expect(stream, tunnel->name);
        c->relay =
            tls_relay_new(tunnel->loop, &(struct tls_relay_options){.plain_fd_take = c->plain_fd,
                                                                    .tls_fd_take = fd_take,
                                                                    .stream_take = stream,
                                                                    .waits_for_tls = true,
                                                                    .on_over = on_relay_over,
                                                                    .arg = c});
        c->plain_fd = -1;
    } else if (clock_now_ns() < c->until_ns) {
        loop_timer_start(&c->timer, RETRY_MS, 0);
    } else {
        refuse(c, status_ref(status_take));
    }
    status_unref(status_take);
}

static void on_attempt(struct loop_timer *timer) {
    struct tunnel_connection *c = CONTAINER_OF(timer, struct tunnel_connection, timer);
    c->n_handles++; /* the connector's */
    c->connector = grpc_connector_new(c->tunnel->loop, &c->tunnel->target, on_connected, c);
}

static void on_accept(void *arg, int fd_take) {
    struct tls_tunnel *tunnel = arg;
    if (tunnel->n_open >= TLS_TUNNEL_MAX_CONNECTIONS) {
        close(fd_take);
        return;
    }
    struct tunnel_connection *c = xcalloc(1, sizeof(*c));
    c->tunnel = tunnel;
    c->plain_fd = fd_take;
    c->until_ns = clock_now_ns() + tunnel->wait_ms * 1000000;
    c->n_handles = 1;
    list_push_back(&tunnel->connections, &c->link);
    tunnel->n_connections++;
    tunnel->n_open++;
    loop_timer_init(tunnel->loop, &c->timer, on_attempt);
    on_attempt(&c->timer);
}

/* ---- the tunnel ---- */

struct status *tls_tunnel_new(struct loop *loop, const struct tls_tunnel_options *options,
                              struct tls_tunnel **ret_tunnel) {
    struct net_address target;
    struct status *st = net_address_parse(options->target, &target);
    if (!st && (target.is_unix || !target.host[0]))
        st = status_invalid("'%s' is no host and port", options->target);
    if (st)
        return status_prefix_take(st, "target: ");
    struct tls_tunnel *tunnel = xcalloc(1, sizeof(*tunnel));
    tunnel->loop = loop;
    tunnel->target = target;
    list_init(&tunnel->connections);
    struct grpc_server_options nothing = {.methods = NULL};
    st = grpc_server_new(loop, NULL, &nothing, &tunnel->refuser);
    CHECK(!st); /* it does not listen; sockets are given to it */
    st = listener_new(loop, options->listen, on_accept, tunnel, &tunnel->listener);
    if (st) {
        grpc_server_close(tunnel->refuser, NULL, NULL);
        free(tunnel);
        return st;
    }
    tunnel->target_text = xstrdup(options->target);
    tunnel->name = xstrdup(options->name ? options->name : target.host);
    tunnel->tls = tls_ref(options->tls);
    tunnel->wait_ms = options->wait_ms ? options->wait_ms : TLS_TUNNEL_WAIT_MS;
    *ret_tunnel = tunnel;
    return NULL;
}

int tls_tunnel_port(const struct tls_tunnel *tunnel) {
    return tunnel->listener ? listener_port(tunnel->listener) : 0;
}
int tls_tunnel_count(const struct tls_tunnel *tunnel) { return tunnel->n_open; }

void tls_tunnel_drain(struct tls_tunnel *tunnel, void (*on_drained)(void *arg), void *arg) {
    tunnel->is_draining = true;
    tunnel->on_drained = on_drained;
    tunnel->on_drained_arg = arg;
    listener_close(tunnel->listener);
    tunnel->listener = NULL;
    report_drained(tunnel);
}

void tls_tunnel_close(struct tls_tunnel *tunnel) {
    if (!tunnel || tunnel->is_closing)
        return;
    tunnel->is_closing = true;
    listener_close(tunnel->listener);
    LIST_FOR_EACH_SAFE (link, next, &tunnel->connections)
        finish(LIST_ENTRY(link, struct tunnel_connection, link));
    grpc_server_close(tunnel->refuser, NULL, NULL);
    free_tunnel_if_unused(tunnel);
}
