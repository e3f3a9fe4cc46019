/* tfctl local: runs a cluster on this host. It has two processes:
 *
 *   in front   the process that the user started; passes signals on as orders, and waits
 *   behind     runs the cluster (local_cluster.h); parent of the daemons and of the command; the
 *              command's orphans become its children
 *
 * Whichever is killed, no process is left. When the one in front dies, the one behind sees the end
 * of its pipe and kills its children. When the one behind dies, the kernel kills the children, and
 * their orphans become children of the one in front, which kills them. */
#include "tfctl/tfctl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "rpc/daemon/daemon.h"
#include "tfctl/local_cluster.h"

enum { MAX_LOCAL_TASKS = 1000 };

struct local_flags {
    struct cli_list jobs;
    int64_t ps, workers;
    struct local_options options;
};

#define FIELD(field) offsetof(struct local_flags, field)

// clang-format off
static const struct option_row rows[] = {
    {"ps", OPTION_INT, FIELD(ps), "N", NULL, "the same as --job ps=N", 0, MAX_LOCAL_TASKS},
    {"workers", OPTION_INT, FIELD(workers), "N", NULL,
        "the same as --job worker=N (1 when no job is given)", 0, MAX_LOCAL_TASKS},
    {"cpu-devices", OPTION_INT, FIELD(options.cpu_devices), "N", NULL,
        "how many CPU devices each task has", 0, 1024},
    {"listen", OPTION_STRING, FIELD(options.listen), "HOST:PORT", "127.0.0.1:0",
        "where the master listens; port 0 means any free port. With a chosen port the master's "
        "pages are at that port + 10000, or at any port if that is taken"},
    {"port-file", OPTION_STRING, FIELD(options.port_file), "PATH", NULL,
        "write the master's port to this file once the cluster is ready, and a line 'admin PORT'"},
    {"log-level", OPTION_STRING, FIELD(options.log_level), "LEVEL", NULL,
        "what the daemons log: debug, info, warning or error"},
    {"log-format", OPTION_CHOICE, FIELD(options.log_format), NULL, "text",
        "how the daemons and tfctl local log; lines of JSON do not begin with the task's name",
     .choices = daemon_log_formats},
    {"quiet", OPTION_BOOL, FIELD(options.quiet), NULL, NULL,
        "show what a daemon prints only if the daemon fails"},
    {"keep-going", OPTION_BOOL, FIELD(options.keep_going), NULL, NULL,
        "continue when a daemon dies (the default with a COMMAND)"},
    {"restart", OPTION_BOOL, FIELD(options.restart), NULL, NULL,
        "restart a daemon that dies, at its address"},
    {"start-timeout", OPTION_DURATION, FIELD(options.start_timeout_ms), "TIME", "30s",
        "how long the cluster may take to start", 1, 3600000},
};

static const struct cli_list_row lists[] = {
    {"job", FIELD(jobs), "JOB=N", "a job of N tasks; may be repeated"},
    {"worker-flag", FIELD(options.worker_flags), "FLAG",
        "pass this flag to each tf-worker; may be repeated"},
    {"master-flag", FIELD(options.master_flags), "FLAG",
        "pass this flag to tf-master; may be repeated"},
};
// clang-format on

static const char epilog[] =
    "\nStarts a tf-worker for each task and a tf-master, waits until they are ready, and prints "
    "the address for clients. What the daemons\n"
    "print is written to stderr, each line after its task's name. INT and TERM stop them all; no "
    "process is left even when tfctl is\nkilled.\n"
    "\nWith a COMMAND, tfctl runs it on the cluster, stops the cluster after it, and exits as it "
    "did (128 + N when signal N killed it).\n"
    "INT is passed to the command; the third INT, or TERM, ends it. When a daemon dies, tfctl "
    "reports it and the command continues.\n"
    "The environment of the command has:\n"
    "  MILLRACE_TARGET   grpc://HOST:PORT\n"
    "  MILLRACE_PIDS     {\"ps/0\": PID, \"worker/0\": PID, \"master\": PID}\n"
    "  MILLRACE_ADMIN    {\"ps/0\": \"HOST:PORT\", ...}, the status pages\n"
    "\nWith --output json and without a COMMAND, stdout has a line of JSON for each event: ready, "
    "with the target, PIDs and pages;\n"
    "daemon_ended, daemon_back, and an error that stops the cluster.\n"
    "\nExample:\n"
    "  tfctl local --ps 1 --workers 2 -- python train.py\n";

