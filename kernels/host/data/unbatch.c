/* Returns rows to their steps after a batch, and collects gradients in one step
 * (kernels/host/data/unbatch.h). */
#include "kernels/host/data/unbatch.h"

#include <stdlib.h>

#include "common/base/map.h"
#include "kernels/support/rows.h"
#include "kernels/support/wait_room.h"

/* A value that waits for its step. */
struct kept_rows {
    struct list link; /* in the order of their deadlines */
    int64_t until_ns;
    uint64_t key;
    struct tensor value __attribute__((aligned(64)));
};

struct unbatch {
    struct object object;
    struct wait_room room; /* its lock guards the fields below */
    struct alarm_clock *alarms;
    int64_t timeout_us;
    struct u64map kept; /* key → struct kept_rows */
    struct list by_time;
    struct u64map waiting; /* key → the wait for it */
    struct alarm alarm;    /* holds a reference while it is set */
    bool is_alarm_set;
};

/* ---- kept values; the caller holds the lock ---- */

static void kept_free(struct kept_rows *kept) {
    tensor_clear(&kept->value);
    free(kept);
}

static struct kept_rows *kept_take(struct unbatch *unbatch, uint64_t key) {
    struct kept_rows *kept = u64map_remove(&unbatch->kept, key);
    if (kept)
        list_remove(&kept->link);
    return kept;
}

static int64_t life_ns(const struct unbatch *unbatch) {
    return MIN(MAX(unbatch->timeout_us, (int64_t)0), INT64_MAX / 4000) * 1000;
}

static bool is_wanted(struct unbatch *unbatch, const struct kept_rows *kept) {
    return u64map_get(&unbatch->waiting, kept->key);
}

/* Takes the oldest value, if it expires by `born_before_ns`, or returns NULL. A gradient that a
 * step waits for, while others are missing, is not taken but moved behind the younger ones. */
static struct kept_rows *take_oldest(struct unbatch *unbatch, int64_t born_before_ns) {
    int64_t now_ns = alarm_clock_now_ns(unbatch->alarms), life = life_ns(unbatch);
    for (size_t n = unbatch->kept.n_entries; n > 0; n--) {
        struct kept_rows *kept = LIST_ENTRY(unbatch->by_time.next, struct kept_rows, link);
        if (kept->until_ns > born_before_ns)
            return NULL;
        if (!is_wanted(unbatch, kept) || now_ns > INT64_MAX - 1 - life) /* the clock is closing */
            return kept_take(unbatch, kept->key);
        kept->until_ns = now_ns + life;
        list_remove(&kept->link);
        list_push_back(&unbatch->by_time, &kept->link);
    }
    return NULL;
}

static struct status *keep(struct unbatch *unbatch, uint64_t key, int64_t until_ns,
                           struct tensor *value_take) {
    if (unbatch->kept.n_entries >= UNBATCH_MAX_KEPT) {
        struct kept_rows *oldest = take_oldest(unbatch, INT64_MAX);
        if (!oldest)
            return status_exhausted("Steps wait for %d values of batches", UNBATCH_MAX_KEPT);
        kept_free(oldest);
    }
    struct kept_rows *kept = aligned_alloc(_Alignof(struct kept_rows), sizeof(*kept));
    if (!kept)
        return status_exhausted("Out of memory for the rows of a step");
    memset(kept, 0, sizeof(*kept));
    kept->key = key;
    kept->until_ns = until_ns;
    tensor_move(&kept->value, value_take);
    list_push_back(&unbatch->by_time, &kept->link);
    u64map_put(&unbatch->kept, key, kept);
    return NULL;
}

/* ---- lifetime ---- */

static void unbatch_free(struct object *object) {
    struct unbatch *unbatch = (struct unbatch *)object;
    for (struct list *link; (link = list_pop_front(&unbatch->by_time));)
        kept_free(LIST_ENTRY(link, struct kept_rows, link));
    u64map_fini(&unbatch->kept);
    u64map_fini(&unbatch->waiting);
    wait_room_fini(&unbatch->room);
    free(unbatch);
}

const struct object_type unbatch_type = {.name = "tensorflow::UnbatchResource",
                                         .free = unbatch_free};
const struct object_type unbatch_grad_type = {.name = "tensorflow::UnbatchGradResource",
                                              .free = unbatch_free};

static void on_alarm(struct alarm *alarm);

