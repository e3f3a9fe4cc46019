/* tf-master: accepts clients' graphs and runs their steps on the workers of the cluster. Flags,
 * start, TERM, exit codes.
 *
 * Exit codes: 0, 64 usage, 70 internal, 74 I/O (port in use), 78 configuration, 138 another
 * process is the cluster's master in etcd. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/options.h"
#include "common/io/file_secret.h"
#include "kernels/cuda/rows/gpu_rows.h"
#include "master/cluster/membership.h"
#include "master/service/cost_keeper.h"
#include "master/service/service.h"
#include "rpc/daemon/daemon.h"
#include "rpc/daemon/flag_page.h"
#include "rpc/daemon/page.h"
#include "rpc/daemon/page_html.h"
#include "rpc/daemon/watchdog.h"
#include "rpc/membership/etcd_flags.h"
#include "rpc/host_id.h"
#include "rpc/tls/tls_flags.h"
#include "worker/embedded_worker.h"
#include "worker/task_flags.h"

enum {
    STOP_GRACE_MS = 5000,
    MAX_COSTS_SHOWN = 10000, /* on /costz */
    MAX_ROWS_SHOWN = 10000,  /* of tasks and links, on /statusz */
};

static const char WORKER_ADDRESS[] = "local:worker"; /* of the worker in this process */

struct master_flags {
    const char *listen, *cluster, *port_file, *admin, *admin_socket, *disable_passes,
        *enable_passes, *dump_graph, *expect, *cost_file;
    struct etcd_flags etcd;
    struct tls_flags tls;
    struct task_flags own; /* of the task that --with-worker adds */
    int log_level, log_format, placement;
    int replace; /* index in replace_modes */
    bool with_worker, insecure, wire_checksum, check_shapes, bfloat16_sends, consistent_saves,
        recv_scheduling;
    int64_t threads, task_wait_ms, save_wait_ms, session_ttl_ms, drain_timeout_ms, heartbeat_ms;
    int session_clusters; /* enum session_clusters_mode */
    int64_t max_sessions, max_steps, max_session_steps, max_nodes, max_executables;
    int64_t max_session_clusters;
    struct grpc_server_limits grpc;
    int64_t fold_max_bytes, fold_budget_ms;
    /* the parts of disable_passes and enable_passes, NULL-terminated; in the arena */
    const char **disabled_passes, **enabled_passes;
    struct cluster_spec spec;
    struct arena arena;
};

static const char *const replace_modes[] = {"off", "auto", NULL};

/* in the order of enum session_clusters_mode */
static const char *const session_clusters_modes[] = {"off", "own", "any", NULL};

#define ROW(name_, kind_, field, default_, value_, help_)                             \
    .name = (name_), .kind = (kind_), .offset = offsetof(struct master_flags, field), \
    .default_text = (default_), .value_name = (value_), .help = (help_)

#define TASK_FLAG_HELP "with --with-worker: "

