/* Kinds of variant values that kernels know: lists of tensors, optional values, single tensors,
 * ragged tensors, datasets. Each is a counted object, immutable once shared.
 *
 * A value that arrived from another task is a serialized VariantTensorDataProto until somebody
 * asks for the kind (variant_resolve): one level at a time, so deep nesting costs no stack. What
 * nests in memory is limited by VARIANT_MAX_DEPTH, for letting go recurses. */
#ifndef MILLRACE_KERNELS_SUPPORT_VARIANT_H
#define MILLRACE_KERNELS_SUPPORT_VARIANT_H

#include "kernels/kernel.h"

enum { VARIANT_MAX_DEPTH = 512 };
/* What holds more, its tensors counted, is sent without content: shared parts are written again
 * for each holder. */
enum { VARIANT_MAX_PROTO_BYTES = 1 << 30 };

struct variant_kind {
    const struct object_type *type;
    /* From the fields of a VariantTensorDataProto. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
    struct status *(*decode)(struct span proto, struct allocator *allocator, struct object **ret);
    uint32_t (*depth)(const struct object *object); /* 1: holds no variants */
    /* *a becomes the sum of *a and b, both of this kind. After an error *a is as good as before,
     * or partly summed when nobody shares it. */
    /* NULL: has no sums */
    struct status *(*add)(struct kernel_ctx *ctx, struct object **a, const struct object *b);
    /* NULL: has no zeros */
    struct status *(*zeros_like)(struct kernel_ctx *ctx, struct object **a);
};
extern const struct variant_kind list_variant_kind, optional_variant_kind, tensor_variant_kind,
    ragged_variant_kind, dataset_variant_kind, map_variant_kind;

/* The kind itself instead of its serialized form: *object is replaced. Other values, and kinds
 * that nobody here knows, stay as they are. Errors: what the kind's decode says. */
struct status *variant_resolve(struct object **object, struct allocator *allocator) MUST_USE;
/* 1 + the depth of what nests deepest in a variant tensor; 1 for other tensors. */
uint32_t variant_depth_with(const struct tensor *t);
/* Errors: INVALID_ARGUMENT above the limit. */
struct status *variant_check_depth(uint32_t depth) MUST_USE;

/* *sum += by, with variants inside too. Errors: INVALID_ARGUMENT for other types or shapes, and
 * for a dtype without sums; INTERNAL for variants of different kinds. */
struct status *variant_tensor_add(struct kernel_ctx *ctx, struct tensor *sum,
                                  const struct tensor *by) MUST_USE;
struct status *variant_tensor_zeros(struct kernel_ctx *ctx, struct tensor *t) MUST_USE;

/* "Variant<type: tensorflow::TensorList>" for messages. Valid until the thread's next call. */
const char *variant_words(const struct object *object);

/* The fields of a VariantTensorDataProto. False when malformed. */
struct variant_parts {
    /* tensors: all fields of the message again, for variant_next_tensor */
    struct span type_name, metadata, tensors;
    int64_t n_tensors;
};
bool variant_read_parts(struct span proto, struct variant_parts *ret);
/* The next tensor's proto; false at the end. */
bool variant_next_tensor(struct span *tensors, struct span *ret);

#endif
