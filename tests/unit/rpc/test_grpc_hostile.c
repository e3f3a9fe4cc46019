/* Raw bytes and odd requests against the gRPC server: the server runs on its own thread, the
 * tests are blocking peers. */
#include "rpc/grpc/grpc_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the server's thread ---- */

struct fixture {
    struct loop *loop;
    struct grpc_server *server;
    struct loop_task close;
    pthread_t thread;
    int port;
    atomic_int n_cancelled, n_closed, n_calls;
};

static void on_echo(void *service, struct grpc_call *call) {
    struct fixture *f = service;
    struct grpc_message *message = grpc_call_message(call);
    struct grpc_body body;
    atomic_fetch_add(&f->n_calls, 1);
    grpc_body_init(&body);
    if (message->buffer)
        grpc_body_add_shared(&body, message->body.data, message->body.len,
                             buffer_ref(message->buffer));
    grpc_call_reply(call, &body);
}

static void on_cancel(struct grpc_call *call, void *user) {
    struct fixture *f = user;
    atomic_fetch_add(&f->n_cancelled, 1);
    grpc_call_fail(call, status_new(STATUS_CANCELLED, "dropped"));
}

static void on_park(void *service, struct grpc_call *call) {
    grpc_call_set_user(call, service, on_cancel);
}

static void on_closed(void *arg) {
    struct fixture *f = arg;
    atomic_fetch_add(&f->n_closed, 1);
    loop_stop(f->loop);
}

static void run_close(struct loop_task *task) {
    struct fixture *f = CONTAINER_OF(task, struct fixture, close);
    grpc_server_close(f->server, on_closed, f);
}

static void *run_server(void *arg) {
    struct fixture *f = arg;
    loop_run(f->loop);
    return NULL;
}

static size_t align_tensor(struct span head, size_t body_len) { return 49; }

static struct fixture *setup(const struct grpc_server_limits *limits) {
    static const struct grpc_method methods[] = {{"/test/Echo", on_echo, align_tensor},
                                                 {"/test/Park", on_park, NULL}};
    struct fixture *f = calloc(1, sizeof(*f));
    signal(SIGPIPE, SIG_IGN);
    f->loop = loop_new();
    f->close.run = run_close;
    struct grpc_server_options options = {
        .methods = methods, .n_methods = ARRAY_LEN(methods), .service = f};
    if (limits)
        options.limits = *limits;
    assert_null(grpc_server_new(f->loop, "127.0.0.1:0", &options, &f->server));
    f->port = grpc_server_port(f->server);
    pthread_create(&f->thread, NULL, run_server, f);
    return f;
}

static void teardown(struct fixture *f) {
    loop_post(f->loop, &f->close);
    pthread_join(f->thread, NULL);
    assert_int_equal(f->n_closed, 1);
    loop_free(f->loop);
    free(f);
}

/* ---- raw peers ---- */

static int dial(const struct fixture *f) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)f->port),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void send_all(int fd, const void *bytes, size_t len) {
    const char *p = bytes;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n <= 0)
            return; /* the server has had enough */
        p += n;
        len -= (size_t)n;
    }
}

/* Sends, ends, and reads until the server ends, too. Returns whether it said GOAWAY. */
static bool throw_bytes(struct fixture *f, const void *bytes, size_t len) {
    int fd = dial(f);
    send_all(fd, bytes, len);
    shutdown(fd, SHUT_WR);
    uint8_t input[4096];
    size_t n_input = 0;
    bool has_goaway = false;
    ssize_t n;
    while (n_input < sizeof(input) && (n = read(fd, input + n_input, sizeof(input) - n_input)) > 0)
        n_input += (size_t)n;
    for (size_t at = 0; at + 9 <= n_input;) {
        has_goaway |= input[at + 3] == NGHTTP2_GOAWAY;
        at += 9 + ((size_t)input[at] << 16 | (size_t)input[at + 1] << 8 | input[at + 2]);
    }
    close(fd);
    return has_goaway;
}

/* ---- HTTP/2 peers, by nghttp2 alone ---- */

struct peer {
    int fd;
    nghttp2_session *session;
    int http_status, grpc_status;
    char grpc_message[200], accept_encoding[40];
    const char *out;
    size_t n_out, n_data;
    bool ends, is_closed, has_goaway, has_pong;
    uint32_t close_code;
    int n_reads_of_reply;
};

