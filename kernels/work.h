/* How long an execution is likely to take, for ops where the elements of the largest input do
 * not tell: a shape among the inputs says how large the output is, broadcasting multiplies, an
 * index picks a little from much, a string holds megabytes. The executor asks before it runs a
 * kernel on a thread that must not be held (worker/executor/executor.c). */
#ifndef MILLRACE_KERNELS_WORK_H
#define MILLRACE_KERNELS_WORK_H

#include "kernels/kernel.h"

enum { KERNEL_CHEAP_NS = 40000 }; /* a kernel that takes longer is heavy: worth a wake-up */

struct kernel_work {
    const char *op;
    /* looks at the inputs, which are whole but may be wrong in every way, and changes nothing */
    kernel_work_fn *ns;
    /* no input of more elements than this: cheap without asking; -1: ask always */
    int64_t from;
};

/* NULL: the largest input tells. Any thread. */
const struct kernel_work *kernel_work_find(const char *op);
/* Visits all: 0, 1, …; NULL at the end. For table tests. */
const struct kernel_work *kernel_work_at(size_t i);

#endif
