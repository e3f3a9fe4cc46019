/* Two hash maps with open addressing: one by string, one by 64-bit number. Values are borrowed
 * pointers, never NULL.
 *
 * strmap copies no key: the key must live as long as its entry (usually inside the value or an
 * arena). The hash has a random seed for each process, so that nobody can choose names that
 * collide. Threads: one at a time; concurrent lookups are allowed while nobody changes the map. */
#ifndef MILLRACE_COMMON_BASE_MAP_H
#define MILLRACE_COMMON_BASE_MAP_H

#include "common/base/base.h"

struct strmap_entry {
    struct span key;
    uint64_t hash;
    void *value; /* NULL: free; STRMAP_GONE inside: removed */
};

struct strmap {
    struct strmap_entry *entries;
    size_t n_entries; /* live ones */
    size_t n_used;    /* live and removed */
    size_t capacity;  /* a power of two, or 0 */
};

void strmap_init(struct strmap *map);
void strmap_fini(struct strmap *map);
void *strmap_get(const struct strmap *map, const char *key);
void *strmap_get_span(const struct strmap *map, struct span key);
/* returns the value that was replaced, or NULL */
void *strmap_put(struct strmap *map, const char *key, void *value);
void *strmap_put_span(struct strmap *map, struct span key, void *value);
void *strmap_remove(struct strmap *map, const char *key); /* returns the removed value, or NULL */
void *strmap_remove_span(struct strmap *map, struct span key);
/* Visits live entries: start with *cursor = 0; false at the end. Removing the entry just visited
 * is allowed. */
bool strmap_next(const struct strmap *map, size_t *cursor, struct span *ret_key, void **ret_value);

struct u64map_entry {
    uint64_t key;
    void *value;
};

struct u64map {
    struct u64map_entry *entries;
    size_t n_entries, n_used, capacity;
};

void u64map_init(struct u64map *map);
void u64map_fini(struct u64map *map);
void *u64map_get(const struct u64map *map, uint64_t key);
void *u64map_put(struct u64map *map, uint64_t key, void *value);
void *u64map_remove(struct u64map *map, uint64_t key);
bool u64map_next(const struct u64map *map, size_t *cursor, uint64_t *ret_key, void **ret_value);

/* Fast and well mixed. The result may differ from one release to the next: not for files. */
uint64_t hash_bytes(const void *data, size_t len, uint64_t seed);
uint64_t hash_mix(uint64_t a, uint64_t b);

#endif
