/* Says what a resource holds, for status pages. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_RESOURCE_HELD_H
#define MILLRACE_KERNELS_HOST_RESOURCES_RESOURCE_HELD_H

#include "common/tensor/object.h"

struct resource_held {
    int64_t size_bytes; /* of its tensors' elements; text counts its pointers only */
    int64_t n_items;    /* tensors, queue elements or table entries */
    const char *memory; /* the name of the allocator of the last tensor; NULL: unknown */
};

/* How many tensors one page may look at, of all its resources. */
enum { RESOURCE_HELD_MAX_LOOKS = 50000 };

/* False: resources of its kind do not tell, or it is busy, or *n_looks is used up. *n_looks is the
 * number of tensors that may be looked at. It is reduced by at least 1, to 0 at the lowest. The
 * tensors that were looked at stand for the rest of the resource. It never waits for a lock,
 * because pages are made on the loop. Any thread. */
bool resource_held(struct object *resource, int *n_looks, struct resource_held *ret);

#endif
