/* exp, log and their relatives as code without branches, so that loops that call them vectorise
 * (loops that call libm do not).
 *
 * Accuracy: below 2 units in the last place over the whole range, also where results are denormal.
 * NaN and infinities give what libm gives. Method: Cody and Waite's argument reduction, then a
 * polynomial. The coefficients are our own near-minimax fits of (e^r - 1 - r) / r² and of (log(1 +
 * f) - 2s) / s³ with s = f / (2 + f). */
#ifndef MILLRACE_KERNELS_SUPPORT_VMATH_H
#define MILLRACE_KERNELS_SUPPORT_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t vmath_bits_f32(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof(bits));
    return bits;
}
static inline float vmath_f32(uint32_t bits) {
    float v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}
static inline uint64_t vmath_bits_f64(double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    return bits;
}
static inline double vmath_f64(uint64_t bits) {
    double v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

/* a·b + c and c - a·b, rounded once where the processor does so in one instruction, else twice. exp
 * is written with these functions, so that the compiler has no choice: the loops of all instruction
 * sets with FMA, and compiled runs (kernels/cpu/emit), give the same bits. */
#ifdef __FMA__
static inline float vmath_fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double vmath_fma_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline float vmath_fnma_f32(float a, float b, float c) { return __builtin_fmaf(-a, b, c); }
static inline double vmath_fnma_f64(double a, double b, double c) {
    return __builtin_fma(-a, b, c);
}
#else
static inline float vmath_fma_f32(float a, float b, float c) { return a * b + c; }
static inline double vmath_fma_f64(double a, double b, double c) { return a * b + c; }
static inline float vmath_fnma_f32(float a, float b, float c) { return c - a * b; }
static inline double vmath_fnma_f64(double a, double b, double c) { return c - a * b; }
#endif

/* square - a², exactly, where `square` is a² rounded. */
static inline float vmath_square_error_f32(float a, float square) {
#ifdef __FMA__
    return vmath_fnma_f32(a, a, square);
#else
    return (float)((double)square - (double)a * (double)a);
#endif
}

/* x = n·ln 2 + r, for x that have a power of e other than 0 and infinity. 2^n is given as two
 * factors, because n may exceed what one exponent holds. */
struct vmath_reduced_f32 {
    float r, em1; /* em1 = e^r - 1 */
    float scale1, scale2;
};
struct vmath_reduced_f64 {
    double r, em1;
    double scale1, scale2;
};

static inline struct vmath_reduced_f32 vmath_reduce_f32(float x) {
    /* 1.5 · 2^23: adding it leaves the nearest integer in the low bits */
    const float round = 12582912.0f;
    float shifted = vmath_fma_f32(x, 0x1.715476p+0f, round);
    float n = shifted - round;
    int32_t power = (int32_t)(vmath_bits_f32(shifted) - 0x4b400000u);
    int32_t half = power >> 1;
    float r = vmath_fnma_f32(n, 0x1.62e400p-1f, x);
    r = vmath_fnma_f32(n, 0x1.7f7d1cp-20f, r);
    float q = 0x1.6db414p-10f;
    q = vmath_fma_f32(q, r, 0x1.123b46p-7f);
    q = vmath_fma_f32(q, r, 0x1.55545ep-5f);
    q = vmath_fma_f32(q, r, 0x1.555490p-3f);
    q = vmath_fma_f32(q, r, 0.5f);
    return (struct vmath_reduced_f32){r, vmath_fma_f32(q * r, r, r),
                                      vmath_f32(((uint32_t)half + 127u) << 23),
                                      vmath_f32(((uint32_t)power - (uint32_t)half + 127u) << 23)};
}

static inline struct vmath_reduced_f64 vmath_reduce_f64(double x) {
    const double round = 0x1.8p52;
    double shifted = vmath_fma_f64(x, 0x1.71547652b82fep+0, round);
    double n = shifted - round;
    int64_t power = (int64_t)(vmath_bits_f64(shifted) - 0x4338000000000000u);
    int64_t half = power >> 1;
    double r = vmath_fnma_f64(n, 0x1.62e42fefa0000p-1, x);
    r = vmath_fnma_f64(n, 0x1.cf79abc9e3b3ap-40, r);
    double q = 0x1.af23c2d42b84dp-26;
    q = vmath_fma_f64(q, r, 0x1.288088c0e67a5p-22);
    q = vmath_fma_f64(q, r, 0x1.71de17c442068p-19);
    q = vmath_fma_f64(q, r, 0x1.a019c971b4d98p-16);
    q = vmath_fma_f64(q, r, 0x1.a01a01a4b9826p-13);
    q = vmath_fma_f64(q, r, 0x1.6c16c1739a511p-10);
    q = vmath_fma_f64(q, r, 0x1.1111111110e65p-7);
    q = vmath_fma_f64(q, r, 0x1.5555555554ca7p-5);
    q = vmath_fma_f64(q, r, 0x1.5555555555555p-3);
    q = vmath_fma_f64(q, r, 0.5);
    return (struct vmath_reduced_f64){r, vmath_fma_f64(q * r, r, r),
                                      vmath_f64(((uint64_t)half + 1023u) << 52),
                                      vmath_f64(((uint64_t)power - (uint64_t)half + 1023u) << 52)};
}

static inline float vexp_f32(float x) {
    struct vmath_reduced_f32 t = vmath_reduce_f32(x);
    float y = (t.em1 + 1.0f) * t.scale1 * t.scale2;
    y = x < -104.0f ? 0 : y;
    return x > 89.0f ? (float)INFINITY : y;
}
static inline double vexp_f64(double x) {
    struct vmath_reduced_f64 t = vmath_reduce_f64(x);
    double y = (t.em1 + 1.0) * t.scale1 * t.scale2;
    y = x < -746.0 ? 0 : y;
    return x > 710.0 ? (double)INFINITY : y;
}

/* e^x - 1 for x <= 88, such as the negative side of Elu and Selu. -0 gives 0. */
static inline float vexpm1_low_f32(float x) {
    struct vmath_reduced_f32 t = vmath_reduce_f32(x);
    float scale = t.scale1 * t.scale2;
    float y = vmath_fma_f32(t.em1, scale, scale - 1.0f);
    return x < -104.0f ? -1 : y;
}
static inline double vexpm1_low_f64(double x) {
    struct vmath_reduced_f64 t = vmath_reduce_f64(x);
    double scale = t.scale1 * t.scale2;
    double y = vmath_fma_f64(t.em1, scale, scale - 1.0);
    return x < -746.0 ? -1 : y;
}

/* log x for normal, positive, finite x. w = m · 2^e with m in [√½, √2). */
static inline float vlog_normal_f32(float w) {
    uint32_t bits = vmath_bits_f32(w) - 0x3f3504f3u; /* √½ */
    float e = (float)((int32_t)bits >> 23);
    float f = vmath_f32((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    float s = f / (2.0f + f), z = s * s;
    float q = 0x1.e2f664p-3f;
    q = q * z + 0x1.2438d8p-2f;
    q = q * z + 0x1.999a7ap-2f;
    q = q * z + 0x1.555554p-1f;
    /* log(1 + f) = f - s·(f - z·q), where the large term f is exact */
    return e * 0x1.62e400p-1f + (f - (s * (f - z * q) - e * 0x1.7f7d1cp-20f));
}
static inline double vlog_normal_f64(double w) {
    uint64_t bits = vmath_bits_f64(w) - 0x3fe6a09e667f3bcdu;
    double e = (double)(int32_t)((int64_t)bits >> 52);
    double f = vmath_f64((bits & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0;
    double s = f / (2.0 + f), z = s * s;
    double q = 0x1.26b7f3b403404p-3;
    q = q * z + 0x1.3a9769b6dbbe2p-3;
    q = q * z + 0x1.745af2a9954d8p-3;
    q = q * z + 0x1.c71c94d6c8fe8p-3;
    q = q * z + 0x1.249248dba66abp-2;
    q = q * z + 0x1.9999999a13634p-2;
    q = q * z + 0x1.5555555555359p-1;
    return e * 0x1.62e42fefa0000p-1 + (f - (s * (f - z * q) - e * 0x1.cf79abc9e3b3ap-40));
}

/* log(1 + u) for finite u >= 0. Corrects the rounding error of 1 + u. NaN stays NaN. */
static inline float vlog1p_positive_f32(float u) {
    float w = 1.0f + u, lost = u < 1.0f ? u - (w - 1.0f) : 1.0f - (w - u);
    return vlog_normal_f32(w) + lost / w;
}
static inline double vlog1p_positive_f64(double u) {
    double w = 1.0 + u, lost = u < 1.0 ? u - (w - 1.0) : 1.0 - (w - u);
    return vlog_normal_f64(w) + lost / w;
}

/* Both tails keep their precision, because exp never overflows here. Of a NaN, sigmoid and tanh are
 * that NaN, whatever the instructions before make of it. */
static inline float vsigmoid_f32(float x) {
    float e = vexp_f32(-fabsf(x)), r = (x < 0 ? e : 1) / (1 + e);
    return x == x ? r : x + x;
}
static inline double vsigmoid_f64(double x) {
    double e = vexp_f64(-fabs(x)), r = (x < 0 ? e : 1) / (1 + e);
    return x == x ? r : x + x;
}

/* tanh |x| = -m / (2 + m) with m = e^(-2|x|) - 1, which does not cancel near zero. */
static inline float vtanh_f32(float x) {
    float m = vexpm1_low_f32(-2 * fabsf(x));
    return x == x ? copysignf(m / (2 + m), x) : x + x;
}
static inline double vtanh_f64(double x) {
    double m = vexpm1_low_f64(-2 * fabs(x));
    return x == x ? copysign(m / (2 + m), x) : x + x;
}

#endif
