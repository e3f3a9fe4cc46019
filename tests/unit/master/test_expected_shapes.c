/* Tests what values are taken to measure where their static shapes do not say it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "common/tensor/tensor_proto.h"
#include "master/compile/cost/cost_estimate.h"
#include "master/compile/cost/cost_rows.h"
#include "master/compile/cost/expected_shapes.h"
#include "master/step/cost_samples.h"
#include "tests/unit/master/pass_file.h"

static struct cost_table *table;

static int setup(void **state) {
    table = cost_table_new();
    return 0;
}
static int teardown(void **state) {
    cost_table_free(table);
    return 0;
}

struct world {
    struct graph graph; /* the compiled graph borrows names from it */
    struct device_table *devices;
    struct compile_options options;
    struct compiled *compiled;
};

static const char *const feeds[] = {"x:0"}, *const fetches[] = {"far:0"};
static const struct signature signature = {
    (const char **)feeds, (const char **)fetches, NULL, 1, 1, 0};

static void world_init(struct world *world, const char *program) {
    *world = (struct world){.devices = devices_from_text("worker:0")};
    graph_init(&world->graph);
    compile_options_default(&world->options);
    world->options.no_optimizations = true;
    world->options.costs = table;
    assert_null(graph_parse(program, &world->graph));
    assert_null(place_session(&world->graph, world->devices, &world->options));
}

static void world_compile(struct world *world) {
    compiled_free(world->compiled);
    assert_null(compile_step(&world->graph, &signature, world->devices, &world->options, NULL,
                             &world->compiled));
}

static void world_fini(struct world *world) {
    compiled_free(world->compiled);
    graph_fini(&world->graph);
    device_table_unref(world->devices);
}

/* The shape that output 0 of a node of the cut graph is taken to have. */
static void expect_shape(struct world *world, const char *node, const char *shape) {
    struct compilation c;
    bool changed;
    compilation_init(&c, &signature, world->devices, &world->options, NULL);
    graph_copy(&world->graph, NULL, &c.graph, NULL);
    assert_null(compilation_run_pass(&c, pass_find("cut"), &changed));
    const struct graph_shapes *shapes = expected_shapes(&c);
    struct str text = STR_INIT;
    shape_print(graph_shapes_of(shapes, graph_find(&c.graph, node), 0), &text);
    assert_string_equal(str_text(&text), shape);
    str_fini(&text);
    compilation_fini(&c);
}

/* Feeds a value of these sizes in a sampled step. */
static void note_feed(struct world *world, int rank, const int64_t *dims) {
    struct tensor feed;
    const bool is_passed_on = false;
    world_compile(world);
    assert_null(tensor_new_zeroed(allocator_host(), DT_FLOAT, (struct shape){rank, dims}, &feed));
    cost_samples_note_feeds(world->compiled, &feed, &is_passed_on, table);
    tensor_clear(&feed);
}

/* NodeExecStats {node_name 1, output 7 {slot 1, tensor_description 3 {shape 2}}, nanoseconds 16} */
static void note_value(struct world *world, const char *node, int rank, const int64_t *dims,
                       uint64_t slot, uint64_t ns) {
    struct str trace = STR_INIT, stats = STR_INIT, device = STR_INIT, output = STR_INIT,
               description = STR_INIT;
    world_compile(world);
    proto_add_shape(&description, 2, (struct shape){rank, dims});
    proto_add_int(&output, 1, slot);
    proto_add_bytes(&output, 3, description.data, description.len);
    proto_add_bytes(&stats, 1, node, strlen(node));
    proto_add_bytes(&stats, 7, output.data, output.len);
    if (ns > 0)
        proto_add_int(&stats, 16, ns);
    proto_add_bytes(&device, 2, stats.data, stats.len);
    proto_add_bytes(&trace, 1, device.data, device.len);
    cost_samples_note(world->compiled, &(struct span){trace.data, trace.len}, 1, table);
    str_fini(&trace);
    str_fini(&stats);
    str_fini(&device);
    str_fini(&output);
    str_fini(&description);
}

