/* TensorProto in and out, by hand: feeds and fetches are sliced out of their message, never
 * copied through generated structs. Any thread. */
#ifndef MILLRACE_COMMON_TENSOR_TENSOR_PROTO_H
#define MILLRACE_COMMON_TENSOR_TENSOR_PROTO_H

#include "common/base/str.h"
#include "common/tensor/tensor.h"

/* Decodes a serialized TensorProto in any of its encodings (tensor_content; typed lists, packed
 * or not; fewer values than elements repeat the last one; none are zeros; strings by varint
 * lengths in tensor_content).
 *   owner  the counted buffer that `proto` lies in, or NULL. A large enough, aligned tensor_content becomes a view that holds a
 *          reference on it; everything else is copied from `allocator`. Errors: INVALID_ARGUMENT
 * (malformed, dtype 0 or unknown, wrong content length, negative size, overflow),
 * RESOURCE_EXHAUSTED. */
struct status *tensor_from_proto(struct span proto, struct buffer *owner,
                                 struct allocator *allocator, struct tensor *ret) MUST_USE;

/* RESOURCE_EXHAUSTED when the elements would take far more memory than the proto has bytes:
 * above 16 times that and `spare_bytes`. Fewer values than elements may claim any size in a few
 * bytes. Says nothing about what is malformed. */
struct status *tensor_proto_check_claim(struct span proto, int64_t spare_bytes) MUST_USE;

/* The head of a TensorProto for plain dtypes whose elements follow by reference: writes dtype,
 * shape, and the tag and length of tensor_content to `out`; the caller sends out, then
 * tensor_size_bytes(t) bytes at tensor_cdata(t). An empty tensor has no content. */
void tensor_proto_head(const struct tensor *t, struct str *out);
/* The whole TensorProto, any dtype (strings as tensor_content; resource handles as
 * ResourceHandleProto in tensor_content). */
void tensor_to_proto(const struct tensor *t, struct str *out);
/* Size of the whole proto when written as head + content; and of strings likewise. */
size_t tensor_proto_size(const struct tensor *t);

/* A typed, small form for Const attrs in text and logs is tensor_print's. */

/* A variant element as it travels: a serialized VariantTensorDataProto that nobody here has
 * looked into, with the layout of struct bytes. Who knows the kind (TensorList, Optional, …)
 * makes its own object of it. */
extern const struct object_type variant_proto_type;
struct bytes *variant_proto_new(struct span proto);

/* ---- the wire format, for hand-written decoders ---- */
struct proto_field {
    uint32_t number;
    uint32_t wire_type; /* 0 varint, 1 64-bit, 2 bytes, 5 32-bit */
    uint64_t value;     /* varint and fixed */
    struct span bytes;  /* wire type 2 */
};
/* Reads the next field; moves `in` past it. 1: a field, 0: end, -1: malformed (groups,
 * truncation, number 0). */
int proto_next(struct span *in, struct proto_field *ret);
bool proto_read_varint(struct span *in, uint64_t *ret);
void proto_add_varint(struct str *out, uint64_t value);
void proto_add_tag(struct str *out, uint32_t number, uint32_t wire_type);
void proto_add_bytes(struct str *out, uint32_t number, const void *data, size_t len);
/* nothing for 0, as proto3 has it */
void proto_add_int(struct str *out, uint32_t number, uint64_t value);
size_t proto_varint_size(uint64_t value);
void proto_add_fixed32(struct str *out, uint32_t number, uint32_t value); /* writes 0 too */
/* A sub-message in place: its length is filled in at the end. `size_hint` is about how long it
 * gets: exact to the number of bytes that its length takes, nothing is moved. */
size_t proto_begin(struct str *out, uint32_t number, size_t size_hint);
void proto_end(struct str *out, size_t begin, size_t size_hint);
/* A TensorShapeProto into `dims` (SHAPE_MAX_RANK of them, from *ret_rank on, which starts at 0);
 * rank -1 where it is unknown. A size below -1, or a -1, stays as it is: callers say what they
 * allow. False when malformed or of too many dimensions. */
bool proto_read_shape(struct span proto, int64_t *dims, int *ret_rank);
/* written also when it is empty */
void proto_add_shape(struct str *out, uint32_t number, struct shape shape);

#endif
