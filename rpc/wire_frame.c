/* The 32 bytes before each message. Every field is checked before memory is taken for what it announces. */
#include "rpc/wire_internal.h"

#include <endian.h>
#include <inttypes.h>

#define WIRE_MAGIC 0x3157524du /* "MRW1" */

enum { OFFSET_MAGIC = 0, OFFSET_TYPE = 4, OFFSET_FLAGS = 6, OFFSET_META_LEN = 8, OFFSET_CRC = 12, OFFSET_PAYLOAD_LEN = 16, OFFSET_ID = 24 };

static const int64_t default_max_payload_bytes = 1ll << 40;

static void put_u16(char *out, uint16_t value) {
    value = htole16(value);
    memcpy(out, &value, sizeof(value));
}
static void put_u32(char *out, uint32_t value) {
    value = htole32(value);
    memcpy(out, &value, sizeof(value));
}
static void put_u64(char *out, uint64_t value) {
    value = htole64(value);
    memcpy(out, &value, sizeof(value));
}
static uint16_t get_u16(const char *in) {
    uint16_t value;
    memcpy(&value, in, sizeof(value));
    return le16toh(value);
}
static uint32_t get_u32(const char *in) {
    uint32_t value;
    memcpy(&value, in, sizeof(value));
    return le32toh(value);
}
static uint64_t get_u64(const char *in) {
    uint64_t value;
    memcpy(&value, in, sizeof(value));
    return le64toh(value);
}

void wire_header_write(const struct wire_header *header, char *out) {
    put_u32(out + OFFSET_MAGIC, WIRE_MAGIC);
    put_u16(out + OFFSET_TYPE, header->type);
    put_u16(out + OFFSET_FLAGS, header->flags);
    put_u32(out + OFFSET_META_LEN, header->meta_len);
    put_u32(out + OFFSET_CRC, 0);
    put_u64(out + OFFSET_PAYLOAD_LEN, header->payload_len);
    put_u64(out + OFFSET_ID, header->id);
}

struct status *wire_header_read(const char *in, int64_t max_payload_bytes, struct wire_header *ret) {
    uint64_t max_payload = (uint64_t)(max_payload_bytes > 0 ? max_payload_bytes : default_max_payload_bytes);
    struct wire_header header = {
        .type = get_u16(in + OFFSET_TYPE),
        .flags = get_u16(in + OFFSET_FLAGS),
        .meta_len = get_u32(in + OFFSET_META_LEN),
        .payload_len = get_u64(in + OFFSET_PAYLOAD_LEN),
        .id = get_u64(in + OFFSET_ID),
    };
    if (get_u32(in + OFFSET_MAGIC) != WIRE_MAGIC)
        return status_invalid("not a Millrace worker message: it begins with %08" PRIx32, get_u32(in + OFFSET_MAGIC));
    if (header.type < WIRE_HELLO || header.type >= WIRE_TYPE_END)
        return status_invalid("unknown message type %u", header.type);
    if (header.flags != 0)
        return status_invalid("unknown flags %04x in a message of type %u", header.flags, header.type);
    if (get_u32(in + OFFSET_CRC) != 0)
        return status_invalid("a checksum in a message of type %u, but none are in use", header.type);
    if (header.meta_len > WIRE_MAX_META_BYTES)
        return status_exhausted("a message of type %u announces %" PRIu32 " bytes of meta, the limit is %d", header.type, header.meta_len,
                                WIRE_MAX_META_BYTES);
    if (header.payload_len > max_payload)
        return status_exhausted("a message of type %u announces %" PRIu64 " bytes of payload, the limit is %" PRIu64, header.type,
                                header.payload_len, max_payload);
    *ret = header;
    return NULL;
}

/* Empty pieces occupy nothing, not even padding. */
bool wire_payload_next(const struct wire_message *message, size_t *offset, size_t size_bytes, size_t *ret_begin) {
    if (size_bytes == 0) {
        *ret_begin = *offset;
        return true;
    }
    if (*offset > message->payload_len)
        return false;
    size_t begin = (*offset + WIRE_ALIGN - 1) & ~(size_t)(WIRE_ALIGN - 1);
    if (begin > message->payload_len || size_bytes > message->payload_len - begin)
        return false;
    *offset = begin + size_bytes;
    *ret_begin = begin;
    return true;
}
