/* The gRPC server and client against each other, in two processes over loopback TCP and a Unix
 * socket: what an empty call costs and how fast large messages go. With an argument "host:port"
 * the client alone runs, its empty calls only, against that server and path:
 *   grpc_echo [host:port /package.Service/Method] */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "rpc/grpc/grpc_client.h"
#include "rpc/grpc/grpc_server.h"

enum {
    N_EMPTY_CALLS = 20000,
    N_LARGE_CALLS = 15,
    LARGE_BYTES = 64 << 20,
    TENSOR_OFFSET = 49 /* as in TensorFlow's messages */
};

static size_t align_tensor(struct span head, size_t body_len) { return TENSOR_OFFSET; }

/* ---- the server process ---- */

static void on_echo(void *service, struct grpc_call *call) {
    struct grpc_message *message = grpc_call_message(call);
    struct grpc_body body;
    grpc_body_init(&body);
    if (message->buffer)
        grpc_body_add_shared(&body, message->body.data, message->body.len,
                             buffer_ref(message->buffer));
    grpc_call_reply(call, &body);
}

/* Swallows the message: what a feed costs. */
static void on_sink(void *service, struct grpc_call *call) {
    struct grpc_body body;
    grpc_body_init(&body);
    grpc_call_reply(call, &body);
}

/* The server's user and system time so far, in µs. */
static void on_usage(void *service, struct grpc_call *call) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    int64_t us[2] = {usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec,
                     usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec};
    struct grpc_body body;
    grpc_body_init(&body);
    grpc_body_add_copy(&body, us, sizeof(us));
    grpc_call_reply(call, &body);
}

static void serve(const char *address, int port_fd) {
    static const struct grpc_method methods[] = {{"/bench/Echo", on_echo, align_tensor},
                                                 {"/bench/Sink", on_sink, align_tensor},
                                                 {"/bench/Usage", on_usage, NULL}};
    struct loop *loop = loop_new();
    struct grpc_server_options options = {.methods = methods, .n_methods = ARRAY_LEN(methods)};
    struct grpc_server *server;
    struct status *st = grpc_server_new(loop, address, &options, &server);
    if (st) {
        fprintf(stderr, "%s\n", status_message(st));
        exit(1);
    }
    int port = grpc_server_port(server);
    if (write(port_fd, &port, sizeof(port)) == sizeof(port))
        loop_run(loop); /* until it is killed */
    exit(1);
}

/* ---- the client process ---- */

struct phase {
    const char *name, *path;
    bool is_large;
    int n_calls;
};

struct bench {
    struct loop *loop;
    struct grpc_client *client;
    const char *transport;
    const struct phase *phase, *phases_end;
    struct buffer *payload;
    int n_done;
    int64_t started_ns, took_ns[N_EMPTY_CALLS];
    int64_t usage_us[2];
};

static void start_call(struct bench *bench);