static int peer_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                       size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                       void *user_data) {
    struct peer *peer = user_data;
    if (name_len == 7 && memcmp(name, ":status", 7) == 0)
        peer->http_status = (int)strtol((const char *)value, NULL, 10);
    else if (name_len == 11 && memcmp(name, "grpc-status", 11) == 0)
        peer->grpc_status = (int)strtol((const char *)value, NULL, 10);
    else if (name_len == 12 && memcmp(name, "grpc-message", 12) == 0)
        snprintf(peer->grpc_message, sizeof(peer->grpc_message), "%.*s", (int)value_len, value);
    else if (name_len == 20 && memcmp(name, "grpc-accept-encoding", 20) == 0)
        snprintf(peer->accept_encoding, sizeof(peer->accept_encoding), "%.*s", (int)value_len,
                 value);
    return 0;
}

static int peer_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                      size_t len, void *user_data) {
    ((struct peer *)user_data)->n_data += len;
    return 0;
}

static int peer_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user_data) {
    struct peer *peer = user_data;
    peer->has_goaway |= frame->hd.type == NGHTTP2_GOAWAY;
    peer->has_pong |= frame->hd.type == NGHTTP2_PING && frame->hd.flags & NGHTTP2_FLAG_ACK;
    return 0;
}

static int peer_closed(nghttp2_session *session, int32_t id, uint32_t code, void *user_data) {
    struct peer *peer = user_data;
    peer->is_closed = true;
    peer->close_code = code;
    return 0;
}

static ssize_t peer_body(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len,
                         uint32_t *flags, nghttp2_data_source *source, void *user_data) {
    struct peer *peer = user_data;
    size_t n = MIN(len, peer->n_out);
    memcpy(buf, peer->out, n);
    peer->out += n;
    peer->n_out -= n;
    if (peer->n_out == 0)
        *flags |= NGHTTP2_DATA_FLAG_EOF | (peer->ends ? 0 : NGHTTP2_DATA_FLAG_NO_END_STREAM);
    return (ssize_t)n;
}

static void peer_init(struct peer *peer, int fd) {
    nghttp2_session_callbacks *callbacks;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, peer_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, peer_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, peer_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, peer_closed);
    *peer = (struct peer){.fd = fd, .grpc_status = -1, .http_status = -1};
    nghttp2_session_client_new(&peer->session, callbacks, peer);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(peer->session, NGHTTP2_FLAG_NONE, NULL, 0);
}

static void peer_fini(struct peer *peer) {
    nghttp2_session_del(peer->session);
    if (peer->fd >= 0)
        close(peer->fd);
}

static size_t peer_take_output(struct peer *peer, char *bytes, size_t size) {
    const uint8_t *data;
    size_t len = 0;
    ssize_t n;
    while ((n = nghttp2_session_mem_send(peer->session, &data)) > 0) {
        assert_true(len + (size_t)n <= size);
        memcpy(bytes + len, data, (size_t)n);
        len += (size_t)n;
    }
    return len;
}

static void peer_flush(struct peer *peer) {
    static char bytes[1 << 20];
    send_all(peer->fd, bytes, peer_take_output(peer, bytes, sizeof(bytes)));
}

/* Reads until `*flag` or the server's end. */
static void peer_read(struct peer *peer, const bool *flag) {
    char input[65536];
    ssize_t n;
    while (!*flag && (n = read(peer->fd, input, sizeof(input))) > 0) {
        peer->n_reads_of_reply++;
        if (nghttp2_session_mem_recv(peer->session, (const uint8_t *)input, (size_t)n) < 0)
            return;
        peer_flush(peer);
    }
}

#define FIELD(name, value) \
    (nghttp2_nv) { (uint8_t *)(name), (uint8_t *)(value), strlen(name), strlen(value), 0 }

struct request {
    const char *method, *path, *type, *timeout;
    const char *body;
    size_t body_len;
    bool is_open; /* without END_STREAM */
    const char *encoding;
};

