/* The memory of tensors: counted, 64-byte aligned blocks from an allocator; large ones are
 * recycled.
 *
 * A buffer that has another holder is never written: who wants to write asks
 * buffer_is_sole first. Any thread. */
#ifndef MILLRACE_COMMON_TENSOR_BUFFER_H
#define MILLRACE_COMMON_TENSOR_BUFFER_H

#include <stdatomic.h>

#include "common/base/base.h"

enum { BUFFER_ALIGN = 64 };
/* In buffer.flags while nobody has written to a fresh block: its bytes are all zero. Only who
 * just allocated it may look. */
#define BUFFER_IS_ZERO (1u << 31)
/* In buffer.flags for good: memory of another process, mapped so that writing it would end this
 * one. Never the sole holder's. */
#define BUFFER_IS_READ_ONLY (1u << 30)

struct buffer;
struct allocator;
struct shm_arena; /* common/tensor/shm_arena.h */

/* How a device, a transport's arena or a received message gives memory. Each method may be
 * called on any thread. */
struct allocator {
    const char *name;
    /* A new buffer with one reference, data aligned to BUFFER_ALIGN, contents undefined; NULL
     * when the limit is reached or memory is out: callers answer RESOURCE_EXHAUSTED with the
     * tensor's name and size. */
    struct buffer *(*alloc)(struct allocator *allocator, size_t size_bytes);
    /* Called once when the last reference is gone. */
    void (*free)(struct allocator *allocator, struct buffer *buffer);
    bool (*likes)(const struct allocator *allocator, const struct buffer *buffer); /* NULL: any */
    _Atomic int64_t in_use_bytes, peak_bytes;
    int64_t limit_bytes; /* 0: none */
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
/* May it be written? */
static inline bool buffer_is_sole(struct buffer *buffer) {
    return atomic_load_explicit(&buffer->n_refs, memory_order_acquire) == 1 &&
           !(buffer->flags & BUFFER_IS_READ_ONLY);
}

/* The host allocator: below 64 KiB from malloc; above, blocks are recycled in size classes (an
 * eighth apart) up to a cache limit, because fresh pages cost more than the work done on them.
 * Never freed. */
struct allocator *allocator_host(void);
/* Cap of the recycled blocks that are kept, default 1 GiB; and give back all that are kept now. */
void allocator_host_set_cache_limit(int64_t bytes);
void allocator_host_trim(void);
/* Begins a new age, and gives back what has been kept unused for two of them: a daemon calls it
 * every few seconds. */
void allocator_host_age(void);
/* A host allocator with a limit of its own (a CPU device): shares the recycled blocks. Freed
 * when its last buffer is gone. */
struct allocator *allocator_host_new(const char *name, int64_t limit_bytes);
void allocator_host_free(struct allocator *allocator);

/* The buffer counts for `to` from now on, which will be told of its end: memory that was made
 * ready before anybody needed it. Both are host allocators; the caller alone uses the buffer.
 * False, and nothing has changed, where they are not, or at the limit of `to`. */
bool buffer_recount(struct buffer *buffer, struct allocator *to) MUST_USE;

/* A recycled block, of which the hook is told before its memory goes back to the system? */
bool buffer_is_recycled(const struct buffer *buffer);
/* `on_release` is called on any thread, one call at a time, and must not let go of tensors.
 * NULL: nobody; no call is under way any more when that returns. For who gave a device the
 * addresses of such memory (rpc/rdma/rdma_regions.h). */
void allocator_host_set_release_hook(void (*on_release)(void *arg, const char *data,
                                                        size_t size_bytes),
                                     void *arg);

/* ---- memory that peers on this host can map ----
 *
 * Its first use costs ten times that of private memory (small pages, and no huge ones), so it is
 * for what is likely to be passed on: variables, and values that a Send takes. */

/* Where allocator_host_shared takes blocks from; NULL: nowhere, from now on. The arena outlives
 * all buffers. Before the first of them. */
void allocator_host_set_arena(struct shm_arena *arena);
struct shm_arena *allocator_host_arena(void);
/* The other face of a host allocator, with the same limit, account and life: blocks from 64 KiB
 * lie in the arena while there is one with room in it. */
struct allocator *allocator_host_shared(struct allocator *host);
/* Does the buffer lie where the allocator would have put it? A kernel may otherwise reuse memory
 * that peers cannot see. */
static inline bool allocator_likes(const struct allocator *allocator, const struct buffer *buffer) {
    return likely(!allocator->likes) || allocator->likes(allocator, buffer);
}

static inline struct buffer *buffer_alloc(struct allocator *allocator, size_t size_bytes) {
    return allocator->alloc(allocator, size_bytes);
}
/* A buffer over memory that someone else owns: `release(arg)` runs when the last reference is
 * gone. */
struct buffer *buffer_wrap(void *data, size_t size_bytes, void (*release)(void *arg), void *arg);

#endif
