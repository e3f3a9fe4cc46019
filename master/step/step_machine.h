/* The life of one step, as a pure state machine: events in, actions out. No I/O, no clock:
 * master/step/step.c carries the actions out, and a test can drive it through any order of
 * events.
 *
 *            start                part ended, others run          last part ended
 *   NEW ───────────► RUNNING ──────────────┐ ┌────────────────────────────────► DONE
 *                     │  ▲                 │ │                                   ▲
 *                     │  └─────────────────┘ │                                   │
 *                     │ first failure, cancel, lost task                         │ last part ended or lost
 *                     └───────────────────► ENDING ──────────────────────────────┘
 *
 * The status of the step is the first failure that is nobody else's echo: when a part fails
 * because the step was cancelled under it, its failure is derived and gives way to an original
 * one that comes later. */
#ifndef MILLRACE_MASTER_STEP_STEP_MACHINE_H
#define MILLRACE_MASTER_STEP_STEP_MACHINE_H

#include "common/base/status.h"

enum step_state { STEP_NEW, STEP_RUNNING, STEP_ENDING, STEP_DONE };

/* What the caller must do after an event. */
enum step_action {
    STEP_NOTHING = 0,
    STEP_CANCEL_PARTS = 1, /* tell every part that still runs */
    STEP_FINISH = 2,       /* answer the client; no event may follow */
};

struct step_machine {
    enum step_state state;
    int n_parts, n_running;
    bool *is_running;      /* by part; the caller's memory, n_parts long */
    struct status *status; /* owned; NULL while all is well */
    bool status_is_derived;
};

void step_machine_init(struct step_machine *machine, int n_parts, bool *is_running);
void step_machine_fini(struct step_machine *machine);
/* All parts have been sent. A step without parts finishes at once. */
unsigned step_machine_start(struct step_machine *machine) MUST_USE;
/* Part `part` has ended (status NULL: well). Takes the status. A part that is not running is
 * ignored. */
unsigned step_machine_part_ended(struct step_machine *machine, int part, struct status *status_take,
                                 bool is_derived) MUST_USE;
/* The client, a deadline or a closing session wants it ended. Takes the status. */
unsigned step_machine_cancel(struct step_machine *machine, struct status *why_take) MUST_USE;

#endif
