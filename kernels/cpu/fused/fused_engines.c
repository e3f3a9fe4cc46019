/* Lists the engines that compute the instructions of fused programs block by block. */
#include "kernels/cpu/fused/fused_internal.h"
#include "kernels/cpu/math/math_blocks.h"
#include "kernels/cpu/nn/nn_blocks.h"

static const struct block_engine *const engines[] = {
    &math_binary_engine,    &math_unary_engine, &math_cast_engine,  &math_select_engine,
    &math_select_v2_engine, &math_clip_engine,  &math_add_n_engine, &math_approximate_engine,
    &nn_activation_engine,  &nn_bias_engine,
};

const struct block_engine *fused_engine_find(kernel_fn *compute) {
    for (size_t i = 0; i < ARRAY_LEN(engines); i++)
        if (engines[i]->compute == compute)
            return engines[i];
    return NULL;
}
