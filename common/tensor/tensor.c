/* Makes, shares and releases tensor values. tensor_print.c prints them. */
#include "common/tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "common/tensor/tensor_pieces.h"

/* ---- elements that are counted objects ----
 *
 *   tensor ──► object_array ──► the block that holds the pointers
 *              (a buffer whose last reference releases every element)
 *
 * So a shared or sliced string tensor costs one reference, not one per element. */

struct object_array {
    struct buffer buffer;
    struct buffer *block;
    int64_t n;
};

static void objects_unref(struct object **objects, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        object_unref(objects[i]);
}

static void object_array_free(struct allocator *allocator, struct buffer *buffer) {
    (void)allocator;
    struct object_array *array = CONTAINER_OF(buffer, struct object_array, buffer);
    objects_unref((struct object **)(void *)array->block->data, array->n);
    buffer_unref(array->block);
    free(array);
}

static struct buffer *object_array_alloc(struct allocator *allocator, size_t size_bytes) {
    (void)allocator;
    (void)size_bytes;
    return NULL; /* only object_array_new makes such buffers */
}

static struct allocator object_array_allocator = {
    .name = "object array", .alloc = object_array_alloc, .free = object_array_free};

static struct buffer *object_array_new(struct allocator *allocator, int64_t n) {
    size_t size_bytes = (size_t)n * sizeof(struct object *);
    struct buffer *block = buffer_alloc(allocator, size_bytes);
    if (!block)
        return NULL;
    if (!(block->flags & BUFFER_IS_ZERO))
        memset(block->data, 0, size_bytes);
    struct object_array *array = xmalloc(sizeof(*array));
    array->buffer = (struct buffer){
        .size_bytes = size_bytes, .data = block->data, .allocator = &object_array_allocator};
    atomic_init(&array->buffer.n_refs, 1);
    array->block = block;
    array->n = n;
    return &array->buffer;
}

/* ---- lifetime ---- */

void tensor_clear_slow(struct tensor *t) {
    if (t->storage == TENSOR_NONE || t->storage == TENSOR_DEAD)
        return;
    if (t->storage == TENSOR_REF)
        object_unref(t->ref);
    else if (t->storage == TENSOR_BUFFER)
        buffer_unref(t->buffer);
    else if (dtype_is_object((enum dtype)t->dtype))
        objects_unref((struct object **)(void *)t->bytes, t->n_elements);
    if (t->rank > TENSOR_INLINE_RANK)
        free(t->long_dims);
}

bool tensor_release(struct tensor *t, int64_t *units) {
    bool is_ours = t->storage == TENSOR_BUFFER && t->buffer->allocator == &object_array_allocator &&
                   buffer_is_sole(t->buffer);
    struct object_array *array =
        is_ours ? CONTAINER_OF(t->buffer, struct object_array, buffer) : NULL;
    struct object **objects = array ? (struct object **)(void *)array->block->data : NULL;
    for (; array && array->n > 0 && *units > 0; --*units)
        object_unref(objects[--array->n]);
    if (array && array->n > 0)
        return false;
    tensor_clear(t);
    return true;
}

static int64_t *dims_dup(const int64_t *dims, int rank) {
    size_t size_bytes = (size_t)rank * sizeof(*dims);
    return memcpy(xmalloc(size_bytes), dims, size_bytes);
}

/* `to` is already a bitwise copy of `from`. */
void tensor_copy_slow(struct tensor *to, const struct tensor *from) {
    if (from->storage == TENSOR_NONE || from->storage == TENSOR_DEAD)
        return;
    if (from->storage == TENSOR_REF)
        object_ref(from->ref);
    else if (from->storage == TENSOR_BUFFER)
        buffer_ref(from->buffer);
    else if (dtype_is_object((enum dtype)from->dtype))
        for (int64_t i = 0; i < from->n_elements; i++)
            object_ref(((struct object *const *)(const void *)from->bytes)[i]);
    if (from->rank > TENSOR_INLINE_RANK)
        to->long_dims = dims_dup(from->long_dims, from->rank);
}

/* ---- making ---- */

