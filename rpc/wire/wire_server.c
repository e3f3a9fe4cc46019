/* Listens for the worker wire: on TCP and Unix paths by rpc/listen, on abstract Unix names by a
 * socket of its own, within the process by wire_local.c. */
#include "rpc/wire/wire_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ACCEPTS_PER_EVENT = 64,
    BACKLOG = 1024,
    EXHAUSTED_PAUSE_MS =
        /* how long a listener without free descriptors pauses; new connections wait in the
         * backlog */
    100,
};

struct wire_server {
    struct loop *loop;
    void (*on_accept)(void *arg, struct wire_conn *conn_take);
    void *arg;
    bool is_unix;
    struct tls *tls; /* or NULL */
    bool uses_checksums;
    struct grpc_refuser *refuser;      /* or NULL */
    struct listener *listener;         /* or NULL: */
    struct wire_local_listener *local; /* or NULL: */
    uv_poll_t poll;                    /* of an abstract name */
    struct loop_timer pause;
    int fd;
};

static void describe_local(int fd, struct str *out) {
    struct ucred who;
    socklen_t who_len = sizeof(who);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &who_len) == 0)
        str_addf(out, "process %d", (int)who.pid);
    else
        str_add(out, "a local process");
}

static void on_fd(void *arg, int fd_take) {
    struct wire_server *server = arg;
    struct str peer = STR_INIT;
    if (server->is_unix)
        describe_local(fd_take, &peer);
    else
        net_peer_name(fd_take, &peer);
    struct wire_conn *conn =
        wire_conn_adopt(server->loop, fd_take, str_text(&peer), server->is_unix);
    str_fini(&peer);
    wire_conn_secure_accepted(conn, server->tls);
    if (server->uses_checksums)
        wire_conn_use_checksums(conn);
    conn->refuser = grpc_refuser_ref(server->refuser);
    server->on_accept(server->arg, conn);
}

static void on_local(void *arg, struct wire_conn *conn_take) {
    struct wire_server *server = arg;
    server->on_accept(server->arg, conn_take);
}

static void on_abstract_readable(uv_poll_t *poll, int error, int events) {
    struct wire_server *server = CONTAINER_OF(poll, struct wire_server, poll);
    for (int i = 0; i < ACCEPTS_PER_EVENT && server->fd >= 0; i++) {
        int fd = accept4(server->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            /* The listener is readable, but accept fails. Without a pause the loop would spin. */
            uv_poll_stop(&server->poll);
            loop_timer_start(&server->pause, EXHAUSTED_PAUSE_MS, 0);
        }
        if (fd < 0)
            return;
        on_fd(server, fd);
    }
}

static void on_pause_over(struct loop_timer *timer) {
    struct wire_server *server = CONTAINER_OF(timer, struct wire_server, pause);
    uv_poll_start(&server->poll, UV_READABLE, on_abstract_readable);
}

static struct status *listen_abstract(struct wire_server *server, const char *text,
                                      const struct net_address *address) {
    struct sockaddr_storage sockaddr;
    socklen_t len = wire_sockaddr(address, &sockaddr);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sockaddr, len) != 0 || listen(fd, BACKLOG) != 0) {
        struct status *st = status_unavailable("listen on %s: %s", text, strerror(errno));
        if (fd >= 0)
            close(fd);
        return st;
    }
    server->fd = fd;
    CHECK(uv_poll_init(loop_uv(server->loop), &server->poll, fd) == 0);
    CHECK(uv_poll_start(&server->poll, UV_READABLE, on_abstract_readable) == 0);
    loop_timer_init(server->loop, &server->pause, on_pause_over);
    return NULL;
}

struct status *wire_listen(struct loop *loop, const char *address,
                           void (*on_accept)(void *arg, struct wire_conn *conn_take), void *arg,
                           struct wire_server **ret_server) {
    struct net_address parsed;
    TRY(net_address_parse(address, &parsed));
    struct wire_server *server = xcalloc(1, sizeof(*server));
    server->loop = loop;
    server->on_accept = on_accept;
    server->arg = arg;
    server->is_unix = parsed.is_unix;
    server->fd = -1;
    struct status *st;
    if (parsed.is_local)
        st = wire_local_listen(loop, parsed.host, on_local, server, &server->local);
    else if (parsed.is_unix && parsed.host[0] == '@')
        st = listen_abstract(server, address, &parsed);
    else
        st = listener_new(loop, address, on_fd, server, &server->listener);
    if (st) {
        free(server);
        return st;
    }
    *ret_server = server;
    return NULL;
}

void wire_server_secure(struct wire_server *server, struct tls *tls) {
    tls_unref(server->tls);
    server->tls = tls_ref(tls);
}

void wire_server_use_checksums(struct wire_server *server) { server->uses_checksums = true; }

void wire_server_refuse_grpc(struct wire_server *server, const char *words) {
    if (server->refuser)
        grpc_refuser_say(server->refuser, words);
    else
        server->refuser = grpc_refuser_new(server->loop, words);
}

int wire_server_port(const struct wire_server *server) {
    return server->listener ? listener_port(server->listener) : 0;
}

static void server_free(struct wire_server *server) {
    grpc_refuser_unref(server->refuser);
    tls_unref(server->tls);
    free(server);
}

static void on_pause_closed(struct loop_timer *timer) {
    server_free(CONTAINER_OF(timer, struct wire_server, pause));
}

static void on_poll_closed(uv_handle_t *handle) {
    struct wire_server *server = CONTAINER_OF((uv_poll_t *)handle, struct wire_server, poll);
    loop_timer_close(&server->pause, on_pause_closed);
}

void wire_server_close(struct wire_server *server) {
    if (!server)
        return;
    if (server->listener || server->local) {
        listener_close(server->listener);
        if (server->local)
            wire_local_listener_close(server->local);
        server_free(server);
        return;
    }
    loop_timer_stop(&server->pause);
    uv_close((uv_handle_t *)&server->poll, on_poll_closed);
    close(server->fd);
    server->fd = -1;
}
