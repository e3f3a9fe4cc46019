/* Maps a peer's arena and makes buffers over it. */
#include "rpc/shm/shm_map.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/map.h"
#include "common/tensor/shared_areas.h"
#include "common/tensor/shm_arena.h"

enum { MAX_SEEN = 64 };

/* What a freed buffer covered. */
struct seen {
    char *data;
    size_t size_bytes;
};

struct shm_map {
    struct loop *loop;
    const char *base;
    uint64_t size_bytes;
    void (*on_released)(void *arg);
    void *arg;
    struct loop_task task;

    pthread_mutex_t lock; /* guards what follows */
    uint32_t n_refs;      /* the owner's (until shm_map_close), each buffer's, the posted task's */
    bool is_closed, is_posted;
    struct u64map held; /* token → struct mapped_buffer */
    uint64_t settled;   /* references with tokens up to this one are too late */
    uint64_t *released;
    size_t n_released, capacity;
    uint64_t n_taken, taken_bytes;
    int64_t max_seen_bytes;
    struct seen seen[MAX_SEEN]; /* oldest first */
    int n_seen;
    size_t seen_bytes;
    uint64_t *epochs; /* the highest that was noted for each slab; NULL until the first */
};

struct mapped_buffer {
    struct buffer buffer;
    struct shm_map *map;
    uint64_t token;
};

/* Lock held. Drops a reference and releases the lock. */
static void unref_unlock(struct shm_map *map) {
    bool is_last = --map->n_refs == 0;
    pthread_mutex_unlock(&map->lock);
    if (!is_last)
        return;
    shared_areas_remove(map->base);
    munmap((void *)(uintptr_t)map->base, map->size_bytes);
    free(map->epochs);
    u64map_fini(&map->held);
    free(map->released);
    pthread_mutex_destroy(&map->lock);
    free(map);
}

static void on_task(struct loop_task *task) {
    struct shm_map *map = CONTAINER_OF(task, struct shm_map, task);
    pthread_mutex_lock(&map->lock);
    map->is_posted = false;
    bool is_closed = map->is_closed;
    pthread_mutex_unlock(&map->lock);
    if (!is_closed)
        map->on_released(map->arg);
    pthread_mutex_lock(&map->lock);
    unref_unlock(map);
}

/* ---- making ---- */

static struct status *check_file(int fd, uint64_t size_bytes) {
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return status_invalid("the arena is not a memory file that is sealed against shrinking");
    if (fstat(fd, &info) != 0 || info.st_size < 0 || (uint64_t)info.st_size != size_bytes ||
        size_bytes == 0)
        return status_invalid("the arena was announced with %llu bytes, but has %lld",
                              (unsigned long long)size_bytes, (long long)info.st_size);
    return NULL;
}

static struct status *map_file(int fd, uint64_t size_bytes, const char **ret_base) {
    if (fd < 0)
        return status_invalid("an arena was announced without a descriptor");
    TRY(check_file(fd, size_bytes));
    void *base = mmap(NULL, size_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED)
        return status_unavailable("mapping an arena of %llu bytes: %s",
                                  (unsigned long long)size_bytes, strerror(errno));
    (void)madvise(base, size_bytes, MADV_DONTFORK);
    (void)madvise(base, size_bytes, MADV_DONTDUMP);
    *ret_base = base;
    return NULL;
}

struct status *shm_map_new(struct loop *loop, int fd_take, uint64_t size_bytes,
                           void (*on_released)(void *arg), void *arg, struct shm_map **ret_map) {
    const char *base = NULL;
    struct status *st = map_file(fd_take, size_bytes, &base);
    if (fd_take >= 0)
        close(fd_take); /* the mapping holds the file */
    if (st)
        return st;
    struct shm_map *map = xcalloc(1, sizeof(*map));
    *map = (struct shm_map){.loop = loop,
                            .base = base,
                            .size_bytes = size_bytes,
                            .on_released = on_released,
                            .arg = arg,
                            .task = {.run = on_task},
                            .n_refs = 1};
    CHECK(pthread_mutex_init(&map->lock, NULL) == 0);
    u64map_init(&map->held);
    shared_areas_add(map->base, map->size_bytes, true);
    *ret_map = map;
    return NULL;
}

void shm_map_limit_kept(struct shm_map *map, int64_t max_kept_bytes) {
    map->max_seen_bytes = max_kept_bytes;
}

void shm_map_close(struct shm_map *map) {
    if (!map)
        return;
    pthread_mutex_lock(&map->lock);
    map->is_closed = true;
    unref_unlock(map);
}

/* ---- buffers ---- */

