/* Implements the host's allocator. The kinds of blocks, by size:
 *
 *   below 64 KiB   header and data in one piece from malloc
 *   below 1 MiB    a block of malloc's, header apart; recycled
 *   above          fresh pages from mmap, header apart; recycled
 *
 * Memory that peers can map is, from 64 KiB, a block of the shared arena with its header apart,
 * and recycled too.
 *
 * Recycled blocks come in size classes an eighth of a power of two apart (at most 12.5 % more than
 * was requested). They wait in one cache for all host allocators, newest first. Beyond the cache's
 * limit the oldest block is returned to the system. Fresh pages cost nothing before they are
 * touched, so a false size in a stranger's message costs no memory. */
#include "common/tensor/buffer.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/list.h"
#include "common/tensor/release.h"
#include "common/tensor/shm_arena.h"

/* Under AddressSanitizer nothing is recycled, and data ends where its block ends: a use after
 * the last reference and a write past the end are both caught. */
#if defined(__SANITIZE_ADDRESS__)
#define BUFFER_HOSTILE true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BUFFER_HOSTILE true
#endif
#endif
#ifndef BUFFER_HOSTILE
#define BUFFER_HOSTILE false
#endif

enum {
    RECYCLED_MIN_LOG2 = 16,
    RECYCLED_MAX_LOG2 = 47, /* an address space is never larger */
    STEPS_PER_LOG2 = 8,
    N_CLASSES = (RECYCLED_MAX_LOG2 - RECYCLED_MIN_LOG2 + 1) * STEPS_PER_LOG2,
    MMAP_MIN_BYTES = 1 << 20,
    HUGE_PAGE_BYTES = 2 << 20,
    HUGE_MIN_BYTES = 4 << 20,
};

/* Low bits of buffer.flags: the distance from the start of the malloc block to the header. */
enum { FLAG_RECYCLED = 1u << 16, OFFSET_MASK = 0xffff };

/* Where the bytes of a recycled block come from. A block of one kind is never used for another. */
enum block_kind { BLOCK_PRIVATE, BLOCK_SHARED, BLOCK_N_KINDS };

struct host_allocator {
    struct allocator base;
    /* the allocator that allocator_host_shared returns: only `alloc` and `likes` are used, and its
     * buffers belong to `base` */
    struct allocator shared;
    /* references of its creator and of each live buffer; -1 for the allocator of the process, which
     * is not counted */
    _Atomic int64_t n_holders;
};

struct host_block {
    struct buffer buffer;
    int class_index;
    enum block_kind kind;
    uint32_t age;                 /* when the block was put into the cache */
    struct list in_class, in_age; /* links of the cache, while the block is in it */
};

static struct {
    pthread_mutex_t lock;
    struct list classes[BLOCK_N_KINDS][N_CLASSES]; /* newest first */
    struct list by_age;                            /* newest first */
    int64_t cached_bytes, limit_bytes;
    uint32_t age;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER, .limit_bytes = 1ll << 30};

static pthread_once_t host_once = PTHREAD_ONCE_INIT;
static int64_t physical_bytes;
static struct shm_arena *_Atomic arena;
static struct {
    pthread_mutex_t lock; /* held during its calls */
    _Atomic bool is_set;
    void (*on_release)(void *arg, const char *data, size_t size_bytes);
    void *arg;
} release_hook = {.lock = PTHREAD_MUTEX_INITIALIZER};
_Static_assert((int)N_CLASSES <= (int)SHM_ARENA_CLASSES, "each class has its ranges");

/* ---- size classes ---- */

static int class_of(size_t size_bytes, size_t *ret_class_bytes) {
    int log2 = 63 - __builtin_clzll(size_bytes);
    size_t step = (size_t)1 << (log2 - 3);
    size_t n_steps = (size_bytes + step - 1) >> (log2 - 3); /* 8 … 16 */
    if (n_steps == 2 * STEPS_PER_LOG2) {
        log2++;
        n_steps = STEPS_PER_LOG2;
        step *= 2;
    }
    *ret_class_bytes = n_steps * step;
    return (log2 - RECYCLED_MIN_LOG2) * STEPS_PER_LOG2 + (int)n_steps - STEPS_PER_LOG2;
}

