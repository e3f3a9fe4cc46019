/* Who may run when a save asks for a consistent cut: a checkpoint whose values are all from one
 * boundary between steps.
 *
 *            cuts_ask: nobody is in the way            cuts_taken (a save)          cuts_leave
 *   OUT ───────────────────────────────────► IN ─────────────────────────► PAST ───────────────► OUT
 *    │                                       ▲                                                    ▲
 *    └─────────────► WAITING ────────────────┘ on_let_in, when who was in the way has left ───────┘ cuts_leave, from anywhere
 *
 * Two steps are in each other's way when they use a task in common and one of them is a save
 * that has not taken its values. A save waits for the steps that run; steps that come after it
 * wait for the save, until it has taken its values: references, so that training goes on while
 * they are written to files. Whoever waits is let in in the order of coming, so neither starves
 * the other.
 *
 * A step that waits in a queue of a save's task holds the save up: cuts_overdue tells who has
 * waited too long, and the caller ends it.
 *
 * Pure: no I/O, no clock, no threads (loop thread). Source: OSDI 4.3 leaves consistency to the
 * user; this is what to ask for. */
#ifndef MILLRACE_MASTER_SESSION_CUTS_H
#define MILLRACE_MASTER_SESSION_CUTS_H

#include "common/base/list.h"

enum cut_state { CUT_OUT, CUT_WAITING, CUT_IN, CUT_PAST };

/* A step: embedded in it, all zero at first. */
struct cut_member {
    struct list link; /* the table's */
    enum cut_state state;
    bool is_save;     /* one that asks for a cut */
    const int *tasks; /* by any number of a task's; borrowed until it has left */
    int n_tasks;
    int64_t since_ns; /* when it asked */
    /* It may run now. Never inside the cuts_ask of the same member. */
    void (*on_let_in)(struct cut_member *member);
};

struct cuts {
    struct list running, waiting; /* the latter in the order of coming */
    int n_saves;                  /* of them all: while there is none, nobody looks */
    int n_holds;
    bool is_admitting;
};

void cuts_init(struct cuts *cuts);
/* True: it may run. False: on_let_in will come, unless it leaves before. */
bool cuts_ask(struct cuts *cuts, struct cut_member *member, int64_t now_ns) MUST_USE;
/* A save holds all that it saves. Others are let in before this returns. Harmless in any other
 * state, or twice. */
void cuts_taken(struct cuts *cuts, struct cut_member *member);
/* It has ended, or does not want to run any more. Others are let in before this returns.
 * Harmless for one that is OUT. */
void cuts_leave(struct cuts *cuts, struct cut_member *member);
/* From hold to go_on nobody is let in (who asks still may be, by its answer): for a caller that
 * ends several members and must not see others start and end meanwhile. May be nested. */
void cuts_hold(struct cuts *cuts);
void cuts_go_on(struct cuts *cuts);
/* The first save that has waited, or held others up, for wait_ns; NULL: none. */
struct cut_member *cuts_overdue(struct cuts *cuts, int64_t now_ns, int64_t wait_ns);

#endif
