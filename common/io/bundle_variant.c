/* Writes and reads variant tensors of a bundle, in TensorFlow's format:
 *
 *   for each element   varint length, VariantTensorDataProto, masked CRC-32C of all before
 *
 * The checksum of the tensor covers each length as 64 bits, each proto, and each checksum. */
#include "common/io/bundle.h"
#include "common/io/crc32c.h"
#include "common/tensor/tensor_proto.h"

static uint32_t extend_by(uint32_t crc, struct span proto, uint32_t *ret_masked) {
    uint64_t len = proto.len;
    crc = crc32c_extend(crc, &len, sizeof(len));
    crc = crc32c_extend(crc, proto.data, proto.len);
    *ret_masked = crc32c_mask(crc);
    return crc32c_extend(crc, ret_masked, sizeof(*ret_masked));
}

struct status *bundle_write_variants(struct file_sink *sink, const struct tensor *value,
                                     uint32_t *ret_crc) {
    struct str proto = STR_INIT, record = STR_INIT;
    struct status *st = NULL;
    *ret_crc = 0;
    for (int64_t i = 0; !st && i < value->n_elements; i++) {
        const struct object *object = ((struct object *const *)tensor_cdata(value))[i];
        uint32_t masked;
        str_clear(&proto);
        str_clear(&record);
        if (object && object->type != &variant_proto_type && !object->type->encode) {
            st = status_unimplemented("Saving a variant of type %s", object->type->name);
            break;
        }
        variant_add_proto(object, &proto);
        *ret_crc = extend_by(*ret_crc, (struct span){str_text(&proto), proto.len}, &masked);
        proto_add_varint(&record, proto.len);
        str_add_bytes(&record, str_text(&proto), proto.len);
        str_add_bytes(&record, &masked, sizeof(masked));
        st = file_sink_write(sink, record.data, record.len);
    }
    str_fini(&proto);
    str_fini(&record);
    return st;
}

bool bundle_parse_variants(struct span bytes, struct tensor *ret, uint32_t *ret_crc) {
    *ret_crc = 0;
    for (int64_t i = 0; i < ret->n_elements; i++) {
        uint64_t len;
        uint32_t masked, stored;
        if (!proto_read_varint(&bytes, &len) || bytes.len < sizeof(stored) ||
            len > bytes.len - sizeof(stored))
            return false;
        struct span proto = {bytes.data, (size_t)len};
        memcpy(&stored, bytes.data + len, sizeof(stored));
        *ret_crc = extend_by(*ret_crc, proto, &masked);
        if (masked != stored)
            return false;
        struct bytes *object = variant_proto_new(proto);
        tensor_set_object(ret, i, object ? &object->object : NULL);
        bytes.data += len + sizeof(stored);
        bytes.len -= len + sizeof(stored);
    }
    return bytes.len == 0;
}
