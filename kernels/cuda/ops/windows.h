/* How kernels of sliding windows find their places: pooling and depthwise convolution. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_WINDOWS_H
#define MILLRACE_KERNELS_CUDA_OPS_WINDOWS_H

#include "kernels/cuda/ops/device_types.h"
#include "kernels/cuda/ops/pooling_args.h"

/* Where an element of a grid is. */
struct window_place {
    int64_t n, c, at[3];
};

__device__ static inline window_place window_seek(const window_grid &grid, bool is_channels_first,
                                                  int64_t element) {
    int64_t digits[4];
    for (int i = 0; i < 4; i++) {
        int64_t left = gpu_divide(grid.sizes[i], element);
        digits[i] = element - left * grid.sizes[i].value;
        element = left;
    }
    window_place place;
    place.n = element;
    place.c = is_channels_first ? digits[3] : digits[0];
    for (int i = 0; i < 3; i++)
        place.at[i] = is_channels_first ? digits[2 - i] : digits[3 - i];
    return place;
}

/* The offset of the first element of a channel of an image. */
__device__ static inline int64_t window_channel(const window_grid &grid, int64_t n, int64_t c) {
    return n * grid.image + c * grid.channel_stride;
}

/* A box of places in a grid: from begin up to, but not including, end. */
struct window_box {
    int64_t begin[3], end[3];
    __device__ bool has(const int64_t *at) const {
        bool is_inside = true;
        for (int i = 0; i < 3; i++)
            is_inside = is_inside && at[i] >= begin[i] && at[i] < end[i];
        return is_inside;
    }
    __device__ int64_t size() const {
        int64_t n = 1;
        for (int i = 0; i < 3; i++)
            n *= end[i] > begin[i] ? end[i] - begin[i] : 0;
        return n;
    }
};

/* Calls work(offset, place) for each place of a box, the last dimension fastest. The place counts
 * the grid's places. Stops when `work` returns false. */
template <class Work>
__device__ static inline void window_each(const window_grid &grid, const window_box &box,
                                          int64_t base, const Work &work) {
    GPU_NO_UNROLL for (int64_t z = box.begin[0]; z < box.end[0]; z++) {
        GPU_NO_UNROLL for (int64_t y = box.begin[1]; y < box.end[1]; y++) {
            int64_t row = base + z * grid.strides[0] + y * grid.strides[1];
            int64_t place = (z * grid.dims[1] + y) * grid.dims[2];
            GPU_NO_UNROLL for (int64_t x = box.begin[2]; x < box.end[2];
                               x++) if (!work(row + x * grid.strides[2], place + x)) return;
        }
    }
}

#endif