struct object *unbatch_new(const struct object_type *type, struct alarm_clock *alarms,
                           int64_t timeout_us) {
    struct unbatch *unbatch = xcalloc(1, sizeof(*unbatch));
    object_init(&unbatch->object, type);
    wait_room_init(&unbatch->room, &unbatch->object);
    unbatch->room.lines[0].is_scanned = true;
    unbatch->alarms = alarms;
    unbatch->alarm.ring = on_alarm;
    unbatch->timeout_us =
        type == &unbatch_type ? timeout_us : (int64_t)UNBATCH_GRADIENT_LIFE_S * 1000000;
    u64map_init(&unbatch->kept);
    u64map_init(&unbatch->waiting);
    list_init(&unbatch->by_time);
    return &unbatch->object;
}

/* ---- Unbatch ---- */

struct unbatch_wait {
    struct wait wait;
    struct unbatch *unbatch; /* the wait holds a reference */
    uint64_t key;
    int64_t until_ns;
    struct tensor value __attribute__((aligned(64)));
};

static struct unbatch_wait *unbatch_wait_of(struct wait *wait) {
    return CONTAINER_OF(wait, struct unbatch_wait, wait);
}

static void stop_waiting(struct wait *wait) {
    struct unbatch_wait *self = unbatch_wait_of(wait);
    if (u64map_get(&self->unbatch->waiting, self->key) == self)
        u64map_remove(&self->unbatch->waiting, self->key);
}

static enum wait_result unbatch_attempt(struct wait *wait) {
    struct unbatch_wait *self = unbatch_wait_of(wait);
    struct unbatch *unbatch = self->unbatch;
    struct kept_rows *kept = kept_take(unbatch, self->key);
    if (kept) {
        tensor_move(&self->value, &kept->value);
        kept_free(kept);
    } else if (alarm_clock_now_ns(unbatch->alarms) >= self->until_ns) {
        wait->status = status_new(STATUS_DEADLINE_EXCEEDED,
                                  "Batched data did not arrive within timeout window.");
    } else {
        struct unbatch_wait *first = u64map_get(&unbatch->waiting, self->key);
        if (first && first != self) {
            wait->status =
                status_new(STATUS_ALREADY_EXISTS, "Multiple session runs with the same batch key.");
            return WAIT_ENDED;
        }
        u64map_put(&unbatch->waiting, self->key, self);
        return WAIT_STUCK;
    }
    stop_waiting(wait);
    return WAIT_ENDED;
}

static struct status *unbatch_finish(struct wait *wait) {
    tensor_move(&wait->ctx->outputs[0], &unbatch_wait_of(wait)->value);
    return NULL;
}

static void unbatch_wait_free(struct wait *wait) {
    struct unbatch_wait *self = unbatch_wait_of(wait);
    tensor_clear(&self->value);
    free(self);
}

static const struct wait_kind unbatch_kind = {.cancelled = "Unbatch operation was cancelled",
                                              .attempt = unbatch_attempt,
                                              .give_back = stop_waiting,
                                              .finish = unbatch_finish,
                                              .free = unbatch_wait_free};

/* ---- waits of UnbatchGrad ---- */

struct gradient_wait {
    struct wait wait;
    struct unbatch *unbatch; /* the wait holds a reference */
    uint64_t key;            /* the key of the gradient that this execution has stored itself */
    int64_t until_ns;
    int64_t n;
    uint64_t *keys;
    struct tensor *pieces; /* n of them */
};

static struct gradient_wait *gradient_wait_of(struct wait *wait) {
    return CONTAINER_OF(wait, struct gradient_wait, wait);
}

/* ---- the alarm; the caller holds the lock ---- */

/* Sets the alarm for something that expires at `until_ns`, unless it is set. Everything has the
 * same lifetime, so earlier things expire first, and one alarm is enough. */
static void arm_alarm(struct unbatch *unbatch, int64_t until_ns) {
    if (unbatch->is_alarm_set)
        return;
    int64_t left_ns = MAX(until_ns - alarm_clock_now_ns(unbatch->alarms), (int64_t)0);
    unbatch->is_alarm_set = true;
    object_ref(&unbatch->object);
    alarm_set(unbatch->alarms, &unbatch->alarm, left_ns / 1000 + (left_ns % 1000 != 0));
}

static void disarm_idle_alarm(struct unbatch *unbatch) {
    if (!list_is_empty(&unbatch->by_time) || !unbatch->is_alarm_set ||
        !alarm_clear(unbatch->alarms, &unbatch->alarm))
        return;
    unbatch->is_alarm_set = false;
    object_unref(&unbatch->object); /* never the last reference, because the caller has one */
}

/* The time at which the first value, or the first wait for one, expires; INT64_MAX when there is
 * nothing. */
