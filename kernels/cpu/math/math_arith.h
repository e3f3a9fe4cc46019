/* Lists the ops with one or two inputs and declares their loop tables, by name. The tables are in
 * math_arith.inc, math_compare.inc, math_simple.inc and math_exp.inc, which are compiled once per
 * instruction set, and in math_slow_binary.c and math_slow_unary.c. */
#ifndef MILLRACE_KERNELS_CPU_MATH_MATH_ARITH_H
#define MILLRACE_KERNELS_CPU_MATH_MATH_ARITH_H

#include "kernels/cpu/math/math_internal.h"

// clang-format off
#define MATH_ARITH_OPS(X)                                                                          \
    X(add) X(sub)                                                                                  \
    X(mul) X(mul_no_nan)                                                                           \
    X(div) X(div_no_nan) X(maximum) X(minimum) X(squared_difference) X(bitwise_and)                \
    X(bitwise_or)                                                                                  \
    X(bitwise_xor) X(logical_and) X(logical_or) X(make_complex) X(reciprocal_grad) X(sigmoid_grad) \
    X(tanh_grad) X(sqrt_grad) X(rsqrt_grad)
#define MATH_COMPARE_OPS(X) X(equal) X(not_equal) X(less) X(less_equal) X(greater) X(greater_equal)
#define MATH_SLOW_BINARY_OPS(X)                                                                \
    X(add_strings)                                                                             \
    X(real_div)                                                                                \
    X(complex_div_no_nan) X(int_div) X(floor_div) X(floor_mod) X(truncate_mod) X(truncate_div) \
    X(pow) X(atan2) X(xlogy) X(xdivy) X(xlog1py) X(left_shift) X(right_shift) X(next_after)    \
    X(zeta) X(polygamma) X(igamma) X(igammac) X(igamma_grad_a) X(random_gamma_grad)
/* Ops of one input whose loops vectorise. */
#define MATH_SIMPLE_OPS(X)                                                                         \
    X(neg) X(abs)                                                                                  \
    X(sign) X(square) X(sqrt) X(rsqrt) X(reciprocal) X(floor) X(ceil) X(round) X(is_nan) X(is_inf) \
    X(is_finite) X(logical_not) X(invert) X(conj) X(real) X(imag) X(population_count)
/* Ops whose loops vectorise by means of vmath.h's polynomials. */
#define MATH_EXP_OPS(X) X(exp) X(log) X(tanh) X(sigmoid) X(expm1) X(log1p) X(erf) X(erfc)
#define MATH_SINCOS_OPS(X) X(sin) X(cos)
#define MATH_SLOW_UNARY_OPS(X)                                                                     \
    X(complex_abs) X(angle) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(asinh)                \
    X(acosh) X(atanh) X(erfinv) X(ndtri) X(lgamma) X(digamma)                              \
    X(bessel_i0)                                                                                   \
    X(bessel_i1)                                                                                   \
    X(bessel_i0e) X(bessel_i1e) X(bessel_k0) X(bessel_k1) X(bessel_k0e) X(bessel_k1e) X(bessel_y0) \
    X(bessel_y1)                                                                                   \
    X(dawsn) X(expint) X(spence) X(fresnel_cos) X(fresnel_sin) X(bessel_j0) X(bessel_j1)
// clang-format on

#define DECLARE_BINARY(name) \
    extern binary_loop *const name##_loops_base[DT_N_TYPES], *const name##_loops_avx2[DT_N_TYPES];
#define DECLARE_UNARY(name) \
    extern unary_loop *const name##_loops_base[DT_N_TYPES], *const name##_loops_avx2[DT_N_TYPES];
#define DECLARE_WIDE(name) extern unary_loop *const name##_loops_avx512[DT_N_TYPES];
MATH_ARITH_OPS(DECLARE_BINARY)
MATH_COMPARE_OPS(DECLARE_BINARY)
MATH_SLOW_BINARY_OPS(DECLARE_BINARY)
MATH_SIMPLE_OPS(DECLARE_UNARY)
MATH_EXP_OPS(DECLARE_UNARY)
MATH_SINCOS_OPS(DECLARE_UNARY)
MATH_EXP_OPS(DECLARE_WIDE)
MATH_SINCOS_OPS(DECLARE_WIDE)
MATH_SLOW_UNARY_OPS(DECLARE_UNARY)
#undef DECLARE_BINARY
#undef DECLARE_UNARY
#undef DECLARE_WIDE

#endif
