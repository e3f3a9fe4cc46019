/* Reads a Philox stream word by word, and makes single numbers of the words. Samplers that draw
 * until they accept a number use it. The numbers are TensorFlow's for the same generator. One
 * thread at a time may use a stream. */
#ifndef MILLRACE_KERNELS_SUPPORT_PHILOX_WORDS_H
#define MILLRACE_KERNELS_SUPPORT_PHILOX_WORDS_H

#include "kernels/support/philox.h"

struct philox_words {
    struct philox next; /* the next block; a stream begins with only this member set */
    uint32_t block[PHILOX_BLOCK];
    int n_left; /* words of the current block that are not yet read */
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
/* Returns a number uniform in [0, 1). */
static inline float philox_words_f32(struct philox_words *words) {
    return philox_f32(philox_words_u32(words));
}
static inline double philox_words_f64(struct philox_words *words) {
    uint32_t high = philox_words_u32(words);
    return philox_f64(high, philox_words_u32(words));
}

/* Returns a number below n > 0; all are equally likely. When n is a power of two it takes the
 * word's low bits. Otherwise it draws again for the 2^32 mod n (2^64 mod n) lowest words, so that
 * the number of words left is a multiple of n. */
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
