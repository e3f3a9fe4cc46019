/* tf-worker: runs partitions of graphs for a master, and exchanges tensors with the other tasks.
 * A parameter server is a `tf-worker --job ps`. Flags, start, pages, TERM, exit codes.
 *
 * Exit codes: 0, 64 usage, 70 internal, 74 I/O (port in use), 78 configuration, 138 no master
 * for --master-wait, or another process holds this task's place in etcd. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/io/file_secret.h"
#include "kernels/kernel.h"
#include "rpc/daemon/admin.h"
#include "rpc/membership/cluster.h"
#include "rpc/daemon/daemon.h"
#include "rpc/daemon/flag_page.h"
#include "rpc/daemon/page.h"
#include "rpc/daemon/page_html.h"
#include "rpc/daemon/watchdog.h"
#include "rpc/host_id.h"
#include "rpc/listen.h"
#include "rpc/rdma/rdma_device.h"
#include "rpc/tls/tls_flags.h"
#include "worker/device_export.h"
#include "worker/membership.h"
#include "worker/task_flags.h"

enum {
    WORKER_PORT = 2300,
    PS_PORT = 2400,
    STOP_GRACE_MS = 5000,
    MAX_DEVICE_SCALE = 1000,
    MAX_ROWS_SHOWN = 1000, /* of graphs and of resources, on /statusz */
};

struct worker_flags {
    const char *job, *listen, *port_file, *admin, *admin_socket, *cluster, *master;
    struct etcd_flags etcd;
    struct tls_flags tls;
    struct task_flags own;
    int64_t client_port, task, threads, drain_timeout_ms, max_in_flight_bytes, max_steps,
        step_ring_bytes, graph_grace_ms, wire_streams, max_shm_kept_bytes, heartbeat_ms,
        master_wait_ms;
    int log_level, log_format, use_unix, use_shm, rdma_mode;
    const char *device_scale_text;
    double device_scale;
    const char *rdma_device;
    struct rdma_choice rdma_choice;
    bool insecure, wire_checksum;
    struct cluster_spec spec;
    char default_listen[32];
};

static const char *const unix_modes[] = {"off", "auto", NULL};
static const char *const rdma_modes[] = {
    [RDMA_OFF] = "off", [RDMA_PREFER] = "prefer", [RDMA_REQUIRE] = "require", NULL};

#define ROW(name_, kind_, field, default_, value_, help_)                             \
    .name = (name_), .kind = (kind_), .offset = offsetof(struct worker_flags, field), \
    .default_text = (default_), .value_name = (value_), .help = (help_)

#define TASK_FLAG_HELP

