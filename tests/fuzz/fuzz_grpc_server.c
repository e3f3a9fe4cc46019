/* Strangers' bytes into a gRPC connection, through a socket as in life.
 *
 * The first byte steers: bit 0 puts the HTTP/2 preface and an empty SETTINGS in front (so that the fuzzer need not find them), bits 1 to 4
 * cut the rest into pieces of that many bytes, each read by itself (0: one piece). Afterwards everything must be gone: the
 * connection, its calls, their memory. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/grpc_server.h"

enum { MAX_INPUT_BYTES = 64 * 1024 }; /* fits the socket's buffer: one thread plays both sides */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct loop *loop;
static struct grpc_server *server;
static int n_closed;

static void on_echo(void *service, struct grpc_call *call) {
    struct grpc_message *message = grpc_call_message(call);
    struct grpc_body body;
    grpc_body_init(&body);
    if (message->buffer)
        grpc_body_add_shared(&body, message->body.data, message->body.len, buffer_ref(message->buffer));
    grpc_call_reply(call, &body);
}

static void on_cancel(struct grpc_call *call, void *user) { grpc_call_fail(call, status_new(STATUS_CANCELLED, "%s", (char *)user)); }
static void on_park(void *service, struct grpc_call *call) { grpc_call_set_user(call, "gone", on_cancel); }
static void on_fail(void *service, struct grpc_call *call) { grpc_call_fail(call, status_invalid("%s\n%%", grpc_call_path(call))); }
static void on_connection_closed(void *service, uint64_t connection_id) { n_closed++; }
static size_t align(struct span head, size_t body_len) { return head.len ? (uint8_t)head.data[0] : 0; }

static void start(void) {
    static const struct grpc_method methods[] = {{"/e", on_echo, align}, {"/p", on_park, NULL}, {"/f", on_fail, align}};
    struct grpc_server_options options = {.methods = methods, .n_methods = 3, .on_connection_closed = on_connection_closed};
    options.limits.max_message_bytes = 1 << 20;
    options.limits.max_inflight_bytes = 4 << 20;
    options.limits.max_streams = 100;
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    int fds[2], n_before = n_closed;
    if (!loop)
        start();
    if (size == 0 || size > MAX_INPUT_BYTES || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
        return 0;
    uint8_t mode = data[0];
    size_t step = mode >> 1 & 15;
    data++;
    size--;
    grpc_server_adopt(server, fds[1]);
    if (mode & 1)
        send_piece(fds[0], preface, sizeof(preface) - 1);
    while (size > 0) {
        size_t n = step && step < size ? step : size;
        send_piece(fds[0], data, n);
        data += n;
        size -= n;
    }
    shutdown(fds[0], SHUT_WR);
    while (n_closed == n_before) {
        loop_run_once(loop);
        drain_socket(fds[0]);
    }
    close(fds[0]);
    uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    return 0;
}
