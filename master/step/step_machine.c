/* Turns the events of a step's parts into the actions that the step must take. */
#include "master/step/step_machine.h"

static const struct state_row rows[] = {
    [STEP_NEW] = {"NEW", STATE_SET(STEP_RUNNING), .is_first = true},
    [STEP_RUNNING] = {"RUNNING", STATE_SET(STEP_ENDING) | STATE_SET(STEP_DONE)},
    [STEP_ENDING] = {"ENDING", STATE_SET(STEP_DONE)},
    [STEP_DONE] = {"DONE", 0},
};
const struct state_machine step_states = {"step", rows, ARRAY_LEN(rows)};

static void move(struct step_machine *machine, enum step_state to) {
    state_machine_move(&step_states, &machine->state, to, machine);
}

void step_machine_init(struct step_machine *machine, int n_parts, bool *is_running) {
    *machine = (struct step_machine){.n_parts = n_parts, .n_running = 0, .is_running = is_running};
    state_machine_start(&step_states, &machine->state, STEP_NEW, machine);
    for (int i = 0; i < n_parts; i++)
        is_running[i] = false;
}

void step_machine_fini(struct step_machine *machine) {
    status_unref(machine->status);
    machine->status = NULL;
}

static unsigned settle(struct step_machine *machine) {
    if (machine->n_running > 0)
        return STEP_NOTHING;
    move(machine, STEP_DONE);
    return STEP_FINISH;
}

unsigned step_machine_start(struct step_machine *machine) {
    move(machine, STEP_RUNNING);
    machine->n_running = machine->n_parts;
    for (int i = 0; i < machine->n_parts; i++)
        machine->is_running[i] = true;
    return settle(machine);
}

/* Keeps the first original failure. A derived failure is kept only until an original one comes. */
static void note_failure(struct step_machine *machine, struct status *status_take,
                         bool is_derived) {
    if (machine->status && (is_derived || !machine->status_is_derived)) {
        status_unref(status_take);
        return;
    }
    status_unref(machine->status);
    machine->status = status_take;
    machine->status_is_derived = is_derived;
}

static unsigned begin_ending(struct step_machine *machine) {
    if (machine->state != STEP_RUNNING)
        return STEP_NOTHING;
    move(machine, STEP_ENDING);
    return machine->n_running > 0 ? STEP_CANCEL_PARTS : STEP_NOTHING;
}

unsigned step_machine_part_ended(struct step_machine *machine, int part, struct status *status_take,
                                 bool is_derived) {
    if (machine->state == STEP_NEW || machine->state == STEP_DONE || part < 0 ||
        part >= machine->n_parts || !machine->is_running[part]) {
        status_unref(status_take);
        return STEP_NOTHING;
    }
    machine->is_running[part] = false;
    machine->n_running--;
    unsigned actions = STEP_NOTHING;
    if (status_take) {
        note_failure(machine, status_take, is_derived);
        actions |= begin_ending(machine);
    }
    return actions | settle(machine);
}

unsigned step_machine_cancel(struct step_machine *machine, struct status *why_take) {
    if (machine->state == STEP_DONE) {
        status_unref(why_take);
        return STEP_NOTHING;
    }
    note_failure(machine, why_take, false);
    return begin_ending(machine);
}
