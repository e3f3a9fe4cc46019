/* Differentiates convolutions. A convolution, its input gradient and its filter gradient are
 * bilinear, and the derivative of each is made of the other two. */
#include "common/gradients/build.h"

/* ---- (input, filter) ---- */

static void convolution(struct gradient_ctx *g, const char *input_op, const char *filter_op) {
    SET(0, LIKE(input_op, SHAPE(IN(0)), IN(1), DY(0)));
    SET(1, LIKE(filter_op, IN(0), SHAPE(IN(1)), DY(0)));
}

/* ---- (sizes, filter, dy) ---- */

static void input_backprop(struct gradient_ctx *g, const char *op, const char *filter_op) {
    SET(1, LIKE(filter_op, DY(0), SHAPE(IN(1)), IN(2)));
    SET(2, LIKE(op, DY(0), IN(1)));
}

/* ---- (input, sizes, dy) ---- */

static void filter_backprop(struct gradient_ctx *g, const char *op, const char *input_op) {
    SET(0, LIKE(input_op, SHAPE(IN(0)), DY(0), IN(2)));
    SET(2, LIKE(op, IN(0), DY(0)));
}

#define CONVOLUTION(name, op, input_op, filter_op)                                              \
    static void name##_grad(struct gradient_ctx *g) { convolution(g, input_op, filter_op); }    \
    static void name##_input_grad(struct gradient_ctx *g) { input_backprop(g, op, filter_op); } \
    static void name##_filter_grad(struct gradient_ctx *g) { filter_backprop(g, op, input_op); }

CONVOLUTION(conv_2d, "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")
CONVOLUTION(conv_3d, "Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2")
CONVOLUTION(depthwise, "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput",
            "DepthwiseConv2dNativeBackpropFilter")

static void dilation_2d_grad(struct gradient_ctx *g) {
    SET(0, LIKE("Dilation2DBackpropInput", IN(0), IN(1), DY(0)));
    SET(1, LIKE("Dilation2DBackpropFilter", IN(0), IN(1), DY(0)));
}

/* ---- patches ---- */

/* Takes the patches of an image whose pixels are numbered from 1 on, to find the source of each
 * element of dy; 0 is padding. `n_space`: 2 for images, 3 for volumes. */
static void patches_grad(struct gradient_ctx *g, int n_space) {
    struct node_input shape = SHAPE(IN(0)), one = I32S(1), depth = gradient_inner(g, shape, 1),
                      batch = gradient_slice(g, shape, I32(0), I32(1));
    struct node_input space = gradient_slice(g, shape, I32(1), I32(1 + n_space)),
                      n = gradient_product(g, space);
    struct node_input numbers =
        RESHAPE(ADD(gradient_cast(g, RANGE(n), DT_INT64), gradient_cast(g, I32(1), DT_INT64)),
                CONCAT(one, space, one));
    struct node_input from =
        RESHAPE(SUB(LIKE(g->node->op_name, numbers), gradient_cast(g, I32(1), DT_INT64)), I32S(-1));
    struct node_input n_from = OP("Shape", from);
    struct node_input rows =
        OP("Transpose", RESHAPE(DY(0), CONCAT(batch, n_from, depth)), I32S(1, 0, 2));
    struct node_input sums = OP("UnsortedSegmentSum", rows, from, n);
    SET(0, RESHAPE(OP("Transpose", sums, I32S(1, 0, 2)), shape));
}

static void image_patches_grad(struct gradient_ctx *g) { patches_grad(g, 2); }
static void volume_patches_grad(struct gradient_ctx *g) { patches_grad(g, 3); }

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("Conv2D", conv_2d_grad),
    GRADIENT("Conv2DBackpropInput", conv_2d_input_grad),
    GRADIENT("Conv2DBackpropFilter", conv_2d_filter_grad),
    GRADIENT("Conv3D", conv_3d_grad),
    GRADIENT("Conv3DBackpropInputV2", conv_3d_input_grad),
    GRADIENT("Conv3DBackpropFilterV2", conv_3d_filter_grad),
    GRADIENT("DepthwiseConv2dNative", depthwise_grad),
    GRADIENT("DepthwiseConv2dNativeBackpropInput", depthwise_input_grad),
    GRADIENT("DepthwiseConv2dNativeBackpropFilter", depthwise_filter_grad),
    GRADIENT("Dilation2D", dilation_2d_grad),
    GRADIENT("ExtractImagePatches", image_patches_grad),
    GRADIENT("ExtractVolumePatches", volume_patches_grad),
    NO_GRADIENT("Conv3DBackpropInput"),    /* TensorFlow differentiates only its later forms */
    UNDEFINED_GRADIENT("Conv3DBackpropFilter"),
    UNDEFINED_GRADIENT("Conv"),
    UNDEFINED_GRADIENT("Dilation2DBackpropInput"),
    UNDEFINED_GRADIENT("Dilation2DBackpropFilter"),
    NO_GRADIENT("DataFormatDimMap"),       /* integers */
    NO_GRADIENT("DataFormatVecPermute"),
};
// clang-format on

const struct gradient_list conv_gradients = {rows, ARRAY_LEN(rows)};
