/* How many nodes a second the shipped executor runs, by shape of the graph. One line per row,
 * and JSON with --json FILE.
 *
 *   bench/executor [--nodes N] [--repeat R] [--only TEXT] [--json FILE]
 *
 * Statistics (node counts) and cancellation checks are on, as in the daemon; "traced" rows also
 * record every node's times. Each figure is the best of R repeats of the mean over a run of
 * steps. The chain is the plain case, because every node waits for the one before it. A step of
 * cheap nodes stays on its thread, so the figure for two threads is that of two threads which run
 * steps of one plan side by side. */
#define PROGRAM "bench/executor"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench/bench_graph.h"
#include "common/base/clock.h"
#include "worker/container.h"
#include "worker/executor/executor.h"

static struct device cpu;
static const char DEVICE[] = "/job:worker/replica:0/task:0/device:CPU:0";

static struct node *add_unary(struct graph *graph, const char *op, enum dtype type,
                              struct node *src, int index) {
    struct node *node = add_node(graph, op, op, DEVICE);
    node_set_attr_type(graph, node, "T", type);
    node_add_input(graph, node, src, index);
    die(node_finish(graph, node));
    return node;
}

static struct node *float_const(struct graph *graph, const char *name, float v) {
    struct tensor value;
    tensor_init_scalar_f32(&value, v);
    return add_const(graph, name, &value, DEVICE);
}

static struct node *int_const(struct graph *graph, const char *name, int32_t v) {
    struct tensor value;
    tensor_init_scalar_i32(&value, v);
    return add_const(graph, name, &value, DEVICE);
}

/* ---- the graphs; each returns how many nodes a step executes ---- */

static int64_t chain(struct graph *graph, int n) {
    struct node *at = float_const(graph, "c", 1.0f);
    for (int i = 0; i < n; i++)
        at = add_unary(graph, "Identity", DT_FLOAT, at, 0);
    return n + 1;
}

static int64_t fan_out(struct graph *graph, int n, int width) {
    struct node *at = float_const(graph, "c", 1.0f);
    int count = 1;
    while (count < n) {
        struct node *first = at;
        for (int i = 0; i < width; i++, count++) {
            struct node *leaf = add_unary(graph, "Identity", DT_FLOAT, first, 0);
            if (i == 0)
                at = leaf;
        }
    }
    return count;
}
static int64_t fan_out_8(struct graph *graph, int n) { return fan_out(graph, n, 8); }
static int64_t fan_out_64(struct graph *graph, int n) { return fan_out(graph, n, 64); }

static struct node *add_binary(struct graph *graph, const char *op, enum dtype type, struct node *a,
                               struct node *b) {
    struct node *node = add_node(graph, op, op, DEVICE);
    node_set_attr_type(graph, node, "T", type);
    node_add_input(graph, node, a, 0);
    node_add_input(graph, node, b, 0);
    die(node_finish(graph, node));
    return node;
}

static int64_t scalar_adds(struct graph *graph, int n) {
    struct node *one = float_const(graph, "one", 1.0f), *at = float_const(graph, "c", 0.0f);
    for (int i = 0; i < n; i++)
        at = add_binary(graph, "AddV2", DT_FLOAT, at, one);
    return n + 2;
}

static struct node *enter(struct graph *graph, struct node *src, enum dtype type, const char *frame,
                          bool is_constant) {
    struct node *node = add_node(graph, "Enter", "Enter", DEVICE);
    node_set_attr_type(graph, node, "T", type);
    node_set_attr_s(graph, node, "frame_name", frame);
    node_set_attr_b(graph, node, "is_constant", is_constant);
    node_set_attr_i(graph, node, "parallel_iterations", 10);
    node_add_input(graph, node, src, 0);
    die(node_finish(graph, node));
    return node;
}

static struct node *merge(struct graph *graph, struct node *entered) {
    struct node *node = add_node(graph, "Merge", "Merge", DEVICE);
    node_set_attr_type(graph, node, "T", DT_INT32);
    node_set_attr_i(graph, node, "N", 2);
    node_add_input(graph, node, entered, 0);
    node_add_input(graph, node, entered, 0); /* NextIteration, by close_loop */
    die(node_finish(graph, node));
    return node;
}

