/* Counts, searches and small ops: bins, InTopK, bounds in sorted rows, cross products, checks for
 * numbers, coordinates of sparse entries. */
#include "kernels/cuda/ops/block_scan.h"
#include "kernels/cuda/ops/picks.h"
#include "kernels/cuda/ops/segments_args.h"

/* ---- bins ---- */

KERNEL(bincount_all, bincount_args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads()) {
        int64_t bin = pick_index_at(args.values, args.index, i), row = i / args.row_len;
        if (bin < 0 || bin >= args.n_bins)
            continue;
        int32_t *count = args.counts + row * args.n_bins + bin;
        if (args.is_binary)
            atomicMax(count, 1);
        else
            atomicAdd(count, 1);
    }
}

KERNEL(counts_float, counts_float_args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads())
        args.to[i] = (float)args.from[i];
}

KERNEL(bin_keys, bin_keys_args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads()) {
        int64_t bin = pick_index_at(args.values, args.index, i), row = i / args.row_len;
        args.keys[i] = (uint64_t)(bin >= 0 && bin < args.n_bins ? row * args.n_bins + bin
                                                                : args.n_rows * args.n_bins);
    }
}

template <class T> __device__ static inline void histogram(const histogram_args &args) {
    typedef typename gpu_wide<T>::type W;
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads()) {
        double value = (double)(W) static_cast<const T *>(args.values)[i];
        double place = ((value > args.low ? value : args.low) - args.low) / args.step;
        int64_t bin = place < (double)(args.n_bins - 1) ? (int64_t)place : args.n_bins - 1;
        if (value == value)
            atomicAdd(args.counts + bin, 1);
    }
}
#define HISTOGRAM(suffix, T) \
    KERNEL(histogram_##suffix, histogram_args) { histogram<T>(args); }
GPU_EACH_FLOAT(HISTOGRAM)

/* ---- InTopK: a block for each row ---- */

KERNEL(in_top_k, in_top_k_args) {
    __shared__ int64_t shared[ORDER_WARPS];
    int64_t k = args.k_at ? pick_index_at(args.k_at, args.index, 0) : args.k;
    for (int64_t r = blockIdx.x; r < args.n_rows; r += gridDim.x) {
        const float *x = args.predictions + r * args.n_classes;
        int64_t target = pick_index_at(args.targets, args.index, r), n_above = 0, n_bad = 0;
        bool is_valid = target >= 0 && target < args.n_classes;
        float at_target = is_valid ? x[target] : 0.0f;
        for (int64_t i = threadIdx.x; is_valid && i < args.n_classes; i += ORDER_THREADS) {
            n_above += x[i] > at_target;
            n_bad += !(fabsf(x[i]) < INFINITY);
        }
        int64_t above, bad;
        block_scan(n_above, shared, &above);
        block_scan(n_bad, shared, &bad);
        if (threadIdx.x == 0)
            args.out[r] = is_valid && bad == 0 && above < k;
    }
}

/* ---- bounds ---- */

__device__ static inline void put_count(void *out, int64_t out_bytes, int64_t i, int64_t count) {
    if (out_bytes == 4)
        static_cast<int32_t *>(out)[i] = (int32_t)count;
    else
        static_cast<int64_t *>(out)[i] = count;
}

template <class T> __device__ static inline void search(const search_args &args) {
    typedef typename gpu_wide<T>::type W;
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads()) {
        const T *sorted = static_cast<const T *>(args.sorted) + i / args.n_values * args.n_sorted;
        W value = (W) static_cast<const T *>(args.values)[i];
        int64_t low = 0, high = args.n_sorted;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            W at = (W)sorted[middle];
            bool is_below = args.is_upper ? !(value < at) : at < value;
            if (is_below)
                low = middle + 1;
            else
                high = middle;
        }
        put_count(args.out, args.out_bytes, i, low);
    }
}
#define SEARCH(suffix, T) \
    KERNEL(search_##suffix, search_args) { search<T>(args); }
GPU_EACH_FLOAT(SEARCH)
GPU_EACH_INT(SEARCH)

template <class T> __device__ static inline void bucketize(const bucketize_args &args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads()) {
        T x = static_cast<const T *>(args.values)[i];
        int64_t low = 0, high = args.n_boundaries;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (x < args.boundaries[middle])
                high = middle;
            else
                low = middle + 1;
        }
        args.out[i] = (int32_t)low;
    }
}
KERNEL(bucketize_f32, bucketize_args) { bucketize<float>(args); }
KERNEL(bucketize_f64, bucketize_args) { bucketize<double>(args); }
KERNEL(bucketize_i32, bucketize_args) { bucketize<int32_t>(args); }
KERNEL(bucketize_i64, bucketize_args) { bucketize<int64_t>(args); }

/* ---- cross products ---- */

/* In the type that is computed with: integers wrap. */
template <class T> struct cross_wide { typedef typename gpu_wide<T>::type type; };
template <> struct cross_wide<int8_t> { typedef uint32_t type; };
template <> struct cross_wide<int16_t> { typedef uint32_t type; };
template <> struct cross_wide<int32_t> { typedef uint32_t type; };
template <> struct cross_wide<int64_t> { typedef uint64_t type; };
template <> struct cross_wide<uint8_t> { typedef uint32_t type; };
template <> struct cross_wide<uint16_t> { typedef uint32_t type; };

template <class T> __device__ static inline void cross(const cross_args &args) {
    typedef typename cross_wide<T>::type W;
    for (int64_t i = gpu_thread(); i < args.n_vectors; i += gpu_n_threads()) {
        const T *a = static_cast<const T *>(args.a) + 3 * i,
                *b = static_cast<const T *>(args.b) + 3 * i;
        T *out = static_cast<T *>(args.out) + 3 * i;
        W a0 = (W)a[0], a1 = (W)a[1], a2 = (W)a[2], b0 = (W)b[0], b1 = (W)b[1], b2 = (W)b[2];
        out[0] = (T)(a1 * b2 - a2 * b1);
        out[1] = (T)(a2 * b0 - a0 * b2);
        out[2] = (T)(a0 * b1 - a1 * b0);
    }
}
#define CROSS(suffix, T) \
    KERNEL(cross_##suffix, cross_args) { cross<T>(args); }
GPU_EACH_FLOAT(CROSS)
GPU_EACH_INT(CROSS)

/* ---- CheckNumerics ---- */

template <class T> __device__ static inline void check_numbers(const check_args &args) {
    typedef typename gpu_wide<T>::type W;
    uint32_t found = 0;
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads()) {
        W x = (W) static_cast<const T *>(args.values)[i];
        found |= x == (W)INFINITY ? 1u : x == -(W)INFINITY ? 2u : x != x ? 4u : 0u;
    }
    if (found)
        atomicOr(args.found, found);
}
#define CHECK_NUMBERS(suffix, T) \
    KERNEL(check_numbers_##suffix, check_args) { check_numbers<T>(args); }
GPU_EACH_FLOAT(CHECK_NUMBERS)

/* ---- coordinates ---- */

__device__ static inline uint64_t dense_place(const coordinates_args &args, int64_t i) {
    uint64_t place = 0;
    for (int d = 0; d < (int)args.rank; d++)
        place = place * (uint64_t)args.dims[d] + (uint64_t)args.indices[i * args.rank + d];
    return place;
}

KERNEL(coordinate_keys, coordinates_args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads())
        args.keys[i] = dense_place(args, i) ^ (uint64_t)1 << 63; /* places may be negative */
}
