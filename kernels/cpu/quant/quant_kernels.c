/* Lists the CPU kernels of the quantization ops. */
#include "kernels/cpu/nn/pooling.h"
#include "kernels/cpu/quant/quant_internal.h"

extern const struct kernel_list quant_kernels;

#define REALS (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE))
#define BIT(type) DTYPE_BIT(DT_##type)
#define BYTES (BIT(QUINT8) | BIT(QINT8))

static const struct pooling_op max_pool = {POOLING_MAX, 2}, avg_pool = {POOLING_AVG, 2};

// clang-format off
#define FAKE(name, fn) {name, .compute = fn, .init = quant_fake_init}
#define SIMULATE(name, fn) {name, {{"T", REALS}}, fn, quant_simulate_init}
static const struct kernel_def rows[] = {
    FAKE("FakeQuantWithMinMaxArgs", quant_fake),
    FAKE("FakeQuantWithMinMaxArgsGradient", quant_fake_grad),
    FAKE("FakeQuantWithMinMaxVars", quant_fake),
    FAKE("FakeQuantWithMinMaxVarsGradient", quant_fake_grad),
    FAKE("FakeQuantWithMinMaxVarsPerChannel", quant_fake_channels),
    FAKE("FakeQuantWithMinMaxVarsPerChannelGradient", quant_fake_channels_grad),
    SIMULATE("QuantizeAndDequantize", quant_simulate),
    SIMULATE("QuantizeAndDequantizeV2", quant_simulate),
    SIMULATE("QuantizeAndDequantizeV3", quant_simulate),
    SIMULATE("QuantizeAndDequantizeV4", quant_simulate),
    SIMULATE("QuantizeAndDequantizeV4Grad", quant_simulate_grad),
    {"QuantizeV2", {{"T", DTYPES_QUANTIZED}}, quant_quantize, quant_convert_init},
    {"Dequantize", {{"T", DTYPES_QUANTIZED}, {"dtype", BIT(FLOAT) | BIT(BFLOAT16)}},
        quant_dequantize, quant_convert_init},
    {"Requantize", {{"Tinput", BIT(QINT32)}, {"out_type", BIT(QUINT8) | BIT(QINT8)}},
        quant_requantize},
    {"RequantizationRange", {{"Tinput", BIT(QINT32)}}, quant_used_range},
    {"QuantizeDownAndShrinkRange", {{"Tinput", BIT(QINT32)}, {"out_type", BIT(QUINT8)}},
        quant_shrink_range},
    {"QuantizedRelu", {{"Tinput", BIT(QINT32)}, {"out_type", BIT(QINT32)}}, quant_relu},
    {"QuantizedRelu", {{"Tinput", BIT(QUINT8)}, {"out_type", BIT(QUINT8)}}, quant_relu},
    {"QuantizedRelu6", {{"Tinput", BIT(QINT32)}, {"out_type", BIT(QINT32)}}, quant_relu},
    {"QuantizedRelu6", {{"Tinput", BIT(QUINT8)}, {"out_type", BIT(QUINT8)}}, quant_relu},
    {"QuantizedBiasAdd", {{"T1", BIT(QUINT8)}, {"T2", BIT(QUINT8)}, {"out_type", BIT(QINT32)}},
        quant_bias_add},
    {"QuantizedBiasAdd", {{"T1", BIT(QINT8)}, {"T2", BIT(QINT8)}, {"out_type", BIT(QINT32)}},
        quant_bias_add},
    {"QuantizedAdd", {{"T1", BIT(QUINT8)}, {"T2", BIT(QUINT8)}, {"Toutput", BIT(QINT32)}},
        quant_add},
    {"QuantizedMul", {{"T1", BIT(QUINT8)}, {"T2", BIT(QUINT8)}, {"Toutput", BIT(QINT32)}},
        quant_mul},
    {"QuantizedMatMul", {{"T1", BIT(QUINT8)}, {"T2", BIT(QUINT8)}, {"Toutput", BIT(QINT32)}},
        quant_matmul, quant_matmul_init},
    {"QuantizedConv2D", {{"Tinput", BIT(QUINT8)}, {"Tfilter", BIT(QUINT8)},
        {"out_type", BIT(QINT32)}}, quant_conv, quant_conv_init},
    {"QuantizedMaxPool", {{"T", BYTES}}, quant_pooling, pooling_init, .arg = &max_pool},
    {"QuantizedAvgPool", {{"T", BYTES}}, quant_pooling, pooling_init, .arg = &avg_pool},
    {"QuantizedConcat", {{"T", BIT(QUINT8) | BIT(QINT32)}}, quant_concat},
    {"QuantizedReshape", {{"T", BIT(QUINT8) | BIT(QINT32)}}, quant_reshape},
    {"QuantizedBatchNormWithGlobalNormalization",
        {{"Tinput", BIT(QUINT8)}, {"out_type", BIT(QINT32)}}, quant_batch_norm,
     quant_batch_norm_init},
    {"QuantizedInstanceNorm", {{"T", BIT(QUINT8)}}, quant_instance_norm, quant_instance_norm_init},
    {"QuantizedResizeBilinear", {{"T", BIT(QUINT8) | BIT(QINT32) | BIT(FLOAT)}}, quant_resize,
        quant_resize_init},
    {"RequantizationRangePerChannel", {{"T", BIT(QINT32)}}, quant_used_range_channels,
        quant_channels_init},
    {"RequantizePerChannel", {{"T", BIT(QINT32)}, {"out_type", BYTES}}, quant_requantize_channels},
};
// clang-format on

const struct kernel_list quant_kernels = {rows, ARRAY_LEN(rows)};
