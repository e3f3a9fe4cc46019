/* Lists the CPU kernels of convolutions, patches and data formats. */
#include "kernels/cpu/nn/conv_internal.h"

static const enum conv_direction forward = CONV_FORWARD, backprop_input = CONV_BACKPROP_INPUT,
                                 backprop_filter = CONV_BACKPROP_FILTER;
static const struct conv_op conv_2d[] = {
    {CONV_FORWARD, 2}, {CONV_BACKPROP_INPUT, 2}, {CONV_BACKPROP_FILTER, 2}};
static const struct conv_op conv_3d[] = {
    {CONV_FORWARD, 3}, {CONV_BACKPROP_INPUT, 3}, {CONV_BACKPROP_FILTER, 3}};
static const struct conv_op conv_3d_v1[] = {
    {CONV_FORWARD, 3}, {CONV_BACKPROP_INPUT, 3, true}, {CONV_BACKPROP_FILTER, 3, true}};
static const struct conv_op conv_general = {CONV_FORWARD, 0};
static const int two = 2, three = 3;

#define WITH_INT (DTYPES_REAL_FLOAT | DTYPE_BIT(DT_INT32))
#define WITHOUT_BFLOAT16 (DTYPES_REAL_FLOAT & ~DTYPE_BIT(DT_BFLOAT16))

// clang-format off
#define CONV(op, types, which) {op, {{"T", types}}, conv_compute, conv_init, .arg = &(which)}
#define FORWARD(op, types, which) {op, {{"T", types}}, conv_compute, conv_init, .arg = &(which), \
    .flags = KERNEL_PRODUCT}
#define DEPTHWISE(op, direction) {op, {{"T", DTYPES_REAL_FLOAT}}, depthwise_compute, \
    depthwise_init, .arg = &(direction)}
#define DILATION(op, direction) {op, {{"T", DTYPES_REAL}}, dilation_compute, dilation_init, \
    .arg = &(direction)}

static const struct kernel_def rows[] = {
    FORWARD("Conv2D",              WITH_INT,          conv_2d[0]),
    CONV("Conv2DBackpropInput",    WITH_INT,          conv_2d[1]),
    CONV("Conv2DBackpropFilter",   DTYPES_REAL_FLOAT, conv_2d[2]),
    FORWARD("Conv3D",              DTYPES_REAL_FLOAT, conv_3d[0]),
    CONV("Conv3DBackpropInput",    WITHOUT_BFLOAT16,  conv_3d_v1[1]),
    CONV("Conv3DBackpropInputV2",  DTYPES_REAL_FLOAT, conv_3d[1]),
    CONV("Conv3DBackpropFilter",   WITHOUT_BFLOAT16,  conv_3d_v1[2]),
    CONV("Conv3DBackpropFilterV2", DTYPES_REAL_FLOAT, conv_3d[2]),
    FORWARD("Conv",                WITH_INT,          conv_general),
    DEPTHWISE("DepthwiseConv2dNative",               forward),
    DEPTHWISE("DepthwiseConv2dNativeBackpropInput",  backprop_input),
    DEPTHWISE("DepthwiseConv2dNativeBackpropFilter", backprop_filter),
    DILATION("Dilation2D",               forward),
    DILATION("Dilation2DBackpropInput",  backprop_input),
    DILATION("Dilation2DBackpropFilter", backprop_filter),
    {"ExtractImagePatches",  {{"T", DTYPES_NUMBER}}, patches_compute, patches_init, .arg = &two},
    {"ExtractVolumePatches", {{"T", DTYPES_REAL}},   patches_compute, patches_init, .arg = &three},
    {"DataFormatDimMap",     {{"T", DTYPES_INDEX}},  data_format_dim_map,     data_format_init},
    {"DataFormatVecPermute", {{"T", DTYPES_INDEX}},  data_format_vec_permute, data_format_init},
};
// clang-format on

const struct kernel_list conv_kernels = {rows, ARRAY_LEN(rows)};
