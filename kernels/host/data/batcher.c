/* Keeps the queues of a batcher and decides when a batch is closed and run
 * (kernels/host/data/batcher.h). */
#include "kernels/host/data/batcher.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "kernels/host.h"
#include "kernels/support/rows.h"

/* ---- batches; the caller holds the lock ---- */

static struct batch *open_batch(struct batch_queue *queue) {
    return LIST_ENTRY(queue->batches.prev, struct batch, link);
}

static struct batch *batch_append(struct batch_queue *queue) {
    struct batch *batch = xcalloc(1, sizeof(*batch));
    batch->queue = queue;
    list_init(&batch->parts);
    list_push_back(&queue->batches, &batch->link);
    queue->n_batches++;
    return batch;
}

static void batch_free(struct batch *batch) {
    CHECK(list_is_empty(&batch->parts));
    rows_free(batch->captured, (size_t)batch->n_captured);
    rows_free(batch->args, (size_t)batch->n_args);
    rows_free(batch->rets, (size_t)batch->n_rets);
    if (batch->function)
        object_unref(&batch->function->object);
    free(batch);
}

/* Moves a part to `dropped`, because what it holds must be freed without the lock. */
static void part_drop(struct batch_part *part, struct list *dropped) {
    list_remove(&part->link);
    list_remove(&part->of_entry);
    list_push_back(dropped, &part->link);
}

static void parts_free(struct list *dropped) {
    for (struct list *link; (link = list_pop_front(dropped));) {
        struct batch_part *part = LIST_ENTRY(link, struct batch_part, link);
        rows_free(part->rows, (size_t)part->n_inputs);
        free(part);
    }
}

static bool is_empty(const struct batch *batch) { return list_is_empty(&batch->parts); }

static bool is_open_due(struct batch_queue *queue) {
    const struct batcher *batcher = queue->batcher;
    const struct batch *open = open_batch(queue);
    if (is_empty(open))
        return false;
    return open->n_rows >= batcher->options.max_batch_rows || batcher->options.timeout_us == 0 ||
           alarm_clock_now_ns(batcher->alarms) >= queue->open_until_ns;
}

/* ---- the open batch's deadline ---- */

static void on_alarm(struct alarm *alarm);

static void clear_alarm(struct batch_queue *queue) {
    if (alarm_clear(queue->batcher->alarms, &queue->alarm))
        /* never the last reference, because the caller has one */
        object_unref(&queue->batcher->object);
}

/* Sets the deadline of the open batch, whose first part has waited since `since_ns`. */
static void start_time(struct batch_queue *queue, int64_t since_ns) {
    struct batcher *batcher = queue->batcher;
    int64_t timeout_us = batcher->options.timeout_us, now_ns = alarm_clock_now_ns(batcher->alarms);
    int64_t gone_us = (now_ns - since_ns) / 1000;
    if (timeout_us == 0)
        return;
    queue->open_until_ns =
        timeout_us < (INT64_MAX - since_ns) / 1000 ? since_ns + timeout_us * 1000 : INT64_MAX;
    clear_alarm(queue);
    object_ref(&batcher->object);
    alarm_set(batcher->alarms, &queue->alarm, timeout_us - MIN(gone_us, timeout_us));
}

/* ---- batches that may run ---- */

static void close_open(struct batch_queue *queue) {
    clear_alarm(queue);
    batch_append(queue);
}

/* Moves whole parts from the end of the open batch to the next one, until the batch has exactly as
 * many rows as a smaller allowed size. Where no number of parts gives that size, nothing is
 * moved. */
static void trim_down(struct batch_queue *queue, struct batch *batch) {
    const struct batcher_options *options = &queue->batcher->options;
    int64_t wanted = 0, n = batch->n_rows;
    for (int i = 0; i < options->n_allowed && options->allowed[i] <= batch->n_rows; i++)
        wanted = MAX(options->allowed[i], (int64_t)0);
    if (wanted == 0 || wanted == n)
        return;
    struct list *link = batch->parts.prev;
    while (n > wanted && link != &batch->parts) {
        n -= LIST_ENTRY(link, struct batch_part, link)->n_rows;
        link = link->prev;
    }
    if (n != wanted)
        return;
    struct batch *next = open_batch(queue);
    while (batch->parts.prev != link) {
        struct batch_part *part = LIST_ENTRY(batch->parts.prev, struct batch_part, link);
        list_remove(&part->link);
        list_push_front(&next->parts, &part->link);
        part->batch = next;
        batch->n_rows -= part->n_rows;
        next->n_rows += part->n_rows;
    }
    start_time(queue, LIST_ENTRY(next->parts.next, struct batch_part, link)->entry->start_ns);
}

