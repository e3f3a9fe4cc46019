/* Runs a local cluster: an event loop over signals, children's pipes, port files and deadlines. */
#include "tfctl/local_cluster.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tfctl/stopping.h"
#include "common/base/clock.h"
#include "rpc/daemon/daemon.h"
#include "rpc/daemon/page.h"

enum cluster_state {
    CLUSTER_TASKS,
    CLUSTER_MASTER,
    CLUSTER_PROBE,
    CLUSTER_RUNNING,
    CLUSTER_STOPPING,
    CLUSTER_OVER
};

enum {
    /* the probe has its own deadline, and reports more than tfctl could */
    PROBE_GRACE_MS = 1000,
    IMPATIENT_INTERRUPTS = 3, /* after this many Ctrl-C, kill a command that ignores them */
    LAST_WORDS_MS = 1000,     /* how long to wait for stderr with the last lines */
    /* how long to wait before another attempt when a restarted daemon has failed to start; doubles
     * each time */
    RESTART_PAUSE_MS = 100,
    RESTARTS_IN_A_ROW = 6, /* after this many failed starts the cluster stops: after 6.3 s */
};

struct local_cluster {
    const struct local_options *options;
    enum cluster_state state;
    struct arena arena;
    struct relay relay;
    char directory[256]; /* of the port files; "" before it exists */
    int orders_fd, signal_fd, inotify_fd;
    struct member *members; /* tasks, master, probe, command */
    int n_tasks, n_members;
    struct pollfd *fds;
    struct str target;
    int64_t start_deadline_ns;
    int n_interrupts, exit_code;
    struct stopping stopping; /* CLUSTER_STOPPING */
};

static struct member *master_of(struct local_cluster *c) { return &c->members[c->n_tasks]; }
static struct member *probe_of(struct local_cluster *c) { return &c->members[c->n_tasks + 1]; }
static struct member *command_of(struct local_cluster *c) { return &c->members[c->n_tasks + 2]; }
static int n_daemons(const struct local_cluster *c) { return c->n_tasks + 1; }

/* ---- stopping ---- */

static void begin_stopping(struct local_cluster *c) {
    if (c->state >= CLUSTER_STOPPING)
        return;
    c->state = CLUSTER_STOPPING;
    stopping_begin(&c->stopping, c->members, c->n_members, c->options->command != NULL);
}

static void continue_stop(struct local_cluster *c) {
    if (c->state == CLUSTER_STOPPING && stopping_advance(&c->stopping))
        c->state = CLUSTER_OVER;
}

static void fail(struct local_cluster *c, int exit_code, struct status *st_take) {
    relay_say(&c->relay, "%s", status_message(st_take));
    if (c->options->is_json && command_of(c)->child.pid <= 0) /* stdout is the command's */
        cli_print_error(st_take, exit_code);
    status_unref(st_take);
    c->exit_code = exit_code;
    begin_stopping(c);
}

/* ---- starting ---- */

static bool start_member(struct local_cluster *c, struct member *member) {
    int error;
    member->is_up = false;
    struct status *st = child_start(&member->child, &error);
    if (!st)
        return true;
    bool is_command = member->kind == MEMBER_COMMAND;
    if (error == ENOENT && !is_command)
        st = status_suffix_take(st, " (neither in the directory of tfctl nor in PATH)");
    /* the exit code that env and shells use */
    fail(c, !is_command ? EXIT_IO : error == ENOENT ? 127 : 126, st);
    return false;
}

static void start_daemon(struct local_cluster *c, struct member *member) {
    struct str cluster = STR_INIT;
    member->restart_due_ns = 0;
    for (int i = 0; member->kind == MEMBER_MASTER && i < c->n_tasks; i++) {
        const struct cluster_task *task = c->members[i].task;
        if (task->index == 0)
            str_addf(&cluster, "%s%s=", i > 0 ? "," : "", task->job);
        str_addf(&cluster, "%s127.0.0.1:%d", task->index > 0 ? ";" : "", c->members[i].port);
    }
    const char *spec = arena_strdup(&c->arena, str_text(&cluster));
    str_fini(&cluster);
    unlink(member->port_path);
    member->child.argv = member_argv(member, c->options, spec, &c->arena);
    start_member(c, member);
}

