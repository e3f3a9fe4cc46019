/* What decoding a TensorProto at once and in pieces share. For this room only. */
#ifndef MILLRACE_COMMON_TENSOR_TENSOR_PROTO_INTERNAL_H
#define MILLRACE_COMMON_TENSOR_TENSOR_PROTO_INTERNAL_H

#include "common/tensor/tensor_pieces.h"
#include "common/tensor/tensor_proto.h"

/* Notes what one field says, if it is the type, the shape or the content. */
struct status *tensor_parts_add(struct tensor_parts *parts,
                                const struct proto_field *field) MUST_USE;
/* Checks the type and the shape once all fields have been added. */
struct status *tensor_parts_check(struct tensor_parts *parts) MUST_USE;
/* The field that lists the elements of an object dtype. */
uint32_t tensor_parts_list_field(enum dtype dtype);
/* The field that lists the elements of a type. `unit_bytes` is the size of one listed value (a
 * complex element has two). Wire type 2: the values are the field's bytes. */
struct tensor_value_field {
    uint8_t number, wire_type, unit_bytes;
};
const struct tensor_value_field *tensor_value_field(enum dtype dtype);
/* Do the packed values end where the field ends? */
bool tensor_value_field_is_whole(const struct proto_field *field,
                                 const struct tensor_value_field *wanted);
/* Checks the size of the tensor_content of a plain dtype. */
struct status *tensor_content_check(const struct tensor_parts *parts) MUST_USE;
/* Makes a string, handle or variant from its bytes. False when malformed. */
bool tensor_object_decode(enum dtype dtype, struct span bytes, struct object **ret) MUST_USE;
struct status *tensor_proto_malformed(const char *what);
/* Type, shape, and the tag and length of a tensor_content of that size. */
void tensor_proto_add_head(const struct tensor *t, size_t content_bytes, struct str *out);

/* A decoder whose fields have been visited already. */
void tensor_decoder_init_parts(struct tensor_decoder *decoder, struct span proto,
                               const struct tensor_parts *parts, struct allocator *allocator);
/* Begins with the elements of a plain dtype, whose fields have been visited, and continues with
 * them until the phase is DECODER_DONE. */
struct status *tensor_plain_begin(struct tensor_decoder *decoder) MUST_USE;
struct status *tensor_plain_run(struct tensor_decoder *decoder, int64_t *units) MUST_USE;

#endif
