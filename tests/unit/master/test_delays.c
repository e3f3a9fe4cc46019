/* Large values made late (master/compile/partition/pass_delays.c): data/delays.txt, and random
 * graphs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/splitmix.h"
#include "common/graph/graph_text.h"
#include "tests/unit/master/pass_file.h"

static void nodes_are_delayed(void **state) {
    pass_file_run("delays.txt", "cut prune place delays");
}

/* ---- random graphs ---- */

enum { N_GRAPHS = 200 };

static int below(uint64_t *seed, int n) { return (int)(splitmix64(seed) % (uint64_t)n); }

/* Products, Fills and Tiles of any nodes before, some behind a Dequeue or another node. Returns the
 * number of nodes with the prefix "n". */
static int random_graph(uint64_t seed, struct str *text) {
    static const char *const tasks[] = {"/job:worker", "/job:worker", "/job:ps"};
    int n = 20 + below(&seed, 60);
    str_add(text, "queue = FIFOQueueV2() {component_types=[float], shapes=[[512,512]]} @/job:ps\n"
                  "dims = Const() {dtype=int32, value=int32[2]{512, 512}} @/job:ps\n"
                  "half = Const() {dtype=float, value=float[]{0.5}} @/job:ps\n"
                  "n0 = VariableV2() {dtype=float, shape=[512,512]} @/job:worker\n");
    for (int i = 1; i < n; i++) {
        int kind = below(&seed, 12);
        const char *task = tasks[below(&seed, ARRAY_LEN(tasks))];
        if (kind == 0)
            str_addf(text, "n%d = QueueDequeueV2(queue, ^n%d) {component_types=[float]} @/job:ps\n",
                     i, below(&seed, i));
        else if (kind < 4)
            str_addf(text, "n%d = Fill(dims, half) {T=float} @%s\n", i, task);
        else if (kind == 4)
            str_addf(text, "n%d = Fill(dims, half, ^n%d) {T=float} @%s\n", i, below(&seed, i),
                     task);
        else
            str_addf(text, "n%d = MatMul(n%d, n%d) {T=float} @%s\n", i, below(&seed, i),
                     below(&seed, i), task);
    }
    return n;
}

/* By node, over the nodes of a graph in topological order: the Dequeues that it waits for. */
static uint64_t *find_dequeues(const struct graph *graph) {
    struct node **order;
    uint64_t *waits = xcalloc((size_t)graph->n_nodes + 1, sizeof(*waits));
    assert_null(graph_topological_order(graph, &order)); /* there is no cycle */
    for (int i = 0; i < graph->n_live; i++) {
        const struct node *node = order[i];
        for (int k = 0; k < node->n_inputs; k++)
            waits[node->id] |= waits[node->inputs[k].src->id];
        if (node_is_op(node, "QueueDequeueV2"))
            waits[node->id] |= UINT64_C(1) << (node->id % 64);
    }
    free(order);
    return waits;
}

static int count_edges(const struct graph *graph) {
    int n = 0;
    for (int id = 0; id < graph->n_nodes; id++)
        n += graph->nodes[id]->n_inputs;
    return n;
}

/* Returns how many nodes were delayed. */
static int run_random_graph(uint64_t seed) {
    struct compilation c;
    struct compile_options options;
    char name[16];
    const char *target = name;
    struct signature signature = {.targets = &target, .n_targets = 1};
    struct str text = STR_INIT;
    struct device_table *devices = devices_from_text("worker:0 ps:0");
    bool changed;
    compile_options_default(&options);
    options.recv_scheduling = options.verify = true;
    compilation_init(&c, &signature, devices, &options, NULL);
    snprintf(name, sizeof(name), "n%d", random_graph(seed, &text) - 1);
    assert_null(graph_parse(str_text(&text), &c.graph));
    assert_null(compilation_run_pass(&c, pass_find("cut"), &changed));
    assert_null(compilation_run_pass(&c, pass_find("place"), &changed));
    uint64_t *before = find_dequeues(&c.graph);
    int n_edges = count_edges(&c.graph);
    assert_null(compilation_run_pass(&c, pass_find("delays"), &changed));
    uint64_t *after = find_dequeues(&c.graph);
    int n_delayed = count_edges(&c.graph) - n_edges;
    assert_int_equal(changed, n_delayed > 0);
    for (int id = 0; id < c.graph.n_nodes; id++)
        if (!node_is_op(c.graph.nodes[id], "Fill") && before[id] != after[id])
            fail_msg("seed %llu: %s waits for another Dequeue", (unsigned long long)seed,
                     c.graph.nodes[id]->name);
    free(before);
    free(after);
    str_fini(&text);
    compilation_fini(&c);
    device_table_unref(devices);
    return n_delayed;
}

static void nothing_waits_for_itself(void **state) {
    int n_delayed = 0, n_graphs = 0;
    for (uint64_t seed = 1; seed <= N_GRAPHS; seed++) {
        int n = run_random_graph(seed);
        n_delayed += n;
        n_graphs += n > 0;
    }
    print_message("%d delayed nodes in %d of %d graphs\n", n_delayed, n_graphs, N_GRAPHS);
    assert_true(n_graphs > N_GRAPHS / 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_are_delayed),
        cmocka_unit_test(nothing_waits_for_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
