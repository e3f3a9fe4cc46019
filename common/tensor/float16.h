/* Converts half, bfloat16 and the 8-bit floats, as bit patterns, to and from float.
 *
 * From float: round to nearest, ties to even; a value that is too large becomes infinity; a NaN
 * stays a (quiet) NaN and keeps the upper bits of its payload. To float: exact. The functions need
 * only the baseline instruction set, and compilers vectorise loops that call them. Any thread. */
#ifndef MILLRACE_COMMON_TENSOR_FLOAT16_H
#define MILLRACE_COMMON_TENSOR_FLOAT16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof(bits));
    return bits;
}
static inline float float_from_bits(uint32_t bits) {
    float v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

/* ---- bfloat16: the upper half of a float ---- */

static inline float bfloat16_to_float(uint16_t v) { return float_from_bits((uint32_t)v << 16); }

static inline uint16_t bfloat16_from_float(float v) {
    uint32_t bits = float_bits(v);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    uint32_t quiet_nan = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

/* ---- half: 1 sign, 5 exponent, 10 fraction bits ---- */

static inline float half_to_float(uint16_t v) {
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16, rest = (uint32_t)(v & 0x7fffu) << 13;
    uint32_t exponent = rest & 0x0f800000u;
    if (exponent == 0x0f800000u) /* infinity, NaN */
        return float_from_bits(sign | rest | 0x7f800000u);
    if (exponent != 0)
        return float_from_bits(sign | (rest + ((127u - 15u) << 23)));
    /* Below 2^-14: as fraction of 2^-14, which float arithmetic scales exactly. */
    float magnitude = float_from_bits(rest + (113u << 23)) - float_from_bits(113u << 23);
    return float_from_bits(sign | float_bits(magnitude));
}

static inline uint16_t half_from_float(float v) {
    uint32_t bits = float_bits(v), sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
    if (bits >= 0x47800000u) /* 2^16 and above */
        return (uint16_t)(sign | 0x7c00u);
    if (bits < 0x38800000u) {
        /* Below 2^-14: adding 2^-1 shifts the fraction into place, and the addition rounds to
         * nearest even. */
        float shifted = float_from_bits(bits) + 0.5f;
        return (uint16_t)(sign | (float_bits(shifted) - 0x3f000000u));
    }
    /* may carry into infinity, as it should */
    bits += 0xfffu + (bits >> 13 & 1) - ((127u - 15u) << 23);
    return (uint16_t)(sign | bits >> 13);
}

/* ---- 8-bit floats, and the 4-bit one, which share one form ----
 *
 *   IEEE   infinities and NaNs in the highest exponent (e5m2)
 *   FN     no infinity; NaN is all ones (e4m3fn); e2m1fn has neither
 *   FNUZ   no infinity, no negative zero; its pattern 0x80 is the NaN */

enum small_float_kind { SMALL_FLOAT_IEEE, SMALL_FLOAT_FN, SMALL_FLOAT_FNUZ, SMALL_FLOAT_FINITE };

struct small_float {
    int n_bits, n_fraction_bits, bias;
    enum small_float_kind kind;
};

#define SMALL_FLOAT_E5M2 ((struct small_float){8, 2, 15, SMALL_FLOAT_IEEE})
#define SMALL_FLOAT_E4M3FN ((struct small_float){8, 3, 7, SMALL_FLOAT_FN})
#define SMALL_FLOAT_E4M3FNUZ ((struct small_float){8, 3, 8, SMALL_FLOAT_FNUZ})
#define SMALL_FLOAT_E4M3B11FNUZ ((struct small_float){8, 3, 11, SMALL_FLOAT_FNUZ})
#define SMALL_FLOAT_E5M2FNUZ ((struct small_float){8, 2, 16, SMALL_FLOAT_FNUZ})
#define SMALL_FLOAT_E2M1FN ((struct small_float){4, 1, 1, SMALL_FLOAT_FINITE})

static inline float small_float_to_float(struct small_float format, uint8_t v) {
    int sign_bit = 1 << (format.n_bits - 1);
    int rest = v & (sign_bit - 1), fraction = rest & ((1 << format.n_fraction_bits) - 1),
        exponent = rest >> format.n_fraction_bits;
    uint32_t sign = v & sign_bit ? 0x80000000u : 0;
    if (format.kind == SMALL_FLOAT_FNUZ && sign && rest == 0)
        return float_from_bits(0x7fc00000u);
    if (format.kind == SMALL_FLOAT_FN && rest == sign_bit - 1)
        return float_from_bits(sign | 0x7fc00000u);
    if (format.kind == SMALL_FLOAT_IEEE && exponent == (sign_bit - 1) >> format.n_fraction_bits)
        return float_from_bits(sign | 0x7f800000u | (fraction ? 0x400000u : 0));
    /* fraction · 2^(exponent - bias - n_fraction_bits), with a leading one unless the exponent is
     * the least one */
    int significand = exponent ? fraction | 1 << format.n_fraction_bits : fraction;
    int power = (exponent ? exponent : 1) - format.bias - format.n_fraction_bits;
    float magnitude = (float)significand * float_from_bits((uint32_t)(power + 127) << 23);
    return float_from_bits(sign | float_bits(magnitude));
}

#endif
