/* Runs one gRPC call over a socket of its own, by polling it. */
#include "rpc/grpc/grpc_duplex.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "rpc/grpc/grpc.h"
#include "rpc/listen.h"

enum {
    WINDOW_BYTES = 1 << 20,
    READ_BYTES = 64 << 10,
    PREFIX_BYTES = 5, /* of a message: a flag for compression, four bytes of length */
    RETRY_MS = 100,   /* between two attempts to connect */
    VANISH_MS = 30000,
    MAX_TEXT_BYTES = 6000,
};

struct grpc_duplex {
    struct grpc_duplex_options options;
    char *address, *path;
    int fd;
    nghttp2_session *session;
    int32_t stream_id;
    uint8_t prefix[PREFIX_BYTES];
    struct span out; /* what is left of the message that is being sent */
    size_t prefix_left;
    bool is_deferred, is_finished; /* of what is sent: nothing is due; nothing will follow */
    bool has_settings, has_ended;  /* of the server: it sends nothing more */
    const uint8_t *unsent;         /* what the session wants to write, the session's */
    size_t n_unsent;
    int64_t moved_ns;   /* when the socket last took something */
    int grpc_status;    /* -1: not heard of */
    int http_status;    /* likewise */
    struct str text;    /* of the status */
    struct str replies; /* received, and not yet taken */
};

static int64_t ms_since(int64_t ns) { return (clock_now_ns() - ns) / 1000000; }

static bool is_unwanted(const struct grpc_duplex *duplex) {
    return duplex->options.is_unwanted && duplex->options.is_unwanted(duplex->options.arg);
}

static struct status *cancelled(const struct grpc_duplex *duplex) {
    return status_new(STATUS_CANCELLED, "%s: %s was cancelled", duplex->address, duplex->path);
}

/* ---- connecting ---- */

/* Waits until a socket is ready for `events`, or until DUPLEX_POLL_MS are over. */
static bool wait_for(int fd, short events) {
    struct pollfd poll_fd = {.fd = fd, .events = events};
    return poll(&poll_fd, 1, DUPLEX_POLL_MS) > 0;
}

/* Returns 0 or an errno; ETIMEDOUT at until_ns, ECANCELED if nobody wants the call any more. */
static int finish_connect(const struct grpc_duplex *duplex, int fd, int64_t until_ns) {
    while (!wait_for(fd, POLLOUT)) {
        if (is_unwanted(duplex))
            return ECANCELED;
        if (clock_now_ns() >= until_ns)
            return ETIMEDOUT;
    }
    int error = 0;
    socklen_t len = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 ? error : errno;
}

