/* The state that kernels of a session keep from graph to graph. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "worker/plan/plan.h"

static const char DEVICE[] = "/job:worker/replica:0/task:0/device:CPU:0";
static const char RANDOM[] =
    "s = Const() {dtype=int32, value=int32[1]{3}} @/job:worker/replica:0/task:0/device:CPU:0\n"
    "r = RandomUniform(s) {T=int32, dtype=float, seed=7} "
    "@/job:worker/replica:0/task:0/device:CPU:0\n";

static struct plan *make_plan_of(const char *text, struct session_state *states) {
    struct device device = {
        .full_name = (char *)DEVICE, .type = "CPU", .allocator = allocator_host()};
    struct plan_options options = {.devices = &device, .n_devices = 1, .session_state = states};
    struct graph graph;
    struct plan *plan = NULL;
    graph_init(&graph);
    assert_null(graph_parse(text, &graph));
    assert_null(plan_new(&graph, &options, &plan));
    graph_fini(&graph);
    return plan;
}

static struct plan *make_plan(struct session_state *states) {
    struct plan *plan = make_plan_of(RANDOM, states);
    assert_int_equal(plan->n_instances, 1);
    return plan;
}

static void graphs_of_a_session_share_a_random_sequence(void **state) {
    struct session_state *states = session_state_new();
    struct plan *first = make_plan(states), *second = make_plan(states);
    assert_ptr_equal(first->instances[0].state, second->instances[0].state);
    plan_unref(first);
    struct plan *third = make_plan(states);
    assert_ptr_equal(third->instances[0].state, second->instances[0].state);
    session_state_unref(states); /* the plans hold on to it */
    plan_unref(second);
    plan_unref(third);
}

static void sessions_have_sequences_of_their_own(void **state) {
    struct session_state *states = session_state_new(), *others = session_state_new();
    struct plan *plan = make_plan(states), *other = make_plan(others), *alone = make_plan(NULL);
    assert_ptr_not_equal(plan->instances[0].state, other->instances[0].state);
    assert_ptr_not_equal(plan->instances[0].state, alone->instances[0].state);
    assert_false(alone->instances[0].is_state_shared);
    plan_unref(plan);
    plan_unref(other);
    plan_unref(alone);
    session_state_unref(states);
    session_state_unref(others);
}

/* Three copies of a function's node, and a node of the client's graph that has the name of one. */
static const char COPIES[] =
    "s = Const() {dtype=int32, value=int32[1]{3}} @/job:worker/replica:0/task:0/device:CPU:0\n"
    "a = RandomUniform(s) {T=int32, dtype=float, seed=7, _state=\"&f:r\"} "
    "@/job:worker/replica:0/task:0/device:CPU:0\n"
    "b = RandomUniform(s) {T=int32, dtype=float, seed=7, _state=\"&f:r\"} "
    "@/job:worker/replica:0/task:0/device:CPU:0\n"
    "c = RandomUniform(s) {T=int32, dtype=float, seed=7, _state=\"&g:r\"} "
    "@/job:worker/replica:0/task:0/device:CPU:0\n"
    "d = RandomUniform(s) {T=int32, dtype=float, seed=7} "
    "@/job:worker/replica:0/task:0/device:CPU:0\n";

static const void *state_of(const struct plan *plan, const char *name) {
    for (uint32_t i = 0; i < plan->n_instances; i++)
        if (strcmp(plan->instances[i].node->name, name) == 0)
            return plan->instances[i].state;
    fail_msg("no node %s", name);
    return NULL;
}

static void copies_of_one_node_share_its_state(void **state) {
    struct session_state *states = session_state_new();
    struct plan *plan = make_plan_of(COPIES, states), *second = make_plan_of(COPIES, states);
    /* as for a function that kernels call: the sharing ends with the plan */
    struct plan *alone = make_plan_of(COPIES, NULL);
    for (const struct plan *p = plan; p; p = p == plan ? alone : NULL) {
        assert_ptr_equal(state_of(p, "a"), state_of(p, "b"));
        assert_ptr_not_equal(state_of(p, "a"), state_of(p, "c"));
        assert_ptr_not_equal(state_of(p, "a"), state_of(p, "d"));
    }
    assert_ptr_equal(state_of(plan, "b"), state_of(second, "a"));
    assert_ptr_equal(state_of(plan, "d"), state_of(second, "d"));
    assert_ptr_not_equal(state_of(plan, "a"), state_of(alone, "a"));
    session_state_unref(states);
    plan_unref(plan);
    plan_unref(alone);
    plan_unref(second);
}

static void values_stay_until_they_are_deleted_or_the_session_ends(void **state) {
    struct session_state *states = session_state_new();
    struct tensor value, found;
    assert_null(
        tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, (const int64_t[]){64}}, &value));
    session_state_put_value(states, "a;1;/d", &value);
    session_state_put_value(states, "a;2;/d", &value);
    assert_false(tensor_is_sole(&value));
    assert_null(session_state_get_value(states, span_of("a;2;/d"), &found));
    assert_ptr_equal(tensor_cdata(&found), tensor_cdata(&value));
    tensor_clear(&found);
    assert_null(session_state_delete_value(states, span_of("a;1;/d")));
    struct status *st = session_state_get_value(states, span_of("a;1;/d"), &found);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(status_message(st), "'a;1;/d'"));
    status_unref(st);
    st = session_state_delete_value(states, span_of("a;1;/d"));
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
    session_state_unref(states);
    assert_true(tensor_is_sole(&value));
    tensor_clear(&value);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_of_a_session_share_a_random_sequence),
        cmocka_unit_test(sessions_have_sequences_of_their_own),
        cmocka_unit_test(copies_of_one_node_share_its_state),
        cmocka_unit_test(values_stay_until_they_are_deleted_or_the_session_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