static int64_t next_end(const struct unbatch *unbatch) {
    const struct list *waits = &unbatch->room.lines[0].waits;
    int64_t at_ns = INT64_MAX;
    if (!list_is_empty(&unbatch->by_time))
        at_ns = LIST_ENTRY(unbatch->by_time.next, struct kept_rows, link)->until_ns;
    if (list_is_empty(waits))
        return at_ns;
    struct wait *first = LIST_ENTRY(waits->next, struct wait, link);
    return MIN(at_ns, unbatch->object.type == &unbatch_type ? unbatch_wait_of(first)->until_ns
                                                            : gradient_wait_of(first)->until_ns);
}

static void on_alarm(struct alarm *alarm) {
    struct unbatch *unbatch = CONTAINER_OF(alarm, struct unbatch, alarm);
    struct list late;
    list_init(&late);
    wait_room_lock(&unbatch->room);
    int64_t now_ns = alarm_clock_now_ns(unbatch->alarms);
    unbatch->is_alarm_set = false;
    for (struct kept_rows *kept; (kept = take_oldest(unbatch, now_ns));)
        list_push_back(&late, &kept->link);
    wait_room_unlock(&unbatch->room); /* unlocking ends the waits that have expired */
    wait_room_lock(&unbatch->room);
    int64_t next_ns = next_end(unbatch);
    if (next_ns < INT64_MAX)
        arm_alarm(unbatch, next_ns);
    wait_room_unlock(&unbatch->room);
    for (struct list *link; (link = list_pop_front(&late));)
        kept_free(LIST_ENTRY(link, struct kept_rows, link));
    object_unref(&unbatch->object);
}

static struct status *check_index(const struct tensor *index, int64_t n_rows) {
    if (index->rank != 2)
        return status_invalid("Wrong shape for index tensor. Expected a matrix; Got rank: %d.",
                              index->rank);
    if (tensor_dim(index, 0) > n_rows)
        return status_invalid("Wrong shape for index tensor. Expected 0th dimension size to be no "
                              "greater than %lld; Got: %lld.",
                              (long long)n_rows, (long long)tensor_dim(index, 0));
    if (tensor_dim(index, 0) > UNBATCH_MAX_KEPT)
        return status_exhausted("The index tensor has %lld rows; there may be %d",
                                (long long)tensor_dim(index, 0), UNBATCH_MAX_KEPT);
    if (tensor_dim(index, 1) != 3)
        return status_invalid(
            "Wrong shape for index tensor. Expected 1st dimension size to be 3 ; Got: %lld.",
            (long long)tensor_dim(index, 1));
    return NULL;
}

/* Splits data into the rows of each key; the remaining rows are padding. Only the numbers of rows
 * matter, because keys have the same order as rows. */
static struct status *split(const struct tensor *data, const struct tensor *index,
                            struct tensor *pieces) {
    const int64_t *at = tensor_cdata(index);
    int64_t n = tensor_dim(index, 0), first = 0;
    for (int64_t i = 0; i < n; i++, at += 3) {
        int64_t size, end;
        if (__builtin_sub_overflow(at[2], at[1], &size) || size < 0)
            return status_invalid(
                "Row %lld of the index tensor ends before it begins: [%lld, %lld)", (long long)i,
                (long long)at[1], (long long)at[2]);
        if (add_overflows_i64(first, size, &end) || end > tensor_dim(data, 0))
            return status_invalid("Sum of split sizes must not exceed dim0-size of input tensor");
        TRY(tensor_slice_rows(data, first, end, &pieces[i]));
        first = end;
    }
    return NULL;
}

static struct status *keep_pieces(struct unbatch *unbatch, const struct tensor *index,
                                  int64_t until_ns, struct tensor *pieces) {
    const int64_t *at = tensor_cdata(index);
    for (int64_t i = 0; i < tensor_dim(index, 0); i++) {
        uint64_t key = (uint64_t)at[3 * i];
        if (u64map_get(&unbatch->kept, key))
            return status_new(STATUS_ALREADY_EXISTS,
                              "Multiple tensors returned for same batch key.");
        TRY(keep(unbatch, key, until_ns, &pieces[i]));
    }
    return NULL;
}

