/* Lists the elementwise CPU kernels of math: which engine runs each op, with which loops. The rows
 * of reductions, scans, casts and segments are in their engines' files (math_reduce.c, …). */
#include "kernels/cpu/math/math_arith.h"

#define UNARY_OP(name, ...) \
    static const struct unary_op unary_##name = {.loops = name##_loops_base, __VA_ARGS__};
#define BINARY_OP(name, ...) \
    static const struct binary_op binary_##name = {.loops = name##_loops_base, __VA_ARGS__};
#if HAS_AVX2_FILES
#define FAST(name) .avx2_loops = name##_loops_avx2
#define FASTEST(name) FAST(name), .avx512_loops = name##_loops_avx512
#else
#define FAST(name) .avx2_loops = NULL
#define FASTEST(name) FAST(name)
#endif
#define FAST_UNARY_OP(name) UNARY_OP(name, FAST(name))
#define FASTEST_UNARY_OP(name) UNARY_OP(name, FASTEST(name))
#define SLOW_UNARY_OP(name) UNARY_OP(name, .avx2_loops = NULL)
#define FAST_BINARY_OP(name) BINARY_OP(name, FAST(name))

MATH_SIMPLE_OPS(FAST_UNARY_OP)
MATH_EXP_OPS(FASTEST_UNARY_OP)
MATH_TURN_OPS(FASTEST_UNARY_OP)
MATH_SLOW_UNARY_OPS(SLOW_UNARY_OP)

FAST_BINARY_OP(add)
FAST_BINARY_OP(sub)
FAST_BINARY_OP(mul)
FAST_BINARY_OP(mul_no_nan)
FAST_BINARY_OP(div)
FAST_BINARY_OP(div_no_nan)
FAST_BINARY_OP(maximum)
FAST_BINARY_OP(minimum)
FAST_BINARY_OP(squared_difference)
FAST_BINARY_OP(bitwise_and)
FAST_BINARY_OP(bitwise_or)
FAST_BINARY_OP(bitwise_xor)
FAST_BINARY_OP(logical_and)
FAST_BINARY_OP(logical_or)
FAST_BINARY_OP(make_complex)
BINARY_OP(reciprocal_grad, FAST(reciprocal_grad), .needs_equal_sizes = true)
BINARY_OP(sigmoid_grad, FAST(sigmoid_grad), .needs_equal_sizes = true)
BINARY_OP(tanh_grad, FAST(tanh_grad), .needs_equal_sizes = true)
BINARY_OP(sqrt_grad, FAST(sqrt_grad), .needs_equal_sizes = true)
BINARY_OP(rsqrt_grad, FAST(rsqrt_grad), .needs_equal_sizes = true)
BINARY_OP(equal, FAST(equal), .may_be_incompatible = true, .incompatible_result = false)
BINARY_OP(not_equal, FAST(not_equal), .may_be_incompatible = true, .incompatible_result = true)
FAST_BINARY_OP(less)
FAST_BINARY_OP(less_equal)
FAST_BINARY_OP(greater)
FAST_BINARY_OP(greater_equal)
#define DIVISION_ERROR .domain_error = "Integer division by zero"
BINARY_OP(add_strings)
BINARY_OP(real_div)
BINARY_OP(complex_div_no_nan)
BINARY_OP(int_div, DIVISION_ERROR)
BINARY_OP(floor_div, DIVISION_ERROR)
BINARY_OP(floor_mod, DIVISION_ERROR)
BINARY_OP(truncate_div)
BINARY_OP(truncate_mod, DIVISION_ERROR)
BINARY_OP(pow, .domain_error = "Integers to negative integer powers are not allowed")
BINARY_OP(atan2)
BINARY_OP(xlogy)
BINARY_OP(xdivy)
BINARY_OP(xlog1py)
BINARY_OP(left_shift)
BINARY_OP(right_shift)
BINARY_OP(next_after)
BINARY_OP(zeta)
BINARY_OP(polygamma)
BINARY_OP(igamma)
BINARY_OP(igammac)
BINARY_OP(igamma_grad_a)
BINARY_OP(random_gamma_grad)

