/* Generates random words with Philox 4x32-10, a counter-based generator [Salmon, Moraes, Dror,
 * Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11].
 *
 * A block of four 32-bit numbers is a function of a 64-bit key and a 128-bit counter. No block of a
 * stream depends on another one, so threads may split a stream as they like and the numbers stay
 * the same. TensorFlow's streams: the key is seed, the upper half of the counter is seed2, the
 * lower half counts blocks. */
#ifndef MILLRACE_KERNELS_SUPPORT_PHILOX_H
#define MILLRACE_KERNELS_SUPPORT_PHILOX_H

#include <stdint.h>

struct philox {
    uint64_t key;
    uint64_t lo, hi; /* the counter of the next block */
};

enum { PHILOX_BLOCK = 4, PHILOX_ROUNDS = 10 };

/* Computes the block of a counter. */
static inline void philox_block(uint64_t key, uint64_t lo, uint64_t hi,
                                uint32_t out[PHILOX_BLOCK]) {
    uint32_t c0 = (uint32_t)lo, c1 = (uint32_t)(lo >> 32), c2 = (uint32_t)hi,
             c3 = (uint32_t)(hi >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)c0 * 0xD2511F53u, p1 = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* the golden ratio */
        k1 += 0xBB67AE85u; /* √3 - 1 */
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Returns the generator n blocks further on. */
static inline struct philox philox_skip(struct philox g, uint64_t n_blocks) {
    uint64_t lo = g.lo + n_blocks;
    return (struct philox){g.key, lo, g.hi + (lo < n_blocks)};
}
/* Computes the next block and advances the generator by one block. */
static inline void philox_next(struct philox *g, uint32_t out[PHILOX_BLOCK]) {
    philox_block(g->key, g->lo, g->hi, out);
    *g = philox_skip(*g, 1);
}
/* Computes the next n blocks, many at a time: about 0.6 ns a word. */
void philox_fill(struct philox g, int64_t n_blocks, uint32_t *out);

/* ---- numbers from words: the same bits as TensorFlow's ---- */

/* Returns a number uniform in [0, 1). The word's low bits become the fraction of a number in [1,
 * 2). */
static inline float philox_f32(uint32_t word) {
    union {
        uint32_t bits;
        float v;
    } u = {.bits = (word & 0x7fffffu) | 0x3f800000u};
    return u.v - 1.0f;
}
/* As philox_f32, from two words. Here the first word is the upper one; in an integer of two words
 * it is the lower one. */
static inline double philox_f64(uint32_t high, uint32_t low) {
    union {
        uint64_t bits;
        double v;
    } u = {.bits = ((uint64_t)(high & 0xfffffu) << 32) | low | 0x3ff0000000000000u};
    return u.v - 1.0;
}
static inline uint64_t philox_u64(uint32_t low, uint32_t high) {
    return (uint64_t)high << 32 | low;
}

#endif
