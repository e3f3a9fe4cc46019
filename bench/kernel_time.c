/* kernel_time: how long does one kernel take? The other half of bench/kernels.py, which writes
 * the graph and times TensorFlow.
 *
 *   kernel_time GRAPHDEF NODE N_THREADS MIN_MS
 *
 * Evaluates the inputs of NODE once, then runs its kernel alone, again and again for MIN_MS, in
 * batches of 3 ms, short enough that some of them run undisturbed. N_THREADS counts the calling
 * thread. Prints the least of the batches' means in nanoseconds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/graph/graph_proto.h"
#include "tests/tools/test_host.h"

enum { MAX_INPUTS = 32, BATCH_NS = 3000000 };

static char *read_file(const char *path, size_t *ret_len) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        fprintf(stderr, "kernel_time: cannot read %s\n", path);
        exit(74);
    }
    *ret_len = (size_t)ftell(file);
    rewind(file);
    char *data = xmalloc(*ret_len + 1);
    if (fread(data, 1, *ret_len, file) != *ret_len)
        exit(74);
    fclose(file);
    return data;
}

static void must(struct status *st) {
    if (!st)
        return;
    fprintf(stderr, "kernel_time: %s\n", status_message(st));
    exit(70);
}

static int64_t run_once(const struct kernel_instance *instance, struct test_host *host,
                        struct pool *pool, const struct tensor *inputs) {
    struct tensor in[MAX_INPUTS], out[MAX_INPUTS];
    memset(out, 0, sizeof(out));
    for (int i = 0; i < instance->n_inputs; i++)
        tensor_copy(&in[i], &inputs[i]);
    struct kernel_ctx ctx = {
        .inputs = in, .outputs = out, .instance = instance, .host = &host->host, .pool = pool};
    int64_t began = clock_now_ns();
    enum kernel_result result = instance->compute(&ctx);
    int64_t took = clock_now_ns() - began;
    CHECK(result == KERNEL_DONE);
    must(ctx.status);
    for (int i = 0; i < instance->n_inputs; i++)
        tensor_clear(&in[i]);
    for (int i = 0; i < instance->n_outputs; i++)
        tensor_clear(&out[i]);
    return took;
}

static const struct kernel_instance *prepare(struct test_graph *graph, const char *name,
                                             struct tensor *inputs) {
    struct node *node = NULL;
    for (int i = 0; i < graph->graph.n_nodes; i++) {
        if (strcmp(graph->graph.nodes[i]->name, name) == 0)
            node = graph->graph.nodes[i];
    }
    CHECK(node && node->n_data <= MAX_INPUTS && node->n_outputs <= MAX_INPUTS);
    const char *endpoints[MAX_INPUTS];
    struct str texts[MAX_INPUTS];
    for (int i = 0; i < node->n_data; i++) {
        texts[i] = STR_INIT;
        str_addf(&texts[i], "%s:%d", node->inputs[i].src->name, node->inputs[i].index);
        endpoints[i] = str_text(&texts[i]);
    }
    must(test_graph_run(graph, NULL, 0, endpoints, node->n_data, &name, 1, inputs));
    for (int i = 0; i < node->n_data; i++)
        str_fini(&texts[i]);
    return &graph->instances[node->id];
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: kernel_time GRAPHDEF NODE N_THREADS MIN_MS\n");
        return 64;
    }
    size_t len;
    char *data = read_file(argv[1], &len);
    int n_threads = (int)strtol(argv[3], NULL, 10);
    int64_t budget_ns = strtol(argv[4], NULL, 10) * 1000000;
    struct test_host *host = test_host_new(0);
    struct pool *pool = n_threads > 1 ? pool_new(n_threads) : NULL;
    struct test_graph graph;
    struct graph_limits limits;
    graph_limits_default(&limits);
    test_graph_init(&graph, host);
    must(graph_add_graphdef(&graph.graph, (struct span){data, len}, &limits));
    must(test_graph_prepare(&graph));
    struct tensor inputs[MAX_INPUTS];
    memset(inputs, 0, sizeof(inputs));
    const struct kernel_instance *instance = prepare(&graph, argv[2], inputs);
    double least = INFINITY;
    run_once(instance, host, pool, inputs);
    for (int64_t left_ns = budget_ns; left_ns > 0;) {
        int64_t spent = 0, n = 0;
        for (; n == 0 || spent < BATCH_NS; n++)
            spent += run_once(instance, host, pool, inputs);
        least = fmin(least, (double)spent / (double)n);
        left_ns -= spent;
    }
    printf("%.0f\n", least);
    for (int i = 0; i < instance->n_inputs; i++)
        tensor_clear(&inputs[i]);
    free(data);
    test_graph_fini(&graph);
    pool_free(pool);
    test_host_free(host);
    return 0;
}
