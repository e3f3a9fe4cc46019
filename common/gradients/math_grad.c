/* Differentiates functions of one number, element by element (elementwise.h). */
#include <math.h>

#include "common/gradients/elementwise.h"

/* ---- powers, exponentials ---- */

UNARY(neg, NEG(dy))
UNARY(square, MUL(dy, MUL(NUM(2), x)))
UNARY(sqrt, OP("SqrtGrad", OUT(0), dy))
UNARY(rsqrt, OP("RsqrtGrad", OUT(0), dy))
UNARY(reciprocal, OP("ReciprocalGrad", OUT(0), dy))
UNARY(exp, MUL(dy, y))
UNARY(expm1, MUL(dy, OP("Exp", x)))
UNARY(log, DIV(dy, x))
UNARY(log1p, DIV(dy, ADD(x, NUM(1))))
UNARY(sigmoid, OP("SigmoidGrad", y, dy))
UNARY(tanh, OP("TanhGrad", y, dy))

/* ---- circular, hyperbolic ---- */

UNARY(sin, MUL(dy, OP("Cos", x)))
UNARY(cos, NEG(MUL(dy, OP("Sin", x))))
UNARY(tan, MUL(dy, SQUARE(OP("Reciprocal", OP("Cos", x)))))
UNARY(asin, DIV(dy, OP("Sqrt", SUB(NUM(1), SQUARE(x)))))
UNARY(acos, NEG(DIV(dy, OP("Sqrt", SUB(NUM(1), SQUARE(x))))))
UNARY(atan, DIV(dy, ADD(SQUARE(x), NUM(1))))
UNARY(sinh, MUL(dy, OP("Cosh", x)))
UNARY(cosh, MUL(dy, OP("Sinh", x)))
UNARY(asinh, DIV(dy, OP("Cosh", y)))
UNARY(acosh, DIV(dy, OP("Sinh", y)))
UNARY(atanh, DIV(dy, SUB(NUM(1), SQUARE(x))))

/* ---- error functions, gamma ---- */

UNARY(erf, MUL(dy, MUL(NUM(M_2_SQRTPI), OP("Exp", NEG(SQUARE(x))))))
UNARY(erfc, MUL(dy, MUL(NUM(-M_2_SQRTPI), OP("Exp", NEG(SQUARE(x))))))
UNARY(erfinv, MUL(dy, MUL(NUM(1 / M_2_SQRTPI), OP("Exp", SQUARE(y)))))
UNARY(ndtri, MUL(dy, MUL(NUM(sqrt(2 * M_PI)), OP("Exp", MUL(NUM(0.5), SQUARE(y))))))
UNARY(lgamma, MUL(dy, OP("Digamma", x)))
UNARY(digamma, MUL(dy, OP("Polygamma", NUM(1), x)))

/* ---- Bessel functions, integrals ---- */

/* At 0 the quotient y / x has a limit, but 0/0 is NaN. */
static struct node_input unless_zero(struct gradient_ctx *g, struct node_input x, double at_zero,
                                     struct node_input value) {
    return WHERE(OP("Equal", x, NUM(0)), NUM(at_zero), value);
}

UNARY(bessel_i0, MUL(dy, OP("BesselI1", x)))
UNARY(bessel_i0e, MUL(dy, SUB(OP("BesselI1e", x), MUL(OP("Sign", x), y))))
/* At 0 the derivative is 1, as in TensorFlow, although the limit is 1/2. */
UNARY(bessel_i1, MUL(dy, unless_zero(g, x, 1, SUB(OP("BesselI0", x), DIV(y, x)))))
UNARY(bessel_i1e, MUL(dy, unless_zero(g, x, 0.5,
                                      SUB(OP("BesselI0e", x),
                                          MUL(y, ADD(OP("Sign", x), OP("Reciprocal", x)))))))
UNARY(bessel_j0, NEG(MUL(dy, OP("BesselJ1", x))))
UNARY(bessel_j1, MUL(dy, unless_zero(g, x, 0.5, SUB(OP("BesselJ0", x), DIV(y, x)))))
UNARY(bessel_y0, NEG(MUL(dy, OP("BesselY1", x))))
UNARY(bessel_y1, MUL(dy, SUB(OP("BesselY0", x), DIV(y, x))))
UNARY(bessel_k0, NEG(MUL(dy, OP("BesselK1", x))))
UNARY(bessel_k0e, MUL(dy, SUB(y, OP("BesselK1e", x))))
UNARY(bessel_k1, NEG(MUL(dy, ADD(OP("BesselK0", x), DIV(y, x)))))
UNARY(bessel_k1e, MUL(dy, SUB(MUL(y, SUB(NUM(1), OP("Reciprocal", x))), OP("BesselK0e", x))))
UNARY(fresnel_sin, MUL(dy, OP("Sin", MUL(NUM(M_PI_2), SQUARE(x)))))
UNARY(fresnel_cos, MUL(dy, OP("Cos", MUL(NUM(M_PI_2), SQUARE(x)))))
UNARY(spence, MUL(dy, WHERE(OP("Equal", x, NUM(1)), NUM(-1), DIV(OP("Log", x), SUB(NUM(1), x)))))
UNARY(expint, MUL(dy, DIV(OP("Exp", x), x)))
UNARY(dawsn, MUL(dy, SUB(NUM(1), MUL(NUM(2), MUL(x, y)))))

