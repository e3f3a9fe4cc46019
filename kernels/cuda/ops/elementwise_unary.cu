/* Kernels of the elementwise ops with one operand that a GPU's maths has: arithmetic, rounding,
 * powers, logarithms, circular and hyperbolic functions. See elementwise_forms.h. */
#include "kernels/cuda/ops/complex_math.h"
#include "kernels/cuda/ops/elementwise_forms.h"

/* ---- arithmetic ---- */

EACH_FLOAT(UNARY, neg, -x)
EACH_SIGNED(UNARY, neg, 0 - wrap(x))
EACH_COMPLEX(UNARY, neg, value(-x.re, -x.im))
EACH_FLOAT(UNARY, abs, fabs(x))
EACH_SIGNED(UNARY, abs, x < 0 ? 0 - wrap(x) : wrap(x))
/* Zero of either sign gives 0, and NaN gives NaN. */
EACH_FLOAT(UNARY, sign, x > 0 ? (value)1 : x < 0 ? (value)-1 : x == 0 ? (value)0 : x)
EACH_SIGNED(UNARY, sign, (x > 0) - (x < 0))
EACH_COMPLEX(UNARY, sign, complex_sign(x))
EACH_FLOAT(UNARY, square, x * x)
EACH_INT(UNARY, square, wrap(x) * wrap(x))
EACH_FLOAT(UNARY, sqrt, sqrt(x))
EACH_FLOAT(UNARY, rsqrt, 1 / sqrt(x))
EACH_FLOAT(UNARY, reciprocal, 1 / x)
UNARY(i64, int64_t, reciprocal, x == 0 ? -1 : 1 / x) /* as the quotient 1 / x on a GPU */
EACH_COMPLEX(UNARY, reciprocal, complex_quotient(value(1), x))

/* ---- rounding and classes ---- */

EACH_FLOAT(UNARY, floor, floor(x))
EACH_FLOAT(UNARY, ceil, ceil(x))
EACH_FLOAT(UNARY, round, rint(x))
EACH_I32(UNARY, round, x)
UNARY(i64, int64_t, round, x)
#define CLASS(suffix, T, name, ...) UNARY_TO(suffix, T, bool, name, __VA_ARGS__)
EACH_FLOAT(CLASS, is_nan, x != x)
EACH_FLOAT(CLASS, is_inf, fabs(x) == (value)INFINITY)
EACH_FLOAT(CLASS, is_finite, fabs(x) < (value)INFINITY)

/* ---- powers and logarithms ---- */

/* Both tails keep their precision, because exp never overflows here. */
template <class T> __device__ static inline T sigmoid_of(T x) {
    T e = exp(-fabs(x));
    return (x < 0 ? e : (T)1) / (1 + e);
}
EACH_FLOAT(UNARY, exp, exp(x))
EACH_COMPLEX(UNARY, exp, complex_exp(x))
EACH_FLOAT_SLOWLY(expm1, expm1(x))
EACH_FLOAT(UNARY, log, log(x))
EACH_FLOAT_SLOWLY(log1p, log1p(x))
EACH_FLOAT(UNARY, sigmoid, sigmoid_of(x))

/* ---- circular and hyperbolic functions ---- */

EACH_FLOAT_SLOWLY(sin, sin(x))
EACH_COMPLEX(UNARY, sin, complex_sin(x))
EACH_FLOAT_SLOWLY(cos, cos(x))
EACH_COMPLEX(UNARY, cos, complex_cos(x))
EACH_FLOAT_SLOWLY(tan, tan(x))
EACH_COMPLEX(UNARY, tan, complex_tan(x))
EACH_FLOAT_SLOWLY(asin, asin(x))
EACH_FLOAT_SLOWLY(acos, acos(x))
EACH_FLOAT_SLOWLY(atan, atan(x))
EACH_FLOAT_SLOWLY(sinh, sinh(x))
EACH_COMPLEX(UNARY, sinh, complex_sinh(x))
EACH_FLOAT_SLOWLY(cosh, cosh(x))
EACH_COMPLEX(UNARY, cosh, complex_cosh(x))
EACH_FLOAT(UNARY, tanh, tanh(x))
EACH_FLOAT_SLOWLY(asinh, asinh(x))
EACH_FLOAT_SLOWLY(acosh, acosh(x))
EACH_FLOAT_SLOWLY(atanh, atanh(x))

/* ---- bits and truth ---- */

EACH_INT(UNARY, invert, ~x)
EACH_I32(UNARY, invert, ~x)
#define COUNT(suffix, T, mask) \
    UNARY_TO(suffix, T, uint8_t, population_count, __popcll((mask) & (unsigned long long)x))
COUNT(i8, int8_t, 0xffull)
COUNT(i16, int16_t, 0xffffull)
COUNT(i32, int32_t, 0xffffffffull)
COUNT(i64, int64_t, ~0ull)
EACH_UNSIGNED(COUNT, ~0ull)
EACH_BOOL(UNARY, logical_not, x == 0)

/* ---- complex numbers and their parts ---- */

EACH_COMPLEX(UNARY, conj, value(x.re, -x.im))
#define PART(name, ...)                                                   \
    UNARY_TO(c64, gpu_complex<float>, float, name, __VA_ARGS__)           \
    UNARY_TO(c128, gpu_complex<double>, double, name, __VA_ARGS__)
PART(real, x.re)
PART(imag, x.im)
PART(complex_abs, hypot(x.re, x.im))
PART(angle, atan2(x.im, x.re))