#define F32 DTYPE_BIT(DT_FLOAT)
#define F64 DTYPE_BIT(DT_DOUBLE)
#define C64 DTYPE_BIT(DT_COMPLEX64)
#define C128 DTYPE_BIT(DT_COMPLEX128)
#define WIDE_FLOAT (F32 | F64)
#define ANY_FLOAT (DTYPES_REAL_FLOAT | DTYPES_COMPLEX)
/* Add is older than the wide unsigned types; AddV2 takes them. */
#define ADDABLE (ANY_FLOAT | DTYPES_SIGNED_INT | DTYPE_BIT(DT_UINT8))
#define UNARY(op, name, types, cost) \
    { (op), {{"T", (types)}}, unary_compute, unary_init, NULL, &unary_##name, 0, (cost) }
#define UNARY_OUT(op, name, in, out, cost)                                                       \
    {                                                                                            \
        (op), {{"T", (in)}, {"Tout", (out)}}, unary_compute, unary_init, NULL, &unary_##name, 0, \
            (cost)                                                                               \
    }
#define BINARY(op, name, types, cost) \
    { (op), {{"T", (types)}}, binary_compute, binary_init, NULL, &binary_##name, 0, (cost) }

static enum kernel_result pass_compute(struct kernel_ctx *ctx) {
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    UNARY("Neg", neg, DTYPES_REAL_FLOAT | DTYPES_SIGNED_INT | DTYPES_COMPLEX, 0),
    UNARY("Abs", abs, DTYPES_REAL_FLOAT | DTYPES_SIGNED_INT, 0),
    UNARY_OUT("ComplexAbs", complex_abs, C64, F32, 4), UNARY_OUT("ComplexAbs", complex_abs, C128,
        F64, 4),
    UNARY("Sign", sign, DTYPES_REAL_FLOAT | DTYPES_SIGNED_INT | DTYPES_COMPLEX, 0),
    UNARY("Square", square, DTYPES_NUMBER, 0),
    UNARY("Sqrt", sqrt, ANY_FLOAT, 1), UNARY("Rsqrt", rsqrt, ANY_FLOAT, 1),
    UNARY("Reciprocal", reciprocal, ANY_FLOAT, 1), UNARY("Inv", reciprocal, ANY_FLOAT, 1),
    UNARY("Exp", exp, ANY_FLOAT, 1), UNARY("Expm1", expm1, ANY_FLOAT, 8),
    UNARY("Log", log, ANY_FLOAT, 1), UNARY("Log1p", log1p, ANY_FLOAT, 8),
    UNARY("Sin", sin, ANY_FLOAT, 8), UNARY("Cos", cos, ANY_FLOAT, 8),
    UNARY("Tan", tan, ANY_FLOAT, 10),
    UNARY("Asin", asin, ANY_FLOAT, 10), UNARY("Acos", acos, ANY_FLOAT, 10),
    UNARY("Atan", atan, ANY_FLOAT, 10),
    UNARY("Sinh", sinh, ANY_FLOAT, 10), UNARY("Cosh", cosh, ANY_FLOAT, 10),
    UNARY("Tanh", tanh, ANY_FLOAT, 1),
    UNARY("Asinh", asinh, ANY_FLOAT, 12), UNARY("Acosh", acosh, ANY_FLOAT, 12),
    UNARY("Atanh", atanh, ANY_FLOAT, 12),
    UNARY("Sigmoid", sigmoid, ANY_FLOAT, 1),
    UNARY("Erf", erf, DTYPES_REAL_FLOAT, 10), UNARY("Erfc", erfc, DTYPES_REAL_FLOAT, 15),
    UNARY("Erfinv", erfinv, WIDE_FLOAT, 15), UNARY("Ndtri", ndtri, WIDE_FLOAT, 15),
    UNARY("Lgamma", lgamma, DTYPES_REAL_FLOAT, 20), UNARY("Digamma", digamma, DTYPES_REAL_FLOAT,
        30),
    UNARY("Floor", floor, DTYPES_REAL_FLOAT, 0), UNARY("Ceil", ceil, DTYPES_REAL_FLOAT, 0),
    UNARY("Round", round, DTYPES_REAL_FLOAT | DTYPES_SIGNED_INT, 0),
    UNARY("Rint", round, DTYPES_REAL_FLOAT, 0),
    UNARY("IsNan", is_nan, DTYPES_REAL_FLOAT, 0), UNARY("IsInf", is_inf, DTYPES_REAL_FLOAT, 0),
    UNARY("IsFinite", is_finite, DTYPES_REAL_FLOAT, 0),
    {"LogicalNot", {{NULL, 0}}, unary_compute, unary_init, NULL, &unary_logical_not, 0, 0},
    UNARY("Invert", invert, DTYPES_INT, 0), UNARY("PopulationCount", population_count, DTYPES_INT,
        1),
    UNARY("Conj", conj, DTYPES_COMPLEX, 0),
    {"Conj", {{"T", DTYPE_BIT(DT_VARIANT)}}, pass_compute, NULL, NULL, NULL, KERNEL_VIEW, 0},
    UNARY_OUT("Real", real, C64, F32, 0), UNARY_OUT("Real", real, C128, F64, 0),
    UNARY_OUT("Imag", imag, C64, F32, 0), UNARY_OUT("Imag", imag, C128, F64, 0),
    UNARY_OUT("Angle", angle, C64, F32, 20), UNARY_OUT("Angle", angle, C128, F64, 20),

    UNARY("BesselI0", bessel_i0, F32 | F64 | DTYPE_BIT(DT_HALF), 100),
    UNARY("BesselI1", bessel_i1, F32 | F64 | DTYPE_BIT(DT_HALF), 100),
    UNARY("BesselI0e", bessel_i0e, F32 | F64 | DTYPE_BIT(DT_HALF), 100),
    UNARY("BesselI1e", bessel_i1e, F32 | F64 | DTYPE_BIT(DT_HALF), 100),
    UNARY("BesselK0", bessel_k0, F32 | F64 | DTYPE_BIT(DT_HALF), 100),
    UNARY("BesselK1", bessel_k1, F32 | F64 | DTYPE_BIT(DT_HALF), 100),
    UNARY("BesselK0e", bessel_k0e, F32 | F64 | DTYPE_BIT(DT_HALF), 100),
    UNARY("BesselK1e", bessel_k1e, F32 | F64 | DTYPE_BIT(DT_HALF), 100),
    UNARY("BesselY0", bessel_y0, F32 | F64 | DTYPE_BIT(DT_HALF), 100),
    UNARY("BesselY1", bessel_y1, F32 | F64 | DTYPE_BIT(DT_HALF), 100),
    UNARY("Dawsn", dawsn, F32 | F64, 100),
    UNARY("Expint", expint, F32 | F64, 100),
    UNARY("Spence", spence, F32 | F64, 100),
    UNARY("FresnelCos", fresnel_cos, F32 | F64, 100),
    UNARY("FresnelSin", fresnel_sin, F32 | F64, 100),
    UNARY("BesselJ0", bessel_j0, F32 | F64 | DTYPE_BIT(DT_HALF), 100),
    UNARY("BesselJ1", bessel_j1, F32 | F64 | DTYPE_BIT(DT_HALF), 100),
    BINARY("Zeta", zeta, WIDE_FLOAT, 200),
    BINARY("Polygamma", polygamma, WIDE_FLOAT, 200),
    BINARY("Igamma", igamma, WIDE_FLOAT, 200),
    BINARY("Igammac", igammac, WIDE_FLOAT, 200),
    BINARY("IgammaGradA", igamma_grad_a, WIDE_FLOAT, 200),
    BINARY("RandomGammaGrad", random_gamma_grad, WIDE_FLOAT, 200),

    BINARY("SqrtGrad", sqrt_grad, ANY_FLOAT, 1), BINARY("RsqrtGrad", rsqrt_grad, ANY_FLOAT, 1),
    BINARY("ReciprocalGrad", reciprocal_grad, ANY_FLOAT, 0),
    BINARY("InvGrad", reciprocal_grad, ANY_FLOAT, 0),
    BINARY("SigmoidGrad", sigmoid_grad, ANY_FLOAT, 0), BINARY("TanhGrad", tanh_grad, ANY_FLOAT, 0),

    BINARY("Add", add, ADDABLE, 0), BINARY("Add", add_strings, DTYPE_BIT(DT_STRING), 50),
    BINARY("AddV2", add, DTYPES_NUMBER, 0), BINARY("Sub", sub, DTYPES_NUMBER, 0),
    BINARY("Mul", mul, DTYPES_NUMBER, 0),
    BINARY("MulNoNan", mul_no_nan, ANY_FLOAT, 0),
    BINARY("Div", div, DTYPES_REAL_FLOAT, 0), BINARY("Div", int_div, DTYPES_INT, 3),
    BINARY("Div", real_div, DTYPES_COMPLEX, 6),
    BINARY("RealDiv", div, DTYPES_REAL_FLOAT, 0), BINARY("RealDiv", real_div, DTYPES_COMPLEX, 6),
    BINARY("TruncateDiv", int_div, DTYPES_INT, 3),
    BINARY("TruncateDiv", truncate_div, DTYPES_REAL_FLOAT, 2),
    BINARY("FloorDiv", floor_div, DTYPES_REAL, 3),
    BINARY("DivNoNan", div_no_nan, DTYPES_REAL_FLOAT, 0),
    BINARY("DivNoNan", complex_div_no_nan, DTYPES_COMPLEX, 6),
    BINARY("FloorMod", floor_mod, DTYPES_REAL, 5),
    BINARY("Mod", truncate_mod, DTYPES_REAL_FLOAT | DTYPES_INDEX, 5),
    BINARY("TruncateMod", truncate_mod, DTYPES_REAL_FLOAT | DTYPES_INDEX, 5),
    BINARY("Maximum", maximum, DTYPES_REAL, 0), BINARY("Minimum", minimum, DTYPES_REAL, 0),
    BINARY("Pow", pow, ANY_FLOAT | DTYPES_SIGNED_INT, 20),
    BINARY("SquaredDifference", squared_difference, ANY_FLOAT | DTYPES_INDEX, 0),
    BINARY("Atan2", atan2, DTYPES_REAL_FLOAT, 20),
    BINARY("Xlogy", xlogy, ANY_FLOAT, 6), BINARY("Xdivy", xdivy, ANY_FLOAT, 2),
    BINARY("Xlog1py", xlog1py, ANY_FLOAT, 10),
    {"Complex", {{"T", F32}, {"Tout", C64}}, binary_compute, binary_init, NULL,
        &binary_make_complex, 0, 0},
    {"Complex", {{"T", F64}, {"Tout", C128}}, binary_compute, binary_init, NULL,
        &binary_make_complex, 0, 0},
    BINARY("BitwiseAnd", bitwise_and, DTYPES_INT, 0), BINARY("BitwiseOr", bitwise_or, DTYPES_INT,
        0),
    BINARY("BitwiseXor", bitwise_xor, DTYPES_INT, 0),
    BINARY("LeftShift", left_shift, DTYPES_INT, 2), BINARY("RightShift", right_shift, DTYPES_INT,
        2),
    BINARY("NextAfter", next_after, WIDE_FLOAT, 5),
    BINARY("Equal", equal, DTYPES_NUMBER | DTYPES_QUANTIZED | DTYPE_BIT(DT_BOOL), 0),
    BINARY("Equal", equal, DTYPE_BIT(DT_STRING), 10),
    BINARY("NotEqual", not_equal, DTYPES_NUMBER | DTYPES_QUANTIZED | DTYPE_BIT(DT_BOOL), 0),
    BINARY("NotEqual", not_equal, DTYPE_BIT(DT_STRING), 10),
    BINARY("Less", less, DTYPES_REAL, 0), BINARY("LessEqual", less_equal, DTYPES_REAL, 0),
    BINARY("Greater", greater, DTYPES_REAL, 0), BINARY("GreaterEqual", greater_equal, DTYPES_REAL,
        0),
    {"LogicalAnd", {{NULL, 0}}, binary_compute, binary_init, NULL, &binary_logical_and, 0, 0},
    {"LogicalOr", {{NULL, 0}}, binary_compute, binary_init, NULL, &binary_logical_or, 0, 0},
};
// clang-format on

const struct kernel_list math_kernels = {rows, ARRAY_LEN(rows)};
