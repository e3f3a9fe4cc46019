/* Kernels of MaxPool and AvgPool of images with channels last, and of their gradients. A thread
 * makes the elements of a pack: as many channels of a pixel as 16 bytes hold. The results have the
 * bits of those in pooling.cu, which takes what does not come in whole, aligned packs.
 *
 * A loop over a window has its size as a template's argument where it is small, so that all loads
 * of a window are under way at once. */
#include "kernels/cuda/ops/pools.h"

#ifdef __CUDACC__
#define IMAGE_UNROLL _Pragma("unroll")
#else
#define IMAGE_UNROLL
#endif

template <class T> struct alignas(IMAGE_PACK_BYTES) image_pack {
    enum { N = IMAGE_PACK_BYTES / sizeof(T) };
    T at[N];
};

/* The taps of a pack's elements, a byte each. */
template <class T> struct image_taps { typedef uint32_t type; };
template <> struct image_taps<double> { typedef uint16_t type; };
template <> struct image_taps<__half> { typedef uint64_t type; };
template <> struct image_taps<__nv_bfloat16> { typedef uint64_t type; };

/* ---- places ---- */

/* A pack: image, row, column, and pack of the pixel. */
struct image_place {
    int32_t n, y, x, c;
};

__device__ static inline image_place image_seek(const image_pool_args &args, int32_t e) {
    int32_t pixel = window_divide<int32_t>(args.by_packs, e),
            row = window_divide<int32_t>(args.by_columns, pixel),
            n = window_divide<int32_t>(args.by_rows, row);
    image_place at = {n, row - n * (int32_t)args.by_rows.value,
                      pixel - row * (int32_t)args.by_columns.value, e - pixel * args.n_packs};
    return at;
}

__device__ static inline int32_t image_clamp(int32_t i, int32_t n) {
    i = i < n ? i : n - 1;
    return i > 0 ? i : 0;
}

/* The taps of a window along dimension i that are inside the image. */
struct image_range {
    int32_t begin, end;
    __device__ image_range(const image_pool_args &args, int i, int32_t at) {
        int32_t origin = at * args.stride[i] - args.pad[i], last = origin + args.window[i];
        begin = origin > 0 ? origin : 0;
        end = last < args.from[i] ? last : args.from[i];
    }
    __device__ int32_t size() const { return end > begin ? end - begin : 0; }
};

/* Calls work(offset, tap, is_first) for the taps of a place of the output that are inside the
 * image, row by row. With SIDE the window has SIDE by SIDE taps. Then the nearest tap that is
 * inside stands for each tap outside, which is not greater than the maximum of the taps before it.
 * No window is wholly outside, since padding is smaller than a window. */
template <int SIDE, class Work>
__device__ static inline void image_each_tap(const image_pool_args &args, const image_place &at,
                                             const Work &work) {
    int32_t top = at.y * args.stride[0] - args.pad[0], left = at.x * args.stride[1] - args.pad[1];
    int32_t base = at.n * args.from_image + at.c, columns = args.from[1];
    if (SIDE > 0) {
        IMAGE_UNROLL for (int i = 0; i < SIDE; i++) {
            int32_t y = image_clamp(top + i, args.from[0]), row = base + y * columns * args.n_packs;
            IMAGE_UNROLL for (int j = 0; j < SIDE; j++) {
                int32_t x = image_clamp(left + j, columns);
                work(row + x * args.n_packs, (y - top) * SIDE + x - left, i == 0 && j == 0);
            }
        }
        return;
    }
    image_range rows(args, 0, at.y), cells(args, 1, at.x);
    GPU_NO_UNROLL for (int32_t y = rows.begin; y < rows.end; y++) {
        int32_t row = base + y * columns * args.n_packs, tap = (y - top) * args.window[1] - left;
        WINDOW_UNROLL for (int32_t x = cells.begin; x < cells.end; x++)
            work(row + x * args.n_packs, tap + x, y == rows.begin && x == cells.begin);
    }
}

/* A window that covers a pixel: where it is in the output, and which of its taps the pixel is,
 * which has the number row_tap + column_tap. */
struct image_window {
    int32_t y, x, offset, row_tap, column_tap;
};

/* Calls work(window, is_covering) for the windows that cover a place of the input, row by row. With
 * SPAN no place is covered by more windows than that along a dimension. Then work is called for
 * SPAN by SPAN windows, some of which may not exist or not cover it. */
