/* Asks whether a pool has a free thread, for those who do something first if it has none. */
#ifndef MILLRACE_COMMON_BASE_POOL_LOAD_H
#define MILLRACE_COMMON_BASE_POOL_LOAD_H

#include "common/base/pool.h"

/* Would a task that is submitted now have to wait until another one ends? On a pool thread: once
 * that has returned from its own task. Other threads may change the answer at once. Any thread. */
bool pool_is_busy(struct pool *pool);

#endif
