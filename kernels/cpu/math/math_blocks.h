/* The block engines of the elementwise kernels of this folder (kernels/support/block_engine.h). */
#ifndef MILLRACE_KERNELS_CPU_MATH_MATH_BLOCKS_H
#define MILLRACE_KERNELS_CPU_MATH_MATH_BLOCKS_H

#include "kernels/support/block_engine.h"

extern const struct block_engine math_unary_engine, math_binary_engine, math_cast_engine,
    math_select_engine, math_select_v2_engine, math_clip_engine, math_add_n_engine,
    math_approximate_engine;

#endif
