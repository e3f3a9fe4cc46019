/* The device process: it owns the memory of all simulated devices and runs what the library
 * enqueues. One socket, and one thread, beside which another waits for the end of the library's
 * process: this one ends with it, whatever a kernel does at the time. */
#include "tests/cuda/sim/device.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/splitmix.h"

struct device_settings settings;

uint64_t draw(uint64_t n) {
    return (uint64_t)(((unsigned __int128)splitmix64(&settings.seed) * n) >> 64);
}

void answer_send(struct sim_answer *answer, const void *bytes) {
    struct iovec parts[2] = {{answer, sizeof *answer}, {(void *)bytes, answer->n_bytes}};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = answer->n_bytes > 0 ? 2 : 1};
    ssize_t n;
    do
        n = sendmsg(SIM_SOCKET, &header, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        _exit(0); /* the library's process has ended */
}

static void answer_request(const struct sim_message *message, int result, uint64_t value,
                           uint64_t value2) {
    struct sim_answer answer = {.kind = SIM_ANSWER,
                                .result = result,
                                .device = message->device,
                                .request = message->request,
                                .value = value,
                                .value2 = value2};
    memcpy(answer.host_clocks, host_clocks.of, sizeof answer.host_clocks);
    answer_send(&answer, NULL);
}

/* The host waits for an operation, or asks whether it has ended. What it then knows is what was
 * enqueued before its request. */
static void synchronize(const struct sim_message *message, struct clocks after) {
    uint32_t stream = message->stream, clock = message->clock;
    bool waits = message->value == 0;
    if (waits)
        stream_run_until(stream, clock);
    else if (!stream_has_ended(stream, clock) && !devices_are_held)
        /* who asks again and again gets there */
        stream_run_one_for(stream);
    bool has_ended = stream_has_ended(stream, clock);
    if (has_ended)
        clocks_join(&host_clocks, &after);
    int error = device_errors[message->device];
    answer_request(message,
                   error != 0  ? error
                   : has_ended ? CUDA_SUCCESS
                               : CUDA_ERROR_NOT_READY,
                   0, 0);
}

/* What waits while the devices are held. */
struct waiting {
    struct waiting *next;
    struct sim_message message;
    struct clocks after;
};
static struct waiting *waiting;

static void synchronize_or_wait(const struct sim_message *message) {
    struct clocks after =
        message->event != 0 ? event_clocks(message->event) : stream_clocks(message->stream);
    bool waits = message->value == 0 && !stream_has_ended(message->stream, message->clock);
    if (!devices_are_held || !waits) {
        synchronize(message, after);
        return;
    }
    struct waiting *record = malloc(sizeof *record);
    if (record == NULL)
        abort();
    *record = (struct waiting){waiting, *message, after};
    waiting = record;
}

static void hold(const struct sim_message *message) {
    devices_are_held = message->value != 0;
    answer_request(message, CUDA_SUCCESS, 0, 0);
    while (!devices_are_held && waiting != NULL) {
        struct waiting *record = waiting;
        waiting = record->next;
        synchronize(&record->message, record->after);
        free(record);
    }
}

static void synchronize_device(const struct sim_message *message) {
    struct clocks after = streams_clocks_after(message->device);
    streams_run_device(message->device);
    clocks_join(&host_clocks, &after);
    answer_request(message, device_errors[message->device], 0, 0);
}

static void reset(const struct sim_message *message) {
    struct clocks after = streams_clocks_after(message->device);
    streams_drop(message->device);
    clocks_join(&host_clocks, &after);
    pages_reset(message->device);
    device_errors[message->device] = 0;
    answer_request(message, CUDA_SUCCESS, 0, 0);
}

static void find(const struct sim_message *message, const char *name) {
    uint64_t size = 0;
    int number =
        message->command == SIM_FIND_KERNEL ? kernels_find(name, &size) : host_functions_find(name);
    answer_request(message, number < 0 ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS, size,
                   (uint64_t)number);
}

static void unmap(const struct sim_message *message) {
    if (message->value != 0) { /* a free waits for the device */
        struct clocks after = streams_clocks_after(message->device);
        streams_run_device(message->device);
        clocks_join(&host_clocks, &after);
    }
    pages_unmap(message);
}

static void handle_memory(const struct sim_message *message, int file) {
    switch (message->command) {
    case SIM_MAP:
        pages_map(message);
        break;
    case SIM_UNMAP:
        unmap(message);
        break;
    case SIM_SET_ACCESS:
        pages_set_access(message->at, message->size, message->device, message->value != 0);
        break;
    case SIM_ENABLE_PEER:
        pages_enable_peer(message->device, (uint32_t)message->value);
        break;
    case SIM_PIN:
    case SIM_REGISTER:
        pinned_add(message, file);
        break;
    case SIM_UNPIN:
        pinned_remove(message->value);
        break;
    default:
        break;
    }
}