static struct batch *next_to_run(struct batch_queue *queue) {
    if (queue->n_batches == 1) {
        struct batch *open = open_batch(queue);
        if (!is_open_due(queue))
            return NULL;
        close_open(queue);
        if (queue->batcher->options.trims_down &&
            open->n_rows < queue->batcher->options.max_batch_rows)
            trim_down(queue, open);
    }
    queue->n_batches--;
    return LIST_ENTRY(list_pop_front(&queue->batches), struct batch, link);
}

/* Submits all batches that may run to the pool. Queues take turns. */
static void run_due(struct batcher *batcher) {
    bool has_found = true;
    while (has_found) {
        has_found = false;
        LIST_FOR_EACH (link, &batcher->queues) {
            if (batcher->n_running >= batcher->options.max_running)
                return;
            struct batch *batch = next_to_run(LIST_ENTRY(link, struct batch_queue, link));
            if (!batch)
                continue;
            has_found = true;
            batcher->n_running++;
            batch->is_running = true;
            BATCH_FOR_EACH_PART(part, batch)
            batch->n_live++;
            batch->task.run = batch_run;
            object_ref(&batcher->object); /* released by batch_finish */
            pool_submit(batcher->pool, &batch->task);
        }
    }
}

static void on_alarm(struct alarm *alarm) {
    struct batch_queue *queue = CONTAINER_OF(alarm, struct batch_queue, alarm);
    struct batcher *batcher = queue->batcher;
    pthread_mutex_lock(&batcher->lock);
    run_due(batcher);
    pthread_mutex_unlock(&batcher->lock);
    object_unref(&batcher->object);
}

/* ---- queues ---- */

static struct status *check_options(const struct batcher_options *options) {
    if (options->max_input_rows == 0)
        return status_invalid("input_batch_size_limit must be positive; was 0");
    if (options->timeout_us < 0)
        return status_invalid("batch_timeout_micros must be non-negative; was %lld",
                              (long long)options->timeout_us);
    if (options->splits && !options->is_adaptive &&
        options->max_batch_rows > options->max_input_rows)
        return status_invalid("When enable_large_batch_splitting is true, input_batch_size_limit "
                              "must be greater than or equal to "
                              "max_execution_batch_size.");
    return NULL;
}

static struct status *queue_of(struct batcher *batcher, struct span key, struct batch_queue **ret) {
    LIST_FOR_EACH (link, &batcher->queues) {
        *ret = LIST_ENTRY(link, struct batch_queue, link);
        if (span_equal((struct span){(*ret)->key.data, (*ret)->key.len}, key))
            return NULL;
    }
    TRY(check_options(&batcher->options));
    struct batch_queue *queue = *ret = xcalloc(1, sizeof(*queue));
    queue->batcher = batcher;
    str_add_bytes(&queue->key, key.data, key.len);
    list_init(&queue->batches);
    queue->alarm.ring = on_alarm;
    batch_append(queue);
    list_push_back(&batcher->queues, &queue->link);
    return NULL;
}

static struct status *check_room(const struct batch_queue *queue, int64_t n_rows) {
    const struct batcher_options *options = &queue->batcher->options;
    int64_t in_open =
        MAX(options->max_batch_rows - LIST_ENTRY(queue->batches.prev, struct batch, link)->n_rows,
            (int64_t)0);
    static const char full[] =
        "The batch scheduling queue to which this task was submitted is full";
    if (n_rows > options->max_input_rows)
        return status_invalid(options->is_adaptive
                                  ? "Task size %lld is larger than max input task size %lld"
                                  : "Task size %lld is larger than maximum input batch size %lld",
                              (long long)n_rows, (long long)options->max_input_rows);
    if (n_rows <= in_open)
        return NULL;
    int64_t n_more = MAX(options->max_enqueued - queue->n_batches, (int64_t)0), capacity;
    if (mul_overflows_i64(n_more, options->max_batch_rows, &capacity) ||
        add_overflows_i64(capacity, in_open, &capacity))
        return NULL;
    if (options->splits && n_rows > capacity)
        return status_unavailable(
            "%s; task size is %lld but scheduling capacity is only %lld (num_enqueued_batches=%d, "
            "max_enqueued_batches=%lld)",
            full, (long long)n_rows, (long long)capacity, queue->n_batches,
            (long long)options->max_enqueued);
    if (!options->splits && n_more == 0)
        return status_unavailable(
            "%s; currently %d batches enqueued and max_enqueued_batches is %lld", full,
            queue->n_batches, (long long)options->max_enqueued);
    return NULL;
}

