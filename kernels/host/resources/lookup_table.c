/* Implements tables in memory (kernels/host/resources/lookup_table.h). */
#include "kernels/host/resources/lookup_table.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/map.h"

enum { MIN_SLOTS = 16 };

/* ---- keys ---- */

static bool has_text_keys(const struct lookup_table *table) {
    return table->key_dtype == DT_STRING;
}

static struct span key_text(uint64_t key) {
    return bytes_span((const struct bytes *)(uintptr_t)key);
}

/* The key at i. A string key is borrowed. */
static uint64_t key_at(const struct lookup_table *table, const struct tensor *keys, int64_t i) {
    if (has_text_keys(table))
        return (uint64_t)(uintptr_t)((struct bytes *const *)tensor_cdata(keys))[i];
    return (uint64_t)tensor_index_at(keys, i);
}

static uint32_t key_hash(const struct lookup_table *table, uint64_t key) {
    if (!has_text_keys(table))
        return (uint32_t)(hash_mix(key ^ table->seed, 0x9e3779b97f4a7c15u) >> 16);
    struct span text = key_text(key);
    return (uint32_t)(hash_bytes(text.data, text.len, table->seed) >> 16);
}

static bool key_equal(const struct lookup_table *table, uint64_t a, uint64_t b) {
    return a == b || (has_text_keys(table) && span_equal(key_text(a), key_text(b)));
}

static uint64_t key_keep(const struct lookup_table *table, uint64_t key) {
    if (has_text_keys(table) && key)
        object_ref(&((struct bytes *)(uintptr_t)key)->object);
    return key;
}

static void key_drop(const struct lookup_table *table, uint64_t key) {
    if (has_text_keys(table) && key)
        object_unref(&((struct bytes *)(uintptr_t)key)->object);
}

/* ---- values ---- */

static size_t row_bytes(const struct lookup_table *table) {
    return (size_t)table->row_len * dtype_size(table->value_dtype);
}
static char *row_at(const struct lookup_table *table, int64_t entry) {
    return table->values + (size_t)entry * row_bytes(table);
}

static void row_drop(const struct lookup_table *table, char *row) {
    for (int64_t i = 0; dtype_is_object(table->value_dtype) && i < table->row_len; i++)
        object_unref(((struct object **)(void *)row)[i]);
}

static const char *row_of(const struct lookup_table *table, const struct tensor *values,
                          int64_t i) {
    return (const char *)tensor_cdata(values) + (size_t)i * row_bytes(table);
}

/* ---- entries ---- */

/* The slot of a key, or the free slot where it belongs. The table must have slots. */
static uint64_t slot_of(const struct lookup_table *table, uint64_t key, uint32_t hash) {
    uint64_t mask = table->n_slots - 1, at = hash & mask;
    for (; table->slots[at]; at = (at + 1) & mask) {
        uint32_t entry = table->slots[at] - 1;
        if (table->hashes[entry] == hash && key_equal(table, table->keys[entry], key))
            break;
    }
    return at;
}

/* Returns -1 when there is no such entry. */
static int64_t find_entry(const struct lookup_table *table, uint64_t key) {
    return table->n == 0 ? -1
                         : (int64_t)table->slots[slot_of(table, key, key_hash(table, key))] - 1;
}

static bool grow_array(void *array, size_t size_bytes) {
    void *grown = realloc(*(void **)array, MAX(size_bytes, (size_t)1));
    if (grown)
        *(void **)array = grown;
    return grown != NULL;
}

static bool grow_slots(struct lookup_table *table, int64_t n) {
    uint64_t n_slots = MAX(table->n_slots, (uint64_t)MIN_SLOTS);
    while (n_slots < 2 * (uint64_t)n)
        n_slots *= 2;
    if (n_slots == table->n_slots)
        return true;
    uint32_t *slots = calloc(n_slots, sizeof(*slots));
    if (!slots)
        return false;
    for (int64_t i = 0; i < table->n; i++) {
        uint64_t at = table->hashes[i] & (n_slots - 1);
        while (slots[at])
            at = (at + 1) & (n_slots - 1);
        slots[at] = (uint32_t)i + 1;
    }
    free(table->slots);
    table->slots = slots;
    table->n_slots = n_slots;
    return true;
}

