/* Kernels of MaxPool and AvgPool with their gradients. Narrow floats are computed in float.
 *
 * A thread makes an element of the result. A gradient is gathered: each element of the input adds
 * up what the windows that cover it give back, in the order of the windows. So nothing is added
 * atomically, and the bits of a result do not depend on the order of threads. */
#include "kernels/cuda/ops/windows.h"

/* The least finite number, where a maximum begins: minus infinity is never a result. */
__device__ static inline float pool_least(__half) { return -65504.0f; }
__device__ static inline float pool_least(__nv_bfloat16) { return -0x1.fep127f; }
__device__ static inline float pool_least(float) { return -0x1.fffffep127f; }
__device__ static inline double pool_least(double) { return -0x1.fffffffffffffp1023; }

/* The taps of the window at a place of the output that are inside of the input. */
__device__ static inline window_box pool_window(const pooling_args &args, const int64_t *at) {
    window_box box;
    for (int i = 0; i < 3; i++) {
        int64_t origin = at[i] * args.stride[i] - args.pad[i], size = args.from.dims[i];
        int64_t first = origin > 0 ? origin : 0, end = origin + args.window[i];
        box.begin[i] = first;
        box.end[i] = end > size || (args.reaches_end && first + args.window[i] > size) ? size : end;
    }
    return box;
}

/* The windows that may cover a place of the input. */
__device__ static inline window_box pool_windows_of(const pooling_args &args, const int64_t *at) {
    window_box box;
    for (int i = 0; i < 3; i++) {
        int64_t last = at[i] + args.pad[i], first = last - args.window[i];
        int64_t end = gpu_divide(args.by_stride[i], last) + 1;
        bool is_wide = args.reaches_end && args.window[i] > args.from.dims[i];
        box.begin[i] = first < 0 || is_wide ? 0 : gpu_divide(args.by_stride[i], first) + 1;
        box.end[i] = end < args.to.dims[i] ? end : args.to.dims[i];
    }
    return box;
}

/* Calls work(base, place, element) for each element of a grid that this thread makes. */
template <class Work>
__device__ static inline void pool_run(const pooling_args &args, const window_grid &grid,
                                       const Work &work) {
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads())
        work(window_seek(grid, args.is_channels_first, e), e);
}

/* ---- forward ---- */

template <class T> __device__ static inline void pool_max(const pooling_args &args) {
    typedef typename gpu_wide<T>::type W;
    const T *in = static_cast<const T *>(args.in);
    pool_run(args, args.to, [&](const window_place &place, int64_t e) {
        W best = pool_least(T());
        window_each(args.from, pool_window(args, place.at),
                    window_channel(args.from, place.n, place.c), [&](int64_t offset, int64_t) {
                        W x = (W)in[offset];
                        best = best < x ? x : best;
                        return true;
                    });
        static_cast<T *>(args.result)[e] = (T)best;
    });
}

template <class T> __device__ static inline void pool_mean(const pooling_args &args) {
    typedef typename gpu_wide<T>::type W;
    const T *in = static_cast<const T *>(args.in);
    pool_run(args, args.to, [&](const window_place &place, int64_t e) {
        window_box box = pool_window(args, place.at);
        W sum = 0;
        window_each(args.from, box, window_channel(args.from, place.n, place.c),
                    [&](int64_t offset, int64_t) {
                        sum += (W)in[offset];
                        return true;
                    });
        static_cast<T *>(args.result)[e] = (T)(sum / (W)box.size());
    });
}

/* The first tap that has the greatest value, as a place of the input; -1 without taps. */
template <class T>
__device__ static inline int64_t pool_search(const pooling_args &args, const window_place &place,
                                             T *ret_best) {
    typedef typename gpu_wide<T>::type W;
    const T *in = static_cast<const T *>(args.in);
    int64_t found = -1;
    W best = 0;
    window_each(args.from, pool_window(args, place.at),
                window_channel(args.from, place.n, place.c), [&](int64_t offset, int64_t at) {
                    W x = (W)in[offset];
                    if (found < 0 || best < x) {
                        best = x;
                        found = at;
                    }
                    return true;
                });
    *ret_best = (T)best;
    return found;
}

template <class T> __device__ static inline void pool_argmax(const pooling_args &args) {
    pool_run(args, args.to, [&](const window_place &place, int64_t e) {
        T best;
        int64_t at = pool_search<T>(args, place, &best);
        int64_t channels = args.from.sizes[0].value; /* channels are last */
        int64_t index = (args.counts_batch ? place.n * args.from.image : 0) + at * channels + place.c;
        static_cast<T *>(args.result)[e] = best;
        if (args.is_argmax_wide)
            static_cast<int64_t *>(args.argmax)[e] = index;
        else
            static_cast<int32_t *>(args.argmax)[e] = (int32_t)index;
    });
}

