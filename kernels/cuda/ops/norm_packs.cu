/* Kernels of FusedBatchNorm and its gradient where channels are last and come in packs of four: a
 * thread has the channels of a pack in some rows. Others, and what is computed for each channel
 * alone, are in norm.cu. Narrow floats are computed in float.
 *
 * Sums are merged in an order that the sizes decide. An address decides only how a pack is read. */
#include "kernels/cuda/ops/device_types.h"
#include "kernels/cuda/ops/norm_args.h"
#include "kernels/cuda/ops/norm_tree.h"

#ifdef __CUDACC__
#define NORM_UNROLL _Pragma("unroll")
#else
#define NORM_UNROLL
#endif

template <class T> struct alignas(sizeof(T) * NORM_VECTOR) norm_pack { T at[NORM_VECTOR]; };
struct norm_four {
    float at[NORM_VECTOR];
};

/* ALIGNED: packs can be read and written at once, otherwise element by element. */
template <bool ALIGNED, class T> __device__ static inline norm_four norm_load(const T *from) {
    norm_pack<T> found;
    norm_four result;
    if (ALIGNED)
        found = *reinterpret_cast<const norm_pack<T> *>(from);
    else
        for (int k = 0; k < NORM_VECTOR; k++)
            found.at[k] = from[k];
    for (int k = 0; k < NORM_VECTOR; k++)
        result.at[k] = (float)found.at[k];
    return result;
}

template <bool ALIGNED, class T>
__device__ static inline void norm_store(T *to, const norm_pack<T> &pack) {
    if (ALIGNED)
        *reinterpret_cast<norm_pack<T> *>(to) = pack;
    else
        for (int k = 0; k < NORM_VECTOR; k++)
            to[k] = pack.at[k];
}

/* The pack and the rows that this thread has: n_rows, the first of them at the element `first`, and
 * `step` elements from one to the next. */
struct norm_place {
    int64_t chunk, pack, first, step;
    int32_t n_rows;
    bool is_pack;

    __device__ norm_place(const norm_rows &rows) {
        int bits = rows.width_bits, block = (int)blockIdx.x, thread = (int)threadIdx.x;
        int in_step = NORM_THREADS >> bits, row = thread >> bits, part = block / rows.n_groups;
        chunk = part;
        pack = ((block - part * rows.n_groups) << bits) + (thread & (rows.width - 1));
        is_pack = pack < rows.channels / NORM_VECTOR;
        int64_t begin = chunk * rows.chunk + row, end = (chunk + 1) * rows.chunk;
        end = end < rows.n_rows ? end : rows.n_rows;
        n_rows = is_pack && begin < end
                     ? (int32_t)(end - begin + in_step - 1) >> (NORM_THREADS_BITS - bits)
                     : 0;
        first = begin * rows.channels + pack * NORM_VECTOR;
        step = in_step * rows.channels;
    }
    __device__ norm_four of_channels(const float *numbers) const {
        norm_four result = {};
        for (int k = 0; k < NORM_VECTOR; k++)
            if (is_pack)
                result.at[k] = numbers[pack * NORM_VECTOR + k];
        return result;
    }
    /* Reads the first N of n rows, and takes 0 for those behind. All loads are under way at the
     * same time. */
    template <bool ALIGNED, int N, class T>
    __device__ void load(const T *from, int n, norm_four *ret) const {
        NORM_UNROLL for (int i = 0; i < N; i++) {
            norm_four none = {};
            ret[i] = i < n ? norm_load<ALIGNED>(from + i * step) : none;
        }
    }
    __device__ void store_pivot(const norm_chunks_args &args, const norm_four &pivot) const {
        if (is_pack && (int)threadIdx.x < args.rows.width)
            for (int k = 0; k < NORM_VECTOR; k++)
                args.pivot[pack * NORM_VECTOR + k] = pivot.at[k];
    }
    __device__ void store(const norm_chunks_args &args, const norm_four &first,
                          const norm_four &second) const {
        if (!is_pack || (int)threadIdx.x >= args.rows.width)
            return;
        norm_pack<float> packs[2];
        for (int k = 0; k < NORM_VECTOR; k++) {
            packs[0].at[k] = first.at[k];
            packs[1].at[k] = second.at[k];
        }
        int64_t at = chunk * args.rows.channels + pack * NORM_VECTOR;
        norm_store<true>(args.first + at, packs[0]);
        norm_store<true>(args.second + at, packs[1]);
    }
};

