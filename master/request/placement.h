/* The ways to choose a device where the client left it open: the master's flag --placement, or a
 * session's own wish (session_config.h). Any thread. */
#ifndef MILLRACE_MASTER_REQUEST_PLACEMENT_H
#define MILLRACE_MASTER_REQUEST_PLACEMENT_H

#include "common/base/str.h"

enum placement {
    /* what nobody constrained is on the session's default task */
    PLACEMENT_SIMPLE,
    /* variables that nobody constrained are on the tasks of job ps, by bytes; a device that leaves
     * several tasks open ("/job:worker") goes to the one by which the simulated step is shortest */
    PLACEMENT_SPREAD,
    /* what has no state goes where the simulated step is shortest; variables of "/job:ps" are
     * spread by bytes */
    PLACEMENT_COST,
};

/* By enum placement; NULL-terminated. */
extern const char *const placement_names[];
/* False: no way has that name. */
bool placement_find(struct span name, enum placement *ret) MUST_USE;

#endif