// clang-format off
static const struct option_row rows[] = {
    {ROW("job", OPTION_STRING, job, "worker", "NAME", "the job that this task belongs to")},
    {ROW("task", OPTION_INT, task, "0", "N",
        "the index of this task in its job"), .min = 0, .max = 99999},
    {ROW("cluster", OPTION_STRING, cluster, NULL, "SPEC",
        "JOB=HOST:PORT[;HOST:PORT...][,JOB=...]; gives this task its --listen (default: "
        "TF_CONFIG)")},
    {ROW("listen", OPTION_STRING, listen, NULL, "HOST:PORT",
        "where masters and tasks connect; port 0 means any free port (default 127.0.0.1:2300 + "
        "task, 2400 + task for ps)")},
    {ROW("client-port", OPTION_INT, client_port, "-1", "N",
        "listen for the master's clients at this port, and relay them "
        "to the master (grpc://THIS-HOST:N); 0 means any free port, -1"
        " none"), .min = -1, .max = 65535},
    {ROW("master", OPTION_STRING, master, NULL, "HOST:PORT",
        "where --client-port finds the master (default: its entry in etcd)")},
#include "rpc/membership/etcd_flag_rows.inc"
    {ROW("unix", OPTION_CHOICE, use_unix, "auto", NULL,
        "also listen on an abstract Unix socket, for tasks of this host"), .choices = unix_modes},
    {ROW("shm", OPTION_CHOICE, use_shm, "auto", NULL,
        "pass large tensors to tasks of this host by reference, in "
        "shared memory"), .choices = unix_modes},
    {ROW("shm-limit", OPTION_BYTES, max_shm_kept_bytes, "256M", "BYTES",
        "how many bytes another task may keep alive here by "
        "references; values beyond it are sent over sockets; 0: no "
        "limit"), .min = 0, .max = 1ll << 50},
    {ROW("rdma", OPTION_CHOICE, rdma_mode, "prefer", NULL,
        "write large tensors into the memory of tasks of other hosts, if"
        " both ends have an RDMA device; 'require': fail if they do not"), .choices = rdma_modes},
    {ROW("rdma-device", OPTION_STRING, rdma_device, NULL, "NAME[:PORT[:GID]]",
        "the RDMA device (default: the first active port with an address that others can route "
        "to)")},
    {ROW("wire-streams", OPTION_INT, wire_streams, "1", "N",
        "send a value of 8 MB and more to another task over "
        "this many sockets at once"), .min = 1, .max = PEER_MAX_STREAMS},
    {ROW("wire-checksum", OPTION_BOOL, wire_checksum, NULL, NULL,
        "add checksums (CRC32C) to messages between tasks and with the master; in use if either"
        " end has the flag")},
    {ROW("admin", OPTION_STRING, admin, NULL, "HOST:PORT",
        "where health and status pages are served; 'off' for none (default: on loopback, the port "
        "+ 10000)")},
    {ROW("admin-socket", OPTION_STRING, admin_socket, NULL, "PATH",
        "serve the pages also at this Unix socket, for processes of the same user and of root; "
        "with TLS only they and operators' certificates may change something")},
    {ROW("port-file", OPTION_STRING, port_file, NULL, "PATH",
        "write the port to this file once the daemon serves, and a line 'admin PORT'")},
#include "rpc/tls/tls_flag_rows.inc"
    {ROW("insecure", OPTION_BOOL, insecure, NULL, NULL,
        "allow --listen and --admin beyond loopback without TLS")},
#include "worker/task_flag_rows.inc"
    {ROW("threads", OPTION_INT, threads, "0", "N",
        "threads that run kernels; 0: one for each core"), .min = 0, .max = 1024},
    {ROW("max-steps", OPTION_INT, max_steps, "65536", "N",
        "how many steps may run at a time"), .min = 1, .max = 10000000},
    {ROW("step-ring", OPTION_BYTES, step_ring_bytes, "1M", "BYTES",
        "memory for what the last steps have done, for /tracez and tfctl trace; 0: nothing is "
        "recorded"), .min = 0, .max = 32 << 20},
    {ROW("max-inflight", OPTION_BYTES, max_in_flight_bytes, "2G", "BYTES",
        "how many bytes of large tensors may be on their way "
        "here at a time"), .min = 1 << 20, .max = 1ll << 50},
    {ROW("graph-grace", OPTION_DURATION, graph_grace_ms, "60s", "TIME",
        "how long the graphs of a lost master are kept"), .min = 0, .max = 86400000},
    {ROW("heartbeat", OPTION_DURATION, heartbeat_ms, "2s", "TIME",
        "the interval at which another task must answer; after three"
        " missed answers it is lost"), .min = 50, .max = 3600000},
    {ROW("master-wait", OPTION_DURATION, master_wait_ms, "1h", "TIME",
        "a task that had a master exits with 138 after this "
        "long without one; 0: never"), .min = 0, .max = 30ll * 86400000},
    {ROW("drain-timeout", OPTION_DURATION, drain_timeout_ms, "30s", "TIME",
        "how long the daemon waits for running steps after TERM"), .min = 0, .max = 86400000},
    {ROW("device-scale", OPTION_STRING, device_scale_text, "1", "X",
        "for tests: every kernel of this task takes X times as long, 1 to 1000, and the master is "
        "told that the devices are so much slower")},
    {ROW("log-level", OPTION_CHOICE, log_level, "info", NULL,
        "log messages of this level and above"), .choices = daemon_log_levels},
    {ROW("log-format", OPTION_CHOICE, log_format, "text", NULL,
        "log lines of text or JSON objects, one a line, with the ids of docs/log-events.md"),
     .choices = daemon_log_formats},
};
// clang-format on