/* ---- sums of a chunk of rows ---- */

/* n numbers of each of four channels: their means, and the squares around them. */
struct norm_moments_of_four {
    float n;
    norm_four mean, squares;
    /* Chan's formula. */
    __device__ void merge(const norm_moments_of_four &other) {
        float total = n + other.n, part = other.n / total, weight = n * part;
        if (other.n == 0)
            return;
        for (int k = 0; k < NORM_VECTOR; k++) {
            float step = other.mean.at[k] - mean.at[k];
            mean.at[k] += step * part;
            squares.at[k] += other.squares.at[k] + step * step * weight;
        }
        n = total;
    }
};

/* Of NORM_TILE numbers less the pivot, of which n count. */
__device__ static inline norm_moments_of_four norm_moments_of(norm_four *values,
                                                              const norm_four &pivot, int n) {
    norm_moments_of_four found = {(float)n, {}, {}};
    for (int k = 0; k < NORM_VECTOR; k++) {
        float sum = 0;
        NORM_UNROLL for (int i = 0; i < NORM_TILE; i++) {
            values[i].at[k] = i < n ? values[i].at[k] - pivot.at[k] : 0;
            sum += values[i].at[k];
        }
        found.mean.at[k] = n == NORM_TILE ? sum * (1.0f / NORM_TILE) : sum / found.n;
        NORM_UNROLL for (int i = 0; i < NORM_TILE; i++) {
            float distance = i < n ? values[i].at[k] - found.mean.at[k] : 0;
            found.squares.at[k] += distance * distance;
        }
    }
    return found;
}

template <class T, bool ALIGNED>
__device__ static inline void norm_packs_moments(const norm_chunks_args &args) {
    __shared__ norm_moments_of_four shared[NORM_THREADS];
    norm_place place(args.rows);
    norm_moments_of_four all = {0, {}, {}};
    norm_four values[NORM_TILE], pivot = {};
    const T *x = static_cast<const T *>(args.x);
    if (place.is_pack)
        pivot = norm_load<ALIGNED>(x + place.pack * NORM_VECTOR);
    for (int k = 0; k < NORM_VECTOR; k++)
        pivot.at[k] = norm_pivot(pivot.at[k]);
    x += place.first;
    for (int n = place.n_rows; n > 0; n -= NORM_TILE, x += NORM_TILE * place.step) {
        place.load<ALIGNED, NORM_TILE>(x, n, values);
        all.merge(norm_moments_of(values, pivot, n < NORM_TILE ? n : (int)NORM_TILE));
    }
    norm_tree(shared, args.rows.width, all);
    place.store(args, shared[threadIdx.x].mean, shared[threadIdx.x].squares);
    if (place.chunk == 0)
        place.store_pivot(args, pivot);
}

/* The sums of g and of g · (x - mean). */
struct norm_sums_of_four {
    norm_four sum, product;
    __device__ void merge(const norm_sums_of_four &other) {
        for (int k = 0; k < NORM_VECTOR; k++) {
            sum.at[k] += other.sum.at[k];
            product.at[k] += other.product.at[k];
        }
    }
};

