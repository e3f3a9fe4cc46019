/* Random numbers: the CPU's (kernels/cpu/random/random_fill.c) for the same generator. Words,
 * uniform numbers and integers have the same bits; normal numbers differ by the last bits of this
 * device's log, sin and cos. A thread makes one group of outputs: 4 of up to 32 bits, or 2 of 64. */
#include "kernels/cuda/ops/random.h"

enum { RANDOM_BLOCKS_PER_TRUNCATED = 64 };

/* ---- a group of outputs, in the type that it is computed with ---- */

template <class T> struct random_group {
    typedef float wide;
    static const int size = 4;
};
template <> struct random_group<double> {
    typedef double wide;
    static const int size = 2;
};

template <class T> struct random_uniform {
    __device__ static void make(random_state state, const random_args &, uint64_t group,
                                float out[4]) {
        random_block block = random_words(random_skip(state, group));
        for (int i = 0; i < 4; i++)
            out[i] = random_uniform_of<T>(block.words[i]);
    }
};
template <> struct random_uniform<double> {
    __device__ static void make(random_state state, const random_args &, uint64_t group,
                                double out[2]) {
        random_block block = random_words(random_skip(state, group));
        out[0] = random_f64(block.words[0], block.words[1]);
        out[1] = random_f64(block.words[2], block.words[3]);
    }
};

template <class T> struct random_normal {
    typedef typename random_group<T>::wide W;
    __device__ static void make(random_state state, const random_args &, uint64_t group, W *out) {
        random_normals(random_words(random_skip(state, group)), out);
    }
};

/* Normal numbers within (-2, 2): those outside are dropped, and the next ones are used. */
template <class T> struct random_truncated {
    typedef typename random_group<T>::wide W;
    __device__ static void make(random_state state, const random_args &, uint64_t group, W *out) {
        const int size = random_group<T>::size;
        state = random_skip(state, group * (size * RANDOM_BLOCKS_PER_TRUNCATED));
        for (int filled = 0; filled < size;) {
            W made[4];
            random_normals(random_words(state), made);
            state = random_skip(state, 1);
            for (int i = 0; i < size; i++)
                if (made[i] < (W)2 && made[i] > (W)-2 && filled < size)
                    out[filled++] = made[i];
        }
    }
};

template <class T, class Make> __device__ static inline void random_fill(const random_args &args) {
    typedef typename random_group<T>::wide W;
    const int size = random_group<T>::size;
    random_state state = random_start(args);
    int64_t n_groups = (args.n + size - 1) / size;
    for (int64_t group = gpu_thread(); group < n_groups; group += gpu_n_threads()) {
        W made[size];
        Make::make(state, args, (uint64_t)group, made);
        T *out = reinterpret_cast<T *>(args.out) + group * size;
        for (int i = 0; i < size; i++)
            if (group * size + i < args.n)
                out[i] = (T)made[i];
    }
}

