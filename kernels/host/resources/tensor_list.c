/* Makes, changes, serializes and adds lists of tensors (kernels/host/resources/tensor_list.h). */
#include "kernels/host/resources/tensor_list.h"

#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "kernels/kernel.h"
#include "kernels/support/swap.h"

enum { MIN_CAPACITY = 4 };
/* An element of a list that arrives may claim this much memory beyond what its message
 * justifies. */
enum { SPARE_CLAIM_BYTES = 1 << 20 };

static void tensor_list_free(struct object *object) {
    struct tensor_list *list = (struct tensor_list *)object;
    for (int64_t i = 0; i < list->n; i++)
        tensor_clear(&list->elements[i]);
    shape_free(list->element_shape);
    free(list->memory);
    free(list);
}

/* Makes room for n elements. The memory is zero pages until it is touched. */
static struct status *reserve(struct tensor_list *list, int64_t n) {
    if (n <= list->capacity)
        return NULL;
    int64_t capacity = list->capacity > 0 ? MAX(n, 2 * list->capacity) : n;
    size_t align = _Alignof(struct tensor);
    char *memory = capacity < INT64_MAX / 128
                       ? calloc((size_t)capacity * sizeof(struct tensor) + align, 1)
                       : NULL;
    if (!memory)
        return status_exhausted("Out of memory for the %lld elements of a list", (long long)n);
    struct tensor *elements = (void *)(((uintptr_t)memory + align - 1) & ~(uintptr_t)(align - 1));
    if (list->n > 0)
        memcpy(elements, list->elements, (size_t)list->n * sizeof(*elements));
    free(list->memory);
    list->memory = memory;
    list->elements = elements;
    list->capacity = capacity;
    return NULL;
}

struct status *tensor_list_new(enum dtype dtype, struct shape element_shape, int64_t n,
                               struct tensor_list **ret) {
    struct tensor_list *list = xcalloc(1, sizeof(*list));
    object_init(&list->object, &tensor_list_type);
    list->dtype = dtype;
    list->max_n = -1;
    list->depth = 1;
    list->element_shape = shape_keep(element_shape);
    struct status *st = reserve(list, n);
    if (st) {
        tensor_list_unref(list);
        return st;
    }
    list->n = n;
    *ret = list;
    return NULL;
}

/* A list that shares the elements of `old`. */
static struct status *tensor_list_clone(const struct tensor_list *old, int64_t capacity,
                                        struct tensor_list **ret) {
    struct tensor_list *made = NULL;
    TRY(tensor_list_new(old->dtype, old->element_shape, 0, &made));
    struct status *st = reserve(made, MAX(capacity, old->n));
    if (st) {
        tensor_list_unref(made);
        return st;
    }
    made->max_n = old->max_n;
    made->depth = old->depth;
    made->n = old->n;
    for (int64_t i = 0; i < old->n; i++)
        tensor_copy(&made->elements[i], &old->elements[i]);
    *ret = made;
    return NULL;
}

struct status *tensor_list_own(struct tensor_list **list, int64_t capacity) {
    struct tensor_list *old = *list, *made = NULL;
    if (capacity > old->capacity)
        capacity = MAX(capacity, MIN_CAPACITY);
    if (likely(tensor_list_is_sole(old)))
        return reserve(old, capacity);
    TRY(tensor_list_clone(old, capacity, &made));
    tensor_list_unref(old);
    *list = made;
    return NULL;
}

struct status *tensor_list_resize(struct tensor_list *list, int64_t n) {
    TRY(reserve(list, n));
    for (int64_t i = n; i < list->n; i++)
        tensor_clear(&list->elements[i]);
    list->n = n;
    return NULL;
}

struct status *tensor_list_set(struct tensor_list *list, int64_t i, struct tensor *value) {
    if (unlikely(value->dtype == DT_VARIANT)) {
        uint32_t depth = variant_depth_with(value);
        TRY(variant_check_depth(depth));
        list->depth = MAX(list->depth, depth);
    }
    tensor_clear(&list->elements[i]);
    tensor_move(&list->elements[i], value);
    return NULL;
}

void tensor_list_set_shape(struct tensor_list *list, struct shape element_shape) {
    struct shape old = list->element_shape;
    list->element_shape = shape_keep(element_shape);
    free((void *)(uintptr_t)old.dims);
}

/* ---- on the wire ---- A list is a VariantTensorDataProto. The elements that are set are its
 * tensors, and its metadata is
 *
 *   n_unset, the number of each, dtype, max_n (all varints, max_n as 64 bits), element_shape (a
 *   TensorShapeProto) */

