/* Makes, serializes and sums variants that are tensors; see variant_tensors.h. */
#include "kernels/support/variant_tensors.h"

#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "kernels/kernel.h"

/* A tensor that arrives may claim this much memory beyond what its message justifies. */
enum { SPARE_CLAIM_BYTES = 1 << 20 };

static void variant_tensors_free(struct object *object) {
    struct variant_tensors *variant = (struct variant_tensors *)object;
    for (int64_t i = 0; i < variant->n; i++)
        tensor_clear(&variant->held[i]);
    free(variant->held);
    free(variant);
}

/* Writes a VariantTensorDataProto that holds the tensors only. */
static void variant_tensors_encode(const struct object *object, struct str *out) {
    const struct variant_tensors *variant = (const struct variant_tensors *)object;
    proto_add_bytes(out, 1, object->type->name, strlen(object->type->name));
    if (out->len > VARIANT_MAX_PROTO_BYTES)
        return;
    for (int64_t i = 0; i < variant->n; i++) {
        size_t begin = proto_begin(out, 3, 0);
        tensor_to_proto(&variant->held[i], out);
        proto_end(out, begin, 0);
    }
}

const struct object_type variant_tensor_type = {
    .name = "tensorflow::Tensor", .free = variant_tensors_free, .encode = variant_tensors_encode};
const struct object_type variant_ragged_type = {
    .name = "RaggedTensorVariant", .free = variant_tensors_free, .encode = variant_tensors_encode};
const struct object_type variant_csr_type = {.name = "tensorflow::CSRSparseMatrix",
                                             .free = variant_tensors_free,
                                             .encode = variant_tensors_encode};

struct status *variant_tensors_new(const struct object_type *type, int64_t n,
                                   struct variant_tensors **ret) {
    size_t size = (size_t)n * sizeof(struct tensor);
    struct tensor *held = aligned_alloc(_Alignof(struct tensor), size);
    if (!held)
        return status_exhausted("Out of memory for the %lld tensors of a variant", (long long)n);
    memset(held, 0, size);
    struct variant_tensors *variant = xcalloc(1, sizeof(*variant));
    object_init(&variant->object, type);
    variant->depth = 1;
    variant->n = n;
    variant->held = held;
    *ret = variant;
    return NULL;
}

struct status *variant_tensors_seal(struct variant_tensors *variant) {
    for (int64_t i = 0; i < variant->n; i++)
        variant->depth = MAX(variant->depth, variant_depth_with(&variant->held[i]));
    return variant_check_depth(variant->depth);
}

struct status *variant_tensors_at(const struct tensor *t, int64_t i, const struct object_type *type,
                                  struct allocator *allocator, struct variant_tensors **ret) {
    struct object *object = object_ref(((struct object *const *)tensor_cdata(t))[i]);
    *ret = NULL;
    struct status *st = variant_resolve(&object, allocator);
    if (!st && object && object->type == type)
        *ret = (struct variant_tensors *)object;
    else
        object_unref(object);
    return st;
}

/* ---- the kinds ---- */

static uint32_t depth_of(const struct object *object) {
    return ((const struct variant_tensors *)object)->depth;
}

static struct status *decode(const struct object_type *type, struct span proto,
                             struct allocator *allocator, struct object **ret) {
    struct variant_parts parts;
    struct variant_tensors *variant = NULL;
    struct span tensor;
    struct status *st = NULL;
    if (!variant_read_parts(proto, &parts) || parts.n_tensors < 1 ||
        (type == &variant_tensor_type && parts.n_tensors != 1) ||
        (type == &variant_csr_type && parts.n_tensors != VARIANT_CSR_TENSORS))
        return status_invalid("Malformed %s: its fields cannot be read", type->name);
    TRY(variant_tensors_new(type, parts.n_tensors, &variant));
    for (int64_t i = 0; i < variant->n && variant_next_tensor(&parts.tensors, &tensor); i++) {
        TRY_OUT(tensor_proto_check_claim(tensor, SPARE_CLAIM_BYTES));
        TRY_OUT(tensor_from_proto(tensor, NULL, allocator, &variant->held[i]));
    }
    *ret = &variant->object;
out:
    if (st)
        variant_tensors_unref(variant);
    return st;
}

static struct status *decode_tensor(struct span proto, struct allocator *allocator,
                                    struct object **ret) {
    return decode(&variant_tensor_type, proto, allocator, ret);
}

static struct status *decode_ragged(struct span proto, struct allocator *allocator,
                                    struct object **ret) {
    return decode(&variant_ragged_type, proto, allocator, ret);
}

static struct status *decode_csr(struct span proto, struct allocator *allocator,
                                 struct object **ret) {
    return decode(&variant_csr_type, proto, allocator, ret);
}

/* *a becomes one that nobody else holds; its tensors may still be shared. */
static struct status *own(struct object **a) {
    struct variant_tensors *old = (struct variant_tensors *)*a, *made = NULL;
    if (atomic_load_explicit(&old->object.n_refs, memory_order_acquire) == 1)
        return NULL;
    TRY(variant_tensors_new(old->object.type, old->n, &made));
    made->depth = old->depth;
    for (int64_t i = 0; i < old->n; i++)
        tensor_copy(&made->held[i], &old->held[i]);
    object_unref(*a);
    *a = &made->object;
    return NULL;
}

static bool splits_agree(const struct variant_tensors *a, const struct variant_tensors *b) {
    for (int64_t i = 0; i < a->n - 1; i++)
        if (!tensor_equal(&a->held[i], &b->held[i]))
            return false;
    return true;
}

static struct status *ragged_add(struct kernel_ctx *ctx, struct object **a,
                                 const struct object *b) {
    const struct variant_tensors *by = (const struct variant_tensors *)b,
                                 *sum = (const struct variant_tensors *)*a;
    if (sum->held[sum->n - 1].dtype != by->held[by->n - 1].dtype)
        return status_invalid(
            "Can't add RaggedTensorVariants of different dtypes. One is %s and the other is %s",
            dtype_name((enum dtype)sum->held[sum->n - 1].dtype),
            dtype_name((enum dtype)by->held[by->n - 1].dtype));
    if (sum->n != by->n)
        return status_invalid("Can't add RaggedTensorVariants of different ragged rank. One is "
                              "%lld and the other is %lld",
                              (long long)(sum->n - 1), (long long)(by->n - 1));
    if (!splits_agree(sum, by))
        return status_invalid("Can't add RaggedTensorVariants with different row_splits.");
    TRY(own(a));
    struct variant_tensors *mine = (struct variant_tensors *)*a;
    TRY(variant_tensor_add(ctx, &mine->held[mine->n - 1], &by->held[by->n - 1]));
    return variant_tensors_seal(mine);
}

static struct status *ragged_zeros(struct kernel_ctx *ctx, struct object **a) {
    TRY(own(a));
    struct variant_tensors *mine = (struct variant_tensors *)*a;
    return variant_tensor_zeros(ctx, &mine->held[mine->n - 1]);
}

const struct variant_kind tensor_variant_kind = {&variant_tensor_type, decode_tensor, depth_of,
                                                 NULL, NULL};
const struct variant_kind ragged_variant_kind = {&variant_ragged_type, decode_ragged, depth_of,
                                                 ragged_add, ragged_zeros};
/* The matrices' own ops add them, AddN does not yet; their zeros are SparseMatrixZeros'. */
const struct variant_kind csr_variant_kind = {&variant_csr_type, decode_csr, depth_of, NULL, NULL};
