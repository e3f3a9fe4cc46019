/* Numbers in CUDA's device language: vectors, half and bfloat16, bit casts, integer intrinsics,
 * rounding and atomics. Included by device_runtime.h only. */
#ifndef MILLRACE_TESTS_CUDA_SIM_DEVICE_RUNTIME_NUMBERS_H
#define MILLRACE_TESTS_CUDA_SIM_DEVICE_RUNTIME_NUMBERS_H

/* ---- vectors ---- */

#define SIM_VECTORS(type, name, size)                                       \
    struct alignas(2 * size) name##2 {                                      \
        type x, y;                                                          \
    };                                                                      \
    struct alignas(4 * size > 16 ? 16 : 4 * size) name##4 {                 \
        type x, y, z, w;                                                    \
    };                                                                      \
    static inline name##2 make_##name##2(type x, type y) { return {x, y}; } \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
SIM_VECTORS(float, float, 4)
SIM_VECTORS(double, double, 8)
SIM_VECTORS(int, int, 4)
SIM_VECTORS(unsigned, uint, 4)
SIM_VECTORS(short, short, 2)
SIM_VECTORS(unsigned short, ushort, 2)
SIM_VECTORS(signed char, char, 1)
SIM_VECTORS(unsigned char, uchar, 1)
SIM_VECTORS(long long, longlong, 8)
SIM_VECTORS(unsigned long long, ulonglong, 8)

/* ---- bits ---- */

template <class To, class From> static inline To sim_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline int __float_as_int(float x) { return sim_cast<int>(x); }
static inline unsigned __float_as_uint(float x) { return sim_cast<unsigned>(x); }
static inline float __int_as_float(int x) { return sim_cast<float>(x); }
static inline float __uint_as_float(unsigned x) { return sim_cast<float>(x); }
static inline long long __double_as_longlong(double x) { return sim_cast<long long>(x); }
static inline double __longlong_as_double(long long x) { return sim_cast<double>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
static inline int __clzll(long long x) {
    return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)(((unsigned long long)a * b) >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
template <class T> static inline T __ldg(const T *from) { return *from; }
template <class T> static inline T __ldcs(const T *from) { return *from; }
template <class T> static inline void __stcs(T *to, T value) { *to = value; }

/* ---- numbers ---- */

template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline float __fdividef(float a, float b) { return a / b; }
/* glibc declares functions of these names. */
#define __expf expf
#define __logf logf
#define __sinf sinf
#define __cosf cosf
#define __powf powf
static inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline int __float2int_rz(float x) { return (int)x; }

/* ---- half and bfloat16: stored as 16 bits, computed in float, rounded to nearest even ---- */

static inline float sim_half_to_float(unsigned short h) {
    unsigned sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;
    if (exponent == 31)
        return sim_cast<float>(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) {
        float value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    return sim_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}
static inline unsigned short sim_float_to_half(float x) {
    unsigned bits = sim_cast<unsigned>(x), sign = (bits >> 16) & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return 0x7fff;
    if (bits >= 0x477ff000u) /* 65,520 and more round to infinity */
        return (unsigned short)(sign | 0x7c00u);
    if (bits < 0x38800000u) { /* below 2^-14: steps of 2^-24, by the rounding of an addition */
        float shifted = sim_cast<float>(bits) + 0.5f;
        return (unsigned short)(sign | (sim_cast<unsigned>(shifted) - 0x3f000000u));
    }
    bits += 0xfffu + ((bits >> 13) & 1) - (112u << 23);
    return (unsigned short)(sign | bits >> 13);
}
static inline float sim_bfloat16_to_float(unsigned short b) {
    return sim_cast<float>((unsigned)b << 16);
}
static inline unsigned short sim_float_to_bfloat16(float x) {
    unsigned bits = sim_cast<unsigned>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

struct __half_raw {
    unsigned short x;
};
struct __half {
    unsigned short bits;
    __half() = default;
    __half(float x) : bits(sim_float_to_half(x)) {}
    __half(double x) : __half((float)x) {}
    __half(int x) : __half((float)x) {}
    operator float() const { return sim_half_to_float(bits); }
};
struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float x) : bits(sim_float_to_bfloat16(x)) {}
    __nv_bfloat16(double x) : __nv_bfloat16((float)x) {}
    __nv_bfloat16(int x) : __nv_bfloat16((float)x) {}
    operator float() const { return sim_bfloat16_to_float(bits); }
};
typedef __half half;
typedef __nv_bfloat16 nv_bfloat16;
struct alignas(4) __half2 {
    __half x, y;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef __half2 half2;
typedef __nv_bfloat162 nv_bfloat162;
static inline float __half2float(__half x) { return x; }
static inline __half __float2half(float x) { return x; }
static inline __half __float2half_rn(float x) { return x; }
static inline float __bfloat162float(__nv_bfloat16 x) { return x; }
static inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
static inline __half __ushort_as_half(unsigned short x) { return sim_cast<__half>(x); }
static inline unsigned short __half_as_ushort(__half x) { return x.bits; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) {
    return sim_cast<__nv_bfloat16>(x);
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }

/* ---- atomics: each returns the old value ---- */

template <class T, class F> static inline T sim_atomic(T *at, F next) {
    typedef typename std::conditional<
        sizeof(T) == 8, unsigned long,
        typename std::conditional<sizeof(T) == 4, unsigned, unsigned short>::type>::type bits;
    bits *word = reinterpret_cast<bits *>(at), old = __atomic_load_n(word, __ATOMIC_RELAXED);
    for (;;) {
        bits wanted = sim_cast<bits>((T)next(sim_cast<T>(old)));
        if (__atomic_compare_exchange_n(word, &old, wanted, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            return sim_cast<T>(old);
    }
}
#define SIM_ATOMIC(name, expression)                                                           \
    template <class T> static inline T name(T *at, typename std::common_type<T>::type value) { \
        return sim_atomic(at, [value](T old) { return (T)(expression); });                     \
    }
SIM_ATOMIC(atomicAdd, old + value)
SIM_ATOMIC(atomicSub, old - value)
SIM_ATOMIC(atomicMax, old < value ? value : old)
SIM_ATOMIC(atomicMin, value < old ? value : old)
SIM_ATOMIC(atomicAnd, old &value)
SIM_ATOMIC(atomicOr, old | value)
SIM_ATOMIC(atomicXor, old ^ value)
SIM_ATOMIC(atomicExch, ((void)old, value))
SIM_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
template <class T>
static inline T atomicCAS(T *at, typename std::common_type<T>::type compare,
                          typename std::common_type<T>::type value) {
    return sim_atomic(at, [=](T old) { return old == compare ? value : old; });
}

#endif