// clang-format off
static const struct option_row rows[] = {
    {ROW("cluster", OPTION_STRING, cluster, NULL, "SPEC",
        "the tasks: JOB=HOST:PORT[;HOST:PORT...][,JOB=...] (default: TF_CONFIG)")},
    {ROW("with-worker", OPTION_BOOL, with_worker, NULL, NULL,
        "run the cluster's only task, /job:worker/task:0, in this process: for jobs of one "
        "machine")},
#include "worker/task_flag_rows.inc"
    {ROW("expect", OPTION_STRING, expect, NULL, "JOB=N[,...]",
        "with --etcd, how many tasks of which jobs a session waits for (default: those that are"
        " registered)")},
#include "rpc/membership/etcd_flag_rows.inc"
    {ROW("listen", OPTION_STRING, listen, "127.0.0.1:2222", "HOST:PORT",
        "where clients connect; port 0 means any free port")},
    {ROW("admin", OPTION_STRING, admin, NULL, "HOST:PORT",
        "where health and status pages are served; 'off' for none (default: on loopback, the port "
        "+ 10000)")},
    {ROW("admin-socket", OPTION_STRING, admin_socket, NULL, "PATH",
        "serve the pages also at this Unix socket, for processes of the same user and of root; "
        "with TLS only they and operators' certificates may change something")},
    {ROW("port-file", OPTION_STRING, port_file, NULL, "PATH",
        "write the port to this file once the daemon serves, and a line 'admin PORT'")},
#include "rpc/tls/tls_flag_rows.inc"
    {ROW("tls-client-ca", OPTION_STRING, tls.client_ca, NULL, "PATH",
        "clients must show a certificate for which these authorities vouch (PEM); without it "
        "they need none")},
    {ROW("wire-checksum", OPTION_BOOL, wire_checksum, NULL, NULL,
        "add checksums (CRC32C) to messages to and from tasks; in use if either end has the "
        "flag")},
    {ROW("insecure", OPTION_BOOL, insecure, NULL, NULL,
        "allow --listen and --admin beyond loopback without TLS")},
    {ROW("log-level", OPTION_CHOICE, log_level, "info", NULL,
        "log messages of this level and above"), .choices = daemon_log_levels},
    {ROW("log-format", OPTION_CHOICE, log_format, "text", NULL,
        "log lines of text or JSON objects, one a line, with the ids of docs/log-events.md"),
     .choices = daemon_log_formats},
    {ROW("threads", OPTION_INT, threads, "0", "N",
        "threads that compile graphs; 0: one for each core"), .min = 0, .max = 1024},
    {ROW("task-wait", OPTION_DURATION, task_wait_ms, "10s", "TIME",
        "how long CreateSession waits for missing tasks")},
    {ROW("heartbeat", OPTION_DURATION, heartbeat_ms, "2s", "TIME",
        "the interval at which a task must answer; after three "
        "missed answers it is lost"), .min = 50, .max = 3600000},
    {ROW("session-ttl", OPTION_DURATION, session_ttl_ms, "1h", "TIME",
        "how long a session is kept after its client's last connection has closed")},
    {ROW("drain-timeout", OPTION_DURATION, drain_timeout_ms, "30s", "TIME",
        "how long the daemon waits for running steps after TERM")},
    {ROW("max-sessions", OPTION_INT, max_sessions, "10000", "N",
        "how many sessions may be open"), .min = 1, .max = 1000000},
    {ROW("max-steps", OPTION_INT, max_steps, "100000", "N",
        "how many steps may run at a time"), .min = 1, .max = 10000000},
    {ROW("max-session-steps", OPTION_INT, max_session_steps, "10000", "N",
        "how many steps of one session may run at a time"), .min = 1, .max = 10000000},
    {ROW("session-clusters", OPTION_CHOICE, session_clusters, "own", NULL,
        "which addresses a client's ConfigProto.cluster_def may name: none, those of this "
        "cluster's tasks, or any that the master can reach"), .choices = session_clusters_modes},
    {ROW("max-session-clusters", OPTION_INT, max_session_clusters, "64", "N",
        "how many sessions may have a cluster_def at a time"), .min = 1, .max = 1024},
    {ROW("max-nodes", OPTION_INT, max_nodes, "1000000", "N",
        "how many nodes the graph of one session may have"), .min = 1, .max = 100000000},
    {ROW("max-executables", OPTION_INT, max_executables, "1000", "N",
        "how many compiled signatures are kept for one session"), .min = 1, .max = 1000000},
    {ROW("max-message", OPTION_BYTES, grpc.max_message_bytes, "2147483647", "BYTES",
     "the size of one request"), .min = 1024, .max = 2147483647},
    {ROW("max-inflate", OPTION_BYTES, grpc.max_inflate_bytes, "2147483647", "BYTES",
        "the size of one compressed request when it is inflated"), .min = 1024, .max = 2147483647},
    {ROW("max-inflate-ratio", OPTION_INT, grpc.max_inflate_ratio, "1100", "N",
        "by how much a compressed request may grow; gzip reaches at "
        "most 1032"), .min = 1, .max = 1000000},
    {ROW("max-inflight", OPTION_BYTES, grpc.max_inflight_bytes, "16G", "BYTES",
        "the size of all request bodies that are held at a "
        "time"), .min = 1 << 20, .max = 1ll << 50},
    {ROW("max-connections", OPTION_INT, grpc.max_connections, "10000", "N",
        "how many clients may be connected"), .min = 1, .max = 1000000},
    {ROW("max-calls", OPTION_INT, grpc.max_calls, "100000", "N",
        "how many calls may be in progress"), .min = 1, .max = 10000000},
    {ROW("max-streams", OPTION_INT, grpc.max_streams, "10000", "N",
        "how many calls may be in progress on one connection"), .min = 1, .max = 1000000},
    {ROW("max-headers", OPTION_BYTES, grpc.max_header_bytes, "16K", "BYTES",
        "the size of the header list of one call"), .min = 1024, .max = 1 << 20},
    {ROW("max-resets", OPTION_INT, grpc.max_resets_per_s, "1000", "N",
        "how many streams of one connection may be reset in a second"), .min = 1, .max = 1000000},
    {ROW("max-control-frames", OPTION_INT, grpc.max_control_per_s, "1000", "N",
        "how many frames that complete no call (PING, SETTINGS, "
        "...) one connection may send in a second"), .min = 100, .max = 1000000},
    {ROW("handshake-timeout", OPTION_DURATION, grpc.handshake_timeout_ms, "20s", "TIME",
        "how long a new connection may take until it speaks HTTP/2"), .min = 100, .max = 86400000},
    {ROW("stall-timeout", OPTION_DURATION, grpc.stall_timeout_ms, "60s", "TIME",
        "a client that has begun a request or has a reply to take "
        "must move a KiB a second within this time"), .min = 100, .max = 86400000},
    {ROW("fold-max", OPTION_BYTES, fold_max_bytes, "10M", "BYTES",
        "the largest constant that folding may make")},
    {ROW("fold-budget", OPTION_DURATION, fold_budget_ms, "200ms", "TIME",
        "how long folding may take when a step is compiled")},
    {ROW("check-shapes", OPTION_BOOL, check_shapes, NULL, NULL,
        "refuse a graph whose shapes do not fit when it arrives, not when a step needs it")},
    {ROW("placement", OPTION_CHOICE, placement, "simple", NULL,
        "how devices are chosen that the client left open: simple: all on the session's default"
        " task; spread: variables over the tasks of job ps, by bytes, and what asks for one of"
        " several tasks (/job:worker) by estimated costs; cost: what has no state where a"
        " simulation by estimated costs ends soonest"), .choices = placement_names},
    {ROW("replace", OPTION_CHOICE, replace, "auto", NULL,
        "auto: nodes that were placed by cost are placed again, once by the simple rule, and at"
        " most three times for each signature when measured costs contradict those that they were"
        " placed by; the placement with the shorter steps is kept; off: they stay"),
        .choices = replace_modes},
    {ROW("cost-file", OPTION_STRING, cost_file, NULL, "PATH",
        "keep what nodes have taken in this file, for placement by cost after a restart; some "
        "steps of all sessions are measured then (default: of sessions that are placed by cost, "
        "in memory)")},
    {ROW("bfloat16-sends", OPTION_BOOL, bfloat16_sends, NULL, NULL,
        "send floats between tasks as bfloat16, whatever clients ask for: half the bytes, 8 "
        "bits of precision")},
    {ROW("recv-scheduling", OPTION_BOOL, recv_scheduling, NULL, NULL,
        "receive values between tasks shortly before they are needed, whatever clients ask for:"
        " less memory")},
    {ROW("consistent-saves", OPTION_BOOL, consistent_saves, NULL, NULL,
        "every save takes its values between two steps, unless the attr _consistent_save of its"
        " node is false")},
    {ROW("save-wait", OPTION_DURATION, save_wait_ms, "10s", "TIME",
        "how long a consistent save waits for the steps that run on"
        " its tasks before it fails"), .min = 10, .max = 86400000},
    {ROW("disable-passes", OPTION_STRING, disable_passes, NULL, "NAME,...",
        "leave out these optional passes: simplify, invariants, fold, branches, cse, waits, "
        "controls, fuse, contract, gathers, delays")},
    {ROW("enable-passes", OPTION_STRING, enable_passes, NULL, "NAME,...",
        "run these passes, which are off because results may differ in the last bits: pads, "
        "transposes")},
    {ROW("dump-graph", OPTION_STRING, dump_graph, NULL, "after:PASS",
        "log the graph as text after this pass; after:all for every pass")},
};
// clang-format on

