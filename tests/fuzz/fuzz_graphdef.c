/* Graphs from strangers: every GraphDef is taken as a whole or refused as a whole; what is taken reads the same after writing. */
#include "common/graph/graph_proto.h"
#include "common/graph/graph_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_again(const struct graph *graph, const struct graph_limits *limits) {
    struct str bytes = STR_INIT, text = STR_INIT, text_again = STR_INIT;
    struct graph again;
    graph_to_graphdef(graph, NULL, &bytes);
    graph_init(&again);
    struct status *st = graph_add_graphdef(&again, (struct span){str_text(&bytes), bytes.len}, limits);
    CHECK(st == NULL);
    graph_print(graph, &text);
    graph_print(&again, &text_again);
    CHECK(strcmp(str_text(&text), str_text(&text_again)) == 0);
    graph_fini(&again);
    str_fini(&bytes);
    str_fini(&text);
    str_fini(&text_again);
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
        CHECK(graph.n_live == 0 && graph.n_nodes == 0 && graph.functions.n_entries == 0 && graph.n_gradient_defs == 0);
    else
        read_again(&graph, &limits);
    status_unref(st);
    graph_fini(&graph);
    return 0;
}