static const char *key_in(struct world *world, const char *node) {
    world_compile(world);
    for (int i = 0; i < world->compiled->n_costs; i++)
        if (strcmp(world->compiled->costs[i].node, node) == 0)
            return world->compiled->costs[i].key;
    fail_msg("%s is not measured", node);
    return NULL;
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* ---- feeds ---- */

static const char LAYER[] = "x = Placeholder() {dtype=float, shape=[?,8,8]}\n"
                            "flat = Const() {dtype=int32, value=int32[2]{-1,64}}\n"
                            "rows = Reshape(x, flat) {T=float, Tshape=int32}\n"
                            "w = Placeholder() {dtype=float, shape=[64,16]}\n"
                            "sum = MatMul(rows, w) {T=float}\n"
                            "far = Relu(sum) {T=float}\n";

static void a_batch_is_guessed_once(void **state) {
    struct world world;
    world_init(&world, LAYER);
    expect_shape(&world, "rows", "[32,64]");
    expect_shape(&world, "far", "[32,16]");
    world_compile(&world);
    assert_int_equal(world.compiled->n_sizes, 1);
    assert_int_equal(world.compiled->sizes[0].feed, 0);
    assert_true(begins(key_in(&world, "sum"), "MatMul float ?x64,64x16 CPU "));
    world_fini(&world);
}

static void a_measured_batch_is_that_of_the_nodes_behind_it(void **state) {
    struct world world;
    world_init(&world, LAYER);
    note_feed(&world, 3, (const int64_t[]){500, 8, 8});
    assert_int_equal(cost_table_n_rows(table), 1);
    expect_shape(&world, "rows", "[500,64]");
    expect_shape(&world, "far", "[500,16]");
    assert_true(begins(key_in(&world, "sum"), "MatMul float 512x64,64x16 CPU "));
    world_fini(&world);
}

static void batches_are_averaged(void **state) {
    struct world world;
    world_init(&world, LAYER);
    note_feed(&world, 3, (const int64_t[]){100, 8, 8});
    note_feed(&world, 3, (const int64_t[]){300, 8, 8});
    expect_shape(&world, "far", "[200,16]");
    for (int i = 0; i < 100; i++)
        note_feed(&world, 3, (const int64_t[]){1000, 8, 8});
    expect_shape(&world, "far", "[1000,16]");
    world_fini(&world);
}

static void an_empty_batch_counts_as_one_row(void **state) {
    struct world world;
    world_init(&world, LAYER);
    note_feed(&world, 3, (const int64_t[]){0, 8, 8});
    expect_shape(&world, "far", "[1,16]");
    world_fini(&world);
}

static void other_ranks_are_not_those_of_the_graph(void **state) {
    struct world world;
    world_init(&world, LAYER);
    note_feed(&world, 2, (const int64_t[]){500, 64});
    assert_int_equal(cost_table_n_rows(table), 0);
    world_fini(&world);
}

static void a_placeholder_of_any_shape_is_measured_whole(void **state) {
    struct world world;
    world_init(&world, "x = Placeholder() {dtype=float}\n"
                       "far = Relu(x) {T=float}\n");
    expect_shape(&world, "far", "[32]");
    note_feed(&world, 3, (const int64_t[]){7, 1, 2000});
    assert_int_equal(cost_table_n_rows(table), 4);
    expect_shape(&world, "far", "[7,1,2000]");
    cost_table_free(table);
    world.options.costs = table = cost_table_new();
    note_feed(&world, 0, NULL);
    expect_shape(&world, "far", "[]");
    world_fini(&world);
}

/* The time that is known is better than an estimate, until there is one of that size. */
static void times_of_unknown_sizes_count_until_the_size_has_one(void **state) {
    struct world world;
    world_init(&world, LAYER);
    note_value(&world, "sum", 2, (const int64_t[]){500, 16}, 0, 7000);
    note_feed(&world, 3, (const int64_t[]){500, 8, 8});
    const char *key = key_in(&world, "sum");
    assert_true(cost_table_find(table, key) == 0);
    for (int i = 0; i < world.compiled->n_costs; i++)
        if (strcmp(world.compiled->costs[i].node, "sum") == 0) {
            assert_true(world.compiled->costs[i].is_measured);
            assert_true(world.compiled->costs[i].expected_ns == 7000);
        }
    cost_table_note(table, key, 9000, 1);
    world_compile(&world);
    for (int i = 0; i < world.compiled->n_costs; i++)
        if (strcmp(world.compiled->costs[i].node, "sum") == 0)
            assert_true(world.compiled->costs[i].expected_ns == 9000);
    world_fini(&world);
}

/* ---- values whose sizes depend on other values ---- */

static const char FOUND[] = "x = Placeholder() {dtype=float, shape=[64]}\n"
                            "where = Where(x) {T=float}\n"
                            "far = GatherNd(x, where) {Tparams=float, Tindices=int64}\n";

static void a_size_that_depends_on_values_is_measured_in_the_step(void **state) {
    struct world world;
    world_init(&world, FOUND);
    expect_shape(&world, "far", "[32]");
    note_value(&world, "where", 2, (const int64_t[]){48, 1}, 0, 0);
    expect_shape(&world, "where", "[48,1]");
    expect_shape(&world, "far", "[48]");
    world_fini(&world);
}

static void what_is_static_stays(void **state) {
    struct world world;
    world_init(&world, FOUND);
    note_value(&world, "where", 2, (const int64_t[]){48, 5}, 0, 0);
    expect_shape(&world, "where", "[48,1]");
    expect_shape(&world, "x", "[64]");
    world_fini(&world);
}

static void other_outputs_and_unknown_ranks_are_left_out(void **state) {
    struct world world;
    world_init(&world, FOUND);
    note_value(&world, "where", 2, (const int64_t[]){48, 1}, 1, 0);
    note_value(&world, "where", SHAPE_UNKNOWN_RANK, NULL, 0, 0);
    note_value(&world, "where", 2, (const int64_t[]){-1, 1}, 0, 0);
    assert_int_equal(cost_table_n_rows(table), 0);
    world_fini(&world);
}

static void outputs_of_a_node_have_one_batch(void **state) {
    static const char pair[] = "x = Placeholder() {dtype=float, shape=[]}\n"
                               "q = FIFOQueueV2() {component_types=[float,float]}\n"
                               "d = QueueDequeueV2(q) {component_types=[float,float]}\n"
                               "images = EnsureShape(d) {T=float, shape=[?,4]}\n"
                               "labels = EnsureShape(d:1) {T=float, shape=[?]}\n"
                               "count = Size(labels) {T=float, out_type=int32}\n"
                               "far = AddN(x, x) {T=float, N=2}\n";
    struct world world;
    world_init(&world, pair);
    expect_shape(&world, "images", "[32,4]");
    note_value(&world, "d", 2, (const int64_t[]){90, 4}, 0, 0);
    world_fini(&world);
}

/* A loop's value has the shape with which it enters. */
static void loops_keep_the_shape_of_what_enters(void **state) {
    struct world world;
    world_init(&world, "x = Placeholder() {dtype=float, shape=[?,8]}\n"
                       "enter = Enter(x) {T=float, frame_name=\"f\"}\n"
                       "merge = Merge(enter, next) {T=float, N=2}\n"
                       "small = Const() {dtype=bool, value=bool[]{false}}\n"
                       "in = Enter(small) {T=bool, frame_name=\"f\", is_constant=true}\n"
                       "cond = LoopCond(in)\n"
                       "switch = Switch(merge, cond) {T=float}\n"
                       "body = Relu(switch:1) {T=float}\n"
                       "next = NextIteration(body) {T=float}\n"
                       "far = Exit(switch) {T=float}\n");
    expect_shape(&world, "far", "[32,8]");
    note_feed(&world, 2, (const int64_t[]){600, 8});
    expect_shape(&world, "body", "[600,8]");
    expect_shape(&world, "far", "[600,8]");
    world_fini(&world);
}

/* ---- what it is for ---- */

static void a_value_takes_what_was_measured_of_it(void **state) {
    struct world world;
    struct compilation c;
    struct cost_estimates estimates;
    bool changed;
    world_init(&world, LAYER);
    note_feed(&world, 3, (const int64_t[]){500, 8, 8});
    compilation_init(&c, &signature, world.devices, &world.options, NULL);
    graph_copy(&world.graph, NULL, &c.graph, NULL);
    assert_null(compilation_run_pass(&c, pass_find("cut"), &changed));
    cost_estimates_init(&estimates, &c, &c.arena);
    assert_true(cost_estimate_bytes(&estimates, graph_find(&c.graph, "sum"), 0) == 500 * 16 * 4);
    assert_true(cost_estimate_bytes(&estimates, graph_find(&c.graph, "rows"), 0) == 500 * 64 * 4);
    compilation_fini(&c);
    world_fini(&world);
}

/* A cost file may say anything. */
static void absurd_sizes_are_survived(void **state) {
    static const double sizes[] = {1, 1e3, 1e11, 0.4, 255, 256, 1e9};
    struct world world;
    world_init(&world, "x = Placeholder() {dtype=float}\n"
                       "y = MatMul(x, x) {T=float}\n"
                       "far = Relu(y) {T=float}\n");
    world_compile(&world);
    const char *key = world.compiled->sizes[0].key;
    char *beginning = xstrdup(key);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (int dim = COST_RANK; dim < 3; dim++) {
            struct str row = STR_INIT;
            str_add(&row, beginning);
            cost_size_key_end(&row, dim);
            cost_table_note(table, str_text(&row), sizes[i], COST_MAX_COUNT);
            world_compile(&world);
            str_fini(&row);
        }
    free(beginning);
    world_fini(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_batch_is_guessed_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_measured_batch_is_that_of_the_nodes_behind_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(batches_are_averaged, setup, teardown),
        cmocka_unit_test_setup_teardown(an_empty_batch_counts_as_one_row, setup, teardown),
        cmocka_unit_test_setup_teardown(other_ranks_are_not_those_of_the_graph, setup, teardown),
        cmocka_unit_test_setup_teardown(a_placeholder_of_any_shape_is_measured_whole, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(times_of_unknown_sizes_count_until_the_size_has_one, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_size_that_depends_on_values_is_measured_in_the_step,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_static_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(other_outputs_and_unknown_ranks_are_left_out, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(outputs_of_a_node_have_one_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(loops_keep_the_shape_of_what_enters, setup, teardown),
        cmocka_unit_test_setup_teardown(a_value_takes_what_was_measured_of_it, setup, teardown),
        cmocka_unit_test_setup_teardown(absurd_sizes_are_survived, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
