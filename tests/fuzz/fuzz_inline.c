/* Fuzzes inlining: functions of an accepted graph are inlined whole or refused, and the result
 * keeps a graph's invariants. */
#include <stdlib.h>

#include "common/graph/graph_proto.h"
#include "master/compile/compilation.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct status *run(struct compilation *c, struct span bytes,
                          const struct graph_limits *limits, struct signature *signature) {
    bool changed;
    TRY(graph_add_graphdef(&c->graph, bytes, limits));
    signature->targets = arena_array(&c->arena, const char *, c->graph.n_nodes + 1);
    for (int id = 0; id < c->graph.n_nodes; id++)
        signature->targets[signature->n_targets++] = c->graph.nodes[id]->name;
    TRY(compilation_run_pass(c, pass_find("cut"), &changed));
    return compilation_run_pass(c, pass_find("inline"), &changed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct graph_limits limits;
    struct compile_options options;
    struct compilation c;
    struct signature signature = {0};
    struct device_table *devices = device_table_new();
    graph_limits_default(&limits);
    limits.max_tensor_bytes = 16 << 20;
    compile_options_default(&options);
    options.verify = true;
    options.max_inlined_nodes = 5000;
    compilation_init(&c, &signature, devices, &options, NULL);
    struct status *st = run(&c, (struct span){(const char *)data, size}, &limits, &signature);
    CHECK(status_code(st) != STATUS_INTERNAL);
    status_unref(st);
    compilation_fini(&c);
    device_table_unref(devices);
    return 0;
}
