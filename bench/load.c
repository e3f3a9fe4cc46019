/* A cluster under load, and at its limits of size; figures, not verdicts.
 *
 *   tfctl local --ps 1 --workers 2 --quiet -- build/bench/load [--target URL] [--threads N]
 * [--seconds N] [--sessions N] [--nodes N] [--gib N]
 *
 *   steps      N client threads, each with a session of its own, run a scalar step again and
 *              again: steps a second, percentiles
 *   sessions   N sessions open at a time, each having run one step
 *   nodes      graphs of N/100, N/10 and N nodes: create, first run, extend by one node, run again
 *   bytes      a feed and fetch of N GiB less a page, and a graph with a constant of N/2 GiB:
 *              seconds, GB a second
 *
 * After each part the resident memory of every process that $MILLRACE_PIDS names is printed: it
 * should come back. */
#define PROGRAM "load"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/client_step.h"
#include "common/tensor/tensor_proto.h"

enum { PRODUCER = 2474 /* TensorFlow 2.21's graphs */, MAX_SAMPLES = 1 << 20 };

#define DEVICE "/job:worker/task:0"

struct flags {
    const char *target;
    int64_t threads, seconds, sessions, nodes, gib;
};

#define FLAG(field, text, what)                                                      \
    {                                                                                \
        .name = #field, .kind = OPTION_INT, .offset = offsetof(struct flags, field), \
        .value_name = "N", .default_text = text, .help = what, .max = 100000000      \
    }
static const struct option_row rows[] = {
    {.name = "target",
     .kind = OPTION_STRING,
     .offset = offsetof(struct flags, target),
     .value_name = "URL",
     .help = "default $MILLRACE_TARGET"},
    FLAG(threads, "64", "client threads; 0 leaves this part out"),
    FLAG(seconds, "5", "how long they run"),
    FLAG(sessions, "1000", "sessions open at a time; 0 leaves this part out"),
    FLAG(nodes, "100000", "nodes of the largest graph; 0 leaves this part out"),
    FLAG(gib, "2", "of the largest message; 0 leaves this part out"),
};
static const struct options_spec spec = {.program = "load",
                                         .section = "load",
                                         .summary =
                                             "A cluster under load, and at its limits of size.",
                                         .rows = rows,
                                         .n_rows = ARRAY_LEN(rows)};

static double seconds_since(int64_t begin_ns) { return (double)(clock_now_ns() - begin_ns) / 1e9; }

/* ---- the daemons' memory ---- */

static int64_t resident_kb(int pid) {
    char path[64], line[256];
    int64_t kb = -1;
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1)
            break;
    if (file)
        fclose(file);
    return kb;
}

/* $MILLRACE_PIDS is {"master": 12, "ps/0": 13}. */
static void print_memory(void) {
    const char *at = getenv("MILLRACE_PIDS");
    printf("  resident:");
    while (at && (at = strchr(at, '"'))) {
        const char *end = strchr(at + 1, '"'), *colon = end ? strchr(end, ':') : NULL;
        if (!colon)
            break;
        printf("  %.*s %.1f MB", (int)(end - at - 1), at + 1,
               (double)resident_kb((int)strtol(colon + 1, NULL, 10)) / 1024);
        at = colon;
    }
    printf("\n");
    fflush(stdout);
}

/* ---- graphs, by hand ---- */

static void add_text(struct str *out, uint32_t field, const char *text) {
    proto_add_bytes(out, field, text, strlen(text));
}

static void add_attr(struct str *node, const char *name, uint32_t field, uint64_t value) {
    struct str attr = STR_INIT, entry = STR_INIT;
    proto_add_int(&attr, field, value);
    add_text(&entry, 1, name);
    proto_add_bytes(&entry, 2, attr.data, attr.len);
    proto_add_bytes(node, 5, entry.data, entry.len);
    str_fini(&attr);
    str_fini(&entry);
}

