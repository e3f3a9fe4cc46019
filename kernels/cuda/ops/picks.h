/* What kernels that read indices share. Device code only. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_PICKS_H
#define MILLRACE_KERNELS_CUDA_OPS_PICKS_H

#include "kernels/cuda/ops/device_types.h"
#include "kernels/cuda/ops/picks_args.h"

__device__ static inline int64_t pick_index_at(const void *indices, int64_t kind, int64_t i) {
    switch (kind) {
    case PICK_INT32:
        return static_cast<const int32_t *>(indices)[i];
    case PICK_INT64:
        return static_cast<const int64_t *>(indices)[i];
    case PICK_UINT8:
        return static_cast<const uint8_t *>(indices)[i];
    default:
        return static_cast<const int8_t *>(indices)[i];
    }
}

/* The remainder that is not negative. */
__device__ static inline int64_t pick_modulo(int64_t at, int64_t n) {
    int64_t rest = at % n;
    return rest < 0 ? rest + n : rest;
}

/* The number of the slice that a row names, or -1 when a coordinate is out of range. */
__device__ static inline int64_t pick_slice(const pick_slices &slices, int64_t row) {
    int64_t flat = 0;
    for (int d = 0; d < (int)slices.depth; d++) {
        int64_t at = pick_index_at(slices.indices, slices.index, row * slices.depth + d);
        if (slices.wraps)
            at = pick_modulo(at, slices.dims[d]);
        if (at < 0 || at >= slices.dims[d])
            return -1;
        flat = flat * slices.dims[d] + at;
    }
    return flat;
}

template <class T> __device__ static inline T pick_scalar_value(const pick_scalar &scalar) {
    return *reinterpret_cast<const T *>(scalar.at ? scalar.at : scalar.value);
}

/* Returns e / by and the remainder. Divides in 32 bits where both numbers fit. */
__device__ static inline int64_t pick_divide(int64_t e, int64_t by, int64_t *ret_rest) {
    int64_t quotient;
    if (((e | by) >> 32) == 0)
        quotient = (uint32_t)e / (uint32_t)by;
    else
        quotient = e / by;
    *ret_rest = e - quotient * by;
    return quotient;
}

#endif
