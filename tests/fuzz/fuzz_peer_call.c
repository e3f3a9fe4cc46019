/* Fuzzes both ends of the calls between tasks (worker/exchange/peer_call.h). The first byte chooses
 * what the other bytes are:
 *
 *   0  a stranger's bytes behind a caller's Hello: a worker's service replies
 *   1  calls, each in a frame of its own: a worker's service replies
 *   2  a stranger's bytes behind a task's Hello: the caller reads them
 *   3  replies, each in a frame of its own: the caller reads them
 *
 * What answers is an echo, on a thread, that refuses some and gives a payload to others; every
 * call ends once. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/log.h"
#include "rpc/wire/wire_internal.h"
#include "tests/fuzz/input_bytes.h"
#include "worker/exchange/peer_call.h"
#include "worker/service/service_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PEER_INCARNATION = 2, MAX_TURNS = 20000, N_CALLS = 6 };

#define OWN "/job:worker/replica:0/task:0"
#define OTHER "/job:ps/replica:0/task:0"

static struct loop *loop;
static struct pool *pool;
static struct device device = {
    .full_name = (char *)OWN "/device:CPU:0", .type = "CPU", .incarnation = 1};

static void check(struct status *st) { CHECK(!st); }

static void start(void) {
    log_set_level(LOG_ERROR);
    loop = loop_new();
    pool = pool_new_io(1);
    device.allocator = allocator_host_new("fuzz", 64 << 20);
    check(device_name_parse(span_of(device.full_name), &device.name));
}

static void turn(void) { uv_run(loop_uv(loop), UV_RUN_NOWAIT); }

static void add_frame(struct str *out, enum wire_type type, uint64_t id, struct span meta,
                      struct span payload) {
    char header[WIRE_HEADER_BYTES];
    wire_header_write(&(struct wire_header){.type = (uint16_t)type,
                                            .id = id,
                                            .meta_len = (uint32_t)meta.len,
                                            .payload_len = payload.len},
                      header);
    str_add_bytes(out, header, sizeof(header));
    str_add_bytes(out, meta.data, meta.len);
    str_add_bytes(out, payload.data, payload.len);
}

static void add_hello(struct str *out, const char *task, unsigned channel) {
    struct str hello = STR_INIT;
    peer_hello_write(&hello, task, PEER_INCARNATION, channel, 0);
    add_frame(out, WIRE_HELLO, 0, (struct span){hello.data, hello.len}, (struct span){NULL, 0});
    str_fini(&hello);
}

/* All that is said in frames of our own. */
static void add_frames(struct str *out, enum wire_type type) {
    for (int i = 0; i < 2 * PEER_MAX_CALLS && in.len > 0; i++) {
        unsigned how = take_byte();
        struct span meta = take_chunk(), payload = how & 1 ? take_chunk() : (struct span){NULL, 0};
        add_frame(out, type, how >> 1, meta, payload);
    }
}

/* Sends them and takes what comes back, until the other end has had them all or has had enough. */
static void say(int fd, const struct str *bytes) {
    char answers[65536];
    size_t at = 0;
    for (int i = 0; i < MAX_TURNS && at < bytes->len; i++) {
        ssize_t n = send(fd, bytes->data + at, bytes->len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN)
            break;
        at += (size_t)MAX(n, 0);
        while (recv(fd, answers, sizeof(answers), MSG_DONTWAIT) > 0)
            ;
        turn();
    }
}

/* ---- who answers ---- */

static struct status *answer(struct span request, struct peer_reply *ret) {
    if (request.len > 0 && request.data[0] == 'n')
        return status_not_found("%.*s", (int)MIN(request.len, (size_t)100), request.data);
    str_add_bytes(&ret->bytes, request.data, request.len);
    ret->payload_bytes = request.len > 1 ? (size_t)(unsigned char)request.data[1] << 8 : 0;
    ret->payload = ret->payload_bytes ? buffer_alloc(device.allocator, ret->payload_bytes) : NULL;
    if (ret->payload)
        memset(ret->payload->data, 1, ret->payload_bytes);
    return NULL;
}