static struct node *switch_on(struct graph *graph, struct node *value, struct node *cond) {
    struct node *node = add_node(graph, "Switch", "Switch", DEVICE);
    node_set_attr_type(graph, node, "T", DT_INT32);
    node_add_input(graph, node, value, 0);
    node_add_input(graph, node, cond, 0);
    die(node_finish(graph, node));
    return node;
}

/* A loop as the TensorFlow client builds it: while var 0 < limit. var 0 counts; what the others
 * do is the caller's. */
struct loop {
    struct node *merged[64], *switched[64], *one;
    int n_vars;
};

static void open_loop(struct graph *graph, struct loop *loop, const char *frame, struct node *start,
                      struct node *limit, struct node *one, int n_vars) {
    struct node *cond = add_node(graph, "LoopCond", "LoopCond", DEVICE);
    struct node *bound = enter(graph, limit, DT_INT32, frame, true);
    loop->one = enter(graph, one, DT_INT32, frame, true);
    loop->n_vars = n_vars;
    for (int i = 0; i < n_vars; i++)
        loop->merged[i] = merge(graph, enter(graph, start, DT_INT32, frame, false));
    node_add_input(graph, cond, add_binary(graph, "Less", DT_INT32, loop->merged[0], bound), 0);
    die(node_finish(graph, cond));
    for (int i = 0; i < n_vars; i++)
        loop->switched[i] = switch_on(graph, loop->merged[i], cond);
}

static void close_var(struct graph *graph, struct loop *loop, int i, struct node *next) {
    node_set_input(loop->merged[i], 1, add_unary(graph, "NextIteration", DT_INT32, next, 0), 0);
}

static struct node *add_one(struct graph *graph, struct loop *loop, int i) {
    return add_binary(graph, "AddV2", DT_INT32,
                      add_unary(graph, "Identity", DT_INT32, loop->switched[i], 1), loop->one);
}

/* Variables that each count: eight nodes an iteration for the first, five for each other. */
static void counting_loop(struct graph *graph, int n_iterations, int n_vars) {
    struct node *zero = int_const(graph, "zero", 0),
                *limit = int_const(graph, "limit", n_iterations), *one = int_const(graph, "one", 1);
    struct loop loop;
    open_loop(graph, &loop, "loop", zero, limit, one, n_vars);
    for (int i = 0; i < n_vars; i++)
        close_var(graph, &loop, i, add_one(graph, &loop, i));
    add_unary(graph, "Exit", DT_INT32, loop.switched[0], 0);
}

static int64_t while_loop(struct graph *graph, int n) {
    counting_loop(graph, n / 8, 1);
    return n;
}

static int64_t wide_loop(struct graph *graph, int n) {
    counting_loop(graph, n / (5 * 64), 64);
    return n;
}

/* A loop of which each iteration runs another of eight. */
static int64_t nested_loops(struct graph *graph, int n) {
    enum { INNER = 8 };
    struct node *zero = int_const(graph, "zero", 0),
                *limit = int_const(graph, "limit", n / (8 * INNER)),
                *one = int_const(graph, "one", 1);
    struct node *inner_limit = int_const(graph, "inner_limit", INNER);
    struct loop outer, inner;
    open_loop(graph, &outer, "outer", zero, limit, one, 1);
    struct node *start = add_unary(graph, "ZerosLike", DT_INT32, outer.switched[0], 1);
    open_loop(graph, &inner, "inner", start, enter(graph, inner_limit, DT_INT32, "outer", true),
              outer.one, 1);
    close_var(graph, &inner, 0, add_one(graph, &inner, 0));
    struct node *done = add_unary(graph, "Exit", DT_INT32, inner.switched[0], 0),
                *next = add_one(graph, &outer, 0);
    node_add_control(graph, next, done);
    close_var(graph, &outer, 0, next);
    add_unary(graph, "Exit", DT_INT32, outer.switched[0], 0);
    return n;
}

/* ---- running ---- */

static void on_done(struct execution *run, struct status *status_take) {
    if (status_take)
        die(status_take);
}

struct runner {
    struct plan *plan;
    int n_steps;
    bool trace;
    uint64_t n_executed; /* a step's nodes */
};

static void *run_steps(void *arg) {
    struct runner *runner = arg;
    struct container_table *containers = container_table_new();
    for (int i = 0; i < runner->n_steps; i++) {
        struct execution run;
        execution_init(&run);
        run.plan = runner->plan;
        run.step_id = (uint64_t)i + 1;
        run.containers = containers;
        run.on_done = on_done;
        run.stats_level = runner->trace ? EXECUTION_STATS_ALL : EXECUTION_STATS_NONE;
        execution_start(&run);
        runner->n_executed = run.n_executed;
        step_stats_free(run.stats);
        execution_fini(&run);
    }
    container_table_free(containers);
    return NULL;
}