static void tensor_list_encode(const struct object *object, struct str *out) {
    const struct tensor_list *list = (const struct tensor_list *)object;
    int64_t n_unset = 0;
    proto_add_bytes(out, 1, object->type->name, strlen(object->type->name));
    if (out->len > VARIANT_MAX_PROTO_BYTES)
        return;
    for (int64_t i = 0; i < list->n; i++)
        n_unset += !tensor_list_has(list, i);
    /* written as field 1 of a message; the shape itself follows tag and length */
    struct str shape = STR_INIT;
    proto_add_shape(&shape, 1, list->element_shape);
    struct span fields = {str_text(&shape), shape.len};
    struct proto_field field;
    CHECK(proto_next(&fields, &field) > 0);
    size_t begin = proto_begin(out, 2, 0);
    proto_add_varint(out, (uint64_t)n_unset);
    for (int64_t i = 0; i < list->n; i++)
        if (!tensor_list_has(list, i))
            proto_add_varint(out, (uint64_t)i);
    proto_add_varint(out, (uint64_t)list->dtype);
    proto_add_varint(out, (uint64_t)(int64_t)list->max_n);
    str_add_bytes(out, field.bytes.data, field.bytes.len);
    proto_end(out, begin, 0);
    str_fini(&shape);
    for (int64_t i = 0; i < list->n; i++) {
        if (!tensor_list_has(list, i))
            continue;
        size_t tensor = proto_begin(out, 3, tensor_size_bytes(&list->elements[i]) + 16);
        tensor_to_proto(&list->elements[i], out);
        proto_end(out, tensor, tensor_size_bytes(&list->elements[i]) + 16);
    }
}

const struct object_type tensor_list_type = {
    .name = "tensorflow::TensorList", .free = tensor_list_free, .encode = tensor_list_encode};

static struct status *malformed(const char *what) {
    return status_invalid("Malformed TensorList: %s", what);
}

/* Fills the list with the tensors. `metadata` names the elements that are not set. */
static struct status *decode_elements(struct tensor_list *list, struct span unset, uint64_t n_unset,
                                      struct span tensors, struct allocator *allocator) {
    struct span proto;
    int64_t next = 0;
    for (uint64_t k = 0; k <= n_unset; k++) {
        uint64_t end = (uint64_t)list->n;
        if (k < n_unset &&
            (!proto_read_varint(&unset, &end) || end >= (uint64_t)list->n || end < (uint64_t)next))
            return malformed("the numbers of its uninitialized elements are not in order");
        for (; next < (int64_t)end && variant_next_tensor(&tensors, &proto); next++) {
            struct tensor t = TENSOR_INIT;
            struct status *st = tensor_proto_check_claim(proto, SPARE_CLAIM_BYTES);
            if (!st)
                st = tensor_from_proto(proto, NULL, allocator, &t);
            if (!st && t.dtype != list->dtype)
                st = malformed("an element has another type");
            if (!st)
                st = tensor_list_set(list, next, &t);
            tensor_clear(&t);
            TRY(st);
        }
        if (next != (int64_t)end)
            return malformed("it has fewer elements than said");
        next++;
    }
    return NULL;
}

static struct status *tensor_list_decode(struct span proto, struct allocator *allocator,
                                         struct object **ret) {
    struct variant_parts parts;
    int64_t dims[SHAPE_MAX_RANK];
    int rank = 0;
    uint64_t n_unset, skipped, dtype, max_n;
    if (!variant_read_parts(proto, &parts))
        return malformed("its fields cannot be read");
    struct span in = parts.metadata;
    if (!proto_read_varint(&in, &n_unset) || n_unset > in.len)
        return malformed("its metadata cannot be read");
    struct span unset = in;
    for (uint64_t i = 0; i < n_unset; i++)
        if (!proto_read_varint(&in, &skipped))
            return malformed("its metadata cannot be read");
    if (!proto_read_varint(&in, &dtype) || dtype >= DT_N_TYPES || dtype == DT_INVALID ||
        !proto_read_varint(&in, &max_n) || !proto_read_shape(in, dims, &rank))
        return malformed("its metadata cannot be read");
    for (int i = 0; i < rank; i++)
        if (dims[i] < -1)
            return malformed("its element shape has a size below -1");
    struct tensor_list *list = NULL;
    TRY(tensor_list_new((enum dtype)dtype, (struct shape){rank, dims},
                        parts.n_tensors + (int64_t)n_unset, &list));
    list->max_n = (int64_t)max_n < -1 ? -1 : (int32_t)MIN((int64_t)max_n, (int64_t)INT32_MAX);
    struct status *st = decode_elements(list, unset, n_unset, parts.tensors, allocator);
    if (st) {
        tensor_list_unref(list);
        return st;
    }
    *ret = &list->object;
    return NULL;
}