static int compare_i64(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print_phase(struct bench *bench) {
    const struct phase *phase = bench->phase;
    int n = phase->n_calls;
    if (!phase->name)
        return;
    qsort(bench->took_ns, (size_t)n, sizeof(bench->took_ns[0]), compare_i64);
    printf("%-5s %-16s n=%-6d median %9.1f us   p10 %9.1f   p99 %9.1f", bench->transport,
           phase->name, n, (double)bench->took_ns[n / 2] / 1e3,
           (double)bench->took_ns[n / 10] / 1e3, (double)bench->took_ns[n * 99 / 100] / 1e3);
}

static void next_phase(struct bench *bench) {
    print_phase(bench);
    bench->n_done = 0;
    if (++bench->phase < bench->phases_end) {
        start_call(bench);
        return;
    }
    grpc_client_close(bench->client, NULL, NULL);
    loop_stop(bench->loop);
}

static void on_done(void *arg, struct status *status_take, struct grpc_message message_take) {
    struct bench *bench = arg;
    bench->took_ns[bench->n_done++] = clock_now_ns() - bench->started_ns;
    if (status_take) {
        fprintf(stderr, "%s: %s\n", bench->phase->path, status_message(status_take));
        exit(1);
    }
    if (!bench->phase->name && message_take.body.len == sizeof(bench->usage_us)) {
        int64_t us[2];
        memcpy(us, message_take.body.data, sizeof(us));
        if (bench->n_done == 1 && bench->usage_us[0] + bench->usage_us[1] > 0 &&
            bench->phase[-1].name) {
            int n_calls = bench->phase[-1].n_calls;
            printf("   server cpu per call: user %.1f us, sys %.1f us\n",
                   (double)(us[0] - bench->usage_us[0]) / (double)n_calls,
                   (double)(us[1] - bench->usage_us[1]) / (double)n_calls);
        }
        memcpy(bench->usage_us, us, sizeof(us));
    }
    buffer_unref(message_take.buffer);
    if (bench->n_done < bench->phase->n_calls)
        start_call(bench);
    else
        next_phase(bench);
}

static void start_call(struct bench *bench) {
    struct grpc_body body;
    grpc_body_init(&body);
    if (bench->phase->is_large)
        grpc_body_add_shared(&body, bench->payload->data, LARGE_BYTES, buffer_ref(bench->payload));
    bench->started_ns = clock_now_ns();
    grpc_client_start(bench->client, bench->phase->path, &body, -1, align_tensor, on_done, bench);
}

static void run_client(const char *transport, const char *target, const struct phase *phases,
                       size_t n_phases) {
    struct bench *bench = xcalloc(1, sizeof(*bench));
    bench->transport = transport;
    bench->loop = loop_new();
    bench->client = grpc_client_new(bench->loop, target, true);
    bench->payload = buffer_alloc(allocator_host(), LARGE_BYTES);
    memset(bench->payload->data, 7, LARGE_BYTES);
    bench->phase = phases;
    bench->phases_end = phases + n_phases;
    start_call(bench);
    loop_run(bench->loop);
    loop_free(bench->loop);
    buffer_unref(bench->payload);
    free(bench);
}

static void run_pair(const char *transport, const char *address) {
    static const struct phase phases[] = {
        {NULL, "/bench/Usage", false, 500}, /* warms up */
        {NULL, "/bench/Usage", false, 1},
        {"empty", "/bench/Echo", false, N_EMPTY_CALLS},
        {NULL, "/bench/Usage", false, 1},
        {"64 MiB in", "/bench/Sink", true, N_LARGE_CALLS},
        {NULL, "/bench/Usage", false, 1},
        {"64 MiB both ways", "/bench/Echo", true, N_LARGE_CALLS},
        {NULL, "/bench/Usage", false, 1},
    };
    int ends[2], port = 0;
    if (pipe(ends) != 0)
        exit(1);
    pid_t child = fork();
    if (child == 0)
        serve(address, ends[1]);
    if (child < 0 || read(ends[0], &port, sizeof(port)) != sizeof(port))
        exit(1);
    char target[160];
    if (strncmp(address, "unix:", 5) == 0)
        snprintf(target, sizeof(target), "%s", address);
    else
        snprintf(target, sizeof(target), "127.0.0.1:%d", port);
    run_client(transport, target, phases, ARRAY_LEN(phases));
    kill(child, SIGTERM);
    waitpid(child, NULL, 0);
    close(ends[0]);
    close(ends[1]);
}

int main(int argc, char **argv) {
    if (argc == 3) {
        const struct phase phases[] = {{"empty", argv[2], false, 2000}};
        run_client("tcp", argv[1], phases, 1);
        printf("\n");
        return 0;
    }
    char path[64];
    snprintf(path, sizeof(path), "unix:/tmp/grpc_echo.%d", (int)getpid());
    run_pair("tcp", "127.0.0.1:0");
    run_pair("unix", path);
    unlink(path + 5);
    return 0;
}
