/* Variants that are a few tensors and nothing else: one tensor ("tensorflow::Tensor", as sparse
 * ops serialize to), or a ragged tensor's splits, outermost first, and its values
 * ("RaggedTensorVariant"). Immutable, unless just one holder is left. */
#ifndef MILLRACE_KERNELS_SUPPORT_VARIANT_TENSORS_H
#define MILLRACE_KERNELS_SUPPORT_VARIANT_TENSORS_H

#include "kernels/support/variant.h"

struct variant_tensors {
    struct object object;
    uint32_t depth;      /* of nesting: variant_check_depth */
    int64_t n;           /* at least 1 */
    struct tensor *held; /* a ragged tensor's values are the last one */
};
extern const struct object_type variant_tensor_type, variant_ragged_type;

/* With n >= 1 tensors that hold nothing yet. Errors: RESOURCE_EXHAUSTED. */
struct status *variant_tensors_new(const struct object_type *type, int64_t n,
                                   struct variant_tensors **ret) MUST_USE;
/* To be called once all tensors are set. Errors: INVALID_ARGUMENT when variants nest too deep. */
struct status *variant_tensors_seal(struct variant_tensors *variant) MUST_USE;
/* Element i of a variant tensor as this kind, with a reference of its own; NULL when it is
 * another kind, or nothing. Errors: what decoding says. */
struct status *variant_tensors_at(const struct tensor *t, int64_t i, const struct object_type *type,
                                  struct allocator *allocator,
                                  struct variant_tensors **ret) MUST_USE;
static inline void variant_tensors_unref(struct variant_tensors *variant) {
    if (variant)
        object_unref(&variant->object);
}

#endif
