/* Hash maps with open addressing and linear probing.
 *
 * A removed entry leaves a tombstone (value == GONE) so that probes pass over it; one at the end
 * of a probe run is turned back into a free slot at once. The table grows, or is rebuilt without
 * tombstones, when three quarters of the slots are in use; after that at most half are. Entries
 * never move on removal, which is what lets a visitor remove the entry it stands on.
 *
 * The hash follows wyhash (Wang Yi, "modern non-cryptographic hash function", 2020): 64x64 ->
 * 128 bit multiplications, folded. The constants are the digits of pi. */
#include "common/base/map.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/clock.h"

enum { MAP_FIRST_CAPACITY = 16 };

#define PI0 UINT64_C(0x243F6A8885A308D3)
#define PI1 UINT64_C(0x13198A2E03707344)
#define PI2 UINT64_C(0xA4093822299F31D0)
#define PI3 UINT64_C(0x082EFA98EC4E6C89)

static char gone_mark;
#define GONE ((void *)&gone_mark)

/* ---- hashing ---- */

static inline uint64_t fold_product(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t read_u64(const unsigned char *from) {
    uint64_t value;
    memcpy(&value, from, sizeof(value));
    return value;
}

static inline uint64_t read_u32(const unsigned char *from) {
    uint32_t value;
    memcpy(&value, from, sizeof(value));
    return value;
}

uint64_t hash_mix(uint64_t a, uint64_t b) { return fold_product(a ^ PI0, b ^ PI1); }

uint64_t hash_bytes(const void *data, size_t len, uint64_t seed) {
    const unsigned char *from = data;
    uint64_t a = 0, b = 0;
    seed ^= PI0;
    if (len > 16) {
        size_t left = len;
        if (left > 48) {
            /* Three lanes, since the multiplier starts one multiplication per cycle but takes three
             * cycles for it. */
            uint64_t lane1 = seed, lane2 = seed;
            for (; left > 48; left -= 48, from += 48) {
                seed = fold_product(read_u64(from) ^ PI1, read_u64(from + 8) ^ seed);
                lane1 = fold_product(read_u64(from + 16) ^ PI2, read_u64(from + 24) ^ lane1);
                lane2 = fold_product(read_u64(from + 32) ^ PI3, read_u64(from + 40) ^ lane2);
            }
            seed ^= lane1 ^ lane2;
        }
        for (; left > 16; left -= 16, from += 16)
            seed = fold_product(read_u64(from) ^ PI1, read_u64(from + 8) ^ seed);
        /* overlaps the bytes before, so that no loop over the rest is needed */
        a = read_u64(from + left - 16);
        b = read_u64(from + left - 8);
    } else if (len >= 8) {
        a = read_u64(from);
        b = read_u64(from + len - 8);
    } else if (len >= 4) {
        a = read_u32(from);
        b = read_u32(from + len - 4);
    } else if (len > 0) {
        a = (uint64_t)from[0] << 16 | (uint64_t)from[len >> 1] << 8 | from[len - 1];
    }
    unsigned __int128 product = (unsigned __int128)(a ^ PI1) * (b ^ seed);
    return fold_product((uint64_t)product ^ PI0 ^ len, (uint64_t)(product >> 64) ^ PI1);
}

/* The seed of the process, drawn at first use. Several threads may draw; all use the first one that
 * was stored. */
static uint64_t map_seed(void) {
    static _Atomic uint64_t process_seed; /* 0: no seed yet */
    uint64_t seed = atomic_load_explicit(&process_seed, memory_order_relaxed);
    if (likely(seed != 0))
        return seed;
    uint64_t drawn = random_u64();
    return atomic_compare_exchange_strong(&process_seed, &seed, drawn) ? drawn : seed;
}

static inline bool is_live(const void *value) { return value != NULL && value != GONE; }

static inline bool is_full(size_t n_used, size_t capacity) {
    return (n_used + 1) * 4 > capacity * 3;
}

/* Makes room for the live entries and one more, with at least half of the slots free. */
static size_t capacity_for(size_t n_entries) {
    size_t capacity = MAP_FIRST_CAPACITY;
    while ((n_entries + 1) * 2 > capacity)
        capacity *= 2;
    return capacity;
}

/* ---- by string ---- */

void strmap_init(struct strmap *map) { memset(map, 0, sizeof(*map)); }

void strmap_fini(struct strmap *map) {
    if (!map)
        return;
    free(map->entries);
    strmap_init(map);
}

static inline uint64_t strmap_hash(struct span key) {
    return hash_bytes(key.data, key.len, map_seed());
}

static struct strmap_entry *strmap_find(const struct strmap *map, struct span key, uint64_t hash) {
    if (map->n_entries == 0)
        return NULL;
    size_t mask = map->capacity - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct strmap_entry *entry = &map->entries[i];
        if (!entry->value)
            return NULL;
        if (entry->hash == hash && entry->value != GONE && span_equal(entry->key, key))
            return entry;
    }
}

static void strmap_rebuild(struct strmap *map) {
    struct strmap_entry *old = map->entries;
    size_t old_capacity = map->capacity;
    map->capacity = capacity_for(map->n_entries);
    map->entries = xcalloc(map->capacity, sizeof(*map->entries));
    map->n_used = map->n_entries;
    size_t mask = map->capacity - 1;
    for (size_t from = 0; from < old_capacity; from++) {
        if (!is_live(old[from].value))
            continue;
        size_t to = old[from].hash & mask;
        while (map->entries[to].value)
            to = (to + 1) & mask;
        map->entries[to] = old[from];
    }
    free(old);
}

