/* Finds the large tensor of a message while only the beginning of the message has arrived, for
 * alignment functions (grpc.h). */
#include "common/tensor/tensor_proto.h"
#include "rpc/grpc/grpc.h"

/* Walks nested fields of the head, whose lengths may exceed it. */
static bool next_in_head(struct span *in, uint32_t *ret_number, uint32_t *ret_wire_type,
                         uint64_t *ret_len) {
    uint64_t tag;
    if (!proto_read_varint(in, &tag))
        return false;
    *ret_number = (uint32_t)(tag >> 3);
    *ret_wire_type = tag & 7;
    switch (*ret_wire_type) {
    case 0:
        *ret_len = 0;
        uint64_t ignored;
        return proto_read_varint(in, &ignored);
    case 1:
    case 5:
        *ret_len = *ret_wire_type == 1 ? 8 : 4;
        if (in->len < *ret_len)
            return false;
        in->data += *ret_len;
        in->len -= *ret_len;
        return true;
    case 2:
        return proto_read_varint(in, ret_len);
    default:
        return false;
    }
}

size_t grpc_find_large(struct span head, size_t body_len, const uint32_t *path, size_t path_len,
                       size_t min_bytes) {
    struct span in = head;
    size_t depth = 0;
    uint32_t number, wire_type;
    uint64_t len;
    while (in.len > 0 && next_in_head(&in, &number, &wire_type, &len)) {
        if (wire_type != 2)
            continue;
        size_t offset = (size_t)(in.data - head.data);
        if (len > body_len - MIN(offset, body_len))
            return 0;
        if (number == path[depth] && len >= min_bytes) {
            if (depth == path_len - 1)
                return offset;
            depth++; /* descend: the next fields are inside this one */
            continue;
        }
        if (len > in.len)
            return 0;
        in.data += len;
        in.len -= len;
    }
    return 0;
}