static void peer_request(struct peer *peer, const struct request *request) {
    nghttp2_nv headers[8] = {FIELD(":method", request->method), FIELD(":scheme", "http"),
                             FIELD(":authority", "test")};
    size_t n = 3;
    if (request->path)
        headers[n++] = FIELD(":path", request->path);
    if (request->type)
        headers[n++] = FIELD("content-type", request->type);
    if (request->timeout)
        headers[n++] = FIELD("grpc-timeout", request->timeout);
    if (request->encoding)
        headers[n++] = FIELD("grpc-encoding", request->encoding);
    peer->out = request->body;
    peer->n_out = request->body_len;
    peer->ends = !request->is_open;
    nghttp2_data_provider provider = {.read_callback = peer_body};
    assert_true(nghttp2_submit_request(peer->session, NULL, headers, n,
                                       request->body ? &provider : NULL, NULL) > 0);
}

static const struct request good = {
    "POST", "/test/Echo", "application/grpc", NULL, "\0\0\0\0\5hello", 10, false};

/* A new peer makes one call and has its answer. */
static void peer_call(struct peer *peer, struct fixture *f, const struct request *request) {
    peer_init(peer, dial(f));
    peer_request(peer, request);
    peer_flush(peer);
    peer_read(peer, &peer->is_closed);
}

static void check_alive(struct fixture *f) {
    struct peer peer;
    peer_call(&peer, f, &good);
    assert_int_equal(peer.http_status, 200);
    assert_int_equal(peer.grpc_status, 0);
    assert_int_equal(peer.n_data, 10);
    peer_fini(&peer);
}

/* ---- tests ---- */

static void odd_requests_get_clean_errors(void **state) {
    static const struct {
        struct request request;
        int http_status, grpc_status;
    } rows[] = {
        {{"POST", "/test/Echo", "application/grpc", NULL, "\0\0\0\0\5hello", 10, false}, 200, 0},
        {{"POST", "/test/Echo", "application/grpc+proto", "1S", "\0\0\0\0\0", 5, false}, 200, 0},
        {{"POST", "/test/Echo", "application/grpc; charset=x", NULL, "\0\0\0\0\0", 5, false},
         200,
         0},
        {{"GET", "/test/Echo", "application/grpc", NULL, NULL, 0, false}, 405, 12},
        {{"PUT", "/test/Echo", "application/grpc", NULL, "\0\0\0\0\0", 5, true}, 405, 12},
        {{"POST", "/test/Echo", "text/html", NULL, "\0\0\0\0\0", 5, false}, 415, 3},
        {{"POST", "/test/Echo", "application/grpcx", NULL, "\0\0\0\0\0", 5, false}, 415, 3},
        {{"POST", "/test/Echo", NULL, NULL, "\0\0\0\0\0", 5, false}, 415, 3},
        {{"POST", "/test/Nothing%", "application/grpc", NULL, "\0\0\0\0\0", 5, false}, 200, 12},
        {{"POST", "/", "application/grpc", NULL, "\0\0\0\0\0", 5, true}, 200, 12},
        {{"POST", "/test/Echo", "application/grpc", "soon", "\0\0\0\0\0", 5, false}, 200, 3},
        /* no message */
        {{"POST", "/test/Echo", "application/grpc", NULL, NULL, 0, false}, 200, 13},
        /* half a prefix */
        {{"POST", "/test/Echo", "application/grpc", NULL, "\0\0", 2, false}, 200, 13},
        /* shorter than it says */
        {{"POST", "/test/Echo", "application/grpc", NULL, "\0\0\0\0\5hell", 9, false}, 200, 13},
        /* longer */
        {{"POST", "/test/Echo", "application/grpc", NULL, "\0\0\0\0\5hello!", 11, false}, 200, 13},
        {{"POST", "/test/Echo", "application/grpc", NULL, "\0\0\0\0\5hello!", 11, true}, 200, 13},
        /* two messages */
        {{"POST", "/test/Echo", "application/grpc", NULL, "\0\0\0\0\1a\0\0\0\0\1b", 12, false},
         200,
         13},
        /* compressed, nobody said how */
        {{"POST", "/test/Echo", "application/grpc", NULL, "\1\0\0\0\5hello", 10, false}, 200, 13},
        {{"POST", "/test/Echo", "application/grpc", NULL, "\7\0\0\0\5hello", 10, false}, 200, 13},
        /* 4 GiB */
        {{"POST", "/test/Echo", "application/grpc", NULL, "\0\xff\xff\xff\xff", 5, true}, 200, 8},
        /* over before it began */
        {{"POST", "/test/Echo", "application/grpc", "0m", "\0\0\0\0\5", 5, true}, 200, 4},
        /* the server's own clock */
        {{"POST", "/test/Park", "application/grpc", "20m", "\0\0\0\0\0", 5, false}, 200, 4},
        /* while the message comes */
        {{"POST", "/test/Echo", "application/grpc", "20m", "\0\0\0\0\5hel", 8, true}, 200, 4},
    };
    struct fixture *f = setup(NULL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct peer peer;
        peer_call(&peer, f, &rows[i].request);
        if (peer.http_status != rows[i].http_status || peer.grpc_status != rows[i].grpc_status)
            fail_msg("row %zu: HTTP %d, grpc-status %d (%s)", i, peer.http_status, peer.grpc_status,
                     peer.grpc_message);
        assert_true(peer.is_closed);
        assert_true(rows[i].grpc_status == 0 || strlen(peer.grpc_message) > 10);
        /* also where the request was not whole */
        assert_int_equal(peer.close_code, NGHTTP2_NO_ERROR);
        peer_fini(&peer);
    }
    assert_int_equal(f->n_cancelled, 1);
    check_alive(f);
    teardown(f);
}

