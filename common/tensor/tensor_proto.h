/* Reads and writes TensorProto without generated code, so that feeds and fetches are views of their
 * message. Any thread. */
#ifndef MILLRACE_COMMON_TENSOR_TENSOR_PROTO_H
#define MILLRACE_COMMON_TENSOR_TENSOR_PROTO_H

#include "common/base/str.h"
#include "common/tensor/tensor.h"

/* Decodes a serialized TensorProto in any of its encodings: tensor_content (strings with varint
 * lengths first), or typed lists, packed or not. A list that is too short repeats its last value;
 * an empty one gives zeros.
 *   owner  the counted buffer that contains `proto`, or NULL. A tensor_content that is aligned and
 *          large enough becomes a view with a reference to it; everything else is copied to memory
 *          of `allocator`.
 * Errors: INVALID_ARGUMENT (malformed, dtype 0 or unknown, wrong content length, negative size,
 * overflow), RESOURCE_EXHAUSTED. */
struct status *tensor_from_proto(struct span proto, struct buffer *owner,
                                 struct allocator *allocator, struct tensor *ret) MUST_USE;

/* Checks that decoding needs at most 16 times the bytes of the proto plus `spare_bytes`, since a
 * list of one value may claim any size. Errors: RESOURCE_EXHAUSTED; a malformed proto is no error
 * here. */
struct status *tensor_proto_check_claim(struct span proto, int64_t spare_bytes) MUST_USE;

/* What the beginning of a TensorProto says. */
struct tensor_proto_peek {
    enum dtype dtype;
    int64_t n_elements;
    struct span content; /* tensor_content; empty where the values are listed */
};
enum tensor_proto_peek_result { PEEK_READ, PEEK_INVALID, PEEK_ENDLESS };
/* Reads dtype, shape and content of a TensorProto, for a process that only passes the value on.
 * Looks at no field behind them, and at most at max_fields fields, so the cost depends on the
 * number of values only where a writer has put them first, as none does. The values are not
 * checked. PEEK_ENDLESS: there are more fields. PEEK_INVALID: malformed, without a dtype, or with
 * an invalid shape. */
enum tensor_proto_peek_result tensor_proto_peek(struct span proto, int64_t max_fields,
                                                struct tensor_proto_peek *ret);

/* Writes the beginning of a TensorProto of a plain dtype to `out`: dtype, shape, and the tag and
 * length of tensor_content. The caller sends `out`, then tensor_size_bytes(t) bytes from
 * tensor_cdata(t). An empty tensor has no content. */
void tensor_proto_head(const struct tensor *t, struct str *out);
/* Writes the whole TensorProto of any dtype; the strings, and the ResourceHandleProtos of handles,
 * in tensor_content. */
void tensor_to_proto(const struct tensor *t, struct str *out);
/* The size of the proto that tensor_to_proto writes. */
size_t tensor_proto_size(const struct tensor *t);

/* A variant as it was received: a serialized VariantTensorDataProto, with the layout of struct
 * bytes. The kernels of a kind (TensorList, Optional, …) decode it to an object of that kind. */
extern const struct object_type variant_proto_type;
struct bytes *variant_proto_new(struct span proto);
/* Appends the VariantTensorDataProto of a variant element, NULL for an empty one. A kind that has
 * no encode is written as its name without content. */
void variant_add_proto(const struct object *object, struct str *out);

/* ---- the wire format, for hand-written decoders ---- */
struct proto_field {
    uint32_t number;
    uint32_t wire_type; /* 0 varint, 1 64-bit, 2 bytes, 5 32-bit */
    uint64_t value;     /* varint and fixed */
    struct span bytes;  /* wire type 2 */
};
/* Reads the next field and moves `in` past it. 1: a field, 0: the end, -1: malformed (groups,
 * truncation, number 0). */
int proto_next(struct span *in, struct proto_field *ret);
static inline bool proto_field_is(const struct proto_field *field, uint32_t number,
                                  uint32_t wire_type) {
    return field->number == number && field->wire_type == wire_type;
}
bool proto_is_message(struct span bytes); /* a sequence of well-formed fields? */
bool proto_read_varint(struct span *in, uint64_t *ret);
void proto_add_varint(struct str *out, uint64_t value);
void proto_add_tag(struct str *out, uint32_t number, uint32_t wire_type);
void proto_add_bytes(struct str *out, uint32_t number, const void *data, size_t len);
/* writes nothing for 0, as proto3 does */
void proto_add_int(struct str *out, uint32_t number, uint64_t value);
size_t proto_varint_size(uint64_t value);
/* These two write 0 too. */
void proto_add_fixed32(struct str *out, uint32_t number, uint32_t value);
void proto_add_fixed64(struct str *out, uint32_t number, uint64_t value);
/* Writes a sub-message whose length proto_end fills in. `size_hint` is the expected length: where
 * it needs as many length bytes as the actual length, proto_end moves nothing. */
size_t proto_begin(struct str *out, uint32_t number, size_t size_hint);
void proto_end(struct str *out, size_t begin, size_t size_hint);
/* Reads a TensorShapeProto into `dims`, which has room for SHAPE_MAX_RANK sizes, from index
 * *ret_rank on (0 for a first call). An unknown rank gives -1. Negative sizes are not checked.
 * False when malformed or of too many dimensions. */
bool proto_read_shape(struct span proto, int64_t *dims, int *ret_rank);
/* writes an empty shape, too */
void proto_add_shape(struct str *out, uint32_t number, struct shape shape);

#endif
