/* Remembers ended steps as windows of bits, one for each master. */
#include "worker/exchange/step_ids.h"

#include <stdlib.h>

/* The window is a ring of bits over sequence numbers: number n has bit n modulo capacity. */
struct step_window {
    uint64_t base;     /* all smaller sequence numbers have ended */
    uint64_t end;      /* one more than the highest number that was marked; never below base */
    uint64_t capacity; /* in bits, a power of two, at least 64 */
    uint64_t *bits;
};

enum { INITIAL_BITS = 1024 };

static const uint64_t sequence_mask = (1ull << STEP_SEQUENCE_BITS) - 1;

void step_ids_init(struct step_ids *ids) { u64map_init(&ids->masters); }

static void window_free(struct step_window *window) {
    if (window)
        free(window->bits);
    free(window);
}

void step_ids_fini(struct step_ids *ids) {
    size_t cursor = 0;
    uint64_t key;
    void *window;
    while (u64map_next(&ids->masters, &cursor, &key, &window))
        window_free(window);
    u64map_fini(&ids->masters);
}

static uint64_t *word_of(const struct step_window *window, uint64_t sequence, uint64_t *ret_bit) {
    uint64_t i = sequence & (window->capacity - 1);
    *ret_bit = 1ull << (i & 63);
    return &window->bits[i >> 6];
}

static bool window_has(const struct step_window *window, uint64_t sequence) {
    uint64_t bit, *word = word_of(window, sequence, &bit);
    return (*word & bit) != 0;
}

/* Moves the base up to `to`, and on over ids that have ended. Clears the bits that it passes. Each
 * id is passed once. */
static void window_advance(struct step_window *window, uint64_t base) {
    for (uint64_t bit;
         window->base < window->end && (window->base < base || window_has(window, window->base));
         window->base++)
        *word_of(window, window->base, &bit) &= ~bit;
    if (window->base < base)
        window->base = window->end = base;
}

static void window_grow(struct step_window *window, uint64_t n_bits) {
    struct step_window grown = *window;
    while (grown.capacity < n_bits)
        grown.capacity *= 2;
    grown.bits = xcalloc(grown.capacity / 64, sizeof(uint64_t));
    for (uint64_t n = window->base, bit; n < window->end; n++)
        if (window_has(window, n))
            *word_of(&grown, n, &bit) |= bit;
    free(window->bits);
    *window = grown;
}

static void forget_one(struct step_ids *ids) {
    size_t cursor = 0;
    uint64_t key;
    void *window;
    if (!u64map_next(&ids->masters, &cursor, &key, &window))
        return;
    u64map_remove(&ids->masters, key);
    window_free(window);
}

/* `base`: where a new window begins. */
static struct step_window *window_of(struct step_ids *ids, uint64_t step_id, uint64_t base) {
    uint64_t master = step_id_master(step_id) + 1;
    struct step_window *window = u64map_get(&ids->masters, master);
    if (window)
        return window;
    if (ids->masters.n_entries >= STEP_MASTERS_MAX)
        forget_one(ids);
    window = xcalloc(1, sizeof(*window));
    window->base = window->end = base;
    window->capacity = INITIAL_BITS;
    window->bits = xcalloc(window->capacity / 64, sizeof(uint64_t));
    u64map_put(&ids->masters, master, window);
    return window;
}

bool step_ids_is_ended(const struct step_ids *ids, uint64_t step_id) {
    const struct step_window *window = u64map_get(&ids->masters, step_id_master(step_id) + 1);
    uint64_t sequence = step_id & sequence_mask;
    if (!window)
        return false;
    return sequence < window->base || (sequence < window->end && window_has(window, sequence));
}

void step_ids_end(struct step_ids *ids, uint64_t step_id) {
    uint64_t sequence = step_id & sequence_mask, bit;
    struct step_window *window = window_of(
        ids, step_id, sequence > STEP_WINDOW_MAX / 2 ? sequence - STEP_WINDOW_MAX / 2 : 0);
    if (sequence < window->base)
        return;
    if (sequence - window->base >= STEP_WINDOW_MAX)
        window_advance(window, sequence - STEP_WINDOW_MAX + 1);
    if (sequence - window->base >= window->capacity)
        window_grow(window, sequence - window->base + 1);
    *word_of(window, sequence, &bit) |= bit;
    window->end = MAX(window->end, sequence + 1);
    if (sequence == window->base)
        window_advance(window, sequence + 1);
}

void step_ids_prune(struct step_ids *ids, uint64_t oldest_live) {
    uint64_t sequence = oldest_live & sequence_mask;
    struct step_window *window = window_of(ids, oldest_live, sequence);
    if (sequence > window->base)
        window_advance(window, sequence);
}

void step_ids_forget(struct step_ids *ids, uint64_t master) {
    window_free(u64map_remove(&ids->masters, master + 1));
}