static int connect_to(struct grpc_duplex *duplex, const struct addrinfo *info, int64_t until_ns) {
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    if (fd < 0)
        return errno;
    int error = connect(fd, info->ai_addr, info->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS)
        error = finish_connect(duplex, fd, until_ns);
    if (error) {
        close(fd);
        return error;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    net_keep_alive(fd, VANISH_MS);
    duplex->fd = fd;
    return 0;
}

static int try_addresses(struct grpc_duplex *duplex, const struct addrinfo *list,
                         int64_t until_ns) {
    int error = EADDRNOTAVAIL;
    for (const struct addrinfo *info = list; info && error && error != ECANCELED;
         info = info->ai_next)
        error = connect_to(duplex, info, until_ns);
    return error;
}

static struct status *resolve(const struct grpc_duplex *duplex, struct addrinfo **ret) {
    struct net_address address;
    char port[8];
    TRY(net_address_parse(duplex->address, &address));
    if (address.is_unix || address.host[0] == '\0')
        return status_invalid("'%s' is no HOST:PORT", duplex->address);
    snprintf(port, sizeof port, "%d", address.port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int error = getaddrinfo(address.host, port, &hints, ret);
    return error ? status_unavailable("%s: %s", duplex->address, gai_strerror(error)) : NULL;
}

static struct status *connect_socket(struct grpc_duplex *duplex) {
    struct addrinfo *list;
    TRY(resolve(duplex, &list));
    int64_t until_ns = clock_now_ns() + duplex->options.connect_ms * 1000000;
    int error;
    while ((error = try_addresses(duplex, list, until_ns)) != 0 && error != ECANCELED &&
           clock_now_ns() < until_ns && !is_unwanted(duplex))
        poll(NULL, 0, RETRY_MS);
    freeaddrinfo(list);
    if (error && is_unwanted(duplex))
        return cancelled(duplex);
    return error ? status_unavailable("Failed to connect to %s within %lld ms: %s", duplex->address,
                                      (long long)duplex->options.connect_ms, strerror(error))
                 : NULL;
}

/* ---- the session ---- */

/* What the server's status, or the end of its connection, means for a call that wants to go on. */
static struct status *ended(const struct grpc_duplex *duplex) {
    if (duplex->grpc_status > 0) {
        struct status *st = status_from_wire(
            duplex->grpc_status, (struct span){str_text(&duplex->text), duplex->text.len});
        return status_prefix_take(st, "%s: %s: ", duplex->address, duplex->path);
    }
    if (duplex->grpc_status < 0 && duplex->http_status >= 0 && duplex->http_status != 200)
        return status_unavailable("%s: %s: HTTP status %d", duplex->address, duplex->path,
                                  duplex->http_status);
    return status_unavailable("%s: the server has ended %s", duplex->address, duplex->path);
}

static struct status *broken(const struct grpc_duplex *duplex, const char *why) {
    return duplex->grpc_status > 0 ? ended(duplex)
                                   : status_unavailable("%s: the connection of %s has ended: %s",
                                                        duplex->address, duplex->path, why);
}

/* Writes what the session wants to send, as far as the socket takes it. */
static struct status *flush(struct grpc_duplex *duplex) {
    for (;;) {
        if (duplex->n_unsent == 0) {
            ssize_t n = nghttp2_session_mem_send(duplex->session, &duplex->unsent);
            if (n < 0)
                return broken(duplex, nghttp2_strerror((int)n));
            if (n == 0)
                return NULL;
            duplex->n_unsent = (size_t)n;
        }
        ssize_t n = send(duplex->fd, duplex->unsent, duplex->n_unsent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return NULL;
        if (n < 0)
            return broken(duplex, strerror(errno));
        duplex->unsent += n;
        duplex->n_unsent -= (size_t)n;
        duplex->moved_ns = clock_now_ns();
    }
}

static struct status *read_socket(struct grpc_duplex *duplex) {
    uint8_t bytes[READ_BYTES];
    ssize_t n = recv(duplex->fd, bytes, sizeof bytes, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? NULL : broken(duplex, strerror(errno));
    if (n == 0 && !duplex->has_ended)
        return broken(duplex, "the server has closed it");
    ssize_t used = n > 0 ? nghttp2_session_mem_recv(duplex->session, bytes, (size_t)n) : 0;
    if (duplex->replies.len > DUPLEX_MAX_REPLY_BYTES)
        return status_exhausted("%s: more than %d bytes of replies", duplex->address,
                                DUPLEX_MAX_REPLY_BYTES);
    return used < 0 ? broken(duplex, nghttp2_strerror((int)used)) : NULL;
}

/* Moves bytes in both directions, once; waits for at most DUPLEX_POLL_MS. */
static struct status *turn(struct grpc_duplex *duplex) {
    if (is_unwanted(duplex))
        return cancelled(duplex);
    TRY(flush(duplex));
    struct pollfd poll_fd = {.fd = duplex->fd,
                             .events = duplex->n_unsent > 0 ? POLLIN | POLLOUT : POLLIN};
    if (poll(&poll_fd, 1, DUPLEX_POLL_MS) <= 0)
        return NULL;
    return poll_fd.revents & (POLLIN | POLLERR | POLLHUP) ? read_socket(duplex) : NULL;
}

/* ---- what nghttp2 asks and tells ---- */

static ssize_t read_body(nghttp2_session *session, int32_t stream_id, uint8_t *to, size_t len,
                         uint32_t *flags, nghttp2_data_source *source, void *user_data) {
    struct grpc_duplex *duplex = user_data;
    size_t n_prefix = MIN(duplex->prefix_left, len);
    memcpy(to, duplex->prefix + PREFIX_BYTES - duplex->prefix_left, n_prefix);
    duplex->prefix_left -= n_prefix;
    size_t n = MIN(duplex->out.len, len - n_prefix);
    if (n > 0)
        memcpy(to + n_prefix, duplex->out.data, n);
    duplex->out.data += n;
    duplex->out.len -= n;
    bool is_empty = duplex->prefix_left + duplex->out.len == 0;
    if (is_empty && duplex->is_finished)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    else if (n_prefix + n == 0) {
        duplex->is_deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)(n_prefix + n);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user_data) {
    struct grpc_duplex *duplex = user_data;
    struct span key = {(const char *)name, name_len};
    char number[8] = "";
    memcpy(number, value, MIN(value_len, sizeof number - 1));
    if (span_is(key, ":status")) {
        duplex->http_status = (int)strtol(number, NULL, 10);
    } else if (span_is(key, "grpc-status")) {
        duplex->grpc_status = (int)strtol(number, NULL, 10);
    } else if (span_is(key, "grpc-message")) {
        str_clear(&duplex->text);
        grpc_percent_decode(
            (struct span){(const char *)value, MIN(value_len, (size_t)MAX_TEXT_BYTES)},
            &duplex->text);
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data,
                   size_t len, void *user_data) {
    struct grpc_duplex *duplex = user_data;
    if (duplex->replies.len <= DUPLEX_MAX_REPLY_BYTES)
        str_add_bytes(&duplex->replies, data, len);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user_data) {
    struct grpc_duplex *duplex = user_data;
    bool has_stream = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (frame->hd.type == NGHTTP2_SETTINGS)
        duplex->has_settings = true;
    if (has_stream && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        duplex->has_ended = true;
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code,
                           void *user_data) {
    ((struct grpc_duplex *)user_data)->has_ended = true;
    return 0;
}

static struct status *begin_session(struct grpc_duplex *duplex) {
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_BYTES},
    };
    nghttp2_session_callbacks *callbacks;
    CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    CHECK(nghttp2_session_client_new(&duplex->session, callbacks, duplex) == 0);
    nghttp2_session_callbacks_del(callbacks);
    CHECK(nghttp2_submit_settings(duplex->session, NGHTTP2_FLAG_NONE, settings,
                                  ARRAY_LEN(settings)) == 0);
    int64_t since_ns = clock_now_ns();
    while (!duplex->has_settings) {
        TRY(turn(duplex));
        if (!duplex->has_settings && ms_since(since_ns) > duplex->options.connect_ms)
            return status_new(STATUS_DEADLINE_EXCEEDED,
                              "%s does not speak HTTP/2: it has sent no settings within %lld ms",
                              duplex->address, (long long)duplex->options.connect_ms);
    }
    return NULL;
}

#define HEADER(key, text)                                                                     \
    {                                                                                         \
        (uint8_t *)(uintptr_t)(key), (uint8_t *)(uintptr_t)(text), strlen(key), strlen(text), \
            NGHTTP2_NV_FLAG_NONE                                                              \
    }

static struct status *begin_call(struct grpc_duplex *duplex) {
    const nghttp2_nv headers[] = {
        HEADER(":method", "POST"),
        HEADER(":scheme", "http"),
        HEADER(":path", duplex->path),
        HEADER(":authority", duplex->address),
        HEADER("te", "trailers"),
        HEADER("content-type", "application/grpc"),
        HEADER("grpc-accept-encoding", "identity"),
        HEADER("user-agent", "millrace/" MILLRACE_VERSION),
    };
    nghttp2_data_provider body = {.read_callback = read_body};
    duplex->stream_id =
        nghttp2_submit_request(duplex->session, NULL, headers, ARRAY_LEN(headers), &body, duplex);
    return duplex->stream_id < 0 ? broken(duplex, nghttp2_strerror(duplex->stream_id)) : NULL;
}

/* ---- the call ---- */

struct status *grpc_duplex_open(const struct grpc_duplex_options *options,
                                struct grpc_duplex **ret) {
    struct grpc_duplex *duplex = xcalloc(1, sizeof *duplex);
    duplex->options = *options;
    duplex->address = xstrdup(options->address);
    duplex->path = xstrdup(options->path);
    duplex->fd = duplex->grpc_status = duplex->http_status = -1;
    duplex->moved_ns = clock_now_ns();
    struct status *st = connect_socket(duplex);
    if (!st)
        st = begin_session(duplex);
    if (!st)
        st = begin_call(duplex);
    if (st)
        grpc_duplex_close(duplex);
    else
        *ret = duplex;
    return st;
}

/* Moves bytes until nothing is left to send. */
static struct status *send_all(struct grpc_duplex *duplex) {
    if (duplex->is_deferred) {
        duplex->is_deferred = false;
        nghttp2_session_resume_data(duplex->session, duplex->stream_id);
    }
    duplex->moved_ns = clock_now_ns();
    for (;;) {
        TRY(flush(duplex));
        if (duplex->has_ended)
            return ended(duplex);
        if (duplex->prefix_left + duplex->out.len + duplex->n_unsent == 0)
            return NULL;
        TRY(turn(duplex));
        if (ms_since(duplex->moved_ns) > duplex->options.stall_ms)
            return status_new(STATUS_DEADLINE_EXCEEDED, "%s has taken nothing of %s for %lld ms",
                              duplex->address, duplex->path, (long long)duplex->options.stall_ms);
    }
}

struct status *grpc_duplex_send(struct grpc_duplex *duplex, struct span message) {
    if (message.len > INT32_MAX)
        return status_exhausted("%s: a message of %zu bytes exceeds the 2 GiB of a gRPC message",
                                duplex->address, message.len);
    for (int i = 1; i < PREFIX_BYTES; i++)
        duplex->prefix[i] = (uint8_t)(message.len >> (8 * (PREFIX_BYTES - 1 - i)));
    duplex->prefix_left = PREFIX_BYTES;
    duplex->out = message;
    struct status *st = send_all(duplex);
    duplex->out = (struct span){"", 0};
    return st;
}

struct status *grpc_duplex_finish(struct grpc_duplex *duplex) {
    duplex->is_finished = true;
    return duplex->has_ended && duplex->grpc_status == 0 ? NULL : send_all(duplex);
}

/* Takes a whole message out of the replies. False: there is none yet. */
static bool take_reply(struct grpc_duplex *duplex, struct str *ret) {
    struct str *replies = &duplex->replies;
    if (replies->len < PREFIX_BYTES)
        return false;
    const uint8_t *head = (const uint8_t *)replies->data;
    size_t len = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];
    if (replies->len - PREFIX_BYTES < len)
        return false;
    str_add_bytes(ret, replies->data + PREFIX_BYTES, len);
    size_t rest = replies->len - PREFIX_BYTES - len;
    memmove(replies->data, replies->data + PREFIX_BYTES + len, rest);
    replies->len = rest;
    return true;
}

struct status *grpc_duplex_receive(struct grpc_duplex *duplex, int64_t wait_ms, struct str *ret,
                                   bool *ret_is_ended) {
    int64_t since_ns = clock_now_ns();
    *ret_is_ended = false;
    while (!take_reply(duplex, ret)) {
        if (duplex->has_ended && duplex->grpc_status == 0) {
            *ret_is_ended = true;
            return NULL;
        }
        if (duplex->has_ended)
            return ended(duplex);
        TRY(turn(duplex));
        if (wait_ms >= 0 && ms_since(since_ns) > wait_ms)
            return status_new(STATUS_DEADLINE_EXCEEDED, "%s has sent no reply to %s for %lld ms",
                              duplex->address, duplex->path, (long long)wait_ms);
    }
    return NULL;
}

void grpc_duplex_close(struct grpc_duplex *duplex) {
    if (!duplex)
        return;
    if (duplex->session)
        nghttp2_session_del(duplex->session);
    if (duplex->fd >= 0)
        close(duplex->fd);
    str_fini(&duplex->text);
    str_fini(&duplex->replies);
    free(duplex->address);
    free(duplex->path);
    free(duplex);
}
