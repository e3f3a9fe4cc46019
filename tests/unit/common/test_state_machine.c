/* The state machine: allowed moves, what ends the process and with which words, the table as text
 * and its comparison with a drawing. */
#include "common/base/state_machine.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/state_drawing.h"

enum door_state { DOOR_OPEN, DOOR_CLOSED, DOOR_LOCKED };

struct door {
    uint8_t state;
    bool has_key;
};

static const char *broken_door(const void *object) {
    const struct door *door = object;
    return door->state == DOOR_LOCKED && !door->has_key ? "it has no key" : NULL;
}

/* The states of a door:
 *
 *   (new)  -> OPEN
 *   OPEN   -> CLOSED    somebody closes it
 *   CLOSED -> OPEN      somebody opens it
 *          -> LOCKED    somebody turns the key
 *   LOCKED -> CLOSED
 *
 * What follows is no part of the drawing: OPEN -> LOCKED. */
static const struct state_row door_rows[] = {
    [DOOR_OPEN] = {"OPEN", STATE_SET(DOOR_CLOSED), .is_first = true},
    [DOOR_CLOSED] = {"CLOSED", STATE_SET(DOOR_OPEN) | STATE_SET(DOOR_LOCKED)},
    [DOOR_LOCKED] = {"LOCKED", STATE_SET(DOOR_CLOSED)},
};
static const struct state_machine door_machine = {"door", door_rows, ARRAY_LEN(door_rows),
                                                  broken_door};

static void allowed_moves_change_the_state(void **state) {
    struct door door = {.has_key = true};
    state_machine_start(&door_machine, &door.state, DOOR_OPEN, &door);
    assert_int_equal(door.state, DOOR_OPEN);
    state_machine_move(&door_machine, &door.state, DOOR_CLOSED, &door);
    state_machine_move(&door_machine, &door.state, DOOR_LOCKED, &door);
    assert_int_equal(door.state, DOOR_LOCKED);
    assert_true(state_is_in(door.state, STATE_SET(DOOR_CLOSED) | STATE_SET(DOOR_LOCKED)));
    assert_false(state_is_in(door.state, STATE_SET(DOOR_OPEN)));
}

/* Runs `act` on a door in a process of its own: it has to end by SIGABRT, saying `words`. */
static void assert_ends_process(void (*act)(struct door *door), const char *words) {
    int ends[2];
    char said[4096] = "";
    size_t len = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct door door = {0};
        signal(SIGABRT, SIG_DFL); /* cmocka's handler would report a test that failed */
        dup2(ends[1], STDERR_FILENO);
        state_machine_start(&door_machine, &door.state, DOOR_OPEN, &door);
        act(&door);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t n; len < sizeof(said) - 1; len += (size_t)n)
        if ((n = read(ends[0], said + len, sizeof(said) - 1 - len)) <= 0)
            break;
    close(ends[0]);
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGABRT);
    if (!strstr(said, words))
        fail_msg("it said: %s", said);
}

static void move_open_to_locked(struct door *door) {
    state_machine_move(&door_machine, &door->state, DOOR_LOCKED, door);
}

static void move_to_no_state(struct door *door) {
    state_machine_move(&door_machine, &door->state, 3, door);
}

static void lock_without_key(struct door *door) {
    state_machine_move(&door_machine, &door->state, DOOR_CLOSED, door);
    state_machine_move(&door_machine, &door->state, DOOR_LOCKED, door);
}

static void start_closed(struct door *door) {
    state_machine_start(&door_machine, &door->state, DOOR_CLOSED, door);
}

static void a_move_beside_the_table_ends_the_process(void **state) {
    assert_ends_process(move_open_to_locked, "a door may not move from the state OPEN to LOCKED");
    assert_ends_process(move_to_no_state, "a door may not move from the state OPEN to ?");
    assert_ends_process(start_closed, "a door may not start in the state CLOSED");
}

static void a_broken_invariant_ends_the_process(void **state) {
    assert_ends_process(lock_without_key, "a door in the state LOCKED: it has no key");
}

static void the_table_is_written_as_text(void **state) {
    struct str text = STR_INIT;
    state_machine_write_moves(&door_machine, &text);
    assert_string_equal(str_text(&text), "(new) -> OPEN\nOPEN -> CLOSED\nCLOSED -> OPEN\n"
                                         "CLOSED -> LOCKED\nLOCKED -> CLOSED\n");
    str_fini(&text);
    assert_string_equal(state_machine_name(&door_machine, DOOR_CLOSED), "CLOSED");
    assert_string_equal(state_machine_name(&door_machine, 3), "?");
}

static void a_drawing_is_compared_with_the_table(void **state) {
    assert_drawing_is_table(TEST_SOURCE_ROOT "/tests/unit/common/test_state_machine.c",
                            "The states of a door:", &door_machine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allowed_moves_change_the_state),
        cmocka_unit_test(a_move_beside_the_table_ends_the_process),
        cmocka_unit_test(a_broken_invariant_ends_the_process),
        cmocka_unit_test(the_table_is_written_as_text),
        cmocka_unit_test(a_drawing_is_compared_with_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
