/* Computes runs of Philox blocks, several at a time where the machine has AVX2. */
#include "kernels/support/philox.h"

#include "common/base/base.h"

#ifdef __x86_64__
#include <immintrin.h>

/* a block per 64-bit lane; two vectors hide the multiplication's latency, and three would spill */
enum { VECTORS = 2, LANES = 4 * VECTORS };

/* Only the lower half of a lane counts. The upper half holds leftovers, which neither the
 * multiplication nor the final interleaving reads. */
struct lanes {
    __m256i c0, c1, c2, c3;
};

__attribute__((target("avx2"))) static inline void round_avx2(struct lanes *l, __m256i k0,
                                                              __m256i k1) {
    __m256i p0 = _mm256_mul_epu32(l->c0, _mm256_set1_epi64x(0xD2511F53)),
            p1 = _mm256_mul_epu32(l->c2, _mm256_set1_epi64x(0xCD9E8D57));
    l->c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), l->c1), k0);
    l->c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), l->c3), k1);
    l->c1 = p1;
    l->c3 = p0;
}

/* Makes whole steps only, and returns how many blocks were made. The lower half of the counter must
 * not overflow. */
__attribute__((target("avx2"))) static int64_t fill_avx2(struct philox g, int64_t n_blocks,
                                                         uint32_t *out) {
    int64_t i = 0;
    /* Lanes hold blocks 0, 2, 1, 3, because interleaving the halves of 128 bits then gives blocks
     * in order. */
    const __m256i order = _mm256_set_epi64x(3, 1, 2, 0), low = _mm256_set1_epi64x(0xffffffff);
    for (; i + LANES <= n_blocks; i += LANES) {
        struct lanes lanes[VECTORS];
        __m256i k0 = _mm256_set1_epi64x((uint32_t)g.key),
                k1 = _mm256_set1_epi64x((int64_t)(g.key >> 32));
        for (int v = 0; v < VECTORS; v++) {
            __m256i counter = _mm256_add_epi64(
                _mm256_set1_epi64x((int64_t)(g.lo + (uint64_t)(i + 4 * v))), order);
            lanes[v] = (struct lanes){counter, _mm256_srli_epi64(counter, 32),
                                      _mm256_set1_epi64x((int64_t)g.hi),
                                      _mm256_set1_epi64x((int64_t)(g.hi >> 32))};
        }
        for (int round = 0; round < PHILOX_ROUNDS; round++) {
            for (int v = 0; v < VECTORS; v++)
                round_avx2(&lanes[v], k0, k1);
            k0 = _mm256_add_epi64(k0, _mm256_set1_epi64x(0x9E3779B9));
            k1 = _mm256_add_epi64(k1, _mm256_set1_epi64x(0xBB67AE85));
        }
        for (int v = 0; v < VECTORS; v++) {
            __m256i first = _mm256_or_si256(_mm256_and_si256(lanes[v].c0, low),
                                            _mm256_slli_epi64(lanes[v].c1, 32));
            __m256i second = _mm256_or_si256(_mm256_and_si256(lanes[v].c2, low),
                                             _mm256_slli_epi64(lanes[v].c3, 32));
            __m256i *to = (__m256i *)(void *)(out + 4 * (i + 4 * v));
            _mm256_storeu_si256(to, _mm256_unpacklo_epi64(first, second));
            _mm256_storeu_si256(to + 1, _mm256_unpackhi_epi64(first, second));
        }
    }
    return i;
}
#endif

void philox_fill(struct philox g, int64_t n_blocks, uint32_t *out) {
    int64_t i = 0;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && g.lo + (uint64_t)n_blocks >= g.lo)
        i = fill_avx2(g, n_blocks, out);
#endif
    g = philox_skip(g, (uint64_t)i);
    for (; i < n_blocks; i++)
        philox_next(&g, out + 4 * i);
}
