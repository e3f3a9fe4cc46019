/* How kernels of sliding windows find their places: pooling and depthwise convolution. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_WINDOWS_H
#define MILLRACE_KERNELS_CUDA_OPS_WINDOWS_H

#include "kernels/cuda/ops/device_types.h"
#include "kernels/cuda/ops/pooling_args.h"

#ifdef __CUDACC__
#define WINDOW_UNROLL _Pragma("unroll 4")
#else
#define WINDOW_UNROLL
#endif

/* I is the type of numbers of elements: int32_t where none is too large for it, which takes a third
 * of the instructions. */
template <class I> __device__ static inline I window_divide(const gpu_divisor &by, I n) {
    if (sizeof(I) > sizeof(int32_t))
        return (I)gpu_divide(by, n);
    return (I)((__umulhi((uint32_t)n, by.multiplier) + (uint32_t)n) >> by.shift);
}

/* Where an element of a grid is. */
template <class I> struct window_place { I n, c, at[3]; };

template <class I>
__device__ static inline window_place<I> window_seek(const window_grid &grid,
                                                     bool is_channels_first, I element) {
    I digits[4];
    for (int i = 0; i < 4; i++) {
        I left = window_divide(grid.sizes[i], element);
        digits[i] = element - left * (I)grid.sizes[i].value;
        element = left;
    }
    window_place<I> place;
    place.n = element;
    place.c = is_channels_first ? digits[3] : digits[0];
    for (int i = 0; i < 3; i++)
        place.at[i] = is_channels_first ? digits[2 - i] : digits[3 - i];
    return place;
}

/* The offset of the first element of a channel of an image. */
template <class I> __device__ static inline I window_channel(const window_grid &grid, I n, I c) {
    return n * (I)grid.image + c * (I)grid.channel_stride;
}

/* A box of places in a grid: from begin up to, but not including, end. */
template <class I> struct window_box {
    I begin[3], end[3];
    __device__ bool has(const I *at) const {
        bool is_inside = true;
        for (int i = 0; i < 3; i++)
            is_inside = is_inside && at[i] >= begin[i] && at[i] < end[i];
        return is_inside;
    }
    __device__ I size() const {
        I n = 1;
        for (int i = 0; i < 3; i++)
            n *= end[i] > begin[i] ? end[i] - begin[i] : 0;
        return n;
    }
};

/* Calls work(offset, place) for each place of a box, the last dimension fastest. The place counts
 * the grid's places. Loads of a few places along the last dimension are under way at once. */
template <class I, class Work>
__device__ static inline void window_each(const window_grid &grid, const window_box<I> &box, I base,
                                          const Work &work) {
    GPU_NO_UNROLL for (I z = box.begin[0]; z < box.end[0]; z++) {
        GPU_NO_UNROLL for (I y = box.begin[1]; y < box.end[1]; y++) {
            I row = base + z * (I)grid.strides[0] + y * (I)grid.strides[1];
            I place = (z * (I)grid.dims[1] + y) * (I)grid.dims[2];
            WINDOW_UNROLL for (I x = box.begin[2]; x < box.end[2]; x++)
                work(row + x * (I)grid.strides[2], place + x);
        }
    }
}

#endif
