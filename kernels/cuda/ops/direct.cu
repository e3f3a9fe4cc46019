/* Kernels of convolutions of int32, which cuDNN does not have: forward, and the gradient of the
 * input. A thread makes an element of the result and adds up all of its products. Sums wrap. */
#include "kernels/cuda/ops/direct_args.h"
#include "kernels/cuda/ops/windows.h"

/* Calls work(tap, offset) for each tap of a window whose place `find(dim, tap's place in it)` is
 * inside of the grid; a negative place is outside. */
template <class Find, class Work>
__device__ static inline void direct_each(const direct_args &args, const window_grid &grid,
                                          const Find &find, const Work &work) {
    GPU_NO_UNROLL for (int64_t i = 0; i < args.window[0]; i++) {
        int64_t z = find(0, i);
        if (z < 0 || z >= grid.dims[0])
            continue;
        GPU_NO_UNROLL for (int64_t j = 0; j < args.window[1]; j++) {
            int64_t y = find(1, j);
            if (y < 0 || y >= grid.dims[1])
                continue;
            GPU_NO_UNROLL for (int64_t k = 0; k < args.window[2]; k++) {
                int64_t x = find(2, k);
                if (x >= 0 && x < grid.dims[2])
                    work((i * args.window[1] + j) * args.window[2] + k,
                         z * grid.strides[0] + y * grid.strides[1] + x * grid.strides[2]);
            }
        }
    }
}

KERNEL(direct_forward_i32, direct_args) {
    const uint32_t *in = static_cast<const uint32_t *>(args.in),
                   *filter = static_cast<const uint32_t *>(args.filter);
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        window_place place = window_seek(args.to, args.is_channels_first, e);
        int64_t first = place.c / args.group_out * args.group_in;
        const uint32_t *image = in + window_channel(args.from, place.n, first);
        uint32_t sum = 0;
        direct_each(
            args, args.from,
            [&](int dim, int64_t tap) {
                return place.at[dim] * args.stride[dim] - args.pad[dim] + tap * args.rate[dim];
            },
            [&](int64_t tap, int64_t offset) {
                const uint32_t *f = filter + tap * args.group_in * args.out_channels + place.c;
                for (int64_t c = 0; c < args.group_in; c++)
                    sum += image[offset + c * args.from.channel_stride] * f[c * args.out_channels];
            });
        static_cast<uint32_t *>(args.result)[e] = sum;
    }
}

KERNEL(direct_backprop_input_i32, direct_args) {
    const uint32_t *out = static_cast<const uint32_t *>(args.out),
                   *filter = static_cast<const uint32_t *>(args.filter);
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        window_place place = window_seek(args.from, args.is_channels_first, e);
        int64_t group = place.c / args.group_in, first = group * args.group_out;
        const uint32_t *image = out + window_channel(args.to, place.n, first);
        const uint32_t *f =
            filter + (place.c - group * args.group_in) * args.out_channels + first;
        uint32_t sum = 0;
        direct_each(
            args, args.to,
            [&](int dim, int64_t tap) { /* -1: no window has this tap here */
                int64_t origin = place.at[dim] + args.pad[dim] - tap * args.rate[dim];
                int64_t at = origin / args.stride[dim];
                return origin < 0 || at * args.stride[dim] != origin ? (int64_t)-1 : at;
            },
            [&](int64_t tap, int64_t offset) {
                const uint32_t *row = f + tap * args.group_in * args.out_channels;
                for (int64_t c = 0; c < args.group_out; c++)
                    sum += image[offset + c * args.to.channel_stride] * row[c];
            });
        static_cast<uint32_t *>(args.result)[e] = sum;
    }
}
