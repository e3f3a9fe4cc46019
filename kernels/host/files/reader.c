/* Runs the operations on readers (kernels/host/files/reader.h):
 *
 *   reader_run ──► wait for the reader ──► body, on an I/O thread ──┬─ done ──► reader released,
 *                                             ▲                     │           host->done
 *                                             │                     └─ wants work ─┐
 *                                             └───── wait for the queue ───────────┘
 *
 * The two waits are those of wait rooms, which end an execution by its host's `done`. They get an
 * inner context whose host forwards all calls but `done`, which continues here instead. */
#include "kernels/host/files/reader.h"

#include <stdlib.h>

#include "kernels/host.h"

/* ---- the reader ---- */

static void reader_free(struct object *object) {
    struct reader *reader = (struct reader *)object;
    record_source_free(reader->source);
    wait_room_fini(&reader->room);
    str_fini(&reader->work);
    free(reader->name);
    free(reader);
}

const struct object_type reader_type = {.name = "tensorflow::ReaderInterface", .free = reader_free};

struct reader *reader_new(const struct record_options *options, const char *name) {
    struct reader *reader = xcalloc(1, sizeof(*reader));
    object_init(&reader->object, &reader_type);
    wait_room_init(&reader->room, &reader->object);
    reader->name = xstrdup(name);
    reader->options = *options;
    return reader;
}

struct reader_wait {
    struct wait wait;
    struct reader *reader;
};

static enum wait_result wait_attempt(struct wait *wait) {
    struct reader *reader = CONTAINER_OF(wait, struct reader_wait, wait)->reader;
    if (reader->is_busy)
        return WAIT_STUCK;
    reader->is_busy = true;
    return WAIT_ENDED;
}

static const struct wait_kind wait_kind_of_reader = {.cancelled = "Reader operation was cancelled",
                                                     .attempt = wait_attempt};

/* ---- an operation ---- */

static void op_run(struct pool_task *task);

static void op_submit(struct reader_op *op) {
    op->task.run = op_run;
    op->outer->host->submit_io(op->outer, &op->task);
}

/* Frees everything but the outer execution, which has the failure, if there was any. */
static struct kernel_ctx *op_free(struct reader_op *op) {
    struct kernel_ctx *outer = op->outer;
    tensor_clear(&op->work);
    if (op->queue)
        queue_unref(op->queue);
    object_unref(&op->reader->object);
    free(op);
    return outer;
}

static void op_end(struct reader_op *op, struct status *st) {
    struct reader *reader = op->reader;
    wait_room_lock(&reader->room);
    reader->is_busy = false;
    wait_room_unlock(&reader->room);
    if (st)
        kernel_fail(op->outer, st);
    struct kernel_ctx *outer = op_free(op);
    outer->host->done(outer);
}

static struct status *take_failure(struct reader_op *op) {
    struct status *st = op->inner.status;
    op->inner.status = NULL;
    return st;
}

/* Called on any thread when a wait of the inner context has ended. */
static void inner_done(struct kernel_ctx *ctx) {
    struct reader_op *op = (struct reader_op *)ctx;
    struct status *st = take_failure(op);
    if (!st) {
        op->is_waiting_for_reader = false;
        op_submit(op);
    } else if (op->is_waiting_for_reader) { /* the reader was never ours */
        kernel_fail(op->outer, st);
        struct kernel_ctx *outer = op_free(op);
        outer->host->done(outer);
    } else {
        op_end(op, st);
    }
}

static bool inner_cancel_register(struct kernel_ctx *ctx, struct kernel_cancel_hook *hook,
                                  struct status **ret_why) {
    struct kernel_ctx *outer = ((struct reader_op *)ctx)->outer;
    return outer->host->cancel_register(outer, hook, ret_why);
}
static bool inner_cancel_deregister(struct kernel_ctx *ctx, struct kernel_cancel_hook *hook) {
    struct kernel_ctx *outer = ((struct reader_op *)ctx)->outer;
    return outer->host->cancel_deregister(outer, hook);
}
static bool inner_is_cancelled(struct kernel_ctx *ctx) {
    struct kernel_ctx *outer = ((struct reader_op *)ctx)->outer;
    return outer->host->is_cancelled && outer->host->is_cancelled(outer);
}
static const struct kernel_host inner_host = {.done = inner_done,
                                              .cancel_register = inner_cancel_register,
                                              .cancel_deregister = inner_cancel_deregister,
                                              .is_cancelled = inner_is_cancelled};

static struct status *check_work_queue(const struct queue *queue) {
    if (queue->options.n_components != 1)
        return status_invalid("Expected single component queue");
    if (queue->options.types[0] != DT_STRING)
        return status_invalid("Expected queue with single string component");
    return NULL;
}

static void op_run(struct pool_task *task) {
    struct reader_op *op = CONTAINER_OF(task, struct reader_op, task);
    for (;;) {
        bool wants_work = false;
        struct status *st = op->body(op, &wants_work);
        if (!st && wants_work)
            st = check_work_queue(op->queue);
        if (st || !wants_work) {
            op_end(op, st);
            return;
        }
        tensor_clear(&op->work);
        if (queue_dequeue(op->queue, &op->inner, (struct queue_request){.n = 1}) == KERNEL_PENDING)
            return;
        st = take_failure(op);
        if (st) {
            op_end(op, st);
            return;
        }
    }
}

enum kernel_result reader_run(struct kernel_ctx *ctx, reader_body *body, bool has_queue) {
    struct object *reader = NULL, *queue = NULL;
    if (!ctx->host->submit_io)
        return kernel_fail(ctx, status_unimplemented("Files can be used on workers only"));
    KERNEL_TRY(ctx, named_resource_of(ctx, 0, &reader_type, &reader));
    struct status *st = has_queue ? named_resource_of(ctx, 1, &queue_type, &queue) : NULL;
    if (st) {
        object_unref(reader);
        return kernel_fail(ctx, st);
    }
    struct reader_op *op = xcalloc(1, sizeof(*op));
    op->outer = ctx;
    op->inner = *ctx;
    op->inner.host = &inner_host;
    op->inner.outputs = &op->work;
    op->reader = (struct reader *)reader;
    op->queue = (struct queue *)queue;
    op->body = body;
    op->is_waiting_for_reader = true;
    struct reader_wait *wait = xcalloc(1, sizeof(*wait));
    wait->wait.kind = &wait_kind_of_reader;
    wait->reader = op->reader;
    if (wait_room_enter(&op->reader->room, 0, &op->inner, &wait->wait) == KERNEL_PENDING)
        return KERNEL_PENDING;
    st = take_failure(op);
    if (st) {
        op_free(op);
        return kernel_fail(ctx, st);
    }
    op->is_waiting_for_reader = false;
    op_submit(op);
    return KERNEL_PENDING;
}
