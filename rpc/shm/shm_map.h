/* A peer's arena, seen from here: its pages, mapped to be read only, and the references that
 * came from it.
 *
 * A reference becomes a buffer over the mapping that nobody may write (BUFFER_IS_READ_ONLY).
 * When its last holder lets go, its token waits to be given back: on_released asks for that on
 * the loop thread, once for many. The pages stay mapped until the last such buffer has gone,
 * also when the owner's process ended long before.
 *
 * The peer is trusted with nothing but the contents: size and seals are checked before the file
 * is mapped (it cannot shrink, so reading never faults), and offsets when they come. Any thread,
 * but for what says otherwise. */
#ifndef MILLRACE_RPC_SHM_SHM_MAP_H
#define MILLRACE_RPC_SHM_SHM_MAP_H

#include "common/base/status.h"
#include "common/base/str.h"
#include "common/tensor/buffer.h"
#include "rpc/loop.h"

struct shm_map;

/* Takes the descriptor, also when it fails. Errors: INVALID_ARGUMENT (no memfd of that size that
 * is sealed against shrinking), UNAVAILABLE (mmap refuses). Loop thread. */
struct status *shm_map_new(struct loop *loop, int fd_take, uint64_t size_bytes,
                           void (*on_released)(void *arg), void *arg,
                           struct shm_map **ret_map) MUST_USE;
/* Pages that have been looked at stay in this process' tables, for the next value that lies
 * there, and count as its resident memory: of those that no buffer covers any more about so many
 * bytes stay, the last ones. 0, the default: all. Before the first reference. */
void shm_map_limit_kept(struct shm_map *map, int64_t max_kept_bytes);
/* The connection to the owner has ended: on_released is not called any more, references are
 * refused. Accepts NULL. Loop thread. */
void shm_map_close(struct shm_map *map);

/* A buffer over what a reference names. *ret is NULL where the reference came too late
 * (settled). Errors: INVALID_ARGUMENT for a range that is not in the arena, a token that is held
 * already or was never possible; UNAVAILABLE once closed. */
struct status *shm_map_take(struct shm_map *map, uint64_t token, uint64_t offset,
                            uint64_t size_bytes, struct buffer **ret) MUST_USE;

/* The tokens to be given back now: malloc'd, the caller's; returns how many. With `settle_up_to`
 * > 0 also, in one moment, those that are held of all up to it; references up to it that come
 * later are refused. */
size_t shm_map_take_released(struct shm_map *map, uint64_t **ret_tokens);
void shm_map_settle(struct shm_map *map, uint64_t up_to, uint64_t **ret_released,
                    size_t *ret_n_released, uint64_t **ret_held, size_t *ret_n_held);
/* Members of a JSON object: "mapped", "mapped_bytes" (in all), "holding" (now). */
void shm_map_describe(struct shm_map *map, struct str *out);

#endif