static struct status *read_pass_names(struct arena *arena, const char *flag, const char *names,
                                      bool is_opt_in, const char ***ret) {
    char *list = arena_strdup(arena, names ? names : ""), *rest = list, *name;
    int n = 0;
    *ret = arena_array(arena, const char *, strlen(list) + 2);
    while ((name = strsep(&rest, ", "))) {
        const struct pass *pass = pass_find(name);
        if (*name && pass && pass->is_optional && pass->is_opt_in != is_opt_in)
            return status_invalid("%s: the pass '%s' is %s by default", flag, name,
                                  is_opt_in ? "on" : "off");
        if (*name && (!pass || !pass->is_optional))
            return status_invalid("%s: '%s' is not an optional pass", flag, name);
        if (*name)
            (*ret)[n++] = name;
    }
    return NULL;
}

static struct status *read_passes(struct master_flags *flags) {
    TRY(read_pass_names(&flags->arena, "disable-passes", flags->disable_passes, false,
                        &flags->disabled_passes));
    return read_pass_names(&flags->arena, "enable-passes", flags->enable_passes, true,
                           &flags->enabled_passes);
}

static struct status *check_dump_graph(const char *dump) {
    if (strncmp(dump, "after:", 6) != 0)
        return status_invalid("dump-graph: '%s' is not of the form after:PASS", dump);
    if (strcmp(dump + 6, "all") != 0 && !pass_find(dump + 6))
        return status_invalid("dump-graph: there is no pass '%s'", dump + 6);
    return NULL;
}