void *strmap_get(const struct strmap *map, const char *key) {
    return strmap_get_span(map, span_of(key));
}

void *strmap_get_span(const struct strmap *map, struct span key) {
    struct strmap_entry *entry = strmap_find(map, key, strmap_hash(key));
    return entry ? entry->value : NULL;
}

void *strmap_put(struct strmap *map, const char *key, void *value) {
    return strmap_put_span(map, span_of(key), value);
}

void *strmap_put_span(struct strmap *map, struct span key, void *value) {
    CHECK(value != NULL);
    uint64_t hash = strmap_hash(key);
    struct strmap_entry *entry = strmap_find(map, key, hash);
    if (entry) {
        void *replaced = entry->value;
        /* the old key may be freed with the old value */
        *entry = (struct strmap_entry){key, hash, value};
        return replaced;
    }
    if (is_full(map->n_used, map->capacity))
        strmap_rebuild(map);
    size_t mask = map->capacity - 1, i = hash & mask;
    while (is_live(map->entries[i].value))
        i = (i + 1) & mask;
    map->n_used += !map->entries[i].value;
    map->n_entries++;
    map->entries[i] = (struct strmap_entry){key, hash, value};
    return NULL;
}

void *strmap_remove(struct strmap *map, const char *key) {
    return strmap_remove_span(map, span_of(key));
}

void *strmap_remove_span(struct strmap *map, struct span key) {
    struct strmap_entry *entry = strmap_find(map, key, strmap_hash(key));
    if (!entry)
        return NULL;
    void *removed = entry->value;
    size_t mask = map->capacity - 1, i = (size_t)(entry - map->entries);
    *entry = (struct strmap_entry){.value = GONE};
    map->n_entries--;
    if (!map->entries[(i + 1) & mask].value) {
        for (; map->entries[i].value == GONE; i = (i - 1) & mask, map->n_used--)
            map->entries[i].value = NULL;
    }
    return removed;
}

bool strmap_next(const struct strmap *map, size_t *cursor, struct span *ret_key, void **ret_value) {
    while (*cursor < map->capacity) {
        const struct strmap_entry *entry = &map->entries[(*cursor)++];
        if (!is_live(entry->value))
            continue;
        if (ret_key)
            *ret_key = entry->key;
        if (ret_value)
            *ret_value = entry->value;
        return true;
    }
    return false;
}

/* ---- by number ---- */

void u64map_init(struct u64map *map) { memset(map, 0, sizeof(*map)); }

void u64map_fini(struct u64map *map) {
    if (!map)
        return;
    free(map->entries);
    u64map_init(map);
}

static inline size_t u64map_home(const struct u64map *map, uint64_t key) {
    return hash_mix(key, map_seed()) & (map->capacity - 1);
}

static struct u64map_entry *u64map_find(const struct u64map *map, uint64_t key) {
    if (map->n_entries == 0)
        return NULL;
    for (size_t i = u64map_home(map, key);; i = (i + 1) & (map->capacity - 1)) {
        struct u64map_entry *entry = &map->entries[i];
        if (!entry->value)
            return NULL;
        if (entry->key == key && entry->value != GONE)
            return entry;
    }
}

static void u64map_rebuild(struct u64map *map) {
    struct u64map_entry *old = map->entries;
    size_t old_capacity = map->capacity;
    map->capacity = capacity_for(map->n_entries);
    map->entries = xcalloc(map->capacity, sizeof(*map->entries));
    map->n_used = map->n_entries;
    for (size_t from = 0; from < old_capacity; from++) {
        if (!is_live(old[from].value))
            continue;
        size_t to = u64map_home(map, old[from].key);
        while (map->entries[to].value)
            to = (to + 1) & (map->capacity - 1);
        map->entries[to] = old[from];
    }
    free(old);
}

void *u64map_get(const struct u64map *map, uint64_t key) {
    struct u64map_entry *entry = u64map_find(map, key);
    return entry ? entry->value : NULL;
}

void *u64map_put(struct u64map *map, uint64_t key, void *value) {
    CHECK(value != NULL);
    struct u64map_entry *entry = u64map_find(map, key);
    if (entry) {
        void *replaced = entry->value;
        entry->value = value;
        return replaced;
    }
    if (is_full(map->n_used, map->capacity))
        u64map_rebuild(map);
    size_t i = u64map_home(map, key);
    while (is_live(map->entries[i].value))
        i = (i + 1) & (map->capacity - 1);
    map->n_used += !map->entries[i].value;
    map->n_entries++;
    map->entries[i] = (struct u64map_entry){key, value};
    return NULL;
}

void *u64map_remove(struct u64map *map, uint64_t key) {
    struct u64map_entry *entry = u64map_find(map, key);
    if (!entry)
        return NULL;
    void *removed = entry->value;
    size_t mask = map->capacity - 1, i = (size_t)(entry - map->entries);
    entry->value = GONE;
    map->n_entries--;
    if (!map->entries[(i + 1) & mask].value) {
        for (; map->entries[i].value == GONE; i = (i - 1) & mask, map->n_used--)
            map->entries[i].value = NULL;
    }
    return removed;
}

bool u64map_next(const struct u64map *map, size_t *cursor, uint64_t *ret_key, void **ret_value) {
    while (*cursor < map->capacity) {
        const struct u64map_entry *entry = &map->entries[(*cursor)++];
        if (!is_live(entry->value))
            continue;
        if (ret_key)
            *ret_key = entry->key;
        if (ret_value)
            *ret_value = entry->value;
        return true;
    }
    return false;
}
