/* The device process, seen from the library: starting it, sending, waiting for answers. */
#include "tests/cuda/sim/driver.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct request {
    uint64_t number;
    bool is_done;
    struct sim_answer answer;
    struct request *next;
};

static struct {
    pthread_mutex_t lock; /* order of messages, tables of the library */
    int socket;
    pid_t process;
    pthread_mutex_t waits; /* guards what follows; taken after lock, never before it */
    pthread_cond_t change;
    struct request *requests;
    uint64_t n_requests;
    bool is_lost;
    atomic_ulong n_reports;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .socket = -1,
           .waits = PTHREAD_MUTEX_INITIALIZER,
           .change = PTHREAD_COND_INITIALIZER};

void link_lock(void) { pthread_mutex_lock(&state.lock); }
void link_unlock(void) { pthread_mutex_unlock(&state.lock); }

EXPORTED unsigned long simReportCount(void) { return atomic_load(&state.n_reports); }
EXPORTED int simDeviceProcess(void) { return state.process; }

void link_report(const char *text) {
    const char *path = getenv("MILLRACE_SIM_REPORT");
    int file = path != NULL && *path != '\0'
                   ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)
                   : dup(STDERR_FILENO);
    char line[2200];
    int length = snprintf(line, sizeof line, "simulated device: %s\n", text);
    if (file >= 0 && write(file, line, (size_t)length) != length)
        perror("MILLRACE_SIM_REPORT");
    if (file >= 0)
        close(file);
    atomic_fetch_add(&state.n_reports, 1);
}

/* ---- answers ---- */

static void request_done(const struct sim_answer *answer) {
    pthread_mutex_lock(&state.waits);
    for (struct request *request = state.requests; request != NULL; request = request->next)
        if (request->number == answer->request) {
            request->answer = *answer;
            request->is_done = true;
        }
    pthread_cond_broadcast(&state.change);
    pthread_mutex_unlock(&state.waits);
}

static void device_lost(void) {
    for (int d = 0; d < sim.n_devices; d++) {
        atomic_store(&device_errors[d], CUDA_ERROR_UNKNOWN);
        pinned_release_device((uint32_t)d);
    }
    pthread_mutex_lock(&state.waits);
    state.is_lost = true;
    pthread_cond_broadcast(&state.change);
    pthread_mutex_unlock(&state.waits);
    int status = 0;
    char text[120];
    if (waitpid(state.process, &status, 0) == state.process && WIFSIGNALED(status) &&
        WTERMSIG(status) != SIGKILL && WTERMSIG(status) != SIGTERM) {
        snprintf(text, sizeof text, "the device process ended by signal %d: a mistake of its own",
                 WTERMSIG(status));
        link_report(text);
    }
}

static void *read_answers(void *unused) {
    static struct {
        struct sim_answer answer;
        char text[4096];
    } in;
    for (;;) {
        ssize_t n = recv(state.socket, &in, sizeof in - 1, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < (ssize_t)sizeof in.answer)
            break;
        if (in.answer.kind == SIM_REPORT) {
            in.text[in.answer.n_bytes] = '\0';
            link_report(in.text);
        } else if (in.answer.kind == SIM_ERROR) {
            atomic_store(&device_errors[in.answer.device], in.answer.result);
            pinned_release_device(in.answer.device);
        } else {
            request_done(&in.answer);
        }
    }
    device_lost();
    return unused;
}

void link_kill(void) {
    if (sim.is_null || state.process <= 0)
        return;
    kill(state.process, SIGKILL);
    pthread_mutex_lock(&state.waits);
    while (!state.is_lost)
        pthread_cond_wait(&state.change, &state.waits);
    pthread_mutex_unlock(&state.waits);
}

/* ---- messages ---- */

