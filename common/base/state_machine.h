/* Checks that an object moves between its states only as a table allows.
 *
 * The owner of a noun declares one constant table: a row per state, with its name and the set of
 * states that it may move to. An object stores its state as one byte. Every change of that byte
 * is a state_machine_start or a state_machine_move, so the table is the whole truth about the
 * noun's life, and a test can compare the drawing in the noun's header with it
 * (tests/unit/state_drawing.h). The model is dqlite's lib/sm.h.
 *
 *   enum door_state { DOOR_OPEN, DOOR_CLOSED, DOOR_LOCKED };
 *   static const struct state_row door_states[] = {
 *       [DOOR_OPEN] = {"OPEN", STATE_SET(DOOR_CLOSED), .is_first = true},
 *       [DOOR_CLOSED] = {"CLOSED", STATE_SET(DOOR_OPEN) | STATE_SET(DOOR_LOCKED)},
 *       [DOOR_LOCKED] = {"LOCKED", STATE_SET(DOOR_CLOSED)},
 *   };
 *   static const struct state_machine door_machine = {"door", door_states, ARRAY_LEN(door_states)};
 *
 *   state_machine_start(&door_machine, &door->state, DOOR_OPEN, door);
 *   state_machine_move(&door_machine, &door->state, DOOR_CLOSED, door);
 *
 * A move that the table does not allow is a bug of ours: it ends the process like CHECK, and the
 * message names the noun and both states. So whoever acts on another process's message looks at
 * the state first, and answers with a status where the message does not fit.
 *
 * Cost: a move is a load from the table, a test and a store. An invariant costs what it computes.
 * Threads: none of its own. Whatever guards the object guards the byte. */
#ifndef MILLRACE_COMMON_BASE_STATE_MACHINE_H
#define MILLRACE_COMMON_BASE_STATE_MACHINE_H

#include "common/base/base.h"
#include "common/base/str.h"

enum { STATE_MACHINE_MAX_STATES = 32 };

/* The set that holds one state. Sets are joined by `|`. */
#define STATE_SET(state) ((uint32_t)1 << (state))

struct state_row {
    const char *name;
    uint32_t next; /* the states that an object may move to from here */
    bool is_first; /* a new object may start here */
};

struct state_machine {
    const char *noun; /* what the states are of, for messages */
    const struct state_row *rows;
    unsigned n_rows;
    /* Optional. Called after each start and move with the object that the caller passed. Returns
     * NULL if all that must hold in the object's state holds, else words that say what does not.
     * So the caller fills the fields that belong to a state before it moves there. */
    const char *(*broken_invariant)(const void *object);
};

/* Is the state a member of the set? */
static inline bool state_is_in(uint8_t state, uint32_t set) { return (set >> state) & 1; }

/* "OFFERED"; "?" for a number that is no state of the machine. */
const char *state_machine_name(const struct state_machine *machine, unsigned state);
/* Appends a line "FROM -> TO" for each allowed move, in the order of the rows, and before them a
 * line "(new) -> TO" for each state that is first. */
void state_machine_write_moves(const struct state_machine *machine, struct str *out);

/* The state of a new object. The process ends if an object may not start there. */
#define state_machine_start(machine, state, first, object) \
    state_machine_start_at(machine, state, first, object, __FILE__, __LINE__)
/* The process ends if the table does not allow the move, or if the invariant does not hold after
 * it. `object` is passed to the invariant; it may be NULL where the machine has none. */
#define state_machine_move(machine, state, to, object) \
    state_machine_move_at(machine, state, to, object, __FILE__, __LINE__)

/* What the macros above call; not for others. */
COLD _Noreturn void state_machine_refuse_start(const struct state_machine *machine, unsigned first,
                                               const char *file, int line);
COLD _Noreturn void state_machine_refuse_move(const struct state_machine *machine, unsigned from,
                                              unsigned to, const char *file, int line);
COLD _Noreturn void state_machine_refuse_object(const struct state_machine *machine, unsigned state,
                                                const char *broken, const char *file, int line);

static inline void state_machine_check_at(const struct state_machine *machine, unsigned state,
                                          const void *object, const char *file, int line) {
    const char *broken = machine->broken_invariant ? machine->broken_invariant(object) : NULL;
    if (unlikely(broken))
        state_machine_refuse_object(machine, state, broken, file, line);
}

static inline void state_machine_start_at(const struct state_machine *machine, uint8_t *state,
                                          unsigned first, const void *object, const char *file,
                                          int line) {
    if (unlikely(first >= machine->n_rows || !machine->rows[first].is_first))
        state_machine_refuse_start(machine, first, file, line);
    *state = (uint8_t)first;
    state_machine_check_at(machine, first, object, file, line);
}

static inline void state_machine_move_at(const struct state_machine *machine, uint8_t *state,
                                         unsigned to, const void *object, const char *file,
                                         int line) {
    if (unlikely(*state >= machine->n_rows || to >= machine->n_rows ||
                 !state_is_in((uint8_t)to, machine->rows[*state].next)))
        state_machine_refuse_move(machine, *state, to, file, line);
    *state = (uint8_t)to;
    state_machine_check_at(machine, to, object, file, line);
}

#endif
