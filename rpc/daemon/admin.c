/* Runs libmicrohttpd on the loop, and hands each request to its page. */
#include "rpc/daemon/admin.h"

#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/list.h"
#include "rpc/daemon/admin_format.h"
#include "rpc/daemon/admin_pages.h"
#include "rpc/grpc/grpc_refuser.h"
#include "rpc/listen.h"
#include "rpc/tls/tls_relay.h"

enum {
    MAX_CONNECTIONS = 100,
    /* A probe opens a connection of its own, so silent connections must leave some free. */
    IDLE_TIMEOUT_S = 5,
    STALL_TIMEOUT_S = 30, /* for a client that does not read, or has vanished */
    /* The request line and the headers must fit, otherwise the answer is 414 or 431. */
    CONNECTION_MEMORY_BYTES = 16 * 1024,
};

/* libmicrohttpd waits on an epoll of its own; the loop watches that epoll's descriptor and runs
 * it when it is ready. */
struct admin_server {
    struct loop *loop;
    struct admin_options options;
    struct admin_pages pages;
    struct listener *listener;      /* or NULL */
    struct listener *unix_listener; /* or NULL */
    struct requester *arriving;     /* of the connection that libmicrohttpd is being given */
    struct MHD_Daemon *http;
    uv_poll_t poll;
    struct loop_timer timer; /* when libmicrohttpd wants to run although nothing is ready */
    struct loop_task close;
    struct list replies;  /* struct admin_reply.link: pages that have begun */
    struct list arrivals; /* struct arrival.link */
    int n_arrivals;
    struct grpc_refuser *refuser; /* NULL until a gRPC client has dialled the port */
    struct list secured;          /* struct secured.link */
    int n_secured;
    int n_handles;
    bool is_closing;
    bool is_in_http; /* libmicrohttpd is running: it notices by itself what it is told meanwhile. */
};

/* Who sends the requests of a connection. libmicrohttpd's connection owns it. */
struct requester {
    bool is_trusted;         /* may change something without showing a certificate */
    struct secured *secured; /* or NULL */
};

/* A connection that speaks TLS: the HTTP library has one end of a socket pair. */
struct secured {
    struct list link;
    struct admin_server *server;
    struct tls_relay *relay;
    struct tls_stream *stream;   /* the relay's */
    struct requester *requester; /* NULL: the HTTP library has closed its end */
};

/* A connection whose first bytes have not arrived yet. They show whether it speaks HTTP/1 or TLS,
 * for the pages, or is a misdirected gRPC client. */
struct arrival {
    struct list link; /* in server->arrivals until its handles are being closed */
    struct admin_server *server;
    uv_poll_t poll;
    struct loop_timer timer; /* closes the connection when nothing arrives */
    int fd;
    bool is_local; /* a Unix socket of this user or root */
    int n_handles;
};

/* A page that has begun: its connection is suspended until it is finished. */
struct admin_reply {
    struct list link;
    struct admin_server *server;       /* NULL: the server is closed */
    struct MHD_Connection *connection; /* NULL: the request has ended */
    const struct admin_page *page;
    enum admin_format format;
    struct str body;
    int http_status; /* 0: the page is not finished */
    bool is_suspended;
};

/* `allowed` names the methods that the page accepts, when the request's is not among them;
 * otherwise NULL. */
