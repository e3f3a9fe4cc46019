/* Places a signature again when sampled steps have measured other costs than those that it was
 * placed by, and keeps the placement with the shorter steps: carries out what placement_trial.h
 * decides.
 *
 * The executable in the session's cache is the present one. Another one is compiled in a job of the
 * session and registered at its tasks, while steps run as before. Then steps alternate between
 * both, each from its beginning to its end, until the trial is decided. The winner is in the cache
 * from then on; the other one is freed when its last step has ended. Partial runs take no part.
 *
 * State stays where it is (master/compile/place/placement.h), so both run on the same variables.
 * Loop thread. */
#ifndef MILLRACE_MASTER_SESSION_REPLACEMENT_H
#define MILLRACE_MASTER_SESSION_REPLACEMENT_H

#include "master/session/executable.h"

/* The executable has been compiled: watches its costs if its session wants that, and if it was
 * placed by cost. */
void replacement_begin(struct executable *executable);
/* Frees executable->replacement. No effect without one. */
void replacement_end(struct executable *executable);
/* The executable of a step that begins: the cached one, or the other one in a race. Borrowed. */
struct executable *replacement_choose(struct executable *executable);
/* The costs that a sampled step of the executable has measured are in the table. `contradiction` is
 * that of cost_rows_contradiction. */
void replacement_costs_measured(struct executable *executable, double contradiction);
/* A step of the executable has ended well. It was not traced, and took `ns` after it was sent to
 * its tasks. */
void replacement_step_ended(struct executable *executable, double ns);
/* A step of the executable has failed. Ends the race if it was placed by measured costs, since a
 * task may be gone, or out of memory, that the present placement does not need. */
void replacement_step_failed(struct executable *executable, const struct status *why);
/* Why the executable is placed as it is, for people; NULL: it is placed as it was at first. */
const char *replacement_why(const struct executable *executable);
void replacement_metrics_register(void);

#endif
