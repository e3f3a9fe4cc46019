/* Tests which steps may run when a save asks for a consistent checkpoint. */
#include "master/session/save_barrier.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/base/clock.h"

enum { N_MEMBERS = 40, N_TASKS = 5 };

static struct save_barrier barrier;
static struct barrier_member members[N_MEMBERS];
static int n_admitted;
static struct barrier_member *leaves_at_once;

static void on_admitted(struct barrier_member *member) {
    n_admitted++;
    if (member == leaves_at_once)
        save_barrier_leave(&barrier, member);
}

static void begin(void) {
    save_barrier_init(&barrier);
    memset(members, 0, sizeof(members));
    for (int i = 0; i < N_MEMBERS; i++)
        members[i].on_admitted = on_admitted;
    n_admitted = 0;
    leaves_at_once = NULL;
}

static bool ask(int i, bool is_save, const int *tasks, int n_tasks) {
    members[i].is_save = is_save;
    members[i].tasks = tasks;
    members[i].n_tasks = n_tasks;
    return save_barrier_enter(&barrier, &members[i], i);
}

static const int both[] = {0, 1}, first[] = {0}, second[] = {1}, other[] = {2};

static void test_steps_alone_never_wait(void **state) {
    begin();
    for (int i = 0; i < N_MEMBERS; i++)
        assert_true(ask(i, false, both, 2));
    for (int i = 0; i < N_MEMBERS; i++)
        save_barrier_leave(&barrier, &members[i]);
    assert_true(list_is_empty(&barrier.running) && list_is_empty(&barrier.waiting));
}

static void test_a_save_waits_for_those_before_and_holds_those_after(void **state) {
    begin();
    assert_true(ask(0, false, first, 1));
    assert_true(ask(1, false, other, 1));
    assert_false(ask(2, true, both, 2));
    assert_false(ask(3, false, second, 1));
    assert_true(ask(4, false, other, 1)); /* nothing of it is saved */
    save_barrier_leave(&barrier, &members[0]);
    assert_int_equal(members[2].state, BARRIER_INSIDE);
    assert_int_equal(members[3].state, BARRIER_WAITING);
    save_barrier_pass(&barrier, &members[2]);
    assert_int_equal(members[2].state, BARRIER_PASSED);
    assert_int_equal(members[3].state, BARRIER_INSIDE); /* while the save writes its files */
    save_barrier_leave(&barrier, &members[2]);
    save_barrier_leave(&barrier, &members[3]);
    assert_int_equal(barrier.n_saves, 0);
}

static void test_a_save_that_ends_without_its_values_lets_others_go_on(void **state) {
    begin();
    assert_true(ask(0, true, both, 2));
    assert_false(ask(1, false, first, 1));
    assert_false(ask(2, true, second, 1));
    save_barrier_leave(&barrier, &members[0]);
    assert_int_equal(n_admitted, 2);
    save_barrier_leave(&barrier, &members[2]); /* one that gives up while it waits, below */
    assert_true(ask(3, true, second, 1));
    assert_false(ask(4, true, both, 2));
    assert_false(ask(5, false, second, 1));
    save_barrier_leave(&barrier, &members[4]);
    assert_int_equal(members[5].state, BARRIER_WAITING);
    save_barrier_pass(&barrier, &members[3]);
    assert_int_equal(members[5].state, BARRIER_INSIDE);
}

static void test_who_is_let_in_may_leave_at_once(void **state) {
    begin();
    assert_true(ask(0, false, first, 1));
    assert_false(ask(1, true, first, 1));
    assert_false(ask(2, false, first, 1));
    leaves_at_once = &members[1];
    save_barrier_leave(&barrier, &members[0]);
    assert_int_equal(members[1].state, BARRIER_OUTSIDE);
    assert_int_equal(members[2].state, BARRIER_INSIDE);
    assert_int_equal(barrier.n_saves, 0);
}

