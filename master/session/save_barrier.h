/* Decides which steps may run when a save asks for a consistent checkpoint: one whose values are
 * all from one boundary between steps.
 *
 * Two steps conflict when they use a task in common and one of them is a save that has not taken
 * its values. A save waits for the steps that run on its tasks. Steps that arrive later wait for
 * the save until it has taken its values. The values are references, so training continues while
 * the save writes its files. Waiting steps are admitted in the order of their arrival, so neither
 * saves nor other steps starve.
 *
 * A step that blocks in a queue of a save's task delays the save. save_barrier_overdue returns the
 * save that has waited too long, and the caller ends it.
 *
 * The states of a step at the barrier:
 *
 *   (new) -> OUTSIDE
 *   OUTSIDE -> WAITING   it arrives and conflicts with a step that runs or waits
 *           -> INSIDE    it arrives and conflicts with none
 *   WAITING -> OUTSIDE   it is ended while it waits
 *           -> INSIDE    the conflicting steps have left; on_admitted is called
 *   INSIDE  -> OUTSIDE   it has ended
 *           -> PASSED    a save has taken its values
 *   PASSED  -> OUTSIDE   the save has ended
 *
 * Pure: no I/O, no clock, no threads of its own. Loop thread. Source: OSDI 4.3 leaves the
 * consistency of checkpoints to the user; this is how a user asks for it. */
#ifndef MILLRACE_MASTER_SESSION_SAVE_BARRIER_H
#define MILLRACE_MASTER_SESSION_SAVE_BARRIER_H

#include "common/base/list.h"
#include "common/base/state_machine.h"

enum barrier_state { BARRIER_OUTSIDE, BARRIER_WAITING, BARRIER_INSIDE, BARRIER_PASSED };
extern const struct state_machine barrier_machine;

/* One step's place at the barrier: embedded in the step, all zero at first. */
struct barrier_member {
    struct list link; /* in the barrier's list of running or of waiting members */
    uint8_t state;    /* enum barrier_state */
    bool is_save;     /* it asks for a consistent checkpoint */
    const int *tasks; /* numbers of the tasks that it uses; borrowed until it has left */
    int n_tasks;
    int64_t since_ns; /* when it arrived */
    /* It may run now. Never called inside the save_barrier_enter of the same member. */
    void (*on_admitted)(struct barrier_member *member);
};

struct save_barrier {
    struct list running, waiting; /* both in the order of arrival */
    int n_saves;                  /* among all members: while it is 0, nothing is compared */
    int n_holds;
    bool is_admitting;
};

void save_barrier_init(struct save_barrier *barrier);
/* A member that is OUTSIDE arrives. True: it may run. False: it waits, and on_admitted is called
 * later unless the member leaves first. Cost: with a save among the members, one comparison of
 * task sets per member. */
bool save_barrier_enter(struct save_barrier *barrier, struct barrier_member *member,
                        int64_t now_ns) MUST_USE;
/* A save has taken all its values. Waiting members may be admitted before this returns. Does
 * nothing for a member that is no save or not INSIDE. */
void save_barrier_pass(struct save_barrier *barrier, struct barrier_member *member);
/* The member has ended, or no longer wants to run. Waiting members may be admitted before this
 * returns. Does nothing for a member that is OUTSIDE. */
void save_barrier_leave(struct save_barrier *barrier, struct barrier_member *member);
/* Between hold and release no waiting member is admitted; save_barrier_enter still decides as
 * always. For a caller that ends several members and must not see others start meanwhile. Holds
 * nest. */
void save_barrier_hold(struct save_barrier *barrier);
void save_barrier_release(struct save_barrier *barrier);
/* The first save that has waited, or made others wait, for wait_ns; NULL if there is none. */
struct barrier_member *save_barrier_overdue(struct save_barrier *barrier, int64_t now_ns,
                                            int64_t wait_ns);

#endif
