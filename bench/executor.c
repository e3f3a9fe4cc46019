/* How many nodes a second the shipped executor runs, by shape of the graph. One line per row, and JSON with --json FILE.
 *
 *   bench/executor [--nodes N] [--repeat R] [--json FILE]
 *
 * Statistics (node counts) and cancellation checks are on, as in the daemon; "traced" rows also record every node's times. Each figure is
 * the best of R repeats of the mean over a run of steps; the chain is the one that DESIGN.md section 5 speaks of. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "worker/container.h"
#include "worker/executor.h"

static struct device cpu;
static const char DEVICE[] = "/job:worker/replica:0/task:0/device:CPU:0";

static void die(struct status *st) {
    if (!st)
        return;
    fprintf(stderr, "bench/executor: %s\n", status_message(st));
    exit(70);
}

static struct node *add(struct graph *graph, const char *name, const char *op) {
    struct node *node;
    die(graph_add_node(graph, name, op, DEVICE, &node));
    return node;
}

static struct node *add_unary(struct graph *graph, const char *op, enum dtype type, struct node *src, int index) {
    struct node *node = add(graph, graph_unique_name(graph, op), op);
    node_set_attr_type(graph, node, "T", type);
    node_add_input(graph, node, src, index);
    die(node_finish(graph, node));
    return node;
}

static struct node *add_const(struct graph *graph, const char *name, const struct tensor *value) {
    struct node *node = add(graph, name, "Const");
    node_set_attr_type(graph, node, "dtype", (enum dtype)value->dtype);
    node_set_attr_tensor(graph, node, "value", value);
    die(node_finish(graph, node));
    return node;
}

static struct node *float_const(struct graph *graph, const char *name, float v) {
    struct tensor value;
    tensor_init_scalar_f32(&value, v);
    return add_const(graph, name, &value);
}

static struct node *int_const(struct graph *graph, const char *name, int32_t v) {
    struct tensor value;
    tensor_init_scalar_i32(&value, v);
    return add_const(graph, name, &value);
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

static struct node *add_binary(struct graph *graph, const char *op, enum dtype type, struct node *a, struct node *b) {
    struct node *node = add(graph, graph_unique_name(graph, op), op);
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

static struct node *enter(struct graph *graph, struct node *src, enum dtype type, bool is_constant) {
    struct node *node = add(graph, graph_unique_name(graph, "Enter"), "Enter");
    node_set_attr_type(graph, node, "T", type);
    node_set_attr_s(graph, node, "frame_name", "loop");
    node_set_attr_b(graph, node, "is_constant", is_constant);
    node_set_attr_i(graph, node, "parallel_iterations", 10);
    node_add_input(graph, node, src, 0);
    die(node_finish(graph, node));
    return node;
}

/* while i < n: i = i + 1 — as the TensorFlow client builds it. Eight nodes an iteration. */
static int64_t while_loop(struct graph *graph, int n) {
    struct node *i = enter(graph, int_const(graph, "zero", 0), DT_INT32, false);
    struct node *limit = enter(graph, int_const(graph, "limit", n / 8), DT_INT32, true);
    struct node *one = enter(graph, int_const(graph, "one", 1), DT_INT32, true);
    struct node *merge = add(graph, "merge", "Merge");
    node_set_attr_type(graph, merge, "T", DT_INT32);
    node_set_attr_i(graph, merge, "N", 2);
    node_add_input(graph, merge, i, 0);
    node_add_input(graph, merge, i, 0); /* replaced by NextIteration below */
    die(node_finish(graph, merge));
    struct node *less = add_binary(graph, "Less", DT_INT32, merge, limit);
    struct node *cond = add(graph, "cond", "LoopCond");
    node_add_input(graph, cond, less, 0);
    die(node_finish(graph, cond));
    struct node *branch = add(graph, "switch", "Switch");
    node_set_attr_type(graph, branch, "T", DT_INT32);
    node_add_input(graph, branch, merge, 0);
    node_add_input(graph, branch, cond, 0);
    die(node_finish(graph, branch));
    struct node *body = add_unary(graph, "Identity", DT_INT32, branch, 1);
    struct node *next = add_binary(graph, "AddV2", DT_INT32, body, one);
    struct node *next_iteration = add_unary(graph, "NextIteration", DT_INT32, next, 0);
    node_set_input(merge, 1, next_iteration, 0);
    add_unary(graph, "Exit", DT_INT32, branch, 0);
    return 8 * (int64_t)(n / 8);
}

/* ---- running ---- */

struct outcome {
    bool is_done;
    struct status *status;
};

static void on_done(struct step_run *run, struct status *status_take) {
    if (status_take)
        die(status_take);
}

static double seconds_per_step(struct plan *plan, int n_steps, bool trace, uint64_t *ret_executed) {
    struct container_table *containers = container_table_new();
    int64_t start_ns = clock_now_ns();
    for (int i = 0; i < n_steps; i++) {
        struct step_run run;
        step_run_init(&run);
        run.plan = plan;
        run.step_id = (uint64_t)i + 1;
        run.containers = containers;
        run.on_done = on_done;
        run.collect_stats = trace;
        executor_start(&run);
        *ret_executed = run.n_executed;
        step_stats_free(run.stats);
        step_run_fini(&run);
    }
    double seconds = (double)(clock_now_ns() - start_ns) / 1e9 / n_steps;
    container_table_free(containers);
    return seconds;
}

static const struct row {
    const char *name;
    int64_t (*build)(struct graph *graph, int n);
    bool trace;
} rows[] = {
    {"chain of float Identity", chain, false},
    {"chain, every node traced", chain, true},
    {"fan-out of 8", fan_out_8, false},
    {"fan-out of 64", fan_out_64, false},
    {"chain of scalar AddV2", scalar_adds, false},
    {"while loop, scalar int32", while_loop, false},
};

int main(int argc, char **argv) {
    int n = 10000, repeat = 7;
    FILE *json = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--nodes") == 0)
            n = (int)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--repeat") == 0)
            repeat = (int)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--json") == 0)
            json = fopen(argv[i + 1], "w");
    }
    die(device_name_parse(span_of(DEVICE), &cpu.name));
    cpu.full_name = (char *)DEVICE;
    cpu.type = "CPU";
    cpu.allocator = allocator_host();
    if (json)
        fprintf(json, "[");
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        struct graph graph;
        struct plan *plan;
        struct plan_options options = {.devices = &cpu, .n_devices = 1, .host = &executor_host};
        graph_init(&graph);
        rows[r].build(&graph, n);
        die(plan_new(&graph, &options, &plan));
        double best = 1e9;
        uint64_t executed = 0;
        seconds_per_step(plan, 3, rows[r].trace, &executed);
        for (int k = 0; k < repeat; k++) {
            double seconds = seconds_per_step(plan, 1 + 2000000 / n, rows[r].trace, &executed);
            best = seconds < best ? seconds : best;
        }
        double per_second = (double)executed / best;
        printf("%-28s %8.1f M nodes/s  %6.1f ns/node  (%llu nodes a step)\n", rows[r].name, per_second / 1e6, 1e9 / per_second,
               (unsigned long long)executed);
        if (json)
            fprintf(json, "%s\n  {\"row\": \"%s\", \"nodes_per_s\": %.0f, \"ns_per_node\": %.2f, \"nodes\": %llu}", r ? "," : "",
                    rows[r].name, per_second, 1e9 / per_second, (unsigned long long)executed);
        plan_unref(plan);
    }
    if (json) {
        fprintf(json, "\n]\n");
        fclose(json);
    }
    return 0;
}
