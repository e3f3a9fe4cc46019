/* Implements dense tables (kernels/host/resources/lookup_dense.h). */
#include "kernels/host/resources/lookup_dense.h"

#include <stdlib.h>

#include "kernels/support/hashes.h"

enum { MIN_BUCKETS = 4 };

struct dense {
    struct lookup_table table; /* the first field; its entries stay empty */
    struct allocator *allocator;
    int64_t key_len, initial_buckets;
    float max_load;
    struct tensor empty_key, deleted_key;
    /* guarded by table.lock */
    struct tensor keys, values; /* [n_buckets, key_len], [n_buckets, row_len] */
    int64_t n_buckets, n_entries;
};

static struct dense *dense_of(struct lookup_table *table) {
    return CONTAINER_OF(table, struct dense, table);
}

/* ---- keys ---- */

static bool has_text(const struct dense *dense) { return dense->table.key_dtype == DT_STRING; }

static bool keys_equal(const struct dense *dense, const struct tensor *a, int64_t i,
                       const struct tensor *b, int64_t j) {
    size_t size = (size_t)dense->key_len * dtype_size(dense->table.key_dtype);
    if (!has_text(dense))
        return memcmp((const char *)tensor_cdata(a) + (size_t)i * size,
                      (const char *)tensor_cdata(b) + (size_t)j * size, size) == 0;
    for (int64_t k = 0; k < dense->key_len; k++) {
        if (!span_equal(tensor_string(a, i * dense->key_len + k),
                        tensor_string(b, j * dense->key_len + k)))
            return false;
    }
    return true;
}

static uint64_t element_hash(const struct tensor *keys, int64_t i) {
    if (keys->dtype != DT_STRING)
        return (uint64_t)tensor_index_at(keys, i);
    struct span text = tensor_string(keys, i);
    return hash_murmur64(text.data, text.len, 0xDECAFCAFFEu);
}

/* TensorFlow's hash, because an export shows in which buckets keys are. */
static uint64_t key_hash(const struct dense *dense, const struct tensor *keys, int64_t i) {
    if (dense->empty_key.rank == 0)
        return element_hash(keys, i);
    uint64_t hash = 0;
    for (int64_t k = 0; k < dense->key_len; k++)
        hash ^= element_hash(keys, i * dense->key_len + k) + 0x9e3779b97f4a7800u + (hash << 10) +
                (hash >> 4);
    return hash;
}

static struct status *check_key(const struct dense *dense, const struct tensor *keys, int64_t i) {
    if (keys_equal(dense, keys, i, &dense->empty_key, 0))
        return status_invalid("Using the empty_key as a table key is not allowed");
    if (keys_equal(dense, keys, i, &dense->deleted_key, 0))
        return status_invalid("Using the deleted_key as a table key is not allowed");
    return NULL;
}

/* ---- buckets ---- */

static void set_row(enum dtype dtype, struct tensor *to, int64_t i, const struct tensor *from,
                    int64_t j, int64_t len) {
    size_t size = (size_t)len * dtype_size(dtype);
    char *at = (char *)tensor_data(to) + (size_t)i * size;
    for (int64_t k = 0; dtype_is_object(dtype) && k < len; k++) {
        struct object **element = (struct object **)(void *)at + k;
        object_unref(*element);
        *element = NULL;
    }
    elements_copy(dtype, at, (const char *)tensor_cdata(from) + (size_t)j * size, len);
}

/* Makes buckets that are all empty, with values of 0. */
static struct status *make_buckets(const struct dense *dense, int64_t n, struct tensor *ret_keys,
                                   struct tensor *ret_values) {
    int64_t key_dims[2] = {n, dense->key_len}, value_dims[2] = {n, dense->table.row_len};
    TRY(tensor_new_zeroed(dense->allocator, dense->table.key_dtype, (struct shape){2, key_dims},
                          ret_keys));
    struct status *st = tensor_new_zeroed(dense->allocator, dense->table.value_dtype,
                                          (struct shape){2, value_dims}, ret_values);
    if (st) {
        tensor_clear(ret_keys);
        return st;
    }
    for (int64_t i = 0; i < n; i++)
        set_row(dense->table.key_dtype, ret_keys, i, &dense->empty_key, 0, dense->key_len);
    return NULL;
}