/* If the cluster is given by a flag or is in etcd, TF_CONFIG is not read. */
static struct status *read_environment(struct options *options) {
    const struct master_flags *flags = options->values;
    return flags->cluster || flags->etcd.urls || flags->with_worker
               ? NULL
               : daemon_read_tf_config(options, false);
}

/* A flag that limits a worker must not be thought to limit one that is elsewhere. */
static const char *flag_of_worker(const struct task_flags *own) {
    return own->file_root            ? "file-root"
           : own->file_root_all      ? "file-root-all"
           : own->memory_limit_bytes ? "memory-limit"
           : own->gpu_memory_bytes   ? "gpu-memory"
           : own->gpu_plugin         ? "gpu-plugin"
           : own->cuda_libs          ? "cuda-libs"
           : own->cpu_devices != 1   ? "cpu-devices"
                                     : NULL;
}

static struct status *check_worker(struct master_flags *flags) {
    const char *flag = flags->with_worker ? NULL : flag_of_worker(&flags->own);
    if (flag)
        return status_invalid("%s is for the worker of --with-worker; give it to tf-worker", flag);
    if (!flags->with_worker)
        return NULL;
    if (flags->cluster || flags->etcd.urls)
        return status_invalid("with-worker: the worker of this process is the whole cluster, so "
                              "leave out --%s",
                              flags->cluster ? "cluster" : "etcd");
    TRY(task_flags_check(&flags->own));
    return cluster_spec_add_local(&flags->spec, "worker", WORKER_ADDRESS);
}

static struct status *check(void *values) {
    struct master_flags *flags = values;
    TRY(read_passes(flags));
    TRY(etcd_flags_check(&flags->etcd));
    TRY(tls_flags_check(&flags->tls));
    if (flags->expect)
        TRY(flags->etcd.urls ? membership_expect(flags->expect, NULL)
                             : status_invalid("expect works only with --etcd"));
    TRY(check_worker(flags));
    if (!flags->cluster && !flags->etcd.urls && !flags->with_worker)
        return status_invalid("no cluster: give --cluster SPEC, --etcd URLS or --with-worker, or "
                              "set TF_CONFIG");
    if (flags->cluster)
        TRY(cluster_spec_parse(flags->cluster, &flags->spec));
    if (flags->dump_graph)
        TRY(check_dump_graph(flags->dump_graph));
    if (flags->admin && strcmp(flags->admin, "off") != 0)
        TRY(daemon_check_listen("admin", flags->admin, flags->insecure || flags->tls.admin));
    return daemon_check_listen("listen", flags->listen,
                               flags->insecure || tls_flags_is_on(&flags->tls));
}

static const struct options_spec options_spec = {
    .program = "tf-master",
    .section = "master",
    .shared_sections = daemon_sections,
    .summary = "Accepts TensorFlow clients (grpc://HOST:PORT), compiles their graphs and runs them "
               "on the cluster's tf-worker tasks",
    .rows = rows,
    .n_rows = ARRAY_LEN(rows),
    .read_environment = read_environment,
    .check = check,
};

struct program {
    struct loop *loop;
    struct pool *pool;
    struct service *service;
    struct embedded_worker *worker; /* or NULL */
    struct admin_server *admin;
    const struct master_flags *flags;
    const struct options *options; /* that the flags are from */
    struct tls_set tls;
    struct etcd *etcd; /* NULL for a static cluster, as are the next two */
    struct etcd_registration *registration;
    struct membership *membership;
    struct loop_timer drain_timer;
    struct loop_timer grace_timer; /* for the worker's end */
    struct cost_keeper *costs;
    struct watchdog watchdog;
    int64_t drain_timeout_ms;
    bool is_stopping, is_drained, has_job_ended;
    int exit_code;
};

/* ---- pages ---- */

static int page_ready(void *arg, const char *query, struct str *out) {
    struct program *program = arg;
    struct str why = STR_INIT;
    if (!service_is_ready(program->service, out))
        return 503;
    /* It continues to serve with the tasks that it knows, because no other process could replace
     * it. */
    bool is_up = !program->etcd || etcd_is_up(program->etcd, &why);
    if (program->registration && etcd_registration_has_lapsed(program->registration))
        str_addf(&why, "%sits registration has lapsed", is_up ? "" : "; ");
    else if (program->registration && is_up)
        etcd_registration_is_ready(program->registration, &why);
    if (why.len > 0)
        str_addf(out, "ok, degraded: %s\n", str_text(&why));
    else
        str_add(out, "ok\n");
    str_fini(&why);
    return 200;
}

