/* A table from keys to values: integers or strings to rows of one dtype, in memory, a resource.
 *
 * Entries lie one after the other and are found through open addressing; a removed one's place
 * is taken by the last. A static table (HashTable) is filled once. Threads: any; functions take
 * the lock themselves. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_LOOKUP_TABLE_H
#define MILLRACE_KERNELS_HOST_RESOURCES_LOOKUP_TABLE_H

#include <pthread.h>

#include "kernels/kernel.h"

struct lookup_table;
/* How another kind of table does what the functions below do. */
struct lookup_methods {
    struct status *(*find)(struct lookup_table *table, const struct tensor *keys,
                           const struct tensor *defaults, bool has_one_default, struct tensor *out);
    struct status *(*insert)(struct lookup_table *table, const struct tensor *keys,
                             const struct tensor *values, bool is_import);
    struct status *(*remove)(struct lookup_table *table, const struct tensor *keys);
    int64_t (*size)(struct lookup_table *table);
    struct status *(*export)(struct lookup_table *table, struct allocator *allocator,
                             struct tensor *ret_keys, struct tensor *ret_values);
    void (*clear)(struct lookup_table *table);
    void (*free)(struct lookup_table *table); /* itself and what it has beyond a lookup_table */
};

/* Keys are compared as 64 bits: an integer, or a pointer to a string's bytes (struct bytes,
 * counted). */
struct lookup_table {
    struct object object;
    const struct lookup_methods *methods; /* NULL: this kind */
    enum dtype key_dtype, value_dtype;
    struct shape key_shape;   /* [], or of another kind of table [n] */
    struct shape value_shape; /* [] or [row_len]; owns its sizes */
    int64_t row_len;
    bool is_static;
    uint64_t seed;
    pthread_rwlock_t lock;
    /* guarded by lock */
    bool is_initialized; /* static tables only */
    int64_t n, capacity; /* of entries */
    uint64_t *keys;
    uint32_t *hashes;
    char *values;     /* rows of row_len elements */
    uint32_t *slots;  /* 0: free, else 1 + the entry's number */
    uint64_t n_slots; /* a power of two above n, or 0 */
};
extern const struct object_type lookup_table_type;

struct lookup_table_options {
    enum dtype key_dtype, value_dtype;
    struct shape value_shape; /* [] or [row_len]; copied */
    bool is_static;
};
struct lookup_table *lookup_table_new(const struct lookup_table_options *options);
/* For other kinds: what all have in common, in memory that is all zeros. */
void lookup_table_init(struct lookup_table *table, const struct lookup_table_options *options);

/* out[i] = the value of keys[i], or the default: row i of `defaults`, or its only row when
 * `has_one_default`. `out` is being made. Errors: FAILED_PRECONDITION for a static table that is
 * not filled yet. */
struct status *lookup_table_find(struct lookup_table *table, const struct tensor *keys,
                                 const struct tensor *defaults, bool has_one_default,
                                 struct tensor *out) MUST_USE;
/* Adds or replaces; drops all others first when `is_import`. Errors: RESOURCE_EXHAUSTED. */
struct status *lookup_table_insert(struct lookup_table *table, const struct tensor *keys,
                                   const struct tensor *values, bool is_import) MUST_USE;
/* Fills a static table; nothing happens to one that is filled already. Errors:
 * FAILED_PRECONDITION when a key has two values. */
struct status *lookup_table_fill(struct lookup_table *table, const struct tensor *keys,
                                 const struct tensor *values) MUST_USE;
/* Errors: what another kind says of a key. */
struct status *lookup_table_remove(struct lookup_table *table, const struct tensor *keys) MUST_USE;
int64_t lookup_table_size(struct lookup_table *table);
/* All keys [n] and values [n] + value_shape, in no order that anybody may rely on. *ret_keys and
 * *ret_values must hold nothing. Errors: ABORTED for a static table that is not filled yet;
 * RESOURCE_EXHAUSTED. */
struct status *lookup_table_export(struct lookup_table *table, struct allocator *allocator,
                                   struct tensor *ret_keys, struct tensor *ret_values) MUST_USE;
void lookup_table_clear(struct lookup_table *table);

/* The table of the handle in input 0, with a reference of its own. */
struct status *lookup_table_of_input(struct kernel_ctx *ctx, struct lookup_table **ret) MUST_USE;
static inline void lookup_table_unref(struct lookup_table *table) {
    if (table)
        object_unref(&table->object);
}
/* "Table localhost t is not initializable" for any but a static table. */
struct status *lookup_check_static(const struct kernel_ctx *ctx,
                                   const struct lookup_table *table) MUST_USE;

#endif
