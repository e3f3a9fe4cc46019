/* Kernels of MaxPool and AvgPool with their gradients, for every format and rank. Images with
 * channels last mostly go to pooling_images.cu. Narrow floats are computed in float.
 *
 * A thread makes an element of the result. A gradient is gathered: each element of the input adds
 * up what the windows that cover it give back, in the order of the windows. So nothing is added
 * atomically, and the bits of a result do not depend on the order of threads. */
#include "kernels/cuda/ops/pools.h"

/* The taps of the window at a place of the output that are inside of the input. */
template <class I>
__device__ static inline window_box<I> pool_window(const pooling_args &args, const I *at) {
    window_box<I> box;
    for (int i = 0; i < 3; i++) {
        I origin = at[i] * (I)args.stride[i] - (I)args.pad[i], size = (I)args.from.dims[i];
        I first = origin > 0 ? origin : 0, window = (I)args.window[i], end = origin + window;
        box.begin[i] = first;
        box.end[i] = end > size || (args.reaches_end && first + window > size) ? size : end;
    }
    return box;
}

/* The windows that may cover a place of the input. */
template <class I>
__device__ static inline window_box<I> pool_windows_of(const pooling_args &args, const I *at) {
    window_box<I> box;
    for (int i = 0; i < 3; i++) {
        I last = at[i] + (I)args.pad[i], first = last - (I)args.window[i];
        I end = window_divide(args.by_stride[i], last) + 1, n = (I)args.to.dims[i];
        bool is_wide = args.reaches_end && args.window[i] > args.from.dims[i];
        box.begin[i] = first < 0 || is_wide ? 0 : window_divide(args.by_stride[i], first) + 1;
        box.end[i] = end < n ? end : n;
    }
    return box;
}

/* Calls work(base, place, element) for each element of a grid that this thread makes. */
template <class I, class Work>
__device__ static inline void pool_run(const pooling_args &args, const window_grid &grid,
                                       const Work &work) {
    for (I e = (I)gpu_thread(); e < (I)args.n; e += (I)gpu_n_threads())
        work(window_seek(grid, args.is_channels_first, e), e);
}

/* ---- forward ---- */

template <class T, class I> __device__ static inline void pool_max(const pooling_args &args) {
    typedef typename gpu_wide<T>::type W;
    const T *in = static_cast<const T *>(args.in);
    pool_run<I>(args, args.to, [&](const window_place<I> &place, I e) {
        W best = pool_least(T());
        window_each(args.from, pool_window(args, place.at),
                    window_channel(args.from, place.n, place.c), [&](I offset, I) {
                        W x = (W)in[offset];
                        best = best < x ? x : best;
                    });
        static_cast<T *>(args.result)[e] = (T)best;
    });
}

template <class T, class I> __device__ static inline void pool_mean(const pooling_args &args) {
    typedef typename gpu_wide<T>::type W;
    const T *in = static_cast<const T *>(args.in);
    pool_run<I>(args, args.to, [&](const window_place<I> &place, I e) {
        window_box<I> box = pool_window(args, place.at);
        W sum = 0;
        window_each(args.from, box, window_channel(args.from, place.n, place.c),
                    [&](I offset, I) { sum += (W)in[offset]; });
        static_cast<T *>(args.result)[e] = (T)(sum / (W)box.size());
    });
}

/* The first tap that has the greatest value, as a place of the input; -1 without taps. */
template <class T, class I>
__device__ static inline I pool_search(const pooling_args &args, const window_place<I> &place,
                                       T *ret_best) {
    typedef typename gpu_wide<T>::type W;
    const T *in = static_cast<const T *>(args.in);
    I found = -1;
    W best = 0;
    window_each(args.from, pool_window(args, place.at), window_channel(args.from, place.n, place.c),
                [&](I offset, I at) {
                    W x = (W)in[offset];
                    if (found < 0 || best < x) {
                        best = x;
                        found = at;
                    }
                });
    *ret_best = (T)best;
    return found;
}

template <class T, class I> __device__ static inline void pool_argmax(const pooling_args &args) {
    pool_run<I>(args, args.to, [&](const window_place<I> &place, I e) {
        T best;
        I at = pool_search<T>(args, place, &best);
        I channels = (I)args.from.sizes[0].value; /* channels are last */
        I index = (args.counts_batch ? place.n * (I)args.from.image : 0) + at * channels + place.c;
        static_cast<T *>(args.result)[e] = best;
        if (args.is_argmax_wide)
            static_cast<int64_t *>(args.argmax)[e] = index;
        else
            static_cast<int32_t *>(args.argmax)[e] = (int32_t)index;
    });
}

/* ---- gradients of maxima ---- */