/* ---- configuration ---- */

static struct status *read_environment(struct options *options) {
    return daemon_read_tf_config(options, true);
}

static const struct cluster_task *find_task(const struct worker_flags *flags) {
    for (int i = 0; i < flags->spec.n_tasks; i++)
        if (flags->spec.tasks[i].index == flags->task &&
            strcmp(flags->spec.tasks[i].job, flags->job) == 0)
            return &flags->spec.tasks[i];
    return NULL;
}

/* The default address: this task's place in the cluster, else the usual port of its job on
 * loopback. */
static struct status *default_listen(struct worker_flags *flags) {
    if (flags->listen)
        return NULL;
    /* with etcd, the addresses in TF_CONFIG are those that clients dial */
    if (flags->cluster && !flags->etcd.urls) {
        const struct cluster_task *task = find_task(flags);
        if (!task)
            return status_invalid("cluster: it has no task %lld of job %s", (long long)flags->task,
                                  flags->job);
        flags->listen = task->address;
        return NULL;
    }
    int64_t port = (strcmp(flags->job, "ps") == 0 ? PS_PORT : WORKER_PORT) + flags->task;
    if (port > 65535)
        return status_invalid("task %lld has no default port: give --listen",
                              (long long)flags->task);
    snprintf(flags->default_listen, sizeof(flags->default_listen), "127.0.0.1:%d", (int)port);
    flags->listen = flags->default_listen;
    return NULL;
}

static struct status *check_job(const char *job) {
    struct device_name name;
    struct str text = STR_INIT;
    str_addf(&text, "/job:%s", job);
    struct status *st = device_name_parse((struct span){text.data, text.len}, &name);
    if (!st && (strcmp(name.job, job) != 0))
        st = status_invalid("job: '%s' is not a job name", job);
    str_fini(&text);
    return st;
}

static struct status *check_client_port(const struct worker_flags *flags) {
    struct net_address parsed;
    if (flags->master)
        TRY(status_prefix_take(net_address_parse(flags->master, &parsed), "master: "));
    if (flags->master && parsed.is_local)
        return status_invalid("master: only its own process can dial '%s'", flags->master);
    if (flags->client_port >= 0 && !flags->master && !flags->etcd.urls)
        return status_invalid(
            "client-port: the master's address is not known: give --master or --etcd");
    return NULL;
}

static struct status *check_device_scale(struct worker_flags *flags) {
    char *end;
    flags->device_scale = strtod(flags->device_scale_text, &end);
    if (*end || end == flags->device_scale_text ||
        !(flags->device_scale >= 1 && flags->device_scale <= MAX_DEVICE_SCALE))
        return status_invalid("device-scale: '%s' is not a number from 1 to %d",
                              flags->device_scale_text, MAX_DEVICE_SCALE);
    return NULL;
}

static struct status *check(void *values) {
    struct worker_flags *flags = values;
    TRY(check_job(flags->job));
    TRY(task_flags_check(&flags->own));
    if (flags->cluster)
        TRY(cluster_spec_parse(flags->cluster, &flags->spec));
    TRY(rdma_choice_parse(flags->rdma_device, &flags->rdma_choice));
    TRY(etcd_flags_check(&flags->etcd));
    TRY(tls_flags_check(&flags->tls));
    TRY(check_client_port(flags));
    TRY(check_device_scale(flags));
    TRY(default_listen(flags));
    if (flags->admin && strcmp(flags->admin, "off") != 0)
        TRY(daemon_check_listen("admin", flags->admin, flags->insecure || flags->tls.admin));
    return daemon_check_listen("listen", flags->listen,
                               flags->insecure || tls_flags_is_on(&flags->tls));
}