template <int SPAN, class Work>
__device__ static inline void image_each_window(const image_pool_args &args, const image_place &at,
                                                const Work &work) {
    int32_t top = at.y + args.pad[0], left = at.x + args.pad[1];
    int32_t base = at.n * args.to_image + at.c;
    int32_t last_y = window_divide<int32_t>(args.by_stride[0], top),
            last_x = window_divide<int32_t>(args.by_stride[1], left);
    if (SPAN > 0) {
        IMAGE_UNROLL for (int i = SPAN - 1; i >= 0; i--) {
            int32_t y = last_y - i, down = top - y * args.stride[0];
            int32_t row = base + y * args.to[1] * args.n_packs;
            bool has_row = (uint32_t)y < (uint32_t)args.to[0] && down < args.window[0];
            IMAGE_UNROLL for (int j = SPAN - 1; j >= 0; j--) {
                int32_t x = last_x - j, right = left - x * args.stride[1];
                bool has_column = (uint32_t)x < (uint32_t)args.to[1] && right < args.window[1];
                image_window window = {y, x, row + x * args.n_packs, down * args.window[1], right};
                work(window, has_row && has_column);
            }
        }
        return;
    }
    int32_t above = top - args.window[0], before = left - args.window[1];
    int32_t first_y = above < 0 ? 0 : window_divide<int32_t>(args.by_stride[0], above) + 1,
            first_x = before < 0 ? 0 : window_divide<int32_t>(args.by_stride[1], before) + 1;
    last_y = last_y < args.to[0] ? last_y : args.to[0] - 1;
    last_x = last_x < args.to[1] ? last_x : args.to[1] - 1;
    GPU_NO_UNROLL for (int32_t y = first_y; y <= last_y; y++) {
        int32_t row = base + y * args.to[1] * args.n_packs;
        int32_t row_tap = (top - y * args.stride[0]) * args.window[1];
        WINDOW_UNROLL for (int32_t x = first_x; x <= last_x; x++) {
            image_window window = {y, x, row + x * args.n_packs, row_tap,
                                   left - x * args.stride[1]};
            work(window, true);
        }
    }
}

/* Calls work(place, element) for each pack that this thread makes. */
template <class Work>
__device__ static inline void image_run(const image_pool_args &args, const Work &work) {
    for (int32_t e = (int32_t)gpu_thread(); e < args.n; e += (int32_t)gpu_n_threads())
        work(image_seek(args, e), e);
}

template <class T, class W>
__device__ static inline void image_store(const image_pool_args &args, int32_t e, const W *values) {
    image_pack<T> pack;
    for (int k = 0; k < image_pack<T>::N; k++)
        pack.at[k] = (T)values[k];
    static_cast<image_pack<T> *>(args.result)[e] = pack;
}

/* ---- forward ---- */

template <class T, int SIDE> __device__ static inline void image_max(const image_pool_args &args) {
    typedef typename gpu_wide<T>::type W;
    enum { N = image_pack<T>::N };
    const image_pack<T> *in = static_cast<const image_pack<T> *>(args.in);
    image_run(args, [&](const image_place &at, int32_t e) {
        W best[N];
        for (int k = 0; k < N; k++)
            best[k] = pool_least(T());
        image_each_tap<SIDE>(args, at, [&](int32_t offset, int32_t, bool) {
            image_pack<T> pack = in[offset];
            for (int k = 0; k < N; k++) {
                W x = (W)pack.at[k];
                best[k] = best[k] < x ? x : best[k];
            }
        });
        image_store<T>(args, e, best);
    });
}

template <class T> __device__ static inline void image_mean(const image_pool_args &args) {
    typedef typename gpu_wide<T>::type W;
    enum { N = image_pack<T>::N };
    const image_pack<T> *in = static_cast<const image_pack<T> *>(args.in);
    image_run(args, [&](const image_place &at, int32_t e) {
        W sums[N];
        for (int k = 0; k < N; k++)
            sums[k] = 0;
        image_each_tap<0>(args, at, [&](int32_t offset, int32_t, bool) {
            image_pack<T> pack = in[offset];
            for (int k = 0; k < N; k++)
                sums[k] += (W)pack.at[k];
        });
        W n = (W)(image_range(args, 0, at.y).size() * image_range(args, 1, at.x).size());
        for (int k = 0; k < N; k++)
            sums[k] = sums[k] / n;
        image_store<T>(args, e, sums);
    });
}