/* ---- entries ---- */

struct batch_entry *batch_entry_new(struct batcher *batcher, struct kernel_ctx *ctx, int n_inputs) {
    struct batch_entry *entry = xcalloc(1, sizeof(*entry));
    object_ref(&batcher->object);
    entry->batcher = batcher;
    entry->ctx = ctx;
    entry->n_inputs = n_inputs;
    entry->n_outputs = ctx->instance->n_outputs;
    entry->allocator = ctx->instance->allocator;
    entry->key = (int64_t)random_u64();
    atomic_init(&entry->n_refs, 1);
    list_init(&entry->parts);
    list_init(&entry->hook.link);
    return entry;
}

void batch_entry_unref(struct batch_entry *entry) {
    struct batcher *batcher = entry->batcher;
    if (atomic_fetch_sub_explicit(&entry->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    CHECK(list_is_empty(&entry->parts));
    rows_free(entry->outs, (size_t)entry->n_parts * (size_t)entry->n_outputs);
    rows_free(entry->captured, (size_t)entry->n_captured);
    if (entry->function)
        object_unref(&entry->function->object);
    status_unref(entry->status);
    free(entry);
    object_unref(&batcher->object);
}

/* Sets the entry's outputs from those of its parts. */
static struct status *set_outputs(struct batch_entry *entry) {
    struct kernel_ctx *ctx = entry->ctx;
    int n_outputs = ctx->instance->n_outputs;
    struct status *st = NULL;
    for (int i = 0; i < n_outputs && !st; i++) {
        if (entry->n_parts == 1) {
            tensor_move(&ctx->outputs[i], &entry->outs[i]);
            continue;
        }
        const struct tensor **pieces = xcalloc((size_t)entry->n_parts, sizeof(*pieces));
        for (int part = 0; part < entry->n_parts; part++)
            pieces[part] = &entry->outs[(size_t)part * (size_t)n_outputs + (size_t)i];
        st = rows_join(entry->allocator, pieces, entry->n_parts, ctx->pool, &ctx->outputs[i]);
        free(pieces);
    }
    return st;
}

/* Ends an entry and tells its step. The caller does not hold the lock. */
static void entry_conclude(struct batch_entry *entry) {
    struct kernel_ctx *ctx = entry->ctx;
    if (entry->has_hook && !entry->is_cancelled && ctx->host->cancel_deregister(ctx, &entry->hook))
        batch_entry_unref(entry); /* the reference of the hook */
    struct status *st = status_ref(entry->status);
    if (!st)
        st = set_outputs(entry);
    if (st)
        kernel_fail(ctx, st);
    batch_entry_unref(entry);
    ctx->host->done(ctx);
}

static void conclude_all(struct list *ended) {
    if (list_is_empty(ended))
        return;
    const struct kernel_host *host = LIST_ENTRY(ended->next, struct batch_entry, link)->ctx->host;
    kernel_defer_wakes_begin(host);
    for (struct list *link; (link = list_pop_front(ended));)
        entry_conclude(LIST_ENTRY(link, struct batch_entry, link));
    kernel_defer_wakes_end(host);
}

/* One of the entry's parts has ended. The caller holds the lock. */
static void part_finish(struct batch_entry *entry, struct list *ended) {
    if (--entry->n_pending > 0)
        return;
    entry->is_ended = true;
    list_push_back(ended, &entry->link);
}

static void detach_waiting(struct batch_part *part, struct list *dropped) {
    struct batch *batch = part->batch;
    struct batch_queue *queue = batch->queue;
    batch->n_rows -= part->n_rows;
    part_drop(part, dropped);
    if (!is_empty(batch))
        return;
    if (batch == open_batch(queue)) {
        clear_alarm(queue);
        return;
    }
    list_remove(&batch->link);
    queue->n_batches--;
    batch_free(batch);
}

/* Cancels the call of a batch. The caller does not hold the lock. The batch does not end before
 * this has returned. */
static void cancel_call(struct batch *batch, struct status *why) {
    struct batcher *batcher = batch->queue->batcher;
    batch->call.function->host->function_cancel(&batch->call, why);
    pthread_mutex_lock(&batcher->lock);
    batch->is_cancelling = false;
    bool has_ended = batch->has_ended_meanwhile;
    pthread_mutex_unlock(&batcher->lock);
    if (has_ended)
        batch_on_done(&batch->call);
}

/* False when no other entry wants the batch's result. The part then stays until the batch has
 * ended. The caller holds the lock. */
static bool detach_running(struct batch_part *part) {
    if (part->batch->n_live == 1 || !part->batch->queue->batcher->options.calls_function)
        return false;
    part->batch->n_live--;
    part->entry = NULL;
    list_remove(&part->of_entry);
    return true;
}

/* Finds a batch that only this entry still waits for, and whose call is running. */
static struct batch *next_to_cancel(struct batch_entry *entry) {
    LIST_FOR_EACH (link, &entry->parts) {
        struct batch *batch = LIST_ENTRY(link, struct batch_part, of_entry)->batch;
        if (batch->is_calling && !batch->was_cancelled)
            return batch;
    }
    return NULL;
}

static void on_cancel(struct kernel_cancel_hook *hook, struct status *why) {
    struct batch_entry *entry = CONTAINER_OF(hook, struct batch_entry, hook);
    struct batcher *batcher = entry->batcher;
    struct list ended, dropped;
    list_init(&ended);
    list_init(&dropped);
    pthread_mutex_lock(&batcher->lock);
    if (!entry->is_ended) {
        entry->is_cancelled = true;
        status_unref(entry->status);
        entry->status = status_ref(why);
    }
    LIST_FOR_EACH_SAFE (link, next, &entry->parts) {
        struct batch_part *part = LIST_ENTRY(link, struct batch_part, of_entry);
        bool is_waiting = !part->batch->is_running;
        if (is_waiting)
            detach_waiting(part, &dropped);
        if (is_waiting || detach_running(part))
            part_finish(entry, &ended);
    }
    for (struct batch *batch; (batch = next_to_cancel(entry));) {
        batch->was_cancelled = batch->is_cancelling = true;
        pthread_mutex_unlock(&batcher->lock);
        cancel_call(batch, why);
        pthread_mutex_lock(&batcher->lock);
    }
    run_due(batcher);
    pthread_mutex_unlock(&batcher->lock);
    parts_free(&dropped);
    conclude_all(&ended);
    batch_entry_unref(entry);
}

/* ---- entering ---- */

static struct status *add_part(struct batch_queue *queue, struct batch_entry *entry, int64_t first,
                               int64_t n_rows) {
    struct batch *batch = open_batch(queue);
    struct batch_part *part = xcalloc(1, sizeof(*part));
    struct status *st = NULL;
    part->batch = batch;
    part->entry = entry;
    part->n_rows = n_rows;
    part->index = entry->n_pending++;
    part->n_inputs = entry->n_inputs;
    st = rows_try_new((size_t)entry->n_inputs, &part->rows);
    bool is_first = is_empty(batch);
    batch->n_rows += n_rows;
    list_push_back(&batch->parts, &part->link);
    list_push_back(&entry->parts, &part->of_entry);
    for (int i = 0; i < entry->n_inputs && !st; i++)
        st = tensor_slice_rows(&entry->ctx->inputs[i], first, first + n_rows, &part->rows[i]);
    if (is_first)
        start_time(queue, entry->start_ns);
    return st;
}

static int64_t room(const struct batcher *batcher, struct batch_queue *queue) {
    return MAX(batcher->options.max_batch_rows - open_batch(queue)->n_rows, (int64_t)0);
}

/* Counts the parts of an entry: one for each batch that its rows are in. */
static int64_t count_parts(const struct batcher *batcher, struct batch_queue *queue,
                           int64_t n_rows) {
    int64_t in_open = room(batcher, queue), size = batcher->options.max_batch_rows;
    if (!batcher->options.splits || n_rows <= in_open)
        return 1;
    int64_t rest = n_rows - in_open;
    return (in_open > 0) + rest / size + (rest % size != 0);
}

static struct status *schedule(struct batch_entry *entry, struct span key) {
    struct batcher *batcher = entry->batcher;
    struct batch_queue *queue;
    int64_t n_rows = tensor_dim(&entry->ctx->inputs[0], 0), first = 0;
    TRY(queue_of(batcher, key, &queue));
    if (n_rows > BATCH_MAX_ROWS)
        return status_exhausted("An input has %lld rows; up to %lld are batched", (long long)n_rows,
                                (long long)BATCH_MAX_ROWS);
    TRY(check_room(queue, n_rows));
    entry->start_ns = alarm_clock_now_ns(batcher->alarms);
    int64_t n_parts = count_parts(batcher, queue, n_rows);
    CHECK(n_parts > 0);
    if (n_parts > BATCH_MAX_PARTS)
        return status_exhausted("%lld rows would go into %lld batches; there may be %d",
                                (long long)n_rows, (long long)n_parts, BATCH_MAX_PARTS);
    size_t n_outs = (size_t)n_parts * (size_t)entry->n_outputs,
           n_pieces = n_outs + (size_t)n_parts * (size_t)entry->n_inputs;
    if (n_parts > 1 && n_pieces > BATCH_MAX_PIECES)
        return status_exhausted("%lld rows would go into %lld batches with %d inputs and %d "
                                "outputs each: %zu tensors; there may be %d",
                                (long long)n_rows, (long long)n_parts, entry->n_inputs,
                                entry->n_outputs, n_pieces, BATCH_MAX_PIECES);
    TRY(rows_try_new(n_outs, &entry->outs));
    entry->n_parts = (int)n_parts;
    for (int i = 0; i < entry->n_parts; i++) {
        if (room(batcher, queue) == 0 ||
            (!batcher->options.splits && n_rows > room(batcher, queue)))
            close_open(queue);
        int64_t n = MIN(n_rows - first, room(batcher, queue));
        TRY(add_part(queue, entry, first, n));
        first += n;
    }
    return NULL;
}

enum kernel_result batcher_enter(struct batch_entry *entry, struct span queue_key) {
    struct batcher *batcher = entry->batcher;
    struct kernel_ctx *ctx = entry->ctx;
    struct status *st = NULL;
    struct list dropped;
    list_init(&dropped);
    object_ref(&batcher->object);
    pthread_mutex_lock(&batcher->lock);
    st = schedule(entry, queue_key);
    if (!st) {
        /* the hook may be called at once on another thread, which then waits for the lock */
        entry->hook.cancel = on_cancel;
        atomic_fetch_add_explicit(&entry->n_refs, 1, memory_order_relaxed);
        entry->has_hook = ctx->host->cancel_register(ctx, &entry->hook, &st);
        if (!entry->has_hook)
            atomic_fetch_sub_explicit(&entry->n_refs, 1, memory_order_relaxed);
    }
    while (st && !list_is_empty(&entry->parts))
        detach_waiting(LIST_ENTRY(entry->parts.next, struct batch_part, of_entry), &dropped);
    run_due(batcher);
    pthread_mutex_unlock(&batcher->lock);
    parts_free(&dropped);
    if (st) {
        batch_entry_unref(entry);
        kernel_fail(ctx, st);
    }
    object_unref(&batcher->object);
    /* ctx belongs to the batcher while the entry is pending */
    return st ? KERNEL_DONE : KERNEL_PENDING;
}

/* ---- the end of a batch ---- */

void batch_finish(struct batch *batch, struct status *why_take) {
    struct batcher *batcher = batch->queue->batcher;
    struct list ended, dropped;
    list_init(&ended);
    list_init(&dropped);
    pthread_mutex_lock(&batcher->lock);
    while (!is_empty(batch)) {
        struct batch_part *part = LIST_ENTRY(batch->parts.next, struct batch_part, link);
        struct batch_entry *entry = part->entry;
        part_drop(part, &dropped);
        if (!entry)
            continue;
        if (!entry->status)
            entry->status = status_ref(why_take);
        part_finish(entry, &ended);
    }
    batcher->n_running--;
    run_due(batcher);
    pthread_mutex_unlock(&batcher->lock);
    parts_free(&dropped);
    batch_free(batch);
    status_unref(why_take);
    conclude_all(&ended);
    object_unref(&batcher->object);
}

/* ---- batchers ---- */

void batcher_options_fini(struct batcher_options *options) { free(options->allowed); }

static void batcher_free(struct object *object) {
    struct batcher *batcher = (struct batcher *)object;
    for (struct list *link; (link = list_pop_front(&batcher->queues));) {
        struct batch_queue *queue = LIST_ENTRY(link, struct batch_queue, link);
        /* the only batch, which is empty because each entry holds the batcher */
        batch_free(open_batch(queue));
        str_fini(&queue->key);
        free(queue);
    }
    batcher_options_fini(&batcher->options);
    pthread_mutex_destroy(&batcher->lock);
    free(batcher);
}

const struct object_type batcher_type = {.name = "tensorflow::BatchResource", .free = batcher_free};

struct status *batcher_new(struct batcher_options *options_take, struct alarm_clock *alarms,
                           struct pool *pool, struct batcher **ret) {
    struct batcher *batcher = xcalloc(1, sizeof(*batcher));
    object_init(&batcher->object, &batcher_type);
    batcher->options = *options_take;
    *options_take = (struct batcher_options){0};
    batcher->alarms = alarms;
    batcher->pool = pool;
    CHECK(pthread_mutex_init(&batcher->lock, NULL) == 0);
    list_init(&batcher->queues);
    *ret = batcher;
    return NULL;
}
