/* Remembers when the last steps of all sessions were where: a ring of a fixed number of entries,
 * for /tracez. What the tasks did in a step, they remember themselves (worker/service/step_ring.h).
 * Loop thread. */
#ifndef MILLRACE_MASTER_SESSION_STEP_LOG_H
#define MILLRACE_MASTER_SESSION_STEP_LOG_H

#include "common/base/base.h"

enum { STEP_LOG_STEPS = 256, STEP_LOG_HANDLE_BYTES = 32, STEP_LOG_WHAT_BYTES = 80 };

struct step_log_entry {
    uint64_t id; /* 0: it was not sent to its tasks */
    char session[STEP_LOG_HANDLE_BYTES + 1];
    char what[STEP_LOG_WHAT_BYTES]; /* its first fetch or target, cut */
    int64_t signature;              /* the executable's number; 0: there was none */
    int n_more;                     /* further fetches and targets */
    int64_t start_us;               /* the wall clock at its request */
    int64_t start_ns;               /* how long it took to be sent to its tasks; the whole, if it
                                     * was not */
    int64_t run_ns;                 /* from then on until all tasks had ended it */
    int code;                       /* enum status_code */
};

struct step_log {
    struct step_log_entry entries[STEP_LOG_STEPS];
    uint64_t n_added;
};

/* The next entry, to be filled. */
static inline struct step_log_entry *step_log_add(struct step_log *log) {
    return &log->entries[log->n_added++ % STEP_LOG_STEPS];
}
static inline int step_log_count(const struct step_log *log) {
    return (int)MIN(log->n_added, (uint64_t)STEP_LOG_STEPS);
}
/* 0 is the newest. */
static inline const struct step_log_entry *step_log_at(const struct step_log *log, int i) {
    return &log->entries[(log->n_added - 1 - (uint64_t)i) % STEP_LOG_STEPS];
}

#endif