static void take_buckets(struct dense *dense, struct tensor *keys, struct tensor *values,
                         int64_t n) {
    tensor_clear(&dense->keys);
    tensor_clear(&dense->values);
    tensor_move(&dense->keys, keys);
    tensor_move(&dense->values, values);
    dense->n_buckets = n;
    dense->n_entries = 0;
}

/* Returns the bucket of a key, or -1. *ret_free is then the bucket where the key belongs. There is
 * always a free bucket. */
static int64_t find_bucket(const struct dense *dense, const struct tensor *keys, int64_t i,
                           int64_t *ret_free) {
    uint64_t mask = (uint64_t)dense->n_buckets - 1, at = key_hash(dense, keys, i) & mask;
    *ret_free = -1;
    for (uint64_t probe = 1; probe <= (uint64_t)dense->n_buckets; at = (at + probe++) & mask) {
        if (keys_equal(dense, &dense->keys, (int64_t)at, keys, i))
            return (int64_t)at;
        bool is_empty = keys_equal(dense, &dense->keys, (int64_t)at, &dense->empty_key, 0);
        if (*ret_free < 0 &&
            (is_empty || keys_equal(dense, &dense->keys, (int64_t)at, &dense->deleted_key, 0)))
            *ret_free = (int64_t)at;
        if (is_empty)
            break;
    }
    return -1;
}

/* The caller has checked that there is room. */
static void put(struct dense *dense, const struct tensor *keys, const struct tensor *values,
                int64_t i) {
    int64_t free_at, at = find_bucket(dense, keys, i, &free_at);
    if (at < 0) {
        at = free_at;
        dense->n_entries++;
        set_row(dense->table.key_dtype, &dense->keys, at, keys, i, dense->key_len);
    }
    set_row(dense->table.value_dtype, &dense->values, at, values, i, dense->table.row_len);
}

/* Adds all entries of these buckets. */
static void put_all(struct dense *dense, const struct tensor *keys, const struct tensor *values,
                    int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (!keys_equal(dense, keys, i, &dense->empty_key, 0) &&
            !keys_equal(dense, keys, i, &dense->deleted_key, 0))
            put(dense, keys, values, i);
    }
}

static bool is_crowded(const struct dense *dense, int64_t n_entries, int64_t n_buckets) {
    return (double)n_entries > (double)n_buckets * (double)dense->max_load;
}

static struct status *reserve(struct dense *dense, int64_t n_more) {
    int64_t n = dense->n_buckets, n_old = dense->n_buckets;
    struct tensor keys = TENSOR_INIT, values = TENSOR_INIT, old_keys = TENSOR_INIT,
                  old_values = TENSOR_INIT;
    while (n < INT64_MAX / 2 && is_crowded(dense, dense->n_entries + n_more, n))
        n *= 2;
    if (n == n_old)
        return NULL;
    TRY(make_buckets(dense, n, &keys, &values));
    tensor_move(&old_keys, &dense->keys);
    tensor_move(&old_values, &dense->values);
    take_buckets(dense, &keys, &values, n);
    put_all(dense, &old_keys, &old_values, n_old);
    tensor_clear(&old_keys);
    tensor_clear(&old_values);
    return NULL;
}

/* ---- the table's methods ---- */

