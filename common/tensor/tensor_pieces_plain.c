/* Decodes a TensorProto of numbers in pieces (tensor_pieces.h):
 *
 *   tensor_content: copy ────────────────────────────────► DONE
 *   a list: store the values of each field ─► repeat the last value
 */
#include "common/tensor/tensor_proto_internal.h"

enum {
    COPY_BYTES = 1 << 18, /* are copied at once */
    VALUES_PER_UNIT = 8,  /* varints take some 10 ns */
    VALUES_AT_ONCE = 1 << 12
};

static int64_t units_of(size_t bytes) { return 1 + (int64_t)(bytes / TENSOR_UNIT_BYTES / 2); }

static enum dtype type_of(const struct tensor_decoder *decoder) {
    return (enum dtype)decoder->parts.type;
}

struct status *tensor_plain_begin(struct tensor_decoder *decoder) {
    struct shape shape = {decoder->parts.rank, decoder->parts.dims};
    bool has_content = decoder->parts.content.len > 0;
    decoder->phase = has_content ? DECODER_PLAIN_CONTENT : DECODER_PLAIN_LIST;
    decoder->bytes = has_content ? decoder->parts.content : (struct span){NULL, 0};
    decoder->fields = decoder->proto;
    if (has_content)
        TRY(tensor_content_check(&decoder->parts));
    return tensor_new_zeroed(decoder->allocator, type_of(decoder), shape, &decoder->value);
}

static char *place(struct tensor_decoder *decoder) {
    return (char *)tensor_data(&decoder->value) + decoder->n_bytes;
}

static size_t room(const struct tensor_decoder *decoder) {
    return tensor_size_bytes(&decoder->value) - decoder->n_bytes;
}

/* A bool byte other than 0 and 1 would be undefined behaviour in every kernel that reads it. */
static void put(struct tensor_decoder *decoder, uint64_t value, size_t size) {
    if (type_of(decoder) == DT_BOOL)
        value = value != 0;
    memcpy(place(decoder), &value, size);
    decoder->n_bytes += size;
}

static void skip(struct span *bytes, size_t n) {
    bytes->data += n;
    bytes->len -= n;
}

/* Copies on with `bytes`. What has no room is left out. */
static void copy_bytes(struct tensor_decoder *decoder, int64_t *units) {
    size_t n = MIN(MIN(decoder->bytes.len, room(decoder)), (size_t)COPY_BYTES);
    char *to = place(decoder);
    if (n > 0)
        memcpy(to, decoder->bytes.data, n);
    for (size_t i = 0; type_of(decoder) == DT_BOOL && i < n; i++)
        to[i] = to[i] != 0;
    decoder->n_bytes += n;
    *units -= units_of(n);
    skip(&decoder->bytes, n);
    if (room(decoder) == 0)
        decoder->bytes.len = 0;
}

static struct status *copy_varints(struct tensor_decoder *decoder, size_t size, int64_t *units) {
    int n = 0;
    for (; n < VALUES_AT_ONCE && decoder->bytes.len > 0 && room(decoder) > 0; n++) {
        uint64_t value;
        if (!proto_read_varint(&decoder->bytes, &value))
            return tensor_proto_malformed("its values cannot be read");
        put(decoder, value, size);
    }
    *units -= 1 + n / VALUES_PER_UNIT;
    if (room(decoder) == 0)
        decoder->bytes.len = 0;
    return NULL;
}

/* Takes the next field. */
static struct status *begin_field(struct tensor_decoder *decoder, int64_t *units) {
    const struct tensor_value_field *wanted = tensor_value_field(type_of(decoder));
    struct proto_field field;
    --*units;
    if (proto_next(&decoder->fields, &field) <= 0) {
        decoder->is_list_over = true;
        return NULL;
    }
    if (field.number != wanted->number)
        return NULL;
    if (!tensor_value_field_is_whole(&field, wanted))
        return tensor_proto_malformed("its values cannot be read");
    if (field.wire_type == 2)
        decoder->bytes = field.bytes;
    else if (field.wire_type == wanted->wire_type && room(decoder) > 0)
        put(decoder, field.value, wanted->unit_bytes);
    return NULL;
}

static struct status *continue_list(struct tensor_decoder *decoder, int64_t *units) {
    const struct tensor_value_field *wanted = tensor_value_field(type_of(decoder));
    if (decoder->bytes.len == 0)
        return begin_field(decoder, units);
    if (wanted->wire_type == 0)
        return copy_varints(decoder, wanted->unit_bytes, units);
    copy_bytes(decoder, units);
    return NULL;
}

/* Half a complex number at the end of the list is left out. */
static void end_list(struct tensor_decoder *decoder) {
    size_t size = dtype_size(type_of(decoder)), half = decoder->n_bytes % size;
    decoder->n_bytes -= half;
    if (half > 0)
        memset(place(decoder), 0, half);
    decoder->listed_bytes = decoder->n_bytes;
    decoder->phase =
        decoder->n_bytes > 0 && room(decoder) > 0 ? DECODER_PLAIN_REPEAT : DECODER_DONE;
}

/* Copies what has been repeated so far, beginning with the last value. */
static void repeat(struct tensor_decoder *decoder, int64_t *units) {
    size_t size = dtype_size(type_of(decoder)), begin = decoder->listed_bytes - size,
           n = MIN(MIN(decoder->n_bytes - begin, room(decoder)), COPY_BYTES / size * size);
    memcpy(place(decoder), (char *)tensor_data(&decoder->value) + begin, n);
    decoder->n_bytes += n;
    *units -= units_of(n);
    if (room(decoder) == 0)
        decoder->phase = DECODER_DONE;
}

struct status *tensor_plain_run(struct tensor_decoder *decoder, int64_t *units) {
    while (decoder->phase != DECODER_DONE && *units > 0) {
        if (decoder->phase == DECODER_PLAIN_CONTENT) {
            copy_bytes(decoder, units);
            if (decoder->bytes.len == 0)
                decoder->phase = DECODER_DONE;
        } else if (decoder->phase == DECODER_PLAIN_REPEAT) {
            repeat(decoder, units);
        } else if (decoder->is_list_over) {
            end_list(decoder);
        } else {
            TRY(continue_list(decoder, units));
        }
    }
    return NULL;
}
