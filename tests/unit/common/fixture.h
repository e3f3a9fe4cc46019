/* Reading the fixture files of tests/data: sequences of 32-bit numbers, and of bytes with their
 * length before them. */
#ifndef MILLRACE_TESTS_UNIT_COMMON_FIXTURE_H
#define MILLRACE_TESTS_UNIT_COMMON_FIXTURE_H

#include <stdio.h>

#include "common/base/str.h"

static inline void fixture_read(const char *name, struct str *ret) {
    char path[512], block[4096];
    snprintf(path, sizeof(path), "%s/%s", TEST_DATA_DIR, name);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    size_t n;
    while ((n = fread(block, 1, sizeof(block), file)) > 0)
        str_add_bytes(ret, block, n);
    fclose(file);
}

static inline uint32_t fixture_number(struct span *in) {
    uint32_t n;
    CHECK(in->len >= sizeof(n));
    memcpy(&n, in->data, sizeof(n));
    in->data += sizeof(n);
    in->len -= sizeof(n);
    return n;
}

static inline struct span fixture_bytes(struct span *in) {
    uint32_t len = fixture_number(in);
    CHECK(in->len >= len);
    struct span bytes = {in->data, len};
    in->data += len;
    in->len -= len;
    return bytes;
}

#endif
