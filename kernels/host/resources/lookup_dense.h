/* Keeps the table of MutableDenseHashTable: open addressing in two tensors, one of keys and one of
 * values, with a bucket in each row. An export returns these tensors as they are. The user names
 * two keys that are never inserted: one marks empty buckets, the other marks buckets whose key was
 * removed. Any thread. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_LOOKUP_DENSE_H
#define MILLRACE_KERNELS_HOST_RESOURCES_LOOKUP_DENSE_H

#include "kernels/host/resources/lookup_table.h"

struct lookup_dense_options {
    struct lookup_table_options table;
    int64_t initial_buckets; /* a power of two, 4 or more */
    float max_load;          /* in (0, 1): the share of buckets in use that makes the table grow */
};
/* A table with one reference. The options come from attrs, and are checked. empty_key and
 * deleted_key are scalars or vectors and have the shape of a key. Errors: INVALID_ARGUMENT,
 * RESOURCE_EXHAUSTED. */
struct status *lookup_dense_new(const struct lookup_dense_options *options,
                                struct allocator *allocator, const struct tensor *empty_key,
                                const struct tensor *deleted_key,
                                struct lookup_table **ret) MUST_USE;

#endif