static const struct options_spec options_spec = {
    .program = "tf-worker",
    .section = "worker",
    .shared_sections = daemon_sections,
    .summary = "Runs partitions of TensorFlow graphs for a tf-master; --job ps makes it a "
               "parameter server.",
    .rows = rows,
    .n_rows = ARRAY_LEN(rows),
    .read_environment = read_environment,
    .check = check,
};

/* ---- the daemon ---- */

struct worker {
    const struct worker_flags *flags;
    const struct options *options; /* that the flags are from */
    struct worker_task task;
    struct loop *loop;
    struct device_exporter exporter; /* of the GPUs' memory, for the RDMA device */
    struct rdma_device *rdma_device; /* or NULL: */
    struct status *why_no_rdma;
    struct worker_service *service;
    struct worker_membership *membership; /* NULL: there is neither etcd nor a client port */
    struct admin_server *admin;
    struct tls_set tls;
    struct loop_timer drain_timer;
    struct watchdog watchdog;
    bool is_draining, is_stopping;
    int exit_code;
};

static int page_ready(void *arg, const char *query, struct str *out) {
    struct worker *worker = arg;
    if (worker->is_draining || worker->is_stopping) {
        str_add(out, "draining\n");
        return 503;
    }
    bool is_ready = true;
    if (worker->membership)
        is_ready = worker_membership_is_ready(worker->membership, out);
    else
        str_add(out, "ok");
    str_add_char(out, '\n');
    return is_ready ? 200 : 503;
}

static int page_status(void *arg, const char *query, struct str *out) {
    struct worker *worker = arg;
    if (!worker->service)
        return 503;
    worker_service_describe(worker->service, page_html_rows(query, MAX_ROWS_SHOWN), out);
    return 200;
}

static int page_traces(void *arg, const char *query, struct str *out) {
    struct worker *worker = arg;
    if (!worker->service)
        return 503;
    worker_service_page_traces(worker->service, out);
    return 200;
}

static int page_steps(void *arg, const char *query, struct str *out) {
    struct worker *worker = arg;
    if (!worker->service)
        return 503;
    if (page_query_wants_json(query))
        worker_service_page_steps(worker->service, out);
    else
        worker_service_describe_steps(worker->service, out);
    return 200;
}

static int page_membership(void *arg, const char *query, struct str *out) {
    struct worker *worker = arg;
    if (worker->membership)
        worker_membership_describe(worker->membership, out);
    else
        str_add(out,
                "{\"registration\": null, \"why\": \"started without --etcd: masters know this "
                "task from their own --cluster\"}");
    str_add_char(out, '\n');
    return 200;
}

static int page_memory(void *arg, const char *query, struct str *out) {
    struct worker *worker = arg;
    if (!worker->service)
        return 503;
    worker_service_page_memory(worker->service, out);
    return 200;
}

static int write_rendezvous(struct worker *worker, bool is_operator, struct str *out) {
    if (!worker->service)
        return 503;
    worker_service_page_rendezvous(worker->service, is_operator, out);
    return 200;
}

static int page_rendezvous(void *arg, const char *query, struct str *out) {
    return write_rendezvous(arg, false, out);
}

static int page_rendezvous_to_operator(void *arg, const char *query, struct str *out) {
    return write_rendezvous(arg, true, out);
}

static int page_transport(void *arg, const char *query, struct str *out) {
    struct worker *worker = arg;
    if (!worker->service)
        return 503;
    worker_service_page_transport(worker->service, out);
    return 200;
}

static void write_metrics(void *arg, struct str *out) {
    struct worker *worker = arg;
    if (worker->service)
        worker_service_write_metrics(worker->service, out);
}

static int page_flags(void *arg, const char *query, struct str *out) {
    struct worker *worker = arg;
    flag_page_write(worker->options, out);
    return 200;
}

static void write_refusal(void *arg, struct str *out) {
    struct worker *worker = arg;
    str_addf(out, "this is the admin port of %s, which serves HTTP pages, not sessions: ",
             worker->task.name);
    worker_service_say_where(worker->service, out);
}

