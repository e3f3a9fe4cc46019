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

/* x = n·ln 2 + r. The power 2^n is given as two factors, because n may exceed what one exponent
 * holds. */
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
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float shifted = x * 0x1.715476p+0f + round;
    float n = shifted - round;
    int32_t power = (int32_t)(vmath_bits_f32(shifted) - 0x4b400000u);
    int32_t half = power >> 1;
    float r = x - n * 0x1.62e400p-1f;
    r -= n * 0x1.7f7d1cp-20f;
    float q = 0x1.6db414p-10f;
    q = q * r + 0x1.123b46p-7f;
    q = q * r + 0x1.55545ep-5f;
    q = q * r + 0x1.555490p-3f;
    q = q * r + 0.5f;
    return (struct vmath_reduced_f32){r, q * r * r + r, vmath_f32(((uint32_t)half + 127u) << 23),
                                      vmath_f32(((uint32_t)power - (uint32_t)half + 127u) << 23)};
}

static inline struct vmath_reduced_f64 vmath_reduce_f64(double x) {
    const double round = 0x1.8p52;
    x = x < -746.0 ? -746.0 : x;
    x = x > 710.0 ? 710.0 : x;
    double shifted = x * 0x1.71547652b82fep+0 + round;
    double n = shifted - round;
    int64_t power = (int64_t)(vmath_bits_f64(shifted) - 0x4338000000000000u);
    int64_t half = power >> 1;
    double r = x - n * 0x1.62e42fefa0000p-1;
    r -= n * 0x1.cf79abc9e3b3ap-40;
    double q = 0x1.af23c2d42b84dp-26;
    q = q * r + 0x1.288088c0e67a5p-22;
    q = q * r + 0x1.71de17c442068p-19;
    q = q * r + 0x1.a019c971b4d98p-16;
    q = q * r + 0x1.a01a01a4b9826p-13;
    q = q * r + 0x1.6c16c1739a511p-10;
    q = q * r + 0x1.1111111110e65p-7;
    q = q * r + 0x1.5555555554ca7p-5;
    q = q * r + 0x1.5555555555555p-3;
    q = q * r + 0.5;
    return (struct vmath_reduced_f64){r, q * r * r + r, vmath_f64(((uint64_t)half + 1023u) << 52),
                                      vmath_f64(((uint64_t)power - (uint64_t)half + 1023u) << 52)};
}

static inline float vexp_f32(float x) {
    struct vmath_reduced_f32 t = vmath_reduce_f32(x);
    return (t.em1 + 1.0f) * t.scale1 * t.scale2;
}
static inline double vexp_f64(double x) {
    struct vmath_reduced_f64 t = vmath_reduce_f64(x);
    return (t.em1 + 1.0) * t.scale1 * t.scale2;
}

/* e^x - 1 for x <= 0 (the negative side of Elu and Selu). */
static inline float vexpm1_negative_f32(float x) {
    struct vmath_reduced_f32 t = vmath_reduce_f32(x);
    float scale = t.scale1 * t.scale2;
    return t.em1 * scale + (scale - 1.0f);
}
static inline double vexpm1_negative_f64(double x) {
    struct vmath_reduced_f64 t = vmath_reduce_f64(x);
    double scale = t.scale1 * t.scale2;
    return t.em1 * scale + (scale - 1.0);
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

/* Both tails keep their precision, because exp never overflows here. */
static inline float vsigmoid_f32(float x) {
    float e = vexp_f32(-fabsf(x));
    return (x < 0 ? e : 1) / (1 + e);
}
static inline double vsigmoid_f64(double x) {
    double e = vexp_f64(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* tanh |x| = -m / (2 + m) with m = e^(-2|x|) - 1, which does not cancel near zero. */
static inline float vtanh_f32(float x) {
    float m = vexpm1_negative_f32(-2 * fabsf(x));
    return copysignf(m / (2 + m), x);
}
static inline double vtanh_f64(double x) {
    double m = vexpm1_negative_f64(-2 * fabs(x));
    return copysign(m / (2 + m), x);
}

#endif