static struct status *dense_find(struct lookup_table *table, const struct tensor *keys,
                                 const struct tensor *defaults, bool has_one_default,
                                 struct tensor *out) {
    struct dense *dense = dense_of(table);
    int64_t n = out->n_elements / MAX(table->row_len, (int64_t)1), free_at;
    struct status *st = NULL;
    pthread_rwlock_rdlock(&table->lock);
    for (int64_t i = 0; !st && i < n; i++) {
        st = check_key(dense, keys, i);
        int64_t at = st ? 0 : find_bucket(dense, keys, i, &free_at);
        if (!st)
            set_row(table->value_dtype, out, i, at >= 0 ? &dense->values : defaults,
                    at >= 0           ? at
                    : has_one_default ? 0
                                      : i,
                    table->row_len);
    }
    pthread_rwlock_unlock(&table->lock);
    return st;
}

/* Imports what dense_export returned: the buckets themselves. */
static struct status *import_buckets(struct dense *dense, const struct tensor *keys,
                                     const struct tensor *values) {
    struct tensor new_keys = TENSOR_INIT, new_values = TENSOR_INIT;
    int64_t n = keys->rank == 2 ? tensor_dim(keys, 0) : 0;
    bool is_right = n >= MIN_BUCKETS && (n & (n - 1)) == 0 &&
                    tensor_dim(keys, 1) == dense->key_len && values->rank == 2 &&
                    tensor_dim(values, 0) == n && tensor_dim(values, 1) == dense->table.row_len;
    if (!is_right)
        return status_invalid("Expected the buckets of a dense hash table, got keys of shape %s "
                              "and values of shape %s",
                              TENSOR_SHAPE_TEXT(keys), TENSOR_SHAPE_TEXT(values));
    int64_t n_entries = 0;
    for (int64_t i = 0; i < n; i++)
        n_entries += !keys_equal(dense, keys, i, &dense->empty_key, 0) &&
                     !keys_equal(dense, keys, i, &dense->deleted_key, 0);
    int64_t n_buckets = n;
    while (n_buckets < INT64_MAX / 2 && is_crowded(dense, n_entries, n_buckets))
        n_buckets *= 2;
    TRY(make_buckets(dense, n_buckets, &new_keys, &new_values));
    take_buckets(dense, &new_keys, &new_values, n_buckets);
    put_all(dense, keys, values, n);
    return NULL;
}

static struct status *dense_insert(struct lookup_table *table, const struct tensor *keys,
                                   const struct tensor *values, bool is_import) {
    struct dense *dense = dense_of(table);
    int64_t n = keys->n_elements / MAX(dense->key_len, (int64_t)1);
    pthread_rwlock_wrlock(&table->lock);
    struct status *st = is_import ? import_buckets(dense, keys, values) : reserve(dense, n);
    for (int64_t i = 0; !st && !is_import && i < n; i++) {
        st = check_key(dense, keys, i);
        if (!st)
            put(dense, keys, values, i);
    }
    pthread_rwlock_unlock(&table->lock);
    return st;
}

static struct status *dense_remove(struct lookup_table *table, const struct tensor *keys) {
    struct dense *dense = dense_of(table);
    int64_t n = keys->n_elements / MAX(dense->key_len, (int64_t)1), free_at;
    struct status *st = NULL;
    pthread_rwlock_wrlock(&table->lock);
    for (int64_t i = 0; !st && i < n; i++) {
        st = check_key(dense, keys, i);
        int64_t at = st ? -1 : find_bucket(dense, keys, i, &free_at);
        if (at < 0)
            continue;
        set_row(table->key_dtype, &dense->keys, at, &dense->deleted_key, 0, dense->key_len);
        dense->n_entries--;
    }
    pthread_rwlock_unlock(&table->lock);
    return st;
}

static int64_t dense_size(struct lookup_table *table) {
    pthread_rwlock_rdlock(&table->lock);
    int64_t n = dense_of(table)->n_entries;
    pthread_rwlock_unlock(&table->lock);
    return n;
}

static struct status *dense_export(struct lookup_table *table, struct allocator *allocator,
                                   struct tensor *ret_keys, struct tensor *ret_values) {
    struct dense *dense = dense_of(table);
    pthread_rwlock_rdlock(&table->lock);
    struct status *st = tensor_clone(allocator, &dense->keys, ret_keys);
    if (!st)
        st = tensor_clone(allocator, &dense->values, ret_values);
    pthread_rwlock_unlock(&table->lock);
    return st;
}

