/* The block engines of the elementwise kernels of this folder (kernels/support/block_engine.h). */
#ifndef MILLRACE_KERNELS_CPU_NN_NN_BLOCKS_H
#define MILLRACE_KERNELS_CPU_NN_NN_BLOCKS_H

#include "kernels/support/block_engine.h"

extern const struct block_engine nn_activation_engine, nn_bias_engine;

#endif
