/* Compares the drawings of states in master's headers with the tables that the code checks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "master/cluster/tasks.h"
#include "master/session/executable.h"
#include "master/session/placement_trial.h"
#include "master/session/save_barrier.h"
#include "master/step/step_machine.h"
#include "tests/unit/state_drawing.h"

static void drawings_show_the_tables(void **state) {
    const struct {
        const char *header, *title;
        const struct state_machine *machine;
    } rows[] = {
        {"/master/cluster/tasks.h", "The states of a task", &task_machine},
        {"/master/session/executable.h", "The states of an executable", &executable_machine},
        {"/master/session/save_barrier.h", "The states of a step at the barrier", &barrier_machine},
        {"/master/session/placement_trial.h", "The states of a placement's trial", &trial_machine},
        {"/master/step/step_machine.h", "The states of a step", &step_states},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct str path = STR_INIT;
        str_addf(&path, "%s%s", TEST_SOURCE_ROOT, rows[i].header);
        assert_drawing_is_table(str_text(&path), rows[i].title, rows[i].machine);
        str_fini(&path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawings_show_the_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