static void mark_freed(void *arg) { *(bool *)arg = true; }

static int connect_to(const char *unix_address) {
    struct net_address parsed;
    struct sockaddr_storage address;
    check(net_address_parse(unix_address, &parsed));
    socklen_t len = wire_sockaddr(&parsed, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, len) == 0);
    return fd;
}

static void try_service(bool is_framed) {
    struct worker_options options;
    struct worker_service *service;
    struct str bytes = STR_INIT;
    bool is_freed = false;
    char answers[65536];
    worker_options_default(&options);
    options.task = OWN;
    options.listen = "127.0.0.1:0";
    options.devices = &device;
    options.n_devices = 1;
    options.pool = pool;
    options.serve_peer_call = answer;
    check(worker_service_new(loop, &options, &service));
    int fd = connect_to(worker_service_unix_address(service));
    add_hello(&bytes, OTHER, CHANNEL_PEER_CALLS);
    if (is_framed)
        add_frames(&bytes, WIRE_PEER_REQUEST);
    else
        str_add_bytes(&bytes, in.data, in.len);
    say(fd, &bytes);
    shutdown(fd, SHUT_WR);
    do {
        while (recv(fd, answers, sizeof(answers), MSG_DONTWAIT) > 0)
            ;
        turn();
    } while (service->n_connections > 0);
    close(fd);
    worker_service_free(service, mark_freed, &is_freed);
    while (!is_freed)
        turn();
    turn();
    CHECK(atomic_load(&device.allocator->in_use_bytes) == 0);
    str_fini(&bytes);
}

/* ---- who asks ---- */

static int n_ended;

static void on_done(struct peer_call *call) {
    n_ended++;
    CHECK(call->payload_bytes <= PEER_MAX_PAYLOAD_BYTES && call->reply.len <= WIRE_MAX_META_BYTES);
    status_unref(call->status);
    str_fini(&call->reply);
    buffer_unref(call->payload);
}

static int listen_at(struct str *ret_address) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t len = sizeof(sa_family_t);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    /* any abstract name */
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, len) == 0 && listen(fd, 8) == 0);
    len = sizeof(address);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
    str_addf(ret_address, "unix:@%.*s", (int)(len - sizeof(sa_family_t) - 1), address.sun_path + 1);
    return fd;
}

static void try_table(bool is_framed) {
    struct peer_call_table *table = peer_call_table_new(loop, OWN, 1, 60000);
    struct peer_call calls[N_CALLS];
    struct peer_call_task *task;
    struct str address = STR_INIT, bytes = STR_INIT;
    int listener = listen_at(&address), fd;
    check(peer_call_table_know(table, OTHER, "", address.data, &task));
    n_ended = 0;
    for (int i = 0; i < N_CALLS; i++) {
        calls[i] = (struct peer_call){.request = span_of("what?"), .on_done = on_done};
        list_init(&calls[i].link);
        peer_call_start(task, &calls[i]);
    }
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
        turn();
    add_hello(&bytes, OTHER, CHANNEL_PEER_CALLS);
    if (is_framed)
        add_frames(&bytes, WIRE_PEER_REPLY);
    else
        str_add_bytes(&bytes, in.data, in.len);
    say(fd, &bytes);
    close(fd);
    close(listener);
    while (n_ended < N_CALLS)
        turn();
    peer_call_table_free(table);
    for (int i = 0; i < 4; i++) /* its timer and connections go */
        turn();
    CHECK(n_ended == N_CALLS);
    str_fini(&address);
    str_fini(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!loop)
        start();
    in = (struct span){(const char *)data, size};
    unsigned mode = take_byte() % 4;
    if (mode < 2)
        try_service(mode == 1);
    else
        try_table(mode == 3);
    return 0;
}
