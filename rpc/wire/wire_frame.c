/* Writes and reads the 32 bytes before each message, and the checksums. Every field is checked
 * before memory is taken for what it announces. */
#include "rpc/wire/wire_internal.h"

#include <endian.h>
#include <inttypes.h>

#include "common/base/metrics.h"
#include "common/io/crc32c.h"

#define WIRE_MAGIC 0x3157524du /* "MRW1" */

enum {
    OFFSET_MAGIC = 0,
    OFFSET_TYPE = 4,
    OFFSET_FLAGS = 6,
    OFFSET_META_LEN = 8,
    OFFSET_CRC = 12,
    OFFSET_PAYLOAD_LEN = 16,
    OFFSET_ID = 24
};

static const int64_t default_max_payload_bytes = 1ll << 40;

static struct metric checksum_errors_total =
    METRIC_COUNTER_INIT("millrace_wire_checksum_errors_total",
                        "Messages between tasks, or with the master, whose checksum was wrong");

static const char *const type_names[] = {
    [WIRE_HELLO] = "Hello",
    [WIRE_PING] = "Ping",
    [WIRE_PONG] = "Pong",
    [WIRE_GET_STATUS] = "GetStatus",
    [WIRE_STATUS] = "Status",
    [WIRE_REGISTER_GRAPH] = "RegisterGraph",
    [WIRE_REGISTERED] = "Registered",
    [WIRE_DEREGISTER_GRAPH] = "DeregisterGraph",
    [WIRE_RUN_GRAPH] = "RunGraph",
    [WIRE_RUN_DONE] = "RunDone",
    [WIRE_CANCEL_STEP] = "CancelStep",
    [WIRE_RESET] = "Reset",
    [WIRE_RESET_DONE] = "ResetDone",
    [WIRE_PUSH] = "Push",
    [WIRE_ANNOUNCE] = "Announce",
    [WIRE_GRANT] = "Grant",
    [WIRE_FEED_STEP] = "FeedStep",
    [WIRE_CLOSE_SESSION] = "CloseSession",
    [WIRE_STEP_FETCHED] = "StepFetched",
    [WIRE_GET_STEPS] = "GetSteps",
    [WIRE_STEPS] = "Steps",
    [WIRE_ARENA] = "Arena",
    [WIRE_ARENA_MAPPED] = "ArenaMapped",
    [WIRE_RELEASE] = "Release",
    [WIRE_SETTLE] = "Settle",
    [WIRE_HELD] = "Held",
    [WIRE_END_JOB] = "EndJob",
    [WIRE_PEER_REQUEST] = "PeerRequest",
    [WIRE_PEER_REPLY] = "PeerReply",
    [WIRE_INPUTS_TAKEN] = "InputsTaken",
    [WIRE_KEEP_GRAPHS] = "KeepGraphs",
    [WIRE_KEPT] = "Kept",
    [WIRE_RDMA_OFFER] = "RdmaOffer",
    [WIRE_RDMA_REPLY] = "RdmaReply",
    [WIRE_RDMA_END] = "RdmaEnd",
    [WIRE_RDMA_ENDED] = "RdmaEnded",
    [WIRE_RDMA_DECLINE] = "RdmaDecline",
    [WIRE_RDMA_WITHDRAWN] = "RdmaWithdrawn",
    [WIRE_STRIPE] = "Stripe",
    [WIRE_LOST_STEPS] = "LostSteps",
    [WIRE_CREDIT] = "Credit",
    [WIRE_LEAVE] = "Leave",
    [WIRE_GET_TRACES] = "GetTraces",
    [WIRE_TRACES] = "Traces",
    [WIRE_DRAIN] = "Drain",
};
_Static_assert(ARRAY_LEN(type_names) == WIRE_TYPE_END, "each type has its name");

const char *wire_type_name(enum wire_type type) {
    const char *name = (size_t)type < ARRAY_LEN(type_names) ? type_names[type] : NULL;
    return name ? name : "unknown";
}

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

static uint32_t header_checksum(const char *header) {
    return crc32c_extend(crc32c(header, OFFSET_CRC), header + OFFSET_CRC + WIRE_CHECKSUM_BYTES,
                         WIRE_HEADER_BYTES - OFFSET_CRC - WIRE_CHECKSUM_BYTES);
}

void wire_header_write(const struct wire_header *header, char *out) {
    put_u32(out + OFFSET_MAGIC, WIRE_MAGIC);
    put_u16(out + OFFSET_TYPE, header->type);
    put_u16(out + OFFSET_FLAGS, header->flags);
    put_u32(out + OFFSET_META_LEN, header->meta_len);
    put_u32(out + OFFSET_CRC, 0);
    put_u64(out + OFFSET_PAYLOAD_LEN, header->payload_len);
    put_u64(out + OFFSET_ID, header->id);
    if (header->flags & WIRE_CHECKSUMMED)
        put_u32(out + OFFSET_CRC, header_checksum(out));
}

