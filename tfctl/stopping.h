/* Ends a local cluster in waves: first the command and the processes that it left behind, then the
 * master, then the tasks. Each wave gets TERM, and KILL after a limited time; the next wave begins
 * when all of it have ended. The owner reaps children, and calls stopping_advance after each event
 * and at stopping_due_ns. */
#ifndef MILLRACE_TFCTL_STOPPING_H
#define MILLRACE_TFCTL_STOPPING_H

#include "tfctl/local_member.h"

struct stopping {
    const struct member *members;
    int n_members;
    bool has_strays; /* orphans of the command may have become our children */
    int wave, stage;
    int64_t wave_begin_ns;
};

void stopping_begin(struct stopping *stopping, const struct member *members, int n_members,
                    bool has_strays);
/* Sends the signals that are due. Returns true when no member is running, or when those that are
 * have survived a KILL for seconds. */
bool stopping_advance(struct stopping *stopping);
int64_t
stopping_due_ns(const struct stopping *stopping); /* when to call stopping_advance at the latest */
/* Call it after reaping: the reaped children's own children may be ours now. Sends them the signal
 * that the others of the wave got. */
void stopping_adopt(struct stopping *stopping);

#endif
