/* Scratch memory of a kernel: 64-byte aligned, counted against the device's limit, freed with
 * its tensor. */
#ifndef MILLRACE_KERNELS_SUPPORT_SCRATCH_H
#define MILLRACE_KERNELS_SUPPORT_SCRATCH_H

#include "kernels/kernel.h"

/* *ret_tensor must hold nothing; tensor_clear frees it. n of 0 gives some address. Errors:
 * RESOURCE_EXHAUSTED, also for a product of sizes that does not fit. */
static inline struct status *scratch_new(const struct kernel_ctx *ctx, enum dtype dtype,
                                         int64_t count, int64_t n, struct tensor *ret_tensor,
                                         void *ret_data) {
    int64_t total;
    if (mul_overflows_i64(count, n, &total) || total > INT64_MAX / 64)
        return status_exhausted("OOM when allocating scratch memory of %lld times %lld elements",
                                (long long)count, (long long)n);
    total = MAX(total, 64); /* small tensors live in their value, which has no fixed address */
    TRY(tensor_new(ctx->instance->allocator, dtype, (struct shape){1, &total}, ret_tensor));
    void *data = tensor_data(ret_tensor);
    memcpy(ret_data, &data, sizeof(data));
    return NULL;
}

#endif