static const struct cli_spec spec = {
    .options = {.program = "tfctl local",
                .summary = "A cluster on this host.",
                .epilog = epilog,
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "[OPTION]... [-- COMMAND [ARG]...]",
    .lists = lists,
    .n_lists = ARRAY_LEN(lists),
    .takes_command = true,
};

/* ---- the tasks ---- */

/* Writes the tasks as --cluster takes them, with ports that stand for "not known yet". */
static struct status *add_job(struct span job, int64_t n, int *n_tasks, struct str *out) {
    if (n < 1 || *n_tasks + n > MAX_LOCAL_TASKS)
        return status_invalid("job %.*s: a job has at least one task, a local cluster at most %d",
                              (int)job.len, job.data, MAX_LOCAL_TASKS);
    str_addf(out, "%s%.*s=", out->len > 0 ? "," : "", (int)job.len, job.data);
    for (int64_t i = 0; i < n; i++)
        str_addf(out, "%s127.0.0.1:%d", i > 0 ? ";" : "", ++*n_tasks);
    return NULL;
}

static struct status *add_job_flag(const char *text, int *n_tasks, struct str *out) {
    const char *equals = strchr(text, '=');
    char *end = NULL;
    long n = equals ? strtol(equals + 1, &end, 10) : 0;
    if (!equals || end == equals + 1 || *end != '\0' || n > MAX_LOCAL_TASKS)
        return status_invalid("--job: \"%s\" is not JOB=N", text);
    return add_job((struct span){text, (size_t)(equals - text)}, n, n_tasks, out);
}

static struct status *list_tasks(struct local_flags *flags) {
    struct str text = STR_INIT;
    struct status *st = NULL;
    int n_tasks = 0;
    if (flags->ps > 0)
        TRY_OUT(add_job(span_of("ps"), flags->ps, &n_tasks, &text));
    if (flags->workers > 0)
        TRY_OUT(add_job(span_of("worker"), flags->workers, &n_tasks, &text));
    for (int i = 0; i < flags->jobs.n; i++)
        TRY_OUT(add_job_flag(flags->jobs.items[i], &n_tasks, &text));
    if (n_tasks == 0 && flags->workers == 0) {
        st = status_invalid("--workers: 0, and no other job is given: a cluster has at least one "
                            "task");
        goto out;
    }
    if (n_tasks == 0)
        TRY_OUT(add_job(span_of("worker"), 1, &n_tasks, &text));
    st = cluster_spec_parse(str_text(&text), &flags->options.tasks);
out:
    str_fini(&text);
    return st;
}

/* ---- the process in front ---- */

static void send_order(int orders_fd, const siginfo_t *info) {
    unsigned char order =
        (unsigned char)(info->si_signo | (info->si_code > 0 ? ORDER_FROM_TERMINAL : 0));
    ssize_t n = write(orders_fd, &order, 1);
    (void)n; /* The other process has ended; SIGCHLD reports this too. */
}

static int wait_in_front(pid_t behind, int orders_fd, const sigset_t *signals) {
    int wait_status = 0;
    siginfo_t info;
    for (;;) {
        if (sigwaitinfo(signals, &info) < 0)
            continue;
        if (info.si_signo != SIGCHLD)
            send_order(orders_fd, &info);
        else if (waitpid(behind, &wait_status, WNOHANG) == behind)
            break;
    }
    if (WIFEXITED(wait_status))
        return WEXITSTATUS(wait_status);
    children_end();
    fprintf(stderr, "tfctl: the process that ran the cluster was killed by signal %d\n",
            WTERMSIG(wait_status));
    return EXIT_INTERNAL;
}

/* Blocks the signals that are passed on as orders. Under nohup, HUP is not one of them. */
static void block_signals(sigset_t *ret_blocked, sigset_t *ret_before) {
    static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGQUIT};
    struct sigaction hang_up;
    sigemptyset(ret_blocked);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        sigaddset(ret_blocked, numbers[i]);
    if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN)
        sigaddset(ret_blocked, SIGHUP);
    sigprocmask(SIG_BLOCK, ret_blocked, ret_before);
}

static int run(const struct cli *cli, struct local_options *options) {
    sigset_t signals;
    int orders[2], code;
    block_signals(&signals, &options->mask);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t behind = pipe2(orders, O_CLOEXEC) == 0 ? fork() : -1;
    if (behind < 0)
        return cli_fail(cli, EXIT_IO,
                        status_unavailable("cannot start a process: %s", strerror(errno)));
    if (behind == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        close(orders[1]);
        code = local_cluster_run(options, orders[0]);
        close(orders[0]);
        return code;
    }
    signal(SIGPIPE, SIG_IGN);
    close(orders[0]);
    code = wait_in_front(behind, orders[1], &signals);
    close(orders[1]);
    return code;
}

static int run_local(struct cli *cli, void *arg) {
    struct local_flags *flags = arg;
    log_set_format((enum log_format)flags->options.log_format);
    struct status *st = list_tasks(flags);
    flags->options.command = cli->command;
    flags->options.is_json = cli_is_json(cli);
    return st ? cli_fail_usage(cli, st) : run(cli, &flags->options);
}

int tfctl_local(int argc, char **argv) {
    struct local_flags flags = {.workers = -1}; /* not given */
    cluster_spec_init(&flags.options.tasks);
    int code = cli_main(&spec, &flags, argc, argv, run_local);
    cluster_spec_fini(&flags.options.tasks);
    return code;
}
