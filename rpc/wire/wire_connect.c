/* Opens connections of the worker wire: resolves addresses, tries each, shakes hands for TLS. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "rpc/wire/wire_internal.h"

enum {
    SOCKET_BUFFER_BYTES = 4 << 20, /* of Unix sockets; the kernel may give less */
    /* So a host that disappears is noticed also where no heartbeats are sent
     * (rpc/wire/heartbeat.h). */
    VANISHED_MS = 30000,
};

/* ---- sockets ---- */

socklen_t wire_sockaddr(const struct net_address *address, struct sockaddr_storage *ret_sockaddr) {
    socklen_t len = net_address_to_sockaddr(address, ret_sockaddr);
    /* the abstract namespace: a name, not a path */
    if (address->is_unix && address->host[0] == '@') {
        struct sockaddr_un *un = (struct sockaddr_un *)ret_sockaddr;
        un->sun_path[0] = '\0';
        len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(address->host));
    }
    return len;
}

void wire_socket_tune(int fd, bool is_unix) {
    int size = SOCKET_BUFFER_BYTES, one = 1;
    if (is_unix) {
        /* the kernel enlarges TCP's buffers by itself */
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    } else {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        net_keep_alive(fd, VANISHED_MS);
    }
}

/* ---- the result of a connect ---- */

static void connect_next(struct wire_conn *conn);

static void on_connected(struct wire_conn *conn) {
    pthread_mutex_lock(&conn->lock);
    if (wire_conn_is_live(conn))
        atomic_store_explicit(&conn->state, conn->tls ? WIRE_SECURING : WIRE_OPEN,
                              memory_order_release);
    pthread_mutex_unlock(&conn->lock);
    uv_freeaddrinfo(conn->addresses);
    conn->addresses = conn->next_address = NULL;
    wire_socket_tune(conn->fd, conn->is_unix);
}

/* Continues TLS' handshake. After its end, sends what was queued meanwhile, and reads what the
 * other end may have sent already. */
void wire_conn_shake(struct wire_conn *conn) {
    int rc = tls_socket_shake(conn->tls, conn->fd);
    if (rc < 0) {
        wire_conn_end(conn, wire_why_broken(conn, errno));
        return;
    }
    if (rc == 0) {
        wire_conn_poll_for(conn, tls_stream_has_output(conn->tls));
        return;
    }
    pthread_mutex_lock(&conn->lock);
    if (wire_conn_is_live(conn))
        atomic_store_explicit(&conn->state, WIRE_OPEN, memory_order_release);
    pthread_mutex_unlock(&conn->lock);
    wire_conn_on_writable(conn);
    wire_conn_read(conn);
}

/* The kernel has decided about a connect. */
void wire_conn_on_connect_result(struct wire_conn *conn) {
    int error = 0;
    socklen_t len = sizeof(error);
    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        error = errno;
    if (error == 0) {
        on_connected(conn);
        if (conn->tls)
            wire_conn_shake(conn);
        else
            wire_conn_on_writable(conn);
    } else if (conn->next_address) {
        wire_conn_close_socket(conn);
        connect_next(conn);
    } else {
        conn->connect_error = error;
        wire_conn_end(conn,
                      status_unavailable("cannot connect to %s: %s", conn->peer, strerror(error)));
    }
}

/* ---- TLS ---- */

static void set_securing(struct wire_conn *conn, struct tls *tls, bool is_server) {
    conn->tls = tls_stream_new(tls, is_server, conn->peer);
    pthread_mutex_lock(&conn->lock);
    if (atomic_load(&conn->state) == WIRE_OPEN)
        atomic_store(&conn->state, WIRE_SECURING);
    pthread_mutex_unlock(&conn->lock);
}

/* Checks over a Unix socket what TLS checks over TCP: the kernel knows the other end's user. */
static void check_user(struct wire_conn *conn) {
    if (!wire_conn_is_same_user(conn))
        wire_conn_close(conn, status_unavailable("%s belongs to another user; a Unix socket "
                                                 "without TLS serves only the user of this process",
                                                 conn->peer));
}

void wire_conn_secure(struct wire_conn *conn, struct tls *tls, const char *task) {
    struct str name = STR_INIT;
    if (!tls || !wire_conn_is_live(conn))
        return;
    if (conn->is_unix) {
        check_user(conn);
        return;
    }
    set_securing(conn, tls, false);
    if (!task)
        return;
    tls_task_name(tls, task, &name);
    tls_stream_expect(conn->tls, str_text(&name));
    str_fini(&name);
}

