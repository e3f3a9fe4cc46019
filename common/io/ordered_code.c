/* Writes numbers and strings as bytes that sort like them: see ordered_code.h. */
#include "common/io/ordered_code.h"

enum { SIGNED_MAX_BYTES = 10 };

void ordered_add_number(struct str *out, uint64_t value) {
    char bytes[9];
    int n = 0;
    for (int shift = 56; shift >= 0; shift -= 8)
        if (value >> shift)
            bytes[++n] = (char)(value >> shift);
    bytes[0] = (char)n;
    str_add_bytes(out, bytes, (size_t)n + 1);
}

void ordered_add_string(struct str *out, struct span text) {
    for (size_t i = 0; i < text.len; i++) {
        str_add_char(out, text.data[i]);
        if (text.data[i] == '\0')
            str_add_char(out, '\xff');
        else if (text.data[i] == '\xff')
            str_add_char(out, '\0');
    }
    str_add_bytes(out, "\0\1", 2);
}

/* n bytes carry 7n - 1 bits and the sign. */
static int signed_size(int64_t value) {
    uint64_t magnitude = (uint64_t)(value < 0 ? ~value : value);
    int n_bits = magnitude ? 64 - __builtin_clzll(magnitude) : 0;
    return n_bits / 7 + 1;
}

/* The n leading ones of the first two bytes. */
static uint32_t signed_head(int n) { return (0xffffu << (16 - n)) & 0xffffu; }

void ordered_add_signed(struct str *out, int64_t value) {
    uint8_t bytes[SIGNED_MAX_BYTES];
    int n = signed_size(value);
    for (int i = 0; i < SIGNED_MAX_BYTES; i++) {
        int shift = 8 * (SIGNED_MAX_BYTES - 1 - i);
        bytes[i] = (uint8_t)(shift >= 64 ? (value < 0 ? 0xff : 0) : value >> shift);
    }
    uint8_t *first = bytes + SIGNED_MAX_BYTES - n;
    first[0] ^= (uint8_t)(signed_head(n) >> 8);
    if (n > 1)
        first[1] ^= (uint8_t)signed_head(n);
    str_add_bytes(out, first, (size_t)n);
}