template <class T, bool ALIGNED>
__device__ static inline void norm_packs_sums(const norm_chunks_args &args) {
    __shared__ norm_sums_of_four shared[NORM_THREADS];
    norm_place place(args.rows);
    norm_four mean = place.of_channels(args.mean), x[NORM_PAIR_TILE], g[NORM_PAIR_TILE];
    norm_sums_of_four all = {};
    const T *from_x = static_cast<const T *>(args.x), *from_g = static_cast<const T *>(args.g);
    int64_t at = place.first;
    for (int n = place.n_rows; n > 0; n -= NORM_PAIR_TILE, at += NORM_PAIR_TILE * place.step) {
        place.load<ALIGNED, NORM_PAIR_TILE>(from_x + at, n, x);
        place.load<ALIGNED, NORM_PAIR_TILE>(from_g + at, n, g);
        NORM_UNROLL for (int i = 0; i < NORM_PAIR_TILE; i++) {
            for (int k = 0; k < NORM_VECTOR; k++) {
                all.sum.at[k] += g[i].at[k]; /* zeros behind the last */
                all.product.at[k] += g[i].at[k] * (x[i].at[k] - mean.at[k]);
            }
        }
    }
    norm_tree(shared, args.rows.width, all);
    place.store(args, shared[threadIdx.x].sum, shared[threadIdx.x].product);
}

/* ---- all elements ---- */

template <class T, bool ALIGNED, bool X, bool G>
__device__ static inline void norm_packs_apply_to(const norm_packs_args &args) {
    norm_place place(args.rows);
    norm_four none = {}, mean = none, factor = none, offset = none, weight = none;
    if (X) {
        mean = place.of_channels(args.mean);
        factor = place.of_channels(args.factor);
        offset = place.of_channels(args.offset);
    }
    if (G)
        weight = place.of_channels(args.weight);
    norm_four x[NORM_PAIR_TILE], g[NORM_PAIR_TILE];
    const T *from_x = static_cast<const T *>(args.x), *from_g = static_cast<const T *>(args.g);
    int64_t at = place.first;
    for (int n = place.n_rows; n > 0; n -= NORM_PAIR_TILE, at += NORM_PAIR_TILE * place.step) {
        if (X)
            place.load<ALIGNED, NORM_PAIR_TILE>(from_x + at, n, x);
        if (G)
            place.load<ALIGNED, NORM_PAIR_TILE>(from_g + at, n, g);
        NORM_UNROLL for (int i = 0; i < NORM_PAIR_TILE; i++) {
            norm_pack<T> result;
            for (int k = 0; k < NORM_VECTOR; k++) {
                float value = 0;
                if (X)
                    value = (x[i].at[k] - mean.at[k]) * factor.at[k] + offset.at[k];
                if (G)
                    value += g[i].at[k] * weight.at[k];
                result.at[k] = (T)value;
            }
            if (i < n)
                norm_store<ALIGNED>(static_cast<T *>(args.result) + at + i * place.step, result);
        }
    }
}

template <class T, bool ALIGNED>
__device__ static inline void norm_packs_apply(const norm_packs_args &args) {
    if (!args.g)
        norm_packs_apply_to<T, ALIGNED, true, false>(args);
    else if (args.x)
        norm_packs_apply_to<T, ALIGNED, true, true>(args);
    else
        norm_packs_apply_to<T, ALIGNED, false, true>(args);
}

/* norm_parts_*: at any address. */
#define NORM_PACKS(suffix, T)                                                                     \
    KERNEL(norm_packs_moments_##suffix, norm_chunks_args) { norm_packs_moments<T, true>(args); }  \
    KERNEL(norm_packs_sums_##suffix, norm_chunks_args) { norm_packs_sums<T, true>(args); }        \
    KERNEL(norm_packs_apply_##suffix, norm_packs_args) { norm_packs_apply<T, true>(args); }       \
    KERNEL(norm_parts_moments_##suffix, norm_chunks_args) { norm_packs_moments<T, false>(args); } \
    KERNEL(norm_parts_sums_##suffix, norm_chunks_args) { norm_packs_sums<T, false>(args); }       \
    KERNEL(norm_parts_apply_##suffix, norm_packs_args) { norm_packs_apply<T, false>(args); }
GPU_EACH_NARROW(NORM_PACKS)
NORM_PACKS(f32, float)
