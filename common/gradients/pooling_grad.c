/* Differentiates pooling: each gradient goes to the elements that a window read. */
#include "common/gradients/build.h"

/* ---- maximum: (x), then (x, y, dy), then (x, y, second derivative) ---- */

static void max_pool_grad(struct gradient_ctx *g) {
    SET(0, LIKE("MaxPoolGrad", IN(0), OUT(0), DY(0)));
}
static void max_pool_v2_grad(struct gradient_ctx *g) {
    SET(0, LIKE("MaxPoolGradV2", IN(0), OUT(0), DY(0), IN(1), IN(2)));
}
static void max_pool_3d_grad(struct gradient_ctx *g) {
    SET(0, LIKE("MaxPool3DGrad", IN(0), OUT(0), DY(0)));
}

static void set_unmoved(struct gradient_ctx *g) {
    SET(0, ZEROS(IN(0)));
    SET(1, ZEROS(IN(1)));
}

static void max_pool_grad_grad(struct gradient_ctx *g) {
    set_unmoved(g);
    SET(2, LIKE("MaxPoolGradGrad", IN(0), IN(1), DY(0)));
}

static void max_pool_grad_v2_grad(struct gradient_ctx *g) {
    set_unmoved(g);
    SET(2, LIKE("MaxPoolGradGradV2", IN(0), IN(1), DY(0), IN(3), IN(4)));
}

static void max_pool_grad_grad_grad(struct gradient_ctx *g) {
    set_unmoved(g);
    SET(2, LIKE("MaxPoolGrad", IN(0), IN(1), DY(0)));
}

static void max_pool_3d_grad_grad(struct gradient_ctx *g) {
    set_unmoved(g);
    SET(2, LIKE("MaxPool3DGradGrad", IN(0), IN(1), DY(0)));
}

static void max_pool_3d_grad_grad_grad(struct gradient_ctx *g) {
    set_unmoved(g);
    SET(2, LIKE("MaxPool3DGrad", IN(0), IN(1), DY(0)));
}

static void max_pool_with_argmax_grad(struct gradient_ctx *g) {
    SET(0, LIKE("MaxPoolGradWithArgmax", IN(0), DY(0), OUT(1)));
}

/* ---- average ---- */

static void avg_pool_grad(struct gradient_ctx *g) {
    SET(0, LIKE("AvgPoolGrad", SHAPE(IN(0)), DY(0)));
}
static void avg_pool_grad_grad(struct gradient_ctx *g) { SET(1, LIKE("AvgPool", DY(0))); }
static void avg_pool_3d_grad(struct gradient_ctx *g) {
    SET(0, LIKE("AvgPool3DGrad", SHAPE(IN(0)), DY(0)));
}
static void avg_pool_3d_grad_grad(struct gradient_ctx *g) { SET(1, LIKE("AvgPool3D", DY(0))); }

/* ---- windows of different sizes ---- */

static void fractional_max_pool_grad(struct gradient_ctx *g) {
    SET(0, LIKE("FractionalMaxPoolGrad", IN(0), OUT(0), DY(0), OUT(1), OUT(2)));
}

static void fractional_avg_pool_grad(struct gradient_ctx *g) {
    SET(0, LIKE("FractionalAvgPoolGrad", SHAPE_AS(IN(0), OUT(1)), DY(0), OUT(1), OUT(2)));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("MaxPool", max_pool_grad),
    GRADIENT("MaxPoolV2", max_pool_v2_grad),
    GRADIENT("MaxPoolGrad", max_pool_grad_grad),
    GRADIENT("MaxPoolGradV2", max_pool_grad_v2_grad),
    GRADIENT("MaxPoolGradGrad", max_pool_grad_grad_grad),
    GRADIENT("MaxPoolWithArgmax", max_pool_with_argmax_grad),
    GRADIENT("AvgPool", avg_pool_grad),
    GRADIENT("AvgPoolGrad", avg_pool_grad_grad),
    GRADIENT("FractionalMaxPool", fractional_max_pool_grad),
    GRADIENT("FractionalAvgPool", fractional_avg_pool_grad),
    GRADIENT("MaxPool3D", max_pool_3d_grad),
    GRADIENT("MaxPool3DGrad", max_pool_3d_grad_grad),
    GRADIENT("MaxPool3DGradGrad", max_pool_3d_grad_grad_grad),
    GRADIENT("AvgPool3D", avg_pool_3d_grad),
    GRADIENT("AvgPool3DGrad", avg_pool_3d_grad_grad),
    UNDEFINED_GRADIENT("MaxPoolGradGradV2"),
    UNDEFINED_GRADIENT("MaxPoolGradWithArgmax"),
    UNDEFINED_GRADIENT("FractionalMaxPoolGrad"),
    UNDEFINED_GRADIENT("FractionalAvgPoolGrad"),
};
// clang-format on

const struct gradient_list pooling_gradients = {rows, ARRAY_LEN(rows)};
