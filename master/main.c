/* tf-master: accepts clients' graphs and runs their steps on the workers of the cluster. Flags, start, TERM, exit codes.
 *
 * Exit codes: 0, 64 usage, 70 internal, 74 I/O (port in use), 78 configuration. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/options.h"
#include "master/service.h"
#include "rpc/daemon.h"

struct master_flags {
    const char *listen, *cluster, *port_file, *admin, *disable_passes, *dump_graph;
    int log_level;
    bool insecure;
    int64_t threads, task_wait_ms, session_ttl_ms, drain_timeout_ms;
    int64_t max_sessions, max_steps, max_nodes, max_executables, max_message_bytes, max_connections, max_streams, max_header_bytes,
        max_resets_per_s, max_inflight_bytes;
    int64_t fold_max_bytes, fold_budget_ms;
    const char **disabled_passes; /* of disable_passes, NULL-terminated; in arena */
    struct cluster_spec spec;
    struct arena arena;
};

static const char *const log_levels[] = {"debug", "info", "warning", "error", NULL};

#define ROW(name_, kind_, field, default_, value_, help_)                                                                                 \
    .name = (name_), .kind = (kind_), .offset = offsetof(struct master_flags, field), .default_text = (default_), .value_name = (value_), \
    .help = (help_)

// clang-format off
static const struct option_row rows[] = {
    {ROW("cluster", OPTION_STRING, cluster, NULL, "SPEC", "the tasks: JOB=HOST:PORT[;HOST:PORT...][,JOB=...]; else TF_CONFIG")},
    {ROW("listen", OPTION_STRING, listen, "127.0.0.1:2222", "HOST:PORT", "where clients connect; port 0 means any")},
    {ROW("admin", OPTION_STRING, admin, NULL, "HOST:PORT", "health and status pages; 'off' for none; default: the port + 10000")},
    {ROW("port-file", OPTION_STRING, port_file, NULL, "PATH", "written once the daemon serves: its port, and a line 'admin PORT'")},
    {ROW("insecure", OPTION_BOOL, insecure, NULL, NULL, "allow --listen beyond loopback without TLS")},
    {ROW("log-level", OPTION_CHOICE, log_level, "info", "LEVEL", "what is logged"), .choices = log_levels},
    {ROW("threads", OPTION_INT, threads, "0", "N", "of the pool that compiles graphs; 0: as many as cores"), .min = 0, .max = 1024},
    {ROW("task-wait", OPTION_DURATION, task_wait_ms, "10s", "TIME", "how long CreateSession waits for missing tasks")},
    {ROW("session-ttl", OPTION_DURATION, session_ttl_ms, "1h", "TIME", "a session is collected so long after its client's last connection closed")},
    {ROW("drain-timeout", OPTION_DURATION, drain_timeout_ms, "30s", "TIME", "how long TERM waits for running steps")},
    {ROW("max-sessions", OPTION_INT, max_sessions, "10000", "N", "open sessions"), .min = 1, .max = 1000000},
    {ROW("max-steps", OPTION_INT, max_steps, "100000", "N", "steps in flight"), .min = 1, .max = 10000000},
    {ROW("max-nodes", OPTION_INT, max_nodes, "1000000", "N", "nodes of one session's graph"), .min = 1, .max = 100000000},
    {ROW("max-executables", OPTION_INT, max_executables, "1000", "N", "compiled signatures kept for one session"), .min = 1, .max = 1000000},
    {ROW("max-message", OPTION_BYTES, max_message_bytes, "2147483647", "BYTES", "one request"), .min = 1024, .max = 2147483647},
    {ROW("max-connections", OPTION_INT, max_connections, "10000", "N", "client connections"), .min = 1, .max = 1000000},
    {ROW("max-streams", OPTION_INT, max_streams, "10000", "N", "calls in flight on one connection"), .min = 1, .max = 1000000},
    {ROW("max-headers", OPTION_BYTES, max_header_bytes, "16K", "BYTES", "header list of one call"), .min = 1024, .max = 1 << 20},
    {ROW("max-resets", OPTION_INT, max_resets_per_s, "1000", "N", "stream resets a second on one connection"), .min = 1, .max = 1000000},
    {ROW("max-inflight", OPTION_BYTES, max_inflight_bytes, "16G", "BYTES", "request bodies held at a time"), .min = 1 << 20, .max = 1ll << 50},
    {ROW("fold-max", OPTION_BYTES, fold_max_bytes, "10M", "BYTES", "largest constant that folding makes")},
    {ROW("fold-budget", OPTION_DURATION, fold_budget_ms, "200ms", "TIME", "of folding, per compiled step")},
    {ROW("disable-passes", OPTION_STRING, disable_passes, NULL, "NAME,...", "leave optional passes out: fold, cse")},
    {ROW("dump-graph", OPTION_STRING, dump_graph, NULL, "after:PASS", "log the graph's text form after a pass, or after:all")},
};
// clang-format on

