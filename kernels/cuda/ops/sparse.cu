/* Sparse tensors: coordinates, boxes, rows without entries. */
#include "kernels/cuda/ops/block_scan.h"
#include "kernels/cuda/ops/sparse_args.h"

KERNEL(sparse_reshape, sparse_reshape_args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads()) {
        const int64_t *from = args.from + i * args.rank;
        int64_t *to = args.to + i * args.new_rank;
        uint64_t sum = 0; /* of what clients say: it may wrap */
        for (int d = 0; d < (int)args.rank; d++)
            sum += (uint64_t)from[d] * (uint64_t)args.strides[d];
        int64_t place = (int64_t)sum;
        for (int d = 0; d < (int)args.new_rank; d++) {
            to[d] = place / args.new_strides[d];
            place %= args.new_strides[d];
        }
    }
}

KERNEL(sparse_shift, sparse_shift_args) {
    for (int64_t e = gpu_thread(); e < args.n * args.rank; e += gpu_n_threads())
        args.to[e] = (int64_t)((uint64_t)args.from[e] +
                               (e % args.rank == args.dim ? (uint64_t)args.offset : 0));
}

/* ---- boxes ---- */

__device__ static inline bool sparse_is_inside(const sparse_part_args &args, const int64_t *at) {
    for (int d = 0; d < (int)args.rank; d++)
        if (at[d] < args.begin[d] || at[d] - args.begin[d] >= args.size[d])
            return false;
    return true;
}

__device__ static inline int64_t sparse_part(const sparse_part_args &args, const int64_t *at) {
    if (!sparse_is_inside(args, at))
        return args.n_parts;
    if (args.n_parts == 1)
        return 0;
    int64_t along = at[args.axis] - args.begin[args.axis],
            n_in_longer = args.n_longer * (args.length + 1);
    return along < n_in_longer ? along / (args.length + 1)
                               : args.n_longer + (along - n_in_longer) / args.length;
}

KERNEL(sparse_part_keys, sparse_part_args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads())
        args.keys[i] = (uint32_t)sparse_part(args, args.indices + i * args.rank);
}

KERNEL(sparse_take, sparse_take_args) {
    for (int64_t j = gpu_thread(); j < args.n; j += gpu_n_threads()) {
        const int64_t *from =
            args.indices + order_position(args.positions, args.first + j) * args.rank;
        for (int d = 0; d < (int)args.rank; d++)
            args.to[j * args.rank + d] = from[d] - args.begin[d];
    }
}

/* ---- rows without entries ---- */

KERNEL(sparse_fill_counts, sparse_fill_args) {
    for (int64_t row = gpu_thread(); row < args.n_rows; row += gpu_n_threads()) {
        int64_t count = args.firsts[row + 1] - args.firsts[row];
        args.is_empty[row] = count == 0;
        args.starts[row] = count == 0 ? 1 : count;
    }
}

KERNEL(sparse_fill_summary, sparse_fill_args) {
    if (gpu_thread() == 0) {
        int64_t n_valid = args.firsts[args.n_rows];
        args.summary[0] = args.starts[args.n_rows];
        args.summary[1] = n_valid;
        int64_t first = n_valid < args.n ? order_position(args.positions, n_valid) : 0;
        args.summary[2] = first;
        args.summary[3] = n_valid < args.n ? args.rows[first] : 0;
    }
}

template <class T> __device__ static inline void sparse_fill_gaps(const sparse_fill_args &args) {
    for (int64_t row = gpu_thread(); row < args.n_rows; row += gpu_n_threads()) {
        if (!args.is_empty[row])
            continue;
        int64_t at = args.starts[row];
        for (int d = 0; d < (int)args.rank; d++)
            args.to_indices[at * args.rank + d] = d == 0 ? row : 0;
        static_cast<T *>(args.to_values)[at] = *static_cast<const T *>(args.filler);
    }
}

