/* Gives memory back to the system, so that a daemon does not keep what it took for a burst of
 * work. */
#ifndef MILLRACE_COMMON_TENSOR_TRIM_H
#define MILLRACE_COMMON_TENSOR_TRIM_H

#include "common/base/pool.h"

enum { MEMORY_TRIM_INTERVAL_MS = 10000 };

/* Gives back large blocks that nobody has reused since the call before the last, and malloc's free
 * memory when there is much of it; the latter on a pool thread, because it takes a while. Call it
 * every MEMORY_TRIM_INTERVAL_MS, on one thread. */
void memory_trim(struct pool *pool);

#endif
