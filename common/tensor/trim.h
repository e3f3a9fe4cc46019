/* Giving memory back to the system: what a daemon took for a burst of work does not stay with
 * it. */
#ifndef MILLRACE_COMMON_TENSOR_TRIM_H
#define MILLRACE_COMMON_TENSOR_TRIM_H

#include "common/base/pool.h"

enum { MEMORY_TRIM_INTERVAL_MS = 10000 };

/* To be called so often, on one thread: large blocks that nobody has reused since the call
 * before the last go back, and so does malloc's free memory when there is much of it (on a pool
 * thread: it takes a while). */
void memory_trim(struct pool *pool);

#endif
