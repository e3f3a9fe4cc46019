/* Strided copies: transposes, slices, concats, pads, tiles, fills. Only the size of an element
 * matters; the host widens the elements of contiguous copies up to 16 bytes. */
#include "kernels/cuda/ops/moves.h"

template <class T, class N>
__device__ static inline void move_element(const move_loops &loops, N e) {
    move_place place = move_find<N>(loops, e);
    reinterpret_cast<T *>(loops.to)[place.to] =
        loops.from ? reinterpret_cast<const T *>(loops.from)[place.from]
                   : *reinterpret_cast<const T *>(loops.value);
}

template <class T> __device__ static inline void move_one(const move_one_args &args) {
    int64_t n = args.loops.end;
    if (n < INT32_MAX) {
        for (int64_t e = gpu_thread(); e < n; e += gpu_n_threads())
            move_element<T, uint32_t>(args.loops, (uint32_t)e);
    } else {
        for (int64_t e = gpu_thread(); e < n; e += gpu_n_threads())
            move_element<T, uint64_t>(args.loops, (uint64_t)e);
    }
}

template <class T> __device__ static inline void move_batch(const move_batch_args &args) {
    int64_t n = args.loops[args.n_copies - 1].end;
    for (int64_t e = gpu_thread(); e < n; e += gpu_n_threads()) {
        int k = 0;
        while (e >= args.loops[k].end)
            k++;
        int64_t first = k ? args.loops[k - 1].end : 0;
        if (n < INT32_MAX)
            move_element<T, uint32_t>(args.loops[k], (uint32_t)(e - first));
        else
            move_element<T, uint64_t>(args.loops[k], (uint64_t)(e - first));
    }
}

/* Blocks of MOVE_TILE × MOVE_TILE_ROWS threads read a tile along b and write it along a. The tile
 * has a column more, so that neither access meets a bank twice. */
template <class T>
__device__ static inline void move_tiles(const move_tiles_args &args, T (*tile)[MOVE_TILE + 1]) {
    int x = threadIdx.x % MOVE_TILE, y = threadIdx.x / MOVE_TILE;
    int64_t tiles_a = (args.n_a + MOVE_TILE - 1) / MOVE_TILE,
            tiles_b = (args.n_b + MOVE_TILE - 1) / MOVE_TILE;
    for (int64_t t = blockIdx.x; t < args.n_tiles; t += gridDim.x) {
        int64_t turn = t / (tiles_a * tiles_b), in_turn = t - turn * (tiles_a * tiles_b);
        int64_t a0 = in_turn / tiles_b * MOVE_TILE, b0 = in_turn % tiles_b * MOVE_TILE;
        int64_t from = 0, to = 0;
        for (int d = (int)args.n_loops - 1; d >= 0; d--) {
            int64_t at = turn % args.dims[d];
            turn /= args.dims[d];
            from += at * args.from_strides[d];
            to += at * args.to_strides[d];
        }
        const T *source = reinterpret_cast<const T *>(args.from) + from;
        T *target = reinterpret_cast<T *>(args.to) + to;
        for (int row = y; row < MOVE_TILE; row += MOVE_TILE_ROWS)
            if (a0 + row < args.n_a && b0 + x < args.n_b)
                tile[row][x] = source[(a0 + row) * args.from_a + b0 + x];
        __syncthreads();
        for (int row = y; row < MOVE_TILE; row += MOVE_TILE_ROWS)
            if (b0 + row < args.n_b && a0 + x < args.n_a)
                target[(b0 + row) * args.to_b + a0 + x] = tile[x][row];
        __syncthreads();
    }
}

#define MOVE_ONE(suffix, type) \
    KERNEL(move_one_##suffix, move_one_args) { move_one<type>(args); }
GPU_EACH_SIZE(MOVE_ONE)
#define MOVE_BATCH_OF(suffix, type) \
    KERNEL(move_batch_##suffix, move_batch_args) { move_batch<type>(args); }
GPU_EACH_SIZE(MOVE_BATCH_OF)
#define MOVE_TILES(suffix, type)                        \
    KERNEL(move_tiles_##suffix, move_tiles_args) {      \
        __shared__ type tile[MOVE_TILE][MOVE_TILE + 1]; \
        move_tiles<type>(args, tile);                   \
    }
GPU_EACH_SIZE(MOVE_TILES)
