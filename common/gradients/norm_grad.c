/* Differentiates normalisations: ops of their own compute the gradients. */
#include "common/gradients/build.h"

/* Where the statistics are inputs, they are used in place of those of the batch. They get no
 * gradient, as in TensorFlow. */
static void fused_batch_norm(struct gradient_ctx *g, const char *op, bool has_third) {
    bool is_training = gradient_attr_b(g, "is_training");
    struct node_input mean = is_training ? OUT(3) : IN(3), variance = is_training ? OUT(4) : IN(4);
    struct node_input inputs[] = {DY(0), IN(0), IN(1), mean, variance, has_third ? OUT(5) : IN(0)};
    struct node_input made = gradient_op(g, op, true, NULL, has_third ? 6 : 5, inputs);
    for (int i = 0; i < 3; i++)
        SET(i, gradient_second(made, i));
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
    LATER_GRADIENT("FusedBatchNormGrad"),
    LATER_GRADIENT("FusedBatchNormGradV2"),
    LATER_GRADIENT("FusedBatchNormGradV3"),
    NO_GRADIENT("BatchNormWithGlobalNormalizationGrad"), /* TensorFlow has none either */
    NO_GRADIENT("LRNGrad"),                              /* TensorFlow has none either */
};
// clang-format on

const struct gradient_list norm_gradients = {rows, ARRAY_LEN(rows)};
