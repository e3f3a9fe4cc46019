/* SplitMix64: a small generator of random numbers from a seed, equal on every host. For searches,
 * tests and simulations; secrets come from random_u64 (clock.h), numbers of ops from their own
 * generators. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
 * 2014. */
#ifndef MILLRACE_COMMON_BASE_SPLITMIX_H
#define MILLRACE_COMMON_BASE_SPLITMIX_H

#include <stdint.h>

/* The next number; *state may start with any value. */
static inline uint64_t splitmix64(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#endif