/* Asks the master for its devices. The master answers when all its tasks are ready. */
static void start_probe(struct local_cluster *c) {
    const char *timeout =
        arena_printf(&c->arena, "%lldms", (long long)c->options->start_timeout_ms);
    const char *const argv[] = {"/proc/self/exe", "devices", "--target", str_text(&c->target),
                                "--timeout",      timeout,   NULL};
    probe_of(c)->child.argv = arena_memdup(&c->arena, argv, sizeof(argv));
    start_member(c, probe_of(c));
}

/* Lists the daemons as the members of two JSON objects; in `admin` those that serve pages. */
static void list_daemons(const struct local_cluster *c, struct str *pids, struct str *admin) {
    for (int i = 0; i < n_daemons(c); i++) {
        const struct member *member = &c->members[i];
        const char *comma = i > 0 ? ", " : "";
        str_addf(pids, "%s\"%s\": %d", comma, member->child.name, (int)member->child.pid);
        if (member->admin_port > 0)
            str_addf(admin, "%s\"%s\": \"127.0.0.1:%d\"", admin->len > 0 ? ", " : "",
                     member->child.name, member->admin_port);
    }
}

static void set_environment(struct local_cluster *c) {
    struct str pids = STR_INIT, admin = STR_INIT;
    list_daemons(c, &pids, &admin);
    setenv("MILLRACE_TARGET", str_text(&c->target), 1);
    setenv("MILLRACE_PIDS", arena_printf(&c->arena, "{%s}", str_text(&pids)), 1);
    setenv("MILLRACE_ADMIN", arena_printf(&c->arena, "{%s}", str_text(&admin)), 1);
    str_fini(&pids);
    str_fini(&admin);
}

static void tell_target(struct local_cluster *c) {
    struct str out = STR_INIT, pids = STR_INIT, admin = STR_INIT;
    list_daemons(c, &pids, &admin);
    if (c->options->is_json)
        str_addf(&out,
                 "{\"event\": \"ready\", \"target\": \"%s\", \"pids\": {%s}, \"admin\": "
                 "{%s}}",
                 str_text(&c->target), str_text(&pids), str_text(&admin));
    else
        str_add(&out, str_text(&c->target));
    cli_print(&out);
    str_fini(&out);
    str_fini(&pids);
    str_fini(&admin);
}

/* With --output json, writes a line about a daemon unless stdout is the command's. */
static void tell_event(const struct local_cluster *c, const char *event,
                       const struct member *member, pid_t pid, const char *how) {
    struct str out = STR_INIT;
    if (!c->options->is_json || c->options->command)
        return;
    page_open(&out, NULL, '{');
    page_text(&out, "event", event);
    page_text(&out, "daemon", member->child.name);
    page_int(&out, "pid", (int64_t)pid);
    if (how)
        page_text(&out, "how", how);
    page_close(&out, '}');
    cli_print(&out);
    str_fini(&out);
}

static void be_ready(struct local_cluster *c) {
    const struct local_options *options = c->options;
    c->state = CLUSTER_RUNNING;
    struct status *st = options->port_file
                            ? daemon_write_port_file(options->port_file, master_of(c)->port,
                                                     master_of(c)->admin_port, 0)
                            : NULL;
    if (st) {
        fail(c, EXIT_IO, st);
        return;
    }
    if (!options->command) {
        tell_target(c);
        return;
    }
    if (!options->quiet)
        relay_say(&c->relay, "the cluster is ready at %s", str_text(&c->target));
    set_environment(c);
    start_member(c, command_of(c));
}

static bool tasks_are_ready(const struct local_cluster *c) {
    for (int i = 0; i < c->n_tasks; i++)
        if (!c->members[i].is_up)
            return false;
    return true;
}

/* A port file may have appeared. */
static void find_ports(struct local_cluster *c) {
    for (int i = 0; i < n_daemons(c); i++) {
        struct member *member = &c->members[i];
        if (member->is_up || member->child.pid <= 0 || !member_read_ports(member))
            continue;
        member->is_up = true;
        member->n_failed_starts = 0;
        if (c->state != CLUSTER_RUNNING)
            continue;
        relay_say(&c->relay, "%s is back (pid %d)", member->child.name, (int)member->child.pid);
        tell_event(c, "daemon_back", member, member->child.pid, NULL);
    }
    if (c->state == CLUSTER_TASKS && tasks_are_ready(c)) {
        c->state = CLUSTER_MASTER;
        start_daemon(c, master_of(c));
    } else if (c->state == CLUSTER_MASTER && master_of(c)->is_up) {
        c->state = CLUSTER_PROBE;
        member_print_target(c->options->listen, master_of(c)->port, &c->target);
        start_probe(c);
    }
}