static int page_status(void *arg, const char *query, struct str *out) {
    struct program *program = arg;
    str_addf(out, "{\"program\": \"tf-master\", \"version\": \"%s\", \"pid\": %d, \"service\": ",
             MILLRACE_VERSION, (int)getpid());
    service_describe(program->service, page_html_rows(query, MAX_ROWS_SHOWN), out);
    str_add(out, ", \"tls\": ");
    tls_set_describe(&program->tls, out);
    if (program->worker) {
        str_add(out, ", \"worker\": ");
        worker_service_describe(program->worker->service, page_html_rows(query, MAX_ROWS_SHOWN),
                                out);
    }
    if (program->membership) {
        str_add(out, ", \"membership\": ");
        membership_describe(program->membership, out);
    }
    if (program->registration) {
        str_add(out, ", \"registration\": ");
        etcd_registration_describe(program->registration, out);
    }
    str_add(out, "}\n");
    return 200;
}

static int page_sessions(void *arg, const char *query, struct str *out) {
    struct program *program = arg;
    service_page_sessions(program->service, query, false, out);
    return 200;
}

static int page_sessions_to_operator(void *arg, const char *query, struct str *out) {
    struct program *program = arg;
    service_page_sessions(program->service, query, true, out);
    return 200;
}

static int page_flags(void *arg, const char *query, struct str *out) {
    struct program *program = arg;
    flag_page_write(program->options, out);
    return 200;
}

static void end_job(struct program *program);

static int page_end_job(void *arg, const char *query, struct str *out) {
    end_job(arg);
    str_add(out, "the job is ending\n");
    return 200;
}

/* "task=/job:worker/replica:0/task:1" */
static int page_drain_task(void *arg, const char *query, struct str *out) {
    struct program *program = arg;
    struct status *st =
        program->worker
            ? status_failed_precondition("the only task is inside this process (--with-worker): "
                                         "stop the process with TERM")
            : service_drain_task(program->service, query);
    str_addf(out, "%s\n", st ? status_message(st) : "the task is draining");
    int http_status = !st ? 200 : status_code(st) == STATUS_NOT_FOUND ? 404 : 409;
    status_unref(st);
    return http_status;
}

static int page_costs(void *arg, const char *query, struct str *out) {
    const struct program *program = arg;
    struct cost_table *costs = cost_keeper_table(program->costs);
    if (cost_table_n_rows(costs) > 0)
        cost_table_describe(costs, page_html_rows(query, MAX_COSTS_SHOWN), out);
    else if (program->flags->cost_file)
        str_add(out, "[{\"note\": \"Nothing has been measured yet: few steps are.\"}]\n");
    else
        str_add(out, "[{\"note\": \"Nothing has been measured. Some steps are, of sessions that "
                     "are placed by spread or cost (tf-master --placement), or of all sessions "
                     "with tf-master --cost-file PATH.\"}]\n");
    return 200;
}

static int page_memory(void *arg, const char *query, struct str *out) {
    struct program *program = arg;
    if (program->worker)
        worker_service_page_memory(program->worker->service, out);
    else
        str_add(out, "{\"note\": \"this process has no devices: see its workers' pages\"}\n");
    return 200;
}

static void write_metrics(void *arg, struct str *out) {
    struct program *program = arg;
    if (program->worker)
        worker_service_write_metrics(program->worker->service, out);
}

static void page_steps(void *arg, const char *query, struct admin_reply *reply) {
    struct program *program = arg;
    service_page_steps(program->service, reply, page_query_wants_json(query));
}

static void page_traces(void *arg, const char *query, struct admin_reply *reply) {
    struct program *program = arg;
    service_page_traces(program->service, query, reply);
}

static void page_graph(void *arg, const char *query, struct admin_reply *reply) {
    struct program *program = arg;
    service_page_graph(program->service, query, reply);
}

static void write_refusal(void *arg, struct str *out) {
    const struct program *program = arg;
    const char *listen = program->flags->listen;
    str_add(out,
            "this is the admin port of tf-master, which serves HTTP pages, not sessions: dial ");
    if (strncmp(listen, "unix:", 5) == 0)
        str_add(out, listen);
    else
        str_addf(out, "its port %d", grpc_server_port(program->service->server));
}