static const struct admin_page pages[] = {
    {"/statusz", "application/json", .write = page_status,
     .summary = "Devices, running steps, graphs, resources, peers, libraries"},
    {"/tracez", "application/json", .write = page_traces,
     .summary = "The last steps: what each node took, what they waited for"},
    {"/stepz", "text/plain", .write = page_steps, .has_json = true,
     .summary = "Running steps, and what they wait for"},
    {"/memz", "application/json", .write = page_memory,
     .summary = "Memory of the devices, and who holds most of it"},
    {"/rendezvousz", "application/json", .write = page_rendezvous,
     .write_to_operator = page_rendezvous_to_operator,
     .summary = "Values between tasks that wait, and what they wait for"},
    {"/transportz", "application/json", .write = page_transport,
     .summary = "How the other tasks are reached, why so, and the bytes each way"},
    {"/memberz", "application/json", .write = page_membership,
     .summary = "This task's registration in etcd, and its client port"},
    {"/flagz", "application/json", .write = page_flags,
     .summary = "Settings, and where each is from"},
    {"/readyz", "text/plain", .write = page_ready, .summary = "Can a master use this task?"},
    {"/healthz", "text/plain", .write = page_ready},
};

/* ---- stopping ---- */

static void on_freed(void *arg) {
    struct worker *worker = arg;
    loop_timer_close(&worker->drain_timer, NULL);
    loop_stop(worker->loop);
}

/* Work that runs on a pool thread (a kernel, the building of a plan) ends first, but the wait for
 * it is limited. */
static void stop(struct worker *worker) {
    if (worker->is_stopping)
        return;
    worker->is_stopping = true;
    worker_membership_close(worker->membership);
    worker->membership = NULL;
    if (worker->admin)
        admin_server_close(worker->admin);
    loop_timer_start(&worker->drain_timer, STOP_GRACE_MS, 0);
    watchdog_stopping(STOP_GRACE_MS + WATCHDOG_STOP_MS);
    watchdog_close(&worker->watchdog);
    worker_service_free(worker->service, on_freed, worker);
    worker->service = NULL;
}

static void on_drained(void *arg) { stop(arg); }

static void on_user_signal(void *arg) {
    struct worker *worker = arg;
    struct str text = STR_INIT;
    if (worker->service) {
        worker_service_describe_steps(worker->service, &text);
        daemon_log_steps(&text);
    }
    str_fini(&text);
}

static void on_hangup(void *arg) { tls_set_reload(&((struct worker *)arg)->tls); }

/* The steps have ended with their masters, so there is nothing to drain. */
static void on_masters_gone(void *arg) {
    struct worker *worker = arg;
    if (worker->is_draining)
        return;
    log_event(EVENT_EXITING, "no master for %lld s: exiting",
              (long long)worker->flags->master_wait_ms / 1000);
    worker->exit_code = EXIT_RESTART_ME;
    worker->is_draining = true;
    stop(worker);
}

/* The supervisor starts the task again, which may bring the GPU back. */
static bool on_device_failed(void *arg, struct device *device) {
    struct worker *worker = arg;
    if (worker->is_draining)
        return true;
    if (worker->flags->own.gpu_mode != GPU_REQUIRE)
        return false;
    log_event(EVENT_EXITING, "a GPU has failed, and --gpu=require: exiting");
    worker->exit_code = EXIT_RESTART_ME;
    worker->is_draining = true;
    watchdog_stopping(TASK_GPU_FAILED_MS + WATCHDOG_STOP_MS);
    loop_timer_start(&worker->drain_timer, TASK_GPU_FAILED_MS, 0);
    worker_service_abandon(worker->service, device, on_drained, worker);
    return true;
}

