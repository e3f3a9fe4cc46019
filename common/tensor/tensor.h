/* Holds a tensor in one cache line: dtype, shape and elements.
 *
 *   dtype rank storage │ n_elements │ 4 sizes or │ 16 bytes of elements,
 *                      │            │ a pointer  │ or buffer and data
 *
 * Up to 16 bytes of elements live inside the value (a scalar of any dtype, 4 floats), so scalar
 * work touches neither an allocator nor an atomic. Larger ones share a counted buffer; views
 * (slices, reshapes) point into it. The holder of the struct owns the value: tensor_copy shares it,
 * tensor_move moves it, tensor_clear releases it. Assigning the struct moves ownership and is for
 * the executor's slots only.
 *
 * TENSOR_NONE is no value and owns nothing; all-zero memory is a valid TENSOR_NONE. TENSOR_REF is
 * the value of a reference edge: a counted pointer to a variable (kernels/variable.h) without
 * elements of its own. TENSOR_DEAD is the dead value of a branch that was not taken; it owns
 * nothing.
 *
 * The elements of a value in a device's memory are out of the host's reach, and such a value is
 * never inline, unless it has no elements. tensor_new_on_device, _reshape, _slice_rows and _clone
 * respect that; everything that reads elements wants a value in host memory.
 *
 * Threads: a tensor struct belongs to one thread at a time; the buffers behind it may be shared
 * by many. */
#ifndef MILLRACE_COMMON_TENSOR_TENSOR_H
#define MILLRACE_COMMON_TENSOR_TENSOR_H

#include "common/base/arena.h"
#include "common/base/status.h"
#include "common/base/str.h"
#include "common/tensor/buffer.h"
#include "common/tensor/dtype.h"
#include "common/tensor/object.h"
#include "common/tensor/shape.h"

enum tensor_storage {
    TENSOR_NONE = 0,
    TENSOR_INLINE = 1,
    TENSOR_BUFFER = 2,
    TENSOR_REF = 3,
    TENSOR_DEAD = 4
};

enum { TENSOR_INLINE_BYTES = 16, TENSOR_INLINE_RANK = 4 };

struct tensor {
    uint8_t dtype; /* enum dtype; for TENSOR_REF the variable's base dtype */
    uint8_t rank;
    uint8_t storage;       /* enum tensor_storage */
    uint8_t has_ref_shape; /* TENSOR_REF: the shape below is that of tensor_set_ref_shape */
    uint8_t reserved[4];
    int64_t n_elements;
    union {
        int64_t dims[TENSOR_INLINE_RANK]; /* rank <= 4 */
        int64_t *long_dims;               /* rank > 4: owned, malloc'd */
    };
    union {
        /* TENSOR_INLINE; object dtypes keep their one or two pointers here */
        char bytes[TENSOR_INLINE_BYTES];
        struct {
            struct buffer *buffer; /* TENSOR_BUFFER: one reference */
            char *data;            /* first element, inside the buffer */
        };
        struct object *ref; /* TENSOR_REF: the variable */
    } __attribute__((aligned(16)));
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct tensor) == 64, "a tensor is one cache line");

#define TENSOR_INIT ((struct tensor){.storage = TENSOR_NONE})

/* ---- lifetime ---- */

void tensor_clear_slow(struct tensor *t);
/* Releases what t holds; t is TENSOR_NONE then. */
static inline void tensor_clear(struct tensor *t) {
    if (unlikely(t->storage == TENSOR_BUFFER || t->storage == TENSOR_REF ||
                 t->rank > TENSOR_INLINE_RANK || dtype_is_object((enum dtype)t->dtype)))
        tensor_clear_slow(t);
    t->storage = TENSOR_NONE;
}
void tensor_copy_slow(struct tensor *to, const struct tensor *from);
/* Shares the elements of `from`. `to` must hold nothing: its old contents are ignored. */
static inline void tensor_copy(struct tensor *to, const struct tensor *from) {
    *to = *from;
    if (unlikely(from->storage == TENSOR_BUFFER || from->storage == TENSOR_REF ||
                 from->rank > TENSOR_INLINE_RANK || dtype_is_object((enum dtype)from->dtype)))
        tensor_copy_slow(to, from);
}
/* Moves the value. `to` must hold nothing; `from` is TENSOR_NONE then. */
static inline void tensor_move(struct tensor *to, struct tensor *from) {
    *to = *from;
    from->storage = TENSOR_NONE;
}

