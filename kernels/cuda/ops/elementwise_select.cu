/* Kernels that take one of several operands element by element, and kernels that fill. See
 * elementwise_forms.h. */
#include "kernels/cuda/ops/elementwise_forms.h"

/* Select, SelectV2: x where the condition holds, else y. Only the size of an element matters. */
#define SELECT(suffix, T) \
    ELEMENTWISE_OP(select_##suffix, uint8_t, T, T, T, 3, return first_ ? second_ : third_;)
GPU_EACH_SIZE(SELECT)

/* ClipByValue: x limited to [y, z]. A NaN in x stays NaN, and a limit that is NaN has no effect. */
EACH_FLOAT(TERNARY, clip, z < x ? z < y ? y : z : x < y ? y : x)
EACH_INT(TERNARY, clip, z < x ? z < y ? y : z : x < y ? y : x)

/* Fill, OnesLike: the only element of the operand. */
#define FILL(suffix, T) ELEMENTWISE_OP(fill_##suffix, T, T, T, T, 1, return first_;)
GPU_EACH_SIZE(FILL)
