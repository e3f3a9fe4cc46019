/* Keeps tuples of tensors between two places of a program: first in, first out (Stage), or by a key
 * (MapStage).
 *
 *   area      put ──► tuples, in order ──► get the first, or peek at the i-th
 *   map       put of all components ──► tuples by key ──► get or peek at components by key;
 *                                                         get any key's
 *             put of some components ──► incomplete, by key ──(the last gap filled)──► tuples
 *
 * A put waits while there are `capacity` tuples, or while its tuple would exceed `memory_limit`
 * bytes. A get waits until what it wants is there. Incomplete tuples count as bytes, not as tuples.
 * The components of a tuple can be taken one by one; a tuple without components is removed. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_STAGING_H
#define MILLRACE_KERNELS_HOST_RESOURCES_STAGING_H

#include "common/base/map.h"
#include "kernels/support/named_resource.h"
#include "kernels/support/wait_room.h"

/* A tuple. A missing component holds nothing. Made by staging_tuple_new. */
struct staging_tuple {
    struct tensor key_value; /* the key as a tensor */
    struct list link;        /* struct staging.tuples */
    int64_t key;
    int n, n_present;
    struct tensor values[];
};
struct staging_tuple *staging_tuple_new(int n);
void staging_tuple_free(struct staging_tuple *staged);

struct staging_options {
    int64_t capacity, memory_limit; /* 0: no limit */
    int n_components;               /* of a complete tuple; maps only */
};

struct staging {
    struct object object;
    struct wait_room room;
    struct staging_options options; /* constant */
    /* constant: a map that hands out tuples in the order of their keys */
    bool is_ordered;
    /* guarded by room.lock */
    struct list tuples; /* struct staging_tuple.link */
    int64_t n, size_bytes, incomplete_bytes;
    struct u64map by_key, incomplete; /* maps only: key → struct staging_tuple */
};
/* Three kinds of resources. */
extern const struct object_type staging_area_type, staging_map_type, staging_ordered_map_type;

struct staging *staging_new(const struct object_type *type, const struct staging_options *options);

/* Computes a put op and returns what the kernel must return. Takes the tuple; a tuple with gaps is
 * kept as incomplete. Errors: RESOURCE_EXHAUSTED when the tuple can never fit; INVALID_ARGUMENT for
 * a component that the key has already. */
enum kernel_result staging_put(struct staging *staging, struct kernel_ctx *ctx,
                               struct staging_tuple *staged_take);

enum staging_choice { STAGING_FIRST, STAGING_AT, STAGING_KEY };
struct staging_request {
    enum staging_choice choice;
    bool is_peek;                 /* the tuple stays in the area */
    bool gives_key;               /* output 0 is the key */
    int64_t at;                   /* STAGING_AT: its position; STAGING_KEY: its key */
    const struct tensor *indices; /* of the wanted components, in rising order, copied; NULL: all */
};
/* Computes a get or peek op and returns what the kernel must return. Errors: INVALID_ARGUMENT for
 * components that are out of range, were taken already, or are not as many as the outputs; INTERNAL
 * for other types. */
enum kernel_result staging_get(struct staging *staging, struct kernel_ctx *ctx,
                               struct staging_request request);
void staging_clear(struct staging *staging);
int64_t staging_size(struct staging *staging);
int64_t staging_incomplete_size(struct staging *staging);

#endif