static void test_nobody_is_let_in_while_the_table_is_held(void **state) {
    begin();
    assert_true(ask(0, true, first, 1));
    assert_false(ask(1, false, first, 1));
    assert_false(ask(2, false, first, 1));
    save_barrier_hold(&barrier);
    save_barrier_hold(&barrier);
    save_barrier_leave(&barrier, &members[0]);
    save_barrier_release(&barrier);
    assert_int_equal(members[1].state, BARRIER_WAITING);
    save_barrier_leave(&barrier, &members[1]); /* the next to be ended */
    assert_int_equal(n_admitted, 0);
    save_barrier_release(&barrier);
    assert_int_equal(n_admitted, 1);
    assert_int_equal(members[2].state, BARRIER_INSIDE);
}

static void test_tells_who_has_waited_too_long(void **state) {
    begin();
    assert_true(ask(10, false, first, 1));
    assert_null(save_barrier_overdue(&barrier, 1000, 1));
    assert_false(ask(20, true, first, 1));
    assert_null(save_barrier_overdue(&barrier, 119, 100));
    assert_ptr_equal(save_barrier_overdue(&barrier, 120, 100), &members[20]);
    save_barrier_leave(&barrier, &members[10]);
    assert_ptr_equal(save_barrier_overdue(&barrier, 120, 100),
                     &members[20]); /* it holds others up */
    save_barrier_pass(&barrier, &members[20]);
    assert_null(save_barrier_overdue(&barrier, 120, 100));
}

/* What must hold after every move. */
static void check(void) {
    for (int i = 0; i < N_MEMBERS; i++)
        for (int k = 0; k < N_MEMBERS; k++) {
            const struct barrier_member *a = &members[i], *b = &members[k];
            bool shares = false;
            for (int x = 0; x < a->n_tasks; x++)
                for (int y = 0; y < b->n_tasks; y++)
                    shares = shares || a->tasks[x] == b->tasks[y];
            if (i != k && a->is_save && a->state == BARRIER_INSIDE && b->state == BARRIER_INSIDE)
                assert_false(shares);
        }
    bool has_running = !list_is_empty(&barrier.running);
    if (!has_running)
        assert_true(list_is_empty(&barrier.waiting)); /* somebody may always run */
}

static void test_random_orders_keep_the_rule_and_nobody_is_forgotten(void **state) {
    uint64_t seed = 12345;
    static const int sets[][2] = {{0, 1}, {1, 2}, {3, 3}, {0, 4}, {2, 3}};
    begin();
    for (int round = 0; round < 20000; round++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        struct barrier_member *member = &members[(seed >> 33) % N_MEMBERS];
        unsigned what = (unsigned)(seed >> 50) % 4;
        if (member->state == BARRIER_OUTSIDE) {
            int i = (int)(member - members);
            (void)!ask(i, what == 0, sets[(seed >> 40) % ARRAY_LEN(sets)], 2);
        } else if (member->state == BARRIER_INSIDE && member->is_save && what < 2) {
            save_barrier_pass(&barrier, member);
        } else if (member->state != BARRIER_WAITING || what == 0) {
            save_barrier_leave(&barrier, member);
        }
        check();
    }
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (int i = 0; i < N_MEMBERS; i++)
            if (members[i].state == BARRIER_INSIDE || members[i].state == BARRIER_PASSED) {
                save_barrier_leave(&barrier, &members[i]);
                goes_on = true;
            }
    }
    assert_true(list_is_empty(&barrier.waiting));
    assert_int_equal(barrier.n_saves, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_alone_never_wait),
        cmocka_unit_test(test_a_save_waits_for_those_before_and_holds_those_after),
        cmocka_unit_test(test_a_save_that_ends_without_its_values_lets_others_go_on),
        cmocka_unit_test(test_who_is_let_in_may_leave_at_once),
        cmocka_unit_test(test_nobody_is_let_in_while_the_table_is_held),
        cmocka_unit_test(test_tells_who_has_waited_too_long),
        cmocka_unit_test(test_random_orders_keep_the_rule_and_nobody_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