static enum MHD_Result respond_with(struct MHD_Connection *connection, int http_status,
                                    const char *content_type, const char *allowed,
                                    struct str *body) {
    size_t len = body->len;
    char *data = len ? str_detach(body) : NULL;
    struct MHD_Response *response = MHD_create_response_from_buffer(
        len, data ? data : (void *)"", data ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!response) {
        free(data);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    /* Whatever a page says, a browser runs and fetches nothing because of it. */
    MHD_add_response_header(response, "Content-Security-Policy",
                            "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
                            "form-action 'none'; frame-ancestors 'none'");
    if (allowed)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allowed);
    enum MHD_Result rc = MHD_queue_response(connection, (unsigned)http_status, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result respond(struct MHD_Connection *connection, int http_status,
                               const char *content_type, struct str *body) {
    return respond_with(connection, http_status, content_type, NULL, body);
}

static enum MHD_Result respond_text(struct MHD_Connection *connection, int http_status,
                                    const char *text) {
    struct str body = STR_INIT;
    str_add(&body, text);
    enum MHD_Result rc = respond(connection, http_status, "text/plain; charset=utf-8", &body);
    str_fini(&body);
    return rc;
}

static enum MHD_Result respond_not_allowed(struct MHD_Connection *connection, const char *allowed) {
    struct str body = STR_INIT;
    str_addf(&body, "only %s\n", allowed);
    enum MHD_Result rc = respond_with(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                                      "text/plain; charset=utf-8", allowed, &body);
    str_fini(&body);
    return rc;
}

/* ---- pages that are finished later ---- */

static void reply_free(struct admin_reply *reply) {
    list_remove(&reply->link);
    str_fini(&reply->body);
    free(reply);
}

static enum MHD_Result respond_finished(const struct admin_server *server,
                                        struct MHD_Connection *connection,
                                        struct admin_reply *reply) {
    struct page_frame frame = admin_pages_frame(&server->pages, reply->page);
    admin_format_body(reply->format, &frame, &reply->body);
    return respond(connection, reply->http_status,
                   admin_format_content_type(reply->format, reply->page), &reply->body);
}

/* *ret_reply belongs to the request from now on. */
static enum MHD_Result begin_page(struct admin_server *server, struct MHD_Connection *connection,
                                  const struct admin_page *page, enum admin_format format,
                                  const char *query, struct admin_reply **ret_reply) {
    struct admin_reply *reply = xcalloc(1, sizeof(*reply));
    reply->server = server;
    reply->connection = connection;
    reply->page = page;
    reply->format = format;
    list_init(&reply->link);
    list_push_back(&server->replies, &reply->link);
    *ret_reply = reply;
    page->begin(server->options.arg, query, reply);
    if (reply->http_status != 0)
        return respond_finished(server, connection, reply);
    MHD_suspend_connection(connection);
    reply->is_suspended = true;
    return MHD_YES;
}

static void run_http(struct admin_server *server);

static void reply_resume(struct admin_reply *reply) {
    if (!reply->is_suspended)
        return;
    reply->is_suspended = false;
    MHD_resume_connection(reply->connection);
}

void admin_reply_finish(struct admin_reply *reply, int http_status, struct str *body) {
    struct admin_server *server = reply->server;
    CHECK(reply->http_status == 0);
    reply->http_status = http_status;
    str_add_bytes(&reply->body, body->data, body->len);
    str_clear(body);
    if (!reply->connection) {
        reply_free(reply);
        return;
    }
    reply_resume(reply);
    if (!server->is_in_http)
        run_http(server);
}

static bool is_operator(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    const struct requester *requester = info ? info->socket_context : NULL;
    if (!requester)
        return false;
    struct tls_stream *stream = requester->secured ? requester->secured->stream : NULL;
    return requester->is_trusted || (stream && (tls_stream_is_from(stream, "admin") ||
                                                tls_stream_is_from(stream, "master")));
}

static enum MHD_Result respond_page(struct admin_server *server, struct MHD_Connection *connection,
                                    const struct admin_page *page, const char *asked,
                                    struct admin_reply **ret_reply) {
    struct str query = STR_INIT, body = STR_INIT;
    enum MHD_Result rc;
    enum admin_format format = admin_format_choose(
        page, asked,
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT));
    admin_format_query(format, asked, &query);
    if (page->begin) {
        rc = begin_page(server, connection, page, format, str_text(&query), ret_reply);
    } else {
        struct page_frame frame = admin_pages_frame(&server->pages, page);
        int http_status = admin_pages_write(&server->pages, page, is_operator(connection),
                                            str_text(&query), &body);
        admin_format_body(format, &frame, &body);
        rc = respond(connection, http_status, admin_format_content_type(format, page), &body);
    }
    str_fini(&query);
    str_fini(&body);
    return rc;
}

/* ---- libmicrohttpd's callbacks ---- */

/* One request. libmicrohttpd calls twice: after the headers, and when the request is complete. The
 * URL that it passes to the handler has lost its query, so the whole URL is kept here. */
struct admin_request {
    bool is_begun;
    struct admin_reply *reply; /* the reply of a page that has begun */
    char uri[];
};

static void *on_uri(void *arg, const char *uri, struct MHD_Connection *connection) {
    size_t size = strlen(uri) + 1;
    struct admin_request *request = xmalloc(sizeof(*request) + size);
    request->is_begun = false;
    request->reply = NULL;
    memcpy(request->uri, uri, size);
    return request;
}

/* From here on an unfinished reply belongs to its page. */
static void on_completed(void *arg, struct MHD_Connection *connection, void **request_of,
                         enum MHD_RequestTerminationCode code) {
    struct admin_request *request = *request_of;
    struct admin_reply *reply = request ? request->reply : NULL;
    if (reply && reply->http_status != 0) {
        reply_free(reply);
    } else if (reply) {
        list_remove(&reply->link);
        reply->connection = NULL;
    }
    free(request);
    *request_of = NULL;
}

/* ---- who sends a request ---- */

/* Called while libmicrohttpd takes a connection over, and when it has closed it. */
static void on_connection(void *arg, struct MHD_Connection *connection, void **requester_of,
                          enum MHD_ConnectionNotificationCode code) {
    struct admin_server *server = arg;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *requester_of = server->arriving;
        server->arriving = NULL;
        return;
    }
    struct requester *requester = *requester_of;
    if (requester && requester->secured)
        requester->secured->requester = NULL;
    free(requester);
    *requester_of = NULL;
}

