/* Times the master's compiler: how long do its passes take for a training graph of 1,000 to 200,000
 * nodes, and does the time grow linearly?
 *
 *   compile [ROUNDS] [late]
 *
 * The graph is that of a deep residual network with its gradients and updates; variables are on a
 * ps, the rest on a worker, and every layer has constants that fold and nodes that merge. A row's
 * figure is the least of the rounds, in processor time, which other work on the machine hardly
 * lengthens. The table has a line for each size, with the time of each pass. The cluster is a
 * table; nothing runs. With `late` the session schedules its receives, and the variables are so
 * large that they can be late. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernel.h"
#include "master/compile/compilation.h"

enum { MAX_PASSES = 32 };

static int width = 64;
static bool is_late;

/* ---- the graph ---- */

struct network {
    struct graph graph;
    int layer;
};

static void check(struct status *st) {
    if (!st)
        return;
    fprintf(stderr, "%s\n", status_message(st));
    exit(1);
}

/* A node of the current layer whose inputs are outputs 0, and whose type attr T is float. */
static struct node *add(struct network *n, const char *name, const char *op, const char *device,
                        int n_inputs, struct node *const *inputs) {
    char unique[64];
    struct node *node;
    snprintf(unique, sizeof(unique), "layer_%d/%s", n->layer, name);
    check(graph_add_node(&n->graph, unique, op, device, &node));
    if (op_signature_attr(node->op, "T"))
        node_set_attr_type(&n->graph, node, "T", DT_FLOAT);
    if (op_signature_attr(node->op, "dtype"))
        node_set_attr_type(&n->graph, node, "dtype", DT_FLOAT);
    for (int i = 0; i < n_inputs; i++)
        node_add_input(&n->graph, node, inputs[i], 0);
    return node;
}
#define INPUTS(...)                                                                            \
    (int)(sizeof((struct node *[]){__VA_ARGS__}) / sizeof(struct node *)), (struct node *[]) { \
        __VA_ARGS__                                                                            \
    }
static struct node *done(struct network *n, struct node *node) {
    check(node_finish(&n->graph, node));
    return node;
}

static struct node *constant(struct network *n, const char *name, float value) {
    struct tensor t = {0};
    check(tensor_new(allocator_host(), DT_FLOAT, SHAPE_SCALAR, &t));
    *(float *)tensor_data(&t) = value;
    struct node *node = add(n, name, "Const", "", 0, NULL);
    node_set_attr_tensor(&n->graph, node, "value", &t);
    tensor_clear(&t);
    return done(n, node);
}

static struct node *variable(struct network *n, const char *name, int rank) {
    struct node *handle = add(n, name, "VarHandleOp", "/job:ps/task:0", 0, NULL);
    node_set_attr_shape(&n->graph, handle, "shape",
                        (struct shape){rank, (int64_t[]){width, width}});
    return done(n, handle);
}

/* One layer with its part of the gradient. Returns its output; *gradient is the layer's from then
 * on. */
static struct node *add_layer(struct network *n, struct node *x, struct node *rate,
                              struct node **gradient) {
    struct node *w = variable(n, "w", 2), *b = variable(n, "b", 1);
    struct node *w_value = done(n, add(n, "w/read", "ReadVariableOp", "/job:ps/task:0", INPUTS(w)));
    struct node *b_value = done(n, add(n, "b/read", "ReadVariableOp", "/job:ps/task:0", INPUTS(b)));
    struct node *product = done(n, add(n, "product", "MatMul", "", INPUTS(x, w_value)));
    struct node *biased = done(n, add(n, "biased", "BiasAdd", "", INPUTS(product, b_value)));
    struct node *active = done(n, add(n, "active", "Relu", "", INPUTS(biased)));
    struct node *half =
        done(n, add(n, "half", "Mul", "", INPUTS(constant(n, "a", 0.25f), constant(n, "c", 2))));
    struct node *scaled = done(n, add(n, "scaled", "Mul", "", INPUTS(active, half)));
    struct node *same = done(n, add(n, "same", "Mul", "", INPUTS(active, half)));
    struct node *mixed = done(n, add(n, "mixed", "Maximum", "", INPUTS(scaled, same)));
    struct node *out = done(n, add(n, "out", "AddV2", "", INPUTS(mixed, x)));
    struct node *g = done(n, add(n, "g/scaled", "Mul", "", INPUTS(*gradient, half)));
    struct node *g_active = done(n, add(n, "g/active", "ReluGrad", "", INPUTS(g, active)));
    struct node *g_b = done(n, add(n, "g/b", "BiasAddGrad", "", INPUTS(g_active)));
    struct node *g_w = add(n, "g/w", "MatMul", "", INPUTS(x, g_active));
    node_set_attr_b(&n->graph, g_w, "transpose_a", true);
    done(n, g_w);
    struct node *g_x = add(n, "g/x", "MatMul", "", INPUTS(g_active, w_value));
    node_set_attr_b(&n->graph, g_x, "transpose_b", true);
    *gradient = done(n, g_x);
    done(n, add(n, "update/w", "ResourceApplyGradientDescent", "/job:ps/task:0",
                INPUTS(w, rate, g_w)));
    done(n, add(n, "update/b", "ResourceApplyGradientDescent", "/job:ps/task:0",
                INPUTS(b, rate, g_b)));
    return out;
}

