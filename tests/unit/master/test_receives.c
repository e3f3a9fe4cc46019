/* Receives that start late (master/compile/partition/partition_receives.c): data/receives.txt, and
 * random graphs over three tasks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/splitmix.h"
#include "common/graph/graph_text.h"
#include "common/graph/internal_ops.h"
#include "master/compile/partition/partition_model.h"
#include "tests/unit/master/pass_file.h"

enum { N_GRAPHS = 200, N_TASKS = 3, MAX_EDGES = 4096, MAX_NODES = 8192 };

static void receives_are_delayed(void **state) {
    pass_file_run("receives.txt", "cut prune place partition");
}

/* ---- random graphs ---- */

static int below(uint64_t *seed, int n) { return (int)(splitmix64(seed) % (uint64_t)n); }

static const char *task_of(uint64_t *seed) {
    static const char *const tasks[] = {"/job:worker/task:0", "/job:worker/task:1", "/job:ps"};
    return tasks[below(seed, N_TASKS)];
}

/* Variables and a queue, and then products of any two nodes before, some behind a Dequeue and some
 * behind another node; all on random tasks. Returns the number of nodes with the prefix "n". */
static int random_graph(uint64_t seed, struct str *text) {
    int n_sources = 5 + below(&seed, 20), n = n_sources + 20 + below(&seed, 60);
    str_add(text,
            "queue = FIFOQueueV2() {component_types=[float], shapes=[[1024,1024]]} @/job:ps\n");
    for (int i = 0; i < n; i++) {
        int kind = below(&seed, 20);
        if (i < n_sources) {
            const char *task = task_of(&seed);
            str_addf(text, "v%d = VarHandleOp() {dtype=float, shape=[1024,1024]} @%s\n", i, task);
            str_addf(text, "n%d = ReadVariableOp(v%d) {dtype=float} @%s\n", i, i, task);
            continue;
        }
        str_addf(text, "n%d = ", i);
        if (kind == 0)
            str_addf(text, "QueueDequeueV2(queue, ^n%d) {component_types=[float]} @/job:ps\n",
                     below(&seed, i));
        else if (kind < 4)
            str_addf(text, "Tanh(n%d, ^n%d) {T=float} @%s\n", below(&seed, i), below(&seed, i),
                     task_of(&seed));
        else
            str_addf(text, "MatMul(n%d, n%d) {T=float} @%s\n", below(&seed, i), below(&seed, i),
                     task_of(&seed));
    }
    return n;
}

/* The nodes of all partitions, with the way from each Send to its Recv. */
struct whole {
    const struct node *nodes[MAX_NODES];
    int first[N_TASKS]; /* by partition: its first node */
    int sends[MAX_EDGES];
    int n_nodes, n_late;
};

static void number_nodes(const struct compiled *compiled, struct whole *ret) {
    ret->n_nodes = ret->n_late = 0;
    for (int i = 0; i < compiled->n_partitions; i++) {
        const struct graph *graph = &compiled->partitions[i].graph;
        ret->first[i] = ret->n_nodes;
        for (int id = 0; id < graph->n_nodes; id++) {
            const struct node *node = graph->nodes[id];
            if (node_is_op(node, OP_SEND))
                ret->sends[node_attr(node, "edge")->i] = ret->n_nodes;
            ret->n_late += node_attr(node, "_late") != NULL;
            ret->nodes[ret->n_nodes++] = node;
        }
    }
}

/* Ends nodes whose inputs have ended until no more can. */
static int count_ended(const struct compiled *compiled, const struct whole *whole) {
    bool *has_ended = xcalloc((size_t)whole->n_nodes + 1, sizeof(*has_ended));
    int n_ended = 0;
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (int part = 0, at = 0; part < compiled->n_partitions; part++)
            for (int id = 0; id < compiled->partitions[part].graph.n_nodes; id++, at++) {
                const struct node *node = whole->nodes[at];
                bool may_run = !has_ended[at];
                for (int i = 0; i < node->n_inputs; i++)
                    may_run &= has_ended[whole->first[part] + node->inputs[i].src->id];
                if (node_is_op(node, OP_RECV))
                    may_run &= has_ended[whole->sends[node_attr(node, "edge")->i]];
                has_ended[at] |= may_run;
                goes_on |= may_run;
                n_ended += may_run;
            }
    }
    free(has_ended);
    return n_ended;
}

/* ---- the simulated step ---- */

/* The placed graph, as the pass simulates it. */
struct simulated {
    struct partitioner p;
    struct step_model *model;
    struct step_result at_once[STEP_N_WORLDS];
};

static void simulated_init(struct simulated *s, struct compilation *c) {
    struct node **order;
    *s = (struct simulated){.p = {.c = c, .devices = c->devices}};
    assert_null(graph_topological_order(&c->graph, &order));
    loop_frames_init(&s->p.frames, &c->graph, order, c->graph.n_live);
    s->model = step_model_new(&s->p, order);
    free(order);
    for (int id = 0; id < c->graph.n_nodes; id++)
        if (node_is_op(c->graph.nodes[id], "ReadVariableOp"))
            step_model_keep(s->model, c->graph.nodes[id], 0);
    for (int world = 0; world < STEP_N_WORLDS; world++)
        step_model_run(s->model, world, step_model_new_gates(s->model), &s->at_once[world]);
}

