/* Differentiates the nn family (build.h). */
#include "common/gradients/elementwise.h"

/* ---- biases ---- */

static void bias_add_grad(struct gradient_ctx *g) {
    SET(0, DY(0));
    SET(1, LIKE("BiasAddGrad", DY(0)));
}

/* TensorFlow sums here in another order, which 16-bit floats show. */
static void bias_add_v1_grad(struct gradient_ctx *g) {
    SET(0, DY(0));
    SET(1, SUM(DY(0), RANGE(SUB(OP("Rank", DY(0)), I32(1)))));
}

static void bias_add_grad_grad(struct gradient_ctx *g) {
    SET(0, LIKE("BiasAdd", ZEROS(IN(0)), DY(0)));
}

/* ---- activations ---- */

UNARY(relu, OP("ReluGrad", dy, y))
UNARY(relu6, OP("Relu6Grad", dy, y))
UNARY(leaky_relu, LIKE("LeakyReluGrad", dy, x))
UNARY(elu, OP("EluGrad", dy, y))
UNARY(selu, OP("SeluGrad", dy, y))
UNARY(softplus, MUL(dy, OP("Sigmoid", x)))
UNARY(softsign, OP("SoftsignGrad", dy, x))

/* (gradients, features): linear in the gradients; the features only select a linear piece of the
 * function. */
static void pieces_grad(struct gradient_ctx *g) {
    SET(0, LIKE(g->node->op_name, DY(0), IN(1)));
    SET(1, ZEROS(IN(1)));
}

/* (gradients, outputs): below 0 the factor is the output plus a constant. */
static void exponential_piece_grad(struct gradient_ctx *g) {
    SET(0, OP(g->node->op_name, DY(0), IN(1)));
    SET(1, WHERE(OP("Less", IN(1), NUM(0)), MUL(DY(0), IN(0)), NUM(0)));
}

/* (gradients, x): sigmoid'(x) = 1 / (e^x + 2 + e^-x) */
static void softplus_grad_grad(struct gradient_ctx *g) {
    struct node_input x = IN(1), sum = ADD(ADD(OP("Exp", x), NUM(2)), OP("Exp", NEG(x)));
    SET(0, OP("SoftplusGrad", DY(0), x));
    SET(1, DIV(MUL(DY(0), IN(0)), sum));
}

/* ---- softmax ---- */

static void softmax_grad(struct gradient_ctx *g) {
    struct node_input y = OUT(0);
    SET(0, MUL(SUB(DY(0), SUM_KEPT(MUL(DY(0), y), I32(-1))), y));
}

static void log_softmax_grad(struct gradient_ctx *g) {
    SET(0, SUB(DY(0), MUL(SUM_KEPT(DY(0), I32(-1)), OP("Exp", OUT(0)))));
}

/* The gradient of the loss is the second output of the op; the gradient of that output is that of
 * softmax. */
static void set_logits(struct gradient_ctx *g) {
    struct node_input logits = gradient_has(g, 0) ? MUL(EXPAND(DY(0), -1), OUT(1)) : ZEROS(IN(0));
    if (gradient_has(g, 1)) {
        struct node_input softmax = OP("Softmax", IN(0)), ddy = DY(1);
        logits = ADD(logits, MUL(SUB(ddy, SUM_KEPT(MUL(ddy, softmax), I32(-1))), softmax));
    }
    SET(0, gradient_has(g, 0) || gradient_has(g, 1) ? UNBROADCAST(logits, IN(0)) : logits);
}

static void softmax_cross_entropy_grad(struct gradient_ctx *g) {
    set_logits(g);
    if (gradient_has(g, 0))
        SET_SUM(1, NEG(MUL(EXPAND(DY(0), -1), OP("LogSoftmax", IN(0)))));
}

static void sparse_softmax_cross_entropy_grad(struct gradient_ctx *g) { set_logits(g); }

/* ---- the greatest elements ---- */

/* The gradients of each row are added at the positions of their values, in rows of one long
 * vector. */
