/* What Prometheus' client libraries say of every process: processor time, memory, descriptors, age.
 * They are read when they are asked for. */
#ifndef MILLRACE_COMMON_BASE_PROCESS_METRICS_H
#define MILLRACE_COMMON_BASE_PROCESS_METRICS_H

#include "common/base/str.h"

/* Appends process_* and millrace_build_info as Prometheus text. What the system does not tell is
 * left out. Any thread. */
void process_metrics_write(struct str *out);

#endif
