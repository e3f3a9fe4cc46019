/* Counts the references to tensor memory: 64-byte aligned blocks from an allocator, which recycles
 * large ones.
 *
 * A buffer may be written only while buffer_is_sole holds: nobody else has a reference then. Any
 * thread. */
#ifndef MILLRACE_COMMON_TENSOR_BUFFER_H
#define MILLRACE_COMMON_TENSOR_BUFFER_H

#include <stdatomic.h>

#include "common/base/base.h"

enum { BUFFER_ALIGN = 64 };
/* A bit of buffer.flags: nobody has written to this fresh block, so its bytes are all zero. Only
 * the caller who has just allocated the block may rely on it. */
#define BUFFER_IS_ZERO (1u << 31)
/* A bit of buffer.flags: the memory belongs to another process and is mapped read-only, so that
 * writing to it would end this process. buffer_is_sole never holds for such a buffer. */
#define BUFFER_IS_READ_ONLY (1u << 30)
/* A bit of buffer.flags: the memory belongs to a device, and the host can neither read nor write
 * it. The device's kernels and copies do (kernels/device.h), and device_memory below. */
#define BUFFER_IS_DEVICE (1u << 29)

struct buffer;
struct allocator;
struct device_engine;
struct shm_arena; /* common/tensor/shm_arena.h */
struct status;
struct str;

/* How bytes that the host cannot touch are copied within their memory. A copy is enqueued: it
 * happens after whatever the device was told to do before, and before whatever it is told next. Any
 * thread. */
struct device_memory {
    struct status *(*copy)(struct allocator *allocator, char *to, const char *from,
                           size_t size_bytes);
    /* Says which node a buffer was made for. May be NULL. */
    void (*set_holder)(struct buffer *buffer, const char *name);
    /* As allocator.alloc, but says why there is no memory: RESOURCE_EXHAUSTED with how much is in
     * use and by whom, or the device's failure. NULL: allocator.alloc serves. */
    struct status *(*alloc)(struct allocator *allocator, size_t size_bytes, struct buffer **ret);
    /* What the device does for kernels that serve every memory (kernels/support/device_engine.h).
     * NULL: nothing. */
    const struct device_engine *engine;
};

/* Where a buffer's memory comes from: the host, an arena that peers can map, a received message.
 * Each method may be called on any thread. */
struct allocator {
    const char *name;
    /* Returns a new buffer with one reference, its data aligned to BUFFER_ALIGN and undefined.
     * NULL: the limit is reached or memory is exhausted; the caller reports RESOURCE_EXHAUSTED with
     * the tensor's name and size. */
    struct buffer *(*alloc)(struct allocator *allocator, size_t size_bytes);
    /* Called once, when the last reference has been released. */
    void (*free)(struct allocator *allocator, struct buffer *buffer);
    /* see allocator_likes; NULL: every buffer */
    bool (*likes)(const struct allocator *allocator, const struct buffer *buffer);
    const struct device_memory *device_memory; /* NULL: the host's memory */
    _Atomic int64_t in_use_bytes, peak_bytes;
    int64_t limit_bytes; /* 0: no limit */
};

struct buffer {
    _Atomic uint32_t n_refs;
    uint32_t flags;    /* the allocator's */
    size_t size_bytes; /* usable size */
    char *data;        /* aligned */
    struct allocator *allocator;
    void *owner; /* the allocator's, e.g. the message this is a part of */
};

static inline struct buffer *buffer_ref(struct buffer *buffer) {
    atomic_fetch_add_explicit(&buffer->n_refs, 1, memory_order_relaxed);
    return buffer;
}
static inline void buffer_unref(struct buffer *buffer) {
    if (buffer && atomic_fetch_sub_explicit(&buffer->n_refs, 1, memory_order_acq_rel) == 1)
        buffer->allocator->free(buffer->allocator, buffer);
}
/* May the caller write to the buffer? */
static inline bool buffer_is_sole(struct buffer *buffer) {
    return atomic_load_explicit(&buffer->n_refs, memory_order_acquire) == 1 &&
           !(buffer->flags & BUFFER_IS_READ_ONLY);
}

/* The host allocator. Blocks below 64 KiB come from malloc. Larger blocks are recycled in size
 * classes (an eighth apart) up to a cache limit, because touching fresh pages costs more than the
 * work on them. The allocator is never freed. */
struct allocator *allocator_host(void);
/* Set the limit of the cached blocks (1 GiB at first); return all cached blocks to the system. */
void allocator_host_set_cache_limit(int64_t bytes);
void allocator_host_trim(void);
/* Returns to the system the blocks that have been cached, but not used, for two calls. A daemon
 * calls it every few seconds. */
void allocator_host_age(void);
/* A host allocator with a limit of its own (a CPU device). It shares the cached blocks. After
 * allocator_host_free it is freed together with its last buffer. */
struct allocator *allocator_host_new(const char *name, int64_t limit_bytes);
void allocator_host_free(struct allocator *allocator);

/* Moves the buffer's bytes to the account of `to`, which will free it. For memory that was
 * allocated before its user was known. Both allocators must be host allocators, and the caller must
 * be the only holder. False: they are not, or `to` is at its limit; nothing has changed. */
bool buffer_recount(struct buffer *buffer, struct allocator *to) MUST_USE;

/* Is this a recycled block, so that the release hook is called before its memory returns to the
 * system? */
bool buffer_is_recycled(const struct buffer *buffer);
/* Sets the function that is told of recycled memory before it returns to the system, such as memory
 * that an RDMA device has registered (rpc/rdma/rdma_regions.h). It is called on any thread, one
 * call at a time, and must not release tensors. NULL: no function; when that call returns, no call
 * of the old one is running. */
void allocator_host_set_release_hook(void (*on_release)(void *arg, const char *data,
                                                        size_t size_bytes),
                                     void *arg);

/* ---- memory that peers on this host can map ----
 *
 * Its first use costs ten times that of private memory (small pages only), so it is used for values
 * that are likely to be sent: variables, and the inputs of Send. */

/* Sets the arena that allocator_host_shared takes blocks from; NULL: none from now on. Must be
 * called before the first such block; the arena must outlive all of them. */
void allocator_host_set_arena(struct shm_arena *arena);
struct shm_arena *allocator_host_arena(void);
/* The same host allocator, with the same limit, account and lifetime, except that blocks from 64
 * KiB come from the arena while it has room. */
struct allocator *allocator_host_shared(struct allocator *host);
/* Is the buffer where the allocator would have placed it? Otherwise a kernel that reuses the
 * buffer would keep a value in memory that peers cannot map. */
static inline bool allocator_likes(const struct allocator *allocator, const struct buffer *buffer) {
    return likely(!allocator->likes) || allocator->likes(allocator, buffer);
}

static inline struct buffer *buffer_alloc(struct allocator *allocator, size_t size_bytes) {
    return allocator->alloc(allocator, size_bytes);
}
/* A buffer over memory that somebody else owns: `release(arg)` is called when the last reference is
 * released. */
struct buffer *buffer_wrap(void *data, size_t size_bytes, void (*release)(void *arg), void *arg);

#endif
