/* Tests measured costs: keys, rows, the file, and what traces of sampled steps give. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/splitmix.h"
#include "common/graph/graph_text.h"
#include "common/tensor/tensor_proto.h"
#include "master/compile/cost/cost_rows.h"
#include "master/compile/cost/cost_table.h"
#include "master/compile/place/placement.h"
#include "master/step/cost_samples.h"
#include "rpc/wire/step_messages.h"
#include "tests/unit/master/pass_file.h"
#include "tests/unit/master/test_kernels.h"

static struct cost_table *table;

static int setup(void **state) {
    table = cost_table_new();
    return 0;
}
static int teardown(void **state) {
    cost_table_free(table);
    return 0;
}

/* ---- keys ---- */

/* The key of the text's last node, whose inputs have sizes [a, b]. */
static char *key_of(const char *text, int64_t a, int64_t b, const char *device_type) {
    struct graph graph;
    struct str key = STR_INIT;
    const int64_t dims[] = {a, b};
    const struct shape in[] = {{2, dims}, {2, dims}};
    graph_init(&graph);
    assert_null(graph_parse(text, &graph));
    cost_key_write(&key, device_type, graph.nodes[graph.n_nodes - 1], in);
    graph_fini(&graph);
    return str_detach(&key);
}

static void expect_same(char *a, char *b, bool is_same) {
    if ((strcmp(a, b) == 0) != is_same)
        fail_msg("'%s' and '%s'", a, b);
    free(a);
    free(b);
}

static const char PRODUCT[] = "x = Placeholder() {dtype=float}\n"
                              "p = MatMul(x, x) {T=float}\n";

static void a_key_has_op_type_sizes_and_device(void **state) {
    char *key = key_of(PRODUCT, 100, 64, "CPU");
    assert_ptr_equal(strstr(key, "MatMul float 128x64,128x64 CPU "), key);
    free(key);
}

static void near_sizes_share_a_key(void **state) {
    expect_same(key_of(PRODUCT, 100, 64, "CPU"), key_of(PRODUCT, 128, 33, "CPU"), true);
    expect_same(key_of(PRODUCT, 100, 64, "CPU"), key_of(PRODUCT, 129, 64, "CPU"), false);
    expect_same(key_of(PRODUCT, 1, 0, "CPU"), key_of(PRODUCT, 1, 1, "CPU"), false);
    expect_same(key_of(PRODUCT, 1, 1, "CPU"), key_of(PRODUCT, 1, 1, "GPU"), false);
}

static void attrs_count_names_do_not(void **state) {
    expect_same(key_of(PRODUCT, 8, 8, "CPU"),
                key_of("x = Placeholder() {dtype=float}\n"
                       "q = MatMul(x, x) {T=float, transpose_a=true}\n",
                       8, 8, "CPU"),
                false);
    expect_same(key_of(PRODUCT, 8, 8, "CPU"),
                key_of("y = Placeholder() {dtype=float}\n"
                       "other = MatMul(y, y) {T=float, _class=[\"loc:@y\"]}\n",
                       8, 8, "CPU"),
                true);
    expect_same(key_of(PRODUCT, 8, 8, "CPU"),
                key_of("x = Placeholder() {dtype=double}\n"
                       "p = MatMul(x, x) {T=double}\n",
                       8, 8, "CPU"),
                false);
}

/* ---- rows ---- */