/* Lock held. The loop will return the token. */
static void add_released(struct shm_map *map, uint64_t token) {
    if (map->n_released == map->capacity) {
        map->capacity = map->capacity ? map->capacity * 2 : 16;
        map->released = xreallocarray(map->released, map->capacity, sizeof(*map->released));
    }
    map->released[map->n_released++] = token;
    if (map->is_posted)
        return;
    map->is_posted = true;
    map->n_refs++;
    loop_post(map->loop, &map->task);
}

static void forget_seen(struct shm_map *map, int at) {
    map->seen_bytes -= map->seen[at].size_bytes;
    memmove(&map->seen[at], &map->seen[at + 1],
            (size_t)(map->n_seen - at - 1) * sizeof(map->seen[0]));
    map->n_seen--;
}

/* Lock held. Notes that the buffer's range stays mapped. Ranges that have to be dropped for it are
 * put into `ret_old` (MAX_SEEN); returns how many. The newest range stays. */
static int add_seen(struct shm_map *map, const struct buffer *buffer, struct seen *ret_old) {
    int n_old = 0;
    if (map->max_seen_bytes == 0)
        return 0;
    for (int i = 0; i < map->n_seen; i++)
        if (map->seen[i].data == buffer->data && map->seen[i].size_bytes <= buffer->size_bytes) {
            forget_seen(map, i);
            break;
        }
    while (map->n_seen > 0 && (map->n_seen == MAX_SEEN || map->seen_bytes + buffer->size_bytes >
                                                              (size_t)map->max_seen_bytes)) {
        ret_old[n_old++] = map->seen[0];
        forget_seen(map, 0);
    }
    map->seen[map->n_seen++] = (struct seen){buffer->data, buffer->size_bytes};
    map->seen_bytes += buffer->size_bytes;
    return n_old;
}

/* Removes the ranges from this process' page tables. A later read of them finds the same bytes. */
static void drop_pages(const struct shm_map *map, const struct seen *old, int n) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < n; i++) {
        uintptr_t begin = (uintptr_t)old[i].data & ~(page - 1),
                  end = (uintptr_t)old[i].data + old[i].size_bytes;
        shared_areas_release(old[i].data, old[i].size_bytes); /* a registration keeps the pages */
        (void)madvise((void *)begin, MIN(end, (uintptr_t)map->base + map->size_bytes) - begin,
                      MADV_DONTNEED);
    }
}

static void mapped_free(struct allocator *allocator, struct buffer *buffer) {
    (void)allocator;
    struct mapped_buffer *mapped = CONTAINER_OF(buffer, struct mapped_buffer, buffer);
    struct shm_map *map = mapped->map;
    struct seen old[MAX_SEEN];
    pthread_mutex_lock(&map->lock);
    u64map_remove(&map->held, mapped->token);
    int n_old = add_seen(map, buffer, old);
    if (!map->is_closed)
        add_released(map, mapped->token);
    if (n_old > 0) { /* the map is kept by this buffer's reference */
        pthread_mutex_unlock(&map->lock);
        drop_pages(map, old, n_old);
        pthread_mutex_lock(&map->lock);
    }
    unref_unlock(map);
    free(mapped);
}

static struct buffer *mapped_alloc(struct allocator *allocator, size_t size_bytes) {
    (void)allocator;
    (void)size_bytes;
    return NULL;
}

static struct allocator mapped_allocator = {
    .name = "mapped", .alloc = mapped_alloc, .free = mapped_free};

/* Lock held. Checks whether a reference may have this token. *ret_is_late: the reference is
 * correct, but too late. */
static struct status *check_token(const struct shm_map *map, uint64_t token, bool *ret_is_late) {
    if (map->is_closed)
        return status_unavailable("a reference into an arena whose owner has ended");
    *ret_is_late = token != 0 && token <= map->settled;
    if (token == 0 || (!*ret_is_late && u64map_get(&map->held, token)))
        return status_invalid("a second reference with token %llu", (unsigned long long)token);
    return NULL;
}

