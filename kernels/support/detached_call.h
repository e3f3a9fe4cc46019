/* Runs a call into a library that cannot be interrupted (LAPACK on a large matrix takes minutes) on
 * a thread of its own, so that a kernel can end when its step is cancelled. The abandoned call
 * continues and owns what it works on. Our own code in it asks pool_is_unwanted, and ends early. */
#ifndef MILLRACE_KERNELS_SUPPORT_DETACHED_CALL_H
#define MILLRACE_KERNELS_SUPPORT_DETACHED_CALL_H

#include "common/base/base.h"

enum {
    DETACHED_CALL_WORTH_NS = 50 * 1000 * 1000, /* a shorter call is not worth a thread */
    DETACHED_CALL_MAX_ABANDONED = 8,           /* of the process; with more, calls are waited for */
};

/* Embedded in the record of a call, whose memory and tensors the record owns. */
struct detached_call {
    void (*work)(struct detached_call *call);
    void (*free)(
        struct detached_call *call); /* frees the record, on either thread, when `work` has ended */
};

/* Calls `work` and waits until it has ended, or until the result is unwanted (pool_cancel.h). True:
 * it has ended, and the record is still the caller's. False: the record belongs to the call, and
 * the caller must not touch it any more. Any thread. */
bool detached_call_run(struct detached_call *call) MUST_USE;

#endif
