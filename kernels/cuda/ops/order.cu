/* Sorts and scans (order.h).
 *
 * A radix sort takes a digit of RADIX_BITS bits in each pass, from the lowest:
 *
 *   count   each block counts the digits of its tile       counts [digit, tile]
 *   scan    of all counts                                  where each tile's digit begins
 *   place   each block finds the rank of each key of its tile, and moves it
 *
 * A rank counts the keys with the same digit that come before, in the warps before, in the warp's
 * earlier rounds, and in lower lanes. So the sort is stable, and no order of threads is seen. */
#include "kernels/cuda/ops/block_scan.h"
#include "kernels/cuda/ops/picks.h"

/* ---- scans ---- */

/* A thread scans SCAN_ITEMS_OF_THREAD values that follow each other. Returns the sum of a tile. */
__device__ static inline int64_t scan_tile(int64_t *values, int64_t n, int64_t base,
                                           int64_t *shared) {
    int64_t items[SCAN_ITEMS_OF_THREAD], sum = 0, total;
    int64_t first = (int64_t)threadIdx.x * SCAN_ITEMS_OF_THREAD;
    for (int i = 0; i < SCAN_ITEMS_OF_THREAD; i++) {
        items[i] = first + i < n ? values[first + i] : 0;
        sum += items[i];
    }
    int64_t before = base + block_scan(sum, shared, &total);
    for (int i = 0; i < SCAN_ITEMS_OF_THREAD; i++) {
        if (first + i < n)
            values[first + i] = before;
        before += items[i];
    }
    return total;
}

/* One block. */
KERNEL(order_scan_one, scan_args) {
    __shared__ int64_t shared[ORDER_WARPS];
    int64_t sum = 0;
    for (int64_t tile = 0; tile < args.n; tile += SCAN_TILE_LEN)
        sum += scan_tile(args.values + tile, args.n - tile, sum, shared);
    if (threadIdx.x == 0) {
        args.values[args.n] = sum;
        if (args.total)
            *args.total = sum;
    }
}

KERNEL(order_scan_sums, scan_args) {
    __shared__ int64_t shared[ORDER_WARPS];
    int64_t n_tiles = (args.n + SCAN_TILE_LEN - 1) / SCAN_TILE_LEN;
    for (int64_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        int64_t sum = 0, total;
        for (int i = 0; i < SCAN_ITEMS_OF_THREAD; i++) {
            int64_t at = tile * SCAN_TILE_LEN + i * ORDER_THREADS + threadIdx.x;
            sum += at < args.n ? args.values[at] : 0;
        }
        block_scan(sum, shared, &total);
        if (threadIdx.x == 0)
            args.tiles[tile] = total;
    }
}

/* args.tiles holds the sums of the tiles before, and behind them the sum of all. */
KERNEL(order_scan_tiles, scan_args) {
    __shared__ int64_t shared[ORDER_WARPS];
    int64_t n_tiles = (args.n + SCAN_TILE_LEN - 1) / SCAN_TILE_LEN;
    for (int64_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x)
        scan_tile(args.values + tile * SCAN_TILE_LEN, args.n - tile * SCAN_TILE_LEN,
                  args.tiles[tile], shared);
    if (gpu_thread() == 0)
        args.values[args.n] = args.tiles[n_tiles];
}

/* ---- keys ---- */

template <class T> __device__ static inline void keys_of(const keys_args &args) {
    typedef typename order_key<T>::type U;
    const U all = sizeof(T) == sizeof(U) ? ~(U)0 : ((U)1 << (8 * sizeof(T) % (8 * sizeof(U)))) - 1;
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads()) {
        U key = order_key<T>::of(static_cast<const T *>(args.from)[i]);
        static_cast<U *>(args.keys)[i] = args.is_descending ? ~key & all : key;
    }
}
#define KEYS(suffix, T) \
    KERNEL(order_keys_##suffix, keys_args) { keys_of<T>(args); }
GPU_EACH_FLOAT(KEYS)
GPU_EACH_INT(KEYS)
KEYS(bool, uint8_t)

__device__ static inline void key_put(void *keys, int64_t key_bytes, int64_t i, int64_t key) {
    if (key_bytes == 4)
        static_cast<uint32_t *>(keys)[i] = (uint32_t)key;
    else
        static_cast<uint64_t *>(keys)[i] = (uint64_t)key;
}

KERNEL(order_row_keys, row_keys_args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads())
        key_put(args.keys, args.key_bytes, i, order_position(args.positions, i) / args.by);
}

KERNEL(order_index_keys, index_keys_args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads()) {
        int64_t at = pick_index_at(args.indices, args.index, i);
        key_put(args.keys, args.key_bytes, i, at >= 0 && at < args.n_valid ? at : args.n_valid);
    }
}

/* ---- radix sort ---- */

template <class K> __device__ static inline int radix_digit(K key, int64_t shift) {
    return (int)((key >> shift) & (K)(RADIX_DIGITS - 1));
}

