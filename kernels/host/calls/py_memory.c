/* Maps the memory of a server of Python functions, and keeps the worker's blocks in it. */
#include "kernels/host/calls/py_memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEX_DIGITS = 2 * PY_MEMORY_NONCE_BYTES };

struct block {
    uint64_t begin, end; /* of the state and the bytes behind it */
};

struct py_memory {
    char *map;
    uint64_t size, half;
    _Atomic uint32_t n_refs;
    pthread_mutex_t lock;                      /* guards the fields below */
    struct block blocks[PY_MEMORY_MAX_BLOCKS]; /* in the order of their places */
    int n_blocks;
};

/* ---- opening ---- */

struct name {
    unsigned process, descriptor;
    uint64_t size;
    unsigned char nonce[PY_MEMORY_NONCE_BYTES];
};

static bool read_name(struct span text, struct name *ret) {
    char copy[128], hex[HEX_DIGITS + 1];
    unsigned long long size;
    int len = 0;
    if (text.len == 0 || text.len >= sizeof(copy))
        return false;
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    if (sscanf(copy, "%u %u %llu %32[0-9a-f]%n", &ret->process, &ret->descriptor, &size, hex,
               &len) != 4 ||
        (size_t)len != text.len || strlen(hex) != HEX_DIGITS)
        return false;
    for (int i = 0; i < PY_MEMORY_NONCE_BYTES; i++) {
        unsigned byte;
        sscanf(hex + 2 * i, "%2x", &byte);
        ret->nonce[i] = (unsigned char)byte;
    }
    ret->size = size;
    return size >= 4 * PY_MEMORY_ALIGN && size <= PY_MEMORY_MAX_BYTES &&
           size % (2 * PY_MEMORY_ALIGN) == 0;
}

/* Opens the descriptor of another process. First as a mere place, because opening what is no memory
 * could have effects. -1: it cannot be reached, or it is no anonymous file. */
static int open_descriptor(const struct name *name) {
    char path[64];
    struct stat stat;
    snprintf(path, sizeof(path), "/proc/%u/fd/%u", name->process, name->descriptor);
    int place = open(path, O_PATH | O_CLOEXEC);
    if (place < 0)
        return -1;
    int fd = -1;
    if (fstat(place, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_nlink == 0) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", place);
        fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    }
    close(place);
    return fd;
}

/* Does the file have these bytes for as long as it exists? Otherwise reading it could end the
 * process with SIGBUS. */
static bool is_lasting(int fd, uint64_t size) {
    struct stat stat;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &stat) == 0 &&
           (uint64_t)stat.st_size >= size;
}

struct py_memory *py_memory_open(struct span text) {
    struct name name;
    if (!read_name(text, &name))
        return NULL;
    int fd = open_descriptor(&name);
    if (fd < 0)
        return NULL;
    void *map = MAP_FAILED;
    if (is_lasting(fd, name.size))
        map = mmap(NULL, name.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return NULL;
    if (memcmp(map, name.nonce, sizeof(name.nonce)) != 0) {
        munmap(map, name.size);
        return NULL;
    }
    struct py_memory *memory = xcalloc(1, sizeof(*memory));
    memory->map = map;
    memory->size = name.size;
    memory->half = name.size / 2;
    atomic_init(&memory->n_refs, 1);
    pthread_mutex_init(&memory->lock, NULL);
    return memory;
}

struct py_memory *py_memory_ref(struct py_memory *memory) {
    if (memory)
        atomic_fetch_add_explicit(&memory->n_refs, 1, memory_order_relaxed);
    return memory;
}

void py_memory_unref(struct py_memory *memory) {
    if (!memory || atomic_fetch_sub_explicit(&memory->n_refs, 1, memory_order_acq_rel) > 1)
        return;
    munmap(memory->map, memory->size);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

/* ---- blocks ---- */

static _Atomic uint32_t *state_at(struct py_memory *memory, uint64_t begin) {
    return (_Atomic uint32_t *)(void *)(memory->map + begin);
}

/* Forgets the blocks that the server has freed. The caller holds the lock. */
static void reclaim(struct py_memory *memory) {
    int n = 0;
    for (int i = 0; i < memory->n_blocks; i++)
        if (atomic_load_explicit(state_at(memory, memory->blocks[i].begin), memory_order_acquire))
            memory->blocks[n++] = memory->blocks[i];
    memory->n_blocks = n;
}

/* Finds the first gap of `size` bytes, and inserts a block there. 0: there is none. The caller
 * holds the lock. */
static uint64_t insert(struct py_memory *memory, uint64_t size) {
    uint64_t begin = PY_MEMORY_ALIGN;
    int i = 0;
    while (i < memory->n_blocks && memory->blocks[i].begin - begin < size)
        begin = memory->blocks[i++].end;
    if (memory->n_blocks == PY_MEMORY_MAX_BLOCKS || memory->half - begin < size)
        return 0;
    memmove(&memory->blocks[i + 1], &memory->blocks[i],
            (size_t)(memory->n_blocks - i) * sizeof(memory->blocks[0]));
    memory->blocks[i] = (struct block){begin, begin + size};
    memory->n_blocks++;
    return begin;
}

uint64_t py_memory_put(struct py_memory *memory, const void *bytes, size_t size) {
    if (size > memory->half)
        return 0;
    uint64_t whole = PY_MEMORY_ALIGN +
                     ((uint64_t)size + PY_MEMORY_ALIGN - 1) / PY_MEMORY_ALIGN * PY_MEMORY_ALIGN;
    pthread_mutex_lock(&memory->lock);
    reclaim(memory);
    uint64_t begin = insert(memory, whole);
    if (begin)
        atomic_store_explicit(state_at(memory, begin), 1, memory_order_relaxed);
    pthread_mutex_unlock(&memory->lock);
    if (!begin)
        return 0;
    memcpy(memory->map + begin + PY_MEMORY_ALIGN, bytes, size);
    return begin + PY_MEMORY_ALIGN;
}

struct status *py_memory_take(struct py_memory *memory, uint64_t at, void *to, size_t size) {
    if (at % PY_MEMORY_ALIGN != 0 || at < memory->half + PY_MEMORY_ALIGN || at > memory->size ||
        size > memory->size - at)
        return status_invalid("a server of Python functions names %zu bytes at %llu of its shared "
                              "memory, which has %llu",
                              size, (unsigned long long)at, (unsigned long long)memory->size);
    memcpy(to, memory->map + at, size);
    atomic_store_explicit(state_at(memory, at - PY_MEMORY_ALIGN), 0, memory_order_release);
    return NULL;
}
