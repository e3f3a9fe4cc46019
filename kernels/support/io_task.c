/* Moves kernels that block on files from the executor to an I/O thread and back; see io_task.h. */
#include "kernels/support/io_task.h"

#include <stdlib.h>

#include "common/io/file_root.h"

struct io_task {
    struct pool_task task;
    struct kernel_ctx *ctx;
    io_body *body; /* or */
    void (*start)(struct kernel_ctx *ctx);
};

static void run_task(struct pool_task *task) {
    struct io_task *io = CONTAINER_OF(task, struct io_task, task), own = *io;
    free(io);
    if (own.start) {
        own.start(own.ctx);
        return;
    }
    struct status *st = own.body(own.ctx);
    if (st)
        kernel_fail(own.ctx, st);
    own.ctx->host->done(own.ctx);
}

static enum kernel_result submit(struct kernel_ctx *ctx, struct io_task task) {
    if (!ctx->host || !ctx->host->submit_io)
        return kernel_fail(ctx, status_unimplemented("Files can be used on workers only"));
    struct io_task *io = xmalloc(sizeof(*io));
    *io = task;
    ctx->host->submit_io(ctx, &io->task);
    return KERNEL_PENDING;
}

enum kernel_result io_run(struct kernel_ctx *ctx, io_body *body) {
    return submit(ctx, (struct io_task){.task = {.run = run_task}, .ctx = ctx, .body = body});
}

enum kernel_result io_start(struct kernel_ctx *ctx, void (*start)(struct kernel_ctx *ctx)) {
    return submit(ctx, (struct io_task){.task = {.run = run_task}, .ctx = ctx, .start = start});
}

struct status *io_scalar_string(const struct kernel_ctx *ctx, int input, const char *what,
                                struct span *ret) {
    const struct tensor *t = kernel_input(ctx, input);
    if (t->rank != 0)
        return status_invalid("%s must be scalar, but had shape: %s", what, TENSOR_SHAPE_TEXT(t));
    *ret = tensor_string(t, 0);
    return NULL;
}

struct status *io_path(struct span name, struct str *out) {
    return file_root_resolve(name, out);
}

struct status *io_prefix(struct span prefix, struct str *out) {
    return file_root_resolve_prefix(prefix, out);
}
