/* Decompresses Snappy's block format. */
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
