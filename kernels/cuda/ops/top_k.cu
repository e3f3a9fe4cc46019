/* TopK: the k largest elements of each row, the largest first, and of equal ones the lower column
 * first. -0 equals 0, and NaN is above infinity.
 *
 * A block takes a row. Radix selection finds the k-th key, a digit in each pass; then the keys above
 * it, and as many equal ones as are wanted, are collected in the order of their columns, and sorted
 * in shared memory. Where k is too large for that, the host sorts all rows (order.h), and a second
 * kernel picks the first k of each. */
#include "kernels/cuda/ops/block_scan.h"

/* In dynamic shared memory: keys[n_entries], then columns[n_entries]. */
template <class U> struct top_k_entries {
    U *keys;
    uint32_t *columns;
    __device__ bool is_before(int a, int b) const {
        return keys[a] > keys[b] || (keys[a] == keys[b] && columns[a] < columns[b]);
    }
    __device__ void swap(int a, int b) const {
        U key = keys[a];
        uint32_t column = columns[a];
        keys[a] = keys[b];
        columns[a] = columns[b];
        keys[b] = key;
        columns[b] = column;
    }
    __device__ void put(int at, U key, uint32_t column) const {
        keys[at] = key;
        columns[at] = column;
    }
};

/* In shared memory. */
template <class U> struct top_k_selection {
    int counts[RADIX_DIGITS], scans[ORDER_WARPS];
    int64_t n_equal; /* how many keys that equal the k-th one are wanted */
    U kth;
};

/* Finds the k-th largest key of a row. */
template <class T, class U>
__device__ static inline void top_k_select(const T *row, int64_t n_cols, int64_t k,
                                           top_k_selection<U> &selection) {
    U prefix = 0;
    int64_t wanted = k;
    for (int shift = 8 * (int)sizeof(T) - RADIX_BITS; shift >= 0; shift -= RADIX_BITS) {
        selection.counts[threadIdx.x] = 0;
        __syncthreads();
        for (int64_t c = threadIdx.x; c < n_cols; c += ORDER_THREADS) {
            U key = order_key<T>::of(row[c]);
            if ((key >> shift) >> RADIX_BITS == prefix)
                atomicAdd(&selection.counts[(int)((key >> shift) & (RADIX_DIGITS - 1))], 1);
        }
        __syncthreads();
        int digit = RADIX_DIGITS - 1 - (int)threadIdx.x, own = selection.counts[digit], total;
        int above = block_scan(own, selection.scans, &total);
        if (above < wanted && wanted <= (int64_t)above + own) {
            selection.kth = (prefix << RADIX_BITS) | (U)digit;
            selection.n_equal = wanted - above;
        }
        __syncthreads();
        prefix = selection.kth;
        wanted = selection.n_equal;
        __syncthreads();
    }
}

/* Keys above the k-th, and the first n_equal of those equal to it, in the order of columns. */
template <class T, class U>
__device__ static inline void top_k_collect(const T *row, int64_t n_cols,
                                            top_k_selection<U> &selection,
                                            const top_k_entries<U> &entries) {
    enum { EQUAL = 1 << 16 }; /* one number counts both */
    int64_t n_above = 0, n_equal = 0;
    for (int64_t first = 0; first < n_cols; first += ORDER_THREADS) {
        int64_t c = first + threadIdx.x;
        U key = c < n_cols ? order_key<T>::of(row[c]) : 0;
        bool is_above = c < n_cols && key > selection.kth;
        bool is_equal = c < n_cols && key == selection.kth;
        int total, before = block_scan((int)is_above + is_equal * EQUAL, selection.scans, &total);
        int64_t equal_before = n_equal + before / EQUAL;
        bool is_taken = is_above || (is_equal && equal_before < selection.n_equal);
        if (equal_before > selection.n_equal)
            equal_before = selection.n_equal;
        if (is_taken)
            entries.put((int)(n_above + before % EQUAL + equal_before), key, (uint32_t)c);
        n_above += total % EQUAL;
        n_equal += total / EQUAL;
    }
}

template <class U>
__device__ static inline void top_k_sort(const top_k_entries<U> &entries, int n) {
    __syncthreads();
    for (int size = 2; size <= n; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            for (int i = threadIdx.x; i < n / 2; i += ORDER_THREADS) {
                int low = 2 * i - (i & (stride - 1)), high = low + stride;
                if (entries.is_before(high, low) == ((low & size) == 0))
                    entries.swap(low, high);
            }
            __syncthreads();
        }
}

__device__ static inline void top_k_index(void *indices, int64_t size_bytes, int64_t at,
                                          int64_t column) {
    if (size_bytes == 2)
        static_cast<int16_t *>(indices)[at] = (int16_t)column;
    else if (size_bytes == 4)
        static_cast<int32_t *>(indices)[at] = (int32_t)column;
    else
        static_cast<int64_t *>(indices)[at] = column;
}

template <class T> __device__ static inline void top_k_rows(const top_k_args &args) {
    typedef typename order_key<T>::type U;
    __shared__ top_k_selection<U> selection;
    DYNAMIC_SHARED(U, keys);
    const int n = (int)args.n_entries;
    const top_k_entries<U> entries = {keys, reinterpret_cast<uint32_t *>(keys + n)};
    for (int64_t r = blockIdx.x; r < args.n_rows; r += gridDim.x) {
        const T *row = static_cast<const T *>(args.in) + r * args.n_cols;
        const bool takes_all = args.n_cols <= n;
        const int n_real = (int)(takes_all ? args.n_cols : args.k);
        for (int i = n_real + (int)threadIdx.x; i < n; i += ORDER_THREADS)
            entries.put(i, 0, 0xffffffffu);
        if (takes_all) {
            for (int c = threadIdx.x; c < n_real; c += ORDER_THREADS)
                entries.put(c, order_key<T>::of(row[c]), (uint32_t)c);
        } else {
            top_k_select<T, U>(row, args.n_cols, args.k, selection);
            top_k_collect<T, U>(row, args.n_cols, selection, entries);
        }
        top_k_sort(entries, n);
        for (int64_t i = threadIdx.x; i < args.k; i += ORDER_THREADS) {
            uint32_t column = entries.columns[i];
            static_cast<T *>(args.values)[r * args.k + i] = row[column];
            top_k_index(args.indices, args.index_bytes, r * args.k + i, column);
        }
        __syncthreads();
    }
}
#define TOP_K(suffix, T) \
    KERNEL(top_k_rows_##suffix, top_k_args) { top_k_rows<T>(args); }
GPU_EACH_FLOAT(TOP_K)
GPU_EACH_INT(TOP_K)

template <class T> __device__ static inline void top_k_pick(const top_k_pick_args &args) {
    for (int64_t i = gpu_thread(); i < args.n_rows * args.k; i += gpu_n_threads()) {
        int64_t row = i / args.k;
        int64_t at = order_position(args.positions, row * args.n_cols + (i - row * args.k));
        static_cast<T *>(args.values)[i] = static_cast<const T *>(args.in)[at];
        top_k_index(args.indices, args.index_bytes, i, at - row * args.n_cols);
    }
}
#define TOP_K_PICK(suffix, T) \
    KERNEL(top_k_pick_##suffix, top_k_pick_args) { top_k_pick<T>(args); }
GPU_EACH_SIZE(TOP_K_PICK)
