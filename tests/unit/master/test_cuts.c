/* Who may run when a save asks for a consistent cut (master/cuts.h). */
#include "master/session/cuts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/base/clock.h"

enum { N_MEMBERS = 40, N_TASKS = 5 };

static struct cuts cuts;
static struct cut_member members[N_MEMBERS];
static int n_let_in;
static struct cut_member *leaves_at_once;

static void on_let_in(struct cut_member *member) {
    n_let_in++;
    if (member == leaves_at_once)
        cuts_leave(&cuts, member);
}

static void begin(void) {
    cuts_init(&cuts);
    memset(members, 0, sizeof(members));
    for (int i = 0; i < N_MEMBERS; i++)
        members[i].on_let_in = on_let_in;
    n_let_in = 0;
    leaves_at_once = NULL;
}

static bool ask(int i, bool is_save, const int *tasks, int n_tasks) {
    members[i].is_save = is_save;
    members[i].tasks = tasks;
    members[i].n_tasks = n_tasks;
    return cuts_ask(&cuts, &members[i], i);
}

static const int both[] = {0, 1}, first[] = {0}, second[] = {1}, other[] = {2};

static void test_steps_alone_never_wait(void **state) {
    begin();
    for (int i = 0; i < N_MEMBERS; i++)
        assert_true(ask(i, false, both, 2));
    for (int i = 0; i < N_MEMBERS; i++)
        cuts_leave(&cuts, &members[i]);
    assert_true(list_is_empty(&cuts.running) && list_is_empty(&cuts.waiting));
}

static void test_a_save_waits_for_those_before_and_holds_those_after(void **state) {
    begin();
    assert_true(ask(0, false, first, 1));
    assert_true(ask(1, false, other, 1));
    assert_false(ask(2, true, both, 2));
    assert_false(ask(3, false, second, 1));
    assert_true(ask(4, false, other, 1)); /* nothing of it is saved */
    cuts_leave(&cuts, &members[0]);
    assert_int_equal(members[2].state, CUT_IN);
    assert_int_equal(members[3].state, CUT_WAITING);
    cuts_taken(&cuts, &members[2]);
    assert_int_equal(members[2].state, CUT_PAST);
    assert_int_equal(members[3].state, CUT_IN); /* while the save writes its files */
    cuts_leave(&cuts, &members[2]);
    cuts_leave(&cuts, &members[3]);
    assert_int_equal(cuts.n_saves, 0);
}

static void test_a_save_that_ends_without_its_values_lets_others_go_on(void **state) {
    begin();
    assert_true(ask(0, true, both, 2));
    assert_false(ask(1, false, first, 1));
    assert_false(ask(2, true, second, 1));
    cuts_leave(&cuts, &members[0]);
    assert_int_equal(n_let_in, 2);
    cuts_leave(&cuts, &members[2]); /* one that gives up while it waits, below */
    assert_true(ask(3, true, second, 1));
    assert_false(ask(4, true, both, 2));
    assert_false(ask(5, false, second, 1));
    cuts_leave(&cuts, &members[4]);
    assert_int_equal(members[5].state, CUT_WAITING);
    cuts_taken(&cuts, &members[3]);
    assert_int_equal(members[5].state, CUT_IN);
}

static void test_who_is_let_in_may_leave_at_once(void **state) {
    begin();
    assert_true(ask(0, false, first, 1));
    assert_false(ask(1, true, first, 1));
    assert_false(ask(2, false, first, 1));
    leaves_at_once = &members[1];
    cuts_leave(&cuts, &members[0]);
    assert_int_equal(members[1].state, CUT_OUT);
    assert_int_equal(members[2].state, CUT_IN);
    assert_int_equal(cuts.n_saves, 0);
}

static void test_nobody_is_let_in_while_the_table_is_held(void **state) {
    begin();
    assert_true(ask(0, true, first, 1));
    assert_false(ask(1, false, first, 1));
    assert_false(ask(2, false, first, 1));
    cuts_hold(&cuts);
    cuts_hold(&cuts);
    cuts_leave(&cuts, &members[0]);
    cuts_go_on(&cuts);
    assert_int_equal(members[1].state, CUT_WAITING);
    cuts_leave(&cuts, &members[1]); /* the next to be ended */
    assert_int_equal(n_let_in, 0);
    cuts_go_on(&cuts);
    assert_int_equal(n_let_in, 1);
    assert_int_equal(members[2].state, CUT_IN);
}

static void test_tells_who_has_waited_too_long(void **state) {
    begin();
    assert_true(ask(10, false, first, 1));
    assert_null(cuts_overdue(&cuts, 1000, 1));
    assert_false(ask(20, true, first, 1));
    assert_null(cuts_overdue(&cuts, 119, 100));
    assert_ptr_equal(cuts_overdue(&cuts, 120, 100), &members[20]);
    cuts_leave(&cuts, &members[10]);
    assert_ptr_equal(cuts_overdue(&cuts, 120, 100), &members[20]); /* it holds others up */
    cuts_taken(&cuts, &members[20]);
    assert_null(cuts_overdue(&cuts, 120, 100));
}

/* What must hold after every move. */
static void check(void) {
    for (int i = 0; i < N_MEMBERS; i++)
        for (int k = 0; k < N_MEMBERS; k++) {
            const struct cut_member *a = &members[i], *b = &members[k];
            bool shares = false;
            for (int x = 0; x < a->n_tasks; x++)
                for (int y = 0; y < b->n_tasks; y++)
                    shares = shares || a->tasks[x] == b->tasks[y];
            if (i != k && a->is_save && a->state == CUT_IN && b->state == CUT_IN)
                assert_false(shares);
        }
    bool has_running = !list_is_empty(&cuts.running);
    if (!has_running)
        assert_true(list_is_empty(&cuts.waiting)); /* somebody may always go on */
}

static void test_random_orders_keep_the_rule_and_nobody_is_forgotten(void **state) {
    uint64_t seed = 12345;
    static const int sets[][2] = {{0, 1}, {1, 2}, {3, 3}, {0, 4}, {2, 3}};
    begin();
    for (int round = 0; round < 20000; round++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        struct cut_member *member = &members[(seed >> 33) % N_MEMBERS];
        unsigned what = (unsigned)(seed >> 50) % 4;
        if (member->state == CUT_OUT) {
            int i = (int)(member - members);
            (void)!ask(i, what == 0, sets[(seed >> 40) % ARRAY_LEN(sets)], 2);
        } else if (member->state == CUT_IN && member->is_save && what < 2) {
            cuts_taken(&cuts, member);
        } else if (member->state != CUT_WAITING || what == 0) {
            cuts_leave(&cuts, member);
        }
        check();
    }
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (int i = 0; i < N_MEMBERS; i++)
            if (members[i].state == CUT_IN || members[i].state == CUT_PAST) {
                cuts_leave(&cuts, &members[i]);
                goes_on = true;
            }
    }
    assert_true(list_is_empty(&cuts.waiting));
    assert_int_equal(cuts.n_saves, 0);
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
