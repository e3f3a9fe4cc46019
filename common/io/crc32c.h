/* Computes CRC-32C (Castagnoli), the checksum of checkpoints and record files. Any thread.
 *
 * Uses the CPU's instruction where it has one (three streams at a time, about 20 GB/s), else
 * tables. */
#ifndef MILLRACE_COMMON_IO_CRC32C_H
#define MILLRACE_COMMON_IO_CRC32C_H

#include "common/base/base.h"

/* Continues the checksum `crc` with more bytes; 0 is the checksum of no bytes. */
uint32_t crc32c_extend(uint32_t crc, const void *data, size_t len);
static inline uint32_t crc32c(const void *data, size_t len) { return crc32c_extend(0, data, len); }
/* The same by tables on every CPU. Tests compare the two. */
uint32_t crc32c_extend_portable(uint32_t crc, const void *data, size_t len);

/* The form that is stored in files: the checksum of bytes that contain their own checksum is a weak
 * one. */
static inline uint32_t crc32c_mask(uint32_t crc) {
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}
static inline uint32_t crc32c_unmask(uint32_t masked) {
    uint32_t rotated = masked - 0xa282ead8u;
    return (rotated >> 17) | (rotated << 15);
}

#endif
