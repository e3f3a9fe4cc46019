/* Writes an XSpace, the message of TensorFlow's profiler (xplane.proto), from the traces of steps.
 *
 *   plane "/host:CPU"          a line for each session: its steps. A line for each thread of each
 *                              task: the nodes that ran, "NAME:OP". A line for what a task received
 *   plane "DEVICE/stream:all"  a line of the nodes whose work a device with a memory of its own did
 *   plane "DEVICE/stream:N"    a line of its kernels, "KERNEL NAME:OP", where they are known
 *   plane "Task Environment"   when the capture began and ended
 *
 * Any thread. */
#ifndef MILLRACE_MASTER_STEP_XSPACE_H
#define MILLRACE_MASTER_STEP_XSPACE_H

#include "common/base/arena.h"
#include "common/base/map.h"
#include "common/base/str.h"

struct xspace {
    struct strmap planes; /* by name → struct xplane */
    struct arena arena;   /* names */
    int64_t start_us, n_events, max_events, n_left_out;
};

/* Times are of the wall clock. Events that began before start_us, or beyond max_events, are left
 * out. */
void xspace_init(struct xspace *xspace, int64_t start_us, int64_t max_events);
void xspace_fini(struct xspace *xspace);
/* Adds a step as an event of its session's line. */
void xspace_add_step(struct xspace *xspace, const char *session, uint64_t step_id, int64_t start_us,
                     int64_t duration_us);
/* Adds the rows of a StepStats message, which may be wrong in every way. */
void xspace_add_trace(struct xspace *xspace, struct span step_stats, uint64_t step_id);
/* Appends the XSpace. */
void xspace_write(struct xspace *xspace, int64_t end_us, const char *host, struct str *out);

#endif
