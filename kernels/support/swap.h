/* Moves values that are not needed soon from a device's memory to the host's, and back: those that
 * stacks and TensorLists keep for the gradient of a loop [OSDI 4.1, CF 5.3].
 *
 *   forward    value ── memory is short ──► copied to the host, and its device memory is free
 *   backward   host value ──────────────► copied to the device when it is read
 *
 * A kernel that does this answers KERNEL_PENDING until the copy has ended, so that a loop does not
 * run ahead of its copies. Its row for the device has the flag KERNEL_ASYNC. */
#ifndef MILLRACE_KERNELS_SUPPORT_SWAP_H
#define MILLRACE_KERNELS_SUPPORT_SWAP_H

#include "common/base/pool.h"
#include "kernels/device.h"

enum { SWAP_MAX_DEVICES = 16 };

/* From now on values may leave this device's memory; beyond SWAP_MAX_DEVICES they stay there. Any
 * thread. */
void swap_add_device(struct device *device);
/* No kernel of the device runs any more. */
void swap_remove_device(struct device *device);

/* One copy. It is the first member of a record that the kernel has allocated. */
struct swap {
    struct kernel_ctx *ctx;
    struct device_copy copy;
    struct tensor value; /* the copied value, unless the copy has failed */
    /* Called once: takes the value, frees the record, and returns `st_take`, or another failure. */
    struct status *(*finish)(struct swap *swap, struct status *st_take);
    struct pool_task task;
};

/* The device whose values may leave its memory, of the node; NULL: there is none. */
struct device *swap_device_of(const struct kernel_ctx *ctx);
/* Is more than 70 % of that device's limit in use? */
bool swap_is_short(const struct kernel_ctx *ctx);
/* Is the value in the memory of the node's device, larger than 2,048 bytes, and is more than 70 %
 * of the device's limit in use? These are TensorFlow's numbers. */
bool swap_is_wanted(const struct kernel_ctx *ctx, const struct tensor *value);
/* Is it an element in the host's memory that a kernel of a device wants there? */
bool swap_is_out(const struct kernel_ctx *ctx, const struct tensor *value);

/* Starts to copy the value. The record's `finish` is set. */
enum kernel_result swap_out_start(struct kernel_ctx *ctx, struct swap *swap,
                                  const struct tensor *value);
/* Sets an output to a value that is in the host's memory. Takes *value. */
enum kernel_result swap_in_take(struct kernel_ctx *ctx, int output, struct tensor *value);
/* Brings an element back at once, for a kernel that reads many. Waits for the copy, but not for
 * kernels. Does nothing unless swap_is_out. */
struct status *swap_in_now(struct kernel_ctx *ctx, struct tensor *element) MUST_USE;
/* sum += by, for elements of variants that may have been moved (variant_tensor_add). */
struct status *swap_in_and_add(struct kernel_ctx *ctx, struct tensor *sum,
                               const struct tensor *by) MUST_USE;

#endif
