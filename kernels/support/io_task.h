/* Runs a kernel's work on the host's I/O threads, where it may block on files. */
#ifndef MILLRACE_KERNELS_SUPPORT_IO_TASK_H
#define MILLRACE_KERNELS_SUPPORT_IO_TASK_H

#include "common/io/file_system.h"
#include "kernels/host.h"
#include "kernels/kernel.h"

/* A kernel's work on an I/O thread. It may block. It sets outputs on ctx and returns a status. */
typedef struct status *io_body(struct kernel_ctx *ctx);
/* Starts `body` on an I/O thread and returns KERNEL_PENDING. When body returns, the execution ends
 * with its status. Where the host has no I/O threads, returns KERNEL_DONE with an error. For
 * kernels marked KERNEL_ASYNC. */
enum kernel_result io_run(struct kernel_ctx *ctx, io_body *body);
/* As io_run, but `start` itself ends the execution: it calls host->done exactly once, during the
 * call or later, on any thread. */
enum kernel_result io_start(struct kernel_ctx *ctx, void (*start)(struct kernel_ctx *ctx));

/* Returns the only string of an input. `what` is the input's name for the message. *ret is borrowed
 * from the input. Errors: INVALID_ARGUMENT, with the shape. */
struct status *io_scalar_string(const struct kernel_ctx *ctx, int input, const char *what,
                                struct span *ret) MUST_USE;
/* Appends to `out` the path of the file that `name` names. Errors: what file_root_resolve says when
 * the task may not use the file (common/io/file_root.h). */
struct status *io_path(struct span name, struct str *out) MUST_USE;
/* As io_path for a prefix of file names (file_root_resolve_prefix). */
struct status *io_prefix(struct span prefix, struct str *out) MUST_USE;

#endif
