/* Kernels of DepthwiseConv2dNative and its gradients. Narrow floats are computed in float. A thread
 * makes an element of the result. The filter's gradient, whose elements are few, is added up by
 * blocks in an order that the sizes decide. */
#include "kernels/cuda/ops/depthwise_args.h"
#include "kernels/cuda/ops/windows.h"

/* The first place of the input that the window at a place of the output covers; it may be outside. */
__device__ static inline int64_t depthwise_origin(const depthwise_args &args, int dim, int64_t at) {
    return at * args.stride[dim] - args.pad[dim];
}

template <class T> __device__ static inline void depthwise_forward(const depthwise_args &args) {
    typedef typename gpu_wide<T>::type W;
    const T *in = static_cast<const T *>(args.in), *filter = static_cast<const T *>(args.filter);
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        window_place<int64_t> place = window_seek(args.to, args.is_channels_first, e);
        int64_t base = window_channel(args.from, place.n, gpu_divide(args.multiplier, place.c));
        int64_t top = depthwise_origin(args, 1, place.at[1]),
                left = depthwise_origin(args, 2, place.at[2]);
        W sum = 0;
        GPU_NO_UNROLL for (int64_t i = 0; i < args.window[1]; i++) {
            int64_t y = top + i;
            if (y < 0 || y >= args.from.dims[1])
                continue;
            for (int64_t j = 0; j < args.window[2]; j++) {
                int64_t x = left + j;
                if (x >= 0 && x < args.from.dims[2])
                    sum += (W)in[base + y * args.from.strides[1] + x * args.from.strides[2]] *
                           (W)filter[(i * args.window[2] + j) * args.out_channels + place.c];
            }
        }
        static_cast<T *>(args.result)[e] = (T)sum;
    }
}

template <class T>
__device__ static inline void depthwise_backprop_input(const depthwise_args &args) {
    typedef typename gpu_wide<T>::type W;
    const T *out = static_cast<const T *>(args.out), *filter = static_cast<const T *>(args.filter);
    int64_t multiplier = args.multiplier.value;
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        window_place<int64_t> place = window_seek(args.from, args.is_channels_first, e);
        int64_t first = place.c * multiplier, base = window_channel(args.to, place.n, first);
        W sum = 0;
        /* taps whose window is at a place of the output */
        GPU_NO_UNROLL for (int64_t i = 0; i < args.window[1]; i++) {
            int64_t y = place.at[1] + args.pad[1] - i;
            int64_t row = y < 0 ? 0 : gpu_divide(args.by_stride[1], y);
            if (y < 0 || row * args.stride[1] != y || row >= args.to.dims[1])
                continue;
            for (int64_t j = 0; j < args.window[2]; j++) {
                int64_t x = place.at[2] + args.pad[2] - j;
                int64_t column = x < 0 ? 0 : gpu_divide(args.by_stride[2], x);
                if (x < 0 || column * args.stride[2] != x || column >= args.to.dims[2])
                    continue;
                int64_t at = base + row * args.to.strides[1] + column * args.to.strides[2],
                        tap = (i * args.window[2] + j) * args.out_channels + first;
                for (int64_t m = 0; m < multiplier; m++)
                    sum += (W)out[at + m * args.to.channel_stride] * (W)filter[tap + m];
            }
        }
        static_cast<T *>(args.result)[e] = (T)sum;
    }
}

/* ---- the filter's gradient ---- */

template <class T> __device__ static inline void depthwise_sums(const depthwise_args &args) {
    typedef typename gpu_wide<T>::type W;
    __shared__ W shared[DEPTHWISE_THREADS];
    const T *in = static_cast<const T *>(args.in), *out = static_cast<const T *>(args.out);
    int64_t n_groups = (args.out_channels + args.width - 1) / args.width;
    int64_t part = blockIdx.x / n_groups, n_taps = args.window[1] * args.window[2];
    int64_t chunk = part / n_taps, tap = part % n_taps;
    int64_t channel = blockIdx.x % n_groups * args.width + threadIdx.x % args.width;
    bool is_channel = channel < args.out_channels;
    int64_t from = gpu_divide(args.multiplier, is_channel ? channel : 0);
    int64_t end = (chunk + 1) * args.chunk;
    end = !is_channel ? 0 : end < args.n_pixels ? end : args.n_pixels;
    W sum = 0;
    for (int64_t r = chunk * args.chunk + threadIdx.x / args.width; r < end;
         r += DEPTHWISE_THREADS / args.width) {
        int64_t n = gpu_divide(args.row, r), pixel = r - n * args.row.value;
        int64_t row = gpu_divide(args.column, pixel), column = pixel - row * args.column.value;
        int64_t y = depthwise_origin(args, 1, row) + tap / args.window[2],
                x = depthwise_origin(args, 2, column) + tap % args.window[2];
        if (y < 0 || y >= args.from.dims[1] || x < 0 || x >= args.from.dims[2])
            continue;
        sum += (W)in[window_channel(args.from, n, from) + y * args.from.strides[1] +
                     x * args.from.strides[2]] *
               (W)out[window_channel(args.to, n, channel) + row * args.to.strides[1] +
                      column * args.to.strides[2]];
    }
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int half = DEPTHWISE_THREADS / 2; half >= args.width; half /= 2) {
        if ((int)threadIdx.x < half)
            shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    if (is_channel && (int)threadIdx.x < args.width)
        static_cast<W *>(args.sums)[part * args.out_channels + channel] = shared[threadIdx.x];
}

template <class T> __device__ static inline void depthwise_merge(const depthwise_args &args) {
    typedef typename gpu_wide<T>::type W;
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        W sum = 0;
        for (int64_t c = 0; c < args.n_chunks; c++)
            sum += static_cast<const W *>(args.sums)[c * args.n + e];
        static_cast<T *>(args.result)[e] = (T)sum;
    }
}

#define DEPTHWISE(suffix, T)                                                               \
    KERNEL(depthwise_forward_##suffix, depthwise_args) { depthwise_forward<T>(args); }     \
    KERNEL(depthwise_backprop_input_##suffix, depthwise_args) {                            \
        depthwise_backprop_input<T>(args);                                                 \
    }                                                                                      \
    KERNEL(depthwise_sums_##suffix, depthwise_args) { depthwise_sums<T>(args); }           \
    KERNEL(depthwise_merge_##suffix, depthwise_args) { depthwise_merge<T>(args); }
GPU_EACH_FLOAT(DEPTHWISE)