static struct node *make_network(struct network *n, int n_nodes) {
    graph_init(&n->graph);
    n->layer = 0;
    struct node *x = add(n, "x", "Placeholder", "", 0, NULL);
    node_set_attr_shape(&n->graph, x, "shape", (struct shape){2, (int64_t[]){32, width}});
    done(n, x);
    struct node *rate = constant(n, "rate", 0.1f), *gradient = x;
    while (n->graph.n_live < n_nodes) {
        n->layer++;
        x = add_layer(n, x, rate, &gradient);
    }
    n->layer = 0;
    struct node *train = done(n, add(n, "train", "NoOp", "", 0, NULL));
    struct node **updates = xcalloc((size_t)n->graph.n_nodes, sizeof(struct node *));
    int n_updates = 0;
    for (int id = 0; id < n->graph.n_nodes; id++)
        if (node_is_op(n->graph.nodes[id], "ResourceApplyGradientDescent"))
            updates[n_updates++] = n->graph.nodes[id];
    for (int i = 0; i < n_updates; i++)
        node_add_control(&n->graph, train, updates[i]);
    free(updates);
    return x;
}

/* ---- a compilation ---- */

static int64_t processor_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

struct times {
    double total_ms, pass_ms[MAX_PASSES];
    int n_compiled; /* nodes of all partitions */
};

static struct device_table *make_devices(void) {
    struct device_table *table = device_table_new();
    static const char *const tasks[] = {"/job:worker/replica:0/task:0", "/job:ps/replica:0/task:0"};
    for (size_t i = 0; i < ARRAY_LEN(tasks); i++) {
        char name[128];
        snprintf(name, sizeof(name), "%s/device:CPU:0", tasks[i]);
        device_table_add(table, tasks[i], "localhost:1", NULL, 1);
        device_table_add_device(table, name, "CPU", 0, 1, "");
    }
    device_table_finish(table);
    return table;
}

static void compile_once(const struct graph *graph, const struct signature *signature,
                         const struct device_table *devices, struct pool *pool, struct times *ret) {
    struct compile_options options;
    struct compilation c;
    compile_options_default(&options);
    options.verify = false;
    options.recv_scheduling = is_late;
    compilation_init(&c, signature, devices, &options, pool);
    graph_fini(&c.graph);
    int64_t began = processor_ns();
    graph_copy(graph, NULL, &c.graph, NULL);
    *ret = (struct times){0};
    for (size_t i = 0; i < n_compile_passes; i++) {
        bool changed;
        int64_t from = processor_ns();
        check(compilation_run_pass(&c, &compile_passes[i], &changed));
        ret->pass_ms[i] = (double)(processor_ns() - from) / 1e6;
    }
    ret->total_ms = (double)(processor_ns() - began) / 1e6;
    for (int i = 0; i < c.result->n_partitions; i++)
        ret->n_compiled += c.result->partitions[i].graph.n_live;
    compilation_fini(&c);
}

static void bench_size(int n_nodes, int n_rounds, const struct device_table *devices,
                       struct pool *pool) {
    struct network network;
    struct times best = {0}, times;
    struct compile_options options;
    const char *fetch, *feed = "layer_0/x:0", *target = "layer_0/train";
    char name[80];
    struct node *out = make_network(&network, n_nodes);
    snprintf(name, sizeof(name), "%s:0", out->name);
    fetch = name;
    struct signature signature = {.feeds = &feed,
                                  .fetches = &fetch,
                                  .targets = &target,
                                  .n_feeds = 1,
                                  .n_fetches = 1,
                                  .n_targets = 1};
    compile_options_default(&options);
    options.allow_soft_placement = true;
    check(place_session(&network.graph, devices, &options));
    for (int i = 0; i < n_rounds; i++) {
        compile_once(&network.graph, &signature, devices, pool, &times);
        if (i == 0 || times.total_ms < best.total_ms)
            best = times;
    }
    printf("%8d %8d %9.1f %8.2f ", network.graph.n_live, best.n_compiled, best.total_ms,
           1000 * best.total_ms / network.graph.n_live);
    for (size_t i = 0; i < n_compile_passes; i++)
        printf(" %10.1f", best.pass_ms[i]);
    printf("\n");
    fflush(stdout);
    graph_fini(&network.graph);
}

int main(int argc, char **argv) {
    static const int sizes[] = {1000, 10000, 50000, 100000, 200000};
    int n_rounds = 3;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "late") == 0)
            is_late = true;
        else
            n_rounds = MAX((int)strtol(argv[i], NULL, 10), 1);
    width = is_late ? 1024 : width;
    struct device_table *devices = make_devices();
    struct pool *pool = pool_new(0);
    CHECK(n_compile_passes <= MAX_PASSES);
    printf("%8s %8s %9s %8s ", "nodes", "compiled", "ms", "us/node");
    for (size_t i = 0; i < n_compile_passes; i++)
        printf(" %10s", compile_passes[i].name);
    printf("\n");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        bench_size(sizes[i], n_rounds, devices, pool);
    pool_free(pool);
    device_table_unref(devices);
    return 0;
}
