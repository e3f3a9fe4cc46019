/* Division by numbers that are known before a launch. Below 2^31 it is a multiplication and a
 * shift [Granlund, Montgomery: "Division by Invariant Integers using Multiplication", PLDI '94];
 * a GPU has no instruction that divides. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_DIVISION_H
#define MILLRACE_KERNELS_CUDA_OPS_DIVISION_H

#include <stdint.h>

struct gpu_divisor {
    int64_t value;
    uint32_t multiplier;
    /* for numbers below 2^31; GPU_DIVISOR_WIDE: numbers may be larger, and an ordinary division is
     * used */
    uint32_t shift;
};
enum { GPU_DIVISOR_WIDE = 64 };

/* A divisor of numbers below `limit`. value > 0. */
static inline struct gpu_divisor gpu_divisor_of(int64_t value, int64_t limit) {
    struct gpu_divisor divisor = {value, 0, GPU_DIVISOR_WIDE};
    if (limit > INT32_MAX || value > INT32_MAX)
        return divisor;
    divisor.shift = 0;
    while ((int64_t)1 << divisor.shift < value)
        divisor.shift++;
    uint64_t excess = ((uint64_t)1 << divisor.shift) - (uint64_t)value;
    divisor.multiplier = (uint32_t)((excess << 32) / (uint64_t)value + 1);
    return divisor;
}

#ifdef __cplusplus
/* Written before a loop that the compiler must not unroll, since that would only make the kernel
 * larger. */
#ifdef __CUDACC__
#define GPU_NO_UNROLL _Pragma("unroll 1")
#else
#define GPU_NO_UNROLL
#endif

__device__ __noinline__ static int64_t gpu_divide_wide(int64_t n, int64_t value) {
    return n / value;
}
/* n / divisor, for n in [0, limit). */
__device__ static inline int64_t gpu_divide(const struct gpu_divisor &divisor, int64_t n) {
    if (divisor.shift == GPU_DIVISOR_WIDE)
        return gpu_divide_wide(n, divisor.value);
    uint32_t small = (uint32_t)n;
    return (__umulhi(small, divisor.multiplier) + small) >> divisor.shift;
}
#endif

#endif
