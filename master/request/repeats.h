/* Requests that waited for missing tasks in vain, and come again at once: a gRPC stub of
 * TensorFlow's sends a call that ended with UNAVAILABLE ten times more, some milliseconds apart.
 * Each of them would wait anew, eleven times the limit in all; those that are known from here
 * get the same answer without waiting. A request that comes later, or more often, is the user's
 * and waits again.
 *
 * Pure; loop thread. */
#ifndef MILLRACE_MASTER_REQUEST_REPEATS_H
#define MILLRACE_MASTER_REQUEST_REPEATS_H

#include "common/base/base.h"

enum {
    REPEATS_PER_CALL = 10,
    REPEATS_WINDOW_MS = 1000, /* since the last answer; a large graph takes its time to come */
    REPEATS_KEPT = 64,
};

struct repeats {
    struct repeat {
        uint64_t key; /* 0: free */
        int64_t until_ns;
        int n_left;
    } rows[REPEATS_KEPT];
    unsigned at;
};

/* All-zero is empty. The key of a request: the connection that it came over and its bytes; never
 * 0. */
uint64_t repeats_key(uint64_t connection, struct span body);
/* A request has waited and is answered that tasks are missing. */
void repeats_note(struct repeats *repeats, uint64_t key, int64_t now_ns);
/* True: it was answered so just now, by one of those; the window begins anew. */
bool repeats_take(struct repeats *repeats, uint64_t key, int64_t now_ns);
/* False: none can be known, so that a key need not be made. */
bool repeats_any(const struct repeats *repeats, int64_t now_ns);

#endif
