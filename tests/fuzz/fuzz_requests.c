/* Fuzzes a client's requests to a master and a worker in this process: sessions, steps, partial
 * runs, callables, resets, and all else that a master serves. Each message may have any bytes. The
 * requests take full effect; then the client disconnects, and everything must be freed.
 *
 *   input   calls, one after the other: a byte that chooses the method (see CALL_), the length of
 * the body
 *           (16 bits; cut off at the end), the body
 *
 * A session with a small graph exists before the first call. Handles are random, so a call can have
 * the handles of the newest session and of its newest partial run added to its body. */
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/graph/graph_proto.h"
#include "common/graph/graph_text.h"
#include "common/io/file_root.h"
#include "common/tensor/tensor_proto.h"
#include "master/service/service.h"
#include "worker/service/service.h"
#include "worker/service/service_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    CALL_METHOD = 15,      /* which method: its place in the table below */
    CALL_HAS_SESSION = 16, /* field 1 is the session's handle */
    CALL_HAS_PARTIAL = 32, /* field 6 is a partial run's handle */
    CALL_IS_AWAITED = 64,  /* its reply comes before the next call goes */
    CALL_IS_CANCELLED = 128,
};
enum { MAX_CALLS = 32, MAX_TURNS = 400, LIMIT_BYTES = 64 << 20 };

static const char *const methods[] = {
    "RunStep",         "CreateSession", "ExtendSession", "CloseSession",    "ListDevices", "Reset",
    "PartialRunSetup", "MakeCallable",  "RunCallable",   "ReleaseCallable", "NoSuch"};

static const char text[] = "x = Placeholder() {dtype=float}\n"
                           "v = VariableV2() {dtype=float, shape=[2]}\n"
                           "h = VarHandleOp() {dtype=float, shape=[2], shared_name=\"h\"}\n"
                           "one = Const() {dtype=float, value=float[2]{1, 2}}\n"
                           "y = AddV2(x, one) {T=float}\n"
                           "init = Assign(v, one) {T=float}\n"
                           "set = AssignVariableOp(h, y) {dtype=float}\n"
                           "r = ReadVariableOp(h, ^set) {dtype=float}\n"
                           "z = Mul(y, v) {T=float}\n"
                           "q = FIFOQueueV2() {component_types=[float], capacity=2}\n"
                           "put = QueueEnqueueV2(q, y) {Tcomponents=[float]}\n"
                           "get = QueueDequeueV2(q) {component_types=[float]}\n"
                           "bad = Reshape(y, shape) {T=float}\n"
                           "shape = Const() {dtype=int32, value=int32[1]{7}}\n"
                           "p = Placeholder() {dtype=bool}\n"
                           "sw = Switch(y, p) {T=float}\n"
                           "f = Neg(sw) {T=float}\n"
                           "m = Merge(f, sw:1) {T=float, N=2}\n";

/* ---- the cluster ---- */

static struct device device = {.full_name = (char *)"/job:worker/replica:0/task:0/device:CPU:0",
                               .type = "CPU",
                               .incarnation = 1};
static struct pool *pool;
static struct str graphdef;

struct cluster {
    struct loop *loop;
    struct worker_service *worker;
    struct service *master;
    struct cluster_spec spec;
};

static void start_once(void) {
    static char dir[] = "/tmp/millrace-fuzz-XXXXXX";
    const char *dirs[] = {mkdtemp(dir)};
    struct graph graph;
    CHECK(dirs[0]);
    struct status *st = file_roots_set(dirs, 1);
    CHECK(!st);
    (void)rmdir(dir); /* a root that is not there: no file can be touched */
    log_set_level(LOG_ERROR);
    device.allocator = allocator_host_new("fuzz", LIMIT_BYTES);
    st = device_name_parse(span_of(device.full_name), &device.name);
    CHECK(!st);
    pool = pool_new(1);
    graph_init(&graph);
    st = graph_parse(text, &graph);
    CHECK(!st);
    graph_to_graphdef(&graph, NULL, &graphdef);
    graph_fini(&graph);
}

