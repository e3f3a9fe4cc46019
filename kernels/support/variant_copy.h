/* Copies variants between the memories of devices.
 *
 * A variant on an edge is in a memory as any value is: the object itself is the host's always, and
 * the tensors of a list in it are in the memory of the edge. So a copy to another memory makes new
 * lists and moves each of their tensors:
 *
 *     variant_copy_begin ──► a copy whose lists share the tensors, and the places of those to move
 *                            the caller replaces each tensor by one in the other memory
 *
 * Values of other kinds (datasets, numbers, ragged tensors) are in host memory on every edge and
 * are shared. So are tensors that have no elements, or text. Any thread. */
#ifndef MILLRACE_KERNELS_SUPPORT_VARIANT_COPY_H
#define MILLRACE_KERNELS_SUPPORT_VARIANT_COPY_H

#include "kernels/support/variant.h"

struct variant_places {
    struct tensor **items;
    int64_t n, capacity;
};

/* Makes *ret, which holds nothing, a copy of the variant tensor `from`, and *ret_places those
 * tensors in it that are not in the wanted memory: that of a device's allocator, or the host's for
 * NULL. Only the caller holds
 * the lists of *ret. Where no tensor is to be moved, *ret shares the lists of `from`. Values that
 * arrived serialized are decoded into host memory first. The caller calls variant_places_fini in
 * any case. Errors: those of decoding; RESOURCE_EXHAUSTED. */
struct status *variant_copy_begin(const struct tensor *from, const struct allocator *wanted,
                                  struct tensor *ret, struct variant_places *ret_places) MUST_USE;
void variant_places_fini(struct variant_places *places);

#endif
