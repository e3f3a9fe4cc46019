/* Lists the CPU kernels of pooling. */
#include "kernels/cpu/nn/pooling.h"

const struct pooling_op pooling_max_2d = {POOLING_MAX, 2}, pooling_max_2d_v2 = {POOLING_MAX, 2, 1};
static const struct pooling_op max_grad_2d = {POOLING_MAX_GRAD, 2};
static const struct pooling_op max_grad_2d_v2 = {POOLING_MAX_GRAD, 2, 3},
                               max_grad_grad_2d = {POOLING_MAX_GRAD_GRAD, 2};
static const struct pooling_op max_grad_grad_2d_v2 = {POOLING_MAX_GRAD_GRAD, 2, 3},
                               argmax = {POOLING_ARGMAX, 2}, argmax_grad = {POOLING_ARGMAX_GRAD, 2};
static const struct pooling_op avg_2d = {POOLING_AVG, 2}, avg_grad_2d = {POOLING_AVG_GRAD, 2};
static const struct pooling_op max_3d = {POOLING_MAX, 3}, max_grad_3d = {POOLING_MAX_GRAD, 3},
                               max_grad_grad_3d = {POOLING_MAX_GRAD_GRAD, 3};
static const struct pooling_op avg_3d = {POOLING_AVG, 3}, avg_grad_3d = {POOLING_AVG_GRAD, 3};

/* The types that the op itself allows. */
#define MAX_TYPES (DTYPES_REAL & ~(DTYPE_BIT(DT_UINT32) | DTYPE_BIT(DT_UINT64)))
#define VOLUME_TYPES (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_BFLOAT16) | DTYPE_BIT(DT_HALF))
#define FRACTIONAL_TYPES (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPES_INDEX)

// clang-format off
#define POOL(op, types, which) {op, {{"T", types}}, pooling_compute, pooling_init, \
    .arg = &(which)}

static const struct kernel_def rows[] = {
    POOL("MaxPool",           MAX_TYPES,         pooling_max_2d),
    POOL("MaxPoolV2",         MAX_TYPES,         pooling_max_2d_v2),
    POOL("MaxPoolGrad",       DTYPES_REAL,       max_grad_2d),
    POOL("MaxPoolGradV2",     DTYPES_REAL,       max_grad_2d_v2),
    POOL("MaxPoolGradGrad",   DTYPES_REAL,       max_grad_grad_2d),
    POOL("MaxPoolGradGradV2", DTYPES_REAL,       max_grad_grad_2d_v2),
    POOL("AvgPool",           DTYPES_REAL_FLOAT, avg_2d),
    POOL("AvgPoolGrad",       DTYPES_REAL_FLOAT, avg_grad_2d),
    POOL("MaxPool3D",         VOLUME_TYPES,      max_3d),
    POOL("MaxPool3DGrad",     VOLUME_TYPES,      max_grad_3d),
    POOL("MaxPool3DGradGrad", VOLUME_TYPES,      max_grad_grad_3d),
    POOL("AvgPool3D",         VOLUME_TYPES,      avg_3d),
    POOL("AvgPool3DGrad",     VOLUME_TYPES,      avg_grad_3d),
    {"FractionalMaxPool",     {{"T", FRACTIONAL_TYPES}}, fractional_compute, fractional_init,
        .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE},
    {"FractionalAvgPool",     {{"T", FRACTIONAL_TYPES}}, fractional_compute, fractional_init,
        .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE},
    {"FractionalMaxPoolGrad", {{"T", FRACTIONAL_TYPES}}, fractional_grad_compute, fractional_init},
    {"FractionalAvgPoolGrad", {{"T", FRACTIONAL_TYPES}}, fractional_grad_compute, fractional_init},
    {"MaxPoolWithArgmax",     {{"T", DTYPES_REAL}, {"Targmax", DTYPES_INDEX}}, pooling_compute,
        pooling_init, .arg = &argmax},
    {"MaxPoolGradWithArgmax", {{"T", DTYPES_REAL}, {"Targmax", DTYPE_BIT(DT_INT64)}},
        pooling_argmax_grad, pooling_init, .arg = &argmax_grad},
};
// clang-format on

const struct kernel_list pooling_kernels = {rows, ARRAY_LEN(rows)};
