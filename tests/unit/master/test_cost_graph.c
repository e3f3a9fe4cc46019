/* The cost graph: which steps have one, what it says of nodes, edges and measured times, and traces
 * of any bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "common/base/splitmix.h"
#include "common/graph/graph_text.h"
#include "common/tensor/tensor_proto.h"
#include "master/step/cost_graph.h"
#include "tests/unit/master/pass_file.h"

static const char program[] = "x = Placeholder() {dtype=float}\n"
                              "near = Exp(x) {T=float} @/job:worker\n"
                              "far = Neg(near) {T=float} @/job:ps\n"
                              "later = Neg(far, ^near) {T=float} @/job:ps\n";

struct world {
    struct graph graph; /* the compiled graph borrows names from it */
    struct compiled *compiled;
};

static void world_init(struct world *world) {
    const char *feeds[] = {"x:0"}, *fetches[] = {"later:0"};
    struct signature signature = {feeds, fetches, NULL, 1, 1, 0};
    struct compile_options options;
    struct device_table *devices = devices_from_text("worker:0 ps:0");
    graph_init(&world->graph);
    compile_options_default(&options);
    options.no_optimizations = true;
    assert_null(graph_parse(program, &world->graph));
    assert_null(place_session(&world->graph, devices, &options));
    assert_null(compile_step(&world->graph, &signature, devices, &options, NULL, &world->compiled));
    device_table_unref(devices);
}

static void world_fini(struct world *world) {
    compiled_free(world->compiled);
    graph_fini(&world->graph);
}

/* One execution in a StepStats message, with one output of `n` floats. */
static void add_execution(struct str *trace, const char *node, int64_t elapsed_us, int64_t n) {
    struct str stats = STR_INIT, device = STR_INIT, output = STR_INIT, tensor = STR_INIT,
               bytes = STR_INIT;
    proto_add_int(&bytes, 1, (uint64_t)(n * 4));
    proto_add_int(&tensor, 1, DT_FLOAT);
    proto_add_shape(&tensor, 2, (struct shape){1, &n});
    proto_add_bytes(&tensor, 4, bytes.data, bytes.len);
    proto_add_bytes(&output, 3, tensor.data, tensor.len);
    proto_add_bytes(&stats, 1, node, strlen(node));
    proto_add_int(&stats, 5, (uint64_t)elapsed_us);
    proto_add_bytes(&stats, 7, output.data, output.len);
    proto_add_bytes(&device, 2, stats.data, stats.len);
    proto_add_bytes(trace, 1, device.data, device.len);
    str_fini(&stats);
    str_fini(&device);
    str_fini(&output);
    str_fini(&tensor);
    str_fini(&bytes);
}

/* Prints the node of that name as "id=…, inputs, costs": what the tests compare. */
static void describe(struct span graph, const char *name, struct str *ret) {
    struct proto_field node, field, part;
    while (proto_next(&graph, &node) > 0) {
        struct span fields = node.bytes;
        assert_true(proto_next(&fields, &field) > 0 && field.number == 1);
        if (!span_is(field.bytes, name))
            continue;
        while (proto_next(&fields, &field) > 0) {
            str_addf(ret, "%s%u", ret->len > 0 ? " " : "", field.number);
            if (field.wire_type == 0)
                str_addf(ret, "=%lld", (long long)field.value);
            else if (field.number == 4 || field.number == 5)
                while (proto_next(&field.bytes, &part) > 0)
                    if (part.wire_type == 0)
                        str_addf(ret, ":%lld", (long long)part.value);
                    else
                        str_addf(ret, ":[%zu]", part.bytes.len);
            else
                str_addf(ret, "=%.*s", (int)field.bytes.len, field.bytes.data);
        }
    }
}

static void assert_node(const struct str *graph, const char *name, const char *want) {
    struct str text = STR_INIT;
    describe((struct span){graph->data, graph->len}, name, &text);
    assert_string_equal(str_text(&text), want);
    str_fini(&text);
}

static void each_nth_step_after_the_first_ones(void **state) {
    const struct {
        int64_t every, after;
        const char *due; /* of the steps 0 … 8 */
    } rows[] = {{0, 0, "........."}, {1, 0, "xxxxxxxxx"},  {3, 0, "..x..x..x"}, {3, 2, "....x..x."},
                {2, 5, "......x.x"}, {-1, 0, "........."}, {4, -7, "...x...x."}};
    for (size_t r = 0; r < ARRAY_LEN(rows); r++)
        for (int step = 0; step < 9; step++)
            assert_int_equal(cost_graph_is_due(rows[r].every, rows[r].after, step),
                             rows[r].due[step] == 'x');
}

static void nodes_edges_and_means(void **state) {
    struct world world;
    struct str worker = STR_INIT, ps = STR_INIT, graph = STR_INIT;
    world_init(&world);
    add_execution(&worker, "near", 100, 7);
    add_execution(&ps, "far", 10, 2);
    add_execution(&ps, "far", 30, 5);
    add_execution(&ps, "far", 20, 3);
    add_execution(&ps, "of another program", 20, 3);
    struct span traces[] = {{worker.data, worker.len}, {ps.data, ps.len}};
    cost_graph_write(world.compiled, traces, 2, &graph);
    /* the partition of the worker has ids 0 … 2 */
    assert_node(&graph, "near",
                "2=/job:worker/replica:0/task:0/device:CPU:0 4:1 5:28:-1:[4]:1 9=100");
    assert_node(&graph, "far",
                "2=/job:ps/replica:0/task:0/device:CPU:0 3=3 4:6 5:20:-1:[4]:1 9=20");
    assert_node(&graph, "later",
                "2=/job:ps/replica:0/task:0/device:CPU:0 3=4 4:3 8=6 5:-1:-1:[2]:1");
    assert_node(&graph, "_fetch_later_0", "2=/job:ps/replica:0/task:0/device:CPU:0 3=5 4:4 7=1");
    str_fini(&worker);
    str_fini(&ps);
    str_fini(&graph);
    world_fini(&world);
}

/* A task may send anything as its trace. */
static void broken_traces_are_skipped(void **state) {
    struct world world;
    struct str trace = STR_INIT, whole = STR_INIT;
    uint64_t random = 7;
    world_init(&world);
    add_execution(&trace, "near", 100, 7);
    add_execution(&trace, "far", 10, 2);
    cost_graph_write(world.compiled, NULL, 0, &whole);
    for (int round = 0; round < 2000; round++) {
        struct str graph = STR_INIT;
        char bytes[256];
        size_t len = splitmix64(&random) % (trace.len + 1);
        memcpy(bytes, trace.data, trace.len);
        bytes[splitmix64(&random) % trace.len] = (char)splitmix64(&random);
        cost_graph_write(world.compiled, &(struct span){bytes, len}, 1, &graph);
        assert_true(proto_is_message((struct span){graph.data, graph.len}));
        assert_true(graph.len < whole.len + 100 + trace.len);
        str_fini(&graph);
    }
    str_fini(&trace);
    str_fini(&whole);
    world_fini(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_nth_step_after_the_first_ones),
        cmocka_unit_test(nodes_edges_and_means),
        cmocka_unit_test(broken_traces_are_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
