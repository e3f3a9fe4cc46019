/* Computes CRC-32C with the CPU's instruction, three streams at a time, or with tables. */
#include "common/io/crc32c.h"

#include <pthread.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

enum { POLYNOMIAL = 0x82f63b78 /* reflected */ };

/* The length of each of the three streams of the fast loop; a multiple of 8. */
enum { STREAM_BYTES = 1024 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* by_byte[k][b]: the register after byte b and k zero bytes. */
static uint32_t by_byte[8][256];
/* past_stream[k][b]: the effect of byte k of a register having value b, after STREAM_BYTES zero
 * bytes. */
static uint32_t past_stream[4][256];

static uint32_t zeros_after(uint32_t reg, size_t n) {
    for (size_t i = 0; i < n; i++)
        reg = by_byte[0][reg & 0xff] ^ (reg >> 8);
    return reg;
}

static void make_tables(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t reg = b;
        for (int bit = 0; bit < 8; bit++)
            reg = (reg & 1) ? (reg >> 1) ^ (uint32_t)POLYNOMIAL : reg >> 1;
        by_byte[0][b] = reg;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++)
            by_byte[k][b] = by_byte[0][by_byte[k - 1][b] & 0xff] ^ (by_byte[k - 1][b] >> 8);
    /* The effect of zero bytes on the register is linear, so the effects on its 32 bits suffice. */
    uint32_t of_bit[32];
    for (int bit = 0; bit < 32; bit++)
        of_bit[bit] = zeros_after(1u << bit, STREAM_BYTES);
    for (int k = 0; k < 4; k++)
        for (uint32_t b = 0; b < 256; b++)
            for (int bit = 0; bit < 8; bit++)
                past_stream[k][b] ^= (b >> bit & 1) ? of_bit[8 * k + bit] : 0;
}

uint32_t crc32c_extend_portable(uint32_t crc, const void *data, size_t len) {
    const unsigned char *at = data;
    uint32_t reg = ~crc;
    pthread_once(&once, make_tables);
    for (; len >= 8; at += 8, len -= 8) {
        uint32_t low, high;
        memcpy(&low, at, 4);
        memcpy(&high, at + 4, 4);
        low ^= reg; /* little-endian, as on every host this runs on */
        reg = by_byte[7][low & 0xff] ^ by_byte[6][low >> 8 & 0xff] ^ by_byte[5][low >> 16 & 0xff] ^
              by_byte[4][low >> 24] ^ by_byte[3][high & 0xff] ^ by_byte[2][high >> 8 & 0xff] ^
              by_byte[1][high >> 16 & 0xff] ^ by_byte[0][high >> 24];
    }
    for (; len > 0; at++, len--)
        reg = by_byte[0][(reg ^ *at) & 0xff] ^ (reg >> 8);
    return ~reg;
}

#if defined(__x86_64__)

static inline uint64_t load64(const unsigned char *at) {
    uint64_t v;
    memcpy(&v, at, 8);
    return v;
}

static inline uint32_t skip_stream(uint32_t reg) {
    return past_stream[0][reg & 0xff] ^ past_stream[1][reg >> 8 & 0xff] ^
           past_stream[2][reg >> 16 & 0xff] ^ past_stream[3][reg >> 24];
}

/* The instruction takes three cycles, but one can start each cycle, so three independent streams
 * keep the unit busy. */
__attribute__((target("sse4.2"))) static uint32_t extend_sse42(uint32_t crc, const void *data,
                                                               size_t len) {
    const unsigned char *at = data;
    uint64_t a = ~crc;
    for (; len >= 3 * STREAM_BYTES; at += 3 * STREAM_BYTES, len -= 3 * STREAM_BYTES) {
        uint64_t b = 0, c = 0;
        for (size_t i = 0; i < STREAM_BYTES; i += 8) {
            a = _mm_crc32_u64(a, load64(at + i));
            b = _mm_crc32_u64(b, load64(at + STREAM_BYTES + i));
            c = _mm_crc32_u64(c, load64(at + 2 * STREAM_BYTES + i));
        }
        a = skip_stream(skip_stream((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
    }
    for (; len >= 8; at += 8, len -= 8)
        a = _mm_crc32_u64(a, load64(at));
    for (; len > 0; at++, len--)
        a = _mm_crc32_u8((uint32_t)a, *at);
    return ~(uint32_t)a;
}

uint32_t crc32c_extend(uint32_t crc, const void *data, size_t len) {
    if (unlikely(!__builtin_cpu_supports("sse4.2")))
        return crc32c_extend_portable(crc, data, len);
    if (len >= 3 * STREAM_BYTES)
        pthread_once(&once, make_tables);
    return extend_sse42(crc, data, len);
}

#else

uint32_t crc32c_extend(uint32_t crc, const void *data, size_t len) {
    return crc32c_extend_portable(crc, data, len);
}

#endif
