/* The ring of a task's last steps: what it keeps, what it overwrites, and what it costs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>

#include "worker/service/step_ring.h"

enum { RING_BYTES = 8 << 10, MAX_ROWS = 200 };

/* Rows of one kernel's node, of 1 to n microseconds. */
struct fixture {
    struct step_ring *ring;
    struct node node;
    struct plan_node plan_node;
    struct node_stats rows[MAX_ROWS];
    struct step_stats stats;
};

static int set_up(void **state) {
    struct fixture *f = xcalloc(1, sizeof *f);
    f->ring = step_ring_new(RING_BYTES);
    f->node = (struct node){.name = "layer/product", .op_name = "MatMul"};
    f->plan_node = (struct plan_node){.kind = PLAN_KERNEL, .node = &f->node};
    for (int i = 0; i < MAX_ROWS; i++)
        f->rows[i] = (struct node_stats){.node = &f->plan_node,
                                         .start_ns = 1000 * i,
                                         .end_ns = 1000 * i + 1000 * (i + 1),
                                         .output = {.size_bytes = i}};
    f->stats = (struct step_stats){.nodes = f->rows};
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    step_ring_free(f->ring);
    free(f);
    return 0;
}

static void add(struct fixture *f, uint64_t step_id, uint64_t master, size_t n_rows) {
    f->stats.n_nodes = n_rows;
    step_ring_add(f->ring,
                  &(struct step_ring_step){
                      .step_id = step_id, .master_incarnation = master, .run_ns = (int64_t)step_id},
                  0, &f->stats);
}

static void it_gives_back_what_it_was_given(void **state) {
    struct fixture *f = *state;
    struct step_ring_copy copy;
    struct step_ring_row row;
    add(f, 7, 1, 3);
    step_ring_copy(f->ring, 1, NULL, 10, &copy);
    assert_int_equal(copy.n, 1);
    assert_int_equal(copy.steps[0]->step_id, 7);
    assert_int_equal(copy.steps[0]->n_rows, 3);
    size_t cursor = 0;
    for (int i = 0; i < 3; i++) {
        assert_true(step_ring_next(copy.steps[0], &cursor, &row));
        assert_true(span_is(row.name, "layer/product") && span_is(row.op, "MatMul"));
        assert_int_equal(row.kind, STEP_RING_NODE);
        assert_int_equal(row.start_ns, 1000 * i);
        assert_int_equal(row.duration_ns, 1000 * (i + 1));
        assert_int_equal(row.size_bytes, i);
    }
    assert_false(step_ring_next(copy.steps[0], &cursor, &row));
    step_ring_copy_free(&copy);
}

/* Steps of all sizes, many times around the ring: the newest are always there, in order, whole. */
static void the_oldest_are_overwritten(void **state) {
    struct fixture *f = *state;
    srand(4);
    for (uint64_t id = 1; id <= 5000; id++) {
        struct step_ring_copy copy;
        add(f, id, 1, (size_t)rand() % 12);
        step_ring_copy(f->ring, 0, NULL, 1000, &copy);
        assert_true(copy.n >= 1 && (id < 8 || copy.n >= 6));
        for (int i = 0; i < copy.n; i++) {
            size_t cursor = 0;
            struct step_ring_row row;
            uint32_t n = 0;
            assert_int_equal(copy.steps[i]->step_id, id - (uint64_t)i);
            assert_int_equal(copy.steps[i]->run_ns, id - (uint64_t)i);
            for (; step_ring_next(copy.steps[i], &cursor, &row); n++)
                assert_int_equal(row.duration_ns, 1000 * (n + 1));
            assert_int_equal(n, copy.steps[i]->n_rows);
        }
        step_ring_copy_free(&copy);
    }
}

static void a_large_step_leaves_rows_out_and_says_so(void **state) {
    struct fixture *f = *state;
    struct step_ring_copy copy;
    add(f, 1, 1, 2);
    add(f, 2, 1, MAX_ROWS);
    step_ring_copy(f->ring, 0, NULL, 10, &copy);
    assert_int_equal(copy.n, 2);
    assert_true(copy.steps[0]->n_rows > 5);
    assert_int_equal(copy.steps[0]->n_rows + copy.steps[0]->n_left_out, MAX_ROWS);
    assert_int_equal(copy.steps[1]->n_rows, 2);
    step_ring_copy_free(&copy);
}

static void a_master_sees_its_own_steps_and_those_that_it_names(void **state) {
    struct fixture *f = *state;
    struct step_ring_copy copy;
    const uint64_t ids[] = {2, 9, 4};
    for (uint64_t id = 1; id <= 4; id++)
        add(f, id, 1 + id % 2, 1);
    step_ring_copy(f->ring, 1, ids, 3, &copy);
    assert_int_equal(copy.n, 2);
    assert_int_equal(copy.steps[0]->step_id, 4);
    assert_int_equal(copy.steps[1]->step_id, 2);
    step_ring_copy_free(&copy);
    step_ring_copy(f->ring, 2, ids, 3, &copy);
    assert_int_equal(copy.n, 0);
    step_ring_copy_free(&copy);
    step_ring_copy(f->ring, 0, NULL, 3, &copy);
    assert_int_equal(copy.n, 3);
    step_ring_copy_free(&copy);
}

/* Recording nodes costs a fixed part of a graph's time, whatever its nodes are. */
static void what_nodes_take_decides_whether_they_are_timed(void **state) {
    struct fixture *f = *state;
    for (int64_t run_ns = 1000; run_ns <= 100000000; run_ns *= 10) {
        for (uint64_t n_nodes = 3; n_nodes <= 300000; n_nodes *= 10) {
            _Atomic int64_t credit_ns = 0;
            int64_t n_timed = 0, n_runs = 2000;
            for (int64_t i = 0; i < n_runs; i++) {
                n_timed += step_ring_level(f->ring, &credit_ns, n_nodes) == EXECUTION_STATS_NODES;
                step_ring_earn(&credit_ns, run_ns);
            }
            int64_t cost_ns = (int64_t)n_nodes * STEP_RING_NODE_NS;
            assert_true(n_timed * cost_ns <= n_runs * run_ns / STEP_RING_EARNS);
            if (cost_ns <= run_ns / STEP_RING_EARNS)
                assert_int_equal(n_timed, n_runs - 1);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_gives_back_what_it_was_given, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_oldest_are_overwritten, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_large_step_leaves_rows_out_and_says_so, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_master_sees_its_own_steps_and_those_that_it_names, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_nodes_take_decides_whether_they_are_timed, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