void link_send(const struct sim_message *message, const void *bytes, int file) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS,
                            .cmsg_len = CMSG_LEN(sizeof file)}};
    struct iovec parts[2] = {{(void *)message, sizeof *message}, {(void *)bytes, message->n_bytes}};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = message->n_bytes > 0 ? 2 : 1};
    if (sim.is_null)
        return;
    if (file >= 0) {
        memcpy(CMSG_DATA(&control.header), &file, sizeof file);
        header.msg_control = &control;
        header.msg_controllen = sizeof control;
    }
    while (sendmsg(state.socket, &header, MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
    /* When the process is gone, the reader notices it, too. */
}

CUresult link_request(struct sim_message *message, const void *bytes, struct sim_answer *answer) {
    struct request request = {0}, **at;
    *answer = (struct sim_answer){0};
    if (sim.is_null) {
        link_unlock();
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&state.waits);
    request.number = message->request = ++state.n_requests;
    request.next = state.requests;
    state.requests = &request;
    pthread_mutex_unlock(&state.waits);
    link_send(message, bytes, -1);
    link_unlock();

    pthread_mutex_lock(&state.waits);
    while (!request.is_done && !state.is_lost)
        pthread_cond_wait(&state.change, &state.waits);
    for (at = &state.requests; *at != &request; at = &(*at)->next)
        ;
    *at = request.next;
    pthread_mutex_unlock(&state.waits);
    if (!request.is_done)
        return CUDA_ERROR_UNKNOWN;
    *answer = request.answer;
    pinned_release(answer->host_clocks);
    return (CUresult)answer->result;
}

/* ---- the process ---- */

/* sim_device lies beside the library. */
static void program_path(char *path, size_t size) {
    const char *given = getenv("MILLRACE_SIM_PROCESS");
    Dl_info info;
    if (given != NULL) {
        snprintf(path, size, "%s", given);
        return;
    }
    const char *library = dladdr((void *)link_start, &info) != 0 ? info.dli_fname : "";
    const char *slash = strrchr(library, '/');
    snprintf(path, size, "%.*ssim_device", slash == NULL ? 0 : (int)(slash - library) + 1, library);
}

/* The environment without LD_PRELOAD: a sanitizer of the library's process is none of the
 * device's. */
static char **environment(void) {
    size_t n = 0, kept = 0;
    while (environ[n] != NULL)
        n++;
    char **list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; list != NULL && i < n; i++)
        if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0)
            list[kept++] = environ[i];
    return list;
}

static CUresult spawn(int socket_end) {
    char path[1024], base[32], count[16];
    program_path(path, sizeof path);
    snprintf(base, sizeof base, "0x%lx", (unsigned long)sim.base);
    snprintf(count, sizeof count, "%d", sim.n_devices);
    char *arguments[] = {path, base, count, NULL};
    char **variables = environment();
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&files, socket_end, SIM_SOCKET);
    for (int d = 0; d < sim.n_devices; d++)
        posix_spawn_file_actions_adddup2(&files, sim.memory_files[d], SIM_MEMORY + d);
    posix_spawn_file_actions_addclosefrom_np(&files, SIM_MEMORY + sim.n_devices);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0); /* a terminal's Ctrl-C is not for it */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    int error = variables == NULL
                    ? ENOMEM
                    : posix_spawn(&state.process, path, &files, &attributes, arguments, variables);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    free(variables);
    if (error == 0)
        return CUDA_SUCCESS;
    char text[1200];
    snprintf(text, sizeof text, "the device process %s does not start: %s", path, strerror(error));
    link_report(text);
    return CUDA_ERROR_OPERATING_SYSTEM;
}

int file_moved(int file) {
    enum { FIRST = 64 };
    int higher = fcntl(file, F_DUPFD_CLOEXEC, FIRST);
    close(file);
    return higher;
}

CUresult link_start(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    int size = 4 << 20;
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    ends[1] = file_moved(ends[1]);
    CUresult result = spawn(ends[1]);
    close(ends[1]);
    if (result != CUDA_SUCCESS) {
        close(ends[0]);
        return result;
    }
    prctl(PR_SET_PTRACER, state.process, 0, 0, 0); /* it copies registered memory */
    state.socket = ends[0];
    state.is_lost = false;
    pthread_t reader;
    if (pthread_create(&reader, NULL, read_answers, NULL) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    pthread_detach(reader);
    struct sim_message hello = {.command = SIM_HELLO};
    struct sim_answer answer;
    link_lock();
    return link_request(&hello, NULL, &answer);
}
