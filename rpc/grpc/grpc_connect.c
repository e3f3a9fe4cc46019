/* Resolves a name and tries its addresses one after the other until one of them connects. */
#include "rpc/grpc/grpc_connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    MAX_ADDRESSES = 8,
    /* so that a vanished host is noticed, however long the answer may take */
    VANISHED_MS = 30000,
};

/* resolving ──► trying address i ──► connected
 *                 └── refused ──► trying address i+1 ──► … ──► failed
 *
 * A cancelled one is freed after its pending callback. */
struct grpc_connector {
    struct loop *loop;
    struct net_address address;
    grpc_connector_done_fn *on_done;
    void (*on_gone)(void *arg);
    void *arg;
    uv_getaddrinfo_t request;
    struct sockaddr_storage addresses[MAX_ADDRESSES];
    socklen_t lens[MAX_ADDRESSES];
    int n_addresses, i_address;
    int fd, error; /* the errno of the last address that failed */
    uv_poll_t poll;
    struct loop_task next;
    bool is_cancelled, is_polling, is_resolving;
};

static void end(struct grpc_connector *connector, int fd_take, struct status *status_take) {
    grpc_connector_done_fn *on_done = connector->on_done;
    void (*on_gone)(void *arg) = connector->on_gone;
    void *arg = connector->arg;
    bool is_cancelled = connector->is_cancelled;
    free(connector);
    if (!is_cancelled) {
        on_done(arg, fd_take, status_take);
        return;
    }
    if (fd_take >= 0)
        close(fd_take);
    status_unref(status_take);
    if (on_gone)
        on_gone(arg);
}

static void fail(struct grpc_connector *connector, const char *reason) {
    const struct net_address *a = &connector->address;
    struct status *why;
    if (a->is_unix)
        why = status_unavailable("connect to unix:%s: %s", a->host, reason);
    else
        why = status_unavailable("connect to %s:%d: %s", a->host, a->port, reason);
    end(connector, -1, why);
}

static void on_polled_closed(uv_handle_t *handle) {
    struct grpc_connector *connector =
        CONTAINER_OF((uv_poll_t *)handle, struct grpc_connector, poll);
    connector->is_polling = false;
    if (connector->error == 0) {
        end(connector, connector->fd, NULL);
        return;
    }
    close(connector->fd);
    connector->i_address++;
    connector->next.run(&connector->next);
}

static void on_connected(uv_poll_t *poll, int status, int events) {
    struct grpc_connector *connector = CONTAINER_OF(poll, struct grpc_connector, poll);
    socklen_t len = sizeof(connector->error);
    connector->error = 0;
    getsockopt(connector->fd, SOL_SOCKET, SO_ERROR, &connector->error, &len);
    if (status < 0 && connector->error == 0)
        connector->error = ECONNREFUSED;
    uv_close((uv_handle_t *)poll, on_polled_closed);
}

/* Handles the result of one attempt: its socket is polled, or its errno is kept. */
static void try_address(struct grpc_connector *connector) {
    const struct sockaddr_storage *address = &connector->addresses[connector->i_address];
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    if (fd < 0) {
        connector->error = errno;
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    net_keep_alive(fd, VANISHED_MS);
    if (connect(fd, (const struct sockaddr *)address, connector->lens[connector->i_address]) != 0 &&
        errno != EINPROGRESS) {
        connector->error = errno;
        close(fd);
        return;
    }
    connector->fd = fd;
    connector->is_polling = true;
    CHECK(uv_poll_init(loop_uv(connector->loop), &connector->poll, fd) == 0);
    uv_poll_start(&connector->poll, UV_WRITABLE, on_connected);
}

static void try_next(struct loop_task *task) {
    struct grpc_connector *connector = CONTAINER_OF(task, struct grpc_connector, next);
    for (; connector->i_address < connector->n_addresses && !connector->is_cancelled;
         connector->i_address++) {
        try_address(connector);
        if (connector->is_polling)
            return;
    }
    fail(connector, strerror(connector->error));
}

static void add_address(struct grpc_connector *connector, const struct sockaddr *address,
                        socklen_t len) {
    if (connector->n_addresses == MAX_ADDRESSES)
        return;
    memcpy(&connector->addresses[connector->n_addresses], address, len);
    connector->lens[connector->n_addresses++] = len;
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found) {
    struct grpc_connector *connector = CONTAINER_OF(request, struct grpc_connector, request);
    connector->is_resolving = false;
    for (struct addrinfo *ai = found; ai; ai = ai->ai_next)
        if (ai->ai_family == AF_INET || ai->ai_family == AF_INET6)
            add_address(connector, ai->ai_addr, ai->ai_addrlen);
    uv_freeaddrinfo(found);
    if (status != 0)
        fail(connector, uv_strerror(status));
    else
        try_next(&connector->next);
}

/* A numeric or Unix address, or localhost, needs no resolver. */
static bool add_known(struct grpc_connector *connector) {
    struct net_address address = connector->address;
    bool is_local =
        !address.is_unix && (address.host[0] == '\0' || strcmp(address.host, "localhost") == 0);
    const char *hosts[] = {is_local ? "127.0.0.1" : address.host, "::1"};
    for (int i = 0; i < (is_local ? 2 : 1); i++) {
        struct sockaddr_storage sockaddr;
        if (is_local)
            memcpy(address.host, hosts[i], strlen(hosts[i]) + 1);
        socklen_t len = net_address_to_sockaddr(&address, &sockaddr);
        if (len == 0)
            return false;
        add_address(connector, (struct sockaddr *)&sockaddr, len);
    }
    return true;
}

struct grpc_connector *grpc_connector_new(struct loop *loop, const struct net_address *address,
                                          grpc_connector_done_fn *on_done, void *arg) {
    struct grpc_connector *connector = xcalloc(1, sizeof(*connector));
    connector->loop = loop;
    connector->address = *address;
    connector->on_done = on_done;
    connector->arg = arg;
    connector->error = EADDRNOTAVAIL;
    connector->next.run = try_next;
    if (!add_known(connector)) {
        char port[8];
        snprintf(port, sizeof(port), "%d", address->port);
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
        if (uv_getaddrinfo(loop_uv(loop), &connector->request, on_resolved, address->host, port,
                           &hints) == 0) {
            connector->is_resolving = true;
            return connector;
        }
    }
    loop_defer(loop, &connector->next);
    return connector;
}

void grpc_connector_cancel(struct grpc_connector *connector, void (*on_gone)(void *arg)) {
    connector->is_cancelled = true;
    connector->on_gone = on_gone;
    if (connector->is_resolving)
        uv_cancel((uv_req_t *)&connector->request);
    else if (connector->is_polling && !uv_is_closing((uv_handle_t *)&connector->poll)) {
        connector->error = ECANCELED;
        uv_close((uv_handle_t *)&connector->poll, on_polled_closed);
    }
}
