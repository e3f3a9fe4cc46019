/* Numbers that are drawn by rejection, with the CPU's code: gamma distributions, and normals between
 * bounds. A thread makes one output, from a stream of its own. */
#include "kernels/cuda/ops/random.h"

#define DRAW __device__ static inline
#define GENERATOR random_state

/* ---- gamma distributions: the numbers of the CPU ---- */

enum { GAMMA_BLOCKS_PER_OUTPUT = 256 };

__device__ static inline random_block random_next(random_state *state) {
    random_block block = random_words(*state);
    *state = random_skip(*state, 1);
    return block;
}
__device__ static inline void random_next_uniforms(random_state *state, double out[2]) {
    random_block block = random_next(state);
    out[0] = random_f64(block.words[0], block.words[1]);
    out[1] = random_f64(block.words[2], block.words[3]);
}

#define NEXT_BLOCK random_next_uniforms
#include "kernels/cpu/random/random_gamma.inc"

template <class T> __device__ static inline void random_gamma(const gamma_args &args) {
    typedef typename gpu_wide<T>::type W;
    random_state state = random_start(args.random);
    for (int64_t i = gpu_thread(); i < args.random.n; i += gpu_n_threads()) {
        int64_t p = i / args.samples, sample = i % args.samples;
        draws draws;
        draws.generator = random_skip(state, (uint64_t)i * GAMMA_BLOCKS_PER_OUTPUT);
        draws.n_uniforms = draws.n_normals = 0;
        double alpha = (double)(W) static_cast<const T *>(args.alpha)[p];
        reinterpret_cast<T *>(args.random.out)[sample * args.n_parameters + p] =
            (T)(W)draw_gamma(&draws, alpha);
    }
}
#define RANDOM_GAMMA(suffix, type) \
    KERNEL(random_gamma_##suffix, gamma_args) { random_gamma<type>(args); }
GPU_EACH_FLOAT(RANDOM_GAMMA)

/* ---- normals between bounds ---- */

template <class T>
__device__ static inline void random_next_floats(random_state *state, bool is_normal,
                                                 float out[4]) {
    random_block block = random_next(state);
    if (is_normal)
        random_normals(block, out);
    for (int i = 0; i < 4; i++)
        out[i] = is_normal ? (float)(T)out[i] : random_uniform_of<T>(block.words[i]);
}
__device__ static inline void random_next_normals(random_state *state, double out[2]) {
    random_normals(random_next(state), out);
}

#define NAME(x) x##_f16
#define REAL float
#define ROUND(x) ((float)(__half)(x))
#define GROUP 4
#define NEXT_UNIFORMS(generator, out) random_next_floats<__half>(generator, false, out)
#define NEXT_NORMALS(generator, out) random_next_floats<__half>(generator, true, out)
#define EXP expf
#define LOG logf
#define SQRT sqrtf
#include "kernels/cpu/random/random_parameterized.inc"
#undef NAME
#undef ROUND
#undef NEXT_UNIFORMS
#undef NEXT_NORMALS
#define NAME(x) x##_f32
#define ROUND(x) (x)
#define NEXT_UNIFORMS(generator, out) random_next_floats<float>(generator, false, out)
#define NEXT_NORMALS(generator, out) random_next_floats<float>(generator, true, out)
#include "kernels/cpu/random/random_parameterized.inc"
#undef NAME
#undef REAL
#undef GROUP
#undef NEXT_UNIFORMS
#undef NEXT_NORMALS
#undef EXP
#undef LOG
#undef SQRT
#define NAME(x) x##_f64
#define REAL double
#define GROUP 2
#define NEXT_UNIFORMS(generator, out) random_next_uniforms(generator, out)
#define NEXT_NORMALS(generator, out) random_next_normals(generator, out)
#define EXP exp
#define LOG log
#define SQRT sqrt
#include "kernels/cpu/random/random_parameterized.inc"

template <class T, class W>
__device__ static inline W parameter_at(const parameterized_args &args, int k, int64_t batch) {
    return (W) static_cast<const T *>(args.parameters[k])[args.is_shared[k] ? 0 : batch];
}

/* NaN where the parameters are wrong, or nothing was accepted. */
template <class T, class W, class S, class B, bool init(W, W, W, W, B *), bool sample(S *)>
__device__ static inline void random_parameterized(const parameterized_args &args) {
    for (int64_t i = gpu_thread(); i < args.random.n; i += gpu_n_threads()) {
        uint64_t n_blocks = (uint64_t)i * (uint64_t)args.blocks_per_output;
        random_state state = random_skip(random_start(args.random), n_blocks);
        W z = 0, p[4];
        for (int k = 0; k < 4; k++)
            p[k] = parameter_at<T, W>(args, k, i / args.samples);
        S s;
        s.generator = &state;
        s.out = &z;
        s.n = 1;
        s.tries = 0;
        bool is_drawn = init(p[0], p[1], p[2], p[3], &s.b) && sample(&s);
        reinterpret_cast<T *>(args.random.out)[i] = (T)(is_drawn ? z : (W)NAN);
    }
}
#define PARAMETERIZED(suffix, T, W)                                                          \
    KERNEL(random_parameterized_##suffix, parameterized_args) {                              \
        random_parameterized<T, W, sampling_##suffix, bounds_##suffix, bounds_init_##suffix, \
                             sample_##suffix>(args);                                         \
    }
PARAMETERIZED(f16, __half, float)
PARAMETERIZED(f32, float, float)
PARAMETERIZED(f64, double, double)
