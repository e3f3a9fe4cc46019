/* Counted objects that tensors of the object dtypes point to: strings, resource handles,
 * variants.
 *
 * An element of such a tensor is one pointer; NULL stands for the empty string or an empty
 * variant. Copying an element shares the object, which is immutable once it is shared. Any
 * thread. */
#ifndef MILLRACE_COMMON_TENSOR_OBJECT_H
#define MILLRACE_COMMON_TENSOR_OBJECT_H

#include <stdatomic.h>

#include "common/base/status.h"
#include "common/base/str.h"
#include "common/tensor/dtype.h"

struct object;
struct str;

/* What kind of object; a static table per kind, compared by address. */
struct object_type {
    const char *name;                    /* "string", "resource", "tensorflow::TensorList" */
    void (*free)(struct object *object); /* the last reference is gone */
    /* Kinds of variants that can travel: adds the fields of the VariantTensorDataProto that
     * stands for it. NULL: only its name travels. */
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

/* A string element: immutable bytes, which may hold NULs; a NUL follows them. */
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

/* A resource element: the name of a resource on a device, kept by that device's containers. */
struct resource_handle {
    struct object object;
    const char *device;    /* full device name of its owner */
    const char *container; /* "" has been replaced by the default, "localhost" */
    const char *name;
    const char *type_name; /* "variable", "queue", … what kind of resource it names */
    uint64_t hash;         /* of container and name: lookups need not hash again */
    enum dtype dtype;      /* of what it holds, DT_INVALID when unknown */
    /* A cache of the owner's lookup: an owning reference to the container entry, whose resource
     * disappears from it on Reset. NULL on any task but the owner. Set once by the owner before
     * the handle is shared. */
    struct object *entry;
};
extern const struct object_type resource_handle_type;

/* Copies all text. `entry` is taken (may be NULL). */
struct resource_handle *resource_handle_new(const char *device, const char *container,
                                            const char *name, const char *type_name,
                                            enum dtype dtype, struct object *entry_take);

/* A variant element of a kind that can travel or be shown: variant kinds are object types listed
 * by who defines them. */
#endif