/* MHD_NO: the request may continue. Otherwise it has been answered, which ends the connection if
 * the body has not arrived yet. */
static enum MHD_Result refuse_method(const struct admin_server *server,
                                     struct MHD_Connection *connection, const char *path,
                                     const char *method) {
    const struct admin_page *page = admin_pages_find(&server->pages, path);
    bool is_get =
        strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    if (!page || !page->is_action)
        return is_get ? MHD_NO : respond_not_allowed(connection, "GET, HEAD");
    if (strcmp(method, MHD_HTTP_METHOD_POST) != 0)
        return respond_not_allowed(connection, "POST");
    if (!MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "X-Millrace"))
        return respond_text(connection, MHD_HTTP_FORBIDDEN,
                            "this page needs a header X-Millrace\n");
    if (!is_operator(connection))
        return respond_text(connection, MHD_HTTP_FORBIDDEN,
                            "this page changes something: send the request with an operator's "
                            "certificate (millrace://CLUSTER/admin) to a port with --tls-admin, "
                            "or to the Unix socket of --admin-socket\n");
    return MHD_NO;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **request_of) {
    struct admin_server *server = arg;
    struct admin_request *request = *request_of;
    if (!request->is_begun && refuse_method(server, connection, path, method) == MHD_YES)
        return MHD_YES;
    if (!request->is_begun || *upload_size > 0) {
        request->is_begun = true;
        *upload_size = 0; /* the body is ignored */
        return MHD_YES;
    }
    if (request->reply)
        return request->reply->http_status != 0
                   ? respond_finished(server, connection, request->reply)
                   : respond_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "stopping\n");
    const struct admin_page *page = admin_pages_find(&server->pages, path);
    if (!page)
        return respond_text(connection, MHD_HTTP_NOT_FOUND, "no such page\n");
    const char *mark = strchr(request->uri, '?');
    return respond_page(server, connection, page, mark ? mark + 1 : "", &request->reply);
}

/* A malformed request of a stranger is not worth a log line. */
static void on_http_log(void *arg, const char *format, va_list args) {}

/* ---- on the loop ---- */

static void run_http(struct admin_server *server) {
    if (server->is_closing)
        return;
    server->is_in_http = true;
    MHD_run(server->http);
    server->is_in_http = false;
    MHD_UNSIGNED_LONG_LONG timeout_ms;
    if (MHD_get_timeout(server->http, &timeout_ms) == MHD_YES)
        loop_timer_start(&server->timer, (int64_t)MIN(timeout_ms, 1000000ULL), 0);
    else
        loop_timer_stop(&server->timer);
}

static void on_http_ready(uv_poll_t *poll, int status, int events) {
    run_http(CONTAINER_OF(poll, struct admin_server, poll));
}
static void on_timer(struct loop_timer *timer) {
    run_http(CONTAINER_OF(timer, struct admin_server, timer));
}

static void secured_free(struct secured *secured) {
    list_remove(&secured->link);
    if (secured->requester)
        secured->requester->secured = NULL;
    secured->server->n_secured--;
    free(secured);
}

static void on_relay_over(void *arg, struct status *why, bool has_moved, int plain_fd_take) {
    close(plain_fd_take);
    secured_free(arg);
}

/* libmicrohttpd closes the socket when it has too many. */
static void serve(struct admin_server *server, int fd_take, const struct sockaddr_storage *peer,
                  socklen_t len, struct requester *requester_take) {
    server->arriving = requester_take;
    MHD_add_connection(server->http, fd_take, (const struct sockaddr *)peer, len);
    if (server->arriving && server->arriving->secured) /* it did not take it */
        server->arriving->secured->requester = NULL;
    free(server->arriving);
    server->arriving = NULL;
    run_http(server);
}