static struct status *read_passes(struct master_flags *flags) {
    char *list = arena_strdup(&flags->arena, flags->disable_passes ? flags->disable_passes : ""), *rest = list, *name;
    int n = 0;
    flags->disabled_passes = arena_array(&flags->arena, const char *, strlen(list) + 2);
    while ((name = strsep(&rest, ", "))) {
        const struct pass *pass = pass_find(name);
        if (*name && (!pass || !pass->is_optional))
            return status_invalid("disable-passes: '%s' is not an optional pass", name);
        if (*name)
            flags->disabled_passes[n++] = name;
    }
    return NULL;
}

static struct status *read_cluster(struct master_flags *flags) {
    const char *tf_config = getenv("TF_CONFIG"), *job;
    int index;
    if (flags->cluster)
        return cluster_spec_parse(flags->cluster, &flags->spec);
    if (tf_config)
        return cluster_spec_parse_tf_config(tf_config, &flags->spec, &job, &index);
    return status_invalid("no cluster: give --cluster SPEC or set TF_CONFIG");
}

static struct status *check(void *values) {
    struct master_flags *flags = values;
    TRY(read_passes(flags));
    TRY(read_cluster(flags));
    if (flags->dump_graph && strncmp(flags->dump_graph, "after:", 6) != 0)
        return status_invalid("dump-graph: '%s' is not of the form after:PASS", flags->dump_graph);
    if (flags->admin && strcmp(flags->admin, "off") != 0)
        TRY(daemon_check_listen("admin", flags->admin, flags->insecure));
    return daemon_check_listen("listen", flags->listen, flags->insecure);
}

static const struct options_spec options_spec = {
    .program = "tf-master",
    .section = "master",
    .summary = "Accepts TensorFlow clients (grpc://HOST:PORT), compiles their graphs and runs them on the cluster's tf-worker tasks",
    .rows = rows,
    .n_rows = ARRAY_LEN(rows),
    .check = check,
};

struct master {
    struct loop *loop;
    struct pool *pool;
    struct service *service;
    struct admin_server *admin;
    struct loop_timer drain_timer;
    int64_t drain_timeout_ms;
    bool is_stopping, is_drained;
};

/* ---- pages ---- */

static int page_ready(void *arg, const char *query, struct str *out) {
    struct master *master = arg;
    if (service_is_ready(master->service, out)) {
        str_add(out, "ok");
        return 200;
    }
    return 503;
}

static int page_status(void *arg, const char *query, struct str *out) {
    struct master *master = arg;
    str_addf(out, "{\"program\": \"tf-master\", \"version\": \"%s\", \"pid\": %d, \"service\": ", MILLRACE_VERSION, (int)getpid());
    service_describe(master->service, out);
    str_add(out, "}\n");
    return 200;
}

static int page_steps(void *arg, const char *query, struct str *out) {
    struct master *master = arg;
    service_describe_steps(master->service, out);
    return 200;
}

static const struct admin_page pages[] = {
    {"/readyz", "text/plain", page_ready},
    {"/healthz", "text/plain", page_ready},
    {"/statusz", "application/json", page_status},
    {"/stepz", "text/plain", page_steps},
};

