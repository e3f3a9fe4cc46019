/* Lists the CPU kernels of normalisation. */
#include "kernels/cpu/nn/norm_internal.h"

#define NARROW_OR_FLOAT (DTYPES_REAL_FLOAT & ~DTYPE_BIT(DT_DOUBLE))
#define GLOBAL_TYPES (DTYPES_REAL_FLOAT & ~DTYPE_BIT(DT_BFLOAT16))
#define LRN_TYPES (DTYPE_BIT(DT_HALF) | DTYPE_BIT(DT_FLOAT))

// clang-format off
#define FUSED(op, function) {op, {{"T", NARROW_OR_FLOAT}, {"U", DTYPE_BIT(DT_FLOAT)}}, function, \
    batch_norm_init}

static const struct kernel_def rows[] = {
    {"FusedBatchNorm", {{"T", DTYPE_BIT(DT_FLOAT)}}, batch_norm_compute, batch_norm_init},
    FUSED("FusedBatchNormV2", batch_norm_compute),
    FUSED("FusedBatchNormV3", batch_norm_compute),
    {"FusedBatchNormGrad", {{"T", DTYPE_BIT(DT_FLOAT)}}, batch_norm_grad_compute, batch_norm_init},
    FUSED("FusedBatchNormGradV2", batch_norm_grad_compute),
    FUSED("FusedBatchNormGradV3", batch_norm_grad_compute),
    {"BatchNormWithGlobalNormalization",     {{"T", GLOBAL_TYPES}}, global_norm_compute,
        global_norm_init},
    {"BatchNormWithGlobalNormalizationGrad", {{"T", GLOBAL_TYPES}}, global_norm_grad_compute,
        global_norm_init},
    {"LRN",     {{"T", LRN_TYPES}}, lrn_compute,      lrn_init},
    {"LRNGrad", {{"T", LRN_TYPES}}, lrn_grad_compute, lrn_init},
};
// clang-format on

const struct kernel_list norm_kernels = {rows, ARRAY_LEN(rows)};
