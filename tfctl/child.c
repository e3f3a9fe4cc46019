/* Starts a child process, with its signals and descriptors in order, and collects its end. */
#include "tfctl/child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- starting ---- */

static void be_daemon_child(int output_fd) {
    setpgid(0, 0);         /* Ctrl-C of the terminal must not reach it. */
    unsetenv("TF_CONFIG"); /* It must not see the cluster that tfctl's user belongs to. */
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null_fd, STDIN_FILENO);
    dup2(output_fd, STDOUT_FILENO);
    dup2(output_fd, STDERR_FILENO);
}

/* Runs in the new process. Reports a failure of exec through `error_fd`, which a successful exec
 * closes. */
static _Noreturn void become(const struct child *child, pid_t parent, int output_fd, int error_fd) {
    int error = 0;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        error = errno;
    if (getppid() != parent) /* the parent died before the line above took effect */
        _exit(127);
    if (!child->is_foreground)
        be_daemon_child(output_fd);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, child->mask, NULL);
    if (error == 0) {
        execvp(child->argv[0], child->argv);
        error = errno;
    }
    ssize_t n = write(error_fd, &error, sizeof(error));
    _exit(n == sizeof(error) ? 127 : 126);
}

static struct status *cannot_start(const struct child *child, int error) {
    return status_unavailable("cannot start %s: %s: %s", child->name, child->argv[0],
                              strerror(error));
}

static int read_error(int fd) {
    int error = 0;
    ssize_t n;
    do
        n = read(fd, &error, sizeof(error));
    while (n < 0 && errno == EINTR);
    return n == sizeof(error) ? error : 0;
}

struct status *child_start(struct child *child, int *ret_errno) {
    int output[2] = {-1, -1}, errors[2] = {-1, -1};
    struct status *st = NULL;
    pid_t self = getpid(), pid = -1;
    *ret_errno = 0;
    child->output_fd = -1;
    if (pipe2(errors, O_CLOEXEC) == 0 && (child->is_foreground || pipe2(output, O_CLOEXEC) == 0))
        pid = fork();
    if (pid == 0)
        become(child, self, output[1], errors[1]);
    if (pid < 0)
        st = cannot_start(child, errno);
    close(errors[1]);
    if (output[1] >= 0)
        close(output[1]);
    if (!st && (*ret_errno = read_error(errors[0])) != 0) {
        waitpid(pid, NULL, 0);
        st = cannot_start(child, *ret_errno);
    }
    close(errors[0]);
    if (st) {
        if (output[0] >= 0)
            close(output[0]);
        return st;
    }
    child->pid = pid;
    child->output_fd = output[0];
    if (output[0] >= 0)
        fcntl(output[0], F_SETFL, O_NONBLOCK);
    return NULL;
}

/* ---- ending ---- */

void child_signal(const struct child *child, int signo) {
    if (child->pid > 0)
        kill(child->pid, signo);
}

void child_describe_end(int wait_status, struct str *out) {
    if (WIFSIGNALED(wait_status))
        str_addf(out, "was killed by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    else
        str_addf(out, "exited with status %d", WEXITSTATUS(wait_status));
}

int child_exit_code(int wait_status) {
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

/* ---- all of them ---- */

/* Returns the parent of a process, from /proc/PID/stat: "PID (NAME) STATE PPID …", where NAME may
 * contain any character. -1 when the process has ended. */
static pid_t parent_of(const char *pid) {
    char path[300], text[512];
    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    const char *after = strrchr(text, ')');
    return after && strlen(after) > 4 ? (pid_t)strtol(after + 4, NULL, 10) : -1;
}

static bool is_among(pid_t pid, const pid_t *pids, int n) {
    for (int i = 0; i < n; i++)
        if (pids[i] == pid)
            return true;
    return false;
}

int children_signal(int signo, const pid_t *except, int n_except) {
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    int n = 0;
    while (proc && (entry = readdir(proc))) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid <= 0 || parent_of(entry->d_name) != getpid() || is_among(pid, except, n_except))
            continue;
        n++;
        if (signo)
            kill(pid, signo);
    }
    if (proc)
        closedir(proc);
    return n;
}

void children_end(void) {
    for (;;) {
        children_signal(SIGKILL, NULL, 0);
        if (waitpid(-1, NULL, 0) < 0 && errno == ECHILD)
            return;
    }
}
