/* Differentiates normalisations: ops of their own compute the first derivatives. */
#include "common/gradients/build.h"

static bool is_channels_first(struct gradient_ctx *g, int *ret_rank) {
    struct span format = {"NHWC", 4};
    if (!g->status)
        g->status = node_get_s(g->node, "data_format", &format);
    *ret_rank = (int)format.len;
    return format.len > 1 && format.data[1] == 'C';
}

/* Puts the channels last, or back. */
static struct node_input with_channels(struct gradient_ctx *g, struct node_input value, int rank,
                                       bool is_last) {
    struct node_input order = rank == 5 ? is_last ? I32S(0, 2, 3, 4, 1) : I32S(0, 4, 1, 2, 3)
                              : is_last ? I32S(0, 2, 3, 1)
                                        : I32S(0, 3, 1, 2);
    return OP("Transpose", value, order);
}

/* Where the statistics are inputs, they are used in place of those of the batch. They get no
 * gradient, as in TensorFlow. TensorFlow's CPU kernel then wants the channels last. */
static void fused_batch_norm(struct gradient_ctx *g, const char *op, bool has_third) {
    int rank;
    bool is_training = gradient_attr_b(g, "is_training"),
         moves = is_channels_first(g, &rank) && !is_training;
    struct node_input mean = is_training ? OUT(3) : IN(3), variance = is_training ? OUT(4) : IN(4);
    struct node_input dy = moves ? with_channels(g, DY(0), rank, true) : DY(0);
    struct node_input x = moves ? with_channels(g, IN(0), rank, true) : IN(0);
    struct node_input inputs[] = {dy, x, IN(1), mean, variance, has_third ? OUT(5) : x};
    const struct gradient_attr attrs[] = {ATTR_S("data_format", rank == 5 ? "NDHWC" : "NHWC"),
                                          {NULL, ATTR_STRING, {0}}};
    struct node_input made =
        gradient_op(g, op, true, moves ? attrs : NULL, has_third ? 6 : 5, inputs);
    SET(0, moves ? with_channels(g, made, rank, false) : made);
    SET(1, SECOND(made));
    SET(2, gradient_second(made, 2));
}

static void fused_batch_norm_grad(struct gradient_ctx *g) {
    fused_batch_norm(g, "FusedBatchNormGrad", false);
}
static void fused_batch_norm_v2_grad(struct gradient_ctx *g) {
    fused_batch_norm(g, "FusedBatchNormGradV2", false);
}
static void fused_batch_norm_v3_grad(struct gradient_ctx *g) {
    fused_batch_norm(g, "FusedBatchNormGradV3", true);
}

/* ---- the second derivative, for (dy, x, scale, mean, variance) ---- */

/* What the formulas of one node share. Values of channels have the shape of x with 1 for every
 * other axis. */
struct normalization {
    struct node_input axes, channel_shape; /* axes: those that are reduced */
    struct node_input dy, scale;
    struct node_input centred, inverse; /* x - mean, and 1 / its deviation */
    struct node_input normal;           /* their product */
};

static struct node_input channels(struct gradient_ctx *g, const struct normalization *by,
                                  struct node_input vector) {
    return RESHAPE(gradient_cast(g, vector, gradient_dtype(IN(2))), by->channel_shape);
}

static struct node_input mean_of(struct gradient_ctx *g, const struct normalization *by,
                                 struct node_input value) {
    return OP_WITH("Mean", ATTRS(ATTR_B("keep_dims", true)), value, by->axes);
}

/* value - mean(value) - normal · mean(value · normal): what a normalized input can change. */
static struct node_input projected(struct gradient_ctx *g, const struct normalization *by,
                                   struct node_input value) {
    struct node_input along = MUL(by->normal, mean_of(g, by, MUL(value, by->normal)));
    return SUB(SUB(value, mean_of(g, by, value)), along);
}

