/* Differentiates the quantising family: a step function has no gradient, so gradients pass where
 * the input is in the range. */
#include "common/gradients/build.h"

static void fake_args_grad(struct gradient_ctx *g) {
    SET(0, LIKE("FakeQuantWithMinMaxArgsGradient", DY(0), IN(0)));
}

static void set_three(struct gradient_ctx *g, struct node_input first) {
    for (int i = 0; i < 3; i++)
        SET(i, gradient_second(first, i));
}

static void fake_vars_grad(struct gradient_ctx *g) {
    set_three(g, LIKE("FakeQuantWithMinMaxVarsGradient", DY(0), IN(0), IN(1), IN(2)));
}

static void fake_channels_grad(struct gradient_ctx *g) {
    set_three(g, LIKE("FakeQuantWithMinMaxVarsPerChannelGradient", DY(0), IN(0), IN(1), IN(2)));
}

static void straight_grad(struct gradient_ctx *g) { SET(0, DY(0)); }

static void range_grad(struct gradient_ctx *g) {
    set_three(g, LIKE("QuantizeAndDequantizeV4Grad", DY(0), IN(0), IN(1), IN(2)));
}

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("FakeQuantWithMinMaxArgs", fake_args_grad),
    NO_GRADIENT("FakeQuantWithMinMaxArgsGradient"),   /* TensorFlow has none either */
    GRADIENT("FakeQuantWithMinMaxVars", fake_vars_grad),
    NO_GRADIENT("FakeQuantWithMinMaxVarsGradient"),
    GRADIENT("FakeQuantWithMinMaxVarsPerChannel", fake_channels_grad),
    NO_GRADIENT("FakeQuantWithMinMaxVarsPerChannelGradient"),
    GRADIENT("QuantizeAndDequantize", straight_grad),
    GRADIENT("QuantizeAndDequantizeV2", straight_grad),
    GRADIENT("QuantizeAndDequantizeV3", straight_grad),
    GRADIENT("QuantizeAndDequantizeV4", range_grad),
    /* that of TensorFlow returns one gradient too few, and fails */
    UNDEFINED_GRADIENT("QuantizeAndDequantizeV4Grad"),
    NO_GRADIENT("QuantizeV2"),                        /* codes have no derivative */
    NO_GRADIENT("Dequantize"),
    NO_GRADIENT("Requantize"),
    NO_GRADIENT("RequantizationRange"),
    NO_GRADIENT("QuantizeDownAndShrinkRange"),
    NO_GRADIENT("QuantizedRelu"),
    NO_GRADIENT("QuantizedRelu6"),
    NO_GRADIENT("QuantizedBiasAdd"),
    NO_GRADIENT("QuantizedAdd"),
    NO_GRADIENT("QuantizedMul"),
    NO_GRADIENT("QuantizedMatMul"),
    NO_GRADIENT("QuantizedConv2D"),
    NO_GRADIENT("QuantizedMaxPool"),
    NO_GRADIENT("QuantizedAvgPool"),
    NO_GRADIENT("QuantizedConcat"),
    NO_GRADIENT("QuantizedReshape"),
    NO_GRADIENT("QuantizedBatchNormWithGlobalNormalization"),
    NO_GRADIENT("QuantizedInstanceNorm"),
    NO_GRADIENT("QuantizedResizeBilinear"),
    NO_GRADIENT("RequantizationRangePerChannel"),
    NO_GRADIENT("RequantizePerChannel"),
};
// clang-format on

const struct gradient_list quant_gradients = {rows, ARRAY_LEN(rows)};