static void add_node(struct str *graph, const char *name, const char *op, const char *type_attr,
                     const char *a, const char *b) {
    struct str node = STR_INIT;
    add_text(&node, 1, name);
    add_text(&node, 2, op);
    if (a)
        add_text(&node, 3, a);
    if (b)
        add_text(&node, 3, b);
    add_text(&node, 4, DEVICE);
    add_attr(&node, type_attr, 6, DT_FLOAT);
    proto_add_bytes(graph, 1, node.data, node.len);
    str_fini(&node);
}

static void add_versions(struct str *graph) {
    struct str versions = STR_INIT;
    proto_add_int(&versions, 1, PRODUCER);
    proto_add_bytes(graph, 4, versions.data, versions.len);
    str_fini(&versions);
}

/* ---- sessions ---- */

/* x + x, fed and fetched. */
static void extend_by_sum(TF_DeprecatedSession *session, TF_Status *status) {
    struct str graph = STR_INIT;
    add_node(&graph, "x", "Placeholder", "dtype", NULL, NULL);
    add_node(&graph, "y", "AddV2", "T", "x", "x");
    add_versions(&graph);
    extend(session, &graph, status);
    str_fini(&graph);
}

static void run_sum(TF_DeprecatedSession *session, const char *fetch, TF_Tensor *x,
                    TF_Status *status) {
    const char *feed = "x:0";
    TF_Tensor *y = NULL;
    TF_Run(session, NULL, &feed, &x, 1, &fetch, &y, 1, NULL, 0, NULL, status);
    die_on_error(status);
    TF_DeleteTensor(y);
}

static TF_Tensor *scalar(void) {
    TF_Tensor *x = TF_AllocateTensor(TF_FLOAT, NULL, 0, sizeof(float));
    *(float *)TF_TensorData(x) = 1;
    return x;
}

/* ---- steps ---- */

struct client {
    pthread_t thread;
    const struct flags *flags;
    TF_DeprecatedSession *session;
    int64_t until_ns, n_steps;
    int32_t *took_us;
};

static void *run_client(void *arg) {
    struct client *client = arg;
    TF_Status *status = TF_NewStatus();
    TF_Tensor *x = scalar();
    int64_t now_ns = clock_now_ns();
    while (now_ns < client->until_ns && client->n_steps < MAX_SAMPLES) {
        int64_t begin_ns = now_ns;
        run_sum(client->session, "y:0", x, status);
        now_ns = clock_now_ns();
        client->took_us[client->n_steps++] = (int32_t)((now_ns - begin_ns) / 1000);
    }
    TF_DeleteTensor(x);
    TF_DeleteStatus(status);
    return NULL;
}

static int compare_i32(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void print_steps(struct client *clients, int64_t n_clients, double seconds) {
    int64_t n = 0, at = 0;
    for (int64_t i = 0; i < n_clients; i++)
        n += clients[i].n_steps;
    int32_t *all = xmalloc((size_t)(n + 1) * sizeof(*all));
    for (int64_t i = 0; i < n_clients; i++) {
        memcpy(all + at, clients[i].took_us, (size_t)clients[i].n_steps * sizeof(*all));
        at += clients[i].n_steps;
    }
    qsort(all, (size_t)n, sizeof(*all), compare_i32);
    printf("steps: %lld threads, %.0f steps/s, median %d µs, p99 %d µs, longest %d µs\n",
           (long long)n_clients, (double)n / seconds, n ? all[n / 2] : 0,
           n ? all[n - 1 - n / 100] : 0, n ? all[n - 1] : 0);
    free(all);
}

static void measure_steps(const struct flags *flags, TF_Status *status) {
    struct client *clients = xcalloc((size_t)flags->threads, sizeof(*clients));
    for (int64_t i = 0; i < flags->threads; i++) {
        clients[i] =
            (struct client){.flags = flags, .session = open_session(flags->target, NULL, status)};
        clients[i].took_us = xmalloc(MAX_SAMPLES * sizeof(int32_t));
        TF_Tensor *x = scalar();
        extend_by_sum(clients[i].session, status);
        run_sum(clients[i].session, "y:0", x, status);
        TF_DeleteTensor(x);
    }
    int64_t begin_ns = clock_now_ns();
    for (int64_t i = 0; i < flags->threads; i++) {
        clients[i].until_ns = begin_ns + flags->seconds * 1000000000;
        CHECK(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]) == 0);
    }
    for (int64_t i = 0; i < flags->threads; i++)
        pthread_join(clients[i].thread, NULL);
    print_steps(clients, flags->threads, seconds_since(begin_ns));
    for (int64_t i = 0; i < flags->threads; i++) {
        TF_DeleteDeprecatedSession(clients[i].session, status);
        free(clients[i].took_us);
    }
    free(clients);
}

