/* Allocates scratch memory for a kernel. The memory is aligned to 64 bytes, counts against the
 * device's limit, and is freed with its tensor. */
#ifndef MILLRACE_KERNELS_SUPPORT_SCRATCH_H
#define MILLRACE_KERNELS_SUPPORT_SCRATCH_H

#include "kernels/kernel.h"

/* Allocates count · n elements, and sets *(void **)ret_data to their address. *ret_tensor must hold
 * nothing; tensor_clear frees the memory. With no elements *ret_data is still a valid address.
 * Errors: RESOURCE_EXHAUSTED, also when the product of the sizes overflows. */
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
