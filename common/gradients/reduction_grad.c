/* Differentiates reductions and running sums and products. Axes are values of the step, so shapes
 * are computed in the step (build.h). */
#include <float.h>

#include "common/gradients/build.h"

/* `value` has the shape of the reduction's output; reshapes it to keep the reduced axes with size
 * 1. */
static struct node_input kept(struct gradient_ctx *g, struct node_input value) {
    return RESHAPE(value, gradient_kept_shape(g, IN(0), IN(1)));
}

static struct node_input spread(struct gradient_ctx *g, struct node_input dy) {
    return OP("BroadcastTo", kept(g, dy), SHAPE(IN(0)));
}

static void sum_grad(struct gradient_ctx *g) { SET(0, spread(g, DY(0))); }

static void mean_grad(struct gradient_ctx *g) {
    struct node_input n_in = gradient_product(g, SHAPE(IN(0))),
                      n_out = gradient_product(g, SHAPE(OUT(0)));
    struct node_input n = OP("FloorDiv", n_in, OP("Maximum", n_out, I32(1)));
    SET(0, DIV(spread(g, DY(0)), CAST(n, DY(0))));
}

/* When several elements are the greatest, they share the gradient. */
static void extreme_grad(struct gradient_ctx *g) {
    struct node_input is_it = CAST(OP("Equal", kept(g, OUT(0)), IN(0)), DY(0));
    struct node_input n = kept(g, SUM(is_it, IN(1)));
    SET(0, MUL(DIV(is_it, n), kept(g, DY(0))));
}

/* Computes the product of all other elements without a division: the product of those before times
 * the product of those after, along the reduced axes, which are merged into one. */
static void prod_grad(struct gradient_ctx *g) {
    struct node_input axes = gradient_axes(g, IN(0), IN(1));
    struct node_input all = RANGE(OP("Rank", IN(0))), others = OP("ListDiff", all, axes),
                      order = CONCAT(axes, others);
    struct node_input moved = OP("Transpose", IN(0), order), moved_shape = SHAPE(moved),
                      shape = SHAPE(IN(0));
    struct node_input n_reduced =
        gradient_product(g, OP_WITH("GatherV2", NULL, shape, axes, I32(0)));
    struct node_input n_other =
        gradient_product(g, OP_WITH("GatherV2", NULL, shape, others, I32(0)));
    struct node_input columns =
        RESHAPE(moved, CONCAT(RESHAPE(n_reduced, I32S(1)), RESHAPE(n_other, I32S(1))));
    struct node_input before =
        OP_WITH("Cumprod", ATTRS(ATTR_B("exclusive", true)), columns, I32(0));
    struct node_input after = OP_WITH(
        "Cumprod", ATTRS(ATTR_B("exclusive", true), ATTR_B("reverse", true)), columns, I32(0));
    struct node_input product = RESHAPE(MUL(CONJ(before), CONJ(after)), moved_shape);
    SET(0, MUL(kept(g, DY(0)), OP("Transpose", product, OP("InvertPermutation", order))));
}

static void euclidean_norm_grad(struct gradient_ctx *g) {
    SET(0, DIV(IN(0), DIV(kept(g, OUT(0)), kept(g, DY(0)))));
}

/* ---- running sums and products ---- */

static struct node_input cumulative(struct gradient_ctx *g, const char *op, struct node_input value,
                                    bool reverse) {
    return LIKE_WITH(op, ATTRS(ATTR_B("reverse", reverse)), value, IN(1));
}

static void cumsum_grad(struct gradient_ctx *g) {
    SET(0, cumulative(g, "Cumsum", DY(0), !gradient_attr_b(g, "reverse")));
}

/* TensorFlow does not conjugate complex numbers here. */
static void cumprod_grad(struct gradient_ctx *g) {
    struct node_input weighted = MUL(OUT(0), DY(0));
    SET(0,
        OP("DivNoNan", cumulative(g, "Cumsum", weighted, !gradient_attr_b(g, "reverse")), IN(0)));
}

/* For dy or -dy: exp(x + log Σ exp(log dy - y)), without an overflow in between. A value of 0 or
 * below counts as almost 0. */
static struct node_input logsumexp_part(struct gradient_ctx *g, struct node_input dy) {
    enum dtype dtype = gradient_dtype(dy);
    double lowest = dtype == DT_DOUBLE     ? -DBL_MAX
                    : dtype == DT_HALF     ? -65504
                    : dtype == DT_BFLOAT16 ? -0x1.FEp127
                                           : -(double)FLT_MAX;
    struct node_input log_dy = WHERE(OP("Greater", dy, NUM(0)), OP("Log", dy), NUM(lowest));
    bool reverse = gradient_attr_b(g, "reverse");
    return OP("Exp",
              ADD(cumulative(g, "CumulativeLogsumexp", SUB(log_dy, OUT(0)), !reverse), IN(0)));
}

static void cumulative_logsumexp_grad(struct gradient_ctx *g) {
    SET(0, SUB(logsumexp_part(g, DY(0)), logsumexp_part(g, NEG(DY(0)))));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("Sum", sum_grad),
    GRADIENT("Mean", mean_grad),
    GRADIENT("Max", extreme_grad),
    GRADIENT("Min", extreme_grad),
    GRADIENT("Prod", prod_grad),
    GRADIENT("EuclideanNorm", euclidean_norm_grad),
    GRADIENT("Cumsum", cumsum_grad),
    GRADIENT("Cumprod", cumprod_grad),
    GRADIENT("CumulativeLogsumexp", cumulative_logsumexp_grad),
    NO_GRADIENT("All"),
    NO_GRADIENT("Any"),
    NO_GRADIENT("ArgMax"),
    NO_GRADIENT("ArgMin"),
    UNDEFINED_GRADIENT("Bincount"),
    UNDEFINED_GRADIENT("DenseBincount"),
    NO_GRADIENT("HistogramFixedWidth"),
};
// clang-format on

const struct gradient_list reduction_gradients = {rows, ARRAY_LEN(rows)};
