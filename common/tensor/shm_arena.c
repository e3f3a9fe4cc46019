/* Allocates blocks of a memfd that other processes of the host can map. */
#include "common/tensor/shm_arena.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/tensor/shared_areas.h"

/* Sanitizers keep shadow memory for every mapping and leave less address space. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MAX_BYTES (64ull << 30)
#else
#define MAX_BYTES (1ull << 40)
#endif

enum { RAM_MULTIPLE = 64 };
static const size_t min_bytes = 64ull << 20, step_bytes = SHM_ARENA_SLAB_BYTES;

/* Ranges that were given back, as a stack, so that page tables stay small. */
struct free_ranges {
    uint64_t *offsets;
    size_t n, capacity;
};

struct shm_arena {
    int fd, read_fd;
    char *base;
    size_t size_bytes;
    pthread_mutex_t lock; /* guards the fields below */
    uint64_t fresh;       /* nothing was ever taken from here on */
    size_t taken_bytes;
    uint64_t n_given; /* blocks that were ever given back */
    /* of each slab: n_given after a block in it was last given back. Read without the lock. */
    _Atomic uint64_t *epochs;
    struct free_ranges classes[SHM_ARENA_CLASSES];
};

static struct status *refused(const char *what) {
    return status_unavailable("shared memory: %s: %s", what, strerror(errno));
}

/* A file beyond RLIMIT_FSIZE would end the process by a signal. */
static size_t usual_size(void) {
    struct rlimit limit;
    uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t size = MIN(ram * RAM_MULTIPLE, (uint64_t)MAX_BYTES);
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        size = MIN(size, (uint64_t)limit.rlim_cur);
    return size & ~(step_bytes - 1);
}

/* Where address space is limited or memory is strictly accounted, a smaller arena may still be
 * possible. */
static struct status *map(struct shm_arena *arena, size_t size_bytes) {
    for (; size_bytes >= min_bytes; size_bytes = (size_bytes / 16) & ~(step_bytes - 1)) {
        if (ftruncate(arena->fd, (off_t)size_bytes) != 0)
            return refused("ftruncate");
        void *base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                          arena->fd, 0);
        if (base != MAP_FAILED) {
            arena->base = base;
            arena->size_bytes = size_bytes;
            (void)madvise(base, size_bytes, MADV_DONTFORK);
            return NULL;
        }
    }
    return refused("mmap");
}

/* Only the owning user of a memfd can open its descriptor again for writing. */
static struct status *open_for_readers(struct shm_arena *arena) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", arena->fd);
    if (fchmod(arena->fd, 0400) != 0)
        return refused("fchmod");
    arena->read_fd = open(path, O_RDONLY | O_CLOEXEC);
    return arena->read_fd < 0 ? refused(path) : NULL;
}

static struct status *set_up(struct shm_arena *arena, size_t size_bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    arena->fd = memfd_create("millrace-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (arena->fd < 0)
        return refused("memfd_create");
    TRY(map(arena,
            size_bytes > 0 ? MAX(size_bytes + page - 1, min_bytes) & ~(page - 1) : usual_size()));
    if (fcntl(arena->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return refused("F_ADD_SEALS");
    arena->epochs = xcalloc(arena->size_bytes / SHM_ARENA_SLAB_BYTES + 1, sizeof(*arena->epochs));
    shared_areas_add(arena->base, arena->size_bytes, false);
    return open_for_readers(arena);
}

struct status *shm_arena_new(size_t size_bytes, struct shm_arena **ret_arena) {
    struct shm_arena *arena = xcalloc(1, sizeof(*arena));
    CHECK(pthread_mutex_init(&arena->lock, NULL) == 0);
    arena->fd = arena->read_fd = -1;
    struct status *st = set_up(arena, size_bytes);
    if (st) {
        shm_arena_free(arena);
        return st;
    }
    *ret_arena = arena;
    return NULL;
}

void shm_arena_free(struct shm_arena *arena) {
    if (!arena)
        return;
    if (arena->base) {
        shared_areas_remove(arena->base);
        munmap(arena->base, arena->size_bytes);
    }
    if (arena->fd >= 0)
        close(arena->fd);
    if (arena->read_fd >= 0)
        close(arena->read_fd);
    for (int i = 0; i < SHM_ARENA_CLASSES; i++)
        free(arena->classes[i].offsets);
    free(arena->epochs);
    pthread_mutex_destroy(&arena->lock);
    free(arena);
}

char *shm_arena_take(struct shm_arena *arena, int class_index, size_t size_bytes) {
    CHECK(class_index >= 0 && class_index < SHM_ARENA_CLASSES);
    struct free_ranges *ranges = &arena->classes[class_index];
    char *block = NULL;
    pthread_mutex_lock(&arena->lock);
    if (ranges->n > 0) {
        block = arena->base + ranges->offsets[--ranges->n];
    } else if (size_bytes <= arena->size_bytes - arena->fresh) {
        block = arena->base + arena->fresh;
        arena->fresh += size_bytes;
    }
    if (block)
        arena->taken_bytes += size_bytes;
    pthread_mutex_unlock(&arena->lock);
    return block;
}

void shm_arena_give(struct shm_arena *arena, int class_index, char *block, size_t size_bytes) {
    uint64_t offset = (uint64_t)(block - arena->base);
    struct free_ranges *ranges = &arena->classes[class_index];
    shared_areas_release(block, size_bytes);
    /* The mapping is ours and writable, so only a kernel error can refuse this. Old contents must
     * not be returned as zeros. */
    CHECK(fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                    (off_t)size_bytes) == 0);
    pthread_mutex_lock(&arena->lock);
    if (ranges->n == ranges->capacity) {
        ranges->capacity = ranges->capacity ? ranges->capacity * 2 : 8;
        ranges->offsets =
            xreallocarray(ranges->offsets, ranges->capacity, sizeof(*ranges->offsets));
    }
    arena->n_given++;
    for (uint64_t slab = offset / SHM_ARENA_SLAB_BYTES;
         slab <= (offset + size_bytes - 1) / SHM_ARENA_SLAB_BYTES; slab++)
        atomic_store_explicit(&arena->epochs[slab], arena->n_given, memory_order_relaxed);
    ranges->offsets[ranges->n++] = offset;
    arena->taken_bytes -= size_bytes;
    pthread_mutex_unlock(&arena->lock);
}

size_t shm_arena_size(const struct shm_arena *arena) { return arena->size_bytes; }
int shm_arena_fd(const struct shm_arena *arena) { return arena->read_fd; }

bool shm_arena_find(const struct shm_arena *arena, const void *data, uint64_t *ret_offset) {
    uintptr_t at = (uintptr_t)data, base = (uintptr_t)arena->base;
    if (at < base || at - base >= arena->size_bytes)
        return false;
    *ret_offset = at - base;
    return true;
}

uint64_t shm_arena_epoch(const struct shm_arena *arena, uint64_t offset, size_t size_bytes) {
    uint64_t epoch = 0;
    for (uint64_t slab = offset / SHM_ARENA_SLAB_BYTES;
         slab <= (offset + MAX(size_bytes, (size_t)1) - 1) / SHM_ARENA_SLAB_BYTES; slab++)
        epoch = MAX(epoch, atomic_load_explicit(&arena->epochs[slab], memory_order_relaxed));
    return epoch + 1;
}

size_t shm_arena_taken_bytes(struct shm_arena *arena) {
    pthread_mutex_lock(&arena->lock);
    size_t bytes = arena->taken_bytes;
    pthread_mutex_unlock(&arena->lock);
    return bytes;
}