/* ---- sums and zeros ---- */

static uint32_t tensor_list_depth(const struct object *object) {
    return ((const struct tensor_list *)object)->depth;
}

static struct status *add_check(const struct tensor_list *a, const struct tensor_list *b) {
    if (a->dtype != b->dtype)
        return status_invalid(
            "Trying to add two lists of tensors of different dtypes. One is %s and the other is %s",
            dtype_name(a->dtype), dtype_name(b->dtype));
    if (a->n != b->n)
        return status_invalid("Trying to add two lists of tensors with different lengths. One is "
                              "%lld and the other is %lld",
                              (long long)a->n, (long long)b->n);
    if (!shape_is_compatible(a->element_shape, b->element_shape))
        return status_invalid("Trying to add two lists of tensors with incompatible element "
                              "shapes. One is %s and the other is %s",
                              SHAPE_TEXT(a->element_shape), SHAPE_TEXT(b->element_shape));
    for (int64_t i = 0; i < a->n; i++) {
        const struct tensor *x = &a->elements[i], *y = &b->elements[i];
        if (tensor_list_has(a, i) && tensor_list_has(b, i) &&
            !shape_equal(tensor_shape(x), tensor_shape(y)))
            return status_invalid("Trying to add two tensors with incompatible element shapes. One "
                                  "is %s and the other is %s",
                                  TENSOR_SHAPE_TEXT(x), TENSOR_SHAPE_TEXT(y));
    }
    return NULL;
}

/* Merges compatible shapes: a size is known when either shape knows it. */
static void merge_shape(struct tensor_list *list, struct shape other) {
    if (other.rank < 0)
        return;
    if (list->element_shape.rank < 0) {
        tensor_list_set_shape(list, other);
        return;
    }
    /* the shape's sizes belong to the list */
    int64_t *dims = (int64_t *)(uintptr_t)list->element_shape.dims;
    for (int i = 0; i < other.rank; i++)
        if (dims[i] < 0)
            dims[i] = other.dims[i];
}

/* Serialized elements may have become lists themselves. */
static void note_depth(struct tensor_list *list) {
    for (int64_t i = 0; list->dtype == DT_VARIANT && i < list->n; i++)
        if (tensor_list_has(list, i))
            list->depth = MAX(list->depth, variant_depth_with(&list->elements[i]));
}

static struct status *tensor_list_add(struct kernel_ctx *ctx, struct object **a,
                                      const struct object *b) {
    struct tensor_list *sum = (struct tensor_list *)*a;
    const struct tensor_list *by = (const struct tensor_list *)b;
    TRY(add_check(sum, by));
    TRY(tensor_list_own(&sum, sum->n));
    *a = &sum->object;
    merge_shape(sum, by->element_shape);
    for (int64_t i = 0; i < sum->n; i++) {
        if (!tensor_list_has(by, i))
            continue;
        if (tensor_list_has(sum, i)) {
            TRY(swap_in_and_add(ctx, &sum->elements[i], &by->elements[i]));
            continue;
        }
        tensor_copy(&sum->elements[i], &by->elements[i]);
    }
    note_depth(sum);
    return variant_check_depth(sum->depth);
}

static struct status *tensor_list_zeros(struct kernel_ctx *ctx, struct object **a) {
    struct tensor_list *list = (struct tensor_list *)*a;
    TRY(tensor_list_own(&list, list->n));
    *a = &list->object;
    for (int64_t i = 0; i < list->n; i++)
        if (tensor_list_has(list, i))
            TRY(variant_tensor_zeros(ctx, &list->elements[i]));
    note_depth(list);
    return variant_check_depth(list->depth);
}

static struct status *tensor_list_copy(const struct object *object, struct object **ret,
                                       struct tensor **ret_tensors, int64_t *ret_n) {
    const struct tensor_list *list = (const struct tensor_list *)object;
    struct tensor_list *made = NULL;
    TRY(tensor_list_clone(list, list->n, &made));
    *ret = &made->object;
    *ret_tensors = made->elements;
    *ret_n = made->n;
    return NULL;
}

const struct variant_kind list_variant_kind = {&tensor_list_type, tensor_list_decode,
                                               tensor_list_depth, tensor_list_add,
                                               tensor_list_zeros, tensor_list_copy};
