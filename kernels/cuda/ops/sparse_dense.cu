/* Sparse tensors and dense ones: products, and checks of the entries of SparseToDense. */
#include "kernels/cuda/ops/block_scan.h"
#include "kernels/cuda/ops/picks.h"
#include "kernels/cuda/ops/sparse_dense_args.h"

/* ---- products ---- */

KERNEL(sparse_product_keys, sparse_product_args) {
    for (int64_t e = gpu_thread(); e < args.n_entries; e += gpu_n_threads()) {
        int64_t row = pick_index_at(args.indices, args.index, 2 * e + args.row_at);
        uint64_t key = (uint64_t)row < (uint64_t)args.m ? (uint64_t)row : (uint64_t)args.m;
        if (args.key_bytes == 4)
            static_cast<uint32_t *>(args.keys)[e] = (uint32_t)key;
        else
            static_cast<uint64_t *>(args.keys)[e] = key;
    }
}

template <class W> __device__ static inline W sparse_conjugate(W x) { return x; }
template <class R> __device__ static inline gpu_complex<R> sparse_conjugate(gpu_complex<R> x) {
    return gpu_complex<R>(x.re, -x.im);
}
template <class W> __device__ static inline W sparse_nan(W *) { return (W)NAN; }
template <class R> __device__ static inline gpu_complex<R> sparse_nan(gpu_complex<R> *) {
    return gpu_complex<R>((R)NAN, (R)NAN);
}

/* What an entry adds to column c. An entry whose row of b does not exist adds NaN. */
template <class T>
__device__ static inline typename gpu_wide<T>::type sparse_summand(const sparse_product_args &args,
                                                                   int64_t place, int64_t c) {
    typedef typename gpu_wide<T>::type W;
    int64_t e = order_position(args.positions, place);
    int64_t k = pick_index_at(args.indices, args.index, 2 * e + !args.row_at);
    if ((uint64_t)k >= (uint64_t)args.inner)
        return sparse_nan((W *)NULL);
    W a = (W) static_cast<const T *>(args.values)[e],
      b = (W) static_cast<const T *>(args.b)[k * args.b_row + c * args.b_column];
    return (args.adjoint_a ? sparse_conjugate(a) : a) * (args.adjoint_b ? sparse_conjugate(b) : b);
}

/* The order of the additions follows from the entries' rows and the sizes. */
template <class T>
__device__ static inline void sparse_product(const sparse_product_args &args,
                                             typename gpu_wide<T>::type *shared) {
    typedef typename gpu_wide<T>::type W;
    const int width = (int)args.width, n_lanes = (int)args.n_lanes,
              n_groups = ORDER_THREADS / (width * n_lanes);
    const int column = (int)threadIdx.x % width, lane = (int)threadIdx.x / width % n_lanes,
              group = (int)threadIdx.x / (width * n_lanes);
    const int64_t n_parts = (args.n + width - 1) / width;
    const int64_t n_units = (args.m + n_groups - 1) / n_groups * n_parts;
    for (int64_t unit = blockIdx.x; unit < n_units; unit += gridDim.x) {
        int64_t part, row = pick_divide(unit, n_parts, &part) * n_groups + group;
        int64_t c = part * width + column;
        bool is_ours = row < args.m && c < args.n;
        int64_t end = is_ours ? args.firsts[row + 1] : 0;
        W sum = (W)0;
        for (int64_t i = (is_ours ? args.firsts[row] : 0) + lane; i < end; i += n_lanes)
            sum = sum + sparse_summand<T>(args, i, c);
        W *slot = shared + threadIdx.x;
        *slot = sum;
        __syncthreads();
        for (int half = n_lanes / 2; half > 0; half /= 2) {
            if (lane < half)
                *slot = *slot + slot[half * width];
            __syncthreads();
        }
        if (is_ours && lane == 0)
            static_cast<T *>(args.out)[row * args.n + c] = (T)*slot;
        __syncthreads();
    }
}
#define SPARSE_PRODUCT(suffix, T)                           \
    KERNEL(sparse_product_##suffix, sparse_product_args) {  \
        __shared__ gpu_wide<T>::type shared[ORDER_THREADS]; \
        sparse_product<T>(args, shared);                    \
    }
SPARSE_PRODUCT(f16, __half)
GPU_EACH_WIDE(SPARSE_PRODUCT)
GPU_EACH_COMPLEX(SPARSE_PRODUCT)

/* ---- SparseToDense ---- */

/* What is wrong with entry i, or SPARSE_WHAT. */
__device__ static inline int sparse_fault(const sparse_validate_args &args, int64_t i) {
    int rank = (int)args.rank, order = 0; /* of the entry before: negative, 0 or positive */
    for (int d = 0; d < rank; d++) {
        int64_t at = pick_index_at(args.indices, args.index, i * rank + d);
        if (at < 0 || at >= args.dims[d])
            return d;
        int64_t before = i > 0 ? pick_index_at(args.indices, args.index, (i - 1) * rank + d) : -1;
        order = order != 0 ? order : before < at ? -1 : before > at;
    }
    return order < 0 || i == 0 ? SPARSE_WHAT : order == 0 ? SPARSE_REPEATED : SPARSE_UNORDERED;
}

KERNEL(sparse_validate_entries, sparse_validate_args) {
    unsigned long long first = SPARSE_NONE;
    for (int64_t i = gpu_thread(); i < args.n && first == SPARSE_NONE; i += gpu_n_threads()) {
        int fault = sparse_fault(args, i);
        if (fault != SPARSE_WHAT)
            first = (unsigned long long)i * SPARSE_WHAT + (unsigned long long)fault;
    }
    if (first != SPARSE_NONE)
        atomicMin(reinterpret_cast<unsigned long long *>(args.found), first);
}

/* Reads the coordinate that is out of range. */
KERNEL(sparse_validate_value, sparse_validate_args) {
    if (gpu_thread() == 0) {
        uint64_t found = args.found[0];
        int64_t i = (int64_t)(found / SPARSE_WHAT), d = (int64_t)(found % SPARSE_WHAT);
        args.found[1] = found != SPARSE_NONE && d < args.rank
                            ? (uint64_t)pick_index_at(args.indices, args.index, i * args.rank + d)
                            : 0;
    }
}