#define RANDOM(suffix, type)                                                                      \
    KERNEL(random_uniform_##suffix, random_args) {                                                \
        random_fill<type, random_uniform<type>>(args);                                            \
    }                                                                                             \
    KERNEL(random_normal_##suffix, random_args) { random_fill<type, random_normal<type>>(args); } \
    KERNEL(random_truncated_##suffix, random_args) {                                              \
        random_fill<type, random_truncated<type>>(args);                                          \
    }
GPU_EACH_FLOAT(RANDOM)

KERNEL(random_int_b4, random_args) {
    random_state state = random_start(args);
    uint32_t *out = reinterpret_cast<uint32_t *>(args.out), low = (uint32_t)args.low,
             range = (uint32_t)args.range;
    for (int64_t group = gpu_thread(); group < (args.n + 3) / 4; group += gpu_n_threads()) {
        random_block block = random_words(random_skip(state, (uint64_t)group));
        for (int i = 0; i < 4; i++)
            if (group * 4 + i < args.n)
                out[group * 4 + i] = range ? low + block.words[i] % range : block.words[i];
    }
}

KERNEL(random_int_b8, random_args) {
    random_state state = random_start(args);
    uint64_t *out = reinterpret_cast<uint64_t *>(args.out);
    for (int64_t group = gpu_thread(); group < (args.n + 1) / 2; group += gpu_n_threads()) {
        random_block block = random_words(random_skip(state, (uint64_t)group));
        for (int i = 0; i < 2; i++) {
            uint64_t word = (uint64_t)block.words[2 * i + 1] << 32 | block.words[2 * i];
            if (group * 2 + i < args.n)
                out[group * 2 + i] = args.range ? args.low + word % args.range : word;
        }
    }
}

/* One thread moves a generator on. */
KERNEL(random_advance_u64, random_advance_args) {
    if (gpu_thread() == 0) {
        random_state state = {args.words[2], args.words[0], args.words[1]};
        if (args.before) {
            args.before[0] = state.lo;
            args.before[1] = state.hi;
            args.before[2] = state.key;
        }
        state = random_skip(state, args.n_blocks);
        args.words[0] = state.lo;
        args.words[1] = state.hi;
    }
}

/* ---- classes by their weights ---- */

enum { MULTINOMIAL_THREADS = 256 };

template <class T>
__device__ static inline double multinomial_logit(const char *logits, int64_t i) {
    typedef typename gpu_wide<T>::type W;
    return (double)(W) reinterpret_cast<const T *>(logits)[i];
}
__device__ static inline bool multinomial_is_finite(double x) {
    return x > -HUGE_VAL && x < HUGE_VAL;
}

/* Combines the threads' values: their maximum, and the sums of the threads before. */
__device__ static inline double multinomial_max(double own, double *shared) {
    shared[threadIdx.x] = own;
    __syncthreads();
    for (int half = MULTINOMIAL_THREADS / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half && shared[threadIdx.x + half] > shared[threadIdx.x])
            shared[threadIdx.x] = shared[threadIdx.x + half];
        __syncthreads();
    }
    double max = shared[0];
    __syncthreads();
    return max;
}
__device__ static inline double multinomial_sum_before(double own, double *shared) {
    shared[threadIdx.x] = own;
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0;
        for (int i = 0; i < MULTINOMIAL_THREADS; i++) {
            double value = shared[i];
            shared[i] = sum;
            sum += value;
        }
    }
    __syncthreads();
    double before = shared[threadIdx.x];
    __syncthreads();
    return before;
}

/* A block for each row; a thread for a run of classes. A logit that is not finite has the weight
 * 0. */
template <class T>
__device__ static inline void multinomial_sums(const multinomial_sums_args &args, double *shared) {
    int64_t run = (args.n_classes + MULTINOMIAL_THREADS - 1) / MULTINOMIAL_THREADS;
    int64_t begin = threadIdx.x * run, end = begin + run;
    end = end < args.n_classes ? end : args.n_classes;
    for (int64_t row = blockIdx.x; row < args.n_rows; row += gridDim.x) {
        int64_t first = row * args.n_classes;
        double max = -HUGE_VAL, total = 0;
        for (int64_t i = begin; i < end; i++) {
            double logit = multinomial_logit<T>(args.logits, first + i);
            max = logit > max && logit < HUGE_VAL ? logit : max;
        }
        max = multinomial_max(max, shared);
        for (int64_t i = begin; i < end; i++) {
            double logit = multinomial_logit<T>(args.logits, first + i);
            total += multinomial_is_finite(logit) ? exp(logit - max) : 0;
            args.sums[first + i] = total;
        }
        double before = multinomial_sum_before(total, shared);
        for (int64_t i = begin; i < end; i++)
            args.sums[first + i] += before;
    }
}
#define MULTINOMIAL_SUMS(suffix, type)                         \
    KERNEL(multinomial_sums_##suffix, multinomial_sums_args) { \
        __shared__ double shared[MULTINOMIAL_THREADS];         \
        multinomial_sums<type>(args, shared);                  \
    }
GPU_EACH_FLOAT(MULTINOMIAL_SUMS)

/* The first class whose sum is above a share of the whole; n_classes if no logit was finite. */
template <class I>
__device__ static inline void multinomial_draw(const multinomial_draw_args &args) {
    random_state state = {args.key, args.lo, args.hi};
    for (int64_t s = gpu_thread(); s < args.n_rows * args.n_samples; s += gpu_n_threads()) {
        const double *sums = args.sums + s / args.n_samples * args.n_classes;
        random_block block = random_words(random_skip(state, (uint64_t)s / 2));
        int pair = (int)(s % 2) * 2;
        double wanted =
            random_f64(block.words[pair], block.words[pair + 1]) * sums[args.n_classes - 1];
        int64_t low = 0, high = args.n_classes;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (sums[middle] <= wanted)
                low = middle + 1;
            else
                high = middle;
        }
        reinterpret_cast<I *>(args.out)[s] = (I)low;
    }
}
KERNEL(multinomial_draw_i32, multinomial_draw_args) { multinomial_draw<int32_t>(args); }
KERNEL(multinomial_draw_i64, multinomial_draw_args) { multinomial_draw<int64_t>(args); }