/* Computes in the dtype of the scale, because half-precision numbers are too coarse. */
static void normalize(struct gradient_ctx *g, bool is_training, struct normalization *ret) {
    int rank;
    bool is_first = is_channels_first(g, &rank);
    struct node_input scale = IN(2), x = CAST(IN(1), scale);
    if (rank == 5) {
        ret->axes = is_first ? I32S(0, 2, 3, 4) : I32S(0, 1, 2, 3);
        ret->channel_shape = is_first ? I32S(1, -1, 1, 1, 1) : I32S(1, 1, 1, 1, -1);
    } else {
        ret->axes = is_first ? I32S(0, 2, 3) : I32S(0, 1, 2);
        ret->channel_shape = is_first ? I32S(1, -1, 1, 1) : I32S(1, 1, 1, -1);
    }
    float epsilon = 0;
    if (!g->status)
        g->status = node_get_f(g->node, "epsilon", &epsilon);
    ret->dy = CAST(IN(0), scale);
    ret->scale = channels(g, ret, scale);
    ret->centred = SUB(x, is_training ? mean_of(g, ret, x) : channels(g, ret, IN(3)));
    struct node_input variance =
        is_training ? mean_of(g, ret, SQUARE(ret->centred)) : channels(g, ret, IN(4));
    ret->inverse = OP("Rsqrt", ADD(variance, gradient_number(g, scale, epsilon)));
    ret->normal = MUL(ret->centred, ret->inverse);
}

/* The node computes dx = scale · inverse · P(dy), dscale = Σ dy · normal and doffset = Σ dy, where
 * P is projected() in training and nothing otherwise. With A, b and c for the gradients of these
 * three, and m = mean(A · P(dy)):
 *   by dy      scale · inverse · P(A) + b · normal + c
 *   by scale   Σ inverse · A · P(dy)
 *   by x       inverse · P(b · dy - scale · inverse · (A · mean(dy · normal) + dy · mean(A ·
 *              normal))) - scale · inverse² · normal · m; otherwise b · dy · inverse */
static void fused_batch_norm_grad_grad(struct gradient_ctx *g) {
    struct normalization by;
    bool is_training = gradient_attr_b(g, "is_training");
    normalize(g, is_training, &by);
    struct node_input a = CAST(DY(0), IN(2)), b = channels(g, &by, DY(1)),
                      c = channels(g, &by, DY(2));
    struct node_input factor = MUL(by.scale, by.inverse), b_dy = MUL(b, by.dy), dx;
    struct node_input pa = is_training ? projected(g, &by, a) : a,
                      pdy = is_training ? projected(g, &by, by.dy) : by.dy;
    if (is_training) {
        struct node_input cross = ADD(MUL(a, mean_of(g, &by, MUL(by.dy, by.normal))),
                                      MUL(by.dy, mean_of(g, &by, MUL(a, by.normal))));
        struct node_input inner = projected(g, &by, SUB(b_dy, MUL(factor, cross)));
        struct node_input m = MUL(MUL(factor, by.inverse), mean_of(g, &by, MUL(a, pdy)));
        dx = SUB(MUL(by.inverse, inner), MUL(by.normal, m));
    } else {
        dx = MUL(b_dy, by.inverse);
    }
    SET(0, CAST(ADD(MUL(factor, pa), ADD(MUL(b, by.normal), c)), IN(0)));
    SET(1, CAST(dx, IN(1)));
    SET(2, RESHAPE(SUM(MUL(by.inverse, MUL(a, pdy)), by.axes), I32S(-1)));
}

/* ---- other normalisations ---- */

/* (t, mean, variance, beta, gamma) */
static void batch_norm_grad(struct gradient_ctx *g) {
    struct node_input made =
        LIKE("BatchNormWithGlobalNormalizationGrad", IN(0), IN(1), IN(2), IN(4), DY(0));
    for (int i = 0; i < 5; i++)
        SET(i, gradient_second(made, i));
}

static void lrn_grad(struct gradient_ctx *g) { SET(0, LIKE("LRNGrad", DY(0), IN(0), OUT(0))); }

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("FusedBatchNorm", fused_batch_norm_grad),
    GRADIENT("FusedBatchNormV2", fused_batch_norm_v2_grad),
    GRADIENT("FusedBatchNormV3", fused_batch_norm_v3_grad),
    GRADIENT("BatchNormWithGlobalNormalization", batch_norm_grad),
    GRADIENT("LRN", lrn_grad),
    GRADIENT("FusedBatchNormGrad", fused_batch_norm_grad_grad),
    GRADIENT("FusedBatchNormGradV2", fused_batch_norm_grad_grad),
    GRADIENT("FusedBatchNormGradV3", fused_batch_norm_grad_grad),
    UNDEFINED_GRADIENT("BatchNormWithGlobalNormalizationGrad"),
    UNDEFINED_GRADIENT("LRNGrad"),
};
// clang-format on

const struct gradient_list norm_gradients = {rows, ARRAY_LEN(rows)};
