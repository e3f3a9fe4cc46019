/* Decides for each value of a message whether it travels in the meta or in the payload. */
#include "rpc/wire/wire_values.h"

#include <stdlib.h>

#include "common/tensor/tensor_proto.h"

void wire_values_init(struct wire_values *values, size_t max_values) {
    values->parts =
        max_values > WIRE_FEW_VALUES ? xcalloc(max_values, sizeof(*values->parts)) : values->few;
    values->n_parts = 0;
    values->encoded = NULL;
    values->n_encoded = 0;
    values->max_values = max_values;
    values->inline_bytes = 0;
}

void wire_values_fini(struct wire_values *values) {
    for (size_t i = 0; i < values->n_encoded; i++)
        tensor_clear(&values->encoded[i]);
    free(values->encoded);
    if (values->parts != values->few)
        free(values->parts);
}

static bool fits_meta(struct wire_values *values, size_t proto_bytes) {
    if (proto_bytes > WIRE_INLINE_PROTO_BYTES ||
        values->inline_bytes + proto_bytes > WIRE_INLINE_PROTOS_BYTES)
        return false;
    values->inline_bytes += proto_bytes;
    return true;
}

/* Makes a tensor of the bytes: a view on the buffer, or a copy if there is no buffer. */
static struct status *add_bytes(struct wire_values *values, struct span bytes,
                                struct buffer *buffer) {
    int64_t n = (int64_t)bytes.len;
    struct shape shape = {1, &n};
    if (!values->encoded) {
        size_t size_bytes = values->max_values * sizeof(struct tensor);
        values->encoded = aligned_alloc(64, (size_bytes + 63) & ~(size_t)63);
        if (!values->encoded)
            return status_exhausted("no memory for the %zu values of a message",
                                    values->max_values);
    }
    struct tensor *part = &values->encoded[values->n_encoded];
    *part = TENSOR_INIT;
    if (buffer) {
        TRY(tensor_view(buffer, (char *)(uintptr_t)bytes.data, DT_UINT8, shape, part));
    } else {
        TRY(tensor_new(allocator_host(), DT_UINT8, shape, part));
        memcpy(tensor_data(part), bytes.data, bytes.len);
    }
    values->n_encoded++;
    values->parts[values->n_parts++] = part;
    return NULL;
}

struct status *wire_values_add_proto(struct wire_values *values, struct span proto,
                                     struct buffer *buffer, size_t *ret_proto_bytes) {
    *ret_proto_bytes = 0;
    if (fits_meta(values, proto.len))
        return NULL;
    TRY(add_bytes(values, proto, buffer));
    *ret_proto_bytes = proto.len;
    return NULL;
}

struct status *wire_values_add(struct wire_values *values, const struct tensor *value,
                               size_t *ret_proto_bytes) {
    *ret_proto_bytes = 0;
    if (!dtype_is_object((enum dtype)value->dtype)) {
        values->parts[values->n_parts++] = value;
        return NULL;
    }
    if (fits_meta(values, tensor_proto_size(value)))
        return NULL;
    struct str proto = STR_INIT;
    tensor_to_proto(value, &proto);
    size_t size = proto.len;
    char *bytes = str_detach(&proto);
    struct buffer *buffer = buffer_wrap(bytes, size, free, bytes);
    struct status *st = add_bytes(values, (struct span){bytes, size}, buffer);
    buffer_unref(buffer);
    if (!st)
        *ret_proto_bytes = size;
    return st;
}
