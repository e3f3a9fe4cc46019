/* Conversions of runs of half and bfloat16 elements. */
#include "kernels/cpu/half_blocks.h"

#include "common/tensor/float16.h"

VECTOR_CLONES
static void load_half(float *restrict to, const uint16_t *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = half_to_float(from[i]);
}
VECTOR_CLONES
static void load_bfloat16(float *restrict to, const uint16_t *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = bfloat16_to_float(from[i]);
}
VECTOR_CLONES
static void store_half(uint16_t *restrict to, const float *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = half_from_float(from[i]);
}
VECTOR_CLONES
static void store_bfloat16(uint16_t *restrict to, const float *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = bfloat16_from_float(from[i]);
}

void half_block_load(enum dtype type, float *to, const uint16_t *from, int64_t n) {
    (type == DT_HALF ? load_half : load_bfloat16)(to, from, n);
}
void half_block_store(enum dtype type, uint16_t *to, const float *from, int64_t n) {
    (type == DT_HALF ? store_half : store_bfloat16)(to, from, n);
}

float half_value_load(enum dtype type, uint16_t v) { return type == DT_HALF ? half_to_float(v) : bfloat16_to_float(v); }
uint16_t half_value_store(enum dtype type, float v) { return type == DT_HALF ? half_from_float(v) : bfloat16_from_float(v); }