/* ---- signs, parts of complex numbers ---- */

UNARY(abs, MUL(dy, OP("Sign", x)))
UNARY(zero, ZEROS(x))
UNARY(conj, OP("Conj", dy))
UNARY(check_numerics,
      LIKE_WITH("CheckNumerics",
                ATTRS(ATTR_S("message",
                             "Not a number (NaN) or infinity (Inf) values detected in gradient.")),
                dy))

static struct node_input complex_of(struct gradient_ctx *g, struct node_input real,
                                    struct node_input imaginary) {
    enum dtype dtype = gradient_dtype(real) == DT_DOUBLE ? DT_COMPLEX128 : DT_COMPLEX64;
    return OP_WITH("Complex", ATTRS(ATTR_T("Tout", dtype)), real, imaginary);
}

static void real_grad(struct gradient_ctx *g) { SET(0, complex_of(g, DY(0), ZEROS(DY(0)))); }
static void imag_grad(struct gradient_ctx *g) { SET(0, complex_of(g, ZEROS(DY(0)), DY(0))); }

/* |x|: dy · x / |x|, and 0 at 0. */
static void complex_abs_grad(struct gradient_ctx *g) {
    struct node_input y = OUT(0), direction = complex_of(g, DY(0), ZEROS(y));
    SET(0, OP("DivNoNan", MUL(direction, IN(0)), complex_of(g, y, ZEROS(y))));
}

/* arg(x), x = a + bi: (-b + ai) / |x|², which is -1 / (b + ai). */
static void angle_grad(struct gradient_ctx *g) {
    struct node_input dy = DY(0), swapped = complex_of(g, LIKE("Imag", IN(0)), LIKE("Real", IN(0)));
    SET(0, NEG(DIV(complex_of(g, dy, ZEROS(dy)), swapped)));
}

static void complex_grad(struct gradient_ctx *g) {
    SET_SUM(0, OP_WITH("Real", ATTRS(ATTR_T("Tout", gradient_dtype(IN(0)))), DY(0)));
    SET_SUM(1, OP_WITH("Imag", ATTRS(ATTR_T("Tout", gradient_dtype(IN(1)))), DY(0)));
}

/* A cast from or to a type without gradients has none. */
static void cast_grad(struct gradient_ctx *g) {
    if (dtype_in(gradient_dtype(OUT(0)), DTYPES_FLOAT | DTYPES_COMPLEX))
        SET(0, CAST(DY(0), IN(0)));
}

/* ---- derivatives of derivatives, for inputs (a, b), where b is the incoming gradient; ā is the
 * conjugate of a, and where a formula has ā, the gradient to a is conjugated as well ---- */

/* b / 2ā */
static void sqrt_grad_grad(struct gradient_ctx *g) {
    struct node_input scaled = DIV(DY(0), IN(0));
    SET(0, NEG(MUL(CONJ(scaled), OUT(0))));
    SET(1, MUL(NUM(0.5), scaled));
}

/* -b ā³ / 2 */
static void rsqrt_grad_grad(struct gradient_ctx *g) {
    struct node_input a = CONJ(IN(0)), dy = DY(0);
    SET(0, MUL(NUM(-1.5), MUL(MUL(CONJ(dy), IN(1)), SQUARE(a))));
    SET(1, OP("RsqrtGrad", a, dy));
}

/* -b ā² */
static void reciprocal_grad_grad(struct gradient_ctx *g) {
    struct node_input a = CONJ(IN(0)), dy = DY(0);
    SET(0, MUL(NUM(-2), MUL(MUL(CONJ(dy), IN(1)), a)));
    SET(1, OP("ReciprocalGrad", a, dy));
}

/* b a (1 - a) */
static void sigmoid_grad_grad(struct gradient_ctx *g) {
    struct node_input a = CONJ(IN(0)), scaled = MUL(DY(0), CONJ(IN(1)));
    SET(0, SUB(scaled, MUL(NUM(2), MUL(scaled, a))));
    SET(1, OP("SigmoidGrad", a, DY(0)));
}