static void cluster_start(struct cluster *c) {
    struct worker_options worker_options;
    struct master_options options;
    struct str address = STR_INIT;
    c->loop = loop_new();
    worker_options_default(&worker_options);
    worker_options.task = "/job:worker/replica:0/task:0";
    worker_options.listen = "127.0.0.1:0";
    worker_options.use_unix = false;
    worker_options.devices = &device;
    worker_options.n_devices = 1;
    worker_options.pool = worker_options.io_pool = pool;
    worker_options.max_feed_bytes = worker_options.max_in_flight_bytes = 4 << 20;
    struct status *st = worker_service_new(c->loop, &worker_options, &c->worker);
    CHECK(!st);
    c->worker->rates_phase = RATES_KNOWN; /* measuring takes longer than all else here */
    cluster_spec_init(&c->spec);
    str_addf(&address, "worker=127.0.0.1:%d", worker_service_port(c->worker));
    st = cluster_spec_parse(str_text(&address), &c->spec);
    CHECK(!st);
    str_fini(&address);
    master_options_default(&options);
    options.listen = NULL;
    options.compile.verify = true;
    options.compile.fold_budget_ns = 2000000;
    options.compile.fold_max_bytes = 1 << 20;
    options.compile.max_inlined_nodes = 5000;
    options.max_nodes = 10000;
    options.limits.max_message_bytes = 1 << 20;
    st = service_new(c->loop, pool, &c->spec, &options, &c->master);
    CHECK(!st);
}

/* Sleeps 50 µs at most: what another thread posts between turns wakes nobody. */
static void turn(struct loop *loop) {
    struct pollfd events = {.fd = uv_backend_fd(loop_uv(loop)), .events = POLLIN};
    uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    (void)ppoll(&events, 1, &(struct timespec){.tv_nsec = 50000}, NULL);
}

static void mark(void *arg) { *(bool *)arg = true; }

static void cluster_stop(struct cluster *c) {
    bool is_worker_gone = false;
    service_free(c->master);
    worker_service_free(c->worker, mark, &is_worker_gone);
    while (!is_worker_gone)
        turn(c->loop);
    loop_stop(c->loop);
    loop_run(c->loop);
    loop_free(c->loop);
    cluster_spec_fini(&c->spec);
}

/* ---- the client ---- */

struct client {
    int fd;
    struct str in; /* bytes of frames that are not whole yet */
    uint32_t n_calls, n_ended;
};

static void frame_begin(struct str *out, size_t len, uint8_t type, uint8_t flags, uint32_t stream) {
    const uint8_t head[9] = {(uint8_t)(len >> 16),
                             (uint8_t)(len >> 8),
                             (uint8_t)len,
                             type,
                             flags,
                             (uint8_t)(stream >> 24),
                             (uint8_t)(stream >> 16),
                             (uint8_t)(stream >> 8),
                             (uint8_t)stream};
    str_add_bytes(out, head, sizeof(head));
}

static void add_literal(struct str *out, const char *name, const char *value) {
    str_add_char(out, 0);
    str_add_char(out, (char)strlen(name));
    str_add(out, name);
    str_add_char(out, (char)strlen(value));
    str_add(out, value);
}

static void send_all(struct client *client, struct loop *loop, struct str *bytes) {
    for (size_t at = 0; at < bytes->len;) {
        ssize_t n = send(client->fd, bytes->data + at, bytes->len - at, MSG_NOSIGNAL);
        if (n > 0)
            at += (size_t)n;
        else
            uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    }
    str_fini(bytes);
}

