/* Lists the values that one peer holds by reference in this process' arena. Each has a token, and
 * the ledger holds one reference to its buffer.
 *
 * A buffer stays allocated and unchanged until the peer returns its token, or the peer's process
 * has ended. The owner learns of that end from the connection that the ledger belongs to: a channel
 * that neither task closes while both live, and that the kernel closes with the process.
 *
 * When another connection to the peer breaks, references may have been lost on the way. Then the
 * owner sends its last token, and the peer replies which tokens up to that one it holds
 * (shm_ledger_keep_only). The peer refuses references with such tokens that arrive later.
 *
 * Any thread. */
#ifndef MILLRACE_RPC_SHM_SHM_LEDGER_H
#define MILLRACE_RPC_SHM_SHM_LEDGER_H

#include "common/base/status.h"
#include "common/base/str.h"
#include "common/tensor/buffer.h"

enum {
    SHM_LEDGER_MAX_TOKENS = 1 << 20, /* how many one peer may hold */
    /* While the peer holds more buffers than this, each counts in max_kept_bytes, because finding
     * the ones that only peers hold would take too long. */
    SHM_LEDGER_MAX_WEIGHED = 1024,
};

struct shm_ledger;

/* The peer may keep at most `max_kept_bytes` alive (0: no limit). A buffer counts while only peers
 * hold it. It counts for each of these peers, and in full, even if only a slice of it was given. A
 * buffer that this process holds too, for example a variable, costs no additional memory and does
 * not count. */
struct shm_ledger *shm_ledger_new(int64_t max_kept_bytes);
/* Drops all references and frees the ledger: the peer's process has ended. Accepts NULL. */
void shm_ledger_free(struct shm_ledger *ledger);
/* Frees the ledger, but keeps its references until this process exits: the peer may still read the
 * buffers. Accepts NULL. */
void shm_ledger_abandon(struct shm_ledger *ledger);

/* Makes a token for a value of `size_bytes` in the buffer, and takes a reference to the buffer. The
 * bytes of a buffer that has a token must not change. Returns false, with nothing done, when the
 * peer holds too many tokens, or when it would keep more alive than the limit allows. A peer that
 * keeps nothing alive is given a value of any size. */
bool shm_ledger_give(struct shm_ledger *ledger, struct buffer *buffer, size_t size_bytes,
                     uint64_t *ret_token);
/* The peer has returned these tokens: drops their references. Errors: INVALID_ARGUMENT when the
 * peer does not hold one of them; those before it are returned all the same. */
struct status *shm_ledger_release(struct shm_ledger *ledger, const uint64_t *tokens,
                                  size_t n) MUST_USE;
/* Returns the last token that was given; 0 when there was none. Tokens grow. */
uint64_t shm_ledger_last(struct shm_ledger *ledger);
/* Of the tokens up to `up_to` the peer holds exactly these: drops the references of the others.
 * Errors: INVALID_ARGUMENT when one of them was not given to the peer or is above `up_to`; then
 * nothing is dropped. */
struct status *shm_ledger_keep_only(struct shm_ledger *ledger, uint64_t up_to,
                                    const uint64_t *tokens, size_t n) MUST_USE;

uint64_t shm_ledger_given_bytes(struct shm_ledger *ledger); /* in all; 0 for NULL */
size_t shm_ledger_n_held(struct shm_ledger *ledger);        /* tokens */
/* Appends members of a JSON object. "given", "given_bytes" and "refused" are totals; "held"
 * (tokens), "held_bytes" (of their buffers) and "limit_bytes" are present values. */
void shm_ledger_describe(struct shm_ledger *ledger, struct str *out);

#endif