static void simulated_fini(struct simulated *s) {
    loop_frames_fini(&s->p.frames);
    step_model_free(s->model);
}

static void gate(const struct simulated *s, int *gates, const struct compiled *compiled, int task,
                 const struct node *recv) {
    char name[32];
    int index;
    assert_int_equal(sscanf(node_attr(recv, "tensor_name")->s.data, "%31[^:]:%d", name, &index), 2);
    step_model_set_gate(s->model, &s->p, gates, graph_find(&compiled->graph, name), index, task,
                        graph_find(&compiled->graph, recv->inputs[0].src->name));
}

/* What the compiled step takes with its late Recvs, beside the same without. */
static void check_step(const struct simulated *s, const struct compiled *compiled, uint64_t seed,
                       double *ret_lowest) {
    int *gates = step_model_new_gates(s->model);
    int n_devices = s->model->problem.n_devices;
    for (int i = 0; i < compiled->n_partitions; i++)
        for (int id = 0; id < compiled->partitions[i].graph.n_nodes; id++)
            if (node_attr(compiled->partitions[i].graph.nodes[id], "_late"))
                gate(s, gates, compiled, compiled->partitions[i].task,
                     compiled->partitions[i].graph.nodes[id]);
    for (int world = 0; world < STEP_N_WORLDS; world++) {
        struct step_result late;
        const struct step_result *at_once = &s->at_once[world];
        step_model_run(s->model, world, gates, &late);
        if (late.makespan_ns > at_once->makespan_ns * 1.01)
            fail_msg("seed %llu, world %d: the step takes %.3f ms, not %.3f",
                     (unsigned long long)seed, world, late.makespan_ns / 1e6,
                     at_once->makespan_ns / 1e6);
        for (int d = 0; d < n_devices; d++) {
            if (late.peak_bytes[d] > at_once->peak_bytes[d] * (1 + 1e-9))
                fail_msg("seed %llu, world %d: device %d needs %.1f MB, not %.1f",
                         (unsigned long long)seed, world, d, late.peak_bytes[d] / 1e6,
                         at_once->peak_bytes[d] / 1e6);
            if (world == 0)
                *ret_lowest = MIN(*ret_lowest, late.peak_bytes[d] / at_once->peak_bytes[d]);
        }
    }
}

/* A late Recv waits for one node. */
static void check_late(const struct node *recv) {
    assert_true(node_is_op(recv, OP_RECV));
    assert_int_equal(recv->n_data, 0);
    assert_int_equal(recv->n_inputs, 1);
}

static int run_random_graph(uint64_t seed, double *ret_lowest) {
    struct compilation c;
    struct simulated simulated;
    struct compile_options options;
    struct signature signature = {0};
    struct str text = STR_INIT;
    struct whole *whole = xcalloc(1, sizeof(*whole));
    struct device_table *devices = devices_from_text("worker:0 worker:1x4 ps:0x2");
    compile_options_default(&options);
    options.recv_scheduling = true;
    options.verify = true;
    compilation_init(&c, &signature, devices, &options, NULL);
    int n = random_graph(seed, &text);
    char name[16];
    const char *target = name;
    snprintf(name, sizeof(name), "n%d", n - 1);
    signature.targets = &target;
    signature.n_targets = 1;
    assert_null(graph_parse(str_text(&text), &c.graph));
    static const char *const passes[] = {"cut", "place", "partition"};
    for (size_t i = 0; i < ARRAY_LEN(passes); i++) {
        bool changed;
        if (strcmp(passes[i], "partition") == 0)
            simulated_init(&simulated, &c);
        assert_null(compilation_run_pass(&c, pass_find(passes[i]), &changed));
    }
    number_nodes(c.result, whole);
    if (count_ended(c.result, whole) != whole->n_nodes)
        fail_msg("seed %llu: nodes wait for each other", (unsigned long long)seed);
    for (int i = 0; i < whole->n_nodes; i++)
        if (node_attr(whole->nodes[i], "_late"))
            check_late(whole->nodes[i]);
    int n_late = whole->n_late;
    *ret_lowest = 1;
    check_step(&simulated, c.result, seed, ret_lowest);
    simulated_fini(&simulated);
    free(whole);
    str_fini(&text);
    compilation_fini(&c);
    device_table_unref(devices);
    return n_late;
}

/* Nothing waits for itself, the step does not take longer, and no device needs more memory. */
static void random_steps_are_as_short_and_need_less_memory(void **state) {
    int n_late = 0, n_graphs = 0;
    double sum = 0;
    for (uint64_t seed = 1; seed <= N_GRAPHS; seed++) {
        double lowest;
        int n = run_random_graph(seed, &lowest);
        n_late += n;
        n_graphs += n > 0;
        sum += n > 0 ? lowest : 0;
        if (n > 0 && lowest > 0.981)
            fail_msg("seed %llu: the least peak is at %.3f", (unsigned long long)seed, lowest);
    }
    assert_true(n_graphs > N_GRAPHS / 10);
    print_message("%d late receives in %d of %d graphs; there one peak is at %.2f in the mean\n",
                  n_late, n_graphs, N_GRAPHS, sum / n_graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receives_are_delayed),
        cmocka_unit_test(random_steps_are_as_short_and_need_less_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