/* Sets everything but the elements; the shape has been checked. */
static void set_head(struct tensor *ret, enum dtype dtype, struct shape shape, int64_t n_elements,
                     enum tensor_storage storage) {
    ret->dtype = (uint8_t)dtype;
    ret->rank = (uint8_t)shape.rank;
    ret->storage = (uint8_t)storage;
    ret->has_ref_shape = false;
    memset(ret->reserved, 0, sizeof(ret->reserved));
    ret->n_elements = n_elements;
    if (shape.rank > TENSOR_INLINE_RANK)
        ret->long_dims = dims_dup(shape.dims, shape.rank);
    else if (shape.rank > 0)
        memcpy(ret->dims, shape.dims, (size_t)shape.rank * sizeof(shape.dims[0]));
}

/* `why_take` may be NULL. */
static COLD struct status *out_of_tensor_memory(struct allocator *allocator, enum dtype dtype,
                                                struct shape shape, size_t size_bytes,
                                                struct status *why_take) {
    char limit[32] = "";
    struct str text = STR_INIT;
    shape_print(shape, &text);
    if (allocator->limit_bytes > 0)
        snprintf(limit, sizeof(limit), " of %lld", (long long)allocator->limit_bytes);
    struct status *st =
        status_exhausted("OOM when allocating tensor with shape%s and type %s (%zu bytes) from "
                         "allocator %s: %lld%s bytes in use",
                         str_text(&text), dtype_name(dtype), size_bytes, allocator->name,
                         (long long)atomic_load(&allocator->in_use_bytes), limit);
    if (why_take)
        st = status_suffix_take(st, ". %s", status_message(why_take));
    status_unref(why_take);
    str_fini(&text);
    return st;
}

/* Memory of a device. Errors: the allocator's reason, which for a lack of memory is the end of the
 * message. */
static COLD struct status *no_device_memory(struct allocator *allocator, enum dtype dtype,
                                            struct shape shape, size_t size_bytes,
                                            struct status *why_take) {
    return status_code(why_take) == STATUS_RESOURCE_EXHAUSTED
               ? out_of_tensor_memory(allocator, dtype, shape, size_bytes, why_take)
               : why_take;
}

enum tensor_place { ON_HOST, ON_DEVICE };

static inline struct status *tensor_make(struct allocator *allocator, enum dtype dtype,
                                         struct shape shape, bool is_zeroed,
                                         enum tensor_place where, struct tensor *ret) {
    size_t element_bytes = dtype_size(dtype);
    if (unlikely(element_bytes == 0 || dtype_is_ref(dtype)))
        return status_invalid("A tensor cannot have the type %s (%d)", dtype_name(dtype),
                              (int)dtype);
    int64_t n_elements, size_bytes;
    TRY(shape_n_elements(shape, &n_elements));
    if (unlikely(mul_overflows_i64(n_elements, (int64_t)element_bytes, &size_bytes)))
        return out_of_tensor_memory(allocator, dtype, shape, SIZE_MAX, NULL);
    if (size_bytes <= (where == ON_HOST ? TENSOR_INLINE_BYTES : 0)) {
        set_head(ret, dtype, shape, n_elements, TENSOR_INLINE);
        memset(ret->bytes, 0, sizeof(ret->bytes)); /* cheaper than asking whether it is needed */
        return NULL;
    }
    bool is_object = dtype_is_object(dtype);
    struct buffer *buffer;
    if (where == ON_DEVICE && allocator->device_memory->alloc) {
        struct status *why =
            allocator->device_memory->alloc(allocator, (size_t)size_bytes, &buffer);
        if (unlikely(why != NULL))
            return no_device_memory(allocator, dtype, shape, (size_t)size_bytes, why);
    } else {
        buffer = is_object ? object_array_new(allocator, n_elements)
                           : buffer_alloc(allocator, (size_t)size_bytes);
    }
    if (unlikely(!buffer))
        return out_of_tensor_memory(allocator, dtype, shape, (size_t)size_bytes, NULL);
    CHECK(!(buffer->flags & BUFFER_IS_DEVICE) == (where == ON_HOST));
    if (is_zeroed && !is_object && !(buffer->flags & BUFFER_IS_ZERO)) {
        pool_clear(buffer->data, (size_t)size_bytes);
        if (unlikely(size_bytes > POOL_CLEARED_AT_ONCE_BYTES) && pool_is_unwanted()) {
            buffer_unref(buffer);
            return status_new(STATUS_CANCELLED, "Nobody wants the memory of %lld bytes any more",
                              (long long)size_bytes);
        }
    }
    set_head(ret, dtype, shape, n_elements, TENSOR_BUFFER);
    ret->buffer = buffer;
    ret->data = buffer->data;
    return NULL;
}