static void top_k_grad(struct gradient_ctx *g) {
    struct node_input shape = SHAPE(IN(0)), width = gradient_element(g, shape, -1),
                      k = gradient_element(g, SHAPE(OUT(1)), -1);
    struct node_input n_rows = gradient_product(g, gradient_outer(g, shape, 1)), one = I32S(1);
    struct node_input places = RESHAPE(OUT(1), CONCAT(RESHAPE(n_rows, one), RESHAPE(k, one)));
    struct node_input first = EXPAND(MUL(RANGE(n_rows), width), 1);
    struct node_input flat = OP("UnsortedSegmentSum", RESHAPE(DY(0), I32S(-1)),
                                RESHAPE(ADD(places, first), I32S(-1)), OP("Size", IN(0)));
    SET(0, RESHAPE(flat, shape));
}

/* Equal elements share the gradient. */
static void nth_element_grad(struct gradient_ctx *g) {
    struct node_input is_it = CAST(OP("Equal", EXPAND(OUT(0), -1), IN(0)), DY(0));
    SET(0, MUL(DIV(is_it, SUM_KEPT(is_it, I32(-1))), EXPAND(DY(0), -1)));
}

/* Every element of a segment is the mean of its inputs. Rows have segments of their own. */
static void isotonic_regression_grad(struct gradient_ctx *g) {
    struct node_input dy = DY(0), shape = SHAPE(dy), all = I32S(-1), n = OP("Size", dy);
    struct node_input width = gradient_element(g, shape, -1);
    struct node_input first = OP("FloorDiv", RANGE(n), width);
    struct node_input ids = ADD(RESHAPE(OUT(1), all), MUL(first, width));
    struct node_input flat = RESHAPE(dy, all);
    struct node_input sums = OP("UnsortedSegmentSum", flat, ids, n),
                      counts = OP("UnsortedSegmentSum", OP("OnesLike", flat), ids, n);
    struct node_input means = OP("DivNoNan", sums, counts);
    SET(0, CAST(RESHAPE(OP("GatherV2", means, ids, I32(0)), shape), IN(0)));
}

static void l2_loss_grad(struct gradient_ctx *g) { SET(0, MUL(IN(0), DY(0))); }

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("BiasAdd", bias_add_grad),
    GRADIENT("BiasAddV1", bias_add_v1_grad),
    GRADIENT("BiasAddGrad", bias_add_grad_grad),
    GRADIENT("Relu", relu_grad),
    GRADIENT("ReluGrad", pieces_grad),
    GRADIENT("Relu6", relu6_grad),
    GRADIENT("Relu6Grad", pieces_grad),
    GRADIENT("LeakyRelu", leaky_relu_grad),
    GRADIENT("LeakyReluGrad", pieces_grad),
    GRADIENT("Elu", elu_grad),
    GRADIENT("EluGrad", exponential_piece_grad),
    GRADIENT("Selu", selu_grad),
    GRADIENT("SeluGrad", exponential_piece_grad),
    GRADIENT("Softplus", softplus_grad),
    GRADIENT("SoftplusGrad", softplus_grad_grad),
    GRADIENT("Softsign", softsign_grad),
    GRADIENT("Softmax", softmax_grad),
    GRADIENT("LogSoftmax", log_softmax_grad),
    GRADIENT("SoftmaxCrossEntropyWithLogits", softmax_cross_entropy_grad),
    GRADIENT("SparseSoftmaxCrossEntropyWithLogits", sparse_softmax_cross_entropy_grad),
    GRADIENT("TopK", top_k_grad),
    GRADIENT("TopKV2", top_k_grad),
    GRADIENT("NthElement", nth_element_grad),
    GRADIENT("IsotonicRegression", isotonic_regression_grad),
    GRADIENT("L2Loss", l2_loss_grad),
    UNDEFINED_GRADIENT("SoftsignGrad"),
    NO_GRADIENT("InTopK"),         /* the answer is a bool */
    NO_GRADIENT("InTopKV2"),
};
// clang-format on

const struct gradient_list nn_gradients = {rows, ARRAY_LEN(rows)};
