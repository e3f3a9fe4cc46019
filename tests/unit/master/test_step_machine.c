/* The life of a step: every order of events on up to four parts, and the rules of which failure
 * wins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "master/step/step_machine.h"

enum { MAX_PARTS = 4 };

struct fixture {
    struct step_machine machine;
    bool is_running[MAX_PARTS];
};

static void open_machine(struct fixture *f, int n_parts) {
    step_machine_init(&f->machine, n_parts, f->is_running);
}

static struct status *failure(const char *text) { return status_new(STATUS_INTERNAL, "%s", text); }

static void a_step_without_parts_finishes_at_once(void **state) {
    struct fixture f;
    open_machine(&f, 0);
    assert_int_equal(step_machine_start(&f.machine), STEP_FINISH);
    assert_null(f.machine.status);
    step_machine_fini(&f.machine);
}

static void it_finishes_with_its_last_part(void **state) {
    struct fixture f;
    open_machine(&f, 3);
    assert_int_equal(step_machine_start(&f.machine), STEP_NOTHING);
    assert_int_equal(step_machine_part_ended(&f.machine, 1, NULL, false), STEP_NOTHING);
    assert_int_equal(step_machine_part_ended(&f.machine, 0, NULL, false), STEP_NOTHING);
    assert_int_equal(step_machine_part_ended(&f.machine, 2, NULL, false), STEP_FINISH);
    assert_int_equal(f.machine.state, STEP_DONE);
    step_machine_fini(&f.machine);
}

static void the_first_failure_cancels_the_others_and_wins(void **state) {
    struct fixture f;
    open_machine(&f, 3);
    (void)!step_machine_start(&f.machine);
    assert_int_equal(step_machine_part_ended(&f.machine, 1, failure("first"), false),
                     STEP_CANCEL_PARTS);
    assert_int_equal(step_machine_part_ended(&f.machine, 0, failure("second"), false),
                     STEP_NOTHING);
    assert_int_equal(step_machine_part_ended(&f.machine, 2, NULL, false), STEP_FINISH);
    assert_string_equal(status_message(f.machine.status), "first");
    step_machine_fini(&f.machine);
}

static void an_echo_gives_way_to_the_original(void **state) {
    struct fixture f;
    open_machine(&f, 2);
    (void)!step_machine_start(&f.machine);
    assert_int_equal(step_machine_part_ended(&f.machine, 0, failure("echo"), true),
                     STEP_CANCEL_PARTS);
    assert_int_equal(step_machine_part_ended(&f.machine, 1, failure("original"), false),
                     STEP_FINISH);
    assert_string_equal(status_message(f.machine.status), "original");
    step_machine_fini(&f.machine);
}

static void a_cancel_waits_for_the_parts(void **state) {
    struct fixture f;
    open_machine(&f, 2);
    (void)!step_machine_start(&f.machine);
    assert_int_equal(step_machine_cancel(&f.machine, failure("deadline")), STEP_CANCEL_PARTS);
    assert_int_equal(step_machine_cancel(&f.machine, failure("again")), STEP_NOTHING);
    assert_int_equal(step_machine_part_ended(&f.machine, 0, failure("echo"), true), STEP_NOTHING);
    assert_int_equal(step_machine_part_ended(&f.machine, 1, failure("echo"), true), STEP_FINISH);
    assert_string_equal(status_message(f.machine.status), "deadline");
    step_machine_fini(&f.machine);
}

static void a_single_failing_part_finishes_without_a_cancel(void **state) {
    struct fixture f;
    open_machine(&f, 1);
    (void)!step_machine_start(&f.machine);
    assert_int_equal(step_machine_part_ended(&f.machine, 0, failure("alone"), false), STEP_FINISH);
    step_machine_fini(&f.machine);
}

/* Random events, also senseless ones: exactly one FINISH, at most one CANCEL_PARTS, and FINISH
 * only when nothing runs. */
static void any_order_of_events_finishes_once(void **state) {
    uint64_t seed = 42;
    for (int round = 0; round < 20000; round++) {
        struct fixture f;
        int n_parts = (int)(seed >> 33) % (MAX_PARTS + 1), n_finished = 0, n_cancelled = 0;
        open_machine(&f, n_parts);
        unsigned actions = step_machine_start(&f.machine);
        for (int event = 0; event < 64; event++) {
            n_finished += (actions & STEP_FINISH) != 0;
            n_cancelled += (actions & STEP_CANCEL_PARTS) != 0;
            if (actions & STEP_FINISH)
                for (int i = 0; i < n_parts; i++)
                    assert_false(f.is_running[i]);
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            unsigned pick = (unsigned)(seed >> 40);
            if (pick % 7 == 0)
                actions = step_machine_cancel(&f.machine, failure("cancel"));
            else
                actions = step_machine_part_ended(&f.machine, (int)(pick % 6) - 1,
                                                  pick % 3 ? NULL : failure("part"), pick % 2);
        }
        for (int i = 0; i < n_parts; i++) {
            actions = step_machine_part_ended(&f.machine, i, NULL, false);
            n_finished += (actions & STEP_FINISH) != 0;
        }
        assert_int_equal(n_finished, 1);
        assert_true(n_cancelled <= 1);
        assert_int_equal(f.machine.state, STEP_DONE);
        step_machine_fini(&f.machine);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_without_parts_finishes_at_once),
        cmocka_unit_test(it_finishes_with_its_last_part),
        cmocka_unit_test(the_first_failure_cancels_the_others_and_wins),
        cmocka_unit_test(an_echo_gives_way_to_the_original),
        cmocka_unit_test(a_cancel_waits_for_the_parts),
        cmocka_unit_test(a_single_failing_part_finishes_without_a_cancel),
        cmocka_unit_test(any_order_of_events_finishes_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
