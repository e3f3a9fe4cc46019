/* The optimizers' steps, by the rules of the CPU (training_rules.inc): each thread updates every
 * n-th element of a dense step; in a sparse step rows have owners (owners.h). */
#include "kernels/cuda/ops/owners.h"
#include "kernels/cuda/ops/train_args.h"

/* Complex arithmetic of the rules, in the layout of complex64 and complex128. */
template <class R> struct train_complex {
    R re, im;
    train_complex() = default;
    __device__ train_complex(int re_) : re((R)re_), im(0) {}
    __device__ train_complex(R re_, R im_) : re(re_), im(im_) {}
    __device__ train_complex operator+(train_complex b) const {
        return train_complex(re + b.re, im + b.im);
    }
    __device__ train_complex operator-(train_complex b) const {
        return train_complex(re - b.re, im - b.im);
    }
    __device__ train_complex operator*(train_complex b) const {
        return train_complex(re * b.re - im * b.im, re * b.im + im * b.re);
    }
    /* Smith's division, which does not overflow where the quotient does not. */
    __device__ train_complex operator/(train_complex b) const {
        bool is_wide = (b.re < 0 ? -b.re : b.re) >= (b.im < 0 ? -b.im : b.im);
        R ratio = is_wide ? b.im / b.re : b.re / b.im,
          scale = is_wide ? b.re + b.im * ratio : b.re * ratio + b.im;
        return is_wide ? train_complex((re + im * ratio) / scale, (im - re * ratio) / scale)
                       : train_complex((re * ratio + im) / scale, (im * ratio - re) / scale);
    }
};

__device__ static inline float train_root(float x) { return sqrtf(x); }
__device__ static inline double train_root(double x) { return sqrt(x); }
template <class R> __device__ static inline train_complex<R> train_root(train_complex<R> z) {
    R size = (R)hypot((R)z.re, (R)z.im);
    if (size == 0)
        return train_complex<R>(0, z.im);
    R half = train_root((size + (z.re < 0 ? -z.re : z.re)) / 2), rest = z.im / (2 * half);
    if (z.re >= 0)
        return train_complex<R>(half, rest);
    return train_complex<R>(rest < 0 ? -rest : rest, z.im < 0 ? -half : half);
}

/* What a rule takes beside its run: scalars that are on the device or in the arguments. */
#define RULE_ON_DEVICE(rule)                                                               \
    __device__ static inline void NAME(rule)(const train_run *run, const train_args &args, \
                                             int64_t begin, int64_t end, int64_t stride)
#define SCALAR_ON_DEVICE(k) LOAD(pick_scalar_value<T>(args.scalars[k]))
#define EACH_ON_DEVICE for (int64_t i = begin; i < end; i += stride)

#define RULE RULE_ON_DEVICE
#define SCALAR SCALAR_ON_DEVICE
#define EACH EACH_ON_DEVICE
#define NAME(rule) rule##_f32
#define T float
#define C float
#define LOAD(v) (v)
#define STORE(v) (v)
#define ROOT sqrtf
#define POWER powf
#define EXP expf
#include "kernels/cpu/state/training_rules.inc"

#define RULE RULE_ON_DEVICE
#define SCALAR SCALAR_ON_DEVICE
#define EACH EACH_ON_DEVICE
#define NAME(rule) rule##_f64
#define T double
#define C double
#define LOAD(v) (v)
#define STORE(v) (v)
#define ROOT sqrt
#define POWER pow
#define EXP exp
#include "kernels/cpu/state/training_rules.inc"

#define RULE RULE_ON_DEVICE
#define SCALAR SCALAR_ON_DEVICE
#define EACH EACH_ON_DEVICE
#define NAME(rule) rule##_f16
#define T __half
#define C float
#define LOAD(v) ((float)(v))
#define STORE(v) ((__half)(v))
#define ROOT sqrtf
#define POWER powf
#define EXP expf
#include "kernels/cpu/state/training_rules.inc"