/* ---- gradients of maxima ---- */

template <class T> __device__ static inline void pool_first(const pooling_args &args) {
    pool_run(args, args.to, [&](const window_place &place, int64_t e) {
        T best;
        args.first[e] = (int32_t)pool_search<T>(args, place, &best);
    });
}

/* The first greatest tap of a window has its gradient. */
template <class T> __device__ static inline void pool_max_grad(const pooling_args &args) {
    typedef typename gpu_wide<T>::type W;
    pool_run(args, args.from, [&](const window_place &place, int64_t e) {
        int64_t mine = (place.at[0] * args.from.dims[1] + place.at[1]) * args.from.dims[2] +
                       place.at[2];
        W sum = 0;
        window_each(args.to, pool_windows_of(args, place.at),
                    window_channel(args.to, place.n, place.c), [&](int64_t offset, int64_t) {
                        if (args.first[offset] == mine)
                            sum += (W) static_cast<const T *>(args.gradient)[offset];
                        return true;
                    });
        static_cast<T *>(args.result)[e] = (T)sum;
    });
}

/* Each tap that equals the maximum has its gradient, as in three dimensions on a CPU. */
template <class T> __device__ static inline void pool_equal_grad(const pooling_args &args) {
    typedef typename gpu_wide<T>::type W;
    pool_run(args, args.from, [&](const window_place &place, int64_t e) {
        W mine = (W) static_cast<const T *>(args.in)[e], sum = 0;
        window_each(args.to, pool_windows_of(args, place.at),
                    window_channel(args.to, place.n, place.c), [&](int64_t offset, int64_t) {
                        if ((W) static_cast<const T *>(args.out)[offset] == mine)
                            sum += (W) static_cast<const T *>(args.gradient)[offset];
                        return true;
                    });
        static_cast<T *>(args.result)[e] = (T)sum;
    });
}

/* The second gradient at the first tap that equals the maximum, and 0 where no tap does. */
template <class T> __device__ static inline void pool_grad_grad(const pooling_args &args) {
    typedef typename gpu_wide<T>::type W;
    pool_run(args, args.to, [&](const window_place &place, int64_t e) {
        W top = (W) static_cast<const T *>(args.out)[e];
        T found = (T)(W)0;
        window_each(args.from, pool_window(args, place.at),
                    window_channel(args.from, place.n, place.c), [&](int64_t offset, int64_t) {
                        bool is_top = (W) static_cast<const T *>(args.in)[offset] == top;
                        if (is_top)
                            found = static_cast<const T *>(args.gradient)[offset];
                        return !is_top;
                    });
        static_cast<T *>(args.result)[e] = found;
    });
}

/* ---- gradient of a mean ---- */

template <class T> __device__ static inline void pool_mean_grad(const pooling_args &args) {
    typedef typename gpu_wide<T>::type W;
    pool_run(args, args.from, [&](const window_place &place, int64_t e) {
        window_box windows = pool_windows_of(args, place.at);
        int64_t base = window_channel(args.to, place.n, place.c), at[3];
        W sum = 0;
        for (at[0] = windows.begin[0]; at[0] < windows.end[0]; at[0]++) {
            for (at[1] = windows.begin[1]; at[1] < windows.end[1]; at[1]++) {
                for (at[2] = windows.begin[2]; at[2] < windows.end[2]; at[2]++) {
                    window_box box = pool_window(args, at);
                    int64_t offset = base + at[0] * args.to.strides[0] +
                                     at[1] * args.to.strides[1] + at[2] * args.to.strides[2];
                    if (box.has(place.at))
                        sum += (W) static_cast<const T *>(args.gradient)[offset] / (W)box.size();
                }
            }
        }
        static_cast<T *>(args.result)[e] = (T)sum;
    });
}

#define POOLING(suffix, T)                                                      \
    KERNEL(pool_max_##suffix, pooling_args) { pool_max<T>(args); }               \
    KERNEL(pool_mean_##suffix, pooling_args) { pool_mean<T>(args); }             \
    KERNEL(pool_argmax_##suffix, pooling_args) { pool_argmax<T>(args); }         \
    KERNEL(pool_first_##suffix, pooling_args) { pool_first<T>(args); }           \
    KERNEL(pool_max_grad_##suffix, pooling_args) { pool_max_grad<T>(args); }     \
    KERNEL(pool_equal_grad_##suffix, pooling_args) { pool_equal_grad<T>(args); } \
    KERNEL(pool_grad_grad_##suffix, pooling_args) { pool_grad_grad<T>(args); }   \
    KERNEL(pool_mean_grad_##suffix, pooling_args) { pool_mean_grad<T>(args); }
GPU_EACH_FLOAT(POOLING)