static void tell_time(const struct sim_message *message) {
    uint64_t start_ns = 0, end_ns = 0;
    if (message->value != 0)
        streams_keep_times();
    else
        stream_time(message->stream, message->clock, &start_ns, &end_ns);
    answer_request(message, CUDA_SUCCESS, start_ns, end_ns);
}

static void handle(const struct sim_message *message, void *bytes, int file) {
    switch (message->command) {
    case SIM_KERNEL:
    case SIM_HOST:
    case SIM_COPY_IN:
    case SIM_COPY_OUT:
    case SIM_COPY:
    case SIM_FILL:
    case SIM_RECORD:
    case SIM_WAIT:
    case SIM_NOTHING:
    case SIM_BLOCK_NEW:
    case SIM_BLOCK_FREED:
        stream_enqueue(message, bytes);
        break;
    case SIM_HELLO:
        answer_request(message, CUDA_SUCCESS, 0, 0);
        break;
    case SIM_FIND_KERNEL:
    case SIM_FIND_HOST:
        find(message, bytes);
        break;
    case SIM_LOAD_KERNELS:
        answer_request(message, kernels_load(bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE, 0,
                       0);
        break;
    case SIM_SYNCHRONIZE:
        synchronize_or_wait(message);
        break;
    case SIM_HOLD:
        hold(message);
        break;
    case SIM_SYNCHRONIZE_DEVICE:
        synchronize_device(message);
        break;
    case SIM_ELAPSED:
        answer_request(message, CUDA_SUCCESS,
                       event_elapsed_ns((uint32_t)message->at, (uint32_t)message->from), 0);
        break;
    case SIM_TIME:
        tell_time(message);
        break;
    case SIM_RESET:
        reset(message);
        break;
    case SIM_FAIL:
        device_fail(message->device, (int)message->value);
        answer_request(message, CUDA_SUCCESS, 0, 0);
        break;
    default:
        handle_memory(message, file);
        break;
    }
}

/* Receives one message with what comes along. False: the library's process has ended. */
static bool receive_one(void) {
    static _Alignas(16) struct {
        struct sim_message message;
        _Alignas(16) unsigned char bytes[SIM_MAX_MESSAGE + 1];
    } in;
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec parts[2] = {{&in.message, sizeof in.message}, {in.bytes, SIM_MAX_MESSAGE}};
    struct msghdr header = {.msg_iov = parts,
                            .msg_iovlen = 2,
                            .msg_control = &control,
                            .msg_controllen = sizeof control};
    ssize_t n = recvmsg(SIM_SOCKET, &header, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR)
        return true;
    if (n < (ssize_t)sizeof in.message)
        return false;
    int file = -1;
    struct cmsghdr *extra = CMSG_FIRSTHDR(&header);
    if (extra != NULL && extra->cmsg_type == SCM_RIGHTS)
        memcpy(&file, CMSG_DATA(extra), sizeof file);
    in.bytes[in.message.n_bytes] = '\0';
    handle(&in.message, in.bytes, file);
    return true;
}

/* Runs on when the library says nothing for a while, as a device would. */
static void serve(void) {
    enum { IDLE_MS = 1 };
    struct pollfd poll_fd = {.fd = SIM_SOCKET, .events = POLLIN};
    for (;;) {
        bool is_busy = !devices_are_held && streams_run_some();
        int n = poll(&poll_fd, 1, is_busy ? IDLE_MS : -1);
        if (n == 0)
            streams_run_one();
        else if (n > 0 && !receive_one())
            return;
    }
}

static void *await_end(void *unused) {
    struct pollfd poll_fd = {.fd = SIM_SOCKET}; /* for POLLHUP, which needs no asking */
    while (poll(&poll_fd, 1, -1) < 0 && errno == EINTR) {
    }
    _exit(0);
    return unused;
}

static bool watch_library(void) {
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool has_started = pthread_create(&thread, NULL, await_end, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return has_started;
}

static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr,
                "sim_device: the device process of tests/cuda/sim; libcuda.so.1 starts it\n");
        return 64;
    }
    const char *order = getenv("MILLRACE_SIM_ORDER");
    settings.base = strtoull(argv[1], NULL, 0);
    settings.n_devices = (int)strtol(argv[2], NULL, 0);
    settings.seed = setting("MILLRACE_SIM_SEED", 1);
    settings.is_checked = setting("MILLRACE_SIM_CHECK", 1) != 0;
    if (order != NULL && strcmp(order, "lazy") == 0)
        settings.order = ORDER_LAZY;
    else if (order != NULL && strcmp(order, "eager") == 0)
        settings.order = ORDER_EAGER;
    prctl(PR_SET_NAME, "sim_device");
    if (!pages_init())
        return 75; /* these addresses are taken here; the library tries others */
    const char *kernels = getenv("MILLRACE_SIM_KERNELS");
    if (!watch_library() || !faults_init() || !kernels_load(kernels != NULL ? kernels : ""))
        return 70;
    serve();
    return 0;
}
