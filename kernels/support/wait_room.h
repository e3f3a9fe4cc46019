/* A wait room: operations on a shared resource (queue, barrier, accumulator, staging area, mutex)
 * wait here for each other without holding a thread.
 *
 * The resource embeds a room. An operation that may have to wait is a record with a struct wait,
 * which is queued in one of the room's lines. Whoever changes the resource tries the waits again,
 * line by line, until none of them gets any further:
 *
 *   kernel ── wait_room_enter ──► line: attempt ─┬─ ended ──► outputs at once: KERNEL_DONE
 *                                                └─ stuck ──► KERNEL_PENDING; ends later, when
 *                                                             another kernel changes the resource:
 *   other kernel ── wait_room_lock, change, wait_room_unlock ──► attempt … ended
 *                                                   ──► finish, host->done   (outside the lock)
 *   cancellation ──► give_back, leaves the line, the others are tried again
 *                                                   ──► CANCELLED, host->done
 *
 * In a line only the first wait is tried and the others are behind it: first in, first out. In a
 * line that is scanned every wait is tried, in order; it is for operations that wait for different
 * things.
 *
 * A record ends once: under the lock it is either in its line or ended. It has one reference for
 * the thread that ends it. It has another one for its cancel hook while the host has the hook,
 * because a cancellation may already be running while another thread ends the wait. The thread that
 * ends a wait also makes its outputs, but the pool makes long copies. host->done only makes the
 * other step ready; on a thread that runs a step already, the other step runs later
 * (worker/executor/executor_wake.c). So completions do not nest.
 *
 * Any thread may call these functions. attempt and give_back run with the room's lock held, finish
 * without it. */
#ifndef MILLRACE_KERNELS_SUPPORT_WAIT_ROOM_H
#define MILLRACE_KERNELS_SUPPORT_WAIT_ROOM_H

#include <pthread.h>

#include "kernels/host.h"

enum { WAIT_LINES = 2 };

struct wait_line {
    struct list waits; /* struct wait.link; guarded by the room's lock */
    bool is_scanned;
};

struct wait_room {
    pthread_mutex_t lock;
    struct object *owner; /* the resource that embeds the room: each wait holds a reference on it */
    struct wait_line lines[WAIT_LINES];
    struct list ended; /* guarded by lock; empty whenever nobody holds it */
};

enum wait_result {
    WAIT_STUCK,    /* nothing changed */
    WAIT_ADVANCED, /* changed something, and still has to wait */
    WAIT_ENDED,    /* ended: succeeded, or failed with wait->status */
};

struct wait;
struct wait_kind {
    /* the message of the CANCELLED status when a cancellation ends the wait */
    const char *cancelled;
    enum wait_result (*attempt)(struct wait *wait);
    /* Called when a wait is cancelled: gives back what the wait has taken. May be NULL. */
    void (*give_back)(struct wait *wait);
    /* Called on success: sets wait->ctx->outputs. May be NULL. */
    struct status *(*finish)(struct wait *wait)MUST_USE;
    /* Returns about how many bytes finish copies. NULL: it copies nothing. */
    int64_t (*weight)(const struct wait *wait);
    void (*free)(struct wait *wait); /* NULL: free() */
};

/* One wait. Embedded in the operation's record, which the kernel allocates with xcalloc or zeroes;
 * wait_room_enter fills in the rest. */
struct wait {
    const struct wait_kind *kind; /* set by the kernel */
    struct kernel_ctx *ctx;       /* valid until host->done */
    struct status *status;        /* set by attempt when it ends with a failure */
    struct wait_room *room;
    struct kernel_cancel_hook hook;
    struct list link;      /* in a line of the room, or in its list of ended waits */
    struct pool_task task; /* for an end that must run on another thread */
    _Atomic uint32_t n_refs;
    bool is_ended, is_cancelled, has_hook; /* guarded by the room's lock until the wait ends */
};

void wait_room_init(struct wait_room *room, struct object *owner);
/* No wait may be in the room; each of them would hold the owner. */
void wait_room_fini(struct wait_room *room);

/* Puts the wait into a line and tries it: a kernel returns the result, `return
 * wait_room_enter(…);`. Takes the record, which is freed when the wait has ended. The caller may
 * unref the resource right after the call. */
enum kernel_result wait_room_enter(struct wait_room *room, int line, struct kernel_ctx *ctx,
                                   struct wait *wait_take);

/* Surround a look or a change by somebody who does not wait. unlock tries the waits again and
 * completes those that ended, on this thread; unlock_elsewhere completes them on the pool, for
 * callers that hold other locks. */
void wait_room_lock(struct wait_room *room);
void wait_room_unlock(struct wait_room *room);
void wait_room_unlock_elsewhere(struct wait_room *room);

/* Ends all waits of a line with `why`, which is borrowed. The caller holds the room's lock. */
void wait_room_fail_line(struct wait_room *room, int line, struct status *why);

#endif
