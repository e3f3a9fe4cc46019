/* Computes the ops of mutexes. A lock is a variant value, and holds the mutex until its last copy
 * is freed.
 *
 * MutexLocks wait in the order of their arrival. ConsumeMutexLock only takes the value and frees
 * it, so a program holds the lock between the two. */
#include <stdlib.h>

#include "kernels/support/named_resource.h"
#include "kernels/support/variant.h"
#include "kernels/support/wait_room.h"

extern const struct kernel_list mutex_kernels;

struct mutex {
    struct object object;
    struct wait_room room;
    bool is_locked; /* guarded by room.lock */
};

static void mutex_free(struct object *object) {
    struct mutex *mutex = (struct mutex *)object;
    wait_room_fini(&mutex->room);
    free(mutex);
}

static const struct object_type mutex_type = {.name = "tensorflow::Mutex", .free = mutex_free};

/* ---- the value ---- */

struct mutex_lock {
    struct object object;
    struct mutex *mutex; /* holds a reference */
};

/* Runs where the last holder releases the lock, perhaps with other locks held. */
static void mutex_lock_free(struct object *object) {
    struct mutex_lock *lock = (struct mutex_lock *)object;
    wait_room_lock(&lock->mutex->room);
    lock->mutex->is_locked = false;
    wait_room_unlock_elsewhere(&lock->mutex->room);
    object_unref(&lock->mutex->object);
    free(lock);
}

static const struct object_type mutex_lock_type = {.name = "tensorflow::SharedLockReleaser",
                                                   .free = mutex_lock_free};

/* ---- making ---- */

static void mutex_state_fini(void *arg) {
    named_resource_fini(arg);
    free(arg);
}

static struct status *mutex_init(struct kernel_init *init) {
    struct named_resource *resource = init->state = xcalloc(1, sizeof(*resource));
    return named_resource_init(resource, init, &mutex_type, RESOURCE_OWN, NULL);
}

static struct status *make_mutex(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    struct mutex *mutex = xcalloc(1, sizeof(*mutex));
    object_init(&mutex->object, &mutex_type);
    wait_room_init(&mutex->room, &mutex->object);
    *ret = &mutex->object;
    return NULL;
}

static enum kernel_result mutex_compute(struct kernel_ctx *ctx) {
    struct object *found = NULL;
    KERNEL_TRY(ctx, named_resource_get(ctx, ctx->instance->state, make_mutex, NULL, &found));
    object_unref(found);
    KERNEL_TRY(ctx, named_resource_output(ctx, ctx->instance->state));
    return KERNEL_DONE;
}

/* ---- locking ---- */

struct lock_wait {
    struct wait wait;
    struct mutex *mutex; /* the wait holds a reference */
};

static enum wait_result lock_wait_attempt(struct wait *wait) {
    struct mutex *mutex = CONTAINER_OF(wait, struct lock_wait, wait)->mutex;
    if (mutex->is_locked)
        return WAIT_STUCK;
    mutex->is_locked = true;
    return WAIT_ENDED;
}

static struct status *lock_wait_finish(struct wait *wait) {
    struct mutex_lock *lock = xcalloc(1, sizeof(*lock));
    object_init(&lock->object, &mutex_lock_type);
    lock->mutex = CONTAINER_OF(wait, struct lock_wait, wait)->mutex;
    object_ref(&lock->mutex->object);
    tensor_init_scalar_object(&wait->ctx->outputs[0], DT_VARIANT, &lock->object);
    return NULL;
}

static const struct wait_kind locking_kind = {.cancelled = "MutexLock operation was cancelled",
                                              .attempt = lock_wait_attempt,
                                              .finish = lock_wait_finish};

static enum kernel_result mutex_lock_compute(struct kernel_ctx *ctx) {
    struct object *found = NULL;
    KERNEL_TRY(ctx, named_resource_of_input(ctx, &mutex_type, &found));
    struct mutex *mutex = (struct mutex *)found;
    struct lock_wait *locking = xcalloc(1, sizeof(*locking));
    locking->wait.kind = &locking_kind;
    locking->mutex = mutex;
    enum kernel_result result = wait_room_enter(&mutex->room, 0, ctx, &locking->wait);
    object_unref(found);
    return result;
}

static enum kernel_result mutex_consume_compute(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    struct object *lock =
        in->n_elements == 1 ? ((struct object *const *)tensor_cdata(in))[0] : NULL;
    if (!lock || lock->type != &mutex_lock_type)
        return kernel_fail(
            ctx, status_invalid(
                     "Expected input to contain a SharedLockReleaser object, but saw variant: '%s'",
                     lock ? variant_text(lock) : "Variant<type: (empty)>"));
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "MutexV2", .compute = mutex_compute, .init = mutex_init, .fini = mutex_state_fini,
     .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE},
    {.op = "MutexLock", .compute = mutex_lock_compute, .flags = KERNEL_ASYNC | KERNEL_STATEFUL},
    {.op = "ConsumeMutexLock", .compute = mutex_consume_compute, .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list mutex_kernels = {rows, ARRAY_LEN(rows)};
