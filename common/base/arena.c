/* Allocates from blocks that grow from 4 KiB to 256 KiB, so that a small arena stays small and a
 * large one calls malloc rarely. A request too large for the usual block gets a block of its own,
 * put *behind* the newest, so that the free part of the newest stays in use. */
#include "common/base/arena.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_POISONS 1
#endif
#endif

/* Under AddressSanitizer memory that is not allocated is poisoned, so that a use after arena_clear
 * is reported like one after free. */
#ifdef ARENA_POISONS
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size_bytes) ((void)(address), (void)(size_bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, size_bytes) ((void)(address), (void)(size_bytes))
#endif

enum { ARENA_ALIGN = 16, ARENA_FIRST_BLOCK_BYTES = 4 * 1024, ARENA_MAX_BLOCK_BYTES = 256 * 1024 };

/* An arena of this size returns its pages to the system when it is freed. malloc would keep them
 * while anything above them in the heap lives: one oversized graph, refused, would stay in the
 * memory of the daemon. Returning the pages takes about as long as freeing the blocks. */
enum { ARENA_TRIM_BYTES = 64 << 20 };

struct arena_block {
    struct arena_block *older;
    size_t size_bytes; /* with this header */
    _Alignas(ARENA_ALIGN) char data[];
};

void arena_init(struct arena *arena) { memset(arena, 0, sizeof(*arena)); }

static void arena_block_free(struct arena_block *block) {
    ASAN_UNPOISON_MEMORY_REGION(block, block->size_bytes);
    free(block);
}

void arena_fini(struct arena *arena) {
    if (!arena)
        return;
    bool is_large = arena->size_bytes > ARENA_TRIM_BYTES;
    for (struct arena_block *block = arena->blocks, *older; block; block = older) {
        older = block->older;
        arena_block_free(block);
    }
    arena_init(arena);
    if (is_large)
        (void)malloc_trim(0);
}

/* Makes `block`, which must be free, the block that serves small requests. */
static void arena_use_block(struct arena *arena, struct arena_block *block) {
    arena->next = block->data;
    arena->end = (char *)block + block->size_bytes;
    ASAN_POISON_MEMORY_REGION(arena->next, (size_t)(arena->end - arena->next));
}

void arena_clear(struct arena *arena) {
    struct arena_block *kept = NULL;
    /* Keeps the largest usual block. An outsized block is freed, or one large step would pin its
     * size for good. */
    for (struct arena_block *block = arena->blocks, *older; block; block = older) {
        older = block->older;
        struct arena_block *dropped = block;
        if (block->size_bytes <= ARENA_MAX_BLOCK_BYTES &&
            (!kept || block->size_bytes > kept->size_bytes)) {
            dropped = kept;
            kept = block;
        }
        if (dropped)
            arena_block_free(dropped);
    }
    arena_init(arena);
    if (!kept)
        return;
    kept->older = NULL;
    arena->blocks = kept;
    arena->size_bytes = kept->size_bytes;
    arena_use_block(arena, kept);
}

static struct arena_block *arena_block_new(struct arena *arena, size_t size_bytes) {
    struct arena_block *block = xmalloc(size_bytes);
    block->older = NULL;
    block->size_bytes = size_bytes;
    arena->size_bytes += size_bytes;
    return block;
}

static void *arena_alloc_slow(struct arena *arena, size_t size_bytes, size_t align) {
    size_t need; /* the worst case of alignment included, as malloc promises ARENA_ALIGN only */
    if (__builtin_add_overflow(size_bytes, sizeof(struct arena_block) + align, &need))
        out_of_memory(size_bytes);

    size_t usual = arena->blocks
                       ? MIN(MAX(arena->size_bytes, ARENA_FIRST_BLOCK_BYTES), ARENA_MAX_BLOCK_BYTES)
                       : ARENA_FIRST_BLOCK_BYTES;
    if (need > usual / 4 && arena->blocks) {
        struct arena_block *own = arena_block_new(arena, need);
        own->older = arena->blocks->older;
        arena->blocks->older = own;
        char *start = (char *)(((uintptr_t)own->data + align - 1) & ~(uintptr_t)(align - 1));
        ASAN_POISON_MEMORY_REGION(start + size_bytes,
                                  (size_t)((char *)own + need - (start + size_bytes)));
        return start;
    }
    struct arena_block *block = arena_block_new(arena, MAX(usual, need));
    block->older = arena->blocks;
    arena->blocks = block;
    arena_use_block(arena, block);
    return arena_alloc_aligned(arena, size_bytes, align);
}

void *arena_alloc_aligned(struct arena *arena, size_t size_bytes, size_t align) {
    CHECK(align > 0 && (align & (align - 1)) == 0);
    align = MAX(align, (size_t)ARENA_ALIGN);
    uintptr_t end = (uintptr_t)arena->end;
    uintptr_t start = ((uintptr_t)arena->next + align - 1) & ~(uintptr_t)(align - 1);
    /* A request for zero bytes takes one, so that every block has an address of its own. */
    size_t taken = MAX(size_bytes, 1);
    if (unlikely(!arena->next || start > end || taken > end - start))
        return arena_alloc_slow(arena, taken, align);
    arena->next = (char *)(start + taken);
    ASAN_UNPOISON_MEMORY_REGION((void *)start, taken);
    return (void *)start;
}

void *arena_alloc(struct arena *arena, size_t size_bytes) {
    return arena_alloc_aligned(arena, size_bytes, ARENA_ALIGN);
}

void *arena_zalloc(struct arena *arena, size_t size_bytes) {
    return memset(arena_alloc(arena, size_bytes), 0, size_bytes);
}

char *arena_strdup(struct arena *arena, const char *text) {
    return arena_strndup(arena, text, strlen(text));
}

char *arena_strndup(struct arena *arena, const char *text, size_t len) {
    if (len == SIZE_MAX)
        out_of_memory(len);
    char *copy = arena_alloc(arena, len + 1);
    if (len > 0)
        memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

void *arena_memdup(struct arena *arena, const void *data, size_t size_bytes) {
    void *copy = arena_alloc(arena, size_bytes);
    if (size_bytes > 0)
        memcpy(copy, data, size_bytes);
    return copy;
}

char *arena_printf(struct arena *arena, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    int formatted = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    size_t len = formatted < 0 ? 0 : (size_t)formatted;
    if (len < sizeof(text))
        return arena_strndup(arena, text, len);

    char *longer = arena_alloc(arena, len + 1);
    va_start(args, format);
    (void)vsnprintf(longer, len + 1, format, args);
    va_end(args);
    return longer;
}