/* ---- making ---- All set *ret only on success; *ret must hold nothing. Elements of object dtypes
 * start as NULL pointers, others are undefined unless a comment says otherwise. Errors:
 * INVALID_ARGUMENT for a bad shape (negative size, rank, overflow), RESOURCE_EXHAUSTED for
 * memory, CANCELLED when nobody wants large zeroed memory any more (common/base/pool_cancel.h). */
struct status *tensor_new(struct allocator *allocator, enum dtype dtype, struct shape shape,
                          struct tensor *ret) MUST_USE;
struct status *tensor_new_zeroed(struct allocator *allocator, enum dtype dtype, struct shape shape,
                                 struct tensor *ret) MUST_USE;
/* The same in a device's memory: `allocator` is the device's, and the dtype is plain. */
struct status *tensor_new_on_device(struct allocator *allocator, enum dtype dtype,
                                    struct shape shape, struct tensor *ret) MUST_USE;
/* Scalars: these functions never fail and call no allocator. `value` points to one element of a
 * plain dtype. */
void tensor_init_scalar(struct tensor *ret, enum dtype dtype, const void *value);
static inline void tensor_init_scalar_f32(struct tensor *ret, float v) {
    tensor_init_scalar(ret, DT_FLOAT, &v);
}
static inline void tensor_init_scalar_i32(struct tensor *ret, int32_t v) {
    tensor_init_scalar(ret, DT_INT32, &v);
}
static inline void tensor_init_scalar_i64(struct tensor *ret, int64_t v) {
    tensor_init_scalar(ret, DT_INT64, &v);
}
static inline void tensor_init_scalar_bool(struct tensor *ret, bool v) {
    tensor_init_scalar(ret, DT_BOOL, &v);
}
/* A scalar of an object dtype; takes the reference `object_take`. */
void tensor_init_scalar_object(struct tensor *ret, enum dtype dtype, struct object *object_take);
void tensor_init_ref(struct tensor *ret, enum dtype base, struct object *variable_take);
/* Says under which shape a TENSOR_REF is read: a reshaped view of the variable. */
void tensor_set_ref_shape(struct tensor *ref, struct shape shape, int64_t n_elements);
static inline void tensor_init_dead(struct tensor *ret) {
    ret->storage = TENSOR_DEAD;
    ret->dtype = DT_INVALID;
    ret->rank = 0;
}
/* A view of a part of `buffer`, with a reference to it. The data must be aligned for the dtype
 * (otherwise use tensor_new and copy). */
struct status *tensor_view(struct buffer *buffer, char *data, enum dtype dtype, struct shape shape,
                           struct tensor *ret) MUST_USE;
/* The same elements under another shape with the same number of elements. */
struct status *tensor_reshape(const struct tensor *from, struct shape shape,
                              struct tensor *ret) MUST_USE;
/* Rows [begin, end) along dimension 0, sharing the buffer. `from` must have rank >= 1 and the range
 * must be inside it. The rows are shared even where they are not 64-byte aligned: kernels assume
 * only the alignment of elements. */
struct status *tensor_slice_rows(const struct tensor *from, int64_t begin, int64_t end,
                                 struct tensor *ret) MUST_USE;
/* A copy with memory of its own (objects are still shared). A value in a device's memory is copied
 * within that memory: `allocator` must be the device's. */
struct status *tensor_clone(struct allocator *allocator, const struct tensor *from,
                            struct tensor *ret) MUST_USE;
/* The same bits under another dtype of equal element size (Bitcast of equal size); plain dtypes
 * only. */
