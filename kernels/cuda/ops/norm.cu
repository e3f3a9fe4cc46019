/* Kernels of FusedBatchNorm and LRN with their gradients. Channels that are last and come in packs
 * are read by norm_packs.cu. Narrow floats are computed in float. */
#include "kernels/cuda/ops/device_types.h"
#include "kernels/cuda/ops/norm_args.h"
#include "kernels/cuda/ops/norm_tree.h"
#include "kernels/cuda/ops/windows.h"

/* Of a loop whose loads are to be under way at once. */
#ifdef __CUDACC__
#define NORM_UNROLL_FOUR _Pragma("unroll 4")
#else
#define NORM_UNROLL_FOUR
#endif

/* ---- sums of a chunk of rows ---- */

/* The rows of a channel that this thread reads. INNER: is `inner` more than 1? */
template <bool INNER> struct norm_share {
    int64_t chunk, channel, begin, end, step;
    bool is_channel;

    __device__ norm_share(const norm_rows &rows) {
        int64_t n_groups = (rows.channels + rows.width - 1) / rows.width;
        chunk = blockIdx.x / n_groups;
        channel = blockIdx.x % n_groups * rows.width + threadIdx.x % rows.width;
        is_channel = channel < rows.channels;
        int64_t first = chunk * rows.chunk, last = first + rows.chunk;
        last = last < rows.n_rows ? last : rows.n_rows;
        begin = first + threadIdx.x / rows.width;
        end = is_channel ? last : 0;
        step = NORM_THREADS / rows.width;
    }
    __device__ int64_t at(const norm_rows &rows, int64_t row) const {
        if (!INNER)
            return row * rows.channels + channel;
        int64_t outer = gpu_divide(rows.inner, row);
        return (outer * rows.channels + channel) * rows.inner.value + row -
               outer * rows.inner.value;
    }
    /* Reads up to NORM_TILE rows, from r on, and returns how many there are. Their loads are under
     * way at the same time. */
    template <class T>
    __device__ int load(const norm_rows &rows, const T *from, int64_t r, float *ret) const {
        int n = 0;
        for (int i = 0; i < NORM_TILE; i++) {
            int64_t row = r + i * step;
            ret[i] = row < end ? (float)from[at(rows, row)] : 0;
            n += row < end;
        }
        return n;
    }
    __device__ void store(const norm_chunks_args &args, float first, float second) const {
        if (!is_channel || (int)threadIdx.x >= args.rows.width)
            return;
        args.first[chunk * args.rows.channels + channel] = first;
        args.second[chunk * args.rows.channels + channel] = second;
    }
};

/* n numbers: their mean, and the squares around it. */
struct norm_moment {
    float n, mean, squares;
    /* Chan's formula. */
    __device__ void merge(const norm_moment &other) {
        float total = n + other.n, step = other.mean - mean;
        if (other.n == 0)
            return;
        mean += step * (other.n / total);
        squares += other.squares + step * step * (n * (other.n / total));
        n = total;
    }
};

__device__ static inline norm_moment norm_moment_of(float *values, float pivot, int n) {
    norm_moment found = {(float)n, 0, 0};
    float sum = 0;
    for (int i = 0; i < NORM_TILE; i++) {
        values[i] = i < n ? values[i] - pivot : 0;
        sum += values[i];
    }
    found.mean = n ? sum / found.n : 0;
    for (int i = 0; i < NORM_TILE; i++) {
        float distance = i < n ? values[i] - found.mean : 0;
        found.squares += distance * distance;
    }
    return found;
}

template <class T, bool INNER>
__device__ static inline void norm_moments(const norm_chunks_args &args) {
    __shared__ norm_moment shared[NORM_THREADS];
    norm_share<INNER> share(args.rows);
    norm_moment all = {0, 0, 0};
    const T *x = static_cast<const T *>(args.x);
    float values[NORM_TILE],
        pivot = share.is_channel ? norm_pivot((float)x[share.at(args.rows, 0)]) : 0;
    for (int64_t r = share.begin; r < share.end; r += NORM_TILE * share.step) {
        int n = share.load(args.rows, x, r, values);
        all.merge(norm_moment_of(values, pivot, n));
    }
    norm_tree(shared, args.rows.width, all);
    share.store(args, shared[threadIdx.x].mean, shared[threadIdx.x].squares);
    if (share.chunk == 0 && share.is_channel && (int)threadIdx.x < args.rows.width)
        args.pivot[share.channel] = pivot;
}

/* The sums of g and of g · (x - mean). */
struct norm_pair {
    float sum, product;
    __device__ void merge(const norm_pair &other) {
        sum += other.sum;
        product += other.product;
    }
};

