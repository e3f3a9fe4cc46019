/* Runs wait rooms; see wait_room.h. */
#include "kernels/support/wait_room.h"

#include <stdlib.h>

#include "kernels/host.h"

enum { HEAVY_BYTES = 128 << 10 };

static struct wait *wait_of_link(struct list *link) { return LIST_ENTRY(link, struct wait, link); }

void wait_room_init(struct wait_room *room, struct object *owner) {
    CHECK(pthread_mutex_init(&room->lock, NULL) == 0);
    room->owner = owner;
    for (int i = 0; i < WAIT_LINES; i++) {
        list_init(&room->lines[i].waits);
        room->lines[i].is_scanned = false;
    }
    list_init(&room->ended);
}

void wait_room_fini(struct wait_room *room) {
    for (int i = 0; i < WAIT_LINES; i++)
        CHECK(list_is_empty(&room->lines[i].waits));
    pthread_mutex_destroy(&room->lock);
}

static void wait_unref(struct wait *wait) {
    if (atomic_fetch_sub_explicit(&wait->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    struct object *owner = wait->room->owner;
    status_unref(wait->status);
    (wait->kind->free ? wait->kind->free(wait) : free(wait));
    object_unref(owner);
}

/* ---- with the lock held ---- */

static void end_locked(struct wait *wait) {
    wait->is_ended = true;
    list_remove(&wait->link);
    list_push_back(&wait->room->ended, &wait->link);
}

static bool run_line(struct wait_line *line) {
    bool has_changed = false;
    LIST_FOR_EACH_SAFE (link, next, &line->waits) {
        struct wait *wait = wait_of_link(link);
        enum wait_result result = wait->kind->attempt(wait);
        has_changed |= result != WAIT_STUCK;
        if (result == WAIT_ENDED)
            end_locked(wait);
        else if (!line->is_scanned)
            break;
    }
    return has_changed;
}

static void run_lines(struct wait_room *room) {
    bool has_changed;
    do {
        has_changed = false;
        for (int i = 0; i < WAIT_LINES; i++)
            has_changed |= run_line(&room->lines[i]);
    } while (has_changed);
}

/* The wait leaves without success; takes `status_take`. */
static void abandon_locked(struct wait *wait, struct status *status_take) {
    wait->status = status_take;
    if (wait->kind->give_back)
        wait->kind->give_back(wait);
    end_locked(wait);
}

void wait_room_fail_line(struct wait_room *room, int line, struct status *why) {
    LIST_FOR_EACH_SAFE (link, next, &room->lines[line].waits)
        abandon_locked(wait_of_link(link), status_ref(why));
}

/* ---- completing, without the lock ---- */

static void conclude(struct wait *wait) {
    struct status *st = wait->status;
    wait->status = NULL;
    if (!st && wait->kind->finish)
        st = wait->kind->finish(wait);
    if (st)
        kernel_fail(wait->ctx, st);
}

static void complete(struct wait *wait) {
    struct kernel_ctx *ctx = wait->ctx;
    if (wait->has_hook && !wait->is_cancelled && ctx->host->cancel_deregister(ctx, &wait->hook))
        wait_unref(wait); /* the reference of the hook */
    conclude(wait);
    wait_unref(wait);
    ctx->host->done(ctx);
}

static void complete_on_pool(struct pool_task *task) {
    complete(CONTAINER_OF(task, struct wait, task));
}

/* The bytes that finishing the wait copies. Long copies are made by the pool: they must not hold up
 * a loop thread, the execution that put in the last element, or what this thread has woken. */
static int64_t weight_of(const struct wait *wait) {
    return !wait->status && wait->kind->weight ? wait->kind->weight(wait) : 0;
}

static void complete_elsewhere(struct wait *wait) {
    wait->task.run = complete_on_pool;
    pool_submit(wait->ctx->pool, &wait->task);
}

static void complete_all(struct list *ended, bool elsewhere) {
    if (list_is_empty(ended))
        return;
    const struct kernel_host *host = wait_of_link(ended->next)->ctx->host;
    int64_t copied = 0;
    kernel_defer_wakes_begin(host);
    for (struct list *link; (link = list_pop_front(ended));) {
        struct wait *wait = wait_of_link(link);
        copied += weight_of(wait);
        if (wait->ctx->pool && (elsewhere || copied > HEAVY_BYTES))
            complete_elsewhere(wait);
        else
            complete(wait);
    }
    kernel_defer_wakes_end(host);
}

/* ---- cancellation ---- */

static void on_cancel(struct kernel_cancel_hook *hook, struct status *why) {
    struct wait *wait = CONTAINER_OF(hook, struct wait, hook);
    struct wait_room *room = wait->room;
    wait_room_lock(room);
    if (!wait->is_ended) {
        wait->is_cancelled = true;
        abandon_locked(wait, status_new(STATUS_CANCELLED, "%s", wait->kind->cancelled));
    }
    wait_room_unlock(room); /* the hook's reference keeps the room alive */
    wait_unref(wait);
}

/* ---- the public functions ---- */

void wait_room_lock(struct wait_room *room) { pthread_mutex_lock(&room->lock); }

static void take_ended_and_unlock(struct wait_room *room, struct list *ret_ended) {
    run_lines(room);
    list_init(ret_ended);
    list_splice_back(ret_ended, &room->ended);
    pthread_mutex_unlock(&room->lock);
}

void wait_room_unlock(struct wait_room *room) {
    struct list ended;
    take_ended_and_unlock(room, &ended);
    complete_all(&ended, false);
}

void wait_room_unlock_elsewhere(struct wait_room *room) {
    struct list ended;
    take_ended_and_unlock(room, &ended);
    complete_all(&ended, true);
}

/* Registers the cancellation of a wait that is stuck. The caller holds the lock. */
static void register_hook(struct wait *wait) {
    struct status *why = NULL;
    wait->hook.cancel = on_cancel;
    list_init(&wait->hook.link);
    /* the hook may run at once on another thread, which then waits for the lock */
    atomic_store_explicit(&wait->n_refs, 2, memory_order_relaxed);
    wait->has_hook = wait->ctx->host->cancel_register(wait->ctx, &wait->hook, &why);
    if (wait->has_hook)
        return;
    atomic_store_explicit(&wait->n_refs, 1, memory_order_relaxed);
    abandon_locked(wait, why);
}

enum kernel_result wait_room_enter(struct wait_room *room, int line, struct kernel_ctx *ctx,
                                   struct wait *wait) {
    wait->room = room;
    wait->ctx = ctx;
    object_ref(room->owner);
    atomic_init(&wait->n_refs, 1);
    wait_room_lock(room);
    list_push_back(&room->lines[line].waits, &wait->link);
    run_lines(room);
    if (!wait->is_ended)
        register_hook(wait);
    bool is_ended = wait->is_ended;
    if (is_ended)
        list_remove(&wait->link);
    wait_room_unlock(room);
    if (!is_ended)
        return KERNEL_PENDING; /* ctx belongs to the waker from here */
    if (ctx->pool && weight_of(wait) > HEAVY_BYTES) {
        complete_elsewhere(wait);
        return KERNEL_PENDING;
    }
    conclude(wait);
    wait_unref(wait);
    return KERNEL_DONE;
}