void tensor_set_dtype(struct tensor *t, enum dtype dtype);

/* ---- reading ---- */

static inline const int64_t *tensor_dims(const struct tensor *t) {
    return t->rank <= TENSOR_INLINE_RANK ? t->dims : t->long_dims;
}
static inline int64_t tensor_dim(const struct tensor *t, int i) { return tensor_dims(t)[i]; }
static inline struct shape tensor_shape(const struct tensor *t) {
    return (struct shape){t->rank, tensor_dims(t)};
}
#define TENSOR_SHAPE_TEXT(t) SHAPE_TEXT(tensor_shape(t)) /* for messages */
static inline int64_t tensor_n_elements(const struct tensor *t) { return t->n_elements; }
static inline size_t tensor_size_bytes(const struct tensor *t) {
    return (size_t)t->n_elements * dtype_size((enum dtype)t->dtype);
}
/* Are the elements in a device's memory? */
static inline bool tensor_is_on_device(const struct tensor *t) {
    return t->storage == TENSOR_BUFFER && (t->buffer->flags & BUFFER_IS_DEVICE);
}
static inline bool tensor_has_value(const struct tensor *t) {
    return t->storage == TENSOR_INLINE || t->storage == TENSOR_BUFFER;
}

/* First element; aligned for the dtype. Writable only while the tensor is being made or
 * tensor_is_sole holds. */
static inline void *tensor_data(struct tensor *t) {
    return t->storage == TENSOR_INLINE ? (void *)t->bytes : (void *)t->data;
}
static inline const void *tensor_cdata(const struct tensor *t) {
    return t->storage == TENSOR_INLINE ? (const void *)t->bytes : (const void *)t->data;
}
/* Can nobody else see the elements, so that they may be overwritten in place? */
static inline bool tensor_is_sole(const struct tensor *t) {
    return t->storage == TENSOR_INLINE ||
           (t->storage == TENSOR_BUFFER && buffer_is_sole(t->buffer));
}

static inline struct span tensor_string(const struct tensor *t, int64_t i) {
    return bytes_span(((struct bytes *const *)tensor_cdata(t))[i]);
}
/* Sets element i of a string tensor that is being made; releases its old value. */
void tensor_set_string(struct tensor *t, int64_t i, const void *data, size_t len);
void tensor_set_object(struct tensor *t, int64_t i, struct object *object_take);

/* An element of an int32 or int64 tensor, such as a shape or an axis. */
static inline int64_t tensor_index_at(const struct tensor *t, int64_t i) {
    return t->dtype == DT_INT32 ? (int64_t)((const int32_t *)tensor_cdata(t))[i]
                                : ((const int64_t *)tensor_cdata(t))[i];
}
static inline void tensor_set_index(struct tensor *t, int64_t i, int64_t value) {
    if (t->dtype == DT_INT32)
        ((int32_t *)tensor_data(t))[i] = (int32_t)value;
    else
        ((int64_t *)tensor_data(t))[i] = value;
}
/* Copies n elements, sharing objects. The destination must hold NULL pointers where the dtype is an
 * object dtype. Many elements are copied in pieces, of which the last ones are left out once nobody
 * wants the result (common/base/pool_cancel.h). */
void elements_copy(enum dtype dtype, void *to, const void *from, int64_t n);
/* "float[2,3]{1, 2, 3, …}" with at most max_elements shown. */
void tensor_print(const struct tensor *t, int64_t max_elements, struct str *out);
/* Reads what tensor_print writes for plain dtypes and strings, and moves `text` past it. `…`
 * repeats the element before it, or zero where there is none. Errors: INVALID_ARGUMENT, with `text`
 * at the place of the error. */
struct status *tensor_parse(struct span *text, struct allocator *allocator,
                            struct tensor *ret) MUST_USE;
/* compares dtype, shape and bits (the bytes of strings, the addresses of other objects) */
bool tensor_equal(const struct tensor *a, const struct tensor *b);

#endif