enum { MAX_THREADS = 2 };

struct figure {
    double per_second; /* nodes, of all threads together */
    /* a node, which tells how threads hinder each other where cores are shared with strangers */
    double cpu_ns;
};

static int64_t cpu_time_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static struct figure measure(struct runner runner, int n_threads) {
    struct runner runners[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    int64_t start_ns = clock_now_ns(), start_cpu_ns = cpu_time_ns();
    for (int i = 0; i < n_threads; i++) {
        runners[i] = runner;
        if (i > 0)
            pthread_create(&threads[i], NULL, run_steps, &runners[i]);
    }
    run_steps(&runners[0]);
    for (int i = 1; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    double seconds = (double)(clock_now_ns() - start_ns) / 1e9,
           nodes = (double)runners[0].n_executed * runner.n_steps * n_threads;
    return (struct figure){nodes / seconds, (double)(cpu_time_ns() - start_cpu_ns) / nodes};
}

static const struct row {
    const char *name;
    int64_t (*build)(struct graph *graph, int n);
    bool trace;
} rows[] = {
    {"chain of float Identity", chain, false}, /* a fan-out of 1 */
    {"chain, every node traced", chain, true},
    {"fan-out of 8", fan_out_8, false},
    {"fan-out of 64", fan_out_64, false},
    {"chain of scalar AddV2", scalar_adds, false},
    {"while loop, scalar int32", while_loop, false},
    {"while loop of 64 variables", wide_loop, false},
    {"nested while loops", nested_loops, false},
};

int main(int argc, char **argv) {
    int n = 10000, repeat = 7;
    const char *only = "";
    FILE *json = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--nodes") == 0)
            n = (int)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--repeat") == 0)
            repeat = (int)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--only") == 0)
            only = argv[i + 1];
        else if (strcmp(argv[i], "--json") == 0)
            json = fopen(argv[i + 1], "w");
    }
    die(device_name_parse(span_of(DEVICE), &cpu.name));
    cpu.full_name = (char *)DEVICE;
    cpu.type = "CPU";
    cpu.allocator = allocator_host();
    const char *separator = "";
    if (json)
        fprintf(json, "[");
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        struct graph graph;
        struct plan *plan;
        struct plan_options options = {.devices = &cpu, .n_devices = 1, .host = &executor_host};
        if (!strstr(rows[r].name, only))
            continue;
        graph_init(&graph);
        rows[r].build(&graph, n);
        die(plan_new(&graph, &options, &plan));
        struct runner runner = {.plan = plan, .n_steps = 1 + 2000000 / n, .trace = rows[r].trace};
        struct figure best[MAX_THREADS + 1] = {{0}};
        for (int k = 0; k <= repeat; k++) /* the first warms up */
            for (int n_threads = 1; n_threads <= MAX_THREADS; n_threads++) {
                struct figure figure = measure(runner, n_threads), *so_far = &best[n_threads];
                if (k == 0)
                    continue;
                so_far->per_second = MAX(so_far->per_second, figure.per_second);
                so_far->cpu_ns =
                    so_far->cpu_ns > 0 ? MIN(so_far->cpu_ns, figure.cpu_ns) : figure.cpu_ns;
            }
        printf("%-28s %7.1f M nodes/s  %6.1f ns/node (cpu %.1f)   two threads %7.1f M nodes/s (cpu "
               "%.1f ns/node)\n",
               rows[r].name, best[1].per_second / 1e6, 1e9 / best[1].per_second, best[1].cpu_ns,
               best[2].per_second / 1e6, best[2].cpu_ns);
        if (json)
            fprintf(json,
                    "%s\n  {\"row\": \"%s\", \"nodes_per_s\": %.0f, \"ns_per_node\": %.2f, "
                    "\"nodes_per_s_2_threads\": %.0f}",
                    separator, rows[r].name, best[1].per_second, 1e9 / best[1].per_second,
                    best[2].per_second);
        separator = ",";
        plan_unref(plan);
    }
    if (json) {
        fprintf(json, "\n]\n");
        fclose(json);
    }
    return 0;
}