/* The preface, windows of a MiB for streams and connection. */
static void say_hello(struct client *client, struct loop *loop) {
    struct str out = STR_INIT;
    static const char window[] = {0, 4, 0, 0x10, 0, 0}, more[] = {0, 0x10, 0, 0};
    str_add(&out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    frame_begin(&out, sizeof(window), 4, 0, 0);
    str_add_bytes(&out, window, sizeof(window));
    frame_begin(&out, sizeof(more), 8, 0, 0);
    str_add_bytes(&out, more, sizeof(more));
    send_all(client, loop, &out);
}

static void start_call(struct client *client, struct loop *loop, const char *method,
                       struct span body) {
    enum { MAX_FRAME_BYTES = 16384 };
    struct str headers = STR_INIT, out = STR_INIT, path = STR_INIT, message = STR_INIT;
    uint32_t stream = 2 * client->n_calls++ + 1;
    str_addf(&path, "/tensorflow.MasterService/%s", method);
    add_literal(&headers, ":method", "POST");
    add_literal(&headers, ":scheme", "http");
    add_literal(&headers, ":path", str_text(&path));
    add_literal(&headers, ":authority", "here");
    add_literal(&headers, "content-type", "application/grpc");
    frame_begin(&out, headers.len, 1, 4, stream);
    str_add_bytes(&out, headers.data, headers.len);
    const uint8_t prefix[5] = {0, 0, (uint8_t)(body.len >> 16), (uint8_t)(body.len >> 8),
                               (uint8_t)body.len};
    str_add_bytes(&message, prefix, sizeof(prefix));
    str_add_bytes(&message, body.data, body.len);
    for (size_t at = 0; at < message.len; at += MAX_FRAME_BYTES) {
        size_t n = MIN(message.len - at, (size_t)MAX_FRAME_BYTES);
        frame_begin(&out, n, 0, at + n == message.len, stream);
        str_add_bytes(&out, message.data + at, n);
    }
    send_all(client, loop, &out);
    str_fini(&headers);
    str_fini(&path);
    str_fini(&message);
}

static void cancel_call(struct client *client, struct loop *loop) {
    struct str out = STR_INIT;
    static const char code[] = {0, 0, 0, 8};
    frame_begin(&out, sizeof(code), 3, 0, 2 * client->n_calls - 1);
    str_add_bytes(&out, code, sizeof(code));
    send_all(client, loop, &out);
    client->n_ended++;
}

/* Counts the streams that the server has ended. */
static void read_frames(struct client *client) {
    char bytes[65536];
    ssize_t n;
    while ((n = recv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        str_add_bytes(&client->in, bytes, (size_t)n);
    const uint8_t *at = (const uint8_t *)client->in.data, *end = at + client->in.len;
    while (end - at >= 9 &&
           (size_t)(end - at) >= 9 + ((size_t)at[0] << 16 | (size_t)at[1] << 8 | at[2])) {
        bool is_end = at[3] == 3 || ((at[3] == 0 || at[3] == 1) && (at[4] & 1));
        client->n_ended += is_end;
        at += 9 + ((size_t)at[0] << 16 | (size_t)at[1] << 8 | at[2]);
    }
    size_t left = (size_t)(end - at);
    if (client->in.len > 0)
        memmove(client->in.data, at, left);
    client->in.len = left;
}

/* Some of the calls wait for what never comes: then their time is up. */
static void await_replies(struct client *client, struct loop *loop, int max_turns) {
    for (int i = 0; i < max_turns; i++) {
        read_frames(client);
        if (client->n_ended >= client->n_calls)
            return;
        turn(loop);
    }
}

/* ---- a conversation ---- */

static const struct session *newest_session(const struct service *service) {
    return list_is_empty(&service->sessions)
               ? NULL
               : LIST_ENTRY(service->sessions.prev, struct session, link);
}

static void add_handles(const struct service *service, uint8_t what, struct str *body) {
    const struct session *session = newest_session(service);
    size_t cursor = 0;
    struct span handle;
    void *value;
    if (session && what & CALL_HAS_SESSION)
        proto_add_bytes(body, 1, session->handle, strlen(session->handle));
    if (session && what & CALL_HAS_PARTIAL &&
        strmap_next(&session->partial_runs, &cursor, &handle, &value))
        proto_add_bytes(body, 6, handle.data, handle.len);
}

static void create_first_session(struct cluster *c, struct client *client) {
    struct str body = STR_INIT;
    proto_add_bytes(&body, 1, graphdef.data, graphdef.len);
    start_call(client, c->loop, "CreateSession", (struct span){body.data, body.len});
    while (client->n_ended == 0) {
        turn(c->loop);
        read_frames(client);
    }
    CHECK(newest_session(c->master));
    str_fini(&body);
}

static void converse(struct cluster *c, struct client *client, struct span in) {
    for (int i = 0; i < MAX_CALLS && in.len > 0; i++) {
        uint8_t what = (uint8_t)in.data[0];
        size_t room = in.len - MIN(in.len, (size_t)3),
               len = room ? (size_t)(uint8_t)in.data[1] | (size_t)(uint8_t)in.data[2] << 8 : 0;
        struct str body = STR_INIT;
        len = MIN(len, room);
        str_add_bytes(&body, in.data + (in.len - room), len);
        add_handles(c->master, what, &body);
        start_call(client, c->loop, methods[(what & CALL_METHOD) % ARRAY_LEN(methods)],
                   (struct span){str_text(&body), body.len});
        if (what & CALL_IS_AWAITED)
            await_replies(client, c->loop, MAX_TURNS);
        if (what & CALL_IS_CANCELLED)
            cancel_call(client, c->loop);
        str_fini(&body);
        in = (struct span){in.data + (in.len - room) + len, room - len};
    }
    await_replies(client, c->loop, MAX_TURNS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct cluster cluster;
    struct client client = {.in = STR_INIT};
    int fds[2];
    if (!pool)
        start_once();
    cluster_start(&cluster);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
        abort();
    client.fd = fds[0];
    grpc_server_adopt(cluster.master->server, fds[1]);
    say_hello(&client, cluster.loop);
    create_first_session(&cluster, &client);
    converse(&cluster, &client, (struct span){(const char *)data, size});
    close(client.fd);
    str_fini(&client.in);
    cluster_stop(&cluster);
    CHECK(atomic_load(&device.allocator->in_use_bytes) == 0);
    return 0;
}
