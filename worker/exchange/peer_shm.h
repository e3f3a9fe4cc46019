/* References instead of bytes between two tasks of one host: what a peer has of this task's
 * arena, and this task of the peer's.
 *
 *     mapper (opens the line)                     owner of the arena
 *        Hello (channel 2) ──────────────────────────►
 *        ◄──────────────────────── Hello; Arena + descriptor, or the reason why not
 *        (maps it) ArenaMapped ──────────────────────►     from now on Pushes over the control channel may carry references
 *        Release (tokens) ───────────────────────────►     they go back
 *        ◄──────────────────────── Settle (up to)          the other channels have broken: what has arrived?
 *        Held (tokens up to) ────────────────────────►     all others go back
 *
 * Each direction has a line of its own, so each end may refuse. The line is a channel apart from
 * control and bulk because it lives as long as both processes: a step that fails, or a
 * connection that is given up, frees nothing that the peer may still look at, and the kernel
 * closes the line exactly when nobody looks any more. A line that breaks while in use means that
 * the peer is lost. A reference never reaches a map it is not meant for: when a line or a
 * channel breaks all channels to the peer go, and what is under way in them is not delivered.
 *
 * Loop thread, but for peer_shm_give and peer_shm_take_back. */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_SHM_H
#define MILLRACE_WORKER_EXCHANGE_PEER_SHM_H

#include <pthread.h>

#include "common/base/list.h"
#include "worker/exchange/transport.h"
#include "rpc/wire/messages.h"

struct shm_ledger;
struct shm_connection;

struct peer_shm {
    const char *task;        /* the peer's name; borrowed */
    struct shm_arena *arena; /* this task's; NULL: there is none */
    /* that the peer may keep alive in it, and about what stays mapped of the peer's after use;
     * 0: any number */
    int64_t max_kept_bytes;
    struct list connections;        /* all that are open */
    struct shm_connection *to_peer; /* the one that we opened: what comes from the peer's arena */
    struct shm_connection *to_us;   /* the one that the peer opened */
    struct str why_not_from, why_not_to;

    pthread_mutex_t lock;
    /* of to_us, once mapped, or NULL; guarded by lock, changed on the loop thread */
    struct shm_ledger *ledger;
};

void peer_shm_init(struct peer_shm *shm, const char *task);
void peer_shm_fini(struct peer_shm *shm); /* its lines have closed */

/* Takes over a channel of kind CHANNEL_ARENA: one that was opened to the peer's arena, or one
 * that the peer has opened (greeted). */
void peer_shm_add_connection(struct peer_shm *shm, struct transport_channel *channel_take,
                             bool is_to_peer);
bool peer_shm_has_connection_to_peer(const struct peer_shm *shm);
struct status *peer_shm_on_message(struct peer_shm *shm, struct transport_channel *channel,
                                   struct wire_message *message) MUST_USE;
/* True when references went over it: the peer is lost. `is_stopping`: what the peer may still
 * look at is never freed. */
bool peer_shm_on_closed(struct peer_shm *shm, struct transport_channel *channel, bool is_stopping);
/* The other channels have broken. */
void peer_shm_settle(struct peer_shm *shm);
/* The peer is another process now: its old lines end by themselves. */
void peer_shm_forget(struct peer_shm *shm);
void peer_shm_close(struct peer_shm *shm, struct status *why);

/* A reference to the value for the peer, where it lies in the arena and the peer has mapped it.
 * Any thread. */
bool peer_shm_give(struct peer_shm *shm, const struct tensor *value, struct arena_reference *ret);
/* it was not sent. Any thread. */
void peer_shm_take_back(struct peer_shm *shm, const struct arena_reference *reference);
/* The memory that a reference from the peer names; *ret stays NULL where it came too late. */
struct status *peer_shm_take(struct peer_shm *shm, const struct arena_reference *reference,
                             uint64_t size_bytes, struct buffer **ret) MUST_USE;

/* Are references possible in some direction? */
bool peer_shm_is_used(const struct peer_shm *shm);
void peer_shm_describe(struct peer_shm *shm, struct str *out); /* a JSON object */

#endif