static void give_up_starting(struct local_cluster *c) {
    struct str missing = STR_INIT;
    for (int i = 0; i < n_daemons(c); i++)
        if (!c->members[i].is_up && c->members[i].child.pid > 0)
            str_addf(&missing, "%s%s", missing.len > 0 ? ", " : "", c->members[i].child.name);
    for (int i = 0; i < n_daemons(c); i++)
        relay_show_tail(&c->relay, &c->members[i].source);
    fail(c, EXIT_INTERNAL,
         status_new(STATUS_DEADLINE_EXCEEDED, "the cluster did not start within %lld ms%s%s",
                    (long long)c->options->start_timeout_ms,
                    missing.len > 0 ? "; still missing: " : "", str_text(&missing)));
    str_fini(&missing);
}

/* ---- restarting ---- */

/* A daemon that had been ready is restarted at once. Otherwise its port may be taken: after the
 * death of a daemon, a connection of any program may get the port for a while. */
static void restart_daemon(struct local_cluster *c, struct member *member) {
    if (member->is_up)
        start_daemon(c, member);
    else
        member->restart_due_ns =
            clock_now_ns() + ((int64_t)RESTART_PAUSE_MS << member->n_failed_starts++) * 1000000;
}

static int64_t restart_due_ns(const struct local_cluster *c) {
    int64_t due_ns = INT64_MAX;
    for (int i = 0; i < n_daemons(c); i++)
        if (c->members[i].restart_due_ns > 0)
            due_ns = MIN(due_ns, c->members[i].restart_due_ns);
    return due_ns;
}

static void restart_due(struct local_cluster *c) {
    int64_t now_ns = clock_now_ns();
    for (int i = 0; c->state == CLUSTER_RUNNING && i < n_daemons(c); i++)
        if (c->members[i].restart_due_ns > 0 && c->members[i].restart_due_ns <= now_ns)
            start_daemon(c, &c->members[i]);
}

/* ---- ends of children ---- */

static void on_daemon_end(struct local_cluster *c, struct member *member, pid_t pid,
                          int wait_status) {
    struct str end = STR_INIT;
    if (c->state >= CLUSTER_STOPPING)
        return;
    child_describe_end(wait_status, &end);
    relay_show_tail(&c->relay, &member->source);
    tell_event(c, "daemon_ended", member, pid, str_text(&end));
    if (c->state == CLUSTER_RUNNING && c->options->restart &&
        member->n_failed_starts < RESTARTS_IN_A_ROW) {
        relay_say(&c->relay, "%s (pid %d) %s; restarting it", member->child.name, (int)pid,
                  str_text(&end));
        restart_daemon(c, member);
    } else if (c->state == CLUSTER_RUNNING && (c->options->command || c->options->keep_going) &&
               !c->options->restart) {
        relay_say(&c->relay, "%s (pid %d) %s; going on without it", member->child.name, (int)pid,
                  str_text(&end));
    } else {
        bool is_io = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == EXIT_IO;
        fail(c, is_io ? EXIT_IO : EXIT_INTERNAL,
             status_unavailable("%s (pid %d) %s; stopping the cluster", member->child.name,
                                (int)pid, str_text(&end)));
    }
    str_fini(&end);
}

static void on_probe_end(struct local_cluster *c, int wait_status) {
    if (c->state != CLUSTER_PROBE)
        return;
    if (wait_status == 0) {
        be_ready(c);
        return;
    }
    relay_show_tail(&c->relay, &probe_of(c)->source);
    fail(c, EXIT_INTERNAL, status_unavailable("the cluster did not become ready; stopping it"));
}

/* Shows the last lines of a daemon that has ended, although other processes may keep its pipe
 * open. */
static void drain_output(struct local_cluster *c, struct member *member) {
    if (member->child.output_fd < 0)
        return;
    while (relay_read(&c->relay, &member->source, member->child.output_fd) == RELAY_MORE)
        ;
    relay_end(&c->relay, &member->source);
    close(member->child.output_fd);
    member->child.output_fd = -1;
}

static void on_member_end(struct local_cluster *c, struct member *member, pid_t pid,
                          int wait_status) {
    member->child.pid = 0;
    drain_output(c, member);
    switch (member->kind) {
    case MEMBER_TASK:
    case MEMBER_MASTER:
        on_daemon_end(c, member, pid, wait_status);
        break;
    case MEMBER_PROBE:
        on_probe_end(c, wait_status);
        break;
    case MEMBER_COMMAND:
        c->exit_code = child_exit_code(wait_status);
        begin_stopping(c);
        break;
    }
}