/* "hello": gzip with a stored block, and zlib. */
#define GZIP_HELLO                                                    \
    "\x1f\x8b\x08\0\0\0\0\0\0\xff\xcbH\xcd\xc9\xc9\x07\0\x86\xa6\x10" \
    "6\5\0\0\0"
#define ZLIB_HELLO "\x78\x9c\xcbH\xcd\xc9\xc9\x07\0\x06,\x02\x15"

static void compressed_calls_get_plain_answers_or_clean_errors(void **state) {
    static const struct {
        const char *encoding, *body;
        size_t len;
        int grpc_status;
    } rows[] = {
        {"gzip", "\1\0\0\0\x19" GZIP_HELLO, 30, 0},
        {"deflate", "\1\0\0\0\x0d" ZLIB_HELLO, 18, 0},
        {"gzip", "\0\0\0\0\5hello", 10, 0}, /* the flag says, not the header */
        {"deflate", "\0\0\0\0\5hello", 10, 0},
        {"identity", "\0\0\0\0\5hello", 10, 0},
        {"gzip", "\1\0\0\0\x0d" ZLIB_HELLO, 18, 13}, /* the other's */
        {"deflate", "\1\0\0\0\x19" GZIP_HELLO, 30, 13},
        {"gzip", "\1\0\0\0\x18" GZIP_HELLO, 29, 13}, /* a byte short */
        {"gzip", "\1\0\0\0\0", 5, 13},
        {"gzip", "\2\0\0\0\x19" GZIP_HELLO, 30, 13},
        {"identity", "\1\0\0\0\x19" GZIP_HELLO, 30, 13},
        {"snappy", "\0\0\0\0\5hello", 10, 12},
        {"", "\0\0\0\0\5hello", 10, 12},
    };
    struct fixture *f = setup(NULL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct request request = good;
        struct peer peer;
        request.encoding = rows[i].encoding;
        request.body = rows[i].body;
        request.body_len = rows[i].len;
        peer_call(&peer, f, &request);
        if (peer.grpc_status != rows[i].grpc_status)
            fail_msg("row %zu: grpc-status %d (%s)", i, peer.grpc_status, peer.grpc_message);
        assert_int_equal(peer.n_data, rows[i].grpc_status == 0 ? 10 : 0);
        assert_string_equal(peer.accept_encoding,
                            rows[i].grpc_status == 12 ? "identity, deflate, gzip" : "");
        peer_fini(&peer);
    }
    check_alive(f);
    teardown(f);
}

static void a_call_that_stalls_is_told_so(void **state) {
    struct grpc_server_limits limits = {.stall_timeout_ms = 100};
    struct fixture *f = setup(&limits);
    struct request stalling = {"POST", "/test/Echo", "application/grpc", NULL, "\0\0\0\0\5hel",
                               8,      true};
    struct peer peer;
    peer_call(&peer, f, &stalling);
    assert_int_equal(peer.grpc_status, STATUS_DEADLINE_EXCEEDED);
    assert_non_null(strstr(peer.grpc_message, "8 bytes came"));
    peer_fini(&peer);
    check_alive(f);
    teardown(f);
}