static struct requester *requester_new(bool is_trusted, struct secured *secured) {
    struct requester *requester = xcalloc(1, sizeof(*requester));
    requester->is_trusted = is_trusted;
    requester->secured = secured;
    if (secured)
        secured->requester = requester;
    return requester;
}

static void secure(struct admin_server *server, int fd_take) {
    int ends[2];
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof(address);
    struct str peer = STR_INIT;
    /* The library counts its own ends. They may have ended while a slow client is still being sent
     * its reply. */
    if (server->n_secured >= MAX_CONNECTIONS ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
        close(fd_take);
        return;
    }
    getpeername(fd_take, (struct sockaddr *)&address, &len);
    struct secured *secured = xcalloc(1, sizeof(*secured));
    secured->server = server;
    net_peer_name(fd_take, &peer);
    net_keep_alive(fd_take, STALL_TIMEOUT_S * 1000);
    secured->stream = tls_stream_new(server->options.tls, true, str_text(&peer));
    secured->relay = tls_relay_new(
        server->loop, &(struct tls_relay_options){.plain_fd_take = ends[0],
                                                  .tls_fd_take = fd_take,
                                                  .stream_take = secured->stream,
                                                  .handshake_ms = IDLE_TIMEOUT_S * 1000,
                                                  .stall_ms = STALL_TIMEOUT_S * 1000,
                                                  .ends_with_plain = true,
                                                  .on_over = on_relay_over,
                                                  .arg = secured});
    list_push_back(&server->secured, &secured->link);
    server->n_secured++;
    str_fini(&peer);
    serve(server, ends[1], &address, len, requester_new(!server->options.guards_changes, secured));
}

static void release_arrival(struct arrival *arrival) {
    if (--arrival->n_handles == 0)
        free(arrival);
}
static void on_arrival_poll_closed(uv_handle_t *handle) {
    release_arrival(CONTAINER_OF((uv_poll_t *)handle, struct arrival, poll));
}
static void on_arrival_timer_closed(struct loop_timer *timer) {
    release_arrival(CONTAINER_OF(timer, struct arrival, timer));
}

/* Stops polling. Returns the socket, which belongs to the caller. */
static int end_arrival(struct arrival *arrival) {
    list_remove(&arrival->link);
    arrival->server->n_arrivals--;
    uv_close((uv_handle_t *)&arrival->poll, on_arrival_poll_closed);
    loop_timer_close(&arrival->timer, on_arrival_timer_closed);
    return arrival->fd;
}

static void on_silence(struct loop_timer *timer) {
    close(end_arrival(CONTAINER_OF(timer, struct arrival, timer)));
}

static void refuse(struct admin_server *server, int fd_take) {
    struct str words = STR_INIT;
    server->options.write_refusal(server->options.arg, &words);
    if (server->refuser)
        grpc_refuser_say(server->refuser, str_text(&words));
    else
        server->refuser = grpc_refuser_new(server->loop, str_text(&words));
    str_fini(&words);
    grpc_refuser_adopt(server->refuser, fd_take);
}

static void on_first_bytes(uv_poll_t *poll, int status, int events) {
    struct arrival *arrival = CONTAINER_OF(poll, struct arrival, poll);
    struct admin_server *server = arrival->server;
    struct sockaddr_storage peer = {0};
    socklen_t len = sizeof(peer);
    bool is_trusted = arrival->is_local || !server->options.guards_changes;
    int fd = end_arrival(arrival);
    if (grpc_refuser_is_for(fd)) {
        refuse(server, fd);
        return;
    }
    if (server->options.tls && !arrival->is_local) {
        secure(server, fd);
        return;
    }
    getpeername(fd, (struct sockaddr *)&peer, &len);
    serve(server, fd, &peer, len, requester_new(is_trusted, NULL));
}

static void await_first_bytes(struct admin_server *server, int fd_take, bool is_local) {
    struct arrival *arrival = xcalloc(1, sizeof(*arrival));
    if (server->n_arrivals >= MAX_CONNECTIONS ||
        uv_poll_init(loop_uv(server->loop), &arrival->poll, fd_take) != 0) {
        close(fd_take);
        free(arrival);
        return;
    }
    arrival->server = server;
    arrival->fd = fd_take;
    arrival->is_local = is_local;
    arrival->n_handles = 2;
    list_push_back(&server->arrivals, &arrival->link);
    server->n_arrivals++;
    uv_poll_start(&arrival->poll, UV_READABLE, on_first_bytes);
    loop_timer_init(server->loop, &arrival->timer, on_silence);
    loop_timer_start(&arrival->timer, IDLE_TIMEOUT_S * 1000, 0);
}

