/* Strangers' bytes into a gRPC connection, through a socket as in life.
 *
 * The first byte steers: bit 0 puts the HTTP/2 preface and an empty SETTINGS in front (so that
 * the fuzzer need not find them), bits 1 to 4 cut the rest into pieces of that many bytes, each
 * read by itself (0: one piece). With bit 5 the rest is the body of a call that says it is
 * compressed, by gzip (bit 6) or deflate; with bit 7 it says the truth: the rest is compressed
 * here. Afterwards everything must be gone: the connection, its calls, their memory. */
#include <fcntl.h>
#include <zlib.h>

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "rpc/grpc/grpc_server.h"

enum {
    MAX_INPUT_BYTES = 64 * 1024, /* fits the socket's buffer: one thread plays both sides */
    MAX_CALL_BYTES = MAX_INPUT_BYTES + 1024,
    N_IDLE_TURNS = 8, /* for slices of inflating */
};
enum { MODE_OPENED = 1, MODE_COMPRESSED_CALL = 32, MODE_GZIP = 64, MODE_COMPRESS = 128 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct loop *loop;
static struct grpc_server *server;
static int n_closed;

static void on_echo(void *service, struct grpc_call *call) {
    struct grpc_message *message = grpc_call_message(call);
    struct grpc_body body;
    grpc_body_init(&body);
    if (message->buffer)
        grpc_body_add_shared(&body, message->body.data, message->body.len,
                             buffer_ref(message->buffer));
    grpc_call_reply(call, &body);
}

static void on_cancel(struct grpc_call *call, void *user) {
    grpc_call_fail(call, status_new(STATUS_CANCELLED, "%s", (char *)user));
}
static void on_park(void *service, struct grpc_call *call) {
    grpc_call_set_user(call, "gone", on_cancel);
}
static void on_fail(void *service, struct grpc_call *call) {
    grpc_call_fail(call, status_invalid("%s\n%%", grpc_call_path(call)));
}
static void on_connection_closed(void *service, uint64_t connection_id) { n_closed++; }
static size_t align(struct span head, size_t body_len) {
    return head.len ? (uint8_t)head.data[0] : 0;
}

static void start(void) {
    static const struct grpc_method methods[] = {
        {"/e", on_echo, align}, {"/p", on_park, NULL}, {"/f", on_fail, align}};
    static const char *const services[] = {"", "test", NULL};
    struct grpc_server_options options = {
        .methods = methods, .n_methods = 3, .on_connection_closed = on_connection_closed};
    options.limits.max_message_bytes = 1 << 20;
    options.limits.max_inflight_bytes = 4 << 20;
    options.limits.max_streams = 100;
    options.limits.max_inflate_bytes = 256 << 10;
    options.health_services = services;
    log_set_level(LOG_ERROR); /* a connection that is closed for a flood says so */
    loop = loop_new();
    if (grpc_server_new(loop, NULL, &options, &server))
        abort();
}

static void drain_socket(int fd) {
    char sink[65536];
    while (read(fd, sink, sizeof(sink)) > 0) {
    }
}

static void send_piece(int fd, const void *bytes, size_t len) {
    if (len > 0 && send(fd, bytes, len, MSG_NOSIGNAL) < 0)
        return; /* it has closed already */
    uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    drain_socket(fd);
}

static size_t add_literal(uint8_t *out, const char *name, const char *value) {
    size_t n = 0, name_len = strlen(name), value_len = strlen(value);
    out[n++] = 0;
    out[n++] = (uint8_t)name_len;
    memcpy(out + n, name, name_len);
    n += name_len;
    out[n++] = (uint8_t)value_len;
    memcpy(out + n, value, value_len);
    return n + value_len;
}

static size_t add_frame(uint8_t *out, size_t len, uint8_t type, uint8_t flags) {
    const uint8_t head[9] = {
        (uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len, type, flags, 0, 0, 0, 1};
    memcpy(out, head, sizeof(head));
    return sizeof(head);
}

static size_t compress_input(uint8_t *out, size_t room, const uint8_t *data, size_t size,
                             bool is_gzip) {
    z_stream z = {
        .next_in = (Bytef *)data, .avail_in = (uInt)size, .next_out = out, .avail_out = (uInt)room};
    if (deflateInit2(&z, 1, Z_DEFLATED, is_gzip ? 15 + 16 : 15, 8, Z_DEFAULT_STRATEGY) != Z_OK ||
        deflate(&z, Z_FINISH) != Z_STREAM_END)
        abort();
    deflateEnd(&z);
    return z.total_out;
}

/* HEADERS and DATA of a whole call whose message is flagged as compressed. */
static size_t make_call(uint8_t *out, uint8_t mode, const uint8_t *data, size_t size) {
    uint8_t *block = out + 9;
    size_t n = 0;
    n += add_literal(block + n, ":method", "POST");
    n += add_literal(block + n, ":scheme", "http");
    n += add_literal(block + n, ":path", "/e");
    n += add_literal(block + n, ":authority", "here");
    n += add_literal(block + n, "content-type", "application/grpc");
    n += add_literal(block + n, "grpc-encoding", mode & MODE_GZIP ? "gzip" : "deflate");
    add_frame(out, n, 1, 4);
    uint8_t *message = block + n + 9, *body = message + 5;
    size_t room = MAX_CALL_BYTES - (size_t)(body - out), len = size < room ? size : room;
    if (mode & MODE_COMPRESS)
        len = compress_input(body, room, data, size, mode & MODE_GZIP);
    else
        memcpy(body, data, len);
    const uint8_t prefix[5] = {1, 0, (uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len};
    memcpy(message, prefix, sizeof(prefix));
    add_frame(block + n, len + 5, 0, 1);
    return (size_t)(body - out) + len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t call[MAX_CALL_BYTES];
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    int fds[2], n_before = n_closed;
    if (!loop)
        start();
    if (size == 0 || size > MAX_INPUT_BYTES ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
        return 0;
    uint8_t mode = data[0];
    size_t step = mode >> 1 & 15;
    data++;
    size--;
    grpc_server_adopt(server, fds[1]);
    if (mode & MODE_COMPRESSED_CALL) {
        size = make_call(call, mode, data, size);
        data = call;
    }
    if (mode & (MODE_OPENED | MODE_COMPRESSED_CALL))
        send_piece(fds[0], preface, sizeof(preface) - 1);
    while (size > 0) {
        size_t n = step && step < size ? step : size;
        send_piece(fds[0], data, n);
        data += n;
        size -= n;
    }
    for (int i = 0; i < N_IDLE_TURNS; i++)
        send_piece(fds[0], NULL, 0);
    shutdown(fds[0], SHUT_WR);
    while (n_closed == n_before) {
        loop_run_once(loop);
        drain_socket(fds[0]);
    }
    close(fds[0]);
    uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    return 0;
}
