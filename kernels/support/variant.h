/* The kinds of variant values that kernels know: lists of tensors, optional values, single tensors,
 * ragged tensors, sparse matrices, datasets, plain numbers. Each value is a counted object. Nobody
 * changes it while it is shared.
 *
 * A value that arrived from another task stays a serialized VariantTensorDataProto until a kernel
 * asks for its kind (variant_resolve). Decoding resolves one level at a time, so deep nesting costs
 * no stack. VARIANT_MAX_DEPTH limits nesting in memory, because freeing a value recurses. */
#ifndef MILLRACE_KERNELS_SUPPORT_VARIANT_H
#define MILLRACE_KERNELS_SUPPORT_VARIANT_H

#include "kernels/kernel.h"

enum { VARIANT_MAX_DEPTH = 512 };
/* A value that is larger than this, with its tensors, is sent without content: parts that are
 * shared in memory are written once per holder. */
enum { VARIANT_MAX_PROTO_BYTES = 1 << 30 };

struct variant_kind {
    const struct object_type *type;
    /* Decodes a VariantTensorDataProto's fields. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
    struct status *(*decode)(struct span proto, struct allocator *allocator, struct object **ret);
    uint32_t (*depth)(const struct object *object); /* 1 when the value holds no variants */
    /* Sets *a to the sum of *a and b, both of this kind. After an error *a is unchanged, or partly
     * summed when nobody shares it. */
    /* NULL when the kind has no sums */
    struct status *(*add)(struct kernel_ctx *ctx, struct object **a, const struct object *b);
    /* NULL when the kind has no zeros */
    struct status *(*zeros_like)(struct kernel_ctx *ctx, struct object **a);
    /* Makes a copy that shares the tensors, which are the n ones at *ret_tensors. NULL when tensors
     * of the kind are in host memory always. Errors: RESOURCE_EXHAUSTED. */
    struct status *(*copy)(const struct object *object, struct object **ret,
                           struct tensor **ret_tensors, int64_t *ret_n);
};
extern const struct variant_kind list_variant_kind, optional_variant_kind, tensor_variant_kind,
    ragged_variant_kind, csr_variant_kind, dataset_variant_kind, map_variant_kind, int_variant_kind,
    float_variant_kind, bool_variant_kind, double_variant_kind;

/* Replaces a serialized *object by the object of its kind. Other values, and kinds that this
 * program does not know, stay as they are. Errors: what the kind's decode says. */
struct status *variant_resolve(struct object **object, struct allocator *allocator) MUST_USE;
/* Returns 1 + the depth of the deepest variant in the tensor; 1 for tensors of other dtypes. */
uint32_t variant_depth_with(const struct tensor *t);
/* Errors: INVALID_ARGUMENT when the depth is above VARIANT_MAX_DEPTH. */
struct status *variant_check_depth(uint32_t depth) MUST_USE;

/* Adds `by` to *sum; variants are summed inside, too. Errors: INVALID_ARGUMENT when types or shapes
 * differ, and for a dtype without sums; INTERNAL for variants of different kinds. */
struct status *variant_tensor_add(struct kernel_ctx *ctx, struct tensor *sum,
                                  const struct tensor *by) MUST_USE;
struct status *variant_tensor_zeros(struct kernel_ctx *ctx, struct tensor *t) MUST_USE;

/* The kind of a value that is not serialized; NULL: none that this program knows. */
const struct variant_kind *variant_kind_of(const struct object *object);

/* Returns a name for messages, such as "Variant<type: tensorflow::TensorList>". The text is valid
 * until the thread's next call. */
const char *variant_text(const struct object *object);

/* Splits a VariantTensorDataProto into fields, which are borrowed from it. Returns false when the
 * message is malformed. */
struct variant_parts {
    /* `tensors` holds all fields of the message again, for variant_next_tensor */
    struct span type_name, metadata, tensors;
    int64_t n_tensors;
};
bool variant_read_parts(struct span proto, struct variant_parts *ret);
/* Returns the next tensor's proto in *ret; false at the end. */
bool variant_next_tensor(struct span *tensors, struct span *ret);

#endif