static void on_drain_timeout(struct loop_timer *timer) {
    struct worker *worker = CONTAINER_OF(timer, struct worker, drain_timer);
    if (worker->is_stopping) {
        /* Nothing else of the process does anything any more. */
        log_event(EVENT_STOP_TIMEOUT, "work on the pool has not ended %d s after it was cancelled",
                  STOP_GRACE_MS / 1000);
        watchdog_end_now(worker->exit_code);
    }
    if (worker->exit_code == EXIT_RESTART_ME)
        log_event(EVENT_DRAIN_TIMEOUT, "steps were still running %d s after a GPU failed",
                  TASK_GPU_FAILED_MS / 1000);
    else
        log_event(EVENT_DRAIN_TIMEOUT, "steps were still running when the drain timeout passed");
    stop(worker);
}

static void drain(struct worker *worker, const char *why) {
    worker->is_draining = true;
    log_event(EVENT_DRAINING, "%s: draining", why);
    watchdog_stopping(worker->flags->drain_timeout_ms + WATCHDOG_STOP_MS);
    worker_membership_leave(worker->membership);
    loop_timer_start(&worker->drain_timer, worker->flags->drain_timeout_ms, 0);
    worker_service_drain(worker->service, on_drained, worker);
}

static void on_signal(void *arg, int signo) {
    struct worker *worker = arg;
    if (worker->is_draining) /* a second signal ends at once */
        stop(worker);
    else
        drain(worker, signo == SIGINT ? "interrupted" : "terminated");
}

static void on_told_to_drain(void *arg, const char *why) {
    struct worker *worker = arg;
    if (!worker->is_draining)
        drain(worker, why);
}

static void on_job_ended(void *arg) { on_told_to_drain(arg, "the job has ended"); }

/* Another process is this task. The steps that run here are already refused by others, or were
 * never ours. */
static void on_taken(void *arg, const char *why) {
    struct worker *worker = arg;
    log_event(EVENT_EXITING, "%s: exiting", why);
    worker->exit_code = EXIT_RESTART_ME;
    worker->is_draining = true;
    stop(worker);
}

/* ---- starting ---- */

/* Errors: those of a device that is required. */
static struct status *open_rdma(struct worker *worker) {
    const struct worker_flags *flags = worker->flags;
    const struct verbs *verbs;
    if (flags->rdma_mode == RDMA_OFF) {
        worker->why_no_rdma = status_failed_precondition("switched off");
        return NULL;
    }
    bool is_secret = tls_flags_is_on(&flags->tls);
    if (is_secret && flags->rdma_mode != RDMA_REQUIRE) {
        worker->why_no_rdma = status_failed_precondition(
            "TLS is on, but RDMA does not encrypt: it is used only with --rdma=require");
        return NULL;
    }
    struct status *st = verbs_get(&verbs);
    if (!st)
        st = rdma_device_open(worker->loop, verbs, &flags->rdma_choice, &worker->rdma_device);
    if (st && flags->rdma_mode == RDMA_REQUIRE)
        return status_prefix_take(st, "rdma: required, but ");
    worker->why_no_rdma = st;
    if (worker->rdma_device)
        rdma_device_set_exporter(worker->rdma_device, &worker->exporter.exporter);
    if (worker->rdma_device)
        log_event(EVENT_RDMA_DEVICE, "RDMA device %s, port %d%s", worker->rdma_device->port.name,
                  (int)worker->rdma_device->port.number,
                  is_secret
                      ? ": large tensors are sent over it without encryption, although TLS is on"
                      : "");
    return NULL;
}

