/* Defines the loops of the two-input ops that do not vectorise: quotients of integers and complex
 * numbers, powers, logarithms, shifts, strings. */
#include "kernels/cpu/math/math_arith.h"
#include "kernels/cpu/math/math_special.h"
#include "kernels/support/complex.h"

/* Integer quotients. A zero divisor is an error. -1 is treated separately, because dividing the
 * least number by -1 traps. */
#define SIGNED_DIV(quotient) \
    (y == 0 ? (bad = 1, (value)0) : y == -1 ? (value)((wide)0 - (wide)x) : (value)(quotient))
#define SIGNED_MOD(remainder) \
    (y == 0 ? (bad = 1, (value)0) : y == -1 ? (value)0 : (value)(remainder))
#define UNSIGNED_DIV (y == 0 ? (bad = 1, (value)0) : (value)(x / y))
#define UNSIGNED_MOD (y == 0 ? (bad = 1, (value)0) : (value)(x % y))
/* Rounds towards minus infinity: where the signs differ and there is a remainder, one less. */
#define FLOORED (x / y - ((x % y != 0) & ((x < 0) != (y < 0))))
#define FLOOR_REMAINDER floored(x % y, y)
/* without a branch, because the processor mispredicts whether there is a remainder */
static inline int64_t floored(int64_t rest, int64_t y) {
    return rest + (y & -(int64_t)((rest != 0) & ((rest < 0) != (y < 0))));
}

#define FLOOR_MOD(suffix, T)                                         \
    static inline T floor_mod_##suffix(T x, T y, T rest) {           \
        return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest; \
    }
FLOOR_MOD(f32, float)
FLOOR_MOD(f64, double)

/* Powers by squaring, which wrap. A negative exponent is refused, whatever the base. */
#define INT_POW(suffix, T, W)                          \
    static inline T pow_##suffix(T x, T y) {           \
        W result = 1, base = (W)x;                     \
        for (; y > 0; y = (T)(y >> 1), base *= base) { \
            if (y & 1)                                 \
                result *= base;                        \
        }                                              \
        return (T)result;                              \
    }
INT_POW(i8, int8_t, uint32_t)
INT_POW(i16, int16_t, uint32_t)
INT_POW(i32, int32_t, uint32_t)
INT_POW(i64, int64_t, uint64_t)
#define CHECKED_POW(power) (y < 0 ? (bad = 1, (value)0) : power)

#define SHIFT_BITS ((int)(8 * sizeof(value)) - 1)
#define SIGNED_SHIFT (y < 0 ? 0 : y > SHIFT_BITS ? SHIFT_BITS : (int)y)
#define UNSIGNED_SHIFT (y > (value)SHIFT_BITS ? SHIFT_BITS : (int)y)

static struct bytes *concatenate(struct bytes *x, struct bytes *y) {
    struct span left = bytes_span(x), right = bytes_span(y);
    if (left.len == 0 || right.len == 0)
        return (struct bytes *)object_ref((struct object *)(left.len ? x : y));
    struct bytes *both = bytes_new_uninit(left.len + right.len);
    memcpy(both->data, left.data, left.len);
    memcpy(both->data + left.len, right.data, right.len);
    return both;
}

// clang-format off
#define LOOPS_add_strings(X) \
    X(string, struct bytes *, uint64_t, DT_STRING, add_strings, struct bytes *, concatenate(x, y))
#define LOOPS_real_div(X) NUMBERS_COMPLEX(X, real_div, value, x / y)
#define LOOPS_complex_div_no_nan(X) \
    NUMBERS_COMPLEX(X, complex_div_no_nan, value, y == 0 ? 0 : x / y)
#define LOOPS_int_div(X)                                 \
    NUMBERS_SIGNED(X, int_div, value, SIGNED_DIV(x / y)) \
    NUMBERS_UNSIGNED(X, int_div, value, UNSIGNED_DIV)
#define LOOPS_truncate_div(X)                          \
    NUMBERS_F32(X, truncate_div, value, truncf(x / y)) \
    NUMBERS_F64(X, truncate_div, value, trunc(x / y))
#define LOOPS_floor_div(X)                                   \
    NUMBERS_SIGNED(X, floor_div, value, SIGNED_DIV(FLOORED)) \
    NUMBERS_UNSIGNED(X, floor_div, value, UNSIGNED_DIV)      \
    NUMBERS_F32(X, floor_div, value, floorf(x / y)) NUMBERS_F64(X, floor_div, value, floor(x / y))
#define LOOPS_floor_mod(X)                                             \
    NUMBERS_SIGNED(X, floor_mod, value, SIGNED_MOD(FLOOR_REMAINDER))   \
    NUMBERS_UNSIGNED(X, floor_mod, value, UNSIGNED_MOD)                \
    NUMBERS_F32(X, floor_mod, value, floor_mod_f32(x, y, fmodf(x, y))) \
    NUMBERS_F64(X, floor_mod, value, floor_mod_f64(x, y, fmod(x, y)))
