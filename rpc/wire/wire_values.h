/* Divides the values of one message between its meta and its payload.
 *
 * A plain value is a payload part as it is. Any other value (strings, handles, variants) travels
 * as its TensorProto: in the meta while that is small, else as a payload part of bytes. So the
 * meta of a message does not grow with the strings of a client. The TensorMeta of a value whose
 * TensorProto is a payload part has that part's size and no inline_proto
 * (rpc/wire/messages.h, tensor_meta_add). Any thread, one at a time. */
#ifndef MILLRACE_RPC_WIRE_WIRE_VALUES_H
#define MILLRACE_RPC_WIRE_WIRE_VALUES_H

#include "common/base/status.h"
#include "common/tensor/tensor.h"

enum {
    WIRE_INLINE_PROTO_BYTES = 64 << 10,  /* a longer TensorProto is a payload part */
    WIRE_INLINE_PROTOS_BYTES = 16 << 20, /* total in one message; the others are payload parts */
    WIRE_FEW_VALUES = 16,
};

struct wire_values {
    const struct tensor **parts; /* the payload, for struct wire_out */
    size_t n_parts;
    /* internal */
    const struct tensor *few[WIRE_FEW_VALUES];
    struct tensor *encoded;
    size_t n_encoded, max_values, inline_bytes;
};

/* Room for at most `max_values` values. */
void wire_values_init(struct wire_values *values, size_t max_values);
void wire_values_fini(struct wire_values *values);
/* Adds a value, which must live until the message is sent and is not dead. *ret_proto_bytes is
 * the size of the payload part that its TensorProto is, and 0 when the value is plain or when the
 * meta holds its TensorProto. Errors: RESOURCE_EXHAUSTED, no memory for the part. */
struct status *wire_values_add(struct wire_values *values, const struct tensor *value,
                               size_t *ret_proto_bytes) MUST_USE;
/* Does the same for a value that is not plain and whose TensorProto exists already. `proto` is part
 * of `buffer`, to which it takes a reference; if `buffer` is NULL, the bytes are copied. */
struct status *wire_values_add_proto(struct wire_values *values, struct span proto,
                                     struct buffer *buffer, size_t *ret_proto_bytes) MUST_USE;

#endif
