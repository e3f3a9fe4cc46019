/* The generator of random numbers on a device: the CPU's (kernels/support/philox.h), and numbers
 * from its words. Normal numbers differ from the CPU's by the last bits of log, sin and cos. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_RANDOM_H
#define MILLRACE_KERNELS_CUDA_OPS_RANDOM_H

#include "kernels/cuda/ops/device_types.h"
#include "kernels/cuda/ops/random_args.h"

enum { RANDOM_ROUNDS = 10 };

struct random_block {
    uint32_t words[4];
};
struct random_state {
    uint64_t key, lo, hi;
};

/* Philox 4x32-10, as kernels/support/philox.h. */
__device__ static inline random_block random_words(const random_state &state) {
    uint32_t c0 = (uint32_t)state.lo, c1 = (uint32_t)(state.lo >> 32), c2 = (uint32_t)state.hi,
             c3 = (uint32_t)(state.hi >> 32), k0 = (uint32_t)state.key,
             k1 = (uint32_t)(state.key >> 32);
    for (int round = 0; round < RANDOM_ROUNDS; round++) {
        uint32_t high0 = __umulhi(c0, 0xD2511F53u), low0 = c0 * 0xD2511F53u;
        uint32_t high1 = __umulhi(c2, 0xCD9E8D57u), low1 = c2 * 0xCD9E8D57u;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    random_block block = {{c0, c1, c2, c3}};
    return block;
}
__device__ static inline random_state random_skip(random_state state, uint64_t n_blocks) {
    state.lo += n_blocks;
    state.hi += state.lo < n_blocks;
    return state;
}
__device__ static inline random_state random_start(const random_args &args) {
    random_state state = {args.key, args.lo, args.hi};
    if (args.key_at)
        state.key = args.key_at[0];
    if (args.counter_at) {
        state.lo = args.counter_at[0];
        state.hi = args.counter_at[1];
    }
    return state;
}

__device__ static inline float random_f32(uint32_t word) {
    return __uint_as_float((word & 0x7fffffu) | 0x3f800000u) - 1.0f;
}
__device__ static inline double random_f64(uint32_t high, uint32_t low) {
    uint64_t bits = ((uint64_t)(high & 0xfffffu) << 32) | low | 0x3ff0000000000000u;
    return __longlong_as_double((long long)bits) - 1.0;
}
#define RANDOM_TWO_PI 6.283185307179586476925286766559
__device__ static inline void random_pair(uint32_t a, uint32_t b, float out[2]) {
    float u = random_f32(a), sine, cosine;
    u = u < 1.0e-7f ? 1.0e-7f : u;
    float angle = (float)(RANDOM_TWO_PI * (double)random_f32(b)), radius = sqrtf(-2.0f * logf(u));
    sincosf(angle, &sine, &cosine);
    out[0] = sine * radius;
    out[1] = cosine * radius;
}
__device__ static inline void random_pair(const random_block &block, double out[2]) {
    double u = random_f64(block.words[0], block.words[1]), sine, cosine;
    u = u < 1.0e-7 ? 1.0e-7 : u;
    double angle = RANDOM_TWO_PI * random_f64(block.words[2], block.words[3]),
           radius = sqrt(-2.0 * log(u));
    sincos(angle, &sine, &cosine);
    out[0] = sine * radius;
    out[1] = cosine * radius;
}

/* In half and bfloat16 the low 10 or 7 bits are the fraction of a number in [1, 2). */
template <class T> struct random_fraction { static const uint32_t mask = 0x7fu; };
template <> struct random_fraction<__half> { static const uint32_t mask = 0x3ffu; };
template <class T> __device__ static inline float random_uniform_of(uint32_t word) {
    const uint32_t mask = random_fraction<T>::mask;
    return (float)(word & mask) * (mask == 0x3ffu ? 0.0009765625f : 0.0078125f);
}
template <> __device__ inline float random_uniform_of<float>(uint32_t word) {
    return random_f32(word);
}

__device__ static inline void random_normals(const random_block &block, float out[4]) {
    random_pair(block.words[0], block.words[1], out);
    random_pair(block.words[2], block.words[3], out + 2);
}
__device__ static inline void random_normals(const random_block &block, double out[2]) {
    random_pair(block, out);
}

#endif
