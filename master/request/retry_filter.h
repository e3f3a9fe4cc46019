/* Recognises the retries of a request that has waited for missing tasks and failed.
 *
 * TensorFlow's gRPC stub repeats a call that ended with UNAVAILABLE ten times, some milliseconds
 * apart. Without this filter every retry would wait again, so the client would wait eleven times
 * the limit. A retry that the filter recognises gets the same answer at once. A request that comes
 * later, or more often, comes from the user and waits again.
 *
 * Pure. Loop thread. */
#ifndef MILLRACE_MASTER_REQUEST_RETRY_FILTER_H
#define MILLRACE_MASTER_REQUEST_RETRY_FILTER_H

#include "common/base/base.h"

enum {
    RETRIES_PER_CALL = 10,
    RETRY_WINDOW_MS = 1000, /* since the last answer; a large request takes time to arrive */
    RETRY_FILTER_ROWS = 64, /* the oldest row is overwritten */
};

struct retry_filter {
    struct retry_row {
        uint64_t key; /* 0: free */
        int64_t until_ns;
        int n_left;
    } rows[RETRY_FILTER_ROWS];
    unsigned at;
};

/* A filter of zeroes is empty. */

/* Returns the key of a request: a hash of its connection and its bytes, never 0. */
uint64_t retry_filter_key(uint64_t connection, struct span body);
/* Notes a request that has waited and is answered with UNAVAILABLE. */
void retry_filter_note(struct retry_filter *filter, uint64_t key, int64_t now_ns);
/* True if the request is a retry of one that was noted. Counts the retry, and its window starts
 * again. */
bool retry_filter_take(struct retry_filter *filter, uint64_t key, int64_t now_ns);
/* False if the filter is empty, so that the caller need not compute a key. */
bool retry_filter_any(const struct retry_filter *filter, int64_t now_ns);

#endif