template <class K> __device__ static inline void radix_count(const radix_args &args) {
    __shared__ int counts[RADIX_DIGITS];
    const K *keys = static_cast<const K *>(args.keys);
    for (int64_t tile = blockIdx.x; tile < args.n_tiles; tile += gridDim.x) {
        counts[threadIdx.x] = 0;
        __syncthreads();
        for (int round = 0; round < RADIX_ROUNDS; round++) {
            int64_t at = tile * RADIX_TILE_LEN + round * ORDER_THREADS + threadIdx.x;
            if (at < args.n)
                atomicAdd(&counts[radix_digit(keys[at], args.shift)], 1);
        }
        __syncthreads();
        args.counts[threadIdx.x * args.n_tiles + tile] = counts[threadIdx.x];
        __syncthreads();
    }
}
KERNEL(radix_count_b4, radix_args) { radix_count<uint32_t>(args); }
KERNEL(radix_count_b8, radix_args) { radix_count<uint64_t>(args); }

/* Calls each(at, digit, peers) for the keys of a warp's part of a tile, in their order; peers are
 * the lanes with the same digit, and digit is RADIX_DIGITS behind the last key. */
template <class K, class Each>
__device__ static inline void radix_rounds(const radix_args &args, int64_t tile, Each each) {
    const K *keys = static_cast<const K *>(args.keys);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int64_t first = tile * RADIX_TILE_LEN + warp * (32 * RADIX_ROUNDS) + lane;
    for (int round = 0; round < RADIX_ROUNDS && first - lane + round * 32 < args.n; round++) {
        int64_t at = first + round * 32;
        int digit = at < args.n ? radix_digit(keys[at], args.shift) : RADIX_DIGITS;
        each(at, digit, __match_any_sync(0xffffffffu, digit));
    }
}

template <class K, class P> __device__ static inline void radix_place(const radix_args &args) {
    /* of each warp: how many keys it has; then, where its next key is placed */
    __shared__ int counts[ORDER_WARPS][RADIX_DIGITS];
    __shared__ int64_t bases[RADIX_DIGITS];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned lower = (1u << lane) - 1;
    for (int64_t tile = blockIdx.x; tile < args.n_tiles; tile += gridDim.x) {
        for (int w = 0; w < ORDER_WARPS; w++)
            counts[w][threadIdx.x] = 0;
        bases[threadIdx.x] = args.counts[threadIdx.x * args.n_tiles + tile];
        __syncthreads();
        radix_rounds<K>(args, tile, [&](int64_t, int digit, unsigned peers) {
            if (digit < RADIX_DIGITS && (peers & lower) == 0)
                counts[warp][digit] += __popc(peers);
            __syncwarp();
        });
        __syncthreads();
        for (int w = 0, sum = 0; w < ORDER_WARPS; w++) {
            int count = counts[w][threadIdx.x];
            counts[w][threadIdx.x] = sum;
            sum += count;
        }
        __syncthreads();
        radix_rounds<K>(args, tile, [&](int64_t at, int digit, unsigned peers) {
            int before = digit < RADIX_DIGITS ? counts[warp][digit] : 0;
            __syncwarp();
            if (digit < RADIX_DIGITS) {
                int64_t to = bases[digit] + before + __popc(peers & lower);
                static_cast<K *>(args.to_keys)[to] = static_cast<const K *>(args.keys)[at];
                static_cast<P *>(args.to_positions)[to] = (P)order_position(args.positions, at);
                if ((peers & lower) == 0)
                    counts[warp][digit] = before + __popc(peers);
            }
            __syncwarp();
        });
        __syncthreads();
    }
}
KERNEL(radix_place_b4_b4, radix_args) { radix_place<uint32_t, int32_t>(args); }
KERNEL(radix_place_b4_b8, radix_args) { radix_place<uint32_t, int64_t>(args); }
KERNEL(radix_place_b8_b4, radix_args) { radix_place<uint64_t, int32_t>(args); }
KERNEL(radix_place_b8_b8, radix_args) { radix_place<uint64_t, int64_t>(args); }

/* ---- sorted keys ---- */

__device__ static inline int64_t bounds_key(const bounds_args &args, int64_t i) {
    return args.key == BOUNDS_U32   ? (int64_t) static_cast<const uint32_t *>(args.keys)[i]
           : args.key == BOUNDS_U64 ? static_cast<const int64_t *>(args.keys)[i]
                                    : pick_index_at(args.keys, args.key, i);
}

KERNEL(order_bounds, bounds_args) {
    for (int64_t v = gpu_thread(); v <= args.n_values; v += gpu_n_threads()) {
        int64_t low = 0, high = args.n;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (bounds_key(args, middle) < v)
                low = middle + 1;
            else
                high = middle;
        }
        args.firsts[v] = low;
    }
}

template <class K> __device__ static inline bool is_head(const groups_args &args, int64_t i) {
    const K *keys = static_cast<const K *>(args.keys);
    return (uint64_t)keys[i] < args.n_valid &&
           (i == 0 || keys[i] != keys[i - 1] || (uint64_t)keys[i] > args.distinct_above);
}

