/* Starts threads of the library and the daemons. */
#ifndef MILLRACE_COMMON_BASE_THREAD_H
#define MILLRACE_COMMON_BASE_THREAD_H

#include <pthread.h>

#include "common/base/base.h"

/* Starts a thread that takes none of the process's signals, but for those that its own mistakes and
 * profilers cause. `attr` may be NULL. Returns 0 or an errno. */
int thread_start(pthread_t *ret, const pthread_attr_t *attr, void *(*run)(void *arg), void *arg);

#endif