/* Called when the session has ended: releases what the values hold. */
static void dense_clear(struct lookup_table *table) {
    struct dense *dense = dense_of(table);
    struct tensor keys = TENSOR_INIT, values = TENSOR_INIT;
    pthread_rwlock_wrlock(&table->lock);
    struct status *st = make_buckets(dense, dense->initial_buckets, &keys, &values);
    if (!st)
        take_buckets(dense, &keys, &values, dense->initial_buckets);
    /* without memory for new buckets, the old ones stay until the table is freed */
    status_unref(st);
    pthread_rwlock_unlock(&table->lock);
}

static void dense_free(struct lookup_table *table) {
    struct dense *dense = dense_of(table);
    tensor_clear(&dense->keys);
    tensor_clear(&dense->values);
    tensor_clear(&dense->empty_key);
    tensor_clear(&dense->deleted_key);
    free(dense);
}

static const struct lookup_methods dense_methods = {
    dense_find, dense_insert, dense_remove, dense_size, dense_export, dense_clear, dense_free};

/* ---- making ---- */

static struct status *check_options(const struct lookup_dense_options *options) {
    int64_t n = options->initial_buckets;
    if (!(options->max_load > 0 && options->max_load < 1))
        return status_invalid("max_load_factor must be between 0 and 1, got: %g",
                              (double)options->max_load);
    if (n < MIN_BUCKETS || (n & (n - 1)))
        return status_invalid("Number of buckets must be at least %d and a power of 2, got: %lld",
                              MIN_BUCKETS, (long long)n);
    return NULL;
}

static struct status *check_markers(const struct tensor *empty_key,
                                    const struct tensor *deleted_key) {
    if (empty_key->rank > 1)
        return status_invalid("Empty key must be a scalar or a vector, got shape %s",
                              TENSOR_SHAPE_TEXT(empty_key));
    if (!shape_equal(tensor_shape(empty_key), tensor_shape(deleted_key)))
        return status_invalid("Empty and deleted keys must have same shape, got shapes: %s and %s",
                              TENSOR_SHAPE_TEXT(empty_key), TENSOR_SHAPE_TEXT(deleted_key));
    if (tensor_equal(empty_key, deleted_key))
        return status_invalid("Empty and deleted keys cannot be equal");
    return NULL;
}

struct status *lookup_dense_new(const struct lookup_dense_options *options,
                                struct allocator *allocator, const struct tensor *empty_key,
                                const struct tensor *deleted_key, struct lookup_table **ret) {
    struct tensor keys = TENSOR_INIT, values = TENSOR_INIT;
    TRY(check_markers(empty_key, deleted_key));
    TRY(check_options(options));
    /* calloc aligns to 16 bytes, but a tensor needs more */
    struct dense *dense = aligned_alloc(_Alignof(struct dense), sizeof(*dense));
    if (!dense)
        out_of_memory(sizeof(*dense));
    memset(dense, 0, sizeof(*dense));
    lookup_table_init(&dense->table, &options->table);
    dense->table.methods = &dense_methods;
    dense->table.key_shape = (struct shape){empty_key->rank, &dense->key_len};
    dense->allocator = allocator;
    dense->key_len = empty_key->n_elements;
    dense->initial_buckets = options->initial_buckets;
    dense->max_load = options->max_load;
    tensor_copy(&dense->empty_key, empty_key);
    tensor_copy(&dense->deleted_key, deleted_key);
    struct status *st = make_buckets(dense, options->initial_buckets, &keys, &values);
    if (st) {
        object_unref(&dense->table.object);
        return st;
    }
    take_buckets(dense, &keys, &values, options->initial_buckets);
    *ret = &dense->table;
    return NULL;
}
