/* Moves values between a device's memory and the host's for later (swap.h). */
#include "kernels/support/swap.h"

#include <stdlib.h>

#include "kernels/host.h"
#include "kernels/support/variant.h"

enum { SWAP_MIN_BYTES = 2048, SWAP_ABOVE_PERCENT = 70 };

static _Atomic(struct device *) devices[SWAP_MAX_DEVICES];

static void replace_device(struct device *from, struct device *by) {
    for (int i = 0; i < SWAP_MAX_DEVICES; i++) {
        struct device *expected = from;
        if (atomic_compare_exchange_strong(&devices[i], &expected, by))
            return;
    }
}

void swap_add_device(struct device *device) { replace_device(NULL, device); }

void swap_remove_device(struct device *device) { replace_device(device, NULL); }

struct device *swap_device_of(const struct kernel_ctx *ctx) {
    const struct allocator *allocator = ctx->instance->allocator;
    if (likely(!allocator->device_memory))
        return NULL;
    for (int i = 0; i < SWAP_MAX_DEVICES; i++) {
        struct device *device = atomic_load_explicit(&devices[i], memory_order_acquire);
        if (device && device->allocator == allocator)
            return device;
    }
    return NULL;
}

bool swap_is_short(const struct kernel_ctx *ctx) {
    const struct allocator *allocator = ctx->instance->allocator;
    if (likely(!swap_device_of(ctx)))
        return false;
    int64_t in_use = atomic_load_explicit(&allocator->in_use_bytes, memory_order_relaxed);
    return in_use > allocator->limit_bytes / 100 * SWAP_ABOVE_PERCENT;
}

bool swap_is_wanted(const struct kernel_ctx *ctx, const struct tensor *value) {
    return value->storage == TENSOR_BUFFER && tensor_is_on_device(value) &&
           tensor_size_bytes(value) > SWAP_MIN_BYTES && swap_is_short(ctx);
}

bool swap_is_out(const struct kernel_ctx *ctx, const struct tensor *value) {
    return swap_device_of(ctx) && value->n_elements > 0 &&
           dtype_in((enum dtype)value->dtype, DTYPES_PLAIN) && !tensor_is_on_device(value);
}

/* ---- copies ---- */

static struct status *end(struct swap *swap) {
    struct status *st = swap->copy.status;
    return swap->finish(swap, st);
}

static void run_task(struct pool_task *task) {
    struct swap *swap = CONTAINER_OF(task, struct swap, task);
    struct kernel_ctx *ctx = swap->ctx;
    struct status *st = end(swap);
    if (st)
        kernel_fail(ctx, st);
    ctx->host->done(ctx);
}

/* On a thread of the device, which must not wait. */
static void on_copied(struct device_copy *copy) {
    struct swap *swap = CONTAINER_OF(copy, struct swap, copy);
    swap->task.run = run_task;
    if (swap->ctx->pool)
        pool_submit(swap->ctx->pool, &swap->task);
    else
        run_task(&swap->task);
}

static enum kernel_result start(struct kernel_ctx *ctx, struct swap *swap, struct device *src,
                                struct device *dst, const struct tensor *value) {
    struct device *device = src ? src : dst;
    swap->ctx = ctx;
    swap->value = TENSOR_INIT;
    swap->copy = (struct device_copy){.src = src,
                                      .dst = dst,
                                      .allocator = dst ? dst->allocator : allocator_host(),
                                      .from = TENSOR_INIT,
                                      .ret = &swap->value,
                                      .owner = ctx->host_data,
                                      .on_done = on_copied};
    tensor_copy(&swap->copy.from, value);
    if (!device->ops->copy_start(device, &swap->copy))
        return KERNEL_PENDING;
    struct status *st = end(swap);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}

enum kernel_result swap_out_start(struct kernel_ctx *ctx, struct swap *swap,
                                  const struct tensor *value) {
    return start(ctx, swap, swap_device_of(ctx), NULL, value);
}

struct swap_in {
    struct swap swap;
    int output;
};

static struct status *finish_in(struct swap *swap, struct status *st_take) {
    struct swap_in *in = CONTAINER_OF(swap, struct swap_in, swap);
    if (!st_take)
        tensor_move(&swap->ctx->outputs[in->output], &swap->value);
    free(in);
    return st_take;
}

enum kernel_result swap_in_take(struct kernel_ctx *ctx, int output, struct tensor *value) {
    struct swap_in *in = aligned_alloc(_Alignof(struct swap_in), sizeof *in);
    CHECK(in);
    *in = (struct swap_in){.swap.finish = finish_in, .output = output};
    enum kernel_result result = start(ctx, &in->swap, NULL, swap_device_of(ctx), value);
    tensor_clear(value); /* the copy has a reference */
    return result;
}

struct status *swap_in_now(struct kernel_ctx *ctx, struct tensor *element) {
    struct device *device = swap_device_of(ctx);
    struct tensor made = TENSOR_INIT;
    if (!swap_is_out(ctx, element))
        return NULL;
    TRY(device->ops->upload(device, element, &made));
    tensor_clear(element);
    tensor_move(element, &made);
    return NULL;
}

struct status *swap_in_and_add(struct kernel_ctx *ctx, struct tensor *sum,
                               const struct tensor *by) {
    struct tensor there = TENSOR_INIT;
    tensor_copy(&there, by);
    struct status *st = swap_in_now(ctx, sum);
    if (!st)
        st = swap_in_now(ctx, &there);
    if (!st)
        st = variant_tensor_add(ctx, sum, &there);
    tensor_clear(&there);
    return st;
}