static struct status *join(struct worker *worker, int port, const char *admin_listen) {
    const struct worker_flags *flags = worker->flags;
    const char *ways[3] = {"tcp"};
    int n_ways = 1;
    const char *devices[TASK_MAX_CPU_DEVICES + GPU_MAX_DEVICES];
    struct str address = STR_INIT, admin = STR_INIT, client = STR_INIT;
    for (int i = 0; i < worker->task.n_devices; i++)
        devices[i] = worker->task.devices[i].full_name;
    member_address(flags->etcd.advertise, flags->listen, port, &address);
    if (worker->admin && admin_server_port(worker->admin) > 0)
        daemon_admin_advertised(str_text(&address), admin_listen, admin_server_port(worker->admin),
                                &admin);
    if (flags->client_port >= 0)
        daemon_with_port(flags->listen, (int)flags->client_port, &client);
    const char *unix_address = worker_service_unix_address(worker->service);
    if (*unix_address)
        ways[n_ways++] = "unix";
    if (worker->rdma_device)
        ways[n_ways++] = "rdma";
    struct cluster_member member = {.address = str_text(&address),
                                    .admin_address = str_text(&admin),
                                    .unix_address = unix_address,
                                    .host_id = host_id(),
                                    .version = MILLRACE_VERSION,
                                    .incarnation = worker_service_incarnation(worker->service),
                                    .devices = devices,
                                    .n_devices = worker->task.n_devices,
                                    .transports = ways,
                                    .n_transports = n_ways};
    struct worker_membership_options options = {
        .etcd = &flags->etcd,
        .job = flags->job,
        .task = worker->task.name,
        .index = (int)flags->task,
        .member = &member,
        .tls = worker->tls.wire,
        .client_listen = flags->client_port >= 0 ? str_text(&client) : NULL,
        .master = flags->master,
        .on_taken = on_taken,
        .on_job_ended = on_job_ended,
        .arg = worker};
    struct status *st = NULL;
    if (flags->etcd.urls || flags->client_port >= 0)
        st = worker_membership_new(worker->loop, &options, &worker->membership);
    str_fini(&address);
    str_fini(&admin);
    str_fini(&client);
    return st;
}

static struct status *start(struct worker *worker) {
    const struct worker_flags *flags = worker->flags;
    struct worker_options options;
    struct admin_options admin_options = {.pages = pages,
                                          .n_pages = ARRAY_LEN(pages),
                                          .arg = worker,
                                          .program = "tf-worker",
                                          .name = worker->task.name,
                                          .write_metrics = write_metrics,
                                          .write_refusal = write_refusal};
    struct str text = STR_INIT;
    struct status *st = NULL;
    admin_options.tls = worker->tls.admin;
    admin_options.unix_path = flags->admin_socket;
    admin_options.guards_changes = tls_flags_is_on(&flags->tls);
    worker_options_default(&options);
    worker_task_fill(&worker->task, &options);
    options.tls = worker->tls.wire;
    options.max_shm_kept_bytes = flags->max_shm_kept_bytes;
    options.use_checksums = flags->wire_checksum;
    options.n_streams = (int)flags->wire_streams;
    options.listen = flags->listen;
    options.use_unix = flags->use_unix;
    options.use_shm = flags->use_shm && flags->use_unix;
    options.max_steps = (int)flags->max_steps;
    options.max_in_flight_bytes = flags->max_in_flight_bytes;
    options.step_ring_bytes = flags->step_ring_bytes;
    options.max_feed_bytes = flags->own.max_feed_bytes;
    options.graph_grace_ms = flags->graph_grace_ms;
    options.heartbeat_ms = flags->heartbeat_ms;
    options.master_wait_ms = flags->master_wait_ms;
    options.on_masters_gone = on_masters_gone;
    options.on_masters_gone_arg = worker;
    options.on_told_to_drain = on_told_to_drain;
    options.on_told_to_drain_arg = worker;
    options.on_device_failed = on_device_failed;
    options.on_device_failed_arg = worker;
    options.device_hang_ms = flags->own.gpu_hang_ms;
    TRY(open_rdma(worker));
    options.rdma_mode = (enum rdma_mode)flags->rdma_mode;
    options.rdma_device = worker->rdma_device;
    options.why_no_rdma = status_message(worker->why_no_rdma);
    options.device_scale = flags->device_scale;
    TRY(worker_service_new(worker->loop, &options, &worker->service));
    int port = worker_service_port(worker->service);
    bool has_port = daemon_admin_address(flags->admin, flags->listen, port, &text);
    if (has_port || flags->admin_socket)
        st = admin_server_new(worker->loop, has_port ? str_text(&text) : NULL, &admin_options,
                              &worker->admin);
    int admin_port = worker->admin ? admin_server_port(worker->admin) : 0;
    if (!st)
        st = join(worker, port, str_text(&text));
    int client_port = worker->membership ? worker_membership_client_port(worker->membership) : 0;
    if (!st && flags->port_file)
        st = daemon_write_port_file(flags->port_file, port, admin_port, client_port);
    str_clear(&text);
    daemon_describe_ports(port, admin_port, &text);
    if (!st)
        log_event(EVENT_SERVING, "serving on %s, %s%s%s", flags->listen, str_text(&text),
                  flags->use_unix ? ", " : "", worker_service_unix_address(worker->service));
    if (!st && client_port)
        log_event(EVENT_CLIENT_PORT, "the master's clients may connect to port %d", client_port);
    str_fini(&text);
    return st;
}

