/* Fuzzes the worker wire: a stranger's bytes, read by a whole worker's service in this process. The
 * first byte chooses the stranger's role: 0 none yet (the bytes may begin with a Hello), 1 a
 * master, 2 another task, 3 another task that maps this one's arena. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/tensor/shm_arena.h"
#include "rpc/wire/wire_internal.h"
#include "worker/service/service_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MASTER = 1, PEER_INCARNATION = 2, MAX_TURNS = 10000 };

static struct loop *loop;
/* a fresh one for each input: handles and step ids begin again */
static struct worker_service *service;
static struct shm_arena *arena;
static struct device device = {.full_name = (char *)"/job:worker/replica:0/task:0/device:CPU:0",
                               .type = "CPU",
                               .incarnation = 1};

static void start(void) {
    struct worker_options options;
    struct peer *peer;
    struct status *st;
    if (!loop) {
        log_set_level(LOG_ERROR);
        loop = loop_new();
        st = shm_arena_new(0, &arena);
        CHECK(!st);
        allocator_host_set_arena(arena);
        device.allocator = allocator_host_new("fuzz", 64 << 20);
        st = device_name_parse(span_of(device.full_name), &device.name);
        CHECK(!st);
    }
    worker_options_default(&options);
    options.task = "/job:worker/replica:0/task:0";
    options.listen = "127.0.0.1:0";
    options.devices = &device;
    options.n_devices = 1;
    options.graph_grace_ms = 0;
    options.max_in_flight_bytes = 1 << 20;
    options.max_feed_bytes = options.max_graph_bytes = 1 << 20;
    st = worker_service_new(loop, &options, &service);
    CHECK(!st);
    st = peer_table_know(service->home->peers, "/job:ps/replica:0/task:0", "127.0.0.1:1", "",
                         PEER_INCARNATION, &peer);
    CHECK(!st);
}

static int connect_to_service(void) {
    struct net_address parsed;
    struct sockaddr_storage address;
    struct status *st = net_address_parse(worker_service_unix_address(service), &parsed);
    CHECK(!st);
    socklen_t len = wire_sockaddr(&parsed, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), size = 4 << 20;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    CHECK(connect(fd, (struct sockaddr *)&address, len) == 0);
    return fd;
}

static void send_hello(int fd, const char *task, uint64_t incarnation, unsigned channel) {
    struct str hello = STR_INIT;
    char header[WIRE_HEADER_BYTES];
    peer_hello_write(&hello, task, incarnation, channel, 0);
    wire_header_write(&(struct wire_header){.type = WIRE_HELLO, .meta_len = (uint32_t)hello.len},
                      header);
    CHECK(send(fd, header, sizeof(header), MSG_NOSIGNAL) == sizeof(header));
    CHECK(send(fd, hello.data, hello.len, MSG_NOSIGNAL) == (ssize_t)hello.len);
    str_fini(&hello);
}

static void turn(int fd) {
    char answers[65536];
    while (recv(fd, answers, sizeof(answers), MSG_DONTWAIT) > 0)
        ;
    uv_run(loop_uv(loop), UV_RUN_NOWAIT);
}

static void mark_freed(void *arg) { *(bool *)arg = true; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    start();
    int fd = connect_to_service();
    int who = data[0] % 4;
    if (who > 0)
        send_hello(fd, who == 1 ? "master" : "/job:ps/replica:0/task:0",
                   who == 1 ? MASTER : PEER_INCARNATION,
                   who == 3 ? CHANNEL_ARENA : CHANNEL_CONTROL);
    data++;
    size--;
    for (int i = 0; i < MAX_TURNS && size > 0; i++) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        } else if (n < 0 && errno != EAGAIN) {
            break;
        }
        turn(fd);
    }
    shutdown(fd, SHUT_WR);
    do
        turn(fd);
    while (service->n_connections > 0);
    close(fd);
    bool is_freed = false;
    worker_service_free(service, mark_freed, &is_freed);
    while (!is_freed)
        uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    CHECK(atomic_load(&device.allocator->in_use_bytes) == 0);
    return 0;
}
