/* graph_plan: what a step does that its GPU does not, for tests/cuda/run_networks.py.
 *
 *   graph_plan FILE    FILE is a GraphDef with the nodes "loss" and "step" (tools/gpu/graphs.py)
 *
 * Compiles the step for a task with one GPU, and prints a line for each copy between memories, and
 * one for each node that runs on the CPU:
 *
 *   copy to host|gpu, once|looped, WHY: OP
 *   cpu OP missing|alone
 *
 * WHY is "fetch", "feed", "host argument" or "host result" of an op on the GPU, or "cpu", a node on
 * the CPU at either end. "missing": TensorFlow computes the op on a GPU, with values in its memory,
 * and we do not; "alone": TensorFlow does not either. A copy is one that TensorFlow makes, too, if
 * no node at its ends is missing, since both keep the same arguments in host memory
 * (gpu_rows.h). */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/str.h"
#include "common/graph/internal_ops.h"
#include "kernels/cuda/rows/gpu_rows.h"
#include "tests/tools/step_plan.h"

#define TENSORFLOW "TensorFlow's GPU"
enum { MAX_GRAPH_BYTES = 1 << 30 };

/* The facts alone, as rows of a device type: what TensorFlow computes on a GPU. */
static void add_facts(void) {
    static struct kernel_list list;
    static const struct kernel_list *const lists[] = {&list};
    struct kernel_def *defs = xcalloc(n_gpu_rows, sizeof *defs);
    for (size_t i = 0; i < n_gpu_rows; i++)
        defs[i] = gpu_row_to_def(&gpu_rows[i]);
    list = (struct kernel_list){defs, n_gpu_rows}; /* kept: the registry's */
    kernel_add_device_type(TENSORFLOW, lists, 1);
}

/* Does TensorFlow compute it on a GPU? A node whose values are all in host memory there could be
 * on either. */
static bool is_missing(const struct node *node) {
    const struct kernel_def *def = kernel_find(node, TENSORFLOW);
    bool uses_memory = false;
    for (int i = 0; def && i < node->n_data; i++)
        uses_memory |= !kernel_input_is_on_host(def, node, i);
    for (int i = 0; def && i < node->n_outputs; i++)
        uses_memory |= !kernel_output_is_on_host(def, node, i);
    return uses_memory;
}

static void print_copy(const struct node *copy, const struct node *consumer, bool is_looped) {
    bool is_to_gpu = step_plan_output_is_on_gpu(copy, 0);
    const struct node *other = is_to_gpu ? copy->inputs[0].src : consumer;
    const char *why = is_to_gpu ? "host result" : "host argument";
    if (node_is_op(other, OP_FETCH))
        why = "fetch";
    else if (node_is_op(other, OP_FEED))
        why = "feed";
    else if (!step_plan_is_on_gpu(other))
        why = "cpu";
    printf("copy to %s, %s, %s: %s\n", is_to_gpu ? "gpu" : "host", is_looped ? "looped" : "once",
           why, other->op_name);
}

static void print(const struct graph *graph, const struct plan_frame_map *frames) {
    struct graph_consumers consumers;
    graph_consumers_init(&consumers, graph);
    for (int id = 0; id < graph->n_nodes; id++) {
        const struct node *node = graph->nodes[id];
        if (!node || node->is_removed)
            continue;
        int first = consumers.first[id];
        if (node_is_op(node, OP_COPY) && first < consumers.first[id + 1])
            print_copy(node, consumers.edges[first].dst, frames->frame_of[id] != 0);
        else if (!step_plan_is_on_gpu(node) && !internal_op_find(span_of(node->op_name)))
            printf("cpu %s %s\n", node->op_name, is_missing(node) ? "missing" : "alone");
    }
    graph_consumers_fini(&consumers);
}

static struct status *run(struct span graphdef) {
    struct step_plan plan;
    struct plan_frame_map frames;
    struct status *st = step_plan_init(&plan, graphdef);
    if (!st)
        st = plan_find_frames(plan.graph, &frames);
    if (!st) {
        print(plan.graph, &frames);
        plan_frame_map_fini(&frames);
    }
    step_plan_fini(&plan);
    return st;
}

int main(int argc, char **argv) {
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (!file) {
        fprintf(stderr, "usage: graph_plan FILE\n");
        return 64;
    }
    struct str bytes = STR_INIT;
    char chunk[65536];
    for (size_t n; bytes.len < MAX_GRAPH_BYTES && (n = fread(chunk, 1, sizeof chunk, file)) > 0;)
        str_add_bytes(&bytes, chunk, n);
    fclose(file);
    gpu_add_device_type(NULL, 0);
    add_facts();
    struct status *st = run((struct span){bytes.data, bytes.len});
    if (st)
        fprintf(stderr, "graph_plan: %s\n", status_message(st));
    bool is_good = !st;
    status_unref(st);
    str_fini(&bytes);
    return is_good ? 0 : 1;
}
