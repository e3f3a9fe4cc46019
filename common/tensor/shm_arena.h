/* Memory that other processes of this host may look at: one sparse memfd, mapped whole, of which
 * blocks are taken and given back.
 *
 *     offset 0                                                          size_bytes (fixed by seals)
 *     │ block │ block │ hole │ block │ never touched: no page behind it …  │
 *
 * A block is a range of pages, known to others by its offset. What is given back is punched out,
 * so its pages return to the system at once; its range waits for the next block of the same
 * class. Ranges are plentiful (a thousand times the memory there is), so none is split or
 * joined. The size is sealed: a process that maps the file can never be hit by its shrinking.
 *
 * Others get a descriptor that reads only. Any thread. */
#ifndef MILLRACE_COMMON_TENSOR_SHM_ARENA_H
#define MILLRACE_COMMON_TENSOR_SHM_ARENA_H

#include "common/base/status.h"

enum { SHM_ARENA_CLASSES = 256 };

struct shm_arena;

/* `size_bytes` 0: 64 times the memory there is, at most 1 TiB; less where limits of the process
 * say so. Errors: UNAVAILABLE with the system call that refused. */
struct status *shm_arena_new(size_t size_bytes, struct shm_arena **ret_arena) MUST_USE;
void shm_arena_free(struct shm_arena *arena); /* no block is in use any more; accepts NULL */

/* A block of zeros; NULL when ranges are used up. All blocks of a class have the same size, a
 * multiple of the page's. */
char *shm_arena_take(struct shm_arena *arena, int class_index, size_t size_bytes);
void shm_arena_give(struct shm_arena *arena, int class_index, char *block, size_t size_bytes);

size_t shm_arena_size(const struct shm_arena *arena);
/* to be passed to others: reads only. The arena's own. */
int shm_arena_fd(const struct shm_arena *arena);
/* Where `data` lies; false when that is not in the arena. */
bool shm_arena_find(const struct shm_arena *arena, const void *data, uint64_t *ret_offset);
/* of the blocks that have not been given back */
size_t shm_arena_taken_bytes(struct shm_arena *arena);

#endif
