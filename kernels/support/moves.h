/* Copies elements between strided layouts in whatever memory a kernel's values are. On a host each
 * copy runs at once (strided_run). For a device the copies are collected, and enqueued together.
 *
 *     struct moves moves;
 *     moves_begin(&moves, ctx, dtype);
 *     for (…)
 *         moves_add(&moves, &s, to, from);
 *     KERNEL_TRY(ctx, moves_end(&moves));
 *
 * The copies of one batch are independent: none writes what another reads or writes. moves_flush
 * separates batches. Any thread. */
#ifndef MILLRACE_KERNELS_SUPPORT_MOVES_H
#define MILLRACE_KERNELS_SUPPORT_MOVES_H

#include "kernels/support/device_engine.h"
#include "kernels/support/strided.h"

/* 3.8 KiB; keep it on the stack, where nothing initialises what is not used. */
struct moves {
    struct kernel_ctx *ctx;
    enum dtype dtype;
    struct status *status; /* the first failure of the device */
    int n;
    struct device_move list[DEVICE_MOVE_BATCH];
};

static inline void moves_begin(struct moves *moves, struct kernel_ctx *ctx, enum dtype dtype) {
    moves->ctx = ctx;
    moves->dtype = dtype;
    moves->status = NULL;
    moves->n = 0;
}
/* As strided_run. The function changes *s. */
void moves_add(struct moves *moves, struct strided *s, void *to, const void *from);
/* Every element of `to` becomes *value, which is in host memory. The `from` strides are 0. */
void moves_add_value(struct moves *moves, struct strided *s, void *to, const void *value);
void moves_flush(struct moves *moves);
/* Flushes, and returns the first failure. Only a device can fail. */
struct status *moves_end(struct moves *moves) MUST_USE;

/* One copy; n contiguous elements; n contiguous elements of one value in host memory. */
struct status *move_run(struct kernel_ctx *ctx, struct strided *s, enum dtype dtype, void *to,
                        const void *from) MUST_USE;
struct status *move_fill(struct kernel_ctx *ctx, enum dtype dtype, void *to, const void *value,
                         int64_t n) MUST_USE;

#endif