/* b (1 - a²) */
static void tanh_grad_grad(struct gradient_ctx *g) {
    struct node_input a = CONJ(IN(0));
    SET(0, MUL(NUM(-2), MUL(MUL(DY(0), CONJ(IN(1))), a)));
    SET(1, OP("TanhGrad", a, DY(0)));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("Neg", neg_grad),
    GRADIENT("Square", square_grad),
    GRADIENT("Sqrt", sqrt_grad),
    GRADIENT("Rsqrt", rsqrt_grad),
    GRADIENT("Reciprocal", reciprocal_grad),
    GRADIENT("Inv", reciprocal_grad),
    GRADIENT("Exp", exp_grad),
    GRADIENT("Expm1", expm1_grad),
    GRADIENT("Log", log_grad),
    GRADIENT("Log1p", log1p_grad),
    GRADIENT("Sigmoid", sigmoid_grad),
    GRADIENT("Tanh", tanh_grad),
    GRADIENT("Sin", sin_grad),
    GRADIENT("Cos", cos_grad),
    GRADIENT("Tan", tan_grad),
    GRADIENT("Asin", asin_grad),
    GRADIENT("Acos", acos_grad),
    GRADIENT("Atan", atan_grad),
    GRADIENT("Sinh", sinh_grad),
    GRADIENT("Cosh", cosh_grad),
    GRADIENT("Asinh", asinh_grad),
    GRADIENT("Acosh", acosh_grad),
    GRADIENT("Atanh", atanh_grad),
    GRADIENT("Erf", erf_grad),
    GRADIENT("Erfc", erfc_grad),
    GRADIENT("Erfinv", erfinv_grad),
    GRADIENT("Ndtri", ndtri_grad),
    GRADIENT("Lgamma", lgamma_grad),
    GRADIENT("Digamma", digamma_grad),
    GRADIENT("BesselI0", bessel_i0_grad),
    GRADIENT("BesselI0e", bessel_i0e_grad),
    GRADIENT("BesselI1", bessel_i1_grad),
    GRADIENT("BesselI1e", bessel_i1e_grad),
    GRADIENT("BesselJ0", bessel_j0_grad),
    GRADIENT("BesselJ1", bessel_j1_grad),
    GRADIENT("BesselY0", bessel_y0_grad),
    GRADIENT("BesselY1", bessel_y1_grad),
    GRADIENT("BesselK0", bessel_k0_grad),
    GRADIENT("BesselK0e", bessel_k0e_grad),
    GRADIENT("BesselK1", bessel_k1_grad),
    GRADIENT("BesselK1e", bessel_k1e_grad),
    GRADIENT("FresnelSin", fresnel_sin_grad),
    GRADIENT("FresnelCos", fresnel_cos_grad),
    GRADIENT("Spence", spence_grad),
    GRADIENT("Expint", expint_grad),
    GRADIENT("Dawsn", dawsn_grad),
    GRADIENT("Abs", abs_grad),
    GRADIENT("Sign", zero_grad),
    GRADIENT("Conj", conj_grad),
    GRADIENT("Real", real_grad),
    GRADIENT("Imag", imag_grad),
    GRADIENT("CheckNumerics", check_numerics_grad),
    GRADIENT("CheckNumericsV2", check_numerics_grad),
    GRADIENT("ComplexAbs", complex_abs_grad),
    GRADIENT("Angle", angle_grad),
    GRADIENT("Complex", complex_grad),
    GRADIENT("Cast", cast_grad),
    GRADIENT("SqrtGrad", sqrt_grad_grad),
    GRADIENT("RsqrtGrad", rsqrt_grad_grad),
    GRADIENT("ReciprocalGrad", reciprocal_grad_grad),
    GRADIENT("InvGrad", reciprocal_grad_grad),
    GRADIENT("SigmoidGrad", sigmoid_grad_grad),
    GRADIENT("TanhGrad", tanh_grad_grad),
    UNDEFINED_GRADIENT("RandomGammaGrad"),
    UNDEFINED_GRADIENT("IgammaGradA"),
    NO_GRADIENT("Floor"),
    NO_GRADIENT("Ceil"),
    NO_GRADIENT("Round"),
    NO_GRADIENT("Rint"),
    NO_GRADIENT("IsNan"),
    NO_GRADIENT("IsInf"),
    NO_GRADIENT("IsFinite"),
    NO_GRADIENT("LogicalNot"),
    NO_GRADIENT("Invert"),
    NO_GRADIENT("PopulationCount"),
};
// clang-format on

const struct gradient_list math_gradients = {rows, ARRAY_LEN(rows)};