struct status *tensor_new(struct allocator *allocator, enum dtype dtype, struct shape shape,
                          struct tensor *ret) {
    return tensor_make(allocator, dtype, shape, false, ON_HOST, ret);
}

struct status *tensor_new_zeroed(struct allocator *allocator, enum dtype dtype, struct shape shape,
                                 struct tensor *ret) {
    return tensor_make(allocator, dtype, shape, true, ON_HOST, ret);
}

struct status *tensor_new_on_device(struct allocator *allocator, enum dtype dtype,
                                    struct shape shape, struct tensor *ret) {
    CHECK(allocator->device_memory && dtype_in(dtype, DTYPES_PLAIN));
    return tensor_make(allocator, dtype, shape, false, ON_DEVICE, ret);
}

void tensor_init_scalar(struct tensor *ret, enum dtype dtype, const void *value) {
    set_head(ret, dtype, SHAPE_SCALAR, 1, TENSOR_INLINE);
    memcpy(ret->bytes, value, dtype_size(dtype));
}

void tensor_init_scalar_object(struct tensor *ret, enum dtype dtype, struct object *object_take) {
    CHECK(dtype_is_object(dtype));
    tensor_init_scalar(ret, dtype, &object_take);
}

void tensor_init_ref(struct tensor *ret, enum dtype base, struct object *variable_take) {
    set_head(ret, base, SHAPE_SCALAR, 0, TENSOR_REF);
    ret->ref = variable_take;
}

void tensor_set_ref_shape(struct tensor *ref, struct shape shape, int64_t n_elements) {
    CHECK(ref->storage == TENSOR_REF);
    if (ref->rank > TENSOR_INLINE_RANK)
        free(ref->long_dims);
    set_head(ref, (enum dtype)ref->dtype, shape, n_elements, TENSOR_REF);
    ref->has_ref_shape = true;
}

struct status *tensor_view(struct buffer *buffer, char *data, enum dtype dtype, struct shape shape,
                           struct tensor *ret) {
    int64_t n_elements, size_bytes;
    TRY(shape_n_elements(shape, &n_elements));
    if (unlikely(mul_overflows_i64(n_elements, (int64_t)dtype_size(dtype), &size_bytes)))
        return status_invalid("A view cannot have more than 2^63 - 1 bytes");
    CHECK(!dtype_is_object(dtype) || buffer->allocator == &object_array_allocator ||
          n_elements == 0);
    CHECK(data >= buffer->data && (size_t)(data - buffer->data) <= buffer->size_bytes);
    if (unlikely((size_t)size_bytes > buffer->size_bytes - (size_t)(data - buffer->data)))
        return status_invalid("A view of %lld bytes does not fit into the %zu bytes of its buffer",
                              (long long)size_bytes,
                              buffer->size_bytes - (size_t)(data - buffer->data));
    set_head(ret, dtype, shape, n_elements, TENSOR_BUFFER);
    ret->buffer = buffer_ref(buffer);
    ret->data = data;
    return NULL;
}

/* Shares the elements of `from`, from index `first` on, as a tensor of another shape. */
static void share_elements(const struct tensor *from, int64_t first, int64_t n_elements,
                           struct shape shape, struct tensor *ret) {
    enum dtype dtype = (enum dtype)from->dtype;
    size_t element_bytes = dtype_size(dtype);
    const char *data = (const char *)tensor_cdata(from) + (size_t)first * element_bytes;
    size_t size_bytes = (size_t)n_elements * element_bytes;
    if (from->storage == TENSOR_INLINE || size_bytes == 0 ||
        (size_bytes <= TENSOR_INLINE_BYTES && likely(!(from->buffer->flags & BUFFER_IS_DEVICE)))) {
        set_head(ret, dtype, shape, n_elements, TENSOR_INLINE);
        memset(ret->bytes, 0, sizeof(ret->bytes));
        elements_copy(dtype, ret->bytes, data, n_elements);
        return;
    }
    set_head(ret, dtype, shape, n_elements, TENSOR_BUFFER);
    ret->buffer = buffer_ref(from->buffer);
    ret->data = from->data + (size_t)first * element_bytes;
}

