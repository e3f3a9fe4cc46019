/* Exchanges values by reference between two tasks of one host: keeps what a peer holds in this
 * task's arena, and what this task holds in the peer's.
 *
 *     mapper (connects)                           owner of the arena
 *        Hello (channel 2) ──────────────────────────►
 *        ◄──────────────── Hello; Arena + descriptor, or the reason why not
 *        (maps it) ArenaMapped ──────────────────────►  from now on Pushes may carry references
 *        Release (tokens) ───────────────────────────►  the owner drops its references
 *        ◄──────────────────────── Settle (up to)       the other channels have broken: which
 *                                                       references have arrived?
 *        Held (tokens up to) ────────────────────────►  the owner drops all others
 *
 * Each direction has its own connection, so each end may refuse. The connection is separate from
 * the control and bulk channels because it lives as long as both processes. A failed step, or
 * another channel that breaks, frees nothing that the peer may still read, and the kernel closes
 * this connection exactly when nobody can read any more. If it breaks while it is used, the peer
 * is lost. A reference never meets the mapping of another process: when this connection or a
 * channel breaks, all channels to the peer are closed, and what is in them is not delivered.
 *
 * Threads: the loop's, except for peer_shm_give and peer_shm_take_back. */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_SHM_H
#define MILLRACE_WORKER_EXCHANGE_PEER_SHM_H

#include <pthread.h>

#include "common/base/list.h"
#include "worker/exchange/transport.h"
#include "rpc/wire/messages.h"

struct shm_ledger;
struct shm_connection;

/* Why a large value goes over the socket. */
enum shm_refusal {
    SHM_OUTSIDE_ARENA, /* it lies in other memory, as a GPU's or a file's */
    SHM_NOT_MAPPED,    /* the peer has not mapped the arena, or not yet */
    SHM_KEPT_TOO_MUCH, /* the peer holds as much of the arena as it may */
    SHM_N_REFUSALS
};

struct peer_shm {
    const char *task;        /* the peer's name; borrowed */
    struct shm_arena *arena; /* this task's; NULL: there is none */
    /* how much the peer may keep alive in it, and about how much of the peer's arena stays mapped
     * after use; 0: no limit */
    int64_t max_kept_bytes;
    struct list connections;        /* all that are open */
    struct shm_connection *to_peer; /* opened by this task, to the peer's arena */
    struct shm_connection *to_us;   /* opened by the peer, to this task's arena */
    struct str why_not_from, why_not_to;
    uint64_t ended_sent_bytes, ended_received_bytes; /* of connections that have ended */
    _Atomic bool is_used; /* what peer_shm_is_used says; set on the loop thread */
    /* the bytes of values that peer_shm_give has refused, by the reason */
    _Atomic uint64_t refused_bytes[SHM_N_REFUSALS];

    pthread_mutex_t lock;
    /* of to_us, once the peer has mapped the arena, or NULL; guarded by lock, changed on the loop
     * thread */
    struct shm_ledger *ledger;
};

void peer_shm_init(struct peer_shm *shm, const char *task);
void peer_shm_fini(struct peer_shm *shm); /* its connections have closed */

/* Takes over a channel of kind CHANNEL_ARENA: one that was opened to the peer's arena, or one
 * that the peer has opened (greeted). */
void peer_shm_add_connection(struct peer_shm *shm, struct transport_channel *channel_take,
                             bool is_to_peer);
bool peer_shm_has_connection_to_peer(const struct peer_shm *shm);
struct status *peer_shm_on_message(struct peer_shm *shm, struct transport_channel *channel,
                                   struct wire_message *message) MUST_USE;
/* Returns true when references were possible over it: then the peer is lost. `is_stopping`: this
 * task ends, and never frees what the peer may still read. */
bool peer_shm_on_closed(struct peer_shm *shm, struct transport_channel *channel, bool is_stopping);
/* The other channels have broken: asks the peer what it holds. */
void peer_shm_settle(struct peer_shm *shm);
/* The peer is another process now. Its old connections end by themselves. */
void peer_shm_forget(struct peer_shm *shm);
void peer_shm_close(struct peer_shm *shm, struct status *why);

/* As peer_give, peer_take_back and peer_take in peer.h. The first two: any thread. */
bool peer_shm_give(struct peer_shm *shm, const struct tensor *value, struct arena_reference *ret);
void peer_shm_take_back(struct peer_shm *shm, const struct arena_reference *reference);
struct status *peer_shm_take(struct peer_shm *shm, const struct arena_reference *reference,
                             uint64_t size_bytes, struct buffer **ret) MUST_USE;

/* Are references possible in some direction? Any thread. */
bool peer_shm_is_used(const struct peer_shm *shm);
void peer_shm_describe(struct peer_shm *shm, struct str *out); /* a JSON object */
/* The bytes of all values that were exchanged by reference. */
void peer_shm_moved(const struct peer_shm *shm, uint64_t *ret_sent_bytes,
                    uint64_t *ret_received_bytes);

#endif
