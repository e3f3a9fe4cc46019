/* Transposes a matrix of elements of 1 to 16 bytes, block by block. The innermost step of
 * strided.c. */
#ifndef MILLRACE_KERNELS_SUPPORT_TRANSPOSE_H
#define MILLRACE_KERNELS_SUPPORT_TRANSPOSE_H

#include <stdint.h>

struct wide_element { /* an element of 16 bytes */
    uint64_t half[2];
};

/* to[i1 · to1 + i0] = from[i1 + i0 · from0] for i1 < n1, i0 < n0. Strides count elements. The two
 * ranges must not overlap. Any thread. */
void transpose_u8(uint8_t *to, const uint8_t *from, int64_t n1, int64_t n0, int64_t to1,
                  int64_t from0);
void transpose_u16(uint16_t *to, const uint16_t *from, int64_t n1, int64_t n0, int64_t to1,
                   int64_t from0);
void transpose_u32(uint32_t *to, const uint32_t *from, int64_t n1, int64_t n0, int64_t to1,
                   int64_t from0);
void transpose_u64(uint64_t *to, const uint64_t *from, int64_t n1, int64_t n0, int64_t to1,
                   int64_t from0);
void transpose_u128(struct wide_element *to, const struct wide_element *from, int64_t n1,
                    int64_t n0, int64_t to1, int64_t from0);

#endif
