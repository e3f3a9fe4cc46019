/* Computes FarmHash's fingerprint, MurmurHash64A and SipHash-2-4; see hashes.h. */
#include "kernels/support/hashes.h"

#include <string.h>

static inline uint64_t load64(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}
static inline uint64_t load32(const unsigned char *p) {
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}
static inline uint64_t rotate_right(uint64_t v, int n) { return v >> n | v << (64 - n); }
static inline uint64_t rotate_left(uint64_t v, int n) { return v << n | v >> (64 - n); }

/* ---- FarmHash: one function for each of four length classes; inputs above 64 bytes loop over
 * blocks of 64 bytes with 7 words of state ---- */

static const uint64_t prime0 = 0xc3a5c85c97cb3127u, prime1 = 0xb492b66fbe98f273u,
                      prime2 = 0x9ae16a3b2f90404fu;

static inline uint64_t fold47(uint64_t v) { return v ^ v >> 47; }

static inline uint64_t mix(uint64_t a, uint64_t b, uint64_t factor) {
    uint64_t inner = fold47((a ^ b) * factor);
    return fold47((b ^ inner) * factor) * factor;
}

static uint64_t farm_to_16(const unsigned char *p, size_t len) {
    uint64_t factor = prime2 + len * 2;
    if (len >= 8) {
        uint64_t head = load64(p) + prime2, tail = load64(p + len - 8);
        return mix(rotate_right(tail, 37) * factor + head, (rotate_right(head, 25) + tail) * factor,
                   factor);
    }
    if (len >= 4)
        return mix(len + (load32(p) << 3), load32(p + len - 4), factor);
    if (len == 0)
        return prime2;
    uint32_t low = p[0] + ((uint32_t)p[len >> 1] << 8),
             high = (uint32_t)len + ((uint32_t)p[len - 1] << 2);
    return fold47(low * prime2 ^ high * prime0) * prime2;
}

static uint64_t farm_to_32(const unsigned char *p, size_t len) {
    uint64_t factor = prime2 + len * 2, a = load64(p) * prime1, b = load64(p + 8);
    uint64_t c = load64(p + len - 8) * factor, d = load64(p + len - 16) * prime2;
    return mix(rotate_right(a + b, 43) + rotate_right(c, 30) + d,
               a + rotate_right(b + prime2, 18) + c, factor);
}

static uint64_t farm_to_64(const unsigned char *p, size_t len) {
    uint64_t factor = prime2 + len * 2, a = load64(p) * prime2, b = load64(p + 8);
    uint64_t c = load64(p + len - 8) * factor, d = load64(p + len - 16) * prime2;
    uint64_t y = rotate_right(a + b, 43) + rotate_right(c, 30) + d;
    uint64_t z = mix(y, a + rotate_right(b + prime2, 18) + c, factor);
    uint64_t e = load64(p + 16) * factor, f = load64(p + 24);
    uint64_t g = (y + load64(p + len - 32)) * factor, h = (z + load64(p + len - 24)) * factor;
    return mix(rotate_right(e + f, 43) + rotate_right(g, 30) + h, e + rotate_right(f + a, 18) + g,
               factor);
}

struct farm_state {
    uint64_t x, y, z, v0, v1, w0, w1;
};

static inline void absorb_32(const unsigned char *p, uint64_t a, uint64_t b, uint64_t *ret0,
                             uint64_t *ret1) {
    uint64_t first = a + load64(p), last = load64(p + 24),
             all = first + load64(p + 8) + load64(p + 16);
    *ret0 = all + last;
    *ret1 = rotate_right(b + first + last, 21) + rotate_right(all, 44) + first;
}

/* Absorbs one block of 64 bytes. The last block has its own factor and weight. */
static inline void absorb_64(struct farm_state *s, const unsigned char *p, uint64_t factor,
                             uint64_t weight) {
    s->x = rotate_right(s->x + s->y + s->v0 + load64(p + 8), 37) * factor;
    s->y = rotate_right(s->y + s->v1 + load64(p + 48), 42) * factor;
    s->x ^= s->w1 * weight;
    s->y += s->v0 * weight + load64(p + 40);
    s->z = rotate_right(s->z + s->w0, 33) * factor;
    absorb_32(p, s->v1 * factor, s->x + s->w0, &s->v0, &s->v1);
    absorb_32(p + 32, s->z + s->w1, s->y + load64(p + 16), &s->w0, &s->w1);
    uint64_t x = s->x;
    s->x = s->z;
    s->z = x;
}

static uint64_t farm_long(const unsigned char *p, size_t len) {
    const uint64_t seed = 81;
    struct farm_state s = {.x = seed * prime2 + load64(p), .y = seed * prime1 + 113};
    s.z = fold47(s.y * prime2 + 113) * prime2;
    const unsigned char *end = p + (len - 1) / 64 * 64, *last = p + len - 64;
    for (; p != end; p += 64)
        absorb_64(&s, p, prime1, 1);
    uint64_t factor = prime1 + ((s.z & 0xff) << 1);
    s.w0 += (len - 1) & 63;
    s.v0 += s.w0;
    s.w0 += s.v0;
    absorb_64(&s, last, factor, 9);
    return mix(mix(s.v0, s.w0, factor) + fold47(s.y) * prime0 + s.z, mix(s.v1, s.w1, factor) + s.x,
               factor);
}

uint64_t hash_fingerprint64(const void *data, size_t len) {
    const unsigned char *p = data;
    return len <= 16   ? farm_to_16(p, len)
           : len <= 32 ? farm_to_32(p, len)
           : len <= 64 ? farm_to_64(p, len)
                       : farm_long(p, len);
}

/* ---- MurmurHash64A ---- */

uint64_t hash_murmur64(const void *data, size_t len, uint64_t seed) {
    const uint64_t factor = 0xc6a4a7935bd1e995u;
    const unsigned char *p = data;
    uint64_t hash = seed ^ len * factor;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word = load64(p) * factor;
        hash = (hash ^ fold47(word) * factor) * factor;
    }
    if (len > 0) {
        uint64_t word = 0;
        memcpy(&word, p, len);
        hash = (hash ^ word) * factor;
    }
    hash = fold47(hash) * factor;
    return fold47(hash);
}

/* ---- SipHash-2-4 ---- */

static inline void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate_left(v[1], 13) ^ v[0];
    v[3] = rotate_left(v[3], 16) ^ v[2];
    v[0] = rotate_left(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate_left(v[1], 17) ^ v[2];
    v[3] = rotate_left(v[3], 21) ^ v[0];
    v[2] = rotate_left(v[2], 32);
}

static inline void sip_word(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

uint64_t hash_sip24(const void *data, size_t len, uint64_t key0, uint64_t key1) {
    /* "somepseudorandomlygeneratedbytes" */
    uint64_t v[4] = {key0 ^ 0x736f6d6570736575u, key1 ^ 0x646f72616e646f6du,
                     key0 ^ 0x6c7967656e657261u, key1 ^ 0x7465646279746573u};
    const unsigned char *p = data;
    uint64_t last = (uint64_t)len << 56, tail = 0;
    for (; len >= 8; p += 8, len -= 8)
        sip_word(v, load64(p));
    if (len > 0)
        memcpy(&tail, p, len);
    sip_word(v, last | tail);
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
