/* Names the states of a machine, writes its table as text, and ends the process on a move that
 * the table does not allow. */
#include "common/base/state_machine.h"

#include <stdio.h>

enum { MESSAGE_MAX_BYTES = 256 };

const char *state_machine_name(const struct state_machine *machine, unsigned state) {
    return state < machine->n_rows ? machine->rows[state].name : "?";
}

void state_machine_write_moves(const struct state_machine *machine, struct str *out) {
    CHECK(machine->n_rows <= STATE_MACHINE_MAX_STATES);
    for (unsigned first = 0; first < machine->n_rows; first++)
        if (machine->rows[first].is_first)
            str_addf(out, "(new) -> %s\n", machine->rows[first].name);
    for (unsigned from = 0; from < machine->n_rows; from++)
        for (unsigned to = 0; to < machine->n_rows; to++)
            if (state_is_in((uint8_t)to, machine->rows[from].next))
                str_addf(out, "%s -> %s\n", machine->rows[from].name, machine->rows[to].name);
}

_Noreturn void state_machine_refuse_start(const struct state_machine *machine, unsigned first,
                                          const char *file, int line) {
    char message[MESSAGE_MAX_BYTES];
    snprintf(message, sizeof(message), "a %s may not start in the state %s", machine->noun,
             state_machine_name(machine, first));
    check_failed(file, line, message);
}

_Noreturn void state_machine_refuse_move(const struct state_machine *machine, unsigned from,
                                         unsigned to, const char *file, int line) {
    char message[MESSAGE_MAX_BYTES];
    snprintf(message, sizeof(message), "a %s may not move from the state %s to %s", machine->noun,
             state_machine_name(machine, from), state_machine_name(machine, to));
    check_failed(file, line, message);
}

_Noreturn void state_machine_refuse_object(const struct state_machine *machine, unsigned state,
                                           const char *broken, const char *file, int line) {
    char message[MESSAGE_MAX_BYTES];
    snprintf(message, sizeof(message), "a %s in the state %s: %s", machine->noun,
             state_machine_name(machine, state), broken);
    check_failed(file, line, message);
}
