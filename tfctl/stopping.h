/* How a local cluster ends: in waves, the command and what it left behind, the master, the
 * tasks. Each wave gets TERM, and KILL after a bounded time; the next one begins when it is
 * gone. A pure clock-driven thing: its owner reaps, and calls it after each event. */
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
/* Sends what is due. True when no member runs any more, or those that do survived a KILL for
 * seconds. */
bool stopping_advance(struct stopping *stopping);
int64_t stopping_due_ns(const struct stopping *stopping); /* when to call it at the latest */
/* Children have been reaped: their own children may be ours now, and get the signal that the
 * others got. */
void stopping_adopt(struct stopping *stopping);

#endif
