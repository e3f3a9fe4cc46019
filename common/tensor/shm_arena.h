/* Allocates blocks of memory that other processes of this host can map: parts of one sparse memfd,
 * which is mapped whole.
 *
 *     offset 0                                                    size_bytes (sealed)
 *     │ block │ block │ hole │ block │ never touched: no pages …  │
 *
 * A block is a range of pages; other processes know it by its offset. The pages of a block that is
 * given back return to the system at once (a hole is punched), and its range is kept for the next
 * block of the same class. The arena has far more ranges than the machine has memory, so it never
 * splits or joins them. The size is sealed, so the file cannot shrink under a process that maps it.
 *
 * Other processes get a descriptor that only allows reading. Any thread. */
#ifndef MILLRACE_COMMON_TENSOR_SHM_ARENA_H
#define MILLRACE_COMMON_TENSOR_SHM_ARENA_H

#include "common/base/status.h"

enum { SHM_ARENA_CLASSES = 256, SHM_ARENA_SLAB_BYTES = 2 << 20 };

struct shm_arena;

/* `size_bytes` 0: 64 times the machine's memory, at most 1 TiB, less where limits of the process
 * require it. Errors: UNAVAILABLE with the system call that failed. */
struct status *shm_arena_new(size_t size_bytes, struct shm_arena **ret_arena) MUST_USE;
/* all blocks must have been given back; accepts NULL */
void shm_arena_free(struct shm_arena *arena);

/* Returns a block of zeros; NULL when no range is left. All blocks of a class must have the same
 * size, a multiple of the page size. */
char *shm_arena_take(struct shm_arena *arena, int class_index, size_t size_bytes);
void shm_arena_give(struct shm_arena *arena, int class_index, char *block, size_t size_bytes);

size_t shm_arena_size(const struct shm_arena *arena);
/* The read-only descriptor to pass to other processes. The arena owns it. */
int shm_arena_fd(const struct shm_arena *arena);
/* The offset of `data`; false when it does not point into the arena. */
bool shm_arena_find(const struct shm_arena *arena, const void *data, uint64_t *ret_offset);
/* A number that tells whether a range has kept its pages: as long as a block is taken that has the
 * range, and for as long as the number stays the same, it has. It grows with every block that is
 * given back in one of the range's slabs, and is never 0. The caller holds the block. */
uint64_t shm_arena_epoch(const struct shm_arena *arena, uint64_t offset, size_t size_bytes);
/* total size of the blocks that are in use */
size_t shm_arena_taken_bytes(struct shm_arena *arena);

#endif