static void on_accept(void *arg, int fd_take) {
    struct admin_server *server = arg;
    bool is_local = net_is_unix(fd_take);
    if (is_local && !net_is_owner(fd_take))
        close(fd_take);
    else
        await_first_bytes(server, fd_take, is_local);
}

static struct MHD_Daemon *start_http(struct admin_server *server) {
    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG | MHD_ALLOW_SUSPEND_RESUME, 0,
        NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER, on_http_log, NULL,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY_BYTES, MHD_OPTION_URI_LOG_CALLBACK, on_uri, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, server, MHD_OPTION_END);
}

static void server_free(struct admin_server *server) {
    admin_pages_fini(&server->pages);
    free(server);
}

static void release_handle(struct admin_server *server) {
    if (--server->n_handles == 0)
        server_free(server);
}
static void on_poll_closed(uv_handle_t *handle) {
    release_handle(CONTAINER_OF((uv_poll_t *)handle, struct admin_server, poll));
}
static void on_timer_closed(struct loop_timer *timer) {
    release_handle(CONTAINER_OF(timer, struct admin_server, timer));
}

static void run_close(struct loop_task *task) {
    struct admin_server *server = CONTAINER_OF(task, struct admin_server, close);
    uv_close((uv_handle_t *)&server->poll, on_poll_closed);
    loop_timer_close(&server->timer, on_timer_closed);
    LIST_FOR_EACH (link, &server->replies)
        reply_resume(
            /* libmicrohttpd may not stop while connections are suspended. */
            LIST_ENTRY(link, struct admin_reply, link));
    MHD_stop_daemon(server->http);
    LIST_FOR_EACH_SAFE (link, next, &server->arrivals)
        close(end_arrival(LIST_ENTRY(link, struct arrival, link)));
    grpc_refuser_unref(server->refuser);
    LIST_FOR_EACH_SAFE (link, next, &server->secured) {
        struct secured *secured = LIST_ENTRY(link, struct secured, link);
        tls_relay_close(secured->relay);
        secured_free(secured);
    }
}

void admin_server_close(struct admin_server *server) {
    if (!server || server->is_closing)
        return;
    server->is_closing = true;
    listener_close(server->listener);
    listener_close(server->unix_listener);
    loop_defer(server->loop, &server->close); /* This may be called from within a page. */
}

/* Others cannot open the file. Those who could before its mode was set are refused when they
 * connect. */
static struct status *listen_on_unix(struct admin_server *server, const char *path) {
    struct str address = STR_INIT;
    str_addf(&address, "unix:%s", path);
    struct status *st =
        listener_new(server->loop, str_text(&address), on_accept, server, &server->unix_listener);
    if (!st && chmod(path, 0600) != 0)
        st = status_unavailable("admin socket %s: %s", path, strerror(errno));
    str_fini(&address);
    return st;
}

static struct status *listen_on_both(struct admin_server *server, const char *address) {
    if (address)
        TRY(listener_new(server->loop, address, on_accept, server, &server->listener));
    return server->options.unix_path ? listen_on_unix(server, server->options.unix_path) : NULL;
}

struct status *admin_server_new(struct loop *loop, const char *address,
                                const struct admin_options *options,
                                struct admin_server **ret_server) {
    struct admin_server *server = xcalloc(1, sizeof(*server));
    server->loop = loop;
    server->options = *options;
    server->close.run = run_close;
    admin_pages_init(&server->pages, &server->options);
    list_init(&server->replies);
    list_init(&server->secured);
    list_init(&server->arrivals);
    server->http = start_http(server);
    const union MHD_DaemonInfo *info =
        server->http ? MHD_get_daemon_info(server->http, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    struct status *st = NULL;
    if (!info || info->epoll_fd < 0)
        st = status_unavailable("admin port %s: the HTTP library does not start",
                                address ? address : options->unix_path);
    else
        st = listen_on_both(server, address);
    if (st) {
        listener_close(server->listener);
        if (server->http)
            MHD_stop_daemon(server->http);
        server_free(server);
        return st;
    }
    CHECK(uv_poll_init(loop_uv(loop), &server->poll, info->epoll_fd) == 0);
    uv_poll_start(&server->poll, UV_READABLE, on_http_ready);
    loop_timer_init(loop, &server->timer, on_timer);
    server->n_handles = 2;
    *ret_server = server;
    return NULL;
}

int admin_server_port(const struct admin_server *server) {
    return server->listener ? listener_port(server->listener) : 0;
}