template <class K> __device__ static inline void group_heads(const groups_args &args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads())
        args.heads[i] = is_head<K>(args, i);
}
KERNEL(group_heads_b4, groups_args) { group_heads<uint32_t>(args); }
KERNEL(group_heads_b8, groups_args) { group_heads<uint64_t>(args); }

/* The sort was stable, so the first key of a group has the group's first position. */
template <class K> __device__ static inline void group_starts(const groups_args &args) {
    const K *keys = static_cast<const K *>(args.keys);
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads()) {
        if (args.heads[i + 1] != args.heads[i]) {
            args.starts[args.heads[i]] = i;
            if (args.marks)
                args.marks[order_position(args.positions, i)] = 1;
        }
        bool is_valid = (uint64_t)keys[i] < args.n_valid;
        bool is_next_valid = i + 1 < args.n && (uint64_t)keys[i + 1] < args.n_valid;
        if (is_valid && !is_next_valid)
            args.starts[args.heads[args.n]] = i + 1;
    }
}
KERNEL(group_starts_b4, groups_args) { group_starts<uint32_t>(args); }
KERNEL(group_starts_b8, groups_args) { group_starts<uint64_t>(args); }

/* ---- Unique ---- */

__device__ static inline void put_long(void *to, int64_t size_bytes, int64_t i, int64_t value) {
    if (size_bytes == 4)
        static_cast<int32_t *>(to)[i] = (int32_t)value;
    else
        static_cast<int64_t *>(to)[i] = value;
}

KERNEL(group_keys, group_keys_args) {
    for (int64_t g = gpu_thread(); g < args.n_groups; g += gpu_n_threads()) {
        int64_t at = args.starts[g];
        put_long(args.to, args.to_bytes, g,
                 args.key_bytes == 4 ? (int64_t) static_cast<const uint32_t *>(args.keys)[at]
                                     : static_cast<const int64_t *>(args.keys)[at]);
    }
}

template <class T> __device__ static inline void unique_write(const unique_args &args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads()) {
        int64_t group = args.heads[i + 1] - 1, start = args.starts[group];
        int64_t first = order_position(args.positions, start), rank = args.ranks[first];
        put_long(args.of, args.out_bytes, order_position(args.positions, i), rank);
        if (i != start)
            continue;
        static_cast<T *>(args.y)[rank] = static_cast<const T *>(args.x)[first];
        if (args.counts)
            put_long(args.counts, args.out_bytes, rank, args.starts[group + 1] - start);
    }
}
#define UNIQUE(suffix, T) \
    KERNEL(unique_write_##suffix, unique_args) { unique_write<T>(args); }
GPU_EACH_SIZE(UNIQUE)

/* ---- Where ---- */

template <class T> __device__ static inline bool is_set(T x) {
    typedef typename gpu_wide<T>::type W;
    return (W)x != (W)0;
}
template <class R> __device__ static inline bool is_set(gpu_complex<R> x) {
    return x.re != 0 || x.im != 0;
}

template <class T> __device__ static inline void where_count(const places_args &args) {
    __shared__ int shared[ORDER_WARPS];
    int64_t n_tiles = (args.n + SCAN_TILE_LEN - 1) / SCAN_TILE_LEN;
    for (int64_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        int count = 0, total;
        for (int i = 0; i < SCAN_ITEMS_OF_THREAD; i++) {
            int64_t at = tile * SCAN_TILE_LEN + i * ORDER_THREADS + threadIdx.x;
            count += at < args.n && is_set(static_cast<const T *>(args.in)[at]);
        }
        block_scan(count, shared, &total);
        if (threadIdx.x == 0)
            args.counts[tile] = total;
    }
}

/* args.counts holds where the places of each tile begin. */
template <class T> __device__ static inline void where_write(const places_args &args) {
    __shared__ int shared[ORDER_WARPS];
    int64_t n_tiles = (args.n + SCAN_TILE_LEN - 1) / SCAN_TILE_LEN;
    for (int64_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        int64_t to = args.counts[tile];
        for (int i = 0; i < SCAN_ITEMS_OF_THREAD; i++) {
            int64_t at = tile * SCAN_TILE_LEN + i * ORDER_THREADS + threadIdx.x;
            bool is_here = at < args.n && is_set(static_cast<const T *>(args.in)[at]);
            int total, before = block_scan((int)is_here, shared, &total);
            for (int d = (int)args.rank - 1; is_here && d >= 0; d--) {
                int64_t rest;
                at = pick_divide(at, args.dims[d], &rest);
                args.out[(to + before) * args.rank + d] = rest;
            }
            to += total;
        }
    }
}
#define WHERE(suffix, T)                                           \
    KERNEL(where_count_##suffix, places_args) { where_count<T>(args); } \
    KERNEL(where_write_##suffix, places_args) { where_write<T>(args); }
GPU_EACH_NUMBER(WHERE)
WHERE(bool, uint8_t)
