/* Defines the loops of the transcendental one-input ops, which call a function for each element. */
#include "kernels/cpu/math/math_arith.h"
#include "kernels/cpu/math/math_special.h"

// clang-format off
#define REAL(X, name, f32, f64) \
    NUMBERS_F32(X, name, value, f32(x)) NUMBERS_F64(X, name, value, f64(x))
#define WITH_COMPLEX(X, name, f32, f64, c64, c128) \
    REAL(X, name, f32, f64)                        \
    NUMBERS_C64(X, name, value, c64(x)) NUMBERS_C128(X, name, value, c128(x))
#define LOOPS_complex_abs(X) \
    NUMBERS_C64(X, complex_abs, float, cabsf(x)) NUMBERS_C128(X, complex_abs, double, cabs(x))
#define LOOPS_angle(X) \
    NUMBERS_C64(X, angle, float, cargf(x)) NUMBERS_C128(X, angle, double, carg(x))
#define LOOPS_tan(X) WITH_COMPLEX(X, tan, tanf, tan, ctanf, ctan)
#define LOOPS_asin(X) WITH_COMPLEX(X, asin, asinf, asin, casinf, casin)
#define LOOPS_acos(X) WITH_COMPLEX(X, acos, acosf, acos, cacosf, cacos)
#define LOOPS_atan(X) WITH_COMPLEX(X, atan, atanf, atan, catanf, catan)
#define LOOPS_sinh(X) WITH_COMPLEX(X, sinh, sinhf, sinh, csinhf, csinh)
#define LOOPS_cosh(X) WITH_COMPLEX(X, cosh, coshf, cosh, ccoshf, ccosh)
#define LOOPS_asinh(X) WITH_COMPLEX(X, asinh, asinhf, asinh, casinhf, casinh)
#define LOOPS_acosh(X) WITH_COMPLEX(X, acosh, acoshf, acosh, cacoshf, cacosh)
#define LOOPS_atanh(X) WITH_COMPLEX(X, atanh, atanhf, atanh, catanhf, catanh)
#define LOOPS_erfinv(X) REAL(X, erfinv, special_erfinv, special_erfinv)
#define LOOPS_ndtri(X) REAL(X, ndtri, special_ndtri, special_ndtri)
#define LOOPS_lgamma(X) REAL(X, lgamma, special_lgammaf, special_lgamma)
#define LOOPS_digamma(X) REAL(X, digamma, special_digamma, special_digamma)
#define LOOPS_bessel_i0(X) REAL(X, bessel_i0, special_bessel_i0, special_bessel_i0)
#define LOOPS_bessel_i1(X) REAL(X, bessel_i1, special_bessel_i1, special_bessel_i1)
#define LOOPS_bessel_i0e(X) REAL(X, bessel_i0e, special_bessel_i0e, special_bessel_i0e)
#define LOOPS_bessel_i1e(X) REAL(X, bessel_i1e, special_bessel_i1e, special_bessel_i1e)
#define LOOPS_bessel_k0(X) REAL(X, bessel_k0, special_bessel_k0, special_bessel_k0)
#define LOOPS_bessel_k1(X) REAL(X, bessel_k1, special_bessel_k1, special_bessel_k1)
#define LOOPS_bessel_k0e(X) REAL(X, bessel_k0e, special_bessel_k0e, special_bessel_k0e)
#define LOOPS_bessel_k1e(X) REAL(X, bessel_k1e, special_bessel_k1e, special_bessel_k1e)
#define LOOPS_bessel_y0(X) REAL(X, bessel_y0, special_bessel_y0, special_bessel_y0)
#define LOOPS_bessel_y1(X) REAL(X, bessel_y1, special_bessel_y1f, special_bessel_y1)
#define LOOPS_dawsn(X) REAL(X, dawsn, special_dawsn, special_dawsn)
#define LOOPS_expint(X) REAL(X, expint, special_expint, special_expint)
#define LOOPS_spence(X) REAL(X, spence, special_spence, special_spence)
#define LOOPS_fresnel_cos(X) REAL(X, fresnel_cos, special_fresnel_cos, special_fresnel_cos)
#define LOOPS_fresnel_sin(X) REAL(X, fresnel_sin, special_fresnel_sin, special_fresnel_sin)
#define LOOPS_bessel_j0(X) REAL(X, bessel_j0, j0, j0)
#define LOOPS_bessel_j1(X) REAL(X, bessel_j1, j1, j1)
// clang-format on

#define DEFINE(name)         \
    LOOPS_##name(UNARY_LOOP) \
        unary_loop *const LOOP_TABLE(name)[DT_N_TYPES] = {LOOPS_##name(LOOP_ENTRY)};
MATH_SLOW_UNARY_OPS(DEFINE)
