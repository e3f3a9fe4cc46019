/* Converts half and bfloat16 to float and back. Kernels compute these two types in float, block by
 * block: they load a block, run the float loop, and store the block, which rounds once. Any thread.
 */
#ifndef MILLRACE_KERNELS_SUPPORT_HALF_BLOCKS_H
#define MILLRACE_KERNELS_SUPPORT_HALF_BLOCKS_H

#include "common/tensor/dtype.h"

enum { HALF_BLOCK = 512 }; /* elements; a few of these fit the first-level cache */

/* Converts n elements. `type` is DT_HALF or DT_BFLOAT16. The two ranges must not overlap. */
void half_block_load(enum dtype type, float *to, const uint16_t *from, int64_t n);
void half_block_store(enum dtype type, uint16_t *to, const float *from, int64_t n);
/* Convert one value. */
float half_value_load(enum dtype type, uint16_t v);
uint16_t half_value_store(enum dtype type, float v);

#endif
