/* Graphs from strangers: every GraphDef is taken as a whole or refused as a whole; what is taken
 * reads the same after writing, and has static shapes. */
#include "common/graph/graph_proto.h"
#include "common/graph/graph_text.h"
#include "kernels/infer_eval.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_again(const struct graph *graph, const struct graph_limits *limits) {
    struct str bytes = STR_INIT, text = STR_INIT, text_again = STR_INIT;
    struct graph again;
    graph_to_graphdef(graph, NULL, &bytes);
    graph_init(&again);
    struct status *st =
        graph_add_graphdef(&again, (struct span){str_text(&bytes), bytes.len}, limits);
    CHECK(st == NULL);
    graph_print(graph, &text);
    graph_print(&again, &text_again);
    CHECK(strcmp(str_text(&text), str_text(&text_again)) == 0);
    graph_fini(&again);
    str_fini(&bytes);
    str_fini(&text);
    str_fini(&text_again);
}

/* Static shapes: all nodes in one go, whatever they claim; refusing comes second, so that both
 * ways see the whole graph. */
static void infer(const struct graph *graph) {
    struct infer_options options;
    infer_options_with_kernels(&options);
    for (int refuses = 0; refuses < 2; refuses++) {
        struct graph_shapes shapes;
        graph_shapes_init(&shapes);
        options.refuses = refuses;
        struct status *st = graph_infer_shapes(graph, &shapes, &options);
        CHECK(st == NULL || (refuses && status_code(st) != STATUS_INTERNAL));
        status_unref(st);
        graph_shapes_fini(&shapes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct graph_limits limits;
    struct graph graph;
    graph_limits_default(&limits);
    limits.max_tensor_bytes = 16 << 20;
    graph_init(&graph);
    struct span bytes = {(const char *)data, size};
    (void)proto_is_too_deep(bytes, limits.max_depth);
    struct status *st = graph_add_graphdef(&graph, bytes, &limits);
    if (st)
        CHECK(graph.n_live == 0 && graph.n_nodes == 0 && graph.functions.n_entries == 0 &&
              graph.n_gradient_defs == 0);
    else
        read_again(&graph, &limits);
    if (!st)
        infer(&graph);
    status_unref(st);
    graph_fini(&graph);
    return 0;
}
