/* Tests what measured times of fused programs say of their nodes, with real kernels. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "common/tensor/tensor_proto.h"
#include "master/compile/cost/cost_rows.h"
#include "master/step/cost_samples.h"
#include "tests/unit/master/pass_file.h"

struct world {
    struct cost_table *table;
    struct graph graph; /* the compiled graph borrows names from it */
    struct compiled *compiled;
};

/* Compiles the graph for a feed "x" and a fetch "far". */
static void compile_world(struct world *world, const char *tasks, bool no_optimizations) {
    const char *feeds[] = {"x:0"}, *fetches[] = {"far:0"};
    struct signature signature = {feeds, fetches, NULL, 1, 1, 0};
    struct compile_options options;
    struct device_table *devices = devices_from_text(tasks);
    compile_options_default(&options);
    options.no_optimizations = no_optimizations;
    options.costs = world->table;
    assert_null(place_session(&world->graph, devices, &options));
    assert_null(compile_step(&world->graph, &signature, devices, &options, NULL, &world->compiled));
    device_table_unref(devices);
}

static void world_init(struct world *world, const char *tasks, const char *program,
                       bool no_optimizations) {
    graph_init(&world->graph);
    world->table = cost_table_new();
    assert_null(graph_parse(program, &world->graph));
    compile_world(world, tasks, no_optimizations);
}

static void world_fini(struct world *world) {
    compiled_free(world->compiled);
    graph_fini(&world->graph);
    cost_table_free(world->table);
}

/* The row of the op's only node. */
static const struct compiled_cost *cost_of(const struct world *world, const char *op) {
    for (int i = 0; i < world->compiled->n_costs; i++)
        if (strncmp(world->compiled->costs[i].key, op, strlen(op)) == 0)
            return &world->compiled->costs[i];
    fail_msg("%s is not measured", op);
    return NULL;
}

/* What the node was taken to cost on its device. */
static double expected_ns(const struct world *world, const char *op) {
    return cost_of(world, op)->expected_ns * cost_of(world, op)->slowness;
}

/* On its device. */
static double measured_ns(const struct world *world, const char *op) {
    const struct compiled_cost *cost = cost_of(world, op);
    return cost_table_find(world->table, cost->key) * cost->slowness;
}

static void note_execution(const struct world *world, const char *node, double ns) {
    struct str trace = STR_INIT, stats = STR_INIT, device = STR_INIT;
    proto_add_bytes(&stats, 1, node, strlen(node));
    proto_add_int(&stats, 16, (uint64_t)ns);
    proto_add_bytes(&device, 2, stats.data, stats.len);
    proto_add_bytes(&trace, 1, device.data, device.len);
    cost_samples_note(world->compiled, &(struct span){trace.data, trace.len}, 1, world->table);
    str_fini(&trace);
    str_fini(&stats);
    str_fini(&device);
}

static bool is_about(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(b); }

static const char LAYER[] = "x = Placeholder() {dtype=float, shape=[64,64]}\n"
                            "b = Const() {dtype=float, value=float[1]{1}}\n"
                            "product = MatMul(x, x) {T=float}\n"
                            "sum = AddV2(product, b) {T=float}\n"
                            "far = Relu(sum) {T=float}\n";

/* What the nodes behind a product are estimated to take is the part of the program's time that is
 * not the product's. */
static void a_product_gets_what_the_nodes_behind_it_leave(void **state) {
    struct world world;
    world_init(&world, "worker:0*4", LAYER, false);
    assert_int_equal(world.compiled->n_costs, 3);
    double sum_ns = expected_ns(&world, "AddV2"), relu_ns = expected_ns(&world, "Relu");
    assert_true(sum_ns > 1000 && relu_ns > 1000);
    note_execution(&world, "far", 4e6);
    assert_true(is_about(measured_ns(&world, "MatMul"), 4e6 - sum_ns - relu_ns));
    assert_true(is_about(measured_ns(&world, "AddV2"), sum_ns));
    assert_true(is_about(measured_ns(&world, "Relu"), relu_ns));
    world_fini(&world);
}

/* A program that takes less than its nodes one by one leaves the product its part. */
static void a_short_time_is_divided_by_the_estimates(void **state) {
    struct world world;
    static const char *const ops[] = {"MatMul", "AddV2", "Relu"};
    double all_ns = 0;
    world_init(&world, "worker:0", LAYER, false);
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        all_ns += expected_ns(&world, ops[i]);
    note_execution(&world, "far", floor(all_ns / 2));
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        assert_true(is_about(measured_ns(&world, ops[i]),
                             expected_ns(&world, ops[i]) * floor(all_ns / 2) / all_ns));
    world_fini(&world);
}

