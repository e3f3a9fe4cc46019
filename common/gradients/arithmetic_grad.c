/* Differentiates arithmetic: functions of two or three numbers with broadcasting, and sums of many
 * (elementwise.h). */
#include "common/gradients/elementwise.h"

/* ---- sums, products, quotients ---- */

BINARY(add, dy, dy)
BINARY(sub, dy, NEG(dy))
BINARY(mul, MUL(dy, b), MUL(dy, a))
BINARY(div, DIV(dy, b), MUL(dy, DIV(DIV(NEG(a), b), b)))
BINARY(div_no_nan, OP("DivNoNan", dy, b), MUL(dy, OP("DivNoNan", OP("DivNoNan", NEG(a), b), b)))
BINARY(floor_mod, dy, NEG(MUL(dy, OP("FloorDiv", a, b))))
BINARY(next_after, dy, ZEROS(dy))

PLAIN_BINARY(mul_no_nan, OP("MulNoNan", dy, b), OP("MulNoNan", a, dy))

/* For complex numbers TensorFlow does not conjugate here. */
static void squared_difference_grad(struct gradient_ctx *g) {
    struct node_input scaled = MUL(DY(0), MUL(NUM(2), SUB(IN(0), IN(1))));
    SET_SUM(0, scaled);
    SET_SUM(1, NEG(scaled));
}

/* ---- the greater of two; where they are equal, the first ---- */

BINARY(maximum, WHERE(OP("GreaterEqual", a, b), dy, NUM(0)),
       WHERE(OP("GreaterEqual", a, b), NUM(0), dy))
BINARY(minimum, WHERE(OP("LessEqual", a, b), dy, NUM(0)), WHERE(OP("LessEqual", a, b), NUM(0), dy))

/* ---- powers, logarithms ---- */

/* log a, and 0 where the derivative of a power with respect to its exponent is taken as 0: a is not
 * above 0, or a complex a is 0. */
static struct node_input log_or_zero(struct gradient_ctx *g, struct node_input a) {
    bool is_complex = dtype_in(gradient_dtype(a), DTYPES_COMPLEX);
    struct node_input has_log = OP(is_complex ? "NotEqual" : "Greater", a, NUM(0));
    return WHERE(has_log, OP("Log", WHERE(has_log, a, NUM(1))), NUM(0));
}

/* 1 where a is not 0, and 0 where it is, because 0 · log 0 counts as 0. */
static struct node_input not_zero(struct gradient_ctx *g, struct node_input a) {
    return CAST(OP("NotEqual", a, NUM(0)), a);
}

BINARY(pow, MUL(MUL(dy, b), OP("Pow", a, SUB(b, NUM(1)))), MUL(MUL(dy, y), log_or_zero(g, a)))
PLAIN_BINARY(xlogy, MUL(dy, OP("Xlogy", not_zero(g, a), b)), MUL(dy, OP("Xdivy", a, b)))
PLAIN_BINARY(xlog1py, MUL(dy, OP("Xlog1py", not_zero(g, a), b)),
             MUL(dy, OP("Xdivy", a, ADD(b, NUM(1)))))
PLAIN_BINARY(xdivy, MUL(dy, OP("Xdivy", not_zero(g, a), b)),
             MUL(dy, OP("Xdivy", NEG(a), SQUARE(b))))

/* The angle of (b, a). */
BINARY(atan2, MUL(b, DIV(dy, ADD(SQUARE(a), SQUARE(b)))),
       NEG(MUL(a, DIV(dy, ADD(SQUARE(a), SQUARE(b))))))

/* ---- gamma functions ---- */

/* d/dx of the lower function: x^(a-1) e^-x / Γ(a). At a = 1, x = 0 it is NaN, as TensorFlow's. */
static struct node_input gamma_density(struct gradient_ctx *g, struct node_input a,
                                       struct node_input x) {
    return OP("Exp", SUB(SUB(MUL(SUB(a, NUM(1)), OP("Log", x)), x), OP("Lgamma", a)));
}

BINARY(igamma, MUL(dy, OP("IgammaGradA", a, b)), MUL(dy, gamma_density(g, a, b)))
BINARY(igammac, NEG(MUL(dy, OP("IgammaGradA", a, b))), NEG(MUL(dy, gamma_density(g, a, b))))

/* The order of a polygamma, and of a zeta, has no gradient. */
static void polygamma_grad(struct gradient_ctx *g) {
    SET_SUM(1, MUL(DY(0), OP("Polygamma", ADD(IN(0), NUM(1)), IN(1))));
}