/* The first tap that has the greatest value, for each element of a pack; -1 without taps. OFFSETS:
 * as the offset of its pack, otherwise by its number. */
template <class T> struct image_found {
    typename gpu_wide<T>::type best[image_pack<T>::N];
    int32_t tap[image_pack<T>::N];
};

template <class T, int SIDE, bool OFFSETS>
__device__ static inline image_found<T> image_search(const image_pool_args &args,
                                                     const image_place &at) {
    typedef typename gpu_wide<T>::type W;
    const image_pack<T> *in = static_cast<const image_pack<T> *>(args.in);
    image_found<T> found;
    for (int k = 0; k < image_pack<T>::N; k++) {
        found.best[k] = 0;
        found.tap[k] = -1;
    }
    image_each_tap<SIDE>(args, at, [&](int32_t offset, int32_t tap, bool is_first) {
        image_pack<T> pack = in[offset];
        for (int k = 0; k < image_pack<T>::N; k++) {
            W x = (W)pack.at[k];
            bool is_better = is_first || found.best[k] < x;
            found.best[k] = is_better ? x : found.best[k];
            found.tap[k] = is_better ? (OFFSETS ? offset : tap) : found.tap[k];
        }
    });
    return found;
}

template <class T> __device__ static inline void image_argmax(const image_pool_args &args) {
    enum { N = image_pack<T>::N };
    image_run(args, [&](const image_place &at, int32_t e) {
        image_found<T> found = image_search<T, 0, true>(args, at);
        int32_t image = args.counts_batch ? 0 : at.n * args.from_image * N;
        for (int k = 0; k < N; k++) {
            int32_t index = found.tap[k] * N + k - image;
            if (args.is_argmax_wide)
                static_cast<int64_t *>(args.argmax)[e * N + k] = index;
            else
                static_cast<int32_t *>(args.argmax)[e * N + k] = index;
        }
        image_store<T>(args, e, found.best);
    });
}

/* ---- gradients of maxima ---- */

/* Where windows do not overlap, a thread has the pixels from the beginning of its window to that of
 * the next one, and the last window those behind it. */
template <class T, int SIDE>
__device__ static inline void image_max_grad_apart(const image_pool_args &args) {
    typedef typename gpu_wide<T>::type W;
    enum { N = image_pack<T>::N };
    image_run(args, [&](const image_place &at, int32_t e) {
        image_found<T> found = image_search<T, SIDE, false>(args, at);
        image_pack<T> gradient = static_cast<const image_pack<T> *>(args.gradient)[e];
        int32_t top = at.y * args.stride[0] - args.pad[0],
                left = at.x * args.stride[1] - args.pad[1];
        int32_t bottom = at.y == args.to[0] - 1 ? args.from[0] : top + args.stride[0],
                right = at.x == args.to[1] - 1 ? args.from[1] : left + args.stride[1];
        bottom = bottom < args.from[0] ? bottom : args.from[0];
        right = right < args.from[1] ? right : args.from[1];
        image_pack<T> *image =
            static_cast<image_pack<T> *>(args.result) + at.n * args.from_image + at.c;
        auto give = [&](int32_t y, int32_t x, int32_t tap) {
            image_pack<T> pack;
            for (int k = 0; k < N; k++)
                pack.at[k] = (T)((W)0 + (found.tap[k] == tap ? (W)gradient.at[k] : (W)0));
            image[(y * args.from[1] + x) * args.n_packs] = pack;
        };
        if (SIDE > 0 && top >= 0 && left >= 0 && bottom - top == SIDE && right - left == SIDE) {
            IMAGE_UNROLL for (int i = 0; i < SIDE; i++) IMAGE_UNROLL for (int j = 0; j < SIDE; j++)
                give(top + i, left + j, i * SIDE + j);
            return;
        }
        GPU_NO_UNROLL for (int32_t y = top > 0 ? top : 0; y < bottom; y++)
            GPU_NO_UNROLL for (int32_t x = left > 0 ? left : 0; x < right; x++) {
            bool is_tap = y - top < args.window[0] && x - left < args.window[1];
            give(y, x, is_tap ? (y - top) * args.window[1] + x - left : -2);
        }
    });
}

