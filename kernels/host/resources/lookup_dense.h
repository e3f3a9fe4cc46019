/* The table of MutableDenseHashTable: open addressing in two tensors, buckets of keys and of
 * values, which its export shows as they are. Two keys that the user never uses mark the buckets
 * that are empty and those whose key was removed. Any thread. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_LOOKUP_DENSE_H
#define MILLRACE_KERNELS_HOST_RESOURCES_LOOKUP_DENSE_H

#include "kernels/host/resources/lookup_table.h"

struct lookup_dense_options {
    struct lookup_table_options table;
    int64_t initial_buckets; /* a power of two, 4 or more */
    float max_load;          /* in (0, 1): the share of buckets in use that makes the table grow */
};
/* Of attrs. Errors: INVALID_ARGUMENT. */
struct status *lookup_dense_check(const struct lookup_dense_options *options) MUST_USE;
/* empty_key, deleted_key: scalars or vectors of one shape, that of a key. Errors:
 * INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
struct status *lookup_dense_new(const struct lookup_dense_options *options,
                                struct allocator *allocator, const struct tensor *empty_key,
                                const struct tensor *deleted_key,
                                struct lookup_table **ret) MUST_USE;

#endif
