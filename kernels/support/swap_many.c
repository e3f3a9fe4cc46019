/* Moves several tensors between a device's memory and the host's (swap_many.h). */
#include "kernels/support/swap_many.h"

#include <stdlib.h>

#include "kernels/host.h"

/* ---- the copies, one after another ---- */

/* After a failure the tensors that are left stay where they are. */
static void end_copy(struct swap_many *many, struct status **status) {
    *status = many->copy.status;
    if (!*status)
        tensor_move(many->places.items[many->next], &many->made);
    many->next++;
}

static struct status *end(struct swap_many *many, struct status *st_take) {
    variant_places_fini(&many->places);
    return many->finish(many, st_take);
}

static void run_task(struct pool_task *task);

/* On a thread of the device, which must not wait. */
static void on_copied(struct device_copy *copy) {
    struct swap_many *many = CONTAINER_OF(copy, struct swap_many, copy);
    many->task.run = run_task;
    if (many->ctx->pool)
        pool_submit(many->ctx->pool, &many->task);
    else
        run_task(&many->task);
}

/* False: a copy is under way, and the record is its own. */
static bool go_on(struct swap_many *many, struct status **status) {
    struct device *device = swap_device_of(many->ctx);
    while (many->next < many->places.n && !*status) {
        many->made = TENSOR_INIT;
        many->copy =
            (struct device_copy){.src = many->to_host ? device : NULL,
                                 .dst = many->to_host ? NULL : device,
                                 .allocator = many->to_host ? allocator_host() : device->allocator,
                                 .from = TENSOR_INIT,
                                 .ret = &many->made,
                                 .owner = many->ctx->host_data,
                                 .on_done = on_copied};
        tensor_move(&many->copy.from, many->places.items[many->next]);
        if (!device->ops->copy_start(device, &many->copy))
            return false;
        end_copy(many, status);
    }
    return true;
}

static void run_task(struct pool_task *task) {
    struct swap_many *many = CONTAINER_OF(task, struct swap_many, task);
    struct kernel_ctx *ctx = many->ctx;
    struct status *st = NULL;
    end_copy(many, &st);
    if (!go_on(many, &st))
        return;
    st = end(many, st);
    if (st)
        kernel_fail(ctx, st);
    ctx->host->done(ctx);
}

enum kernel_result swap_many_start(struct kernel_ctx *ctx, struct swap_many *many) {
    struct status *st = NULL;
    many->ctx = ctx;
    many->next = 0;
    if (!go_on(many, &st))
        return KERNEL_PENDING;
    st = end(many, st);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}

/* ---- variants ---- */

struct status *swap_variant_begin(const struct kernel_ctx *ctx, const struct tensor *value,
                                  struct tensor *ret, struct variant_places *ret_places) {
    int64_t n = 0;
    *ret_places = (struct variant_places){NULL, 0, 0};
    if (likely(!swap_is_short(ctx)))
        return NULL;
    struct status *st = variant_copy_begin(value, NULL, ret, ret_places);
    for (int64_t i = 0; i < ret_places->n; i++)
        if (swap_is_wanted(ctx, ret_places->items[i]))
            ret_places->items[n++] = ret_places->items[i];
    ret_places->n = n;
    if (!st && n > 0)
        return NULL;
    variant_places_fini(ret_places);
    *ret_places = (struct variant_places){NULL, 0, 0};
    tensor_clear(ret);
    return st;
}

/* ---- outputs ---- */

static struct status *finish_outputs(struct swap_many *many, struct status *st_take) {
    free(many);
    return st_take;
}

enum kernel_result swap_in_outputs(struct kernel_ctx *ctx) {
    int n_outputs = ctx->instance->n_outputs, n = 0;
    for (int i = 0; i < n_outputs; i++)
        n += swap_is_out(ctx, &ctx->outputs[i]);
    if (likely(n == 0))
        return KERNEL_DONE;
    struct swap_many *many = aligned_alloc(_Alignof(struct swap_many), sizeof *many);
    CHECK(many);
    *many = (struct swap_many){.finish = finish_outputs, .made = TENSOR_INIT};
    many->places.items = xreallocarray(NULL, (size_t)n, sizeof *many->places.items);
    for (int i = 0; i < n_outputs; i++)
        if (swap_is_out(ctx, &ctx->outputs[i]))
            many->places.items[many->places.n++] = &ctx->outputs[i];
    return swap_many_start(ctx, many);
}