void wire_conn_secure_accepted(struct wire_conn *conn, struct tls *tls) {
    if (tls && conn->is_unix)
        check_user(conn);
    else if (tls)
        set_securing(conn, tls, true);
}

int wire_conn_connect_error(const struct wire_conn *conn) { return conn->connect_error; }

struct status *wire_conn_check_task(struct wire_conn *conn, const char *task) {
    return conn->tls ? tls_stream_check_task(conn->tls, task) : NULL;
}

/* ---- connecting ---- */

static void set_socket(struct wire_conn *conn, int fd) {
    pthread_mutex_lock(&conn->lock);
    conn->fd = fd;
    pthread_mutex_unlock(&conn->lock);
}

/* A connection that is made at once also flushes from the loop, because the caller may still have
 * to queue its first messages. */
static void begin_polling(struct wire_conn *conn) {
    struct status *why = wire_conn_begin_polling(conn, UV_READABLE | UV_WRITABLE);
    if (why)
        wire_conn_close(conn, why);
}

static void try_connect(struct wire_conn *conn, const struct sockaddr *address, socklen_t len) {
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        wire_conn_close(
            conn, status_unavailable("cannot connect to %s: %s", conn->peer, strerror(errno)));
        return;
    }
    int rc = connect(fd, address, len);
    int error = rc < 0 ? errno : 0;
    set_socket(conn, fd);
    if (error != 0 && error != EINPROGRESS) {
        if (conn->next_address) {
            wire_conn_close_socket(conn);
            connect_next(conn);
        } else {
            conn->connect_error = error;
            wire_conn_close(
                conn, status_unavailable("cannot connect to %s: %s", conn->peer, strerror(error)));
        }
        return;
    }
    if (error == 0)
        on_connected(conn);
    begin_polling(conn);
}

static void connect_next(struct wire_conn *conn) {
    struct addrinfo *address = conn->next_address;
    conn->next_address = address->ai_next;
    try_connect(conn, address->ai_addr, address->ai_addrlen);
}

static void on_resolved(uv_getaddrinfo_t *request, int error, struct addrinfo *addresses) {
    struct wire_conn *conn = CONTAINER_OF(request, struct wire_conn, resolve);
    conn->is_resolving = false;
    if (!wire_conn_is_live(conn)) {
        uv_freeaddrinfo(addresses);
    } else if (error) {
        wire_conn_end(conn,
                      status_unavailable("cannot resolve %s: %s", conn->peer, uv_strerror(error)));
    } else {
        conn->addresses = conn->next_address = addresses;
        connect_next(conn);
    }
    wire_conn_unref(conn); /* the request's */
}

static void resolve(struct wire_conn *conn, const struct net_address *address) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    char port[8];
    snprintf(port, sizeof(port), "%u", address->port);
    wire_conn_ref(conn);
    conn->is_resolving = true;
    int error = uv_getaddrinfo(loop_uv(conn->loop), &conn->resolve, on_resolved, address->host,
                               port, &hints);
    if (error) {
        conn->is_resolving = false;
        wire_conn_close(
            conn, status_unavailable("cannot resolve %s: %s", conn->peer, uv_strerror(error)));
        wire_conn_unref(conn);
    }
}

struct wire_conn *wire_connect(struct loop *loop, const char *address,
                               const struct wire_handlers *handlers, void *owner) {
    struct net_address parsed = {0};
    struct sockaddr_storage sockaddr;
    struct status *why = net_address_parse(address, &parsed);
    struct wire_conn *conn = wire_conn_new(loop, address, parsed.is_unix);
    conn->handlers = handlers;
    conn->owner = owner;
    wire_conn_ref(conn); /* the loop's */
    if (why) {
        wire_conn_close(conn, why);
        return conn;
    }
    if (parsed.is_local) {
        why = wire_local_dial(conn, parsed.host);
        if (why)
            wire_conn_close(conn, why);
        return conn;
    }
    if (!parsed.is_unix && (parsed.host[0] == '\0' || strcmp(parsed.host, "localhost") == 0))
        snprintf(parsed.host, sizeof(parsed.host),
                 "127.0.0.1"); /* as listeners do: no resolver and no thread are needed */
    socklen_t len = wire_sockaddr(&parsed, &sockaddr);
    if (len > 0)
        try_connect(conn, (struct sockaddr *)&sockaddr, len);
    else
        resolve(conn, &parsed);
    return conn;
}
