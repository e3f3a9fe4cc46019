/* Compresses to Snappy's block format, and decompresses it. */
#include "common/io/snappy.h"

/* A copy of up to 64 bytes takes at least 3 bytes; nothing expands more. */
enum { MOST_PER_BYTE = 22 };

static bool read_size(struct span *in, size_t *ret) {
    uint64_t value = 0;
    for (size_t i = 0; i < 5 && i < in->len; i++) {
        uint8_t byte = (uint8_t)in->data[i];
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            in->data += i + 1;
            in->len -= i + 1;
            *ret = (size_t)value;
            return value <= UINT32_MAX && value <= (uint64_t)in->len * MOST_PER_BYTE + 16;
        }
    }
    return false;
}

static uint32_t read_little_endian(const char *at, size_t n) {
    uint32_t value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (uint32_t)(uint8_t)at[i] << (8 * i);
    return value;
}

/* An element: a literal, or a copy of earlier bytes. */
struct element {
    size_t len, offset; /* offset 0: a literal */
};

static bool read_element(struct span *in, struct element *ret) {
    uint8_t tag = (uint8_t)in->data[0];
    size_t n_more = (tag & 3) == 0   ? (tag >> 2 < 60 ? 0 : (size_t)(tag >> 2) - 59)
                    : (tag & 3) == 3 ? 4
                                     : (size_t)(tag & 3);
    if (in->len < 1 + n_more)
        return false;
    uint32_t value = read_little_endian(in->data + 1, n_more);
    switch (tag & 3) {
    case 0:
        *ret = (struct element){n_more == 0 ? (size_t)(tag >> 2) + 1 : (size_t)value + 1, 0};
        break;
    case 1:
        *ret = (struct element){(size_t)(tag >> 2 & 7) + 4, (size_t)(tag >> 5) << 8 | value};
        break;
    default:
        *ret = (struct element){(size_t)(tag >> 2) + 1, value};
        break;
    }
    in->data += 1 + n_more;
    in->len -= 1 + n_more;
    return (tag & 3) == 0 || ret->offset > 0;
}

bool snappy_expand(struct span data, struct str *out) {
    size_t size, begin = out->len;
    if (!read_size(&data, &size))
        return false;
    str_reserve(out, size + 1);
    while (data.len > 0) {
        struct element element;
        if (!read_element(&data, &element) || element.len > size - (out->len - begin))
            return false;
        if (element.offset == 0) {
            if (element.len > data.len)
                return false;
            str_add_bytes(out, data.data, element.len);
            data.data += element.len;
            data.len -= element.len;
            continue;
        }
        if (element.offset > out->len - begin)
            return false;
        for (size_t i = 0; i < element.len; i++) /* byte by byte: a copy may overlap itself */
            out->data[out->len + i] = out->data[out->len + i - element.offset];
        out->len += element.len;
        out->data[out->len] = '\0';
    }
    return out->len - begin == size;
}

/* ---- compressing ---- */

enum { BLOCK_BYTES = 1 << 16, HASH_BITS = 12, MIN_MATCH = 4, MAX_COPY = 64 };

static uint32_t load_u32(const char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

static void add_literal(struct str *out, const char *data, size_t len) {
    if (len == 0)
        return;
    size_t n = len - 1;
    if (n < 60) {
        str_add_char(out, (char)(n << 2));
    } else {
        size_t n_bytes = n < 256 ? 1 : 2; /* a block has at most 1 << 16 bytes */
        str_add_char(out, (char)((59 + n_bytes) << 2));
        for (size_t i = 0; i < n_bytes; i++)
            str_add_char(out, (char)(n >> (8 * i)));
    }
    str_add_bytes(out, data, len);
}

/* Copies with two bytes of offset; each has up to MAX_COPY bytes. */
static void add_copy(struct str *out, size_t offset, size_t len) {
    while (len > 0) {
        size_t n = MIN(len, (size_t)MAX_COPY);
        str_add_char(out, (char)((n - 1) << 2 | 2));
        str_add_char(out, (char)offset);
        str_add_char(out, (char)(offset >> 8));
        len -= n;
    }
}

/* Finds matches by the hash of four bytes; the last place with a hash is remembered. */
static void compress_block(const char *data, size_t len, struct str *out) {
    uint16_t places[1 << HASH_BITS] = {0};
    size_t at = 1, literal = 0;
    while (at + MIN_MATCH <= len) {
        uint32_t word = load_u32(data + at), hash = word * 0x1e35a7bdu >> (32 - HASH_BITS);
        size_t found = places[hash];
        places[hash] = (uint16_t)at;
        if (found >= at || load_u32(data + found) != word) {
            at += 1 + ((at - literal) >> 5); /* goes faster through what does not compress */
            continue;
        }
        size_t n = MIN_MATCH;
        while (at + n < len && data[found + n] == data[at + n])
            n++;
        add_literal(out, data + literal, at - literal);
        add_copy(out, at - found, n);
        at += n;
        literal = at;
    }
    add_literal(out, data + literal, len - literal);
}

void snappy_compress(struct span data, struct str *out) {
    size_t size = data.len;
    for (; size >= 0x80; size >>= 7)
        str_add_char(out, (char)(size | 0x80));
    str_add_char(out, (char)size);
    for (size_t at = 0; at < data.len; at += BLOCK_BYTES)
        compress_block(data.data + at, MIN(data.len - at, (size_t)BLOCK_BYTES), out);
}