/* ---- memory from the system ---- */

static void *map_pages(size_t size_bytes) {
    bool is_huge = size_bytes >= HUGE_MIN_BYTES;
    size_t slack = is_huge ? HUGE_PAGE_BYTES : 0;
    char *pages = mmap(NULL, size_bytes + slack, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    if (!is_huge)
        return pages;
    size_t before = (size_t)(-(uintptr_t)pages & (HUGE_PAGE_BYTES - 1));
    if (before > 0)
        munmap(pages, before);
    if (slack > before)
        munmap(pages + before + size_bytes, slack - before);
    madvise(pages + before, size_bytes, MADV_HUGEPAGE);
    return pages + before;
}

void memory_announce_release(const char *data, size_t size_bytes) {
    if (likely(!atomic_load_explicit(&release_hook.is_set, memory_order_acquire)))
        return;
    pthread_mutex_lock(&release_hook.lock);
    if (release_hook.on_release)
        release_hook.on_release(release_hook.arg, data, size_bytes);
    pthread_mutex_unlock(&release_hook.lock);
}

static void host_block_free(struct host_block *block) {
    memory_announce_release(block->buffer.data, block->buffer.size_bytes);
    if (block->kind == BLOCK_SHARED)
        shm_arena_give(atomic_load_explicit(&arena, memory_order_relaxed), block->class_index,
                       block->buffer.data, block->buffer.size_bytes);
    else if (block->buffer.size_bytes >= MMAP_MIN_BYTES)
        munmap(block->buffer.data, block->buffer.size_bytes);
    else
        free(block->buffer.data);
    free(block);
}

static struct host_block *host_block_new(int class_index, size_t class_bytes,
                                         enum block_kind kind) {
    struct host_block *block = calloc(1, sizeof(*block));
    if (!block)
        return NULL;
    block->class_index = class_index;
    block->kind = kind;
    block->buffer.size_bytes = class_bytes;
    if (kind == BLOCK_SHARED) {
        block->buffer.data = shm_arena_take(atomic_load_explicit(&arena, memory_order_relaxed),
                                            class_index, class_bytes);
        block->buffer.flags = BUFFER_IS_ZERO;
    } else if (class_bytes >= MMAP_MIN_BYTES) {
        block->buffer.data = map_pages(class_bytes);
        block->buffer.flags = BUFFER_IS_ZERO;
    } else {
        block->buffer.data = aligned_alloc(BUFFER_ALIGN, class_bytes);
    }
    if (!block->buffer.data) {
        free(block);
        return NULL;
    }
    return block;
}

/* ---- the cache ---- */

static struct host_block *cache_take(int class_index, enum block_kind kind) {
    pthread_mutex_lock(&cache.lock);
    struct list *link = list_pop_front(&cache.classes[kind][class_index]);
    struct host_block *block = link ? LIST_ENTRY(link, struct host_block, in_class) : NULL;
    if (block) {
        list_remove(&block->in_age);
        cache.cached_bytes -= (int64_t)block->buffer.size_bytes;
    }
    pthread_mutex_unlock(&cache.lock);
    return block;
}

static void cache_evict_oldest_locked(struct list *evicted) {
    struct host_block *block = LIST_ENTRY(cache.by_age.prev, struct host_block, in_age);
    list_remove(&block->in_class);
    list_remove(&block->in_age);
    cache.cached_bytes -= (int64_t)block->buffer.size_bytes;
    list_push_back(evicted, &block->in_age);
}

/* Removes the oldest blocks until at most `limit_bytes` are cached; the caller frees them after
 * unlocking. */
static void cache_evict_locked(int64_t limit_bytes, struct list *evicted) {
    while (cache.cached_bytes > limit_bytes)
        cache_evict_oldest_locked(evicted);
}

static void free_evicted(struct list *evicted) {
    LIST_FOR_EACH_SAFE (link, next, evicted)
        host_block_free(LIST_ENTRY(link, struct host_block, in_age));
}

static void cache_put(struct host_block *block) {
    struct list evicted;
    list_init(&evicted);
    pthread_mutex_lock(&cache.lock);
    list_push_front(&cache.classes[block->kind][block->class_index], &block->in_class);
    list_push_front(&cache.by_age, &block->in_age);
    block->age = cache.age;
    cache.cached_bytes += (int64_t)block->buffer.size_bytes;
    cache_evict_locked(cache.limit_bytes, &evicted);
    pthread_mutex_unlock(&cache.lock);
    free_evicted(&evicted);
}

static void cache_shrink(int64_t limit_bytes) {
    struct list evicted;
    list_init(&evicted);
    pthread_mutex_lock(&cache.lock);
    cache_evict_locked(limit_bytes, &evicted);
    pthread_mutex_unlock(&cache.lock);
    free_evicted(&evicted);
}

/* ---- the allocator ---- */

/* Counts the bytes before it allocates, so that two threads cannot both pass the limit. */
static bool charge(struct allocator *allocator, size_t size_bytes) {
    int64_t size = (int64_t)size_bytes;
    int64_t in_use =
        atomic_fetch_add_explicit(&allocator->in_use_bytes, size, memory_order_relaxed) + size;
    if (unlikely(allocator->limit_bytes > 0 && in_use > allocator->limit_bytes)) {
        atomic_fetch_sub_explicit(&allocator->in_use_bytes, size, memory_order_relaxed);
        return false;
    }
    int64_t peak = atomic_load_explicit(&allocator->peak_bytes, memory_order_relaxed);
    while (unlikely(in_use > peak) &&
           !atomic_compare_exchange_weak_explicit(&allocator->peak_bytes, &peak, in_use,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    return true;
}

static void uncharge(struct allocator *allocator, size_t size_bytes) {
    atomic_fetch_sub_explicit(&allocator->in_use_bytes, (int64_t)size_bytes, memory_order_relaxed);
}

static void host_allocator_unref(struct allocator *allocator) {
    struct host_allocator *host = CONTAINER_OF(allocator, struct host_allocator, base);
    if (atomic_load_explicit(&host->n_holders, memory_order_relaxed) < 0)
        return;
    if (atomic_fetch_sub_explicit(&host->n_holders, 1, memory_order_acq_rel) == 1)
        free(host);
}

static void host_allocator_ref(struct allocator *allocator) {
    struct host_allocator *host = CONTAINER_OF(allocator, struct host_allocator, base);
    if (atomic_load_explicit(&host->n_holders, memory_order_relaxed) >= 0)
        atomic_fetch_add_explicit(&host->n_holders, 1, memory_order_relaxed);
}

/* Puts the header directly before the data, both in one piece. malloc aligns to 16 bytes only; its
 * aligned forms are several times slower. */
static struct buffer *small_new(size_t size_bytes) {
    _Static_assert(sizeof(struct buffer) <= BUFFER_ALIGN,
                   "a header fits before the first aligned byte");
    void *piece = NULL;
    if (!BUFFER_HOSTILE)
        piece = malloc(BUFFER_ALIGN + BUFFER_ALIGN - 16 + size_bytes);
    else if (posix_memalign(&piece, BUFFER_ALIGN, BUFFER_ALIGN + size_bytes) != 0)
        piece = NULL;
    if (!piece)
        return NULL;
    char *block = piece;
    char *data = (char *)(((uintptr_t)block + sizeof(struct buffer) + BUFFER_ALIGN - 1) &
                          ~(uintptr_t)(BUFFER_ALIGN - 1));
    struct buffer *buffer = (struct buffer *)(void *)(data - sizeof(struct buffer));
    buffer->size_bytes = size_bytes;
    buffer->data = data;
    buffer->owner = NULL;
    buffer->flags = (uint32_t)((char *)buffer - block);
    return buffer;
}

/* A recycled block or a new one; NULL when memory or ranges are exhausted. */
static struct buffer *block_alloc(int class_index, size_t class_bytes, enum block_kind kind) {
    struct host_block *block = cache_take(class_index, kind);
    if (!block)
        block = host_block_new(class_index, class_bytes, kind);
    if (!block)
        return NULL;
    block->buffer.flags |= FLAG_RECYCLED;
    return &block->buffer;
}

static struct buffer *alloc_of_kind(struct allocator *allocator, size_t size_bytes,
                                    enum block_kind kind) {
    size_t charged = size_bytes;
    int class_index = -1;
    if (unlikely(size_bytes > (size_t)physical_bytes))
        return NULL;
    if (size_bytes >= (size_t)1 << RECYCLED_MIN_LOG2 && (!BUFFER_HOSTILE || kind == BLOCK_SHARED))
        class_index = class_of(size_bytes, &charged);
    if (!charge(allocator, charged))
        return NULL;
    struct buffer *buffer =
        class_index < 0 ? small_new(size_bytes) : block_alloc(class_index, charged, kind);
    if (unlikely(!buffer)) {
        uncharge(allocator, charged);
        return NULL;
    }
    atomic_init(&buffer->n_refs, 1);
    buffer->allocator = allocator;
    host_allocator_ref(allocator);
    return buffer;
}

static struct buffer *host_alloc(struct allocator *allocator, size_t size_bytes) {
    return alloc_of_kind(allocator, size_bytes, BLOCK_PRIVATE);
}

static void host_free(struct allocator *allocator, struct buffer *buffer) {
    uncharge(allocator, buffer->size_bytes);
    if (buffer->flags & FLAG_RECYCLED) {
        buffer->flags = 0; /* the block may have been written to */
        if (BUFFER_HOSTILE)
            host_block_free(CONTAINER_OF(buffer, struct host_block, buffer));
        else
            cache_put(CONTAINER_OF(buffer, struct host_block, buffer));
    } else {
        free((char *)buffer - (buffer->flags & OFFSET_MASK));
    }
    host_allocator_unref(allocator);
}

bool buffer_recount(struct buffer *buffer, struct allocator *to) {
    struct allocator *from = buffer->allocator;
    if (from->free != host_free || to->free != host_free || !charge(to, buffer->size_bytes))
        return false;
    uncharge(from, buffer->size_bytes);
    host_allocator_ref(to);
    buffer->allocator = to;
    host_allocator_unref(from);
    return true;
}

bool buffer_is_recycled(const struct buffer *buffer) {
    return buffer->allocator->free == host_free && (buffer->flags & FLAG_RECYCLED) != 0;
}

void allocator_host_set_release_hook(void (*on_release)(void *arg, const char *data,
                                                        size_t size_bytes),
                                     void *arg) {
    pthread_mutex_lock(&release_hook.lock);
    release_hook.on_release = on_release;
    release_hook.arg = arg;
    atomic_store_explicit(&release_hook.is_set, on_release != NULL, memory_order_release);
    pthread_mutex_unlock(&release_hook.lock);
}

/* ---- what peers see ---- */

static struct buffer *shared_alloc(struct allocator *allocator, size_t size_bytes) {
    struct allocator *base = &CONTAINER_OF(allocator, struct host_allocator, shared)->base;
    struct buffer *buffer = NULL;
    if (size_bytes >= (size_t)1 << RECYCLED_MIN_LOG2 &&
        atomic_load_explicit(&arena, memory_order_relaxed))
        buffer = alloc_of_kind(base, size_bytes, BLOCK_SHARED);
    buffer = buffer ? buffer : alloc_of_kind(base, size_bytes, BLOCK_PRIVATE);
    if (!buffer) /* the caller's message has it */
        atomic_store_explicit(&allocator->in_use_bytes,
                              atomic_load_explicit(&base->in_use_bytes, memory_order_relaxed),
                              memory_order_relaxed);
    return buffer;
}

static bool shared_likes(const struct allocator *allocator, const struct buffer *buffer) {
    (void)allocator;
    uint64_t offset;
    const struct shm_arena *in = atomic_load_explicit(&arena, memory_order_relaxed);
    return !in || buffer->size_bytes < (size_t)1 << RECYCLED_MIN_LOG2 ||
           shm_arena_find(in, buffer->data, &offset);
}

/* Has its base's name and limit, for messages. The base counts. */
#define SHARED_FACE(name_, limit_) \
    { .name = (name_), .alloc = shared_alloc, .likes = shared_likes, .limit_bytes = (limit_) }

static struct host_allocator process_allocator = {
    .base = {.name = "host", .alloc = host_alloc, .free = host_free},
    .shared = SHARED_FACE("host", 0),
    .n_holders = -1,
};

struct allocator *allocator_host_shared(struct allocator *host) {
    return &CONTAINER_OF(host, struct host_allocator, base)->shared;
}

struct shm_arena *allocator_host_arena(void) {
    return atomic_load_explicit(&arena, memory_order_relaxed);
}

static void host_init(void) {
    list_init(&cache.by_age);
    for (int i = 0; i < BLOCK_N_KINDS * N_CLASSES; i++)
        list_init(&cache.classes[i / N_CLASSES][i % N_CLASSES]);
    int64_t n_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    physical_bytes = n_pages > 0 && page_bytes > 0 ? n_pages * page_bytes : 1ll << 40;
}

struct allocator *allocator_host(void) {
    pthread_once(&host_once, host_init);
    return &process_allocator.base;
}

void allocator_host_set_arena(struct shm_arena *to) {
    pthread_once(&host_once, host_init);
    cache_shrink(0); /* no block may have come from an arena before */
    atomic_store_explicit(&arena, to, memory_order_relaxed);
}

void allocator_host_set_cache_limit(int64_t bytes) {
    pthread_once(&host_once, host_init);
    pthread_mutex_lock(&cache.lock);
    cache.limit_bytes = bytes;
    pthread_mutex_unlock(&cache.lock);
    cache_shrink(bytes);
}

void allocator_host_trim(void) {
    pthread_once(&host_once, host_init);
    cache_shrink(0);
}

void allocator_host_age(void) {
    struct list evicted;
    list_init(&evicted);
    pthread_once(&host_once, host_init);
    pthread_mutex_lock(&cache.lock);
    cache.age++;
    while (!list_is_empty(&cache.by_age) &&
           cache.age - LIST_ENTRY(cache.by_age.prev, struct host_block, in_age)->age >= 2)
        cache_evict_oldest_locked(&evicted);
    pthread_mutex_unlock(&cache.lock);
    free_evicted(&evicted);
}

struct allocator *allocator_host_new(const char *name, int64_t limit_bytes) {
    pthread_once(&host_once, host_init);
    size_t name_bytes = strlen(name) + 1;
    struct host_allocator *host = xcalloc(1, sizeof(*host) + name_bytes);
    host->base = (struct allocator){.name = memcpy(host + 1, name, name_bytes),
                                    .alloc = host_alloc,
                                    .free = host_free,
                                    .limit_bytes = limit_bytes};
    host->shared = (struct allocator)SHARED_FACE(host->base.name, limit_bytes);
    atomic_init(&host->n_holders, 1);
    return &host->base;
}

void allocator_host_free(struct allocator *allocator) {
    if (allocator)
        host_allocator_unref(allocator);
}

/* ---- memory of others ---- */

struct wrapped_buffer {
    struct buffer buffer;
    void (*release)(void *arg);
    void *arg;
};

static struct buffer *wrapped_alloc(struct allocator *allocator, size_t size_bytes) {
    (void)allocator;
    (void)size_bytes;
    return NULL;
}

static void wrapped_free(struct allocator *allocator, struct buffer *buffer) {
    (void)allocator;
    struct wrapped_buffer *wrapped = CONTAINER_OF(buffer, struct wrapped_buffer, buffer);
    if (wrapped->release)
        wrapped->release(wrapped->arg);
    free(wrapped);
}

static struct allocator wrapped_allocator = {
    .name = "wrapped", .alloc = wrapped_alloc, .free = wrapped_free};

struct buffer *buffer_wrap(void *data, size_t size_bytes, void (*release)(void *arg), void *arg) {
    struct wrapped_buffer *wrapped = xmalloc(sizeof(*wrapped));
    wrapped->buffer =
        (struct buffer){.size_bytes = size_bytes, .data = data, .allocator = &wrapped_allocator};
    atomic_init(&wrapped->buffer.n_refs, 1);
    wrapped->release = release;
    wrapped->arg = arg;
    return &wrapped->buffer;
}