struct status *tensor_reshape(const struct tensor *from, struct shape shape, struct tensor *ret) {
    int64_t n_elements;
    TRY(shape_n_elements(shape, &n_elements));
    if (n_elements != from->n_elements)
        return status_invalid(
            "Input to reshape is a tensor with %lld values, but the requested shape has %lld",
            (long long)from->n_elements, (long long)n_elements);
    share_elements(from, 0, n_elements, shape, ret);
    return NULL;
}

struct status *tensor_slice_rows(const struct tensor *from, int64_t begin, int64_t end,
                                 struct tensor *ret) {
    CHECK(from->rank >= 1 && begin >= 0 && begin <= end && end <= tensor_dim(from, 0));
    int64_t dims[SHAPE_MAX_RANK];
    memcpy(dims, tensor_dims(from), (size_t)from->rank * sizeof(dims[0]));
    int64_t row_elements = dims[0] > 0 ? from->n_elements / dims[0] : 0;
    dims[0] = end - begin;
    share_elements(from, begin * row_elements, dims[0] * row_elements,
                   (struct shape){from->rank, dims}, ret);
    return NULL;
}

static struct status *clone_on_device(struct allocator *allocator, const struct tensor *from,
                                      struct tensor *ret) {
    TRY(tensor_new_on_device(allocator, (enum dtype)from->dtype, tensor_shape(from), ret));
    struct status *st =
        allocator->device_memory->copy(allocator, ret->data, from->data, tensor_size_bytes(from));
    if (st)
        tensor_clear(ret);
    return st;
}

struct status *tensor_clone(struct allocator *allocator, const struct tensor *from,
                            struct tensor *ret) {
    if (unlikely(tensor_is_on_device(from)))
        return clone_on_device(allocator, from, ret);
    TRY(tensor_new(allocator, (enum dtype)from->dtype, tensor_shape(from), ret));
    elements_copy((enum dtype)from->dtype, tensor_data(ret), tensor_cdata(from), from->n_elements);
    return NULL;
}

void tensor_set_dtype(struct tensor *t, enum dtype dtype) {
    CHECK(dtype_size(dtype) == dtype_size((enum dtype)t->dtype) && dtype_in(dtype, DTYPES_PLAIN) &&
          dtype_in((enum dtype)t->dtype, DTYPES_PLAIN));
    t->dtype = (uint8_t)dtype;
}

/* ---- elements ---- */

void tensor_set_object(struct tensor *t, int64_t i, struct object *object_take) {
    struct object **slot = (struct object **)tensor_data(t) + i;
    object_unref(*slot);
    *slot = object_take;
}

void tensor_set_string(struct tensor *t, int64_t i, const void *data, size_t len) {
    struct bytes *bytes = bytes_new(data, len);
    tensor_set_object(t, i, bytes ? &bytes->object : NULL);
}

void elements_copy(enum dtype dtype, void *to, const void *from, int64_t n) {
    if (n == 0)
        return;
    if (!dtype_is_object(dtype)) {
        pool_copy(to, from, (size_t)n * dtype_size(dtype));
        return;
    }
    for (int64_t i = 0; i < n && pool_goes_on(i + 1); i++)
        ((struct object **)to)[i] = object_ref(((struct object *const *)from)[i]);
}

static bool object_equal(const struct object *a, const struct object *b) {
    if (a == b)
        return true;
    if (!a || !b || a->type != &bytes_type || b->type != &bytes_type)
        return false;
    return span_equal(bytes_span(CONTAINER_OF(a, struct bytes, object)),
                      bytes_span(CONTAINER_OF(b, struct bytes, object)));
}

bool tensor_equal(const struct tensor *a, const struct tensor *b) {
    if (a->storage == TENSOR_REF || b->storage == TENSOR_REF)
        return a->storage == b->storage && a->ref == b->ref;
    if (!tensor_has_value(a) || !tensor_has_value(b))
        return a->storage == b->storage;
    if (a->dtype != b->dtype || !shape_equal(tensor_shape(a), tensor_shape(b)))
        return false;
    if (!dtype_is_object((enum dtype)a->dtype))
        return a->n_elements == 0 ||
               memcmp(tensor_cdata(a), tensor_cdata(b), tensor_size_bytes(a)) == 0;
    struct object *const *left = tensor_cdata(a), *const *right = tensor_cdata(b);
    for (int64_t i = 0; i < a->n_elements; i++)
        if (!object_equal(left[i], right[i]))
            return false;
    return true;
}
