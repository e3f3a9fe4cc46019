/* Writes and reads string tensors in a bundle: lengths, a checksum over them, bytes. */
#include "common/io/bundle.h"
#include "common/io/crc32c.h"
#include "common/tensor/tensor_proto.h"

/* The checksum covers lengths in a fixed size, not as varints. */
static uint32_t extend_by_length(uint32_t crc, uint64_t len) {
    return crc32c_extend(crc, &len, len <= UINT32_MAX ? sizeof(uint32_t) : sizeof(uint64_t));
}

struct status *bundle_write_strings(struct file_sink *sink, const struct tensor *value,
                                    uint32_t *ret_crc) {
    struct str lengths = STR_INIT;
    uint32_t crc = 0;
    for (int64_t i = 0; i < value->n_elements; i++) {
        struct span text = tensor_string(value, i);
        crc = extend_by_length(crc, text.len);
        proto_add_varint(&lengths, text.len);
    }
    uint32_t masked = crc32c_mask(crc);
    crc = crc32c_extend(crc, &masked, sizeof(masked));
    str_add_bytes(&lengths, &masked, sizeof(masked));
    struct status *st = file_sink_write(sink, lengths.data, lengths.len);
    str_fini(&lengths);
    for (int64_t i = 0; !st && i < value->n_elements; i++) {
        struct span text = tensor_string(value, i);
        crc = crc32c_extend(crc, text.data, text.len);
        st = file_sink_write(sink, text.data, text.len);
    }
    *ret_crc = crc;
    return st;
}

/* Reads the lengths and leaves `bytes` at the checksum that follows. The texts are everything after
 * it. */
static bool check_lengths(struct span *bytes, int64_t n, uint32_t *ret_crc) {
    uint64_t total = 0, len;
    uint32_t masked;
    *ret_crc = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!proto_read_varint(bytes, &len) || len > bytes->len)
            return false;
        total += len;
        if (total > bytes->len)
            return false;
        *ret_crc = extend_by_length(*ret_crc, len);
    }
    if (bytes->len < sizeof(masked) || total != bytes->len - sizeof(masked))
        return false;
    memcpy(&masked, bytes->data, sizeof(masked));
    return crc32c_unmask(masked) == *ret_crc;
}

bool bundle_strings_crc(struct span bytes, int64_t n, uint32_t *ret) {
    if (!check_lengths(&bytes, n, ret))
        return false;
    *ret = crc32c_extend(*ret, bytes.data, bytes.len);
    return true;
}

bool bundle_parse_strings(struct span bytes, struct tensor *ret) {
    struct span lengths = bytes;
    uint32_t unused;
    uint64_t len = 0;
    if (!check_lengths(&bytes, ret->n_elements, &unused))
        return false;
    const char *at = bytes.data + sizeof(uint32_t);
    for (int64_t i = 0; i < ret->n_elements; i++) {
        CHECK(proto_read_varint(&lengths, &len));
        tensor_set_string(ret, i, at, (size_t)len);
        at += len;
    }
    return true;
}
