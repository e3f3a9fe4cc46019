/* Keeps named resources: one table by (container, device, kind, name) with one mutex. As in
 * TensorFlow a queue may have the name of a variable. An entry has a mutex of its own for its
 * resource, so whoever kept an entry never waits for the table's.
 *
 *   table ┄┄┄weak┄┄┄► entry ───► resource    an entry with a resource holds a reference to itself
 *   handle ───────────► ┘
 *
 * An entry lives while somebody holds it or it has a resource; when its last reference is given
 * back it leaves the table. So Reset empties entries, a handle that was kept across a Reset finds
 * nothing, and a resource that is made later under the same name is found by old handles, too. */
#include "worker/container.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "kernels/host/resources/resource_held.h"

struct container_shared {
    pthread_mutex_t lock;
    struct strmap entries;  /* "container\0device\0kind\0name" → struct entry; guarded by lock */
    _Atomic bool is_closed; /* nothing can be made any more */
    /* The table and each entry hold a reference, because an entry may outlive the table. */
    _Atomic uint32_t n_refs;
};

struct container_table {
    _Atomic uint32_t n_refs;
    _Atomic uint32_t n_weak; /* all strong references together count as one */
    struct container_shared *shared;
};

struct entry {
    struct object object;
    struct container_shared *shared;
    pthread_mutex_t lock;
    struct object *resource; /* guarded by lock */
    struct span key;
    const char *container, *device, *kind, *name; /* the name of the kind, for messages */
    char text[];
};

static void entry_free(struct object *object);
static const struct object_type entry_type = {.name = "container entry", .free = entry_free};

static struct entry *entry_of(struct object *object) {
    return CONTAINER_OF(object, struct entry, object);
}