static const struct admin_page pages[] = {
    {"/statusz", "application/json", .write = page_status,
     .summary = "Tasks, links between them, clusters of sessions, limits and their use"},
    {"/sessionz", "application/json", .write = page_sessions,
     .write_to_operator = page_sessions_to_operator,
     .summary = "Sessions: their clients, steps, signatures and last errors"},
    {"/stepz", "text/plain", .begin = page_steps, .has_json = true,
     .summary = "Running steps, and what they wait for"},
    {"/tracez", "application/json", .begin = page_traces, .file_query = "steps",
     .summary = "The last steps: how long they took where, and traces of them"},
    {"/graphz", "application/json", .begin = page_graph,
     .summary = "Placed graphs: where each node of a signature is, and why"},
    {"/costz", "application/json", .write = page_costs,
     .summary = "What executions of nodes have taken"},
    {"/memz", "application/json", .write = page_memory,
     .summary = "With --with-worker: memory of the devices, and who holds most of it"},
    {"/flagz", "application/json", .write = page_flags,
     .summary = "Settings, and where each is from"},
    {"/readyz", "text/plain", .write = page_ready, .summary = "Can a client use the cluster?"},
    {"/healthz", "text/plain", .write = page_ready},
    {"/job/end", "text/plain", .write = page_end_job, .is_action = true},
    {"/task/drain", "text/plain", .write = page_drain_task, .is_action = true},
};

/* ---- stopping ---- */

static void close_etcd(void *arg) {
    struct program *program = arg;
    program->registration = NULL;
    etcd_close(program->etcd, NULL, NULL);
}

static void on_worker_stopped(void *arg) {
    struct program *program = arg;
    loop_timer_close(&program->grace_timer, NULL);
    loop_stop(program->loop);
}

/* A kernel does not end. Nothing else of the process does anything any more. */
static void on_grace_over(struct loop_timer *timer) {
    log_event(EVENT_STOP_TIMEOUT, "work on the pool has not ended %d s after it was cancelled",
              STOP_GRACE_MS / 1000);
    watchdog_end_now(CONTAINER_OF(timer, struct program, grace_timer)->exit_code);
}

static void stop(struct program *program) {
    if (program->is_drained)
        return;
    program->is_drained = true;
    if (program->has_job_ended)
        service_end_job(program->service);
    membership_close(program->membership);
    program->membership = NULL;
    if (program->registration)
        etcd_registration_leave(program->registration, close_etcd, program);
    loop_timer_stop(&program->drain_timer);
    loop_timer_close(&program->drain_timer, NULL);
    watchdog_stopping(STOP_GRACE_MS + WATCHDOG_STOP_MS);
    watchdog_close(&program->watchdog);
    admin_server_close(program->admin);
    cost_keeper_close(program->costs);
    service_free(program->service);
    if (!program->worker) {
        loop_stop(program->loop);
        return;
    }
    loop_timer_init(program->loop, &program->grace_timer, on_grace_over);
    loop_timer_start(&program->grace_timer, STOP_GRACE_MS, 0);
    embedded_worker_stop(program->worker, on_worker_stopped, program);
}

static void on_drained(void *arg) { stop(arg); }
static void on_drain_timeout(struct loop_timer *timer) {
    log_event(EVENT_DRAIN_TIMEOUT, "steps were still running when the drain timeout passed");
    stop(CONTAINER_OF(timer, struct program, drain_timer));
}

static void drain_for(struct program *program, int64_t timeout_ms) {
    program->is_stopping = true;
    watchdog_stopping(timeout_ms + WATCHDOG_STOP_MS);
    loop_timer_start(&program->drain_timer, timeout_ms, 0);
    service_drain(program->service, on_drained, program);
}

static void drain(struct program *program, const char *why) {
    log_event(EVENT_DRAINING, "%s: draining", why);
    drain_for(program, program->drain_timeout_ms);
}

static void on_signal(void *arg, int signo) {
    struct program *program = arg;
    if (program->is_stopping) /* a second signal ends at once */
        stop(program);
    else
        drain(program, signo == SIGINT ? "interrupted" : "terminated");
}

/* The page asks the tasks, so it must not be asked for when the service may be gone. */
static void on_user_signal(void *arg) {
    struct program *program = arg;
    if (!program->is_stopping)
        service_page_steps(program->service, NULL, false);
}

static void on_hangup(void *arg) { tls_set_reload(&((struct program *)arg)->tls); }

/* The master's own steps end first, then the tasks are told. */
static void end_job(struct program *program) {
    program->has_job_ended = true;
    if (!program->is_stopping)
        drain(program, "the job has ended");
}

static void on_job_ended(void *arg) { end_job(arg); }

static void on_taken(void *arg, const char *why) {
    struct program *program = arg;
    log_event(EVENT_EXITING, "%s: exiting", why);
    program->exit_code = EXIT_RESTART_ME;
    program->is_stopping = true;
    stop(program);
}

/* ---- starting ---- */