static void keep_secrets(const struct worker_flags *flags) {
    file_secret_add(flags->tls.key);
    file_secret_add(flags->etcd.key_file);
    file_secret_add(flags->etcd.password_file);
}

static int run(const struct worker_flags *flags, const struct options *options) {
    struct worker worker = {.flags = flags, .options = options, .exit_code = EXIT_OK};
    struct worker_task_options task_options = {.job = flags->job,
                                               .index = (int)flags->task,
                                               .n_threads = (int)flags->threads,
                                               .has_arena = flags->use_shm && flags->use_unix};
    struct str task = STR_INIT;
    str_addf(&task, "/job:%s/replica:0/task:%lld", flags->job, (long long)flags->task);
    log_set_task(str_text(&task));
    str_fini(&task);
    task_flags_fill(&flags->own, &task_options);
    log_set_level((enum log_level)flags->log_level);
    log_set_format((enum log_format)flags->log_format);
    task_flags_apply(&flags->own);
    keep_secrets(flags);
    worker.loop = loop_new();
    if (flags->device_scale > 1)
        log_event(EVENT_DEVICE_SCALE, "--device-scale %s: every kernel is made slower",
                  flags->device_scale_text);
    struct status *st = worker_task_init(&worker.task, &task_options);
    if (st) {
        fprintf(stderr, "tf-worker: %s\n", status_message(st));
        status_unref(st);
        worker_task_fini(&worker.task);
        loop_free(worker.loop);
        return EXIT_CONFIG;
    }
    device_exporter_init(&worker.exporter, worker.task.devices, worker.task.n_devices);
    loop_timer_init(worker.loop, &worker.drain_timer, on_drain_timeout);
    /* before other processes can know that this one runs */
    loop_on_signals(worker.loop, on_signal, &worker);
    loop_on_hangup(worker.loop, on_hangup, &worker);
    loop_on_user_signal(worker.loop, on_user_signal, &worker);
    st = tls_set_open(&flags->tls, flags->etcd.cluster_name, false, &worker.tls);
    if (!st)
        st = start(&worker);
    if (st) {
        fprintf(stderr, "tf-worker: %s\n", status_message(st));
        status_unref(st);
        return EXIT_IO;
    }
    watchdog_start(worker.loop, &worker.watchdog);
    loop_run(worker.loop);
    watchdog_end_in_time(worker.exit_code);
    worker_task_stop(&worker.task);
    loop_free(worker.loop);
    tls_set_close(&worker.tls);
    device_exporter_fini(&worker.exporter);
    worker_task_fini(&worker.task);
    status_unref(worker.why_no_rdma);
    log_flush_repeats(true);
    return worker.exit_code;
}

int main(int argc, char **argv) {
    struct worker_flags flags = {0};
    struct options options;
    int code;
    /* Threads share two malloc arenas: each further one costs resident memory, and tensors have an
     * allocator of their own. */
    mallopt(M_ARENA_MAX, 2);
    cluster_spec_init(&flags.spec);
    options_init(&options, &options_spec, &flags);
    if (options_load(&options, argc, argv, stdout, stderr, &code) == OPTIONS_GO_ON)
        code = run(&flags, &options);
    options_fini(&options);
    cluster_spec_fini(&flags.spec);
    return code;
}
