/* Sorts and scans on the device, for what launches kernels. All is enqueued, nothing waits, and the
 * results depend on nothing but the values: no order of threads is seen in them. Any thread.
 *
 * Errors: the driver's; RESOURCE_EXHAUSTED for scratch memory. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_ORDER_H
#define MILLRACE_KERNELS_CUDA_OPS_ORDER_H

#include "kernels/cuda/gpu_kernel.h"
#include "kernels/cuda/ops/order_args.h"

/* Exclusive scan of n values in place; values[n] becomes the sum, as does *total unless that is
 * NULL. n may be 0. */
struct status *order_scan(struct kernel_ctx *ctx, int64_t *values, int64_t n,
                          int64_t *total) MUST_USE;

/* A stable sort of n > 0 keys by their lowest n_bits. */
struct order_sort {
    struct buffer *keys;      /* uint32 or uint64; sorted afterwards */
    struct buffer *positions; /* NULL: 0, 1, 2 …; afterwards where each key was */
    size_t key_bytes;
    int64_t n;
    int n_bits;
};
struct status *order_sort_run(struct kernel_ctx *ctx, struct order_sort *sort) MUST_USE;
void order_sort_fini(struct order_sort *sort); /* gives the memory back */
struct order_positions order_positions_of(const struct order_sort *sort);
/* 4 or 8. */
size_t order_position_bytes(int64_t n);
/* How many bits has v? 0 has none. */
int order_n_bits(uint64_t v);

/* Makes keys in a fresh buffer: of elements of the dtype, or of indices, where those out of range
 * become n_valid and sort last. */
struct status *order_keys(struct kernel_ctx *ctx, struct order_sort *sort, enum dtype dtype,
                          const void *from, bool is_descending) MUST_USE;
struct status *order_index_keys(struct kernel_ctx *ctx, struct order_sort *sort, enum dtype dtype,
                                const void *indices, int64_t n_valid) MUST_USE;
/* firsts[v] = the number of sorted keys below v, for v in [0, n_values]. `kind`: engine_index of
 * the ids' dtype, BOUNDS_U32 or BOUNDS_U64. */
struct status *order_bounds(struct kernel_ctx *ctx, const void *keys, int64_t kind, int64_t n,
                            int64_t n_values, int64_t *firsts) MUST_USE;
/* A scratch buffer of n int64. */
struct status *order_longs(struct kernel_ctx *ctx, int64_t n, struct buffer **ret) MUST_USE;
static inline int64_t *order_longs_of(const struct buffer *buffer) {
    return (int64_t *)(void *)buffer->data;
}

#endif
