/* The words of a Philox stream one after the other, and single numbers made of them: for
 * samplers that draw until they are content. The same numbers as TensorFlow's for the same
 * generator. Threads: one at a time. */
#ifndef MILLRACE_KERNELS_SUPPORT_PHILOX_WORDS_H
#define MILLRACE_KERNELS_SUPPORT_PHILOX_WORDS_H

#include "kernels/support/philox.h"

struct philox_words {
    struct philox next; /* block; a stream begins with nothing but this */
    uint32_t block[PHILOX_BLOCK];
    int n_left; /* of the block */
};

static inline uint32_t philox_words_u32(struct philox_words *words) {
    if (words->n_left == 0) {
        philox_next(&words->next, words->block);
        words->n_left = PHILOX_BLOCK;
    }
    return words->block[PHILOX_BLOCK - words->n_left--];
}
static inline uint64_t philox_words_u64(struct philox_words *words) {
    uint32_t low = philox_words_u32(words);
    return philox_u64(low, philox_words_u32(words));
}
/* In [0, 1). */
static inline float philox_words_f32(struct philox_words *words) {
    return philox_f32(philox_words_u32(words));
}
static inline double philox_words_f64(struct philox_words *words) {
    uint32_t high = philox_words_u32(words);
    return philox_f64(high, philox_words_u32(words));
}

/* Below n > 0, each number as likely as any other: a power of two takes the low bits, others
 * refuse the 2^32 mod n (2^64 mod n) lowest words, so that the rest divides evenly. */
static inline uint32_t philox_words_below_u32(struct philox_words *words, uint32_t n) {
    uint32_t word = philox_words_u32(words);
    if ((n & (n - 1)) == 0)
        return word & (n - 1);
    while (word < UINT32_MAX % n + 1)
        word = philox_words_u32(words);
    return word % n;
}
static inline uint64_t philox_words_below_u64(struct philox_words *words, uint64_t n) {
    uint64_t word = philox_words_u64(words);
    if ((n & (n - 1)) == 0)
        return word & (n - 1);
    while (word < UINT64_MAX % n + 1)
        word = philox_words_u64(words);
    return word % n;
}

#endif
