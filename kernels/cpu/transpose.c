/* Transposed blocks (transpose.h).
 *
 * A block is 16 rows of 16 elements: whole cache lines on either side. Its rows are read whole into a copy first, and written whole: at
 * strides of a power of two all 16 fall in one set of the cache, and would push each other out. Tiles of the copy, of 32 bytes a row, are
 * turned in registers: pairs of elements of neighbouring rows are joined, then pairs of those, then halves. */
#include "kernels/cpu/transpose.h"

#include <string.h>

#include "common/base/base.h"
#include "kernels/cpu/lanes.h"

enum { BLOCK = 16, TILE_BYTES = 32 };

typedef uint32_t row_u32 __attribute__((vector_size(TILE_BYTES), aligned(4), may_alias));
typedef uint64_t row_u64 __attribute__((vector_size(TILE_BYTES), aligned(8), may_alias));

LANES_INLINE void turn_u32(uint32_t *to, int64_t to1, const uint32_t *from) {
    row_u32 r[8], t[8];
    for (int i = 0; i < 8; i++)
        r[i] = *(const row_u32 *)(from + i * BLOCK);
    for (int i = 0; i < 8; i += 2) {
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            r[i + 2 * k] = __builtin_shufflevector(t[i + k], t[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            r[i + 2 * k + 1] = __builtin_shufflevector(t[i + k], t[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; i++) {
        *(row_u32 *)(to + i * to1) = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(row_u32 *)(to + (i + 4) * to1) = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

LANES_INLINE void turn_u64(uint64_t *to, int64_t to1, const uint64_t *from) {
    row_u64 r[4], t[4];
    for (int i = 0; i < 4; i++)
        r[i] = *(const row_u64 *)(from + i * BLOCK);
    for (int i = 0; i < 4; i += 2) {
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 4, 2, 6);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 1, 5, 3, 7);
    }
    for (int i = 0; i < 2; i++) {
        *(row_u64 *)(to + i * to1) = __builtin_shufflevector(t[i], t[i + 2], 0, 1, 4, 5);
        *(row_u64 *)(to + (i + 2) * to1) = __builtin_shufflevector(t[i], t[i + 2], 2, 3, 6, 7);
    }
}

#define TURN(tag, T)                                                  \
    LANES_INLINE void turn_##tag(T *to, int64_t to1, const T *from) { \
        for (int i1 = 0; i1 < BLOCK; i1++)                            \
            for (int i0 = 0; i0 < BLOCK; i0++)                        \
                to[i1 * to1 + i0] = from[i0 * BLOCK + i1];            \
    }
TURN(u8, uint8_t)
TURN(u16, uint16_t)
TURN(u128, struct wide_element)

#define TRANSPOSE(tag, T, TILE)                                                                                    \
    LANES_INLINE void block_##tag(T *to, const T *from, int64_t to1, int64_t from0) {                              \
        T block[BLOCK * BLOCK] __attribute__((aligned(64)));                                                       \
        for (int i = 0; i < BLOCK; i++)                                                                            \
            memcpy(block + i * BLOCK, from + i * from0, BLOCK * sizeof(T));                                        \
        for (int i1 = 0; i1 < BLOCK; i1 += TILE)                                                                   \
            for (int i0 = 0; i0 < BLOCK; i0 += TILE)                                                               \
                turn_##tag(to + i1 * to1 + i0, to1, block + i0 * BLOCK + i1);                                      \
    }                                                                                                              \
    VECTOR_CLONES void transpose_##tag(T *to, const T *from, int64_t n1, int64_t n0, int64_t to1, int64_t from0) { \
        for (int64_t b1 = 0; b1 < n1; b1 += BLOCK) {                                                               \
            for (int64_t b0 = 0; b0 < n0; b0 += BLOCK) {                                                           \
                int64_t e1 = MIN(b1 + BLOCK, n1), e0 = MIN(b0 + BLOCK, n0);                                        \
                if (e1 - b1 == BLOCK && e0 - b0 == BLOCK) {                                                        \
                    block_##tag(to + b1 * to1 + b0, from + b1 + b0 * from0, to1, from0);                           \
                    continue;                                                                                      \
                }                                                                                                  \
                for (int64_t i1 = b1; i1 < e1; i1++)                                                               \
                    for (int64_t i0 = b0; i0 < e0; i0++)                                                           \
                        to[i1 * to1 + i0] = from[i1 + i0 * from0];                                                 \
            }                                                                                                      \
        }                                                                                                          \
    }
TRANSPOSE(u8, uint8_t, BLOCK)
TRANSPOSE(u16, uint16_t, BLOCK)
TRANSPOSE(u32, uint32_t, TILE_BYTES / 4)
TRANSPOSE(u64, uint64_t, TILE_BYTES / 8)
TRANSPOSE(u128, struct wide_element, BLOCK)
