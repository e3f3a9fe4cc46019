/* What the threads of a block compute together. Device code only; blocks have ORDER_THREADS
 * threads, and all of them call. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_BLOCK_SCAN_H
#define MILLRACE_KERNELS_CUDA_OPS_BLOCK_SCAN_H

#include "kernels/cuda/ops/device_types.h"
#include "kernels/cuda/ops/order_args.h"

/* The sum of the threads before this one, and of all. `shared` has ORDER_WARPS elements, and may be
 * used again when the call returns. */
template <class T> __device__ static inline T block_scan(T own, T *shared, T *ret_total) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    T sum = own;
    for (int distance = 1; distance < 32; distance *= 2) {
        T before = __shfl_up_sync(0xffffffffu, sum, distance);
        sum += lane >= distance ? before : (T)0;
    }
    if (lane == 31)
        shared[warp] = sum;
    __syncthreads();
    T before = 0, total = 0;
    for (int w = 0; w < ORDER_WARPS; w++) {
        before += w < warp ? shared[w] : (T)0;
        total += shared[w];
    }
    __syncthreads();
    *ret_total = total;
    return before + sum - own;
}

__device__ static inline int64_t order_position(const order_positions &positions, int64_t i) {
    return !positions.at               ? i
           : positions.size_bytes == 4 ? static_cast<const int32_t *>(positions.at)[i]
                                       : static_cast<const int64_t *>(positions.at)[i];
}

/* ---- keys: unsigned numbers in the order of the elements ---- */

/* -0 is 0, and a NaN is above infinity. */
template <class U> __device__ static inline U order_float_key(U bits, U sign, U infinity) {
    U magnitude = bits & (sign - 1);
    if (magnitude > infinity)
        return sign | magnitude;
    if (magnitude == 0)
        return sign;
    return bits & sign ? sign - magnitude : sign | magnitude;
}

/* The type of an element's key, and how many of its bits are used. */
template <class T> struct order_key {
    typedef uint32_t type;
    static __device__ type of(T x) { /* integers of up to 32 bits */
        const uint32_t sign = (T)-1 < (T)1 ? 1u << (8 * sizeof(T) - 1) : 0;
        const uint32_t mask = 0xffffffffu >> (32 - 8 * sizeof(T));
        return ((uint32_t)x & mask) ^ sign;
    }
};
#define ORDER_KEY(T, U, VALUE)                                   \
    template <> struct order_key<T> {                            \
        typedef U type;                                          \
        static __device__ type of(T x) { return (type)(VALUE); } \
    };
ORDER_KEY(int64_t, uint64_t, (uint64_t)x ^ (uint64_t)1 << 63)
ORDER_KEY(uint64_t, uint64_t, x)
ORDER_KEY(float, uint32_t, order_float_key<uint32_t>(__float_as_uint(x), 0x80000000u, 0x7f800000u))
ORDER_KEY(double, uint64_t,
          order_float_key<uint64_t>((uint64_t)__double_as_longlong(x), (uint64_t)1 << 63,
                                    0x7ff0000000000000u))
ORDER_KEY(__half, uint32_t,
          order_float_key<uint32_t>(*reinterpret_cast<const uint16_t *>(&x), 0x8000u, 0x7c00u))
ORDER_KEY(__nv_bfloat16, uint32_t,
          order_float_key<uint32_t>(*reinterpret_cast<const uint16_t *>(&x), 0x8000u, 0x7f80u))
#undef ORDER_KEY

#endif
