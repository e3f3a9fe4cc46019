/* Counts references to the objects that elements of tensors point to: strings, resource handles,
 * variants.
 *
 * An element of such a tensor is one pointer; NULL is the empty string or an empty variant. Copying
 * an element shares the object. An object is immutable once it is shared. A kind of variants is an
 * object_type that the kind's own file defines. Any thread. */
#ifndef MILLRACE_COMMON_TENSOR_OBJECT_H
#define MILLRACE_COMMON_TENSOR_OBJECT_H

#include <stdatomic.h>

#include "common/base/status.h"
#include "common/base/str.h"
#include "common/tensor/dtype.h"

struct object;
struct str;

/* The kind of an object: a static table for each kind, compared by address. */
struct object_type {
    const char *name;                    /* "string", "resource", "tensorflow::TensorList" */
    void (*free)(struct object *object); /* called when the last reference has been released */
    /* Appends the fields of the VariantTensorDataProto that stands for a variant. NULL: a message
     * carries only the name of the kind. */
    void (*encode)(const struct object *object, struct str *out);
};

struct object {
    _Atomic uint32_t n_refs;
    const struct object_type *type;
};

static inline struct object *object_ref(struct object *object) {
    if (object)
        atomic_fetch_add_explicit(&object->n_refs, 1, memory_order_relaxed);
    return object;
}
static inline void object_unref(struct object *object) {
    if (object && atomic_fetch_sub_explicit(&object->n_refs, 1, memory_order_acq_rel) == 1)
        object->type->free(object);
}
static inline void object_init(struct object *object, const struct object_type *type) {
    atomic_init(&object->n_refs, 1);
    object->type = type;
}

/* A string element: immutable bytes, which may contain NULs. A NUL follows them. */
struct bytes {
    struct object object;
    size_t len;
    char data[];
};
extern const struct object_type bytes_type;

struct bytes *bytes_new(const void *data, size_t len); /* NULL for len 0: the empty string */
/* the caller fills data before sharing; NULL for len 0 */
struct bytes *bytes_new_uninit(size_t len);
static inline struct span bytes_span(const struct bytes *bytes) {
    return bytes ? (struct span){bytes->data, bytes->len} : (struct span){"", 0};
}

/* A resource element: names a resource on a device. The containers of that device hold the
 * resource. */
struct resource_handle {
    struct object object;
    const char *device;    /* full device name of its owner */
    const char *container; /* "" has been replaced by the default, "localhost" */
    const char *name;
    const char *type_name; /* "variable", "queue", … what kind of resource it names */
    uint64_t hash;         /* hash of container and name, for lookups */
    enum dtype dtype;      /* dtype of the value that the resource holds; DT_INVALID when unknown */
    /* The result of the owner's lookup: an owning reference to the container entry. A Reset removes
     * the resource from the entry. NULL on any other task. The owner sets it once, before it shares
     * the handle. */
    struct object *entry;
};
extern const struct object_type resource_handle_type;

/* Copies all text. Takes the reference `entry_take`, which may be NULL. */
struct resource_handle *resource_handle_new(const char *device, const char *container,
                                            const char *name, const char *type_name,
                                            enum dtype dtype, struct object *entry_take);

#endif
