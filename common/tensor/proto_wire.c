/* Reads and writes fields of protobuf's wire format, for decoders and encoders that are written by
 * hand. */
#include "common/tensor/tensor_proto.h"

bool proto_read_varint(struct span *in, uint64_t *ret) {
    uint64_t value = 0;
    size_t n = MIN(in->len, (size_t)10);
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)in->data[i];
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            in->data += i + 1;
            in->len -= i + 1;
            *ret = value;
            return true;
        }
    }
    return false;
}

static bool read_fixed(struct span *in, size_t size, uint64_t *ret) {
    if (in->len < size)
        return false;
    *ret = 0;
    memcpy(ret, in->data, size); /* little-endian, as on every host this runs on */
    in->data += size;
    in->len -= size;
    return true;
}

int proto_next(struct span *in, struct proto_field *ret) {
    uint64_t tag;
    if (in->len == 0)
        return 0;
    if (unlikely(!proto_read_varint(in, &tag) || tag >> 3 == 0 || tag >> 32 != 0))
        return -1;
    ret->number = (uint32_t)(tag >> 3);
    ret->wire_type = (uint32_t)(tag & 7);
    ret->value = 0;
    ret->bytes = (struct span){NULL, 0};
    switch (ret->wire_type) {
    case 0:
        return proto_read_varint(in, &ret->value) ? 1 : -1;
    case 1:
        return read_fixed(in, 8, &ret->value) ? 1 : -1;
    case 5:
        return read_fixed(in, 4, &ret->value) ? 1 : -1;
    case 2:
        if (!proto_read_varint(in, &ret->value) || ret->value > in->len)
            return -1;
        ret->bytes = (struct span){in->data, (size_t)ret->value};
        in->data += ret->value;
        in->len -= (size_t)ret->value;
        return 1;
    default: /* groups, which no message of ours has */
        return -1;
    }
}

bool proto_is_message(struct span bytes) {
    struct proto_field field;
    int more;
    while ((more = proto_next(&bytes, &field)) > 0)
        ;
    return more == 0;
}

size_t proto_varint_size(uint64_t value) {
    return value == 0 ? 1 : ((size_t)(63 - __builtin_clzll(value)) / 7) + 1;
}

static size_t put_varint(char *to, uint64_t value) {
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        to[n++] = (char)(value | 0x80);
    to[n++] = (char)value;
    return n;
}

void proto_add_varint(struct str *out, uint64_t value) {
    char text[10];
    str_add_bytes(out, text, put_varint(text, value));
}

void proto_add_tag(struct str *out, uint32_t number, uint32_t wire_type) {
    proto_add_varint(out, (uint64_t)number << 3 | wire_type);
}

void proto_add_bytes(struct str *out, uint32_t number, const void *data, size_t len) {
    proto_add_tag(out, number, 2);
    proto_add_varint(out, len);
    if (len > 0)
        str_add_bytes(out, data, len);
}

void proto_add_int(struct str *out, uint32_t number, uint64_t value) {
    if (value == 0)
        return;
    proto_add_tag(out, number, 0);
    proto_add_varint(out, value);
}

void proto_add_fixed32(struct str *out, uint32_t number, uint32_t value) {
    proto_add_tag(out, number, 5);
    str_add_bytes(out, &value, sizeof(value));
}

void proto_add_fixed64(struct str *out, uint32_t number, uint64_t value) {
    proto_add_tag(out, number, 1);
    str_add_bytes(out, &value, sizeof(value));
}

size_t proto_begin(struct str *out, uint32_t number, size_t size_hint) {
    proto_add_tag(out, number, 2);
    proto_add_varint(out, size_hint);
    return out->len;
}

void proto_end(struct str *out, size_t begin, size_t size_hint) {
    char text[10];
    size_t len = out->len - begin, n = put_varint(text, len),
           n_reserved = proto_varint_size(size_hint);
    if (n != n_reserved) {
        if (n > n_reserved)
            str_add_bytes(out, text, n - n_reserved); /* room; moved over below */
        memmove(out->data + begin + n - n_reserved, out->data + begin, len);
        out->len = begin + n - n_reserved + len;
        out->data[out->len] = '\0';
    }
    memcpy(out->data + begin - n_reserved, text, n);
}

/* ---- shapes ---- */

bool proto_read_shape(struct span proto, int64_t *dims, int *ret_rank) {
    struct proto_field field, part;
    int more;
    while ((more = proto_next(&proto, &field)) > 0) {
        if (field.number == 3 && field.wire_type == 0 && field.value) {
            *ret_rank = SHAPE_UNKNOWN_RANK;
        } else if (field.number == 2 && field.wire_type == 2 && *ret_rank >= 0) {
            if (*ret_rank == SHAPE_MAX_RANK)
                return false;
            int64_t size = 0;
            int more_parts;
            while ((more_parts = proto_next(&field.bytes, &part)) > 0)
                if (part.number == 1 && part.wire_type == 0)
                    size = (int64_t)part.value;
            if (more_parts < 0)
                return false;
            dims[(*ret_rank)++] = size;
        }
    }
    return more == 0;
}

void proto_add_shape(struct str *out, uint32_t number, struct shape shape) {
    size_t begin = proto_begin(out, number, 0);
    if (shape.rank < 0)
        proto_add_int(out, 3, 1);
    for (int i = 0; i < shape.rank; i++) {
        uint64_t size = (uint64_t)shape.dims[i];
        proto_add_tag(out, 2, 2);
        proto_add_varint(out, size == 0 ? 0 : 1 + proto_varint_size(size));
        proto_add_int(out, 1, size);
    }
    proto_end(out, begin, 0);
}
