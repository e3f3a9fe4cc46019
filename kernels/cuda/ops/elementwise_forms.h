/* How an elementwise kernel walks over its elements. An op is a struct with the types of its
 * operands and its result, and a function `of`:
 *
 *     EACH_FLOAT(UNARY, neg, -x)       makes the kernels neg_f16, neg_bf16, neg_f32, neg_f64
 *     EACH_INT(BINARY, add, wrap(x) + wrap(y))
 *
 * In the expression, `value` is the type that is computed with (float for half and bfloat16), x, y
 * and z are the operands in that type, and args.alpha is the op's number. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_ELEMENTWISE_FORMS_H
#define MILLRACE_KERNELS_CUDA_OPS_ELEMENTWISE_FORMS_H

#include "kernels/cuda/ops/device_types.h"
#include "kernels/cuda/ops/elementwise_args.h"

/* Consecutive elements that are loaded and stored at once. */
template <class T, int N> struct alignas(sizeof(T) * N) elementwise_pack { T at[N]; };

/* Integers are added and multiplied as unsigned ones, which wrap. */
template <class T> struct gpu_wrapping { typedef uint32_t type; };
template <> struct gpu_wrapping<int64_t> { typedef uint64_t type; };
template <> struct gpu_wrapping<uint64_t> { typedef uint64_t type; };
template <class T> __device__ static inline typename gpu_wrapping<T>::type wrap(T x) {
    return (typename gpu_wrapping<T>::type)x;
}

template <class T>
__device__ static inline T elementwise_only_value(const elementwise_args &args, int k) {
    T value;
    if (args.is_inline >> k & 1)
        memcpy(&value, args.values[k], sizeof(value));
    else
        value = *static_cast<const T *>(args.in[k]);
    return value;
}

/* The elements of operand k that a vector of the output is made from. */
template <class T, int N>
__device__ static inline elementwise_pack<T, N> elementwise_load(const elementwise_args &args,
                                                                 int k, int64_t at) {
    if (!(args.stretched >> k & 1))
        return *reinterpret_cast<const elementwise_pack<T, N> *>(
            static_cast<const T *>(args.in[k]) + at);
    elementwise_pack<T, N> pack;
    T value = args.is_inline >> k & 1 ? elementwise_only_value<T>(args, k)
                                      : static_cast<const T *>(args.in[k])[at];
    for (int i = 0; i < N; i++)
        pack.at[i] = value;
    return pack;
}

/* One element of operand k, at an offset that respects strides. */
template <class T>
__device__ static inline T elementwise_get(const elementwise_args &args, int k, int64_t at) {
    if (args.is_inline >> k & 1)
        return elementwise_only_value<T>(args, k);
    return static_cast<const T *>(args.in[k])[at];
}

/* The offsets of the operands at element `index` of the output. */
template <int N_OPERANDS>
__device__ static inline void elementwise_seek(const elementwise_args &args, int64_t index,
                                               int64_t *offsets) {
    for (int k = 0; k < N_OPERANDS; k++)
        offsets[k] = 0;
    GPU_NO_UNROLL for (int d = args.rank - 1; d >= 0; d--) {
        int64_t outer = d > 0 ? gpu_divide(args.dims[d], index) : 0;
        int64_t place = index - outer * args.dims[d].value;
        for (int k = 0; k < N_OPERANDS; k++)
            offsets[k] += place * args.strides[k][d];
        index = outer;
    }
}

constexpr int elementwise_larger(int a, int b) { return a > b ? a : b; }

/* Op: an elementwise op. n_operands; the types first, second, third of its operands and result; of,
 * a result from one element of each. */
template <class Op> struct elementwise {
    typedef typename Op::first A;
    typedef typename Op::second B;
    typedef typename Op::third C;
    typedef typename Op::result R;
    enum {
        K = Op::n_operands,
        LARGEST =
            elementwise_larger(elementwise_larger(sizeof(A), sizeof(R)),
                               elementwise_larger(K > 1 ? sizeof(B) : 1, K > 2 ? sizeof(C) : 1)),
        N = ELEMENTWISE_VECTOR_BYTES / LARGEST
    };

    /* One vector of the output, from the operands' vectors at these offsets. */
    __device__ static inline void pack(const elementwise_args &args, int64_t at,
                                       const int64_t *offsets) {
        elementwise_pack<A, N> a = elementwise_load<A, N>(args, 0, offsets[0]);
        elementwise_pack<B, N> b = {};
        elementwise_pack<C, N> c = {};
        if (K > 1)
            b = elementwise_load<B, N>(args, 1, offsets[1]);
        if (K > 2)
            c = elementwise_load<C, N>(args, 2, offsets[2]);
        elementwise_pack<R, N> out;
        for (int i = 0; i < N; i++)
            out.at[i] = Op::of(a.at[i], b.at[i], c.at[i], args);
        *reinterpret_cast<elementwise_pack<R, N> *>(static_cast<R *>(args.out) + at) = out;
    }
    __device__ static inline void one(const elementwise_args &args, int64_t at,
                                      const int64_t *offsets) {
        A a = elementwise_get<A>(args, 0, offsets[0]);
        B b = B();
        C c = C();
        if (K > 1)
            b = elementwise_get<B>(args, 1, offsets[1]);
        if (K > 2)
            c = elementwise_get<C>(args, 2, offsets[2]);
        static_cast<R *>(args.out)[at] = Op::of(a, b, c, args);
    }
    /* The offset of operand k at element `index` of a flat form. */
    __device__ static inline void flat(const elementwise_args &args, int64_t index,
                                       int64_t *offsets) {
        for (int k = 0; k < K; k++)
            offsets[k] = args.stretched >> k & 1 ? 0 : index;
    }
    __device__ static inline void run(const elementwise_args &args) {
        int64_t offsets[ELEMENTWISE_MAX_OPERANDS], step = gpu_n_threads(), done = 0;
        if (args.is_vector && (K == 1 || args.form != ELEMENTWISE_ANY_BROADCAST)) {
            int64_t n_packs = args.n / N;
            done = n_packs * N;
            GPU_NO_UNROLL for (int64_t i = gpu_thread(); i < n_packs; i += step) {
                if (K == 1 || args.form == ELEMENTWISE_FLAT)
                    flat(args, i * N, offsets);
                else
                    elementwise_seek<K>(args, i * N, offsets);
                pack(args, i * N, offsets);
            }
        }
        GPU_NO_UNROLL for (int64_t i = done + gpu_thread(); i < args.n; i += step) {
            if (K == 1 || args.form == ELEMENTWISE_FLAT)
                flat(args, i, offsets);
            else
                elementwise_seek<K>(args, i, offsets);
            one(args, i, offsets);
        }
    }
};

