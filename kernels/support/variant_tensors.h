/* Variants that are a few tensors and nothing else: one tensor ("tensorflow::Tensor", to which
 * sparse ops serialize), a ragged tensor's splits, outermost first, and its values
 * ("RaggedTensorVariant"), or the five tensors of a sparse matrix ("tensorflow::CSRSparseMatrix",
 * kernels/cpu/sparse/csr.h). Nobody changes one, except its only holder. */
#ifndef MILLRACE_KERNELS_SUPPORT_VARIANT_TENSORS_H
#define MILLRACE_KERNELS_SUPPORT_VARIANT_TENSORS_H

#include "kernels/support/variant.h"

struct variant_tensors {
    struct object object;
    uint32_t depth;      /* depth of nesting; see variant_check_depth */
    int64_t n;           /* at least 1 */
    struct tensor *held; /* the values of a ragged tensor are the last one */
};
extern const struct object_type variant_tensor_type, variant_ragged_type, variant_csr_type;
enum { VARIANT_CSR_TENSORS = 5 };

/* Makes a variant with n >= 1 tensors that hold nothing yet; the caller sets them and then calls
 * variant_tensors_seal. Errors: RESOURCE_EXHAUSTED. */
struct status *variant_tensors_new(const struct object_type *type, int64_t n,
                                   struct variant_tensors **ret) MUST_USE;
/* Computes the depth once all tensors are set. Errors: INVALID_ARGUMENT when variants nest too
 * deep. */
struct status *variant_tensors_seal(struct variant_tensors *variant) MUST_USE;
/* Returns element i of a variant tensor as this kind; the caller unrefs *ret. *ret is NULL when the
 * element is of another kind, or empty. Errors: what decoding says. */
struct status *variant_tensors_at(const struct tensor *t, int64_t i, const struct object_type *type,
                                  struct allocator *allocator,
                                  struct variant_tensors **ret) MUST_USE;
static inline void variant_tensors_unref(struct variant_tensors *variant) {
    if (variant)
        object_unref(&variant->object);
}

#endif
