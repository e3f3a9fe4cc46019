/* Captures what steps do for a while, for TensorFlow's profiler (ProfilerService).
 *
 * While a capture runs, the steps that are launched are traced on their tasks. At its end, their
 * traces and the steps themselves become an XSpace (xspace.h), on the pool. Without a capture it
 * costs a comparison for each step. Loop thread. */
#ifndef MILLRACE_MASTER_STEP_PROFILER_H
#define MILLRACE_MASTER_STEP_PROFILER_H

#include "common/base/list.h"
#include "common/base/pool.h"
#include "common/base/status.h"
#include "common/base/str.h"
#include "rpc/loop.h"

struct step;

enum {
    PROFILER_MAX_CAPTURES = 8,
    PROFILER_MAX_MS = 600 * 1000,
    /* of all records until they are freed; later ones are left out */
    PROFILER_MAX_BYTES = 256 << 20,
    PROFILER_MAX_EVENTS = 1000 * 1000
};

struct profiler {
    struct loop *loop;
    struct pool *pool;
    struct list captures; /* those that are being written, too */
    int n_captures;       /* that run */
    size_t n_bytes;       /* of all records, until they are freed */
};

/* How steps went by during a capture. */
struct profile_summary {
    int64_t n_steps, total_us, min_us, max_us, elapsed_us;
};

struct profile_capture;
/* A capture has ended; it is freed after the call. `xspace` is borrowed and empty if no traces were
 * wanted, and n_events counts its events. */
typedef void profile_done_fn(void *arg, const struct profile_summary *summary,
                             const struct str *xspace, int64_t n_events);

void profiler_init(struct profiler *profiler, struct loop *loop, struct pool *pool);
/* Captures that are being written outlive the profiler. None may run any more. */
void profiler_close(struct profiler *profiler);
static inline bool profiler_is_on(const struct profiler *profiler) {
    return profiler->n_captures > 0;
}

/* Starts a capture. on_done is called once, on the loop, after duration_ms or profile_end, unless
 * the capture is dropped before. With `traces` false only the durations of steps are noted. `host`
 * names the process in the XSpace. Errors: RESOURCE_EXHAUSTED, INVALID_ARGUMENT. */
struct status *profile_start(struct profiler *profiler, int64_t duration_ms, int64_t max_events,
                             bool traces, struct span session_id, struct span host,
                             profile_done_fn *on_done, void *arg,
                             struct profile_capture **ret) MUST_USE;
/* Ends the captures of that id now. Errors: INVALID_ARGUMENT if the id is empty. */
struct status *profiler_end(struct profiler *profiler, struct span session_id) MUST_USE;
/* Ends all captures now. */
void profiler_end_all(struct profiler *profiler);
/* Nobody wants its result any more. */
void profile_drop(struct profile_capture *capture);

/* Does a capture want the traces of steps that are launched now? */
bool profiler_wants_traces(const struct profiler *profiler);
/* A step has ended, `duration_us` after its request. */
void profiler_note(struct profiler *profiler, const struct step *step, int64_t duration_us);

#endif
