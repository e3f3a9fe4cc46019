/* Allocates many small blocks that are freed together. An arena is always an explicit parameter.
 *
 * Blocks are aligned to 16 bytes (arena_alloc_aligned for more) and stay valid until arena_clear
 * or arena_fini. No function returns NULL: the process ends when memory is exhausted. Threads: one
 * at a time. */
#ifndef MILLRACE_COMMON_BASE_ARENA_H
#define MILLRACE_COMMON_BASE_ARENA_H

#include "common/base/base.h"

struct arena_block;

struct arena {
    char *next, *end;           /* free part of the newest block */
    struct arena_block *blocks; /* newest first */
    size_t size_bytes;          /* total size of the blocks, for limits and status pages */
};

void arena_init(struct arena *arena);
void arena_fini(struct arena *arena);
void arena_clear(struct arena *arena); /* frees all blocks but one, for reuse */

void *arena_alloc(struct arena *arena, size_t size_bytes);
void *arena_alloc_aligned(struct arena *arena, size_t size_bytes, size_t align);
void *arena_zalloc(struct arena *arena, size_t size_bytes); /* zeroed */
char *arena_strdup(struct arena *arena, const char *text);
char *arena_strndup(struct arena *arena, const char *text, size_t len); /* adds a NUL */
void *arena_memdup(struct arena *arena, const void *data, size_t size_bytes);
char *arena_printf(struct arena *arena, const char *format, ...) PRINTF_LIKE(2, 3);

#define arena_new(arena, type) ((type *)arena_zalloc((arena), sizeof(type)))
#define arena_array(arena, type, count) \
    ((type *)arena_zalloc((arena), sizeof(type) * (size_t)(count)))

#endif