/* ---- declaring kernels: suffix, type, name, then the expression ---- */

/* A file that wants the ops without kernels of their own (fused.cu) defines this as nothing. */
#ifndef ELEMENTWISE_KERNEL
#define ELEMENTWISE_KERNEL(name) \
    KERNEL(name, elementwise_args) { elementwise<name##_op>::run(args); }
#endif
#define ELEMENTWISE_OP(name, A, B, C, R, n, ...)                                        \
    struct name##_op {                                                                  \
        typedef A first;                                                                \
        typedef B second;                                                               \
        typedef C third;                                                                \
        typedef R result;                                                               \
        enum { n_operands = n };                                                        \
        __device__ static inline R of(A first_, B second_, C third_,                    \
                                      const elementwise_args &args) {                   \
            typedef gpu_wide<B>::type value;                                            \
            (void)first_, (void)second_, (void)third_, (void)args, (void)sizeof(value); \
            __VA_ARGS__                                                                 \
        }                                                                               \
    };                                                                                  \
    ELEMENTWISE_KERNEL(name)
#define UNARY_TO(suffix, T, R, name, ...) \
    ELEMENTWISE_OP(name##_##suffix, T, T, T, R, 1, const value x = first_; return (R)(__VA_ARGS__);)
#define UNARY(suffix, T, name, ...) UNARY_TO(suffix, T, T, name, (value)(__VA_ARGS__))
#define BINARY_TO(suffix, T, R, name, ...)                                 \
    ELEMENTWISE_OP(name##_##suffix, T, T, T, R, 2, const value x = first_; \
                   const value y = second_; return (R)(__VA_ARGS__);)
#define BINARY(suffix, T, name, ...) BINARY_TO(suffix, T, T, name, (value)(__VA_ARGS__))
#define COMPARISON(suffix, T, name, ...) BINARY_TO(suffix, T, bool, name, __VA_ARGS__)
#define TERNARY(suffix, T, name, ...)                                      \
    ELEMENTWISE_OP(name##_##suffix, T, T, T, T, 3, const value x = first_; \
                   const value y = second_; const value z = third_;        \
                   return (T)(value)(__VA_ARGS__);)

/* An op that is a long function of floats. It is not inlined, because a kernel has a copy of its
 * expression for each element of a vector. */
#define EACH_FLOAT_SLOWLY(name, ...)                                                             \
    template <class T> __device__ __noinline__ static T slow_##name(T x) { return __VA_ARGS__; } \
    EACH_FLOAT(UNARY, name, slow_##name(x))
#define EACH_FLOAT_SLOWLY_2(name, ...)                                          \
    template <class T> __device__ __noinline__ static T slow_##name(T x, T y) { \
        return __VA_ARGS__;                                                     \
    }                                                                           \
    EACH_FLOAT(BINARY, name, slow_##name(x, y))

/* X(suffix, type, …) for each type of a set. The host's kernel serves int32 where shapes are
 * computed, so the arithmetic of integers leaves it out. */
#define EACH_NARROW(X, ...) X(f16, __half, __VA_ARGS__) X(bf16, __nv_bfloat16, __VA_ARGS__)
#define EACH_WIDE(X, ...) X(f32, float, __VA_ARGS__) X(f64, double, __VA_ARGS__)
#define EACH_FLOAT(X, ...) EACH_NARROW(X, __VA_ARGS__) EACH_WIDE(X, __VA_ARGS__)
#define EACH_SIGNED(X, ...) \
    X(i8, int8_t, __VA_ARGS__) X(i16, int16_t, __VA_ARGS__) X(i64, int64_t, __VA_ARGS__)
#define EACH_UNSIGNED(X, ...)   \
    X(u8, uint8_t, __VA_ARGS__) \
    X(u16, uint16_t, __VA_ARGS__) X(u32, uint32_t, __VA_ARGS__) X(u64, uint64_t, __VA_ARGS__)
#define EACH_I32(X, ...) X(i32, int32_t, __VA_ARGS__)
#define EACH_INT(X, ...) EACH_SIGNED(X, __VA_ARGS__) EACH_UNSIGNED(X, __VA_ARGS__)
#define EACH_COMPLEX(X, ...) \
    X(c64, gpu_complex<float>, __VA_ARGS__) X(c128, gpu_complex<double>, __VA_ARGS__)
#define EACH_BOOL(X, ...) X(bool, uint8_t, __VA_ARGS__)

#endif