static void shared_unref(struct container_shared *shared) {
    if (atomic_fetch_sub_explicit(&shared->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    strmap_fini(&shared->entries);
    pthread_mutex_destroy(&shared->lock);
    free(shared);
}

static void entry_free(struct object *object) {
    struct entry *entry = entry_of(object);
    struct container_shared *shared = entry->shared;
    pthread_mutex_lock(&shared->lock);
    if (strmap_get_span(&shared->entries, entry->key) == entry)
        strmap_remove_span(&shared->entries, entry->key);
    pthread_mutex_unlock(&shared->lock);
    pthread_mutex_destroy(&entry->lock);
    free(entry);
    shared_unref(shared);
}

/* Takes a reference, unless the last one is being dropped. */
static bool entry_try_ref(struct entry *entry) {
    uint32_t n = atomic_load_explicit(&entry->object.n_refs, memory_order_relaxed);
    while (n > 0)
        if (atomic_compare_exchange_weak_explicit(&entry->object.n_refs, &n, n + 1,
                                                  memory_order_acq_rel, memory_order_relaxed))
            return true;
    return false;
}

struct container_table *container_table_new(void) {
    struct container_table *table = xmalloc(sizeof(*table));
    atomic_init(&table->n_refs, 1);
    atomic_init(&table->n_weak, 1);
    struct container_shared *shared = table->shared = xcalloc(1, sizeof(*shared));
    CHECK(pthread_mutex_init(&shared->lock, NULL) == 0);
    strmap_init(&shared->entries);
    atomic_init(&shared->n_refs, 1);
    return table;
}

struct container_table *container_table_ref(struct container_table *table) {
    atomic_fetch_add_explicit(&table->n_refs, 1, memory_order_relaxed);
    return table;
}

void container_table_free(struct container_table *table) {
    if (!table || atomic_fetch_sub_explicit(&table->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    atomic_store(&table->shared->is_closed, true);
    container_reset(table, NULL);
    container_table_unref_weak(table);
}

struct container_table *container_table_ref_weak(struct container_table *table) {
    atomic_fetch_add_explicit(&table->n_weak, 1, memory_order_relaxed);
    return table;
}

void container_table_unref_weak(struct container_table *table) {
    if (!table || atomic_fetch_sub_explicit(&table->n_weak, 1, memory_order_acq_rel) != 1)
        return;
    shared_unref(table->shared);
    free(table);
}

/* ---- entries ---- */

static const char *container_name(const char *container) {
    return container && *container ? container : "localhost";
}

/* Makes the key "container\0device\0kind\0name", in `small` if it fits. */
static struct span key_make(struct container_place place, const char *kind, const char *name,
                            char *small, size_t small_size, char **ret_owned) {
    const char *parts[] = {container_name(place.container), place.device, kind, name};
    size_t sizes[ARRAY_LEN(parts)], n = 0;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        sizes[i] = strlen(parts[i]) + (i + 1 < ARRAY_LEN(parts));
        n += sizes[i];
    }
    char *key = small, *at;
    *ret_owned = NULL;
    if (n > small_size)
        key = *ret_owned = xmalloc(n);
    at = key;
    for (size_t i = 0; i < ARRAY_LEN(parts); at += sizes[i++])
        memcpy(at, parts[i], sizes[i]);
    return (struct span){key, n};
}

static struct entry *entry_new_locked(struct container_shared *shared, struct span key) {
    struct entry *entry = xmalloc(sizeof(*entry) + key.len + 1);
    object_init(&entry->object, &entry_type);
    entry->shared = shared;
    atomic_fetch_add_explicit(&shared->n_refs, 1, memory_order_relaxed);
    CHECK(pthread_mutex_init(&entry->lock, NULL) == 0);
    entry->resource = NULL;
    memcpy(entry->text, key.data, key.len);
    entry->text[key.len] = '\0';
    entry->key = (struct span){entry->text, key.len};
    entry->container = entry->text;
    entry->device = entry->container + strlen(entry->container) + 1;
    entry->kind = entry->device + strlen(entry->device) + 1;
    entry->name = entry->kind + strlen(entry->kind) + 1;
    /* replaces an entry whose last reference is being dropped */
    strmap_put_span(&shared->entries, entry->key, entry);
    return entry;
}

/* Returns the entry with a reference. NULL: there is none, and `make` is false. */
static struct entry *entry_get(struct container_table *table, struct container_place place,
                               const char *kind, const char *name, bool make) {
    struct container_shared *shared = table->shared;
    char small[256], *owned;
    struct span key = key_make(place, kind, name, small, sizeof(small), &owned);
    pthread_mutex_lock(&shared->lock);
    struct entry *entry = strmap_get_span(&shared->entries, key);
    if (entry && !entry_try_ref(entry))
        entry = NULL;
    if (!entry && make)
        entry = entry_new_locked(shared, key);
    pthread_mutex_unlock(&shared->lock);
    free(owned);
    return entry;
}

struct object *container_entry(struct container_table *table, struct container_place place,
                               const char *name, const struct object_type *type) {
    return &entry_get(table, place, type->name, name, true)->object;
}

/* ---- resources ---- */

static struct status *not_found(const char *container, const char *name, const char *kind) {
    return status_not_found("Resource %s/%s/%s does not exist.", container, name, kind);
}

static struct object *resource_get(struct entry *entry) {
    pthread_mutex_lock(&entry->lock);
    struct object *resource = object_ref(entry->resource);
    pthread_mutex_unlock(&entry->lock);
    return resource;
}

/* Puts the resource into the entry unless it has one. *ret gets the entry's resource with a
 * reference, or NULL: the table is closed. A table is closed before its entries are emptied, so no
 * resource gets past that. */
static void resource_put(struct entry *entry, struct object *made_take, struct object **ret) {
    pthread_mutex_lock(&entry->lock);
    struct object *dropped = NULL;
    if (!entry->resource && atomic_load(&entry->shared->is_closed)) {
        dropped = made_take;
    } else if (!entry->resource) {
        entry->resource = made_take;
        object_ref(&entry->object);
    } else {
        dropped = made_take;
    }
    *ret = object_ref(entry->resource);
    pthread_mutex_unlock(&entry->lock);
    object_unref(dropped);
}

/* Takes the resource out of the entry. The caller drops it, and the reference that the entry held
 * on itself. */
static struct object *resource_take(struct entry *entry) {
    pthread_mutex_lock(&entry->lock);
    struct object *resource = entry->resource;
    entry->resource = NULL;
    pthread_mutex_unlock(&entry->lock);
    return resource;
}

struct status *container_entry_lookup(struct container_table *table, struct object *object,
                                      struct object **ret) {
    struct entry *entry = entry_of(object);
    struct object *resource = resource_get(entry);
    if (unlikely(!resource))
        return not_found(entry->container, entry->name, entry->kind);
    *ret = resource;
    return NULL;
}

struct status *
container_entry_lookup_or_create(struct container_table *table, struct object *object,
                                 struct status *(*create)(void *arg, struct object **ret),
                                 void *arg, struct object **ret) {
    struct entry *entry = entry_of(object);
    struct object *resource = resource_get(entry);
    if (!resource) {
        struct object *made = NULL;
        TRY(create(arg, &made));
        CHECK(strcmp(made->type->name, entry->kind) == 0);
        resource_put(entry, made, &resource);
        if (!resource)
            return status_new(STATUS_CANCELLED,
                              "Resource %s/%s/%s cannot be made: what it belongs to has "
                              "ended.",
                              entry->container, entry->name, entry->kind);
    }
    *ret = resource;
    return NULL;
}

struct status *container_lookup(struct container_table *table, struct container_place place,
                                const char *name, const struct object_type *type,
                                struct object **ret) {
    struct entry *entry = entry_get(table, place, type->name, name, false);
    if (!entry)
        return not_found(container_name(place.container), name, type->name);
    struct status *st = container_entry_lookup(table, &entry->object, ret);
    object_unref(&entry->object);
    return st;
}

struct status *container_lookup_or_create(struct container_table *table,
                                          struct container_place place, const char *name,
                                          const struct object_type *type,
                                          struct status *(*create)(void *arg, struct object **ret),
                                          void *arg, struct object **ret) {
    struct entry *entry = entry_get(table, place, type->name, name, true);
    struct status *st = container_entry_lookup_or_create(table, &entry->object, create, arg, ret);
    object_unref(&entry->object);
    return st;
}

struct status *container_delete(struct container_table *table, struct container_place place,
                                const char *name, const char *kind) {
    struct entry *entry = entry_get(table, place, kind, name, false);
    struct object *resource = entry ? resource_take(entry) : NULL;
    struct status *st = resource ? NULL : not_found(container_name(place.container), name, kind);
    if (resource)
        object_unref(&entry->object); /* the entry's reference on itself */
    object_unref(resource);
    if (entry)
        object_unref(&entry->object);
    return st;
}

/* Lists all entries of a container, or of all with NULL, with a reference each, so that they can be
 * visited without the table's lock. */
static struct entry **entries_list(struct container_table *table, const char *container,
                                   size_t *ret_n) {
    struct container_shared *shared = table->shared;
    pthread_mutex_lock(&shared->lock);
    struct entry **list = xmalloc((shared->entries.n_entries + 1) * sizeof(struct entry *));
    size_t cursor = 0, n = 0;
    struct span key;
    void *value;
    while (strmap_next(&shared->entries, &cursor, &key, &value)) {
        struct entry *entry = value;
        if ((!container || strcmp(entry->container, container) == 0) && entry_try_ref(entry))
            list[n++] = entry;
    }
    pthread_mutex_unlock(&shared->lock);
    *ret_n = n;
    return list;
}

void container_reset(struct container_table *table, const char *container) {
    size_t n;
    struct entry **list = entries_list(table, container ? container_name(container) : NULL, &n);
    for (size_t i = 0; i < n; i++) {
        struct object *resource = resource_take(list[i]);
        if (resource)
            object_unref(&list[i]->object);
        object_unref(resource);
        object_unref(&list[i]->object);
    }
    free(list);
}

size_t container_n_resources(struct container_table *table) {
    size_t n, n_resources = 0;
    struct entry **list = entries_list(table, NULL, &n);
    for (size_t i = 0; i < n; i++) {
        struct object *resource = resource_get(list[i]);
        n_resources += resource != NULL;
        object_unref(resource);
        object_unref(&list[i]->object);
    }
    free(list);
    return n_resources;
}

static void add_name(struct str *out, const char *name) {
    enum { SHOWN_NAME_BYTES = 256 };
    size_t len = strlen(name), n = MIN(len, (size_t)SHOWN_NAME_BYTES);
    /* not in the middle of a UTF-8 character */
    while (n < len && n > 0 && ((uint8_t)name[n] & 0xC0) == 0x80)
        n--;
    str_add_json_escaped(out, name, n);
    if (n < len)
        str_add(out, "...");
}

static void describe(const struct entry *entry, struct object *resource, int *n_looks,
                     struct str *out) {
    struct resource_held held;
    str_add(out, "{\"container\":\"");
    add_name(out, entry->container);
    str_add(out, "\",\"name\":\"");
    add_name(out, entry->name);
    str_add(out, "\",\"kind\":\"");
    add_name(out, resource->type->name);
    str_add_char(out, '"');
    if (*entry->device) {
        str_add(out, ",\"device\":\"");
        add_name(out, entry->device);
        str_add_char(out, '"');
    }
    if (resource_held(resource, n_looks, &held))
        str_addf(out, ",\"size_bytes\":%lld", (long long)held.size_bytes);
    str_add_char(out, '}');
}

void container_for_each(struct container_table *table,
                        void (*visit)(void *arg, const char *container, const char *name,
                                      struct object *resource),
                        void *arg) {
    size_t n;
    struct entry **list = entries_list(table, NULL, &n);
    for (size_t i = 0; i < n; i++) {
        struct object *resource = resource_get(list[i]);
        if (resource)
            visit(arg, list[i]->container, list[i]->name, resource);
        object_unref(resource);
        object_unref(&list[i]->object);
    }
    free(list);
}

void container_describe(struct container_table *table, size_t max_rows, struct str *out) {
    size_t n, n_shown = 0, n_more = 0;
    int n_looks = RESOURCE_HELD_MAX_LOOKS;
    struct entry **list = entries_list(table, NULL, &n);
    str_add_char(out, '[');
    for (size_t i = 0; i < n; i++) {
        struct object *resource = resource_get(list[i]);
        if (resource && n_shown < max_rows) {
            str_add(out, n_shown++ > 0 ? "," : "");
            describe(list[i], resource, &n_looks, out);
        } else if (resource) {
            n_more++;
        }
        object_unref(resource);
        object_unref(&list[i]->object);
    }
    if (n_more > 0)
        str_addf(out, "%s{\"more\":%zu}", n_shown > 0 ? "," : "", n_more);
    str_add_char(out, ']');
    free(list);
}