template <class T> __device__ static inline void sparse_fill_entries(const sparse_fill_args &args) {
    for (int64_t j = gpu_thread(); j < args.n; j += gpu_n_threads()) {
        int64_t i = order_position(args.positions, j), row = args.rows[i];
        int64_t at = args.starts[row] + j - args.firsts[row];
        for (int d = 0; d < (int)args.rank; d++)
            args.to_indices[at * args.rank + d] = args.indices[i * args.rank + d];
        static_cast<T *>(args.to_values)[at] = static_cast<const T *>(args.values)[i];
        args.map[i] = at;
    }
}
#define SPARSE_FILL(suffix, type)                                                            \
    KERNEL(sparse_fill_gaps_##suffix, sparse_fill_args) { sparse_fill_gaps<type>(args); }    \
    KERNEL(sparse_fill_entries_##suffix, sparse_fill_args) { sparse_fill_entries<type>(args); }
GPU_EACH_SIZE(SPARSE_FILL)

/* ---- gradients ---- */

/* What a sum is made in: integers wrap. */
template <class T> struct sparse_sum { typedef uint64_t type; };
template <> struct sparse_sum<__half> { typedef float type; };
template <> struct sparse_sum<__nv_bfloat16> { typedef float type; };
template <> struct sparse_sum<float> { typedef double type; };
template <> struct sparse_sum<double> { typedef double type; };
template <class R> struct sparse_sum<gpu_complex<R>> { typedef gpu_complex<R> type; };

/* The order of the additions follows from n alone. */
template <class T>
__device__ static inline void sparse_rest(const sparse_rest_args &args,
                                          typename sparse_sum<T>::type *shared) {
    typedef typename sparse_sum<T>::type W;
    W sum = (W)0;
    for (int64_t i = threadIdx.x; i < args.n; i += ORDER_THREADS)
        if (!args.marks[i])
            sum = sum + (W) static_cast<const T *>(args.values)[i];
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int half = ORDER_THREADS / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half)
            shared[threadIdx.x] = shared[threadIdx.x] + shared[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *static_cast<T *>(args.out) = (T)shared[0];
}
#define SPARSE_REST(suffix, T)                                \
    KERNEL(sparse_rest_##suffix, sparse_rest_args) {          \
        __shared__ sparse_sum<T>::type shared[ORDER_THREADS]; \
        sparse_rest<T>(args, shared);                         \
    }
GPU_EACH_NUMBER(SPARSE_REST)

/* Compares the coordinates of an input's entry, moved to the slice's corner, with an entry of the
 * slice: negative, 0 or positive. */
__device__ static inline int sparse_compare(const sparse_slice_grad_args &args, int64_t entry,
                                            int64_t of_slice) {
    for (int d = 0; d < (int)args.rank; d++) {
        int64_t a = args.in[entry * args.rank + d] - args.start[d],
                b = args.out[of_slice * args.rank + d];
        if (a != b)
            return a < b ? -1 : 1;
    }
    return 0;
}

__device__ static inline bool sparse_is_repeated(const sparse_slice_grad_args &args,
                                                 int64_t entry) {
    for (int d = 0; d < (int)args.rank; d++)
        if (args.in[entry * args.rank + d] != args.in[(entry - 1) * args.rank + d])
            return false;
    return true;
}

template <class T>
__device__ static inline void sparse_slice_grad(const sparse_slice_grad_args &args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads()) {
        int64_t low = 0, high = args.n_grads;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (sparse_compare(args, i, middle) > 0)
                low = middle + 1;
            else
                high = middle;
        }
        for (int64_t j = i; j > 0 && sparse_is_repeated(args, j); j--)
            low++; /* equal entries have their gradients in order */
        T zero = {};
        static_cast<T *>(args.to)[i] = low < args.n_grads && sparse_compare(args, i, low) == 0
                                           ? static_cast<const T *>(args.grad)[low]
                                           : zero;
    }
}
#define SPARSE_SLICE_GRAD(suffix, type) \
    KERNEL(sparse_slice_grad_##suffix, sparse_slice_grad_args) { sparse_slice_grad<type>(args); }
GPU_EACH_SIZE(SPARSE_SLICE_GRAD)
