/* Lists the elementwise CPU kernels of math: which engine runs each op, with which loops. The rows
 * of reductions, scans, casts and segments are in the files of their engines (math_reduce.c, …). */
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
MATH_SINCOS_OPS(FASTEST_UNARY_OP)
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
/* Add is older than the wide unsigned types, so only AddV2 takes them. */
#define ADDABLE (ANY_FLOAT | DTYPES_SIGNED_INT | DTYPE_BIT(DT_UINT8))
#define UNARY_RUN(name) unary_compute, unary_init, .arg = &unary_##name, .flags = KERNEL_ELEMENTWISE
#define BINARY_RUN(name) \
    binary_compute, binary_init, .arg = &binary_##name, .flags = KERNEL_ELEMENTWISE
#define UNARY(op, name, types) \
    { (op), {{"T", (types)}}, UNARY_RUN(name) }
#define UNARY_OUT(op, name, in, out) \
    { (op), {{"T", (in)}, {"Tout", (out)}}, UNARY_RUN(name) }
#define BINARY(op, name, types) \
    { (op), {{"T", (types)}}, BINARY_RUN(name) }
#define STRINGS(op, name) \
    { (op), {{"T", DTYPE_BIT(DT_STRING)}}, binary_compute, binary_init, .arg = &binary_##name }

// clang-format off
static const struct kernel_def rows[] = {
    UNARY("Neg", neg, DTYPES_REAL_FLOAT | DTYPES_SIGNED_INT | DTYPES_COMPLEX),
    UNARY("Abs", abs, DTYPES_REAL_FLOAT | DTYPES_SIGNED_INT),
    UNARY_OUT("ComplexAbs", complex_abs, C64, F32),
    UNARY_OUT("ComplexAbs", complex_abs, C128, F64),
    UNARY("Sign", sign, DTYPES_REAL_FLOAT | DTYPES_SIGNED_INT | DTYPES_COMPLEX),
    UNARY("Square", square, DTYPES_NUMBER),
    UNARY("Sqrt", sqrt, ANY_FLOAT), UNARY("Rsqrt", rsqrt, ANY_FLOAT),
    UNARY("Reciprocal", reciprocal, ANY_FLOAT), UNARY("Inv", reciprocal, ANY_FLOAT),
    UNARY("Exp", exp, ANY_FLOAT), UNARY("Expm1", expm1, ANY_FLOAT),
    UNARY("Log", log, ANY_FLOAT), UNARY("Log1p", log1p, ANY_FLOAT),
    UNARY("Sin", sin, ANY_FLOAT), UNARY("Cos", cos, ANY_FLOAT),
    UNARY("Tan", tan, ANY_FLOAT),
    UNARY("Asin", asin, ANY_FLOAT), UNARY("Acos", acos, ANY_FLOAT),
    UNARY("Atan", atan, ANY_FLOAT),
    UNARY("Sinh", sinh, ANY_FLOAT), UNARY("Cosh", cosh, ANY_FLOAT),
    UNARY("Tanh", tanh, ANY_FLOAT),
    UNARY("Asinh", asinh, ANY_FLOAT), UNARY("Acosh", acosh, ANY_FLOAT),
    UNARY("Atanh", atanh, ANY_FLOAT),
    UNARY("Sigmoid", sigmoid, ANY_FLOAT),
    UNARY("Erf", erf, DTYPES_REAL_FLOAT), UNARY("Erfc", erfc, DTYPES_REAL_FLOAT),
    UNARY("Erfinv", erfinv, WIDE_FLOAT), UNARY("Ndtri", ndtri, WIDE_FLOAT),
    UNARY("Lgamma", lgamma, DTYPES_REAL_FLOAT), UNARY("Digamma", digamma, DTYPES_REAL_FLOAT),
    UNARY("Floor", floor, DTYPES_REAL_FLOAT), UNARY("Ceil", ceil, DTYPES_REAL_FLOAT),
    UNARY("Round", round, DTYPES_REAL_FLOAT | DTYPES_SIGNED_INT),
    UNARY("Rint", round, DTYPES_REAL_FLOAT),
    UNARY("IsNan", is_nan, DTYPES_REAL_FLOAT), UNARY("IsInf", is_inf, DTYPES_REAL_FLOAT),
    UNARY("IsFinite", is_finite, DTYPES_REAL_FLOAT),
    {"LogicalNot", {{NULL, 0}}, UNARY_RUN(logical_not)},
    UNARY("Invert", invert, DTYPES_INT), UNARY("PopulationCount", population_count, DTYPES_INT),
    UNARY("Conj", conj, DTYPES_COMPLEX),
    {"Conj", {{"T", DTYPE_BIT(DT_VARIANT)}}, kernel_identity},
    UNARY_OUT("Real", real, C64, F32), UNARY_OUT("Real", real, C128, F64),
    UNARY_OUT("Imag", imag, C64, F32), UNARY_OUT("Imag", imag, C128, F64),
    UNARY_OUT("Angle", angle, C64, F32), UNARY_OUT("Angle", angle, C128, F64),

    UNARY("BesselI0", bessel_i0, F32 | F64 | DTYPE_BIT(DT_HALF)),
    UNARY("BesselI1", bessel_i1, F32 | F64 | DTYPE_BIT(DT_HALF)),
    UNARY("BesselI0e", bessel_i0e, F32 | F64 | DTYPE_BIT(DT_HALF)),
    UNARY("BesselI1e", bessel_i1e, F32 | F64 | DTYPE_BIT(DT_HALF)),
    UNARY("BesselK0", bessel_k0, F32 | F64 | DTYPE_BIT(DT_HALF)),
    UNARY("BesselK1", bessel_k1, F32 | F64 | DTYPE_BIT(DT_HALF)),
    UNARY("BesselK0e", bessel_k0e, F32 | F64 | DTYPE_BIT(DT_HALF)),
    UNARY("BesselK1e", bessel_k1e, F32 | F64 | DTYPE_BIT(DT_HALF)),
    UNARY("BesselY0", bessel_y0, F32 | F64 | DTYPE_BIT(DT_HALF)),
    UNARY("BesselY1", bessel_y1, F32 | F64 | DTYPE_BIT(DT_HALF)),
    UNARY("Dawsn", dawsn, F32 | F64),
    UNARY("Expint", expint, F32 | F64),
    UNARY("Spence", spence, F32 | F64),
    UNARY("FresnelCos", fresnel_cos, F32 | F64),
    UNARY("FresnelSin", fresnel_sin, F32 | F64),
    UNARY("BesselJ0", bessel_j0, F32 | F64 | DTYPE_BIT(DT_HALF)),
    UNARY("BesselJ1", bessel_j1, F32 | F64 | DTYPE_BIT(DT_HALF)),
    BINARY("Zeta", zeta, WIDE_FLOAT),
    BINARY("Polygamma", polygamma, WIDE_FLOAT),
    BINARY("Igamma", igamma, WIDE_FLOAT),
    BINARY("Igammac", igammac, WIDE_FLOAT),
    BINARY("IgammaGradA", igamma_grad_a, WIDE_FLOAT),
    BINARY("RandomGammaGrad", random_gamma_grad, WIDE_FLOAT),

    BINARY("SqrtGrad", sqrt_grad, ANY_FLOAT), BINARY("RsqrtGrad", rsqrt_grad, ANY_FLOAT),
    BINARY("ReciprocalGrad", reciprocal_grad, ANY_FLOAT),
    BINARY("InvGrad", reciprocal_grad, ANY_FLOAT),
    BINARY("SigmoidGrad", sigmoid_grad, ANY_FLOAT), BINARY("TanhGrad", tanh_grad, ANY_FLOAT),

    BINARY("Add", add, ADDABLE), STRINGS("Add", add_strings),
    BINARY("AddV2", add, DTYPES_NUMBER), BINARY("Sub", sub, DTYPES_NUMBER),
    BINARY("Mul", mul, DTYPES_NUMBER),
    BINARY("MulNoNan", mul_no_nan, ANY_FLOAT),
    BINARY("Div", div, DTYPES_REAL_FLOAT), BINARY("Div", int_div, DTYPES_INT),
    BINARY("Div", real_div, DTYPES_COMPLEX),
    BINARY("RealDiv", div, DTYPES_REAL_FLOAT), BINARY("RealDiv", real_div, DTYPES_COMPLEX),
    BINARY("TruncateDiv", int_div, DTYPES_INT),
    BINARY("TruncateDiv", truncate_div, DTYPES_REAL_FLOAT),
    BINARY("FloorDiv", floor_div, DTYPES_REAL),
    BINARY("DivNoNan", div_no_nan, DTYPES_REAL_FLOAT),
    BINARY("DivNoNan", complex_div_no_nan, DTYPES_COMPLEX),
    BINARY("FloorMod", floor_mod, DTYPES_REAL),
    BINARY("Mod", truncate_mod, DTYPES_REAL_FLOAT | DTYPES_INDEX),
    BINARY("TruncateMod", truncate_mod, DTYPES_REAL_FLOAT | DTYPES_INDEX),
    BINARY("Maximum", maximum, DTYPES_REAL), BINARY("Minimum", minimum, DTYPES_REAL),
    BINARY("Pow", pow, ANY_FLOAT | DTYPES_SIGNED_INT),
    BINARY("SquaredDifference", squared_difference, ANY_FLOAT | DTYPES_INDEX),
    BINARY("Atan2", atan2, DTYPES_REAL_FLOAT),
    BINARY("Xlogy", xlogy, ANY_FLOAT), BINARY("Xdivy", xdivy, ANY_FLOAT),
    BINARY("Xlog1py", xlog1py, ANY_FLOAT),
    {"Complex", {{"T", F32}, {"Tout", C64}}, BINARY_RUN(make_complex)},
    {"Complex", {{"T", F64}, {"Tout", C128}}, BINARY_RUN(make_complex)},
    BINARY("BitwiseAnd", bitwise_and, DTYPES_INT), BINARY("BitwiseOr", bitwise_or, DTYPES_INT),
    BINARY("BitwiseXor", bitwise_xor, DTYPES_INT),
    BINARY("LeftShift", left_shift, DTYPES_INT), BINARY("RightShift", right_shift, DTYPES_INT),
    BINARY("NextAfter", next_after, WIDE_FLOAT),
    BINARY("Equal", equal, DTYPES_NUMBER | DTYPES_QUANTIZED | DTYPE_BIT(DT_BOOL)),
    STRINGS("Equal", equal),
    BINARY("NotEqual", not_equal, DTYPES_NUMBER | DTYPES_QUANTIZED | DTYPE_BIT(DT_BOOL)),
    STRINGS("NotEqual", not_equal),
    BINARY("Less", less, DTYPES_REAL), BINARY("LessEqual", less_equal, DTYPES_REAL),
    BINARY("Greater", greater, DTYPES_REAL), BINARY("GreaterEqual", greater_equal, DTYPES_REAL),
    {"LogicalAnd", {{NULL, 0}}, BINARY_RUN(logical_and)},
    {"LogicalOr", {{NULL, 0}}, BINARY_RUN(logical_or)},
};
// clang-format on

const struct kernel_list math_kernels = {rows, ARRAY_LEN(rows)};