/* A program must not replace it by the estimate of its op row. */
static void a_time_that_was_measured_of_a_node_alone_stays(void **state) {
    struct world world;
    world_init(&world, "worker:0", LAYER, false);
    double relu_ns = 5 * expected_ns(&world, "Relu");
    cost_table_note(world.table, cost_of(&world, "Relu")->key,
                    relu_ns / cost_of(&world, "Relu")->slowness, 1);
    compiled_free(world.compiled);
    compile_world(&world, "worker:0", false);
    double sum_ns = expected_ns(&world, "AddV2");
    for (int i = 0; i < 100; i++)
        note_execution(&world, "far", 4e6);
    assert_true(is_about(measured_ns(&world, "Relu"), relu_ns));
    assert_true(is_about(measured_ns(&world, "MatMul"), 4e6 - sum_ns - relu_ns));
    world_fini(&world);
}

static void elementwise_nodes_share_all_of_a_time(void **state) {
    struct world world;
    world_init(&world, "worker:0",
               "x = Placeholder() {dtype=float, shape=[64,64]}\n"
               "t = Tanh(x) {T=float}\n"
               "far = AddV2(t, x) {T=float}\n",
               false);
    note_execution(&world, "far", 1e9);
    assert_true(is_about(measured_ns(&world, "Tanh") + measured_ns(&world, "AddV2"), 1e9));
    assert_true(measured_ns(&world, "Tanh") > 2 * measured_ns(&world, "AddV2"));
    world_fini(&world);
}

static void gathered_rows_and_their_reduction_share_a_time(void **state) {
    struct world world;
    world_init(&world, "worker:0",
               "x = Placeholder() {dtype=float, shape=[1000,64]}\n"
               "ids = Const() {dtype=int32, value=int32[2,2]{1, 2, 3, 4}}\n"
               "zero = Const() {dtype=int32, value=int32[]{0}}\n"
               "one = Const() {dtype=int32, value=int32[1]{1}}\n"
               "rows = GatherV2(x, ids, zero) {Tparams=float, Tindices=int32, Taxis=int32}\n"
               "sums = Sum(rows, one) {T=float, Tidx=int32}\n"
               "far = Tanh(sums) {T=float}\n",
               false);
    assert_int_equal(world.compiled->n_costs, 3);
    assert_string_equal(cost_of(&world, "GatherV2")->node, "sums");
    assert_null(cost_of(&world, "Sum")->node);
    note_execution(&world, "sums", 5000);
    note_execution(&world, "far", 3000);
    assert_true(is_about(measured_ns(&world, "GatherV2") + measured_ns(&world, "Sum"), 5000));
    assert_true(is_about(measured_ns(&world, "Tanh"), 3000));
    world_fini(&world);
}

/* Another placement makes other programs, and the lists must agree (session/replacement.c). */
static void what_becomes_a_program_does_not_change_the_list(void **state) {
    struct world fused, apart;
    world_init(&fused, "worker:0", LAYER, false);
    world_init(&apart, "worker:0", LAYER, true);
    assert_int_equal(fused.compiled->n_costs, 3);
    assert_int_equal(apart.compiled->n_costs, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(fused.compiled->costs[i].key, apart.compiled->costs[i].key);
        assert_non_null(apart.compiled->costs[i].node);
    }
    world_fini(&fused);
    world_fini(&apart);
}

/* For the scheduling of receives. */
static void a_program_has_the_measured_time_of_its_nodes(void **state) {
    const char *feeds[] = {"x:0"}, *fetches[] = {"far:0"};
    const struct signature signature = {feeds, fetches, NULL, 1, 1, 0};
    const char *const passes[] = {"cut", "prune", "place", "fuse", "contract"};
    struct cost_table *table = cost_table_new();
    struct device_table *devices = devices_from_text("worker:0*2");
    struct compile_options options;
    struct compilation c;
    bool changed;
    compile_options_default(&options);
    options.costs = table;
    for (int round = 0; round < 2; round++) {
        compilation_init(&c, &signature, devices, &options, NULL);
        assert_null(graph_parse(LAYER, &c.graph));
        for (size_t i = 0; i < ARRAY_LEN(passes); i++)
            assert_null(compilation_run_pass(&c, pass_find(passes[i]), &changed));
        double ns = cost_rows_program_ns(&c, graph_find(&c.graph, "far")), expected_ns = 0;
        for (int i = 0; i < c.n_costs && round == 1; i++)
            expected_ns += 7000 * c.costs[i].slowness;
        assert_true(is_about(ns, expected_ns)); /* nothing is measured in the first round */
        for (int i = 0; i < c.n_costs; i++)
            cost_table_note(table, c.costs[i].key, 7000, 1);
        compilation_fini(&c);
    }
    device_table_unref(devices);
    cost_table_free(table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_gets_what_the_nodes_behind_it_leave),
        cmocka_unit_test(a_short_time_is_divided_by_the_estimates),
        cmocka_unit_test(a_time_that_was_measured_of_a_node_alone_stays),
        cmocka_unit_test(elementwise_nodes_share_all_of_a_time),
        cmocka_unit_test(gathered_rows_and_their_reduction_share_a_time),
        cmocka_unit_test(what_becomes_a_program_does_not_change_the_list),
        cmocka_unit_test(a_program_has_the_measured_time_of_its_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