#define RULE RULE_ON_DEVICE
#define SCALAR SCALAR_ON_DEVICE
#define EACH EACH_ON_DEVICE
#define NAME(rule) rule##_c64
#define T train_complex<float>
#define C train_complex<float>
#define LOAD(v) (v)
#define STORE(v) (v)
#define ROOT train_root
#define IS_COMPLEX
#include "kernels/cpu/state/training_rules.inc"

#define RULE RULE_ON_DEVICE
#define SCALAR SCALAR_ON_DEVICE
#define EACH EACH_ON_DEVICE
#define NAME(rule) rule##_c128
#define T train_complex<double>
#define C train_complex<double>
#define LOAD(v) (v)
#define STORE(v) (v)
#define ROOT train_root
#define IS_COMPLEX
#include "kernels/cpu/state/training_rules.inc"

/* ---- kernels: train_RULE_TYPE and train_sparse_RULE_TYPE ---- */

#define TRAIN_DENSE(rule, suffix)                                                \
    KERNEL(train_##rule##_##suffix, train_args) {                                \
        rule##_##suffix(&args.run, args, gpu_thread(), args.n, gpu_n_threads()); \
    }
#define TRAIN_SPARSE(rule, suffix, type)                                                   \
    struct rule##_##suffix##_row {                                                         \
        const train_args &args;                                                            \
        __device__ void operator()(int64_t slice, int64_t row, int64_t begin, int64_t end, \
                                   int step) const {                                       \
            train_run run = args.run;                                                      \
            for (int k = 0; k < TRAIN_MAX_SLOTS; k++) {                                    \
                run.out[k] = (type *)run.out[k] + slice * args.slices.len;                 \
                run.in[k] = run.out[k];                                                    \
            }                                                                              \
            run.grad = (const type *)run.grad + row * args.slices.len;                     \
            rule##_##suffix(&run, args, begin, end, step);                                 \
        }                                                                                  \
    };                                                                                     \
    KERNEL(train_sparse_##rule##_##suffix, train_args) {                                   \
        __shared__ owner_chunk chunk;                                                      \
        rule##_##suffix##_row row = {args};                                                \
        owner_run(args.slices, args.n_groups, args.n_parts, chunk, row);                   \
    }
#define DENSE_REAL(rule) TRAIN_DENSE(rule, f16) TRAIN_DENSE(rule, f32) TRAIN_DENSE(rule, f64)
#define DENSE_ALL(rule) DENSE_REAL(rule) TRAIN_DENSE(rule, c64) TRAIN_DENSE(rule, c128)
#define SPARSE_REAL(rule)           \
    TRAIN_SPARSE(rule, f16, __half) \
    TRAIN_SPARSE(rule, f32, float)  \
    TRAIN_SPARSE(rule, f64, double)
#define SPARSE_ALL(rule)                          \
    SPARSE_REAL(rule)                             \
    TRAIN_SPARSE(rule, c64, train_complex<float>) \
    TRAIN_SPARSE(rule, c128, train_complex<double>)

DENSE_ALL(gradient_descent)
DENSE_ALL(momentum)
DENSE_ALL(keras_momentum)
DENSE_ALL(adagrad)
DENSE_ALL(adagrad_v2)
DENSE_ALL(adadelta)
DENSE_ALL(rmsprop)
DENSE_ALL(centered_rmsprop)
DENSE_ALL(adam)
DENSE_REAL(proximal_adagrad)
DENSE_REAL(adam_amsgrad)
DENSE_REAL(adamax)
DENSE_REAL(ftrl)
DENSE_REAL(ftrl_v2)
DENSE_REAL(add_sign)
DENSE_REAL(power_sign)
SPARSE_ALL(adadelta)
SPARSE_ALL(keras_momentum)
SPARSE_REAL(adagrad)
SPARSE_REAL(adagrad_v2)
SPARSE_REAL(proximal_adagrad)
SPARSE_REAL(ftrl)
SPARSE_REAL(ftrl_v2)
