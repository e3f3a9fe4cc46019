/* Kernels of Cast between all numeric types and bool. See elementwise_forms.h.
 *
 * As on a CPU (math_cast.c), a number passes through a plain type: half, bfloat16 and 8-bit floats
 * through float, 4-bit integers through 8-bit ones, complex numbers through their real part. A
 * float that an integer type cannot hold becomes the least int32 or int64, of which narrower and
 * unsigned types take the low bits. */
#include <type_traits>

#include "kernels/cuda/ops/elementwise_forms.h"

template <int FRACTION_BITS, int BIAS> struct small_float {
    uint8_t bits;
};
typedef small_float<2, 15> float_e5m2; /* has infinities */
typedef small_float<3, 7> float_e4m3;  /* has none */
struct int4_byte {
    uint8_t bits;
};
struct uint4_byte {
    uint8_t bits;
};

/* ---- from a type to its plain type, and back ---- */

template <class T> struct plain_of {
    typedef typename gpu_wide<T>::type type;
};
template <class R> struct plain_of<gpu_complex<R>> {
    typedef R type;
};
template <int F, int B> struct plain_of<small_float<F, B>> {
    typedef float type;
};
template <> struct plain_of<int4_byte> {
    typedef int8_t type;
};
template <> struct plain_of<uint4_byte> {
    typedef uint8_t type;
};

template <class T> __device__ static inline typename plain_of<T>::type to_plain(T x) {
    return (typename plain_of<T>::type)x;
}
template <class R> __device__ static inline R to_plain(gpu_complex<R> x) { return x.re; }
__device__ static inline int8_t to_plain(int4_byte x) { return (int8_t)(((x.bits & 15) ^ 8) - 8); }
__device__ static inline uint8_t to_plain(uint4_byte x) { return x.bits & 15; }
template <int F, int B> __device__ static inline float to_plain(small_float<F, B> x) {
    int rest = x.bits & 0x7f, fraction = rest & ((1 << F) - 1), exponent = rest >> F;
    float size;
    if (F == 2 && exponent == 31)
        size = fraction ? (float)NAN : (float)INFINITY;
    else if (F == 3 && rest == 0x7f)
        size = (float)NAN;
    else
        size = ldexpf((float)(exponent ? fraction | 1 << F : fraction),
                      (exponent ? exponent : 1) - B - F);
    return x.bits & 0x80 ? -size : size;
}

template <class T> struct from_plain {
    template <class P> __device__ static inline T of(P x) { return (T)x; }
};
template <class R> struct from_plain<gpu_complex<R>> {
    __device__ static inline gpu_complex<R> of(R x) { return gpu_complex<R>(x, 0); }
};
template <> struct from_plain<int4_byte> {
    __device__ static inline int4_byte of(int8_t x) {
        return int4_byte{(uint8_t)(((x & 15) ^ 8) - 8)};
    }
};
template <> struct from_plain<uint4_byte> {
    __device__ static inline uint4_byte of(uint8_t x) { return uint4_byte{(uint8_t)(x & 15)}; }
};
/* Rounds to the nearest, ties to even. */
template <int F, int B> struct from_plain<small_float<F, B>> {
    __device__ static inline small_float<F, B> of(float x) {
        const int nan = F == 2 ? 0x7e : 0x7f, top = F == 2 ? 0x7c : 0x7f, least = 1 - B;
        int sign = signbit(x) ? 0x80 : 0;
        float size = fabsf(x);
        if (x != x)
            return small_float<F, B>{(uint8_t)(sign | nan)};
        if (size == 0)
            return small_float<F, B>{(uint8_t)sign};
        if (size == (float)INFINITY)
            return small_float<F, B>{(uint8_t)(sign | top)};
        int exponent = max(ilogbf(size), least);
        if (exponent > 16)
            return small_float<F, B>{(uint8_t)(sign | top)};
        /* In units of the last place. Scaling by a power of two is exact, and a carry out of the
         * fraction increments the exponent. */
        int units = (int)rintf(ldexpf(size, F - exponent));
        return small_float<F, B>{(uint8_t)(sign | min(((exponent - least) << F) + units, top))};
    }
};

/* ---- between plain types ---- */

template <class P> __device__ static inline int32_t to_i32(P x) {
    return x > (P)-2147483649.0 && x < (P)2147483648.0 ? (int32_t)x : INT32_MIN;
}
/* -2147483649 is no float, and rounds to the least int32, which fits. */
template <> __device__ inline int32_t to_i32<float>(float x) {
    return x >= -2147483648.0f && x < 2147483648.0f ? (int32_t)x : INT32_MIN;
}
template <class P> __device__ static inline int64_t to_i64(P x) {
    return x >= (P)-9223372036854775808.0 && x < (P)9223372036854775808.0 ? (int64_t)x : INT64_MIN;
}
template <class P> __device__ static inline uint64_t to_u64(P x) {
    const P half = (P)9223372036854775808.0;
    return x >= half && x < 2 * half ? (uint64_t)x : (uint64_t)to_i64(x);
}