static void reap(struct local_cluster *c) {
    int wait_status;
    pid_t pid;
    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0)
        for (int i = 0; i < c->n_members; i++)
            if (c->members[i].child.pid == pid) {
                on_member_end(c, &c->members[i], pid, wait_status);
                break;
            }
    if (c->state == CLUSTER_STOPPING)
        stopping_adopt(&c->stopping);
}

/* ---- orders ---- */

static void obey(struct local_cluster *c, int signo, bool is_from_terminal) {
    struct member *command = command_of(c);
    if (signo == SIGINT && command->child.pid > 0 && c->state == CLUSTER_RUNNING &&
        ++c->n_interrupts < IMPATIENT_INTERRUPTS) {
        if (!is_from_terminal) /* otherwise the command has had the signal already */
            child_signal(&command->child, SIGINT);
        return;
    }
    if (c->options->command && c->state < CLUSTER_RUNNING)
        c->exit_code = 128 + signo;
    begin_stopping(c);
}

static void read_orders(struct local_cluster *c) {
    unsigned char order;
    ssize_t n = read(c->orders_fd, &order, 1);
    if (n == 1)
        obey(c, order & ~ORDER_FROM_TERMINAL, order & ORDER_FROM_TERMINAL);
    if (n != 0)
        return;
    children_end();
    c->exit_code = EXIT_INTERNAL;
    c->state = CLUSTER_OVER;
}

static void read_signals(struct local_cluster *c) {
    struct signalfd_siginfo info;
    while (read(c->signal_fd, &info, sizeof(info)) == sizeof(info))
        if (info.ssi_signo != SIGCHLD)
            obey(c, (int)info.ssi_signo, false);
    reap(c);
}

static void read_inotify(struct local_cluster *c) {
    char events[4096];
    while (read(c->inotify_fd, events, sizeof(events)) > 0)
        ;
    find_ports(c);
}

/* ---- the loop ---- */

enum { FD_ORDERS, FD_SIGNALS, FD_INOTIFY, FD_STDERR, FD_MEMBERS };

static int timeout_ms(const struct local_cluster *c) {
    int64_t due_ns = c->state < CLUSTER_RUNNING     ? c->start_deadline_ns
                     : c->state == CLUSTER_STOPPING ? stopping_due_ns(&c->stopping)
                                                    : restart_due_ns(c);
    if (due_ns == INT64_MAX)
        return -1;
    int64_t left_ns = due_ns - clock_now_ns();
    return left_ns <= 0 ? 0 : (int)MIN(left_ns / 1000000 + 1, (int64_t)1 << 30);
}

static void turn(struct local_cluster *c) {
    bool is_full = relay_is_full(&c->relay);
    c->fds[FD_ORDERS] = (struct pollfd){.fd = c->orders_fd, .events = POLLIN};
    c->fds[FD_SIGNALS] = (struct pollfd){.fd = c->signal_fd, .events = POLLIN};
    c->fds[FD_INOTIFY] = (struct pollfd){.fd = c->inotify_fd, .events = POLLIN};
    c->fds[FD_STDERR] = (struct pollfd){.fd = is_full ? STDERR_FILENO : -1, .events = POLLOUT};
    for (int i = 0; i < c->n_members; i++)
        c->fds[FD_MEMBERS + i] =
            (struct pollfd){.fd = is_full ? -1 : c->members[i].child.output_fd, .events = POLLIN};
    if (poll(c->fds, (nfds_t)(FD_MEMBERS + c->n_members), timeout_ms(c)) < 0)
        return;
    relay_flush(&c->relay);
    for (int i = 0; i < c->n_members; i++) {
        struct member *member = &c->members[i];
        if (c->fds[FD_MEMBERS + i].revents &&
            relay_read(&c->relay, &member->source, member->child.output_fd) == RELAY_END) {
            close(member->child.output_fd);
            member->child.output_fd = -1;
        }
    }
    if (c->fds[FD_INOTIFY].revents)
        read_inotify(c);
    if (c->fds[FD_SIGNALS].revents)
        read_signals(c);
    if (c->fds[FD_ORDERS].revents)
        read_orders(c);
    if (c->state < CLUSTER_RUNNING && clock_now_ns() >= c->start_deadline_ns)
        give_up_starting(c);
    restart_due(c);
    continue_stop(c);
}

/* ---- making and unmaking ---- */

