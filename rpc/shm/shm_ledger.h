/* What one peer has been given by reference from this process' arena: token → buffer, one
 * reference each.
 *
 * A buffer stays as it is until the peer has given its token back, or the peer's process has
 * ended. The connection that the ledger belongs to (a channel of its own, which nobody closes
 * while both processes live) is how that is known: the kernel closes it with the process.
 * References that were under way when another connection to the peer broke are found out by
 * asking (settle): the peer names those it holds of all up to some token, and refuses those that
 * reach it later.
 *
 * Any thread. */
#ifndef MILLRACE_RPC_SHM_SHM_LEDGER_H
#define MILLRACE_RPC_SHM_SHM_LEDGER_H

#include "common/base/status.h"
#include "common/base/str.h"
#include "common/tensor/buffer.h"

enum {
    SHM_LEDGER_MAX_TOKENS = 1 << 20, /* held by one peer at a time */
    SHM_LEDGER_MAX_WEIGHED = 1024,   /* of more buffers than that each counts */
};

struct shm_ledger;

/* The peer may keep alive at most `max_kept_bytes` (0: any number): bytes of buffers that nobody
 * but peers holds, which count for each of these peers, and in full however small the slices
 * that were given. What this process holds as well, as a variable that was pulled, costs no
 * memory and does not count until it has been replaced here. */
struct shm_ledger *shm_ledger_new(int64_t max_kept_bytes);
/* All that is left goes back. Accepts NULL. */
void shm_ledger_free(struct shm_ledger *ledger);
/* This process is ending and the peer is not: what the peer may still look at is kept to the
 * last. Accepts NULL. */
void shm_ledger_abandon(struct shm_ledger *ledger);

/* A token for a value of `size_bytes` in the buffer; false when the peer holds too many, or
 * keeps so much alive that this value would be beyond the limit. Where it holds nothing, none is
 * too large. */
bool shm_ledger_give(struct shm_ledger *ledger, struct buffer *buffer, size_t size_bytes,
                     uint64_t *ret_token);
/* The peer is done with these. Errors: INVALID_ARGUMENT, it does not hold one of them (those
 * before it have been given back). */
struct status *shm_ledger_release(struct shm_ledger *ledger, const uint64_t *tokens,
                                  size_t n) MUST_USE;
/* The last token that was given. */
uint64_t shm_ledger_last(struct shm_ledger *ledger);
/* Of the tokens up to `up_to` the peer holds these and no others. Errors: INVALID_ARGUMENT, one
 * of them was not given to it. */
struct status *shm_ledger_keep_only(struct shm_ledger *ledger, uint64_t up_to,
                                    const uint64_t *tokens, size_t n) MUST_USE;

size_t shm_ledger_n_held(struct shm_ledger *ledger);
/* Members of a JSON object: "given", "given_bytes" (in all), "held" (tokens), "held_bytes" (of the
 * buffers, now), "limit_bytes", "refused" (in all). */
void shm_ledger_describe(struct shm_ledger *ledger, struct str *out);

#endif