static void a_request_without_path_is_reset(void **state) {
    struct fixture *f = setup(NULL);
    struct request request = good;
    request.path = NULL;
    struct peer peer;
    peer_call(&peer, f, &request);
    assert_int_equal(peer.close_code, NGHTTP2_PROTOCOL_ERROR);
    peer_fini(&peer);
    check_alive(f);
    teardown(f);
}

static void too_many_header_bytes_are_refused(void **state) {
    struct fixture *f = setup(NULL);
    struct peer peer;
    char *value = calloc(1, 40001);
    memset(value, 'v', 20000);
    for (int round = 0; round < 2; round++) {
        peer_init(&peer, dial(f));
        nghttp2_nv headers[] = {FIELD(":method", "POST"),
                                FIELD(":scheme", "http"),
                                FIELD(":authority", "x"),
                                FIELD(":path", "/test/Echo"),
                                FIELD("content-type", "application/grpc"),
                                FIELD("x-large", value),
                                FIELD("x-larger", value)};
        assert_true(nghttp2_submit_request(peer.session, NULL, headers, round ? 7 : 6, NULL, NULL) >
                    0);
        peer_flush(&peer);
        peer_read(&peer, &peer.is_closed);
        assert_int_equal(peer.grpc_status, STATUS_RESOURCE_EXHAUSTED);
        peer_fini(&peer);
    }
    free(value);
    check_alive(f);
    teardown(f);
}

static size_t good_bytes(char *bytes, size_t size) {
    struct peer peer;
    peer_init(&peer, -1);
    peer_request(&peer, &good);
    size_t len = peer_take_output(&peer, bytes, size);
    peer_fini(&peer);
    return len;
}

static void truncation_at_every_byte_ends_cleanly(void **state) {
    struct fixture *f = setup(NULL);
    char bytes[1024];
    size_t len = good_bytes(bytes, sizeof(bytes));
    assert_true(len > 80);
    for (size_t n = 0; n <= len; n++)
        throw_bytes(f, bytes, n);
    assert_int_equal(f->n_calls, 1);
    check_alive(f);
    teardown(f);
}

static void a_wrong_byte_anywhere_ends_cleanly(void **state) {
    static const char flips[] = {1, 4, (char)0x80, (char)0xff};
    struct fixture *f = setup(NULL);
    char bytes[1024];
    size_t len = good_bytes(bytes, sizeof(bytes));
    for (size_t n = 0; n < len; n++) {
        for (size_t i = 0; i < ARRAY_LEN(flips); i++) {
            bytes[n] ^= flips[i];
            throw_bytes(f, bytes, len);
            bytes[n] ^= flips[i];
        }
    }
    check_alive(f);
    teardown(f);
}

