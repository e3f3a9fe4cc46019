/* Converts runs of half and bfloat16 elements; see half_blocks.h. */
#include "kernels/support/half_blocks.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "common/base/pool_cancel.h"
#include "common/tensor/float16.h"

enum { PIECE = 1 << 20 }; /* elements that take about a millisecond */

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

/* Processors since 2012 convert halves in hardware with the same bits: they round ties to even, and
 * they make NaNs quiet and keep the upper payload. */
#ifdef __x86_64__
#define CONVERTS __attribute__((target("avx,f16c")))
CONVERTS static void load_half_f16c(float *restrict to, const uint16_t *restrict from, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
    for (; i < n; i++)
        to[i] = half_to_float(from[i]);
}
CONVERTS static void store_half_f16c(uint16_t *restrict to, const float *restrict from, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        to[i] = half_from_float(from[i]);
}
static bool has_f16c(void) {
    /* a processor with AVX2 has F16C as well, and clang 14 cannot ask for F16C */
    return __builtin_cpu_supports("avx2");
}
#else
#define load_half_f16c load_half
#define store_half_f16c store_half
static bool has_f16c(void) { return false; }
#endif

void half_block_load(enum dtype type, float *to, const uint16_t *from, int64_t n) {
    void (*load)(float *restrict, const uint16_t *restrict, int64_t) = type != DT_HALF
                                                                           ? load_bfloat16
                                                                       : has_f16c() ? load_half_f16c
                                                                                    : load_half;
    if (likely(n <= PIECE)) {
        load(to, from, n);
        return;
    }
    for (int64_t at = 0; at < n && (at == 0 || !pool_is_unwanted()); at += PIECE)
        load(to + at, from + at, MIN(n - at, (int64_t)PIECE));
}
void half_block_store(enum dtype type, uint16_t *to, const float *from, int64_t n) {
    void (*store)(uint16_t *restrict, const float *restrict, int64_t) =
        type != DT_HALF ? store_bfloat16
        : has_f16c()    ? store_half_f16c
                        : store_half;
    if (likely(n <= PIECE)) {
        store(to, from, n);
        return;
    }
    for (int64_t at = 0; at < n && (at == 0 || !pool_is_unwanted()); at += PIECE)
        store(to + at, from + at, MIN(n - at, (int64_t)PIECE));
}

float half_value_load(enum dtype type, uint16_t v) {
    return type == DT_HALF ? half_to_float(v) : bfloat16_to_float(v);
}
uint16_t half_value_store(enum dtype type, float v) {
    return type == DT_HALF ? half_from_float(v) : bfloat16_from_float(v);
}
