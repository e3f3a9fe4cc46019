/* Runs of rows that are reduced to one row each: segment sums, the gradients of sparse segment sums,
 * weighted counts. Rows of a run are merged in an order that the shape decides, so the bits of a
 * result are the same in every run of the program. */
#include "kernels/cuda/ops/block_scan.h"
#include "kernels/cuda/ops/picks.h"
#include "kernels/cuda/ops/segments_args.h"
#include "kernels/support/update_op.h"

template <class W> __device__ static inline W run_merge(int64_t op, W a, W x) {
    switch (op) {
    case UPDATE_MUL:
        return a * x;
    case UPDATE_MIN:
        return x < a || x != x ? x : a;
    case UPDATE_MAX:
        return x > a || x != x ? x : a;
    default:
        return a + x;
    }
}
/* Integers wrap. */
__device__ static inline int32_t run_merge(int64_t op, int32_t a, int32_t x) {
    return op == UPDATE_MUL   ? (int32_t)((uint32_t)a * (uint32_t)x)
           : op == UPDATE_ADD ? (int32_t)((uint32_t)a + (uint32_t)x)
           : op == UPDATE_MIN ? (x < a ? x : a)
                              : (x > a ? x : a);
}

template <class W>
__device__ static inline W run_scaled(const runs_args &args, int64_t n, W x) {
    return args.scale == SEGMENTS_MEAN     ? x / (W)n
           : args.scale == SEGMENTS_SQRT_N ? x / (W)sqrt((double)n)
                                           : x;
}

/* The row of place i of a run, or -1. */
__device__ static inline int64_t run_row(const runs_args &args, int64_t i) {
    int64_t row = order_position(args.positions, i);
    if (args.rows)
        row = pick_index_at(args.rows, args.row_index, row);
    return row >= 0 && row < args.n_rows ? row : -1;
}

template <class T> __device__ static inline void reduce_runs(const runs_args &args) {
    typedef typename gpu_wide<T>::type W;
    __shared__ W shared[ORDER_THREADS];
    const int width = (int)args.width, n_lanes = (int)args.n_lanes,
              n_groups = ORDER_THREADS / (width * n_lanes);
    const int column = (int)threadIdx.x % width, lane = (int)threadIdx.x / width % n_lanes,
              group = (int)threadIdx.x / (width * n_lanes);
    const int64_t n_parts = (args.inner + width - 1) / width;
    const int64_t n_units = (args.n_segments + n_groups - 1) / n_groups * n_parts;
    for (int64_t unit = blockIdx.x; unit < n_units; unit += gridDim.x) {
        int64_t part, segment = pick_divide(unit, n_parts, &part) * n_groups + group;
        int64_t c = part * width + column;
        bool is_ours = segment < args.n_segments && c < args.inner;
        int64_t begin = is_ours ? args.firsts[segment] : 0,
                end = is_ours ? args.firsts[segment + 1] : 0;
        W sum = 0;
        bool has_any = false;
        for (int64_t i = begin + lane; i < end; i += n_lanes) {
            int64_t row = run_row(args, i);
            if (row < 0)
                continue;
            W x = (W) static_cast<const T *>(args.data)[row * args.inner + c];
            if (args.row_firsts)
                x = run_scaled<W>(args, args.row_firsts[row + 1] - args.row_firsts[row], x);
            sum = has_any ? run_merge(args.op, sum, x) : x;
            has_any = true;
        }
        /* rows may be out of range in sums only, where a lane without rows has the neutral 0 */
        W *slot = shared + threadIdx.x;
        *slot = sum;
        __syncthreads();
        int64_t n_real = end - begin < n_lanes ? end - begin : n_lanes;
        for (int half = n_lanes / 2; half > 0; half /= 2) {
            if (lane < half && lane + half < n_real)
                *slot = run_merge(args.op, *slot, slot[half * width]);
            __syncthreads();
        }
        if (is_ours && lane == 0) {
            W result = end > begin ? *slot : args.op == UPDATE_MUL ? (W)1 : (W)0;
            if (!args.row_firsts && end > begin)
                result = run_scaled<W>(args, end - begin, result);
            static_cast<T *>(args.out)[segment * args.inner + c] = (T)result;
        }
        __syncthreads();
    }
}
#define RUNS(suffix, T) \
    KERNEL(runs_##suffix, runs_args) { reduce_runs<T>(args); }
GPU_EACH_FLOAT(RUNS)
RUNS(i32, int32_t)