/* ---- checksums ---- */

void wire_checksum_write(uint32_t checksum, char *out) { put_u32(out, checksum); }

void wire_checksums_register(void) { metrics_register(&checksum_errors_total); }

struct status *wire_checksum_check(const char *what, enum wire_type type, uint32_t checksum,
                                   const char *sent) {
    if (likely(get_u32(sent) == checksum))
        return NULL;
    metric_add(&checksum_errors_total, 1);
    return status_new(STATUS_DATA_LOSS,
                      "the checksum of the %s of a message of type %d (%s) is %08" PRIx32
                      ", but it was sent with %08" PRIx32 ": its bytes were changed on their way",
                      what, (int)type, wire_type_name(type), checksum, get_u32(sent));
}

/* Compares the checksum in the header. When checksums may be off, a flag that was damaged on the
 * way leaves its checksum behind, so a checksum without the flag is an error. */
static struct status *check_header_checksum(const char *in, bool must_have_checksum) {
    enum wire_type type = (enum wire_type)get_u16(in + OFFSET_TYPE);
    if (must_have_checksum || (get_u16(in + OFFSET_FLAGS) & WIRE_CHECKSUMMED))
        TRY(wire_checksum_check("header", type, header_checksum(in), in + OFFSET_CRC));
    else if (get_u32(in + OFFSET_CRC) != 0)
        return status_invalid("a message of type %d (%s) has a checksum, but not the flag for it",
                              (int)type, wire_type_name(type));
    if (must_have_checksum && !(get_u16(in + OFFSET_FLAGS) & WIRE_CHECKSUMMED))
        return status_invalid("a message of type %d (%s) without checksums, after others with them",
                              (int)type, wire_type_name(type));
    return NULL;
}

struct status *wire_payload_check(enum wire_type type, uint64_t payload_len,
                                  int64_t max_payload_bytes) {
    uint64_t max_payload =
        (uint64_t)(max_payload_bytes > 0 ? max_payload_bytes : default_max_payload_bytes);
    if (likely(payload_len <= max_payload))
        return NULL;
    return status_exhausted("a message of type %u announces %" PRIu64
                            " bytes of payload, the limit is %" PRIu64,
                            type, payload_len, max_payload);
}

struct status *wire_header_read(const char *in, int64_t max_payload_bytes, bool must_have_checksum,
                                struct wire_header *ret) {
    struct wire_header header = {
        .type = get_u16(in + OFFSET_TYPE),
        .flags = get_u16(in + OFFSET_FLAGS),
        .meta_len = get_u32(in + OFFSET_META_LEN),
        .payload_len = get_u64(in + OFFSET_PAYLOAD_LEN),
        .id = get_u64(in + OFFSET_ID),
    };
    if (get_u32(in + OFFSET_MAGIC) != WIRE_MAGIC && !must_have_checksum)
        return status_invalid("not a Millrace worker message: it begins with %08" PRIx32,
                              get_u32(in + OFFSET_MAGIC));
    TRY(check_header_checksum(in, must_have_checksum));
    if (header.type < WIRE_HELLO || header.type >= WIRE_TYPE_END)
        return status_invalid("unknown message type %u", header.type);
    if (header.flags & ~WIRE_CHECKSUMMED)
        return status_invalid("unknown flags %04x in a message of type %u", header.flags,
                              header.type);
    if (header.meta_len > WIRE_MAX_META_BYTES)
        return status_exhausted("a message of type %u announces %" PRIu32
                                " bytes of meta, the limit is %d",
                                header.type, header.meta_len, WIRE_MAX_META_BYTES);
    TRY(wire_payload_check((enum wire_type)header.type, header.payload_len, max_payload_bytes));
    *ret = header;
    return NULL;
}

struct status *wire_check_meta(enum wire_type type, size_t meta_len) {
    if (likely(meta_len <= WIRE_MAX_META_BYTES))
        return NULL;
    return status_exhausted("a %s message between master and tasks would have %zu bytes of names "
                            "and descriptions, the limit is %d",
                            wire_type_name(type), meta_len, WIRE_MAX_META_BYTES);
}

/* Empty pieces occupy nothing, not even padding. */
bool wire_payload_next(const struct wire_message *message, size_t *offset, size_t size_bytes,
                       size_t *ret_begin) {
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