static struct status *make_directory(struct local_cluster *c) {
    const char *base = getenv("TMPDIR");
    int n = snprintf(c->directory, sizeof(c->directory), "%s/tfctl-XXXXXX",
                     base && *base ? base : "/tmp");
    if (n < (int)sizeof(c->directory) && mkdtemp(c->directory))
        return NULL;
    struct status *st =
        status_unavailable("cannot make a directory %s: %s", c->directory, strerror(errno));
    c->directory[0] = '\0';
    return st;
}

static void remove_directory(struct local_cluster *c) {
    DIR *directory = c->directory[0] ? opendir(c->directory) : NULL;
    struct dirent *entry;
    while (directory && (entry = readdir(directory)))
        unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory)
        closedir(directory);
    if (c->directory[0])
        rmdir(c->directory);
}

static struct status *open_fds(struct local_cluster *c) {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    sigaddset(&wanted, SIGTERM);
    c->signal_fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    c->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (c->signal_fd < 0 || c->inotify_fd < 0 ||
        inotify_add_watch(c->inotify_fd, c->directory, IN_MOVED_TO | IN_CLOSE_WRITE) < 0)
        return status_unavailable("cannot watch %s: %s", c->directory, strerror(errno));
    return NULL;
}

static void init_member(struct local_cluster *c, enum member_kind kind, const char *name) {
    struct member *member = &c->members[c->n_members++];
    *member = (struct member){.kind = kind,
                              .child = {.name = name, .mask = &c->options->mask, .output_fd = -1}};
    member->child.is_foreground = kind == MEMBER_COMMAND;
    if (kind == MEMBER_COMMAND)
        member->child.argv = c->options->command;
    relay_source_init(&member->source, name, c->options->quiet || kind == MEMBER_PROBE);
}

static void init_members(struct local_cluster *c) {
    const struct cluster_spec *tasks = &c->options->tasks;
    int width = (int)strlen("master");
    c->n_tasks = tasks->n_tasks;
    c->members = xcalloc((size_t)c->n_tasks + 3, sizeof(*c->members));
    c->fds = xcalloc((size_t)c->n_tasks + 3 + FD_MEMBERS, sizeof(*c->fds));
    for (int i = 0; i < c->n_tasks; i++) {
        const struct cluster_task *task = &tasks->tasks[i];
        init_member(c, MEMBER_TASK, arena_printf(&c->arena, "%s/%d", task->job, task->index));
        c->members[i].task = task;
        c->members[i].port_path =
            arena_printf(&c->arena, "%s/%s-%d", c->directory, task->job, task->index);
        width = MAX(width, (int)strlen(c->members[i].child.name));
    }
    init_member(c, MEMBER_MASTER, "master");
    master_of(c)->port_path = arena_printf(&c->arena, "%s/.master", c->directory);
    init_member(c, MEMBER_PROBE, "probe");
    init_member(c, MEMBER_COMMAND, c->options->command ? c->options->command[0] : "command");
    c->relay.name_width = width;
}

static void fini(struct local_cluster *c) {
    relay_flush_until(&c->relay, LAST_WORDS_MS);
    remove_directory(c);
    for (int i = 0; i < c->n_members; i++)
        relay_source_fini(&c->members[i].source);
    free(c->members);
    free(c->fds);
    str_fini(&c->target);
    relay_fini(&c->relay);
    arena_fini(&c->arena);
    if (c->signal_fd >= 0)
        close(c->signal_fd);
    if (c->inotify_fd >= 0)
        close(c->inotify_fd);
}

int local_cluster_run(const struct local_options *options, int orders_fd) {
    struct local_cluster c = {
        .options = options, .orders_fd = orders_fd, .signal_fd = -1, .inotify_fd = -1};
    signal(SIGPIPE, SIG_IGN);
    arena_init(&c.arena);
    relay_init(&c.relay, 0);
    c.start_deadline_ns = clock_now_ns() + (options->start_timeout_ms + PROBE_GRACE_MS) * 1000000;
    struct status *st = make_directory(&c);
    init_members(&c);
    if (!st)
        st = open_fds(&c);
    if (st)
        fail(&c, EXIT_IO, st);
    for (int i = 0; i < c.n_tasks && c.state == CLUSTER_TASKS; i++)
        start_daemon(&c, &c.members[i]);
    continue_stop(&c);
    while (c.state != CLUSTER_OVER)
        turn(&c);
    fini(&c);
    return c.exit_code;
}