/* Makes room for n entries. */
static struct status *reserve(struct lookup_table *table, int64_t n) {
    if (n <= table->capacity)
        return NULL;
    int64_t capacity = MAX(n, 2 * table->capacity), value_bytes;
    bool is_possible =
        n < INT32_MAX &&
        !mul_overflows_i64(capacity, (int64_t)MAX(row_bytes(table), (size_t)8), &value_bytes) &&
        grow_array(&table->keys, (size_t)capacity * sizeof(*table->keys)) &&
        grow_array(&table->hashes, (size_t)capacity * sizeof(*table->hashes)) &&
        grow_array(&table->values, (size_t)capacity * row_bytes(table)) && grow_slots(table, n);
    if (!is_possible)
        return status_exhausted("Out of memory for the %lld entries of a table", (long long)n);
    table->capacity = MIN(capacity, (int64_t)table->n_slots / 2);
    return NULL;
}

/* The caller has made room. */
static void put(struct lookup_table *table, uint64_t key, const char *row) {
    uint32_t hash = key_hash(table, key);
    uint64_t at = slot_of(table, key, hash);
    int64_t entry = table->slots[at] ? (int64_t)table->slots[at] - 1 : table->n;
    if (entry == table->n) {
        table->keys[entry] = key_keep(table, key);
        table->hashes[entry] = hash;
        table->slots[at] = (uint32_t)++table->n;
    } else {
        row_drop(table, row_at(table, entry));
    }
    elements_copy(table->value_dtype, row_at(table, entry), row, table->row_len);
}

/* Empties a slot. Entries behind it that were displaced by it move back. */
static void free_slot(struct lookup_table *table, uint64_t gap) {
    uint64_t mask = table->n_slots - 1;
    for (uint64_t at = (gap + 1) & mask; table->slots[at]; at = (at + 1) & mask) {
        uint64_t home = table->hashes[table->slots[at] - 1] & mask;
        /* the entry's own slot is after the gap, so the entry stays */
        if (((at - home) & mask) < ((at - gap) & mask))
            continue;
        table->slots[gap] = table->slots[at];
        gap = at;
    }
    table->slots[gap] = 0;
}

static void take_out(struct lookup_table *table, uint64_t key) {
    if (table->n == 0)
        return;
    uint64_t at = slot_of(table, key, key_hash(table, key));
    if (!table->slots[at])
        return;
    int64_t entry = (int64_t)table->slots[at] - 1, last = table->n - 1;
    uint64_t own = table->keys[entry];
    free_slot(table, at);
    row_drop(table, row_at(table, entry));
    if (entry != last) {
        table->slots[slot_of(table, table->keys[last], table->hashes[last])] = (uint32_t)entry + 1;
        table->keys[entry] = table->keys[last];
        table->hashes[entry] = table->hashes[last];
        memcpy(row_at(table, entry), row_at(table, last), row_bytes(table));
    }
    table->n--;
    key_drop(table, own);
}

static void clear_locked(struct lookup_table *table) {
    for (int64_t i = 0; i < table->n; i++) {
        key_drop(table, table->keys[i]);
        row_drop(table, row_at(table, i));
    }
    if (table->n > 0)
        memset(table->slots, 0, table->n_slots * sizeof(*table->slots));
    table->n = 0;
}

/* ---- lifetime ---- */

static void lookup_table_free(struct object *object) {
    struct lookup_table *table = (struct lookup_table *)object;
    clear_locked(table);
    pthread_rwlock_destroy(&table->lock);
    free((void *)(uintptr_t)table->value_shape.dims);
    free(table->keys);
    free(table->hashes);
    free(table->values);
    free(table->slots);
    if (table->methods)
        table->methods->free(table);
    else
        free(table);
}

