/* Writes steps as a file of trace events, which Perfetto and chrome://tracing draw: a process for
 * the master and for each task, rows of nodes, of values that are sent and of values that are
 * received, and an arrow from each Send to its Recv. All times are the master's. Pure. */
#ifndef MILLRACE_MASTER_SERVICE_TRACE_EVENTS_H
#define MILLRACE_MASTER_SERVICE_TRACE_EVENTS_H

#include "common/base/str.h"
#include "master/session/step_log.h"
#include "proto/worker.pb-c.h"

/* What a task says of the steps. */
struct trace_source {
    const char *task;
    const Millrace__Traces *traces; /* NULL: it did not reply */
};

enum { TRACE_EVENTS_MAX_BYTES = 8 << 20 }; /* events that do not fit are left out, and counted */

/* Appends a JSON object. n_left_out tasks have sent more than the master takes. */
void trace_events_write(const struct step_log_entry *const *steps, int n_steps,
                        const struct trace_source *sources, int n_sources, int n_left_out,
                        struct str *out);

#endif