static void zeta_grad(struct gradient_ctx *g) {
    SET_SUM(1, NEG(MUL(DY(0), MUL(IN(0), OP("Zeta", ADD(IN(0), NUM(1)), IN(1))))));
}

/* (a, b, x): x^(a-1) (1-x)^(b-1) / B(a, b). The parameters get no gradient. */
static void betainc_grad(struct gradient_ctx *g) {
    struct node_input a = IN(0), b = IN(1), x = IN(2), one = NUM(1);
    struct node_input log_beta =
        SUB(ADD(OP("Lgamma", a), OP("Lgamma", b)), OP("Lgamma", ADD(a, b)));
    struct node_input logs = ADD(OP("Xlog1py", SUB(b, one), NEG(x)), OP("Xlogy", SUB(a, one), x));
    SET_SUM(2, MUL(DY(0), OP("Exp", SUB(logs, log_beta))));
}

/* ---- choices ---- */

static void select_grad(struct gradient_ctx *g) {
    struct node_input zeros = ZEROS(DY(0));
    SET(1, OP("Select", IN(0), DY(0), zeros));
    SET(2, OP("Select", IN(0), zeros, DY(0)));
}

static void select_v2_grad(struct gradient_ctx *g) {
    SET_SUM(1, WHERE(IN(0), DY(0), NUM(0)));
    SET_SUM(2, WHERE(IN(0), NUM(0), DY(0)));
}

static void clip_by_value_grad(struct gradient_ctx *g) {
    struct node_input is_low = OP("Less", IN(0), IN(1)), is_high = OP("Greater", IN(0), IN(2));
    SET_SUM(0, WHERE(OP("LogicalOr", is_low, is_high), NUM(0), DY(0)));
    SET_SUM(1, WHERE(is_low, DY(0), NUM(0)));
    SET_SUM(2, WHERE(is_high, DY(0), NUM(0)));
}

static void add_n_grad(struct gradient_ctx *g) {
    for (int i = 0; i < g->node->n_data; i++)
        SET(i, DY(0));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("Add", add_grad),
    GRADIENT("AddV2", add_grad),
    GRADIENT("Sub", sub_grad),
    GRADIENT("Mul", mul_grad),
    GRADIENT("MulNoNan", mul_no_nan_grad),
    GRADIENT("Div", div_grad),
    GRADIENT("RealDiv", div_grad),
    GRADIENT("DivNoNan", div_no_nan_grad),
    GRADIENT("FloorMod", floor_mod_grad),
    GRADIENT("SquaredDifference", squared_difference_grad),
    GRADIENT("NextAfter", next_after_grad),
    GRADIENT("Maximum", maximum_grad),
    GRADIENT("Minimum", minimum_grad),
    GRADIENT("Pow", pow_grad),
    GRADIENT("Xlogy", xlogy_grad),
    GRADIENT("Xlog1py", xlog1py_grad),
    GRADIENT("Xdivy", xdivy_grad),
    GRADIENT("Atan2", atan2_grad),
    GRADIENT("Igamma", igamma_grad),
    GRADIENT("Igammac", igammac_grad),
    GRADIENT("Betainc", betainc_grad),
    GRADIENT("Polygamma", polygamma_grad),
    GRADIENT("Zeta", zeta_grad),
    GRADIENT("Select", select_grad),
    GRADIENT("SelectV2", select_v2_grad),
    GRADIENT("ClipByValue", clip_by_value_grad),
    GRADIENT("AddN", add_n_grad),
    GRADIENT("AccumulateNV2", add_n_grad),
    NO_GRADIENT("TruncateDiv"),
    NO_GRADIENT("FloorDiv"),
    UNDEFINED_GRADIENT("Mod"),
    UNDEFINED_GRADIENT("TruncateMod"),
    NO_GRADIENT("BitwiseAnd"),
    NO_GRADIENT("BitwiseOr"),
    NO_GRADIENT("BitwiseXor"),
    NO_GRADIENT("LeftShift"),
    NO_GRADIENT("RightShift"),
    NO_GRADIENT("ApproximateEqual"),
    NO_GRADIENT("Equal"),
    NO_GRADIENT("NotEqual"),
    NO_GRADIENT("Less"),
    NO_GRADIENT("LessEqual"),
    NO_GRADIENT("Greater"),
    NO_GRADIENT("GreaterEqual"),
    NO_GRADIENT("LogicalAnd"),
    NO_GRADIENT("LogicalOr"),
};
// clang-format on

const struct gradient_list arithmetic_gradients = {rows, ARRAY_LEN(rows)};
