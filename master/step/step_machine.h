/* Decides what a step does next: a pure state machine, events in, actions out.
 *
 * It does no I/O and reads no clock. master/step/step.c carries the actions out, so a test can
 * drive the machine through any order of events.
 *
 * The states of a step:
 *
 *   (new) -> NEW
 *   NEW     -> RUNNING   every part has been sent
 *   RUNNING -> ENDING    the first failure, a cancellation, or a lost task
 *           -> DONE      the last part has ended
 *   ENDING  -> DONE      the last part has ended or is lost
 *
 * The status of the step is its first original failure. A part that fails because the step was
 * cancelled reports a derived failure, which an original failure replaces, also if it comes
 * later. */
#ifndef MILLRACE_MASTER_STEP_STEP_MACHINE_H
#define MILLRACE_MASTER_STEP_STEP_MACHINE_H

#include "common/base/state_machine.h"
#include "common/base/status.h"

enum step_state { STEP_NEW, STEP_RUNNING, STEP_ENDING, STEP_DONE };
extern const struct state_machine step_states;

/* What the caller must do after an event: a set of bits. */
enum step_action {
    STEP_NOTHING = 0,
    STEP_CANCEL_PARTS = 1, /* send CancelStep to every part that still runs */
    STEP_FINISH = 2,       /* answer the client; the caller must report no more events */
};

struct step_machine {
    uint8_t state; /* enum step_state */
    int n_parts, n_running;
    bool *is_running;      /* by part; the caller's memory, n_parts long */
    struct status *status; /* owned; NULL if nothing has failed */
    bool status_is_derived;
};

void step_machine_init(struct step_machine *machine, int n_parts, bool *is_running);
void step_machine_fini(struct step_machine *machine);
/* All parts have been sent. A step without parts is DONE at once. */
unsigned step_machine_start(struct step_machine *machine) MUST_USE;
/* Part `part` has ended, successfully if the status is NULL. Takes the status. An event of a part
 * that does not run is ignored. */
unsigned step_machine_part_ended(struct step_machine *machine, int part, struct status *status_take,
                                 bool is_derived) MUST_USE;
/* The client, a deadline or a closing session ends the step. Takes the status. */
unsigned step_machine_cancel(struct step_machine *machine, struct status *why_take) MUST_USE;

#endif