const struct object_type lookup_table_type = {.name = "tensorflow::lookup::LookupInterface",
                                              .free = lookup_table_free};

void lookup_table_init(struct lookup_table *table, const struct lookup_table_options *options) {
    int64_t *dims = xcalloc((size_t)options->value_shape.rank + 1, sizeof(*dims));
    object_init(&table->object, &lookup_table_type);
    CHECK(pthread_rwlock_init(&table->lock, NULL) == 0);
    table->key_dtype = options->key_dtype;
    table->value_dtype = options->value_dtype;
    table->is_static = options->is_static;
    table->row_len = 1;
    for (int i = 0; i < options->value_shape.rank; i++)
        table->row_len *= dims[i] = options->value_shape.dims[i];
    table->value_shape = (struct shape){options->value_shape.rank, dims};
    table->seed = random_u64(); /* random, so that a client cannot choose keys that collide */
}

struct lookup_table *lookup_table_new(const struct lookup_table_options *options) {
    struct lookup_table *table = xcalloc(1, sizeof(*table));
    lookup_table_init(table, options);
    return table;
}

/* ---- the public functions ---- */

static struct status *check_filled(const struct lookup_table *table) {
    if (table->is_static && !table->is_initialized)
        return status_failed_precondition("Table not initialized.");
    return NULL;
}

struct status *lookup_table_find(struct lookup_table *table, const struct tensor *keys,
                                 const struct tensor *defaults, bool has_one_default,
                                 struct tensor *out) {
    if (table->methods)
        return table->methods->find(table, keys, defaults, has_one_default, out);
    char *to = tensor_data(out);
    pthread_rwlock_rdlock(&table->lock);
    struct status *st = check_filled(table);
    for (int64_t i = 0; !st && i < keys->n_elements; i++, to += row_bytes(table)) {
        int64_t entry = find_entry(table, key_at(table, keys, i));
        const char *row =
            entry >= 0 ? row_at(table, entry) : row_of(table, defaults, has_one_default ? 0 : i);
        elements_copy(table->value_dtype, to, row, table->row_len);
    }
    pthread_rwlock_unlock(&table->lock);
    return st;
}

struct status *lookup_table_insert(struct lookup_table *table, const struct tensor *keys,
                                   const struct tensor *values, bool is_import) {
    if (table->methods)
        return table->methods->insert(table, keys, values, is_import);
    pthread_rwlock_wrlock(&table->lock);
    if (is_import)
        clear_locked(table);
    struct status *st = NULL;
    for (int64_t i = 0; !st && i < keys->n_elements; i++) {
        if (table->n == table->capacity)
            st = reserve(table, table->n + 1);
        if (!st)
            put(table, key_at(table, keys, i), row_of(table, values, i));
    }
    pthread_rwlock_unlock(&table->lock);
    return st;
}

/* Writes one element as messages show it. */
static void add_element_text(struct str *out, enum dtype dtype, const void *element) {
    /* borrows the element */
    struct tensor t = {.dtype = (uint8_t)dtype, .storage = TENSOR_INLINE, .n_elements = 1};
    memcpy(t.bytes, element, dtype_size(dtype));
    if (dtype == DT_STRING) {
        struct span text = tensor_string(&t, 0);
        str_add_bytes(out, text.data, MIN(text.len, (size_t)256));
        return;
    }
    struct str text = STR_INIT;
    tensor_print(&t, 1, &text);
    const char *begin = strchr(str_text(&text), '{'), *end = strrchr(str_text(&text), '}');
    if (begin && end && end > begin)
        str_add_bytes(out, begin + 1, (size_t)(end - begin - 1));
    str_fini(&text);
}

static bool row_equal(const struct lookup_table *table, const char *a, const char *b) {
    if (table->value_dtype != DT_STRING)
        return memcmp(a, b, row_bytes(table)) == 0;
    struct bytes *const *x = (const void *)a, *const *y = (const void *)b;
    for (int64_t i = 0; i < table->row_len; i++)
        if (!span_equal(bytes_span(x[i]), bytes_span(y[i])))
            return false;
    return true;
}