template <class To, class From> __device__ static inline To convert(From x) {
    if constexpr (std::is_same<To, bool>::value)
        return x != 0;
    else if constexpr (!std::is_floating_point<From>::value || std::is_floating_point<To>::value)
        return (To)x;
    else if constexpr (std::is_same<To, uint64_t>::value)
        return to_u64(x);
    else if constexpr (std::is_same<To, int64_t>::value || std::is_same<To, uint32_t>::value)
        return (To)to_i64(x);
    else
        return (To)to_i32(x);
}

/* Zeroes the low fraction bits. A NaN stays one. */
template <class P> __device__ static inline P cut(P x, int n_bits) {
    if constexpr (std::is_same<P, float>::value)
        return x != x ? x : __uint_as_float(__float_as_uint(x) & ~0u << n_bits);
    else if constexpr (std::is_same<P, double>::value)
        return x != x ? x : __longlong_as_double(__double_as_longlong(x) & -1ll << n_bits);
    else
        return x;
}

template <class To, class From> struct cast_one {
    __device__ static inline To of(From x, int n_bits) {
        typename plain_of<From>::type plain = to_plain(x);
        if (n_bits > 0)
            plain = cut(plain, n_bits);
        return from_plain<To>::of(convert<typename plain_of<To>::type>(plain));
    }
};
template <class To, class From> struct cast_one<gpu_complex<To>, gpu_complex<From>> {
    __device__ static inline gpu_complex<To> of(gpu_complex<From> z, int n_bits) {
        return gpu_complex<To>((To)cut(z.re, n_bits), (To)cut(z.im, n_bits));
    }
};

/* ---- kernels: each source with its targets ---- */

#define CAST(to, To, from, From)                              \
    ELEMENTWISE_OP(cast_##from##_##to, From, From, From, To, 1, \
                   return cast_one<To, From>::of(first_, args.cut_bits);)
#define TO_INT(X, ...)                                                                            \
    X(i8, int8_t, __VA_ARGS__) X(i16, int16_t, __VA_ARGS__) X(i32, int32_t, __VA_ARGS__)          \
    X(i64, int64_t, __VA_ARGS__) X(u8, uint8_t, __VA_ARGS__) X(u16, uint16_t, __VA_ARGS__)        \
    X(u32, uint32_t, __VA_ARGS__) X(u64, uint64_t, __VA_ARGS__)
#define TO_FLOAT(X, ...)                                                                          \
    X(f16, __half, __VA_ARGS__) X(bf16, __nv_bfloat16, __VA_ARGS__) X(f32, float, __VA_ARGS__)    \
    X(f64, double, __VA_ARGS__)
#define TO_FLOAT8(X, ...) X(e5m2, float_e5m2, __VA_ARGS__) X(e4m3, float_e4m3, __VA_ARGS__)
#define TO_INT4(X, ...) X(i4, int4_byte, __VA_ARGS__) X(u4, uint4_byte, __VA_ARGS__)
#define TO_ANY(X, ...)                                                                            \
    TO_INT(X, __VA_ARGS__) TO_FLOAT(X, __VA_ARGS__) X(bool, bool, __VA_ARGS__)                    \
    X(c64, gpu_complex<float>, __VA_ARGS__) X(c128, gpu_complex<double>, __VA_ARGS__)
#define FROM_ANY(from, From) TO_ANY(CAST, from, From)
#define FROM_FLOAT(from, From) TO_ANY(CAST, from, From) TO_FLOAT8(CAST, from, From)
#define FROM_INT(from, From) TO_ANY(CAST, from, From) TO_INT4(CAST, from, From)
#define FROM_FLOAT8(from, From) TO_FLOAT(CAST, from, From) TO_FLOAT8(CAST, from, From)
#define FROM_INT4(from, From) TO_INT(CAST, from, From) TO_INT4(CAST, from, From)

GPU_EACH_NARROW(FROM_FLOAT)
FROM_FLOAT(f32, float)
FROM_ANY(f64, double)
FROM_ANY(bool, bool)
GPU_EACH_INT(FROM_INT)
GPU_EACH_COMPLEX(FROM_ANY)
FROM_FLOAT8(e5m2, float_e5m2)
FROM_FLOAT8(e4m3, float_e4m3)
FROM_INT4(i4, int4_byte)
FROM_INT4(u4, uint4_byte)
