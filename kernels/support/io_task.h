/* Kernels that block on files: their work runs on the host's I/O threads. */
#ifndef MILLRACE_KERNELS_SUPPORT_IO_TASK_H
#define MILLRACE_KERNELS_SUPPORT_IO_TASK_H

#include "common/io/file_system.h"
#include "kernels/host.h"
#include "kernels/kernel.h"

/* What a kernel does on an I/O thread: may block, may not return anything but its status. */
typedef struct status *io_body(struct kernel_ctx *ctx);
/* Runs `body` there, then ends the execution. KERNEL_DONE with an error where the host has no
 * such threads. */
enum kernel_result io_run(struct kernel_ctx *ctx, io_body *body);
/* The same for one that ends the execution itself, maybe on another thread (host->done). */
enum kernel_result io_start(struct kernel_ctx *ctx, void (*start)(struct kernel_ctx *ctx));

/* The only string of an input; the input's name is for the message. Errors: INVALID_ARGUMENT
 * with the shape. */
struct status *io_scalar_string(const struct kernel_ctx *ctx, int input, const char *what,
                                struct span *ret) MUST_USE;
/* Its file's path, if the task may use it: see common/io/file_root.h. Appends to `out`. */
struct status *io_path(struct span name, struct str *out) MUST_USE;
/* of what files are named after: file_root_resolve_prefix */
struct status *io_prefix(struct span prefix, struct str *out) MUST_USE;

/* CANCELLED once the step is: long work asks now and then. */
struct status *io_check_cancelled(struct kernel_ctx *ctx) MUST_USE;

#endif
