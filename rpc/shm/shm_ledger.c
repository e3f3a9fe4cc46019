/* Keeps the references that a peer holds in this process' arena, by token. */
#include "rpc/shm/shm_ledger.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/map.h"

struct entry {
    struct buffer *buffer;
    struct entry *next; /* in a list of entries to be released */
    bool is_kept;       /* named in the reply that is being read */
};

/* All ledgers share one count, so that a token which is returned too late belongs to no other
 * ledger. */
static _Atomic uint64_t last_token;

static struct {
    pthread_mutex_t lock;
    struct entry *entries;
} abandoned = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* How many of a buffer's references are those of ledgers. If a buffer has no others, only peers
 * keep it alive. This lock is taken while a ledger's lock is held. */
static struct {
    pthread_mutex_t lock;
    struct u64map n_refs; /* the buffer's address → the number */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct shm_ledger {
    pthread_mutex_t lock;
    struct u64map held;    /* token → struct entry */
    struct u64map buffers; /* the address of each buffer that is held → the number of its tokens */
    uint64_t last_token;   /* the last one that this ledger gave */
    uint64_t n_given, given_bytes, n_refused;
    /* Of the buffers, each counted once, because a slice keeps all of its buffer. */
    size_t held_bytes;
    int64_t max_kept_bytes;
};

/* ---- numbers by buffer ---- */

static size_t number_of(const struct u64map *map, const struct buffer *buffer) {
    return (size_t)(uintptr_t)u64map_get(map, (uintptr_t)buffer);
}

static size_t add_one_to(struct u64map *map, const struct buffer *buffer) {
    size_t sum = number_of(map, buffer) + 1;
    u64map_put(map, (uintptr_t)buffer, (void *)(uintptr_t)sum);
    return sum;
}

static size_t take_one_from(struct u64map *map, const struct buffer *buffer) {
    size_t n = number_of(map, buffer);
    CHECK(n > 0);
    if (n > 1)
        u64map_put(map, (uintptr_t)buffer, (void *)(uintptr_t)(n - 1));
    else
        u64map_remove(map, (uintptr_t)buffer);
    return n - 1;
}

/* ---- life ---- */

struct shm_ledger *shm_ledger_new(int64_t max_kept_bytes) {
    struct shm_ledger *ledger = xcalloc(1, sizeof(*ledger));
    ledger->max_kept_bytes = max_kept_bytes;
    CHECK(pthread_mutex_init(&ledger->lock, NULL) == 0);
    u64map_init(&ledger->held);
    u64map_init(&ledger->buffers);
    return ledger;
}

/* The ledger's lock is not held, because releasing may return memory to the system. */
static void release(struct entry *entries) {
    if (!entries)
        return;
    pthread_mutex_lock(&shared.lock);
    for (const struct entry *entry = entries; entry; entry = entry->next)
        take_one_from(&shared.n_refs,
                      /* before the release: afterwards the address may belong to another buffer */
                      entry->buffer);
    pthread_mutex_unlock(&shared.lock);
    for (struct entry *next; entries; entries = next) {
        next = entries->next;
        buffer_unref(entries->buffer);
        free(entries);
    }
}

/* Lock held. */
static struct entry *take_out(struct shm_ledger *ledger, uint64_t token, struct entry *list) {
    struct entry *entry = u64map_remove(&ledger->held, token);
    if (take_one_from(&ledger->buffers, entry->buffer) == 0)
        ledger->held_bytes -= entry->buffer->size_bytes;
    entry->next = list;
    return entry;
}

/* Adds the ledger's entries to the list and frees the ledger, which nobody else uses any more. */
static struct entry *empty_and_free(struct shm_ledger *ledger, struct entry *list) {
    size_t cursor = 0;
    uint64_t token;
    void *entry;
    while (u64map_next(&ledger->held, &cursor, &token, &entry))
        list = take_out(ledger, token, list);
    u64map_fini(&ledger->held);
    u64map_fini(&ledger->buffers);
    pthread_mutex_destroy(&ledger->lock);
    free(ledger);
    return list;
}

void shm_ledger_free(struct shm_ledger *ledger) {
    if (ledger)
        release(empty_and_free(ledger, NULL));
}

void shm_ledger_abandon(struct shm_ledger *ledger) {
    if (!ledger)
        return;
    pthread_mutex_lock(&abandoned.lock);
    abandoned.entries = empty_and_free(ledger, abandoned.entries);
    pthread_mutex_unlock(&abandoned.lock);
}

/* ---- giving ---- */

/* Lock held. Returns the bytes of the buffers that this peer keeps alive, alone or together with
 * others. Each of those peers is charged in full. */
static size_t kept_bytes(struct shm_ledger *ledger) {
    size_t cursor = 0, kept = 0;
    uint64_t address;
    void *n_tokens;
    if (ledger->buffers.n_entries > SHM_LEDGER_MAX_WEIGHED)
        return ledger->held_bytes;
    pthread_mutex_lock(&shared.lock);
    while (u64map_next(&ledger->buffers, &cursor, &address, &n_tokens)) {
        const struct buffer *buffer = (const struct buffer *)(uintptr_t)address;
        if (atomic_load_explicit(&buffer->n_refs, memory_order_relaxed) <=
            number_of(&shared.n_refs, buffer))
            kept += buffer->size_bytes;
    }
    pthread_mutex_unlock(&shared.lock);
    return kept;
}

/* Lock held. */
static bool has_room(struct shm_ledger *ledger, size_t size_bytes) {
    size_t max = (size_t)ledger->max_kept_bytes;
    if (ledger->held.n_entries >= SHM_LEDGER_MAX_TOKENS)
        return false;
    if (max == 0 || ledger->held.n_entries == 0 ||
        (size_bytes <= max && ledger->held_bytes <= max - size_bytes))
        return true;
    size_t kept = kept_bytes(ledger);
    return kept == 0 || (size_bytes <= max && kept <= max - size_bytes);
}

/* Lock held. */
static uint64_t put_in(struct shm_ledger *ledger, struct entry *entry) {
    uint64_t token = ledger->last_token =
        atomic_fetch_add_explicit(&last_token, 1, memory_order_relaxed) + 1;
    u64map_put(&ledger->held, token, entry);
    if (add_one_to(&ledger->buffers, entry->buffer) == 1)
        ledger->held_bytes += entry->buffer->size_bytes;
    pthread_mutex_lock(&shared.lock);
    add_one_to(&shared.n_refs, entry->buffer);
    pthread_mutex_unlock(&shared.lock);
    return token;
}

bool shm_ledger_give(struct shm_ledger *ledger, struct buffer *buffer, size_t size_bytes,
                     uint64_t *ret_token) {
    pthread_mutex_lock(&ledger->lock);
    bool is_given = has_room(ledger, buffer->size_bytes);
    if (is_given) {
        struct entry *entry = xmalloc(sizeof(*entry));
        *entry = (struct entry){.buffer = buffer_ref(buffer)};
        *ret_token = put_in(ledger, entry);
        ledger->n_given++;
        ledger->given_bytes += size_bytes;
    }
    ledger->n_refused += !is_given;
    pthread_mutex_unlock(&ledger->lock);
    return is_given;
}

/* ---- returned tokens ---- */

static struct status *not_held(uint64_t token) {
    return status_invalid("reference %llu was not given to this peer, or was returned before",
                          (unsigned long long)token);
}

struct status *shm_ledger_release(struct shm_ledger *ledger, const uint64_t *tokens, size_t n) {
    struct entry *gone = NULL;
    struct status *st = NULL;
    pthread_mutex_lock(&ledger->lock);
    for (size_t i = 0; i < n && !st; i++) {
        if (u64map_get(&ledger->held, tokens[i]))
            gone = take_out(ledger, tokens[i], gone);
        else
            st = not_held(tokens[i]);
    }
    pthread_mutex_unlock(&ledger->lock);
    release(gone);
    return st;
}

uint64_t shm_ledger_last(struct shm_ledger *ledger) {
    pthread_mutex_lock(&ledger->lock);
    uint64_t last = ledger->last_token;
    pthread_mutex_unlock(&ledger->lock);
    return last;
}

/* Lock held. */
static struct status *mark_kept(struct shm_ledger *ledger, uint64_t up_to, const uint64_t *tokens,
                                size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct entry *entry = u64map_get(&ledger->held, tokens[i]);
        if (!entry || tokens[i] > up_to)
            return not_held(tokens[i]);
        entry->is_kept = true;
    }
    return NULL;
}