static void fill_options(const struct master_flags *flags, struct master_options *ret) {
    master_options_default(ret);
    ret->listen = flags->listen;
    ret->limits = flags->grpc;
    ret->task_wait_ms = flags->task_wait_ms;
    ret->heartbeat_ms = flags->heartbeat_ms;
    ret->session_ttl_ms = flags->session_ttl_ms;
    ret->max_sessions = (int)flags->max_sessions;
    ret->max_steps = (int)flags->max_steps;
    ret->max_session_steps = (int)flags->max_session_steps;
    ret->session_clusters = (enum session_clusters_mode)flags->session_clusters;
    ret->max_session_clusters = (int)flags->max_session_clusters;
    ret->max_nodes = (int)flags->max_nodes;
    ret->max_executables = (int)flags->max_executables;
    ret->check_shapes = flags->check_shapes;
    ret->compile.placement = (enum placement)flags->placement;
    ret->replaces = flags->replace != 0;
    ret->measures_all = flags->cost_file != NULL;
    ret->compile.bfloat16_sends = flags->bfloat16_sends;
    ret->compile.recv_scheduling = flags->recv_scheduling;
    ret->compile.consistent_saves = flags->consistent_saves;
    ret->save_wait_ms = flags->save_wait_ms;
    ret->compile.fold_max_bytes = flags->fold_max_bytes;
    ret->compile.fold_budget_ns = flags->fold_budget_ms * 1000000;
    ret->compile.disabled_passes = flags->disabled_passes;
    ret->compile.enabled_passes = flags->enabled_passes;
    ret->compile.dump_after = flags->dump_graph ? flags->dump_graph + 6 : NULL;
}

static void register_in_etcd(struct program *program, int port, const char *admin_listen) {
    const struct etcd_flags *flags = &program->flags->etcd;
    struct str address = STR_INIT, admin = STR_INIT, key = STR_INIT, job_key = STR_INIT;
    member_address(flags->advertise, program->flags->listen, port, &address);
    if (program->admin && admin_server_port(program->admin) > 0)
        daemon_admin_advertised(str_text(&address), admin_listen, admin_server_port(program->admin),
                                &admin);
    struct cluster_member member = {.address = str_text(&address),
                                    .admin_address = str_text(&admin),
                                    .host_id = host_id(),
                                    .version = MILLRACE_VERSION,
                                    .incarnation = program->service->env.incarnation};
    member_key_of_master(flags->cluster_name, &key);
    member_key_of_job(flags->cluster_name, &job_key);
    struct etcd_registration_options options = {.etcd = program->etcd,
                                                .key = str_text(&key),
                                                .job_key = str_text(&job_key),
                                                .member = &member,
                                                .is_master = true,
                                                .is_https = program->tls.admin != NULL,
                                                .ttl_s = flags->ttl_ms / 1000,
                                                .on_taken = on_taken,
                                                .on_job_ended = on_job_ended,
                                                .arg = program};
    program->registration = etcd_registration_new(program->loop, &options);
    str_fini(&address);
    str_fini(&admin);
    str_fini(&key);
    str_fini(&job_key);
}

/* The tasks of --cluster stay members whatever etcd says. etcd can only add to such a list. */
static struct status *join(struct program *program, int port, const char *admin_listen) {
    const struct master_flags *flags = program->flags;
    if (!flags->etcd.urls)
        return NULL;
    TRY(etcd_flags_open(&flags->etcd, program->loop, &program->etcd));
    tasks_set_dynamic(program->service->env.tasks);
    if (flags->expect)
        TRY(membership_expect(flags->expect, program->service->env.tasks));
    program->membership = membership_new(program->loop, program->etcd, flags->etcd.cluster_name,
                                         program->service->env.tasks);
    register_in_etcd(program, port, admin_listen);
    return NULL;
}

static struct status *start(struct program *program, const struct master_flags *flags) {
    struct master_options master_options;
    struct admin_options admin_options = {.pages = pages,
                                          .n_pages = ARRAY_LEN(pages),
                                          .arg = program,
                                          .program = "tf-master",
                                          .name = "master",
                                          .write_metrics = write_metrics,
                                          .write_refusal = write_refusal};
    struct str text = STR_INIT;
    fill_options(flags, &master_options);
    master_options.compile.costs = cost_keeper_table(program->costs);
    master_options.tls_clients = program->tls.clients;
    master_options.tls_wire = program->tls.wire;
    master_options.use_checksums = flags->wire_checksum;
    admin_options.tls = program->tls.admin;
    admin_options.unix_path = flags->admin_socket;
    admin_options.guards_changes = tls_flags_is_on(&flags->tls);
    TRY(service_new(program->loop, program->pool, &flags->spec, &master_options,
                    &program->service));
    int port = grpc_server_port(program->service->server);
    struct status *st = NULL;
    bool has_port = daemon_admin_address(flags->admin, flags->listen, port, &text);
    if (has_port || flags->admin_socket)
        st = admin_server_new(program->loop, has_port ? str_text(&text) : NULL, &admin_options,
                              &program->admin);
    int admin_port = program->admin ? admin_server_port(program->admin) : 0;
    if (!st)
        st = join(program, port, str_text(&text));
    if (!st && flags->port_file)
        st = daemon_write_port_file(flags->port_file, port, admin_port, 0);
    str_clear(&text);
    daemon_describe_ports(port, admin_port, &text);
    if (!st)
        log_event(EVENT_SERVING, "serving grpc on %s, %s", flags->listen, str_text(&text));
    str_fini(&text);
    return st;
}