template <class T, class I> __device__ static inline void pool_first(const pooling_args &args) {
    pool_run<I>(args, args.to, [&](const window_place<I> &place, I e) {
        T best;
        args.first[e] = (int32_t)pool_search<T>(args, place, &best);
    });
}

/* The first greatest tap of a window has its gradient. */
template <class T, class I> __device__ static inline void pool_max_grad(const pooling_args &args) {
    typedef typename gpu_wide<T>::type W;
    pool_run<I>(args, args.from, [&](const window_place<I> &place, I e) {
        I mine =
            (place.at[0] * (I)args.from.dims[1] + place.at[1]) * (I)args.from.dims[2] + place.at[2];
        W sum = 0;
        window_each(args.to, pool_windows_of(args, place.at),
                    window_channel(args.to, place.n, place.c), [&](I offset, I) {
                        W part = (W) static_cast<const T *>(args.gradient)[offset];
                        sum += args.first[offset] == mine ? part : 0;
                    });
        static_cast<T *>(args.result)[e] = (T)sum;
    });
}

/* Each tap that equals the maximum has its gradient, as in three dimensions on a CPU. */
template <class T, class I>
__device__ static inline void pool_equal_grad(const pooling_args &args) {
    typedef typename gpu_wide<T>::type W;
    pool_run<I>(args, args.from, [&](const window_place<I> &place, I e) {
        W mine = (W) static_cast<const T *>(args.in)[e], sum = 0;
        window_each(args.to, pool_windows_of(args, place.at),
                    window_channel(args.to, place.n, place.c), [&](I offset, I) {
                        W part = (W) static_cast<const T *>(args.gradient)[offset];
                        bool is_top = (W) static_cast<const T *>(args.out)[offset] == mine;
                        sum += is_top ? part : 0;
                    });
        static_cast<T *>(args.result)[e] = (T)sum;
    });
}

/* The second gradient at the first tap that equals the maximum, and 0 where no tap does. */
template <class T, class I> __device__ static inline void pool_grad_grad(const pooling_args &args) {
    typedef typename gpu_wide<T>::type W;
    pool_run<I>(args, args.to, [&](const window_place<I> &place, I e) {
        W top = (W) static_cast<const T *>(args.out)[e];
        T found = (T)(W)0;
        bool has_found = false;
        window_each(args.from, pool_window(args, place.at),
                    window_channel(args.from, place.n, place.c), [&](I offset, I) {
                        bool is_top = (W) static_cast<const T *>(args.in)[offset] == top;
                        if (is_top && !has_found)
                            found = static_cast<const T *>(args.gradient)[offset];
                        has_found |= is_top;
                    });
        static_cast<T *>(args.result)[e] = found;
    });
}

/* ---- gradient of a mean ---- */

template <class T, class I> __device__ static inline void pool_mean_grad(const pooling_args &args) {
    typedef typename gpu_wide<T>::type W;
    pool_run<I>(args, args.from, [&](const window_place<I> &place, I e) {
        window_box<I> windows = pool_windows_of(args, place.at);
        I base = window_channel(args.to, place.n, place.c), at[3];
        W sum = 0;
        for (at[0] = windows.begin[0]; at[0] < windows.end[0]; at[0]++) {
            for (at[1] = windows.begin[1]; at[1] < windows.end[1]; at[1]++) {
                for (at[2] = windows.begin[2]; at[2] < windows.end[2]; at[2]++) {
                    window_box<I> box = pool_window(args, at);
                    I offset = base + at[0] * (I)args.to.strides[0] +
                               at[1] * (I)args.to.strides[1] + at[2] * (I)args.to.strides[2];
                    if (box.has(place.at))
                        sum += (W) static_cast<const T *>(args.gradient)[offset] *
                               ((W)1 / (W)box.size()); /* as a CPU rounds it */
                }
            }
        }
        static_cast<T *>(args.result)[e] = (T)sum;
    });
}

#define POOLING_KERNEL(suffix, T, name)            \
    KERNEL(pool_##name##_##suffix, pooling_args) { \
        if (args.is_small)                         \
            pool_##name<T, int32_t>(args);         \
        else                                       \
            pool_##name<T, int64_t>(args);         \
    }
#define POOLING(suffix, T)                \
    POOLING_KERNEL(suffix, T, max)        \
    POOLING_KERNEL(suffix, T, mean)       \
    POOLING_KERNEL(suffix, T, argmax)     \
    POOLING_KERNEL(suffix, T, first)      \
    POOLING_KERNEL(suffix, T, max_grad)   \
    POOLING_KERNEL(suffix, T, equal_grad) \
    POOLING_KERNEL(suffix, T, grad_grad)  \
    POOLING_KERNEL(suffix, T, mean_grad)
GPU_EACH_FLOAT(POOLING)
POOLING_KERNEL(i8, int8_t, max)