static COLD struct status *two_values(const struct lookup_table *table, uint64_t key,
                                      const char *has, const char *gets) {
    struct str text = STR_INIT;
    int32_t narrow = (int32_t)key;
    str_add(&text, "HashTable has different value for same key. Key ");
    add_element_text(&text, table->key_dtype,
                     table->key_dtype == DT_INT32 ? (const void *)&narrow : (const void *)&key);
    str_add(&text, " has ");
    add_element_text(&text, table->value_dtype, has);
    str_add(&text, " and trying to add value ");
    add_element_text(&text, table->value_dtype, gets);
    struct status *st = status_failed_precondition("%s", str_text(&text));
    str_fini(&text);
    return st;
}

struct status *lookup_table_fill(struct lookup_table *table, const struct tensor *keys,
                                 const struct tensor *values) {
    pthread_rwlock_wrlock(&table->lock);
    bool was_initialized = table->is_initialized;
    struct status *st = was_initialized ? NULL : reserve(table, keys->n_elements);
    for (int64_t i = 0; !was_initialized && !st && i < keys->n_elements; i++) {
        uint64_t key = key_at(table, keys, i);
        int64_t entry = find_entry(table, key);
        if (entry < 0)
            put(table, key, row_of(table, values, i));
        else if (!row_equal(table, row_at(table, entry), row_of(table, values, i)))
            st = two_values(table, key, row_at(table, entry), row_of(table, values, i));
    }
    if (st)
        clear_locked(table);
    else
        table->is_initialized = true;
    pthread_rwlock_unlock(&table->lock);
    return st;
}

struct status *lookup_table_remove(struct lookup_table *table, const struct tensor *keys) {
    if (table->methods)
        return table->methods->remove(table, keys);
    pthread_rwlock_wrlock(&table->lock);
    for (int64_t i = 0; i < keys->n_elements; i++)
        take_out(table, key_at(table, keys, i));
    pthread_rwlock_unlock(&table->lock);
    return NULL;
}

int64_t lookup_table_size(struct lookup_table *table) {
    if (table->methods)
        return table->methods->size(table);
    pthread_rwlock_rdlock(&table->lock);
    int64_t n = table->n;
    pthread_rwlock_unlock(&table->lock);
    return n;
}

static struct status *export_locked(const struct lookup_table *table, struct allocator *allocator,
                                    struct tensor *keys, struct tensor *values) {
    int64_t dims[2] = {table->n, table->row_len};
    if (table->is_static && !table->is_initialized)
        return status_new(STATUS_ABORTED, "HashTable is not initialized.");
    TRY(tensor_new(allocator, table->key_dtype, (struct shape){1, dims}, keys));
    TRY(tensor_new(allocator, table->value_dtype, (struct shape){1 + table->value_shape.rank, dims},
                   values));
    for (int64_t i = 0; i < table->n; i++) {
        if (table->key_dtype == DT_INT32)
            ((int32_t *)tensor_data(keys))[i] = (int32_t)table->keys[i];
        else
            ((uint64_t *)tensor_data(keys))[i] = key_keep(table, table->keys[i]);
    }
    elements_copy(table->value_dtype, tensor_data(values), table->values,
                  table->n * table->row_len);
    return NULL;
}

struct status *lookup_table_export(struct lookup_table *table, struct allocator *allocator,
                                   struct tensor *ret_keys, struct tensor *ret_values) {
    if (table->methods)
        return table->methods->export(table, allocator, ret_keys, ret_values);
    pthread_rwlock_rdlock(&table->lock);
    struct status *st = export_locked(table, allocator, ret_keys, ret_values);
    pthread_rwlock_unlock(&table->lock);
    return st;
}

void lookup_table_clear(struct lookup_table *table) {
    if (table->methods) {
        table->methods->clear(table);
        return;
    }
    pthread_rwlock_wrlock(&table->lock);
    clear_locked(table);
    table->is_initialized = false;
    pthread_rwlock_unlock(&table->lock);
}
