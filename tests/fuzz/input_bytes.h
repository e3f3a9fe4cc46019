/* The fuzzer's bytes, taken from the front: what a target makes its choices and its texts of.
 * Zeros and nothing once they are used up. */
#ifndef MILLRACE_TESTS_FUZZ_INPUT_BYTES_H
#define MILLRACE_TESTS_FUZZ_INPUT_BYTES_H

#include "common/base/base.h"

static struct span in; /* what is left */

static inline unsigned take_byte(void) {
    if (in.len == 0)
        return 0;
    in.len--;
    return (unsigned char)*in.data++;
}

static inline struct span take_chunk(void) {
    size_t len = take_byte();
    len = len << 8 | take_byte();
    len = MIN(len, in.len);
    struct span chunk = {in.data, len};
    in.data += len;
    in.len -= len;
    return chunk;
}

#endif