/* ---- stopping ---- */

static void stop(struct master *master) {
    if (master->is_drained)
        return;
    master->is_drained = true;
    loop_timer_stop(&master->drain_timer);
    loop_timer_close(&master->drain_timer, NULL);
    admin_server_close(master->admin);
    service_free(master->service);
    loop_stop(master->loop);
}

static void on_drained(void *arg) { stop(arg); }
static void on_drain_timeout(struct loop_timer *timer) {
    log_warning("steps were still running when the drain timeout passed");
    stop(CONTAINER_OF(timer, struct master, drain_timer));
}

static void on_signal(void *arg, int signo) {
    struct master *master = arg;
    if (master->is_stopping) { /* a second signal does not wait */
        stop(master);
        return;
    }
    master->is_stopping = true;
    log_info("%s: draining", signo == SIGINT ? "interrupted" : "terminated");
    loop_timer_start(&master->drain_timer, master->drain_timeout_ms, 0);
    service_drain(master->service, on_drained, master);
}

/* ---- starting ---- */

static void fill_options(const struct master_flags *flags, struct service_options *ret) {
    service_options_default(ret);
    ret->listen = flags->listen;
    ret->limits.max_message_bytes = flags->max_message_bytes;
    ret->limits.max_connections = flags->max_connections;
    ret->limits.max_streams = flags->max_streams;
    ret->limits.max_header_bytes = flags->max_header_bytes;
    ret->limits.max_resets_per_s = flags->max_resets_per_s;
    ret->limits.max_inflight_bytes = flags->max_inflight_bytes;
    ret->task_wait_ms = flags->task_wait_ms;
    ret->session_ttl_ms = flags->session_ttl_ms;
    ret->max_sessions = (int)flags->max_sessions;
    ret->max_steps = (int)flags->max_steps;
    ret->max_nodes = (int)flags->max_nodes;
    ret->max_executables = (int)flags->max_executables;
    ret->compile.fold_max_bytes = flags->fold_max_bytes;
    ret->compile.fold_budget_ns = flags->fold_budget_ms * 1000000;
    ret->compile.disabled_passes = flags->disabled_passes;
    ret->compile.dump_after = flags->dump_graph ? flags->dump_graph + 6 : NULL;
}

static struct status *start(struct master *master, const struct master_flags *flags) {
    struct service_options service_options;
    struct admin_options admin_options = {.pages = pages, .n_pages = ARRAY_LEN(pages), .arg = master};
    struct str admin = STR_INIT;
    fill_options(flags, &service_options);
    TRY(service_new(master->loop, master->pool, &flags->spec, &service_options, &master->service));
    int port = grpc_server_port(master->service->server);
    struct status *st = NULL;
    if (daemon_admin_address(flags->admin, flags->listen, port, &admin))
        st = admin_server_new(master->loop, str_text(&admin), &admin_options, &master->admin);
    str_fini(&admin);
    if (!st && flags->port_file)
        st = daemon_write_port_file(flags->port_file, port, master->admin ? admin_server_port(master->admin) : 0);
    if (st)
        return st;
    log_info("serving grpc on port %d, admin on port %d", port, master->admin ? admin_server_port(master->admin) : 0);
    return NULL;
}

static int run(const struct master_flags *flags) {
    struct master master = {.drain_timeout_ms = flags->drain_timeout_ms};
    master.loop = loop_new();
    master.pool = pool_new((int)flags->threads);
    loop_timer_init(master.loop, &master.drain_timer, on_drain_timeout);
    loop_on_signals(master.loop, on_signal, &master); /* before anybody can know that we are here */
    struct status *st = start(&master, flags);
    if (st) {
        fprintf(stderr, "tf-master: %s\n", status_message(st));
        status_unref(st);
        return EXIT_IO;
    }
    loop_run(master.loop);
    pool_free(master.pool);
    loop_free(master.loop);
    return EXIT_OK;
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
        code = run(&flags);
    }
    options_fini(&options);
    cluster_spec_fini(&flags.spec);
    arena_fini(&flags.arena);
    return code;
}