enum kernel_result unbatch_run(struct object *object, struct kernel_ctx *ctx) {
    struct unbatch *unbatch = (struct unbatch *)object;
    const struct tensor *data = kernel_input(ctx, 0), *index = kernel_input(ctx, 1),
                        *id = kernel_input(ctx, 2);
    if (data->rank == 0)
        return kernel_fail(ctx, status_invalid("batched_tensor must have at least one dimension"));
    KERNEL_TRY(ctx, check_index(index, tensor_dim(data, 0)));
    if (id->rank != 0)
        return kernel_fail(ctx,
                           status_invalid("Input id should be scalar; Got rank: %d.", id->rank));
    size_t n = (size_t)tensor_dim(index, 0);
    struct tensor *pieces = NULL;
    KERNEL_TRY(ctx, rows_try_new(n, &pieces));
    struct status *st = split(data, index, pieces);
    int64_t until_ns = alarm_clock_now_ns(unbatch->alarms) + life_ns(unbatch);
    if (!st) {
        wait_room_lock(&unbatch->room);
        st = keep_pieces(unbatch, index, until_ns, pieces);
        arm_alarm(unbatch, until_ns);
        wait_room_unlock(&unbatch->room);
    }
    rows_free(pieces, n);
    if (st)
        return kernel_fail(ctx, st);
    struct unbatch_wait *wait = aligned_alloc(_Alignof(struct unbatch_wait), sizeof(*wait));
    CHECK(wait);
    memset(wait, 0, sizeof(*wait));
    wait->wait.kind = &unbatch_kind;
    wait->unbatch = unbatch;
    wait->key = (uint64_t) * (const int64_t *)tensor_cdata(id);
    wait->until_ns = until_ns;
    return wait_room_enter(&unbatch->room, 0, ctx, &wait->wait);
}

/* ---- UnbatchGrad ---- */

static void gradient_release(struct wait *wait);

static enum wait_result gradient_attempt(struct wait *wait) {
    struct gradient_wait *self = gradient_wait_of(wait);
    struct unbatch *unbatch = self->unbatch;
    for (int64_t i = 0; i < self->n; i++) {
        if (u64map_get(&unbatch->kept, self->keys[i]))
            continue;
        if (alarm_clock_now_ns(unbatch->alarms) < self->until_ns)
            return WAIT_STUCK;
        wait->status = status_new(STATUS_DEADLINE_EXCEEDED,
                                  "No step has brought the gradient of key %lld of batch_index "
                                  "within %d seconds.",
                                  (long long)self->keys[i], UNBATCH_GRADIENT_LIFE_S);
        gradient_release(wait);
        return WAIT_ENDED;
    }
    for (int64_t i = 0; i < self->n && !wait->status; i++) {
        struct kept_rows *kept = kept_take(unbatch, self->keys[i]);
        if (!kept) {
            wait->status = status_invalid("bad bookkeeping of available tensors.");
            break;
        }
        tensor_move(&self->pieces[i], &kept->value);
        kept_free(kept);
    }
    for (int64_t i = 0; i < self->n; i++)
        if (u64map_get(&unbatch->waiting, self->keys[i]) == self)
            u64map_remove(&unbatch->waiting, self->keys[i]);
    disarm_idle_alarm(unbatch);
    return WAIT_ENDED;
}

static void gradient_release(struct wait *wait) {
    struct gradient_wait *self = gradient_wait_of(wait);
    struct kept_rows *kept = kept_take(self->unbatch, self->key);
    if (kept)
        kept_free(kept);
    for (int64_t i = 0; i < self->n; i++)
        if (u64map_get(&self->unbatch->waiting, self->keys[i]) == self)
            u64map_remove(&self->unbatch->waiting, self->keys[i]);
    disarm_idle_alarm(self->unbatch);
}

static struct status *gradient_finish(struct wait *wait) {
    struct gradient_wait *self = gradient_wait_of(wait);
    const struct tensor **pieces = xcalloc((size_t)self->n, sizeof(*pieces));
    struct status *st = NULL;
    for (int64_t i = 0; i < self->n; i++) {
        pieces[i] = &self->pieces[i];
        if (pieces[i]->rank == 0 && !st)
            st = status_invalid("Gradients to be put together must have at least one dimension");
    }
    if (!st)
        st = rows_join(wait->ctx->instance->allocator, pieces, (int)self->n, wait->ctx->pool,
                       &wait->ctx->outputs[0]);
    free(pieces);
    return st;
}

static int64_t gradient_weight(const struct wait *wait) {
    const struct gradient_wait *self = gradient_wait_of((struct wait *)wait);
    int64_t weight = 0;
    for (int64_t i = 0; i < self->n; i++)
        weight += (int64_t)tensor_size_bytes(&self->pieces[i]);
    return weight;
}

static void gradient_wait_free(struct wait *wait) {
    struct gradient_wait *self = gradient_wait_of(wait);
    rows_free(self->pieces, (int)self->n);
    free(self->keys);
    free(self);
}

static const struct wait_kind gradient_kind = {.cancelled = "UnbatchGrad operation was cancelled",
                                               .attempt = gradient_attempt,
                                               .give_back = gradient_release,
                                               .finish = gradient_finish,
                                               .weight = gradient_weight,
                                               .free = gradient_wait_free};