/* ---- sessions ---- */

static void measure_sessions(const struct flags *flags, TF_Status *status) {
    TF_DeprecatedSession **sessions = xcalloc((size_t)flags->sessions, sizeof(*sessions));
    TF_Tensor *x = scalar();
    int64_t begin_ns = clock_now_ns();
    for (int64_t i = 0; i < flags->sessions; i++) {
        sessions[i] = open_session(flags->target, NULL, status);
        extend_by_sum(sessions[i], status);
        run_sum(sessions[i], "y:0", x, status);
    }
    printf("sessions: %lld opened, extended and run in %.2f s (%.0f µs each)\n",
           (long long)flags->sessions, seconds_since(begin_ns),
           seconds_since(begin_ns) / (double)flags->sessions * 1e6);
    print_memory();
    begin_ns = clock_now_ns();
    for (int64_t i = 0; i < flags->sessions; i++)
        TF_DeleteDeprecatedSession(sessions[i], status);
    printf("sessions: closed in %.2f s\n", seconds_since(begin_ns));
    TF_DeleteTensor(x);
    free(sessions);
}

/* ---- nodes ---- */

static void measure_graph(const struct flags *flags, int64_t n_nodes, TF_Status *status) {
    struct str graph = STR_INIT, last = STR_INIT;
    char name[32], before[32] = "x";
    TF_DeprecatedSession *session = open_session(flags->target, NULL, status);
    add_node(&graph, "x", "Placeholder", "dtype", NULL, NULL);
    for (int64_t i = 1; i < n_nodes; i++) {
        snprintf(name, sizeof(name), "n%lld", (long long)i);
        add_node(&graph, name, "AddV2", "T", before, "x");
        memcpy(before, name, sizeof(before));
    }
    add_versions(&graph);
    add_node(&last, "last", "Neg", "T", before, NULL);
    add_versions(&last);
    TF_Tensor *x = scalar();
    char fetch[40];
    snprintf(fetch, sizeof(fetch), "%s:0", before);
    int64_t begin_ns = clock_now_ns();
    extend(session, &graph, status);
    double create_s = seconds_since(begin_ns);
    begin_ns = clock_now_ns();
    run_sum(session, fetch, x, status);
    double first_s = seconds_since(begin_ns);
    begin_ns = clock_now_ns();
    run_sum(session, fetch, x, status);
    double again_s = seconds_since(begin_ns);
    begin_ns = clock_now_ns();
    extend(session, &last, status);
    double extend_s = seconds_since(begin_ns);
    begin_ns = clock_now_ns();
    run_sum(session, "last:0", x, status);
    printf("nodes: %8lld   create %8.2f ms   first run %8.2f ms   again %7.2f ms   extend by one "
           "%6.2f ms   run it %8.2f ms\n",
           (long long)n_nodes, create_s * 1e3, first_s * 1e3, again_s * 1e3, extend_s * 1e3,
           seconds_since(begin_ns) * 1e3);
    fflush(stdout);
    TF_DeleteTensor(x);
    TF_DeleteDeprecatedSession(session, status);
    str_fini(&graph);
    str_fini(&last);
}

/* ---- bytes ---- */