static void garbage_and_other_protocols_end_cleanly(void **state) {
    struct fixture *f = setup(NULL);
    static const char http1[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    throw_bytes(f, http1, sizeof(http1) - 1);
    throw_bytes(f, "", 0);
    throw_bytes(f, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11); /* a TLS hello */
    uint64_t seed = 88172645463325252u;
    for (int round = 0; round < 50; round++) {
        uint8_t bytes[3000];
        for (size_t i = 0; i < sizeof(bytes); i++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            bytes[i] = (uint8_t)seed;
        }
        if (round % 2)
            memcpy(bytes, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
        throw_bytes(f, bytes, sizeof(bytes));
    }
    check_alive(f);
    teardown(f);
}

static void hostile_frames_end_the_connection_and_nothing_else(void **state) {
#define HEADERS_POST \
    "\0\0\6\1\4\0\0\0\1\203\206\204\101\1x" /* :method POST, :scheme http, :path /, :authority x */
    /* clang-format off */
    static const struct {
        const char *name, *frames;
        size_t len;
        bool ends_connection;
    } rows[] = {
#define ROW(name, frames, ends) {name, frames, sizeof(frames) - 1, ends}
        ROW("DATA on stream 0", "\0\0\1\0\0\0\0\0\0x", true),
        ROW("DATA on an idle stream", "\0\0\1\0\0\0\0\0\1x", true),
        ROW("DATA padded beyond its length", HEADERS_POST "\0\0\2\0\10\0\0\0\1\xffx", true),
        ROW("HEADERS on stream 0", "\0\0\3\1\4\0\0\0\0\202\206\204", true),
        ROW("HEADERS on an even stream", "\0\0\3\1\4\0\0\0\2\202\206\204", true),
        ROW("HEADERS with a broken HPACK index", "\0\0\1\1\4\0\0\0\1\377", true),
        ROW("HEADERS with an HPACK index that does not exist", "\0\0\1\1\4\0\0\0\1\376", true),
        /* ignored */
        ROW("HEADERS on a lower stream id",
            "\0\0\3\1\5\0\0\0\3\202\206\204\0\0\3\1\5\0\0\0\1\202\206\204", false),
        ROW("another frame inside a header block",
            "\0\0\3\1\0\0\0\0\1\202\206\204\0\0\10\6\0\0\0\0\0abcdefgh", true),
        ROW("CONTINUATION without HEADERS", "\0\0\1\11\4\0\0\0\1\202", true),
        ROW("PRIORITY of 4 bytes", HEADERS_POST "\0\0\4\2\0\0\0\0\1abcd", true),
        ROW("RST_STREAM on an idle stream", "\0\0\4\3\0\0\0\0\5\0\0\0\0", true),
        ROW("RST_STREAM of 3 bytes", HEADERS_POST "\0\0\3\3\0\0\0\0\1abc", true),
        ROW("SETTINGS of 5 bytes", "\0\0\5\4\0\0\0\0\0abcde", true),
        ROW("SETTINGS on a stream", "\0\0\0\4\0\0\0\0\1", true),
        ROW("SETTINGS ack with a payload", "\0\0\6\4\1\0\0\0\0abcdef", true),
        ROW("SETTINGS window beyond 2^31-1", "\0\0\6\4\0\0\0\0\0\0\4\xff\xff\xff\xff", true),
        ROW("SETTINGS max frame size 1", "\0\0\6\4\0\0\0\0\0\0\5\0\0\0\1", true),
        ROW("PUSH_PROMISE from a client", HEADERS_POST "\0\0\4\5\4\0\0\0\1\0\0\0\2", true),
        ROW("PING of 7 bytes", "\0\0\7\6\0\0\0\0\0abcdefg", true),
        ROW("PING on a stream", "\0\0\10\6\0\0\0\0\1abcdefgh", true),
        ROW("GOAWAY on a stream", "\0\0\10\7\0\0\0\0\1abcdefgh", true),
        ROW("GOAWAY of 3 bytes", "\0\0\3\7\0\0\0\0\0abc", true),
        ROW("WINDOW_UPDATE of 0 on the connection", "\0\0\4\10\0\0\0\0\0\0\0\0\0", true),
        ROW("WINDOW_UPDATE beyond 2^31-1",
            "\0\0\4\10\0\0\0\0\0\x7f\xff\xff\xff\0\0\4\10\0\0\0\0\0\x7f\xff\xff\xff", true),
        ROW("a frame that claims 16 MiB and ends", "\xff\xff\xff\0\0\0\0\0\1x", true),
        ROW("an unknown frame type", "\0\0\3\x77\0\0\0\0\0abc", false),
        ROW("GOAWAY", "\0\0\10\7\0\0\0\0\0\0\0\0\0\0\0\0\0", false),
    };
    /* clang-format on */
    struct fixture *f = setup(NULL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char bytes[200] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
        memcpy(bytes + 33, rows[i].frames, rows[i].len);
        bool has_goaway = throw_bytes(f, bytes, 33 + rows[i].len);
        if (has_goaway != rows[i].ends_connection)
            fail_msg("%s: GOAWAY %d", rows[i].name, has_goaway);
    }
    check_alive(f);
    teardown(f);
}

static void pings_are_answered(void **state) {
    struct fixture *f = setup(NULL);
    struct peer peer;
    peer_init(&peer, dial(f));
    nghttp2_submit_ping(peer.session, NGHTTP2_FLAG_NONE, (const uint8_t *)"pingpong");
    peer_flush(&peer);
    peer_read(&peer, &peer.has_pong);
    assert_true(peer.has_pong);
    peer_fini(&peer);
    teardown(f);
}

static void rapid_resets_end_the_connection(void **state) {
    struct grpc_server_limits limits = {.max_resets_per_s = 10}; /* a burst of 100 */
    struct fixture *f = setup(&limits);
    struct peer peer;
    peer_init(&peer, dial(f));
    struct request request = {"POST", "/test/Park", "application/grpc", NULL, "\0\0\0\0\0",
                              5,      false};
    for (int i = 0; i < 400 && !peer.has_goaway; i++) {
        peer_request(&peer, &request);
        peer_flush(&peer);
        nghttp2_submit_rst_stream(peer.session, NGHTTP2_FLAG_NONE, 1 + 2 * i, NGHTTP2_CANCEL);
        peer_flush(&peer);
    }
    peer_read(&peer, &peer.has_goaway);
    assert_true(peer.has_goaway);
    peer_fini(&peer);
    check_alive(f);
    teardown(f);
}

static void streams_are_limited(void **state) {
    struct grpc_server_limits limits = {.max_streams = 2};
    struct fixture *f = setup(&limits);
    struct peer peer;
    peer_init(&peer, dial(f));
    struct request parked = {"POST", "/test/Park", "application/grpc", NULL, "\0\0\0\0\0",
                             5,      false};
    for (int i = 0; i < 3; i++) {
        peer_request(&peer, &parked);
        peer_flush(&peer);
    }
    peer_read(&peer, &peer.is_closed);
    assert_int_equal(peer.close_code, NGHTTP2_REFUSED_STREAM);
    peer_fini(&peer);
    while (f->n_cancelled < 2)
        check_alive(f);
    teardown(f);
}

static void a_lost_connection_cancels_once(void **state) {
    struct fixture *f = setup(NULL);
    struct request parked = {"POST", "/test/Park", "application/grpc", "1H", "\0\0\0\0\0",
                             5,      false};
    for (int round = 1; round <= 20; round++) {
        struct peer peer;
        peer_init(&peer, dial(f));
        peer_request(&peer, &parked);
        peer_flush(&peer);
        if (round % 2) { /* abortive: the server sees a reset */
            struct linger linger = {.l_onoff = 1};
            nghttp2_submit_ping(peer.session, NGHTTP2_FLAG_NONE, (const uint8_t *)"pingpong");
            peer_flush(&peer);
            peer_read(&peer, &peer.has_pong); /* it has read the call */
            setsockopt(peer.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
        }
        peer_fini(&peer);
        while (f->n_cancelled < round)
            check_alive(f);
    }
    assert_int_equal(f->n_cancelled, 20);
    teardown(f);
}

/* The reply's HEADERS, DATA and trailers leave together: one read has them all. */
static void a_small_reply_is_one_write(void **state) {
    struct fixture *f = setup(NULL);
    struct peer peer;
    peer_call(&peer, f, &good); /* exchanges SETTINGS, too */
    for (int i = 0; i < 20; i++) {
        peer.is_closed = false;
        peer.n_reads_of_reply = 0;
        peer_request(&peer, &good);
        peer_flush(&peer);
        peer_read(&peer, &peer.is_closed);
        assert_int_equal(peer.n_reads_of_reply, 1);
        assert_int_equal(peer.grpc_status, 0);
    }
    peer_fini(&peer);
    teardown(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_requests_get_clean_errors),
        cmocka_unit_test(compressed_calls_get_plain_answers_or_clean_errors),
        cmocka_unit_test(a_call_that_stalls_is_told_so),
        cmocka_unit_test(a_request_without_path_is_reset),
        cmocka_unit_test(too_many_header_bytes_are_refused),
        cmocka_unit_test(truncation_at_every_byte_ends_cleanly),
        cmocka_unit_test(a_wrong_byte_anywhere_ends_cleanly),
        cmocka_unit_test(garbage_and_other_protocols_end_cleanly),
        cmocka_unit_test(hostile_frames_end_the_connection_and_nothing_else),
        cmocka_unit_test(pings_are_answered),
        cmocka_unit_test(rapid_resets_end_the_connection),
        cmocka_unit_test(streams_are_limited),
        cmocka_unit_test(a_lost_connection_cancels_once),
        cmocka_unit_test(a_small_reply_is_one_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
