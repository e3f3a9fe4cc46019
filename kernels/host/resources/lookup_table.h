/* Maps keys to values in memory, as a resource. A key is an integer or a string, a value is a row
 * of one dtype.
 *
 * Entries are stored one after the other and are found through open addressing. Removing an entry
 * moves the last entry into its place. A static table (HashTable) is filled once. All functions may
 * be called on any thread; they take the lock themselves. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_LOOKUP_TABLE_H
#define MILLRACE_KERNELS_HOST_RESOURCES_LOOKUP_TABLE_H

#include <pthread.h>

#include "kernels/kernel.h"

struct lookup_table;
/* What a kind of table implements. The functions below call these. */
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
    /* frees the struct and what it owns beyond a lookup_table */
    void (*free)(struct lookup_table *table);
};

/* A key is kept as 64 bits: an integer, or a pointer to a string's bytes (struct bytes,
 * counted). */
struct lookup_table {
    struct object object;
    const struct lookup_methods *methods; /* NULL: this kind */
    enum dtype key_dtype, value_dtype;
    struct shape key_shape;   /* []; a dense table may have [n] */
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
/* Sets up what all kinds of tables have in common, in zeroed memory. */
void lookup_table_init(struct lookup_table *table, const struct lookup_table_options *options);

/* Sets out[i] to the value of keys[i], or to its default: row i of `defaults`, or its only row with
 * `has_one_default`. `out` is allocated by the caller and nobody else reads it yet. Errors:
 * FAILED_PRECONDITION for a static table that is not filled yet. */
struct status *lookup_table_find(struct lookup_table *table, const struct tensor *keys,
                                 const struct tensor *defaults, bool has_one_default,
                                 struct tensor *out) MUST_USE;
/* Adds or replaces the entries of these keys. `is_import` removes all other entries first. Errors:
 * RESOURCE_EXHAUSTED. */
struct status *lookup_table_insert(struct lookup_table *table, const struct tensor *keys,
                                   const struct tensor *values, bool is_import) MUST_USE;
/* Fills a static table. A table that is filled already stays as it is. Errors: FAILED_PRECONDITION
 * when a key has two values. */
struct status *lookup_table_fill(struct lookup_table *table, const struct tensor *keys,
                                 const struct tensor *values) MUST_USE;
/* Removes the entries of these keys. Errors: those of the kind of table, about a key. */
struct status *lookup_table_remove(struct lookup_table *table, const struct tensor *keys) MUST_USE;
int64_t lookup_table_size(struct lookup_table *table);
/* Sets *ret_keys to all keys [n] and *ret_values to their values [n] + value_shape. The order is
 * not defined. *ret_keys and *ret_values must hold nothing. Errors: ABORTED for a static table that
 * is not filled yet; RESOURCE_EXHAUSTED. */
struct status *lookup_table_export(struct lookup_table *table, struct allocator *allocator,
                                   struct tensor *ret_keys, struct tensor *ret_values) MUST_USE;
void lookup_table_clear(struct lookup_table *table);

/* Finds the table that the handle in input 0 names, and adds a reference for the caller. */
struct status *lookup_table_of_input(struct kernel_ctx *ctx, struct lookup_table **ret) MUST_USE;
static inline void lookup_table_unref(struct lookup_table *table) {
    if (table)
        object_unref(&table->object);
}
/* Errors: FAILED_PRECONDITION "Table … is not initializable" for a table that is not static. */
struct status *lookup_check_static(const struct kernel_ctx *ctx,
                                   const struct lookup_table *table) MUST_USE;

#endif