static bool is_about(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

static void times_are_averaged_and_old_ones_fade(void **state) {
    cost_table_note(table, "a", 300, 1);
    cost_table_note(table, "a", 100, 1);
    assert_true(is_about(cost_table_find(table, "a"), 200));
    cost_table_note(table, "a", 1100, 1); /* the first times have equal shares */
    assert_true(is_about(cost_table_find(table, "a"), 500));
    cost_table_note(table, "b", 100, 1000);
    cost_table_note(table, "b", 1700, 1); /* there was other work */
    assert_true(is_about(cost_table_find(table, "b"), 200));
    for (int i = 0; i < 100; i++)
        cost_table_note(table, "b", 1000, 1);
    assert_true(cost_table_find(table, "b") > 990);
    for (int i = 0; i < 20; i++)
        cost_table_note(table, "b", 100, 1);
    assert_true(cost_table_find(table, "b") < 110);
    assert_true(cost_table_find(table, "c") == 0);
    assert_true(cost_table_find(NULL, "a") == 0);
}

static void wrong_times_are_left_out(void **state) {
    const double wrong[] = {0, -1, NAN, INFINITY, 1e12};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        cost_table_note(table, "a", wrong[i], 1);
    cost_table_note(table, "", 1, 1);
    cost_table_note(table, "two\nlines", 1, 1);
    cost_table_note(table, "a", 1, 0);
    assert_int_equal(cost_table_n_rows(table), 0);
}

static void the_table_does_not_grow_without_limit(void **state) {
    for (int i = 0; i < COST_TABLE_MAX_ROWS + 1000; i++) {
        char key[32];
        snprintf(key, sizeof key, "key %d", i);
        cost_table_note(table, key, 1, 1);
    }
    assert_int_equal(cost_table_n_rows(table), COST_TABLE_MAX_ROWS);
    cost_table_note(table, "the last", 5, 1);
    assert_true(cost_table_find(table, "the last") == 5);
}

/* ---- the file ---- */

static void a_file_brings_the_rows_back(void **state) {
    char path[] = "/tmp/millrace-costs-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    assert_null(cost_file_read(table, path)); /* none yet */
    cost_table_note(table, "a b c", 1234.5678, 7);
    cost_table_note(table, "d", 1e10, 1);
    assert_null(cost_file_write(table, path));
    struct cost_table *other = cost_table_new();
    assert_null(cost_file_read(other, path));
    assert_int_equal(cost_table_n_rows(other), 2);
    assert_true(cost_table_find(other, "a b c") == 1234.5678);
    assert_true(cost_table_find(other, "d") == 1e10);
    cost_table_free(other);
    unlink(path);
    struct status *st = cost_file_write(table, "/nowhere/at/all");
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    assert_non_null(strstr(status_message(st), "cannot write cost file /nowhere/at/all"));
    status_unref(st);
}

static void a_full_table_is_printed_as_a_whole(void **state) {
    struct str text = STR_INIT;
    for (int i = 0; i < COST_TABLE_MAX_ROWS; i++) {
        char key[32];
        snprintf(key, sizeof key, "key %d", i);
        cost_table_note(table, key, i + 1, i + 1);
    }
    cost_table_print(table, &text);
    struct cost_table *other = cost_table_new();
    assert_null(cost_table_parse(other, (struct span){text.data, text.len}));
    assert_int_equal(cost_table_n_rows(other), COST_TABLE_MAX_ROWS);
    assert_true(cost_table_find(other, "key 0") == 1);
    assert_true(cost_table_find(other, "key 65535") == 65536);
    assert_non_null(strstr(str_text(&text), "\n4711 4711 key 4710\n"));
    cost_table_free(other);
    str_fini(&text);
}

static void an_empty_table_is_printed(void **state) {
    struct str text = STR_INIT;
    cost_table_print(table, &text);
    assert_string_equal(str_text(&text), "millrace costs 1\n");
    str_fini(&text);
}

static void expect_refused(const char *text, const char *words) {
    struct status *st = cost_table_parse(table, span_of(text));
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    if (!strstr(status_message(st), words))
        fail_msg("'%s' lacks '%s'", status_message(st), words);
    status_unref(st);
    assert_int_equal(cost_table_n_rows(table), 0);
}

static void a_wrong_file_is_refused_as_a_whole(void **state) {
    expect_refused("", "its first line is not 'millrace costs 1'");
    expect_refused("millrace costs 2\n1 1 a\n", "its first line is not");
    expect_refused("millrace costs 1\n1 1 a\n1 1 b", "line 3 is cut off");
    expect_refused("millrace costs 1\n1 1 a\nx 1 b\n", "line 3 is not 'NANOSECONDS COUNT KEY'");
    expect_refused("millrace costs 1\nnan 1 a\n", "line 2");
    expect_refused("millrace costs 1\n1 99999999999999999999 a\n", "line 2");
    expect_refused("millrace costs 1\n1 -1 a\n", "line 2");
    expect_refused("millrace costs 1\n1 1 \n", "line 2");
    expect_refused("millrace costs 1\n1 1 \x01\n", "line 2");
    struct str much = STR_INIT;
    str_add(&much, "millrace costs 1\n");
    for (int i = 0; i <= COST_TABLE_MAX_ROWS; i++)
        str_addf(&much, "1 1 %d\n", i);
    expect_refused(str_text(&much), "more than 65536 rows");
    str_fini(&much);
}

static void bytes_of_any_kind_are_survived(void **state) {
    uint64_t random = 18;
    struct str text = STR_INIT, changed = STR_INIT;
    cost_table_note(table, "a b c", 1234.5678, 7);
    cost_table_note(table, "d", 1e10, 1);
    cost_table_print(table, &text);
    for (int i = 0; i < 20000; i++) {
        str_clear(&changed);
        str_add_bytes(&changed, text.data, text.len);
        changed.data[splitmix64(&random) % changed.len] = (char)splitmix64(&random);
        struct status *st = cost_table_parse(
            table, (struct span){changed.data, splitmix64(&random) % (changed.len + 1)});
        status_unref(st);
    }
    str_fini(&text);
    str_fini(&changed);
}

/* ---- samples ---- */

struct world {
    struct graph graph; /* the compiled graph borrows names from it */
    struct compiled *compiled;
};

/* Compiles a program for a feed "x" and a fetch "far". */
static void world_compile(struct world *world, const char *tasks, const char *program) {
    const char *feeds[] = {"x:0"}, *fetches[] = {"far:0"};
    struct signature signature = {feeds, fetches, NULL, 1, 1, 0};
    struct compile_options options;
    struct device_table *devices = devices_from_text(tasks);
    graph_init(&world->graph);
    compile_options_default(&options);
    options.no_optimizations = true;
    options.costs = table;
    assert_null(graph_parse(program, &world->graph));
    assert_null(place_session(&world->graph, devices, &options));
    assert_null(compile_step(&world->graph, &signature, devices, &options, NULL, &world->compiled));
    device_table_unref(devices);
}

static void world_init(struct world *world, const char *tasks) {
    world_compile(world, tasks,
                  "x = Placeholder() {dtype=float, shape=[64,64]}\n"
                  "near = MatMul(x, x) {T=float} @/job:worker\n"
                  "far = MatMul(near, near) {T=float} @/job:ps\n");
}

static void world_fini(struct world *world) {
    compiled_free(world->compiled);
    graph_fini(&world->graph);
}

/* busy_ns 0: the task does not tell it. */
static void add_timed(struct str *trace, const char *node, uint64_t elapsed_ns, uint64_t busy_ns) {
    struct str stats = STR_INIT, device = STR_INIT;
    proto_add_bytes(&stats, 1, node, strlen(node));
    proto_add_int(&stats, 16, elapsed_ns);
    if (busy_ns > 0)
        proto_add_int(&stats, TRACE_BUSY_NANOS, busy_ns);
    proto_add_bytes(&device, 2, stats.data, stats.len);
    proto_add_bytes(trace, 1, device.data, device.len);
    str_fini(&stats);
    str_fini(&device);
}

static void add_execution(struct str *trace, const char *node, uint64_t elapsed_ns) {
    add_timed(trace, node, elapsed_ns, 0);
}

static const char *key_in(const struct world *world, const char *node) {
    for (int i = 0; i < world->compiled->n_costs; i++)
        if (strcmp(world->compiled->costs[i].node, node) == 0)
            return world->compiled->costs[i].key;
    fail_msg("%s is not measured", node);
    return NULL;
}

/* Both products have one key: the mean of the two is kept, for a device of the usual speed. */
static void traces_become_rows(void **state) {
    struct world world;
    struct str trace = STR_INIT;
    world_init(&world, "worker:0 ps:0*4");
    add_execution(&trace, "near", 1000);
    add_execution(&trace, "near", 3000);
    add_execution(&trace, "far", 8000);
    add_execution(&trace, "nobody", 8000);
    cost_samples_note(world.compiled, &(struct span){trace.data, trace.len}, 1, table);
    const char *key = key_in(&world, "near");
    assert_string_equal(key, key_in(&world, "far"));
    assert_int_equal(cost_table_n_rows(table), 1);
    assert_true(is_about(cost_table_find(table, key), 2000));
    str_fini(&trace);
    world_fini(&world);
}

static void the_time_of_other_work_does_not_count(void **state) {
    struct world world;
    struct str trace = STR_INIT;
    world_init(&world, "worker:0 ps:0");
    add_timed(&trace, "near", 90000, 1000);
    cost_samples_note(world.compiled, &(struct span){trace.data, trace.len}, 1, table);
    assert_true(is_about(cost_table_find(table, key_in(&world, "near")), 1000));
    str_fini(&trace);
    world_fini(&world);
}

/* The host's row of such a node has the time to enqueue it. */
static void other_devices_are_measured_by_their_own_rows(void **state) {
    struct world world;
    struct str trace = STR_INIT;
    test_kernels_add_gpu();
    world_compile(&world, "worker:0+gpu",
                  "x = Placeholder() {dtype=float, shape=[64,64]}\n"
                  "sum = AddV2(x, x) {T=float} @/device:GPU:0\n"
                  "far = Tanh(sum) {T=float} @/device:CPU:0\n");
    const char *key = key_in(&world, "sum:AddV2");
    add_execution(&trace, "sum", 10);
    add_execution(&trace, "sum:AddV2", 5000);
    add_execution(&trace, "far", 300);
    cost_samples_note(world.compiled, &(struct span){trace.data, trace.len}, 1, table);
    assert_int_equal(cost_table_n_rows(table), 2);
    assert_true(is_about(cost_table_find(table, key), 5000));
    assert_true(is_about(cost_table_find(table, key_in(&world, "far")), 300));
    str_fini(&trace);
    world_fini(&world);
}

static void what_waits_is_not_measured(void **state) {
    struct world world;
    world_compile(&world, "worker:0",
                  "x = Placeholder() {dtype=float, shape=[]}\n"
                  "q = FIFOQueueV2() {component_types=[float], shapes=[[]]}\n"
                  "d = QueueDequeueV2(q) {component_types=[float]}\n"
                  "far = AddV2(x, d) {T=float}\n");
    assert_non_null(key_in(&world, "far"));
    for (int i = 0; i < world.compiled->n_costs; i++)
        assert_string_not_equal(world.compiled->costs[i].node, "d");
    world_fini(&world);
}

/* Compiles two products that do not need each other, by cost, for two workers. `present` may be
 * NULL. */
static struct compiled *compile_products(const struct graph *graph,
                                         const struct compiled *present) {
    const char *feeds[] = {"x:0"}, *fetches[] = {"a:0", "b:0"};
    struct signature signature = {feeds, fetches, NULL, 1, 2, 0};
    struct compile_options options;
    struct compiled *compiled;
    struct device_table *devices = devices_from_text("worker:0 worker:1");
    compile_options_default(&options);
    options.no_optimizations = true;
    options.placement = PLACEMENT_COST;
    options.costs = table;
    options.present = present;
    assert_null(compile_step(graph, &signature, devices, &options, NULL, &compiled));
    device_table_unref(devices);
    return compiled;
}

static void the_placer_reads_measured_times(void **state) {
    struct graph graph;
    graph_init(&graph);
    assert_null(graph_parse("x = Placeholder() {dtype=float, shape=[1024,1024]}\n"
                            "a = MatMul(x, x) {T=float, transpose_a=true}\n"
                            "b = MatMul(x, x) {T=float}\n",
                            &graph));
    struct compiled *estimated = compile_products(&graph, NULL);
    assert_int_equal(estimated->n_partitions, 2);
    for (int i = 0; i < estimated->n_costs; i++)
        cost_table_note(table, estimated->costs[i].key, 1000, 1);
    compiled_free(estimated);
    struct compiled *measured = compile_products(&graph, NULL);
    assert_int_equal(measured->n_partitions, 1); /* not worth a transfer */
    compiled_free(measured);
    graph_fini(&graph);
}

/* ---- placing again ---- */

static const char PRODUCTS[] = "x = Placeholder() {dtype=float, shape=[1024,1024]}\n"
                               "a = MatMul(x, x) {T=float, transpose_a=true}\n"
                               "b = MatMul(x, x) {T=float}\n";

static struct graph parse(const char *text) {
    struct graph graph;
    graph_init(&graph);
    assert_null(graph_parse(text, &graph));
    return graph;
}

static struct node_placement *placed_in(const struct compiled *compiled, const char *name) {
    for (int i = 0; i < compiled->n_placed; i++)
        if (strcmp(compiled->placement[i].name, name) == 0)
            return &compiled->placement[i];
    fail_msg("%s was not placed by cost", name);
    return NULL;
}

static void measured_times_contradict_those_of_a_placement(void **state) {
    struct graph graph = parse(PRODUCTS);
    struct compiled *estimated = compile_products(&graph, NULL);
    assert_true(cost_rows_contradiction(estimated, NULL, table) == 0); /* nothing is measured */
    double doubled_ns[2];
    assert_int_equal(estimated->n_costs, 2);
    for (int i = 0; i < 2; i++) {
        doubled_ns[i] = 2 * estimated->costs[i].expected_ns;
        cost_table_note(table, estimated->costs[i].key, doubled_ns[i], 1);
    }
    assert_true(fabs(cost_rows_contradiction(estimated, NULL, table) - 1.0 / 3) < 1e-6);
    assert_true(cost_rows_contradiction(estimated, doubled_ns, table) == 0);
    struct compiled *measured = compile_products(&graph, NULL);
    assert_true(cost_rows_contradiction(measured, NULL, table) == 0);
    compiled_free(measured);
    compiled_free(estimated);
    graph_fini(&graph);
}

static void a_placement_stays_unless_another_one_gains_something(void **state) {
    struct graph graph = parse(PRODUCTS);
    struct compiled *first = compile_products(&graph, NULL);
    struct node_placement *a = placed_in(first, "a"), *b = placed_in(first, "b");
    int on = a->device;
    assert_int_not_equal(a->device, b->device);
    a->device = b->device; /* as good as the placement that the search finds */
    b->device = on;
    struct compiled *second = compile_products(&graph, first);
    assert_int_equal(placed_in(second, "a")->device, a->device);
    assert_int_equal(placed_in(second, "b")->device, b->device);
    struct compiled *third = compile_products(&graph, second);
    assert_true(placements_are_equal(second, third));
    assert_false(placements_are_equal(first, (struct compiled[]){{0}}));
    for (int i = 0; i < second->n_costs; i++)
        cost_table_note(table, second->costs[i].key, 1000, 1);
    struct compiled *together = compile_products(&graph, second); /* not worth a transfer */
    assert_int_equal(placed_in(together, "a")->device, placed_in(together, "b")->device);
    assert_false(placements_are_equal(second, together));
    compiled_free(first);
    compiled_free(second);
    compiled_free(third);
    compiled_free(together);
    graph_fini(&graph);
}

/* The function of a client may have made it, so the session has not placed it. */
static void state_stays_where_it_is(void **state) {
    struct graph graph = parse("x = Placeholder() {dtype=int32, shape=[2]}\n"
                               "r = RandomUniform(x) {T=int32, dtype=float}\n"
                               "a = MatMul(r, r) {T=float}\n"
                               "b = MatMul(r, r) {T=float, transpose_a=true}\n");
    struct compiled *first = compile_products(&graph, NULL);
    for (int device = 0; device < 2; device++) {
        assert_true(placed_in(first, "r")->has_state);
        assert_false(placed_in(first, "a")->has_state);
        placed_in(first, "r")->device = device;
        struct compiled *second = compile_products(&graph, first);
        assert_int_equal(placed_in(second, "r")->device, device);
        compiled_free(second);
    }
    compiled_free(first);
    graph_fini(&graph);
}

static void traces_of_any_bytes_are_survived(void **state) {
    struct world world;
    uint64_t random = 7;
    struct str trace = STR_INIT, changed = STR_INIT;
    world_init(&world, "worker:0 ps:0");
    add_execution(&trace, "near", 1000);
    add_execution(&trace, "far", 1000);
    for (int i = 0; i < 5000; i++) {
        str_clear(&changed);
        str_add_bytes(&changed, trace.data, trace.len);
        changed.data[splitmix64(&random) % changed.len] = (char)splitmix64(&random);
        struct span cut = {changed.data, splitmix64(&random) % (changed.len + 1)};
        cost_samples_note(world.compiled, &cut, 1, table);
    }
    str_fini(&trace);
    str_fini(&changed);
    world_fini(&world);
}

static void sampling_has_a_budget(void **state) {
    struct world world;
    world_init(&world, "worker:0 ps:0");
    int64_t n_nodes = 0;
    for (int i = 0; i < world.compiled->n_partitions; i++)
        n_nodes += world.compiled->partitions[i].graph.n_live;
    int64_t enough_ns = SAMPLE_EVERY * (SAMPLE_STEP_NS + n_nodes * SAMPLE_NODE_NS);
    assert_false(cost_sample_is_due(world.compiled, (struct last_sample){0}, 0));
    assert_false(cost_sample_is_due(world.compiled, (struct last_sample){0}, enough_ns - 1));
    assert_true(cost_sample_is_due(world.compiled, (struct last_sample){0}, enough_ns));
    world_fini(&world);
}

/* The nodes of a loop have a row for each iteration. */
static void long_traces_make_samples_rarer(void **state) {
    enum { N_ROWS = 100000 };
    struct world world;
    world_init(&world, "worker:0 ps:0");
    int64_t enough_ns = SAMPLE_EVERY * (SAMPLE_STEP_NS + (int64_t)N_ROWS * SAMPLE_NODE_NS);
    assert_true(cost_sample_is_due(world.compiled, (struct last_sample){1, 0}, enough_ns - 1));
    assert_false(
        cost_sample_is_due(world.compiled, (struct last_sample){N_ROWS, 0}, enough_ns - 1));
    assert_true(cost_sample_is_due(world.compiled, (struct last_sample){N_ROWS, 0}, enough_ns));
    world_fini(&world);
}

/* On a loaded or a slow machine tracing costs more than is reckoned. */
static void dear_samples_are_rarer(void **state) {
    const struct last_sample dear = {1, INT64_C(1000) * 1000 * 1000};
    struct world world;
    world_init(&world, "worker:0 ps:0");
    assert_false(cost_sample_is_due(world.compiled, dear, SAMPLE_EVERY * dear.ns - 1));
    assert_true(cost_sample_is_due(world.compiled, dear, SAMPLE_EVERY * dear.ns));
    world_fini(&world);
}

static void a_page_lists_at_most_so_many_rows(void **state) {
    struct str page = STR_INIT;
    cost_table_describe(table, 10, &page);
    assert_string_equal(str_text(&page), "[]\n");
    cost_table_note(table, "A \"float\"", 1500, 3);
    str_clear(&page);
    cost_table_describe(table, 10, &page);
    assert_string_equal(str_text(&page),
                        "[{\"key\": \"A \\\"float\\\"\", \"ns\": 1500, \"executions\": 3}]\n");
    cost_table_note(table, "B", 2, 1);
    cost_table_note(table, "C", 3, 1);
    str_clear(&page);
    cost_table_describe(table, 2, &page);
    int n_rows = 0;
    for (const char *at = str_text(&page); (at = strstr(at, "\"key\"")) != NULL; at++)
        n_rows++;
    assert_int_equal(n_rows, 2);
    str_fini(&page);
}

static void a_list_says_what_it_leaves_out(void **state) {
    struct str out = STR_INIT;
    cost_table_describe(table, 2, &out);
    assert_string_equal(str_text(&out), "[]\n");
    for (int i = 0; i < 5; i++) {
        char key[8];
        snprintf(key, sizeof(key), "key%d", i);
        cost_table_note(table, key, 10, 1);
    }
    str_clear(&out);
    cost_table_describe(table, 2, &out);
    assert_non_null(strstr(str_text(&out), "},\n {\"more\": 3}]\n"));
    str_clear(&out);
    cost_table_describe(table, 5, &out);
    assert_null(strstr(str_text(&out), "more"));
    str_fini(&out);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_list_says_what_it_leaves_out),
        TEST(a_key_has_op_type_sizes_and_device),
        TEST(near_sizes_share_a_key),
        TEST(attrs_count_names_do_not),
        TEST(times_are_averaged_and_old_ones_fade),
        TEST(wrong_times_are_left_out),
        TEST(the_table_does_not_grow_without_limit),
        TEST(a_page_lists_at_most_so_many_rows),
        TEST(a_file_brings_the_rows_back),
        TEST(a_full_table_is_printed_as_a_whole),
        TEST(an_empty_table_is_printed),
        TEST(a_wrong_file_is_refused_as_a_whole),
        TEST(bytes_of_any_kind_are_survived),
        TEST(traces_become_rows),
        TEST(the_time_of_other_work_does_not_count),
        TEST(other_devices_are_measured_by_their_own_rows),
        TEST(what_waits_is_not_measured),
        TEST(the_placer_reads_measured_times),
        TEST(measured_times_contradict_those_of_a_placement),
        TEST(a_placement_stays_unless_another_one_gains_something),
        TEST(state_stays_where_it_is),
        TEST(traces_of_any_bytes_are_survived),
        TEST(sampling_has_a_budget),
        TEST(long_traces_make_samples_rarer),
        TEST(dear_samples_are_rarer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