template <class T, bool INNER>
__device__ static inline void norm_sums(const norm_chunks_args &args) {
    __shared__ norm_pair shared[NORM_THREADS];
    norm_share<INNER> share(args.rows);
    norm_pair all = {0, 0};
    float mean = share.is_channel ? args.mean[share.channel] : 0, x[NORM_TILE], g[NORM_TILE];
    for (int64_t r = share.begin; r < share.end; r += NORM_TILE * share.step) {
        share.load(args.rows, static_cast<const T *>(args.x), r, x);
        share.load(args.rows, static_cast<const T *>(args.g), r, g);
        for (int i = 0; i < NORM_TILE; i++) {
            all.sum += g[i]; /* zeros behind the last */
            all.product += g[i] * (x[i] - mean);
        }
    }
    norm_tree(shared, args.rows.width, all);
    share.store(args, shared[threadIdx.x].sum, shared[threadIdx.x].product);
}

/* ---- each channel's numbers ---- */

/* A block has the chunks of one channel at a time: its threads take turns, and are merged as a
 * tree. */
struct norm_merged {
    double n, mean, squares;
};

/* Chan's formula, in double precision. */
__device__ static inline void norm_merge(norm_merged *to, const norm_merged &from) {
    double total = to->n + from.n, step = from.mean - to->mean;
    if (from.n == 0)
        return;
    to->mean += step * from.n / total;
    to->squares += from.squares + step * step * to->n * from.n / total;
    to->n = total;
}

/* Every thread of the block calls it. Thread 0 gets the whole. */
__device__ static inline norm_merged norm_merge_chunks(const norm_statistics_args &args,
                                                       int64_t channel, norm_merged *shared) {
    norm_merged mine = {0, 0, 0};
    NORM_UNROLL_FOUR for (int64_t c = threadIdx.x; c < args.rows.n_chunks;
                          c += NORM_MERGE_THREADS) {
        int64_t rest = args.rows.n_rows - c * args.rows.chunk;
        norm_merged chunk = {(double)(rest < args.rows.chunk ? rest : args.rows.chunk),
                             (double)args.first[c * args.rows.channels + channel],
                             (double)args.second[c * args.rows.channels + channel]};
        norm_merge(&mine, chunk);
    }
    shared[threadIdx.x] = mine;
    __syncthreads();
    for (int half = NORM_MERGE_THREADS / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half)
            norm_merge(&shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    mine = shared[0];
    __syncthreads();
    return mine;
}

__device__ static inline void norm_channel(const norm_statistics_args &args, int64_t c,
                                           const norm_merged &found) {
    double n = (double)args.rows.n_rows, unbiased = n / (n > 2 ? n - 1 : 1);
    float f = args.average_factor, numbers[4];
    if (args.rows.n_rows == 0) { /* the mean of an empty batch */
        numbers[0] = numbers[1] = numbers[2] = numbers[3] = (float)NAN;
    } else if (args.is_training) {
        numbers[2] = (float)found.mean;
        numbers[3] = (float)(found.squares / found.n);
        float fresh = (float)((double)numbers[3] * unbiased);
        numbers[0] = f == 1 ? numbers[2] : (1 - f) * args.mean[c] + f * numbers[2];
        numbers[1] = f == 1 ? fresh : (1 - f) * args.variance[c] + f * fresh;
    } else {
        numbers[0] = numbers[2] = args.mean[c];
        numbers[1] = numbers[3] = args.variance[c];
    }
    for (int i = 0; i < 4; i++)
        args.out[i][c] = numbers[i];
    args.factor[c] = args.scale[c] / sqrtf(numbers[3] + args.epsilon);
}

KERNEL(norm_statistics_f32, norm_statistics_args) {
    __shared__ norm_merged shared[NORM_MERGE_THREADS];
    for (int64_t c = blockIdx.x; c < args.rows.channels; c += gridDim.x) {
        norm_merged found = {0, 0, 0};
        if (args.is_training && args.rows.n_rows > 0) {
            found = norm_merge_chunks(args, c, shared);
            found.mean += (double)args.pivot[c];
        }
        if (threadIdx.x == 0)
            norm_channel(args, c, found);
    }
}

/* With s = 1 / √(variance + epsilon) and n rows:
 *   training:    scale · s · (g - Σ g / n - (x - mean) · s² · Σ g (x - mean) / n)
 *   otherwise:   scale · s · g */
__device__ static inline void norm_gradient(const norm_gradients_args &args, int64_t c, double sum,
                                            double product) {
    double n = (double)args.rows.n_rows;
    double s = 1 / sqrt((double)args.variance[c] + (double)args.epsilon);
    double weight = (double)args.scale[c] * s;
    args.offset_out[c] = (float)sum;
    args.scale_out[c] = (float)(product * s);
    args.line.weight[c] = (float)weight;
    args.line.factor[c] = args.is_training ? (float)(-weight * s * s * product / n) : 0;
    args.line.offset[c] = args.is_training ? (float)(-weight * sum / n) : 0;
}

KERNEL(norm_gradients_f32, norm_gradients_args) {
    __shared__ double sums[NORM_MERGE_THREADS], products[NORM_MERGE_THREADS];
    int me = (int)threadIdx.x;
    for (int64_t c = blockIdx.x; c < args.rows.channels; c += gridDim.x) {
        double sum = 0, product = 0;
        NORM_UNROLL_FOUR for (int64_t chunk = me; chunk < args.rows.n_chunks;
                              chunk += NORM_MERGE_THREADS) {
            sum += (double)args.first[chunk * args.rows.channels + c];
            product += (double)args.second[chunk * args.rows.channels + c];
        }
        sums[me] = sum;
        products[me] = product;
        __syncthreads();
        for (int half = NORM_MERGE_THREADS / 2; half > 0; half /= 2) {
            if (me < half) {
                sums[me] += sums[me + half];
                products[me] += products[me + half];
            }
            __syncthreads();
        }
        if (me == 0)
            norm_gradient(args, c, sums[0], products[0]);
        __syncthreads();
    }
}

/* ---- all elements ---- */

template <class T> __device__ static inline void norm_apply(const norm_apply_args &args) {
    const T *x = static_cast<const T *>(args.x), *g = static_cast<const T *>(args.g);
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        int64_t run = gpu_divide(args.inner, e),
                c = run - gpu_divide(args.channels, run) * args.channels.value;
        float value = 0;
        if (x)
            value = ((float)x[e] - args.mean[c]) * args.factor[c] + args.offset[c];
        if (g)
            value += (float)g[e] * args.weight[c];
        static_cast<T *>(args.result)[e] = (T)value;
    }
}