static void measure_feed(const struct flags *flags, TF_Status *status) {
    size_t size = ((size_t)flags->gib << 30) - 4096;
    int64_t n = (int64_t)(size / sizeof(float));
    TF_DeprecatedSession *session = open_session(flags->target, NULL, status);
    TF_Tensor *x = TF_AllocateTensor(TF_FLOAT, &n, 1, size);
    memset(TF_TensorData(x), 0, size);
    extend_by_sum(session, status);
    int64_t begin_ns = clock_now_ns();
    run_sum(session, "y:0", x, status);
    double took_s = seconds_since(begin_ns);
    printf("bytes: %.2f GB fed and fetched in %.2f s, %.2f GB/s\n", (double)size / 1e9, took_s,
           2 * (double)size / 1e9 / took_s);
    TF_DeleteTensor(x);
    TF_DeleteDeprecatedSession(session, status);
}

static void measure_constant(const struct flags *flags, TF_Status *status) {
    size_t size = (size_t)flags->gib << 29;
    struct str tensor = STR_INIT, shape = STR_INIT, dim = STR_INIT, node = STR_INIT,
               graph = STR_INIT, attr = STR_INIT, entry = STR_INIT;
    char *content = xcalloc(1, size);
    proto_add_int(&dim, 1, size / sizeof(float));
    proto_add_bytes(&shape, 2, dim.data, dim.len);
    proto_add_int(&tensor, 1, DT_FLOAT);
    proto_add_bytes(&tensor, 2, shape.data, shape.len);
    proto_add_bytes(&tensor, 4, content, size);
    free(content);
    proto_add_bytes(&attr, 8, tensor.data, tensor.len);
    str_fini(&tensor);
    add_text(&entry, 1, "value");
    proto_add_bytes(&entry, 2, attr.data, attr.len);
    str_fini(&attr);
    add_text(&node, 1, "x");
    add_text(&node, 2, "Const");
    add_text(&node, 4, DEVICE);
    add_attr(&node, "dtype", 6, DT_FLOAT);
    proto_add_bytes(&node, 5, entry.data, entry.len);
    str_fini(&entry);
    proto_add_bytes(&graph, 1, node.data, node.len);
    str_fini(&node);
    add_node(&graph, "y", "Shape", "T", "x", NULL);
    add_versions(&graph);
    TF_DeprecatedSession *session = open_session(flags->target, NULL, status);
    int64_t begin_ns = clock_now_ns();
    extend(session, &graph, status);
    double create_s = seconds_since(begin_ns);
    const char *fetch = "y:0";
    TF_Tensor *y = NULL;
    begin_ns = clock_now_ns();
    TF_Run(session, NULL, NULL, NULL, 0, &fetch, &y, 1, NULL, 0, NULL, status);
    die_on_error(status);
    printf("bytes: a constant of %.2f GB: graph sent in %.2f s, first run %.2f s\n",
           (double)size / 1e9, create_s, seconds_since(begin_ns));
    TF_DeleteTensor(y);
    TF_DeleteDeprecatedSession(session, status);
    str_fini(&dim);
    str_fini(&shape);
    str_fini(&graph);
}

int main(int argc, char **argv) {
    struct flags flags = {0};
    struct options options;
    load_flags(&options, &spec, &flags, argc, argv);
    TF_Status *status = TF_NewStatus();
    print_memory();
    if (flags.threads > 0) {
        measure_steps(&flags, status);
        print_memory();
    }
    if (flags.sessions > 0) {
        measure_sessions(&flags, status);
        print_memory();
    }
    for (int64_t n = flags.nodes / 100; flags.nodes > 0 && n <= flags.nodes; n *= 10)
        measure_graph(&flags, n, status);
    if (flags.nodes > 0)
        print_memory();
    if (flags.gib > 0) {
        measure_feed(&flags, status);
        measure_constant(&flags, status);
        print_memory();
    }
    TF_DeleteStatus(status);
    options_fini(&options);
    return 0;
}