#define LOOPS_truncate_mod(X)                                 \
    NUMBERS_SIGNED(X, truncate_mod, value, SIGNED_MOD(x % y)) \
    NUMBERS_UNSIGNED(X, truncate_mod, value, UNSIGNED_MOD)    \
    NUMBERS_F32(X, truncate_mod, value, fmodf(x, y)) NUMBERS_F64(X, truncate_mod, value, fmod(x, y))
#define LOOPS_pow(X)                                                             \
    X(i8, int8_t, uint32_t, DT_INT8, pow, value, CHECKED_POW(pow_i8(x, y)))      \
    X(i16, int16_t, uint32_t, DT_INT16, pow, value, CHECKED_POW(pow_i16(x, y)))  \
    X(i32, int32_t, uint32_t, DT_INT32, pow, value, CHECKED_POW(pow_i32(x, y)))  \
    X(i64, int64_t, uint64_t, DT_INT64, pow, value, CHECKED_POW(pow_i64(x, y)))  \
    NUMBERS_F32(X, pow, value, powf(x, y)) NUMBERS_F64(X, pow, value, pow(x, y)) \
    NUMBERS_C64(X, pow, value, x == 0 && y == 0 ? 1 : cpowf(x, y))               \
    NUMBERS_C128(X, pow, value, x == 0 && y == 0 ? 1 : cpow(x, y))
#define LOOPS_atan2(X) \
    NUMBERS_F32(X, atan2, value, atan2f(x, y)) NUMBERS_F64(X, atan2, value, atan2(x, y))
#define LOOPS_xlogy(X)                                      \
    NUMBERS_F32(X, xlogy, value, x == 0 ? 0 : x * logf(y))  \
    NUMBERS_F64(X, xlogy, value, x == 0 ? 0 : x * log(y))   \
    NUMBERS_C64(X, xlogy, value, x == 0 ? 0 : x * clogf(y)) \
    NUMBERS_C128(X, xlogy, value, x == 0 ? 0 : x * clog(y))
#define LOOPS_xdivy(X)                                  \
    NUMBERS_FLOATS(X, xdivy, value, x == 0 ? 0 : x / y) \
    NUMBERS_COMPLEX(X, xdivy, value, x == 0 ? 0 : x / y)
#define LOOPS_xlog1py(X)                                          \
    NUMBERS_F32(X, xlog1py, value, x == 0 ? 0 : x * log1pf(y))    \
    NUMBERS_F64(X, xlog1py, value, x == 0 ? 0 : x * log1p(y))     \
    NUMBERS_C64(X, xlog1py, value, x == 0 ? 0 : x * log1p_c64(y)) \
    NUMBERS_C128(X, xlog1py, value, x == 0 ? 0 : x * log1p_c128(y))
#define LOOPS_left_shift(X)                                       \
    NUMBERS_SIGNED(X, left_shift, value, (wide)x << SIGNED_SHIFT) \
    NUMBERS_UNSIGNED(X, left_shift, value, (wide)x << UNSIGNED_SHIFT)
#define LOOPS_right_shift(X)                                 \
    NUMBERS_SIGNED(X, right_shift, value, x >> SIGNED_SHIFT) \
    NUMBERS_UNSIGNED(X, right_shift, value, x >> UNSIGNED_SHIFT)
#define LOOPS_next_after(X)                             \
    NUMBERS_F32(X, next_after, value, nextafterf(x, y)) \
    NUMBERS_F64(X, next_after, value, nextafter(x, y))
#define LOOPS_zeta(X) NUMBERS_FLOATS(X, zeta, value, special_zeta(x, y))
#define LOOPS_polygamma(X) NUMBERS_FLOATS(X, polygamma, value, special_polygamma(x, y))
#define LOOPS_igamma(X) NUMBERS_FLOATS(X, igamma, value, special_igamma(x, y))
#define LOOPS_igammac(X) NUMBERS_FLOATS(X, igammac, value, special_igammac(x, y))
#define LOOPS_igamma_grad_a(X) NUMBERS_FLOATS(X, igamma_grad_a, value, special_igamma_grad_a(x, y))
#define LOOPS_random_gamma_grad(X) \
    NUMBERS_FLOATS(X, random_gamma_grad, value, special_random_gamma_grad(x, y))
// clang-format on

#define DEFINE(name)               \
    LOOPS_##name(SLOW_BINARY_LOOP) \
        binary_loop *const LOOP_TABLE(name)[DT_N_TYPES] = {LOOPS_##name(LOOP_ENTRY)};
MATH_SLOW_BINARY_OPS(DEFINE)