#define NORM(suffix, T)                                                                    \
    KERNEL(norm_moments_##suffix, norm_chunks_args) { norm_moments<T, false>(args); }      \
    KERNEL(norm_sums_##suffix, norm_chunks_args) { norm_sums<T, false>(args); }            \
    KERNEL(norm_moments_inner_##suffix, norm_chunks_args) { norm_moments<T, true>(args); } \
    KERNEL(norm_sums_inner_##suffix, norm_chunks_args) { norm_sums<T, true>(args); }       \
    KERNEL(norm_apply_##suffix, norm_apply_args) { norm_apply<T>(args); }
GPU_EACH_NARROW(NORM)
NORM(f32, float)

/* ---- LRN ---- */

/* Calls work(element) for the channels around one of them, within its pixel. */
template <class I, class Work>
__device__ static inline void lrn_around(const lrn_args &args, I e, const Work &work) {
    I depth = (I)args.depth.value, channel = e - window_divide<I>(args.depth, e) * depth;
    I radius = (I)args.radius, before = channel < radius ? channel : radius;
    I behind = depth - 1 - channel < radius ? depth - 1 - channel : radius;
    NORM_UNROLL_FOUR for (I at = e - before; at <= e + behind; at++) work(at);
}

template <class I> __device__ static inline float lrn_norm(const lrn_args &args, I e) {
    float sum = 0;
    lrn_around<I>(args, e, [&](I at) { sum += args.in[at] * args.in[at]; });
    return args.bias + args.alpha * sum;
}

template <class I> __device__ static inline void lrn(const lrn_args &args) {
    for (I e = (I)gpu_thread(); e < (I)args.n; e += (I)gpu_n_threads())
        args.result[e] = args.in[e] * powf(lrn_norm<I>(args, e), -args.beta);
}

template <class I> __device__ static inline void lrn_norms(const lrn_args &args) {
    for (I e = (I)gpu_thread(); e < (I)args.n; e += (I)gpu_n_threads()) {
        float norm = lrn_norm<I>(args, e);
        args.norms[e] = norm;
        args.shares[e] = args.gradient[e] * args.out[e] / norm;
    }
}

/* d out[j] / d in[k] = -2 · alpha · beta · in[k] · out[j] / norm[j], plus norm^-beta where j is k. */
template <class I> __device__ static inline void lrn_grad(const lrn_args &args) {
    for (I e = (I)gpu_thread(); e < (I)args.n; e += (I)gpu_n_threads()) {
        float around = 0;
        lrn_around<I>(args, e, [&](I at) { around += args.shares[at]; });
        args.result[e] = args.gradient[e] * powf(args.norms[e], -args.beta) -
                         2 * args.alpha * args.beta * args.in[e] * around;
    }
}

#define LRN(name)                  \
    KERNEL(name##_f32, lrn_args) { \
        if (args.is_small)         \
            name<int32_t>(args);   \
        else                       \
            name<int64_t>(args);   \
    }
LRN(lrn)
LRN(lrn_norms)
LRN(lrn_grad)
