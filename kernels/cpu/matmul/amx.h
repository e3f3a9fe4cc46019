/* Products of floats on the matrix unit of x86-64 processors (AMX), which multiplies bfloat16.
 *
 * A float is the exact sum of three bfloat16: its 24 significant bits are cut into 8, 8 and 8.
 *
 *   x = high + middle + low        x · y = hh + (hm + mh + mm + hl + lh) + parts below 2^-24 of hh
 *
 * So six products of bfloat16 give one of floats, as exact as a float product rounds. The unit does
 * 512 multiplications a cycle, AVX-512 does 32 of floats.
 *
 * Infinities and NaN have no such parts. Every result that one of them takes part in is NaN, so
 * callers look for NaN in the results, and compute again by other means. Numbers below 2^-110 lose
 * bits of their low parts, since the unit reads denormal numbers as zero.
 *
 * Tiles are 16 rows of 64 bytes. A left tile has rows of 32 values along k. A right tile has, for
 * each pair of values along k, 16 columns of two values. Its three parts lie behind each other. */
#ifndef MILLRACE_KERNELS_CPU_MATMUL_AMX_H
#define MILLRACE_KERNELS_CPU_MATMUL_AMX_H

#include "common/base/base.h"

/* Answers whether this processor and system have the unit. Asks the system once. Any thread. */
bool amx_is_there(void);

enum {
    AMX_ROWS = 16,
    AMX_COLUMNS = 16,
    AMX_DEPTH = 32,          /* values along k of a tile */
    AMX_PARTS = 3,           /* bfloat16 of a float */
    AMX_TILE = 16 * 32,      /* bfloat16 of a tile */
    AMX_TRIPLE = 3 * 16 * 32 /* of the three parts of a tile */
};

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_AMX_FILES 1
#include <immintrin.h>

#define AMX_CODE __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw")))
#define AMX_INLINE AMX_CODE static inline __attribute__((always_inline))

/* Every thread configures its tiles before it multiplies, and releases them after it. Between the
 * two calls the thread's other code must not use tiles. */
AMX_INLINE void amx_begin(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config __attribute__((aligned(64))) = {.palette = 1};
    for (int i = 0; i < 8; i++)
        config.row_bytes[i] = 64, config.rows[i] = AMX_ROWS;
    __asm__ volatile("" : : "m"(config)); /* GCC 12 thinks that only 8 bytes are read */
    _tile_loadconfig(&config);
}
AMX_INLINE void amx_end(void) { _tile_release(); }

/* Cuts floats, two vectors at a time, and stores the parts as words: the first vector's value in
 * the lower half of each. */
struct amx_words {
    __m512i part[AMX_PARTS];
};
AMX_INLINE __m512 amx_high_of(__m512 x) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0xffff0000)));
}
AMX_INLINE struct amx_words amx_cut_words(__m512 even, __m512 odd) {
    struct amx_words words;
    for (int p = 0; p < AMX_PARTS; p++) {
        __m512 e = amx_high_of(even), o = amx_high_of(odd);
        words.part[p] =
            _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(e), 16), _mm512_castps_si512(o));
        even = _mm512_sub_ps(even, e), odd = _mm512_sub_ps(odd, o);
    }
    return words;
}
/* The same for 32 values in a row. */
AMX_INLINE struct amx_words amx_cut_row(__m512 first, __m512 second) {
    struct amx_words words;
    __m512i odd_halves =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    for (int p = 0; p < AMX_PARTS; p++) {
        words.part[p] = _mm512_permutex2var_epi16(_mm512_castps_si512(first), odd_halves,
                                                  _mm512_castps_si512(second));
        first = _mm512_sub_ps(first, amx_high_of(first));
        second = _mm512_sub_ps(second, amx_high_of(second));
    }
    return words;
}

/* The sums of two blocks of 16 x 16 results, one below the other, stay in tiles 0 and 1. */
AMX_INLINE void amx_zero_sums(void) {
    _tile_zero(0);
    _tile_zero(1);
}

/* Where tiles lie: the parts are `part` values apart, the rows `stride` bytes. */
struct amx_layout {
    int64_t part, stride;
};
static const struct amx_layout amx_packed = {AMX_TILE, 64};

/* Adds a part of a left tile times the right tile 3 to the sums in tile 0 or 1. */
#define AMX_ADD_PART(sums, part, layout)         \
    do {                                         \
        _tile_loadd(2, (part), (layout).stride); \
        _tile_dpbf16ps(sums, 2, 3);              \
    } while (0)

/* Adds 32 x 32 times 32 x 16 values: `a` and `b` are the left tiles of the two blocks.
 *
 * Only four tiles are in use. Two hardware threads share a core's tile registers, and renaming
 * needs free ones: when the other thread is busy, the same sums with eight tiles take 2.3 times as
 * long. Loads cost little, so each left tile is loaded again where a register would have kept it.
 * Both blocks add their parts in the same order: lh, mh, hh, hm, mm, hl. */
AMX_INLINE void amx_add(const uint16_t *a, const uint16_t *b, struct amx_layout left,
                        const uint16_t *c, struct amx_layout right) {
    const int64_t middle = left.part, low = 2 * left.part;
    _tile_loadd(3, c, right.stride);
    AMX_ADD_PART(0, a + low, left);
    AMX_ADD_PART(0, a + middle, left);
    AMX_ADD_PART(0, a, left);
    AMX_ADD_PART(1, b + low, left);
    AMX_ADD_PART(1, b + middle, left);
    AMX_ADD_PART(1, b, left);
    _tile_loadd(3, c + right.part, right.stride);
    _tile_dpbf16ps(1, 2, 3); /* with b, which is in tile 2 still */
    AMX_ADD_PART(1, b + middle, left);
    AMX_ADD_PART(0, a, left);
    AMX_ADD_PART(0, a + middle, left);
    _tile_loadd(3, c + 2 * right.part, right.stride);
    AMX_ADD_PART(0, a, left);
    AMX_ADD_PART(1, b, left);
}

/* Stores the sums of both blocks as 32 rows of 16 floats. */
AMX_INLINE void amx_store_sums(float *ret) {
    _tile_stored(0, ret, 64);
    _tile_stored(1, ret + AMX_ROWS * AMX_COLUMNS, 64);
}

/* Are all values of `rows` rows finite, whose starts are `stride` elements apart? */
bool amx_are_finite(const float *values, int64_t rows, int64_t columns, int64_t stride);
/* Returns aligned memory that belongs to this thread, until its next call or its end. */
void *amx_thread_memory(size_t size);
/* Makes left or right tiles of n x depth floats, where n is at most 16 and depth at most 32. The
 * rest of a tile is zeros. Value (i, k) is at values[i * stride + k], or, with `by_k`, at values[k
 * * stride + i]. */
void amx_pack_left(const float *values, int64_t stride, bool by_k, int n, int depth, uint16_t *ret);
void amx_pack_right(const float *values, int64_t stride, bool by_k, int n, int depth,
                    uint16_t *ret);
#else
#define HAS_AMX_FILES 0
#endif

#endif
