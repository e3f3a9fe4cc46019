/* A wait room: where operations on a shared resource (queue, barrier, accumulator, staging area,
 * mutex) wait for each other without holding a thread.
 *
 * The resource embeds a room. An operation that may have to wait is a record, a struct wait,
 * that stands in one of the room's lines; whoever changes the resource lets everybody try again,
 * line by line, until nobody gets further:
 *
 *   kernel ── wait_room_enter ──► line: attempt ─┬─ ended ──► outputs at once: KERNEL_DONE
 *                                                └─ stuck ──► KERNEL_PENDING; later, by another's
 *                                                change:
 *   other kernel ── wait_room_lock, change, wait_room_unlock ──► attempt … ended ──► finish,
 *   host->done   (outside the lock)
 *   cancellation ──► give_back, leaves the line, the others try again ──► CANCELLED, host->done
 *
 * In a line only the first is tried, and who comes later waits behind it: first in, first out.
 * In a line that is scanned everybody is tried, in order: for operations that wait for different
 * things.
 *
 * A record ends once: under the lock it is either in its line or ended. It has one reference for
 * who ends it, and one for its cancel hook while that is with the host, because a cancellation
 * may be on its way while somebody else ends the wait. Who ends a wait makes its outputs, too,
 * but for long copies, which the pool makes. host->done only makes the other step ready: on a
 * thread that is running one it begins later (worker/executor/executor_wake.c), so completions
 * do not nest.
 *
 * Threads: any; attempt and give_back run with the room's lock held, finish without. */
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
    WAIT_ADVANCED, /* changed something, and is not through */
    WAIT_ENDED,    /* through, or failed: wait->status */
};

struct wait;
struct wait_kind {
    const char *cancelled; /* the message when a cancellation ends it */
    enum wait_result (*attempt)(struct wait *wait);
    /* of a cancelled one: returns what it took; may be NULL */
    void (*give_back)(struct wait *wait);
    /* success: sets wait->ctx->outputs; may be NULL */
    struct status *(*finish)(struct wait *wait)MUST_USE;
    /* about how many bytes finish copies; NULL: none */
    int64_t (*weight)(const struct wait *wait);
    void (*free)(struct wait *wait); /* NULL: free() */
};

/* Embedded in the operation's record, which is made by xcalloc or zeroed; wait_room_enter fills
 * it in. */
struct wait {
    const struct wait_kind *kind; /* the maker sets it */
    struct kernel_ctx *ctx;       /* valid until host->done */
    struct status *status;        /* set by attempt when it ends with a failure */
    struct wait_room *room;
    struct kernel_cancel_hook hook;
    struct list link;      /* in a line, or among those that ended */
    struct pool_task task; /* for an end that must not run here */
    _Atomic uint32_t n_refs;
    bool is_ended, is_cancelled, has_hook; /* guarded by the room's lock until it ends */
};

void wait_room_init(struct wait_room *room, struct object *owner);
void wait_room_fini(struct wait_room *room); /* nobody waits: each would hold the owner */

/* The wait's kernel: `return wait_room_enter(…);`. Takes the record, which is freed when it has
 * ended. The caller's reference on the resource may go right after. */
enum kernel_result wait_room_enter(struct wait_room *room, int line, struct kernel_ctx *ctx,
                                   struct wait *wait_take);

/* Around a look or a change by somebody who does not wait. unlock lets all try again and
 * completes those that ended, on this thread; unlock_elsewhere completes them on the pool: for
 * places that hold other locks. */
void wait_room_lock(struct wait_room *room);
void wait_room_unlock(struct wait_room *room);
void wait_room_unlock_elsewhere(struct wait_room *room);

/* With the lock held: */
bool wait_room_is_line_empty(const struct wait_room *room, int line);
/* ends all in a line; `why` is borrowed */
void wait_room_fail_line(struct wait_room *room, int line, struct status *why);

#endif