/* Which tap of each window has the maximum, for the gradient of windows that overlap. */
template <class T, int SIDE>
__device__ static inline void image_first(const image_pool_args &args) {
    typedef typename image_taps<T>::type taps;
    image_run(args, [&](const image_place &at, int32_t e) {
        image_found<T> found = image_search<T, SIDE, false>(args, at);
        taps bytes = 0;
        for (int k = 0; k < image_pack<T>::N; k++)
            bytes |= (taps)((taps)(uint8_t)found.tap[k] << (8 * k));
        static_cast<taps *>(args.taps)[e] = bytes;
    });
}

template <class T, int SPAN>
__device__ static inline void image_max_grad(const image_pool_args &args) {
    typedef typename gpu_wide<T>::type W;
    typedef typename image_taps<T>::type taps;
    enum { N = image_pack<T>::N };
    const taps EACH = (taps)0x0101010101010101u; /* a byte for each element */
    const taps *of = static_cast<const taps *>(args.taps);
    image_run(args, [&](const image_place &at, int32_t e) {
        W sums[N];
        for (int k = 0; k < N; k++)
            sums[k] = 0;
        image_each_window<SPAN>(args, at, [&](const image_window &window, bool is_covering) {
            image_pack<T> gradient;       /* is added only if it has been loaded */
            taps other = (taps) ~(taps)0; /* in each byte, what differs from this tap */
            if (is_covering) {
                gradient = static_cast<const image_pack<T> *>(args.gradient)[window.offset];
                other =
                    of[window.offset] ^ (taps)(window.row_tap * EACH + window.column_tap * EACH);
            }
            for (int k = 0; k < N; k++)
                if ((other & ((taps)0xff << (8 * k))) == 0)
                    sums[k] += (W)gradient.at[k];
        });
        image_store<T>(args, e, sums);
    });
}

/* ---- gradient of a mean ---- */

/* No window is larger than the image. */
template <class T> __device__ static inline void image_mean_grad(const image_pool_args &args) {
    typedef typename gpu_wide<T>::type W;
    enum { N = image_pack<T>::N };
    int32_t n_taps = args.window[0] * args.window[1];
    W usual = (W)1 / (W)n_taps;
    image_run(args, [&](const image_place &at, int32_t e) {
        W sums[N];
        for (int k = 0; k < N; k++)
            sums[k] = 0;
        image_each_window<0>(args, at, [&](const image_window &window, bool) {
            image_pack<T> gradient =
                static_cast<const image_pack<T> *>(args.gradient)[window.offset];
            int32_t n =
                image_range(args, 0, window.y).size() * image_range(args, 1, window.x).size();
            W share = n == n_taps ? usual : (W)1 / (W)n;
            for (int k = 0; k < N; k++)
                sums[k] += (W)gradient.at[k] * share;
        });
        image_store<T>(args, e, sums);
    });
}

/* ---- kernels ---- */

#define IMAGE_KERNEL(suffix, stem, ...) \
    KERNEL(image_##stem##_##suffix, image_pool_args) { image_##__VA_ARGS__(args); }
#define IMAGE(suffix, T)                                        \
    IMAGE_KERNEL(suffix, max, max<T, 0>)                        \
    IMAGE_KERNEL(suffix, max2, max<T, 2>)                       \
    IMAGE_KERNEL(suffix, max3, max<T, 3>)                       \
    IMAGE_KERNEL(suffix, mean, mean<T>)                         \
    IMAGE_KERNEL(suffix, argmax, argmax<T>)                     \
    IMAGE_KERNEL(suffix, max_grad_apart, max_grad_apart<T, 0>)  \
    IMAGE_KERNEL(suffix, max_grad_apart2, max_grad_apart<T, 2>) \
    IMAGE_KERNEL(suffix, first, first<T, 0>)                    \
    IMAGE_KERNEL(suffix, first3, first<T, 3>)                   \
    IMAGE_KERNEL(suffix, max_grad, max_grad<T, 0>)              \
    IMAGE_KERNEL(suffix, max_grad2, max_grad<T, 2>)             \
    IMAGE_KERNEL(suffix, max_grad3, max_grad<T, 3>)             \
    IMAGE_KERNEL(suffix, mean_grad, mean_grad<T>)
GPU_EACH_FLOAT(IMAGE)