struct status *shm_ledger_keep_only(struct shm_ledger *ledger, uint64_t up_to,
                                    const uint64_t *tokens, size_t n) {
    struct entry *gone = NULL;
    size_t cursor = 0;
    uint64_t token;
    void *at;
    pthread_mutex_lock(&ledger->lock);
    struct status *st = mark_kept(ledger, up_to, tokens, n);
    while (u64map_next(&ledger->held, &cursor, &token, &at)) {
        struct entry *entry = at;
        if (!st && token <= up_to && !entry->is_kept)
            gone = take_out(ledger, token, gone);
        else
            entry->is_kept = false;
    }
    pthread_mutex_unlock(&ledger->lock);
    release(gone);
    return st;
}

size_t shm_ledger_n_held(struct shm_ledger *ledger) {
    pthread_mutex_lock(&ledger->lock);
    size_t n = ledger->held.n_entries;
    pthread_mutex_unlock(&ledger->lock);
    return n;
}

uint64_t shm_ledger_given_bytes(struct shm_ledger *ledger) {
    if (!ledger)
        return 0;
    pthread_mutex_lock(&ledger->lock);
    uint64_t n_bytes = ledger->given_bytes;
    pthread_mutex_unlock(&ledger->lock);
    return n_bytes;
}

void shm_ledger_describe(struct shm_ledger *ledger, struct str *out) {
    pthread_mutex_lock(&ledger->lock);
    str_addf(out,
             "\"given\":%llu,\"given_bytes\":%llu,\"held\":%zu,\"held_bytes\":%zu,\"limit_bytes\":%"
             "lld,\"refused\":%llu",
             (unsigned long long)ledger->n_given, (unsigned long long)ledger->given_bytes,
             ledger->held.n_entries, ledger->held_bytes, (long long)ledger->max_kept_bytes,
             (unsigned long long)ledger->n_refused);
    pthread_mutex_unlock(&ledger->lock);
}