static struct status *check_gradient_index(const struct tensor *index) {
    if (index->n_elements == 0)
        return status_invalid("batch_index is empty while the tensor isn't.");
    int64_t n = index->rank > 0 ? tensor_dim(index, 0) : 1;
    if (index->n_elements % 3 != 0 || index->n_elements / 3 != n)
        return status_invalid(
            "batch_index should contain 3 elements for each of %lld rows. Received %lld",
            (long long)n, (long long)index->n_elements);
    return n <= UNBATCH_MAX_KEPT
               ? NULL
               : status_exhausted("batch_index has %lld rows; up to %d are put together",
                                  (long long)n, UNBATCH_MAX_KEPT);
}

/* Stores the gradient until the step that collects it arrives. */
static struct status *keep_gradient(struct unbatch *unbatch, uint64_t key,
                                    const struct tensor *gradient) {
    struct tensor value = TENSOR_INIT;
    int64_t until_ns = alarm_clock_now_ns(unbatch->alarms) + life_ns(unbatch);
    if (u64map_get(&unbatch->kept, key))
        return status_invalid("Two runs with the same batch key.");
    tensor_copy(&value, gradient);
    struct status *st = keep(unbatch, key, until_ns, &value);
    tensor_clear(&value);
    if (!st)
        arm_alarm(unbatch, until_ns);
    return st;
}

/* Notes that this wait needs its keys. While a value is missing, only one wait may need it. */
static struct status *register_keys(struct gradient_wait *self) {
    struct unbatch *unbatch = self->unbatch;
    for (int64_t i = 0; i < self->n; i++) {
        void *other = u64map_get(&unbatch->waiting, self->keys[i]);
        if (other == self)
            return status_invalid("batch_index has key %lld twice", (long long)self->keys[i]);
        if (other && !u64map_get(&unbatch->kept, self->keys[i]))
            return status_invalid("Missing tensor wanted by more than one batch.");
        u64map_put(&unbatch->waiting, self->keys[i], self);
    }
    return NULL;
}

static struct gradient_wait *gradient_wait_new(struct unbatch *unbatch, uint64_t key,
                                               const struct tensor *index) {
    struct gradient_wait *self = xcalloc(1, sizeof(*self));
    const int64_t *at = tensor_cdata(index);
    self->wait.kind = &gradient_kind;
    self->unbatch = unbatch;
    self->key = key;
    self->until_ns = alarm_clock_now_ns(unbatch->alarms) + life_ns(unbatch);
    self->n = index->n_elements / 3;
    self->keys = xcalloc((size_t)self->n, sizeof(*self->keys));
    for (int64_t i = 0; i < self->n; i++)
        self->keys[i] = (uint64_t)at[3 * i];
    self->pieces = rows_new((int)self->n);
    return self;
}

/* Makes an output without rows, because none of the batch's rows were the step's. */
static struct status *no_rows(struct kernel_ctx *ctx, const struct tensor *gradient) {
    if (gradient->rank == 0)
        return status_invalid("grad must have at least one dimension");
    return tensor_slice_rows(gradient, 0, 0, &ctx->outputs[0]);
}

enum kernel_result unbatch_grad_run(struct object *object, struct kernel_ctx *ctx) {
    struct unbatch *unbatch = (struct unbatch *)object;
    const struct tensor *data = kernel_input(ctx, 0), *index = kernel_input(ctx, 1),
                        *gradient = kernel_input(ctx, 2), *id = kernel_input(ctx, 3);
    if (id->rank != 0)
        return kernel_fail(
            ctx, status_invalid("Expected `id` to be scalar. Received rank %d", id->rank));
    uint64_t key = (uint64_t) * (const int64_t *)tensor_cdata(id);
    struct gradient_wait *wait = NULL;
    if (data->n_elements > 0) {
        KERNEL_TRY(ctx, check_gradient_index(index));
        wait = gradient_wait_new(unbatch, key, index);
    } else {
        KERNEL_TRY(ctx, no_rows(ctx, gradient));
    }
    wait_room_lock(&unbatch->room);
    struct status *st = keep_gradient(unbatch, key, gradient);
    if (!st && wait && (st = register_keys(wait)))
        gradient_release(&wait->wait);
    wait_room_unlock(&unbatch->room); /* unlocking lets the wait for this key advance */
    if (!st && wait)
        return wait_room_enter(&unbatch->room, 0, ctx, &wait->wait);
    if (wait)
        gradient_wait_free(&wait->wait);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}
