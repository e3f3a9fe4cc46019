/* Kernels that work along one dimension: ArgMax, ArgMin, Cumsum, Cumprod, CumulativeLogsumexp. The
 * input is [n_outer, n, n_inner]; a line is the n elements of one outer and one inner position. */
#include "kernels/cuda/ops/device_types.h"
#include "kernels/cuda/ops/reductions_args.h"

/* The position of a line's first element. */
__device__ static inline int64_t line_begin(const along_args &args, int64_t line) {
    int64_t outer = line / args.n_inner;
    return outer * args.n * args.n_inner + (line - outer * args.n_inner);
}

/* ---- ArgMax, ArgMin: the first of the best elements; a NaN is never better ---- */

template <class W> struct best_place {
    W value;
    int64_t place;
};

template <class W, bool IS_MAX> __device__ static inline bool is_better(W x, W y) {
    return IS_MAX ? x > y : x < y;
}

/* Lanes are threads that share a line. Neighbouring threads are neighbouring lanes where the line
 * is contiguous, else neighbouring lines. */
template <class T, bool IS_MAX>
__device__ static inline void arg_best(const along_args &args,
                                       typename gpu_wide<T>::type worst) {
    typedef typename gpu_wide<T>::type W;
    typedef best_place<W> best;
    __shared__ best shared[REDUCTION_THREADS];
    const int thread = (int)threadIdx.x, n_lanes = args.n_lanes,
              width = REDUCTION_THREADS / n_lanes;
    const bool is_row = args.n_inner == 1;
    const int column = is_row ? thread / n_lanes : thread % width;
    const int lane = is_row ? thread % n_lanes : thread / width;
    const int64_t n_lines = args.n_outer * args.n_inner;
    for (int64_t first = (int64_t)blockIdx.x * width; first < n_lines;
         first += (int64_t)gridDim.x * width) {
        int64_t line = first + column;
        best mine = {worst, 0};
        if (line < n_lines) {
            const T *in = static_cast<const T *>(args.in) + line_begin(args, line);
            for (int64_t i = lane; i < args.n; i += n_lanes) {
                W x = (W)in[i * args.n_inner];
                if (is_better<W, IS_MAX>(x, mine.value))
                    mine = best{x, i};
            }
        }
        best *slot = shared + lane * width + column;
        *slot = mine;
        __syncthreads();
        for (int half = n_lanes / 2; half > 0; half /= 2) {
            if (lane < half) {
                best other = slot[half * width];
                if (is_better<W, IS_MAX>(other.value, slot->value) ||
                    (other.value == slot->value && other.place < slot->place))
                    *slot = other;
            }
            __syncthreads();
        }
        if (lane == 0 && line < n_lines && args.out_bytes == 4)
            static_cast<int32_t *>(args.out)[line] = (int32_t)slot->place;
        else if (lane == 0 && line < n_lines)
            static_cast<int64_t *>(args.out)[line] = slot->place;
        __syncthreads();
    }
}
#define ARG_BEST(suffix, T, least, greatest)                                           \
    KERNEL(arg_max_##suffix, along_args) { arg_best<T, true>(args, least); }           \
    KERNEL(arg_min_##suffix, along_args) { arg_best<T, false>(args, greatest); }
#define ARG_BEST_FLOAT(suffix, T) ARG_BEST(suffix, T, -INFINITY, INFINITY)
GPU_EACH_FLOAT(ARG_BEST_FLOAT)
ARG_BEST(bool, uint8_t, 0, 1)

/* ---- scans ---- */

enum { SCAN_ITEMS = 8, SCAN_TILE = SCAN_ITEMS * REDUCTION_THREADS };

/* A thread for each line, for many lines: neighbouring threads read neighbouring elements. */
template <class Op> __device__ static inline void scan_lines(const along_args &args) {
    typedef typename Op::element T;
    typedef typename Op::accumulator A;
    const int64_t step = args.is_reverse ? -args.n_inner : args.n_inner;
    for (int64_t line = gpu_thread(); line < args.n_outer * args.n_inner;
         line += gpu_n_threads()) {
        int64_t at = line_begin(args, line) + (args.is_reverse ? (args.n - 1) * args.n_inner : 0);
        const T *in = static_cast<const T *>(args.in) + at;
        T *out = static_cast<T *>(args.out) + at;
        A acc = Op::first();
        for (int64_t i = 0; i < args.n; i++, in += step, out += step) {
            A next = Op::merge(acc, (A)*in);
            *out = (T)(args.is_exclusive ? acc : next);
            acc = next;
        }
    }
}

/* A block for each line. Each thread scans SCAN_ITEMS elements of a tile, the sums of the threads
 * are scanned in shared memory, and the sum of a tile is carried to the next one. */
template <class Op> __device__ static inline void scan_tiles(const along_args &args) {
    typedef typename Op::element T;
    typedef typename Op::accumulator A;
    __shared__ A shared[REDUCTION_THREADS];
    const int thread = (int)threadIdx.x;
    const int64_t step = args.is_reverse ? -args.n_inner : args.n_inner;
    for (int64_t line = blockIdx.x; line < args.n_outer * args.n_inner; line += gridDim.x) {
        int64_t at = line_begin(args, line) + (args.is_reverse ? (args.n - 1) * args.n_inner : 0);
        const T *in = static_cast<const T *>(args.in) + at;
        T *out = static_cast<T *>(args.out) + at;
        A carry = Op::first();
        for (int64_t tile = 0; tile < args.n; tile += SCAN_TILE) {
            int64_t begin = tile + thread * SCAN_ITEMS;
            A items[SCAN_ITEMS], sum = Op::first();
            for (int j = 0; j < SCAN_ITEMS; j++) {
                A x = begin + j < args.n ? (A)in[(begin + j) * step] : Op::first();
                A next = Op::merge(sum, x);
                items[j] = args.is_exclusive ? sum : next;
                sum = next;
            }
            shared[thread] = sum;
            __syncthreads();
            for (int distance = 1; distance < REDUCTION_THREADS; distance *= 2) {
                A before = thread >= distance ? shared[thread - distance] : Op::first();
                __syncthreads();
                if (thread >= distance)
                    shared[thread] = Op::merge(before, shared[thread]);
                __syncthreads();
            }
            A start = thread > 0 ? Op::merge(carry, shared[thread - 1]) : carry;
            for (int j = 0; j < SCAN_ITEMS; j++)
                if (begin + j < args.n)
                    out[(begin + j) * step] = (T)Op::merge(start, items[j]);
            carry = Op::merge(carry, shared[REDUCTION_THREADS - 1]);
            __syncthreads();
        }
    }
}

/* log(e^a + e^x), computed from the larger of the two, so that nothing overflows. */
template <class A> __device__ static inline A log_add_exp(A a, A x) {
    A high = a > x || a != a ? a : x, low = a > x || a != a ? x : a;
    return low == -(A)INFINITY || high == (A)INFINITY ? high + (low != low ? low : (A)0)
                                                      : high + log1p(exp(low - high));
}

#define SCAN(suffix, T, A, name, FIRST, MERGE)                                                  \
    struct name##_##suffix##_scan {                                                             \
        typedef T element;                                                                      \
        typedef A accumulator;                                                                  \
        __device__ static inline A first() { return FIRST; }                                    \
        __device__ static inline A merge(A a, A x) { return MERGE; }                            \
    };                                                                                          \
    KERNEL(name##_lines_##suffix, along_args) { scan_lines<name##_##suffix##_scan>(args); }     \
    KERNEL(name##_tiles_##suffix, along_args) { scan_tiles<name##_##suffix##_scan>(args); }
#define SCAN_FLOATS(...)                              \
    SCAN(f16, __half, float, __VA_ARGS__)             \
    SCAN(bf16, __nv_bfloat16, float, __VA_ARGS__)     \
    SCAN(f32, float, double, __VA_ARGS__)             \
    SCAN(f64, double, double, __VA_ARGS__)
#define SCAN_INTS(...)                                \
    SCAN(i32, int32_t, uint32_t, __VA_ARGS__)         \
    SCAN(i64, int64_t, uint64_t, __VA_ARGS__)
SCAN_FLOATS(cumsum, 0, a + x)
SCAN_INTS(cumsum, 0, a + x)
SCAN_FLOATS(cumprod, 1, a * x)
SCAN_INTS(cumprod, 1, a * x)
SCAN_FLOATS(cumlogsumexp, -INFINITY, log_add_exp(a, x))
