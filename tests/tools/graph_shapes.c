/* graph_shapes: static shapes of GraphDefs, for tests/differential/run_shapes.py. It runs
 * nothing.
 *
 * Requests on stdin, replies on stdout, all numbers 32-bit little-endian; "bytes" is a length
 * and that many bytes.
 *
 *   request  bytes graphdef
 *   reply    length, then: code and bytes message of reading it; if code is 0: code and bytes
 *            message of inference that refuses;
 * microseconds of inference that does not, n_evaluated, n_refused, n_nodes × (bytes name,
 * n_outputs × (bytes shape))
 *
 * A shape is shape_print's text. The process ends at the end of stdin. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/graph/graph_proto.h"
#include "kernels/infer_eval.h"

enum { MAX_REQUEST_BYTES = 1 << 30 };

static void add_u32(struct str *out, uint32_t value) { str_add_bytes(out, &value, 4); }

static void add_bytes(struct str *out, const void *data, size_t len) {
    add_u32(out, (uint32_t)len);
    str_add_bytes(out, data, len);
}

static void add_status_take(struct str *out, struct status *st) {
    add_u32(out, (uint32_t)status_code(st));
    add_bytes(out, status_message(st), strlen(status_message(st)));
    status_unref(st);
}

static void add_refusing(const struct graph *graph, struct infer_options options, struct str *out) {
    struct graph_shapes shapes;
    graph_shapes_init(&shapes);
    options.refuses = true;
    add_status_take(out, graph_infer_shapes(graph, &shapes, &options));
    graph_shapes_fini(&shapes);
}

static void add_shapes(const struct graph *graph, const struct infer_options *options,
                       struct str *out) {
    struct graph_shapes shapes;
    struct str text = STR_INIT;
    graph_shapes_init(&shapes);
    int64_t began = clock_now_ns();
    struct status *st = graph_infer_shapes(graph, &shapes, options);
    add_u32(out, (uint32_t)((clock_now_ns() - began) / 1000));
    add_u32(out, (uint32_t)shapes.n_evaluated);
    add_u32(out, (uint32_t)shapes.n_refused);
    add_u32(out, st ? 0 : (uint32_t)graph->n_nodes);
    for (int id = 0; id < graph->n_nodes && !st; id++) {
        const struct node *node = graph->nodes[id];
        add_bytes(out, node->name, strlen(node->name));
        add_u32(out, (uint32_t)node->n_outputs);
        for (int i = 0; i < node->n_outputs; i++) {
            str_clear(&text);
            shape_print(graph_shapes_of(&shapes, node, i), &text);
            add_bytes(out, str_text(&text), text.len);
        }
    }
    status_unref(st);
    str_fini(&text);
    graph_shapes_fini(&shapes);
}

static void serve(struct span graphdef, struct str *out) {
    struct graph graph;
    struct graph_limits limits;
    struct infer_options options;
    graph_init(&graph);
    graph_limits_default(&limits);
    infer_options_with_kernels(&options);
    struct status *st = graph_add_graphdef(&graph, graphdef, &limits);
    bool is_ok = !st;
    add_status_take(out, st);
    if (is_ok) {
        add_refusing(&graph, options, out);
        add_shapes(&graph, &options, out);
    }
    graph_fini(&graph);
}

int main(void) {
    uint32_t len;
    while (fread(&len, 4, 1, stdin) == 1) {
        if (len > MAX_REQUEST_BYTES)
            return 1;
        char *request = xmalloc((size_t)len + 1);
        bool is_ok = len == 0 || fread(request, len, 1, stdin) == 1;
        struct str out = STR_INIT;
        if (is_ok)
            serve((struct span){request, len}, &out);
        free(request);
        uint32_t reply_len = (uint32_t)out.len;
        is_ok = is_ok && fwrite(&reply_len, 4, 1, stdout) == 1 &&
                fwrite(str_text(&out), out.len, 1, stdout) == 1 && fflush(stdout) == 0;
        str_fini(&out);
        if (!is_ok)
            return 1;
    }
    return 0;
}
