/* Maps a peer's arena read-only, and makes buffers for the references that the peer sends.
 *
 * A buffer over the mapping has BUFFER_IS_READ_ONLY, so no kernel writes into it. When its last
 * reference is released, its token has to be returned to the peer. on_released is then called on
 * the loop thread, once for all tokens that have gathered. The pages stay mapped until the last
 * buffer is freed, even when the owner's process has ended long before.
 *
 * Nothing of the peer's is trusted except the contents. The size and the seals of the file are
 * checked before it is mapped: it cannot shrink, so reading it never faults. Offsets are checked
 * when a reference arrives. Any thread, unless a function says otherwise. */
#ifndef MILLRACE_RPC_SHM_SHM_MAP_H
#define MILLRACE_RPC_SHM_SHM_MAP_H

#include "common/base/status.h"
#include "common/base/str.h"
#include "common/tensor/buffer.h"
#include "rpc/loop.h"

struct shm_map;

/* Maps the arena of `size_bytes` behind the descriptor, which it takes, also on failure. Errors:
 * INVALID_ARGUMENT (not a memfd of that size, or not sealed against shrinking), UNAVAILABLE (mmap
 * fails). Loop thread. */
struct status *shm_map_new(struct loop *loop, int fd_take, uint64_t size_bytes,
                           void (*on_released)(void *arg), void *arg,
                           struct shm_map **ret_map) MUST_USE;
/* Limits how many bytes stay mapped that no buffer covers any more. The most recently used ones
 * stay, because the next value is often at the same address. They count as resident memory of this
 * process. 0, the default, means no limit. Call it before the first reference. */
void shm_map_limit_kept(struct shm_map *map, int64_t max_kept_bytes);
/* The connection to the owner has ended. From now on references are refused and on_released is not
 * called. The memory is freed with the last buffer. Accepts NULL. Loop thread. */
void shm_map_close(struct shm_map *map);

/* Makes a buffer over the range that a reference names; the caller owns its one reference. *ret is
 * NULL, without an error, for a reference that was settled before it arrived (shm_map_settle); its
 * owner has dropped the value. Errors: INVALID_ARGUMENT (a range outside the arena, a token that is
 * 0 or held already), UNAVAILABLE after shm_map_close. */
struct status *shm_map_take(struct shm_map *map, uint64_t token, uint64_t offset,
                            uint64_t size_bytes, struct buffer **ret) MUST_USE;

/* The owner says that the range which a reference names has this epoch (shm_arena_epoch). If it may
 * have other pages than when a reference to it was last taken, says so (shared_areas_release). 0:
 * not known. To be called after shm_map_take, before anybody uses the buffer. */
void shm_map_note_epoch(struct shm_map *map, uint64_t offset, uint64_t size_bytes, uint64_t epoch);

/* Hands out the tokens that have to be returned, and returns how many. The caller frees *ret_tokens
 * (NULL if there are none). */
size_t shm_map_take_released(struct shm_map *map, uint64_t **ret_tokens);
/* Does the same, and lists in the same moment which tokens up to `up_to` are held. References with
 * tokens up to `up_to` that arrive later are too late. The caller frees both arrays. */
void shm_map_settle(struct shm_map *map, uint64_t up_to, uint64_t **ret_released,
                    size_t *ret_n_released, uint64_t **ret_held, size_t *ret_n_held);
uint64_t shm_map_taken_bytes(struct shm_map *map); /* in all; 0 for NULL */
/* Appends members of a JSON object: "mapped" and "mapped_bytes" are totals, "holding" is the
 * present number of buffers. */
void shm_map_describe(struct shm_map *map, struct str *out);

#endif