/* The master has the replies of its steps, and ends when its clients have them. */
static void on_worker_abandoned(void *arg) {}

/* The supervisor starts the process again, which may bring the GPU back. */
static bool on_device_failed(void *arg, struct device *device) {
    struct program *program = arg;
    if (program->is_stopping)
        return true;
    if (program->flags->own.gpu_mode != GPU_REQUIRE)
        return false;
    log_event(EVENT_EXITING, "a GPU has failed, and --gpu=require: exiting");
    program->exit_code = EXIT_RESTART_ME;
    worker_service_abandon(program->worker->service, device, on_worker_abandoned, NULL);
    drain_for(program, TASK_GPU_FAILED_MS);
    return true;
}

static struct status *start_worker(struct program *program) {
    const struct master_flags *flags = program->flags;
    struct embedded_worker_options options = {.task = {.job = "worker", .pool = program->pool},
                                              .listen = WORKER_ADDRESS,
                                              .max_feed_bytes = flags->own.max_feed_bytes,
                                              .device_hang_ms = flags->own.gpu_hang_ms,
                                              .on_device_failed = on_device_failed,
                                              .on_device_failed_arg = program};
    if (!flags->with_worker)
        return NULL;
    task_flags_fill(&flags->own, &options.task);
    task_flags_apply(&flags->own);
    file_secret_add(flags->tls.key);
    return embedded_worker_new(program->loop, &options, &program->worker);
}

static int run(const struct master_flags *flags, const struct options *options) {
    struct program program = {.drain_timeout_ms = flags->drain_timeout_ms,
                              .flags = flags,
                              .options = options,
                              .exit_code = EXIT_OK};
    program.loop = loop_new();
    program.pool = pool_new((int)flags->threads);
    struct status *st =
        cost_keeper_new(program.loop, program.pool, flags->cost_file, &program.costs);
    if (st) {
        fprintf(stderr, "tf-master: %s\n", status_message(st));
        status_unref(st);
        return EXIT_CONFIG;
    }
    loop_timer_init(program.loop, &program.drain_timer, on_drain_timeout);
    loop_on_signals(program.loop, on_signal,
                    &program); /* before other processes can know that this one runs */
    loop_on_hangup(program.loop, on_hangup, &program);
    loop_on_user_signal(program.loop, on_user_signal, &program);
    st = start_worker(&program);
    if (st) {
        fprintf(stderr, "tf-master: %s\n", status_message(st));
        status_unref(st);
        return EXIT_CONFIG;
    }
    if (!program.worker || !program.worker->task.gpu_plugin)
        gpu_add_device_type(NULL, 0); /* to know which nodes may be on a GPU */
    st = tls_set_open(&flags->tls, flags->etcd.cluster_name, true, &program.tls);
    if (!st)
        st = start(&program, flags);
    if (st) {
        fprintf(stderr, "tf-master: %s\n", status_message(st));
        status_unref(st);
        return EXIT_IO;
    }
    watchdog_start(program.loop, &program.watchdog);
    loop_run(program.loop);
    watchdog_end_in_time(program.exit_code);
    embedded_worker_stop_threads(program.worker);
    pool_free(program.pool);
    embedded_worker_free(program.worker);
    loop_free(program.loop);
    cost_keeper_free(program.costs);
    tls_set_close(&program.tls);
    return program.exit_code;
}

int main(int argc, char **argv) {
    struct master_flags flags = {0};
    struct options options;
    int code;
    mallopt(M_ARENA_MAX, 2);
    log_set_task("tf-master");
    arena_init(&flags.arena);
    cluster_spec_init(&flags.spec);
    options_init(&options, &options_spec, &flags);
    if (options_load(&options, argc, argv, stdout, stderr, &code) == OPTIONS_GO_ON) {
        log_set_level((enum log_level)flags.log_level);
        log_set_format((enum log_format)flags.log_format);
        code = run(&flags, &options);
        log_flush_repeats(true);
    }
    options_fini(&options);
    cluster_spec_fini(&flags.spec);
    arena_fini(&flags.arena);
    return code;
}