struct status *shm_map_take(struct shm_map *map, uint64_t token, uint64_t offset,
                            uint64_t size_bytes, struct buffer **ret) {
    if (size_bytes == 0 || offset % BUFFER_ALIGN != 0 || offset > map->size_bytes ||
        size_bytes > map->size_bytes - offset)
        return status_invalid("a reference to %llu bytes at offset %llu of an arena of %llu bytes",
                              (unsigned long long)size_bytes, (unsigned long long)offset,
                              (unsigned long long)map->size_bytes);
    struct mapped_buffer *mapped = xmalloc(sizeof(*mapped));
    *mapped = (struct mapped_buffer){.buffer = {.flags = BUFFER_IS_READ_ONLY,
                                                .size_bytes = size_bytes,
                                                .data = (char *)(uintptr_t)map->base + offset,
                                                .allocator = &mapped_allocator},
                                     .map = map,
                                     .token = token};
    atomic_init(&mapped->buffer.n_refs, 1);
    bool is_late = false;
    pthread_mutex_lock(&map->lock);
    struct status *st = check_token(map, token, &is_late);
    bool is_new = !st && !is_late;
    if (is_new) {
        u64map_put(&map->held, token, mapped);
        map->n_refs++;
        map->n_taken++;
        map->taken_bytes += size_bytes;
    }
    pthread_mutex_unlock(&map->lock);
    if (!is_new)
        free(mapped);
    if (!st)
        *ret = is_new ? &mapped->buffer : NULL;
    return st;
}

/* Lock held. Is it the first time that one of the slabs of a range has an epoch as high? */
static bool raise_epochs(struct shm_map *map, uint64_t offset, uint64_t size_bytes,
                         uint64_t epoch) {
    bool is_raised = epoch == 0;
    if (!map->epochs)
        map->epochs = xcalloc(map->size_bytes / SHM_ARENA_SLAB_BYTES + 1, sizeof(*map->epochs));
    for (uint64_t slab = offset / SHM_ARENA_SLAB_BYTES;
         slab <= (offset + size_bytes - 1) / SHM_ARENA_SLAB_BYTES; slab++) {
        is_raised |= map->epochs[slab] < epoch;
        map->epochs[slab] = MAX(map->epochs[slab], epoch);
    }
    return is_raised;
}

void shm_map_note_epoch(struct shm_map *map, uint64_t offset, uint64_t size_bytes, uint64_t epoch) {
    if (!shared_areas_are_watched())
        return;
    pthread_mutex_lock(&map->lock);
    bool is_raised = raise_epochs(map, offset, size_bytes, epoch);
    pthread_mutex_unlock(&map->lock);
    if (!is_raised)
        return;
    /* Other blocks of these slabs may have other pages, too, and will not raise the epoch again. */
    uint64_t begin = offset / SHM_ARENA_SLAB_BYTES * SHM_ARENA_SLAB_BYTES,
             end = (offset + size_bytes + SHM_ARENA_SLAB_BYTES - 1) / SHM_ARENA_SLAB_BYTES *
                   SHM_ARENA_SLAB_BYTES;
    shared_areas_release(map->base + begin, MIN(end, map->size_bytes) - begin);
}

/* ---- giving back ---- */

/* Lock held. */
static size_t take_released(struct shm_map *map, uint64_t **ret_tokens) {
    size_t n = map->n_released;
    *ret_tokens = map->released;
    map->released = NULL;
    map->n_released = map->capacity = 0;
    return n;
}

size_t shm_map_take_released(struct shm_map *map, uint64_t **ret_tokens) {
    pthread_mutex_lock(&map->lock);
    size_t n = take_released(map, ret_tokens);
    pthread_mutex_unlock(&map->lock);
    return n;
}

void shm_map_settle(struct shm_map *map, uint64_t up_to, uint64_t **ret_released,
                    size_t *ret_n_released, uint64_t **ret_held, size_t *ret_n_held) {
    size_t cursor = 0, n = 0;
    uint64_t token;
    void *mapped;
    pthread_mutex_lock(&map->lock);
    map->settled = MAX(map->settled, up_to);
    *ret_n_released = take_released(map, ret_released);
    uint64_t *held = xmalloc((map->held.n_entries + 1) * sizeof(*held));
    while (u64map_next(&map->held, &cursor, &token, &mapped))
        if (token <= up_to)
            held[n++] = token;
    pthread_mutex_unlock(&map->lock);
    *ret_held = held;
    *ret_n_held = n;
}

uint64_t shm_map_taken_bytes(struct shm_map *map) {
    if (!map)
        return 0;
    pthread_mutex_lock(&map->lock);
    uint64_t n_bytes = map->taken_bytes;
    pthread_mutex_unlock(&map->lock);
    return n_bytes;
}

void shm_map_describe(struct shm_map *map, struct str *out) {
    pthread_mutex_lock(&map->lock);
    str_addf(out, "\"mapped\":%llu,\"mapped_bytes\":%llu,\"holding\":%zu",
             (unsigned long long)map->n_taken, (unsigned long long)map->taken_bytes,
             map->held.n_entries);
    pthread_mutex_unlock(&map->lock);
}
