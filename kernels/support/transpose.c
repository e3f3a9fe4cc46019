/* Transposes blocks; see transpose.h.
 *
 * A block is 64 rows of 16 elements. Its rows are first read whole, as cache lines, into a copy,
 * and then written in runs of 64 elements. Without the copy, at strides of a power of two, all rows
 * would fall into one set of the cache and evict each other. Where elements have 4 or 8 bytes,
 * tiles of the copy with 32 bytes per row are transposed in registers: pairs of elements of
 * neighbouring rows are joined, then pairs of those, then halves. */
#include "kernels/support/transpose.h"

#include <string.h>

#include "common/base/base.h"
#include "kernels/support/lanes.h"

enum { BLOCK = 16, LONG_BLOCK = 64, TILE_BYTES = 32 };

typedef uint32_t row_u32 __attribute__((vector_size(TILE_BYTES), aligned(4), may_alias));
typedef uint64_t row_u64 __attribute__((vector_size(TILE_BYTES), aligned(8), may_alias));

/* Writes the columns of the tile at `from` as rows. */
LANES_INLINE void transpose_tile_u32(row_u32 *to, const uint32_t *from) {
    row_u32 r[8], t[8];
    for (int i = 0; i < 8; i++)
        r[i] = *(const row_u32 *)(from + i * BLOCK);
    for (int i = 0; i < 8; i += 2) {
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            r[i + 2 * k] =
                __builtin_shufflevector(t[i + k], t[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            r[i + 2 * k + 1] =
                __builtin_shufflevector(t[i + k], t[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; i++) {
        to[i] = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        to[i + 4] = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

LANES_INLINE void transpose_tile_u64(row_u64 *to, const uint64_t *from) {
    row_u64 r[4], t[4];
    for (int i = 0; i < 4; i++)
        r[i] = *(const row_u64 *)(from + i * BLOCK);
    for (int i = 0; i < 4; i += 2) {
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 4, 2, 6);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 1, 5, 3, 7);
    }
    for (int i = 0; i < 2; i++) {
        to[i] = __builtin_shufflevector(t[i], t[i + 2], 0, 1, 4, 5);
        to[i + 2] = __builtin_shufflevector(t[i], t[i + 2], 2, 3, 6, 7);
    }
}

/* Turns two tiles, one below the other, so that each written row is a whole cache line. */
#define TRANSPOSE_TILES(tag, T)                                                                  \
    LANES_INLINE void transpose_run_##tag(T *to, int64_t to1, const T *from, const int n_rows) { \
        enum { TILE = TILE_BYTES / sizeof(T) };                                                  \
        row_##tag left[TILE], right[TILE];                                                       \
        for (int i1 = 0; i1 < BLOCK; i1 += TILE) {                                               \
            for (int i0 = 0; i0 < n_rows; i0 += 2 * TILE) {                                      \
                transpose_tile_##tag(left, from + i0 * BLOCK + i1);                              \
                transpose_tile_##tag(right, from + (i0 + TILE) * BLOCK + i1);                    \
                for (int i = 0; i < TILE; i++) {                                                 \
                    *(row_##tag *)(to + (i1 + i) * to1 + i0) = left[i];                          \
                    *(row_##tag *)(to + (i1 + i) * to1 + i0 + TILE) = right[i];                  \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
    }
TRANSPOSE_TILES(u32, uint32_t)
TRANSPOSE_TILES(u64, uint64_t)

#define TRANSPOSE(tag, T)                                                                        \
    LANES_INLINE void transpose_run_##tag(T *to, int64_t to1, const T *from, const int n_rows) { \
        for (int i1 = 0; i1 < BLOCK; i1++)                                                       \
            for (int i0 = 0; i0 < n_rows; i0++)                                                  \
                to[i1 * to1 + i0] = from[i0 * BLOCK + i1];                                       \
    }
TRANSPOSE(u8, uint8_t)
TRANSPOSE(u16, uint16_t)
TRANSPOSE(u128, struct wide_element)

#define NAME(x) x##_u8
#define T uint8_t
#include "kernels/support/transpose.inc"
#define NAME(x) x##_u16
#define T uint16_t
#include "kernels/support/transpose.inc"
#define NAME(x) x##_u32
#define T uint32_t
#include "kernels/support/transpose.inc"
#define NAME(x) x##_u64
#define T uint64_t
#include "kernels/support/transpose.inc"
#define NAME(x) x##_u128
#define T struct wide_element
#include "kernels/support/transpose.inc"
