/* CRC-32C (Castagnoli), the checksum of checkpoints and record files. Any thread.
 *
 * By the CPU's instruction where it has one (three streams side by side, about 20 GB/s), else by
 * tables. */
#ifndef MILLRACE_COMMON_IO_CRC32C_H
#define MILLRACE_COMMON_IO_CRC32C_H

#include "common/base/base.h"

/* The checksum of what `crc` covers, followed by these bytes; 0 covers nothing. */
uint32_t crc32c_extend(uint32_t crc, const void *data, size_t len);
static inline uint32_t crc32c(const void *data, size_t len) { return crc32c_extend(0, data, len); }
/* By tables whatever the CPU has: what tests compare with. */
uint32_t crc32c_extend_portable(uint32_t crc, const void *data, size_t len);

/* How files keep it, because the checksum of bytes that hold their own checksum is a poor one. */
static inline uint32_t crc32c_mask(uint32_t crc) {
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}
static inline uint32_t crc32c_unmask(uint32_t masked) {
    uint32_t rotated = masked - 0xa282ead8u;
    return (rotated >> 17) | (rotated << 15);
}

#endif
