/* The rendezvous' parts: rendezvous.c (the task's table of steps), rendezvous_step.c (one step's
 * table of keys, where ends meet), rendezvous_wire.c (push, announce, grant; the budget of bytes
 * in flight), rendezvous_pregrant.c (grants ahead).
 *
 * A key's slot, at the receiver:                              at the sender:
 *
 *     (none) ──Recv──► WAITING ──value──► given, gone             (none) ──large value──► OFFERED ──grant──► pushed, gone
 *        │                │
 *        ├──value──► VALUE ──Recv──► given, gone
 *        │                │
 *        └─announce─► ANNOUNCED ──room──► GRANTED ──push begins──► ARRIVING ──push──► as a value
 *                                                                            (a Recv may come at
 * any time and waits in the slot) A grant is good for one message: what has begun to fill the
 * buffer is the only one that may.
 *
 * With a grant ahead (slot->channel says so):                (none) ──grant ahead──► HELD ──value that fits──► sent, gone
 *                                                              OFFERED ──grant ahead, it fits──► sent, gone
 *   Recv ──► PLACED ──value──► given, DONE
 *     │        ├ declined, or not told ──► WAITING, as if nothing had been granted; ANNOUNCED, if that has been
 *     │        │ the line has ended, or the sender cannot write
 *     │        ▼                   announced, as expected: stays, for the grant ahead will meet it; where that may be lost,
 *     └────► GRANTED ──► as above  a plain one follows; announced, of another shape: ANNOUNCED, the grant ahead forgotten
 *
 * DONE stays until the step's end: an Announce may come later than the value that it is about,
 * since the grant ahead met it on its way and they take different connections.
 *
 * The two ends' slots have keys of their own, and the sender's one for each peer: what a peer
 * grants, for whatever edge, is in nobody else's way.
 *
 * Locks: table->lock and a step's lock are never held together; no callback runs under either. */
#ifndef MILLRACE_WORKER_EXCHANGE_RENDEZVOUS_INTERNAL_H
#define MILLRACE_WORKER_EXCHANGE_RENDEZVOUS_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/list.h"
#include "common/base/map.h"
#include "rpc/wire/messages.h"
#include "worker/exchange/peer.h"
#include "worker/exchange/rendezvous.h"
#include "worker/exchange/step_ids.h"

enum slot_kind {
    SLOT_WAITING,
    SLOT_VALUE,
    SLOT_ANNOUNCED,
    SLOT_GRANTED,
    SLOT_ARRIVING,
    SLOT_PREGRANTED,
    SLOT_DONE,
    SLOT_OFFERED,
    SLOT_PENDING_PREGRANT
};

struct slot {
    struct tensor value; /* VALUE; OFFERED: plain dtypes */
    struct slot *next;   /* of its bucket, or of the free ones */
    uint64_t frame_iter;
    uint32_t edge;
    uint8_t kind;
    uint8_t dtype;                /* that the Recv wants, once it waits */
    bool is_announced;            /* of a grant ahead: the announcement has come */
    struct rendezvous_recv *recv; /* who waits, or NULL */
    /* ANNOUNCED, GRANTED, ARRIVING, PLACED: who sends; OFFERED, HELD: to whom */
    struct peer *peer;
    size_t size_bytes; /* the same, but for HELD: of the payload */
    /* ANNOUNCED: the Announce's meta; GRANTED, ARRIVING: where it lands; PLACED: the Announce's
     * meta, once it has come; OFFERED: an object dtype's TensorProto; HELD: struct pending_pregrant. */
    struct buffer *buffer;
    /* granted ahead: what is expected; its room is that of grants ahead */
    const struct plan_channel *channel;
};

struct dirty_peers {
    struct peer **items;
    uint32_t n, capacity;
};

struct session_credit {
    _Atomic uint32_t n_refs;
    _Atomic int64_t in_flight_bytes, pregrant_bytes;
};

struct rendezvous {
    _Atomic uint32_t n_refs;
    struct rendezvous_table *table;
    uint64_t step_id;
    struct list link; /* table->orphans while nobody has opened it; guarded by table->lock */
    int64_t since_ns; /* orphans: when the first arrival came; guarded by table->lock */
    struct rendezvous *next_free;

    pthread_mutex_t lock; /* guards what follows */
    bool is_opened;       /* its RunGraph has come */
    struct session_credit
        *credit; /* its session's, once it is opened; may be NULL; one reference */
    bool is_ended;
    struct status *why; /* aborted with */
    struct slot **buckets;
    uint32_t n_buckets, n_slots; /* n_buckets: a power of two, or 0 */
    struct slot *free_slots;
    uint32_t n_free_slots;
    uint32_t n_announced, n_granted;
    uint32_t n_pending_pregrants; /* grants ahead, for what is to be sent from here */
    bool has_dropped_pregrant;    /* some of them: announcements say so */
    size_t early_bytes;
    struct dirty_peers dirty;
    struct list pending_link; /* guarded by table->lock */
};

/* A wait that began after its step's abort: told from the loop. */
struct late_recv {
    struct late_recv *next;
    struct rendezvous_recv *recv;
    struct status *why;
};

struct rendezvous_table {
    struct peer_table *peers;
    struct allocator *allocator;
    const char *task;                /* this one's name, or NULL: everything is local */
    _Atomic int64_t in_flight_bytes; /* granted, not yet here */
    int64_t max_in_flight_bytes;
    _Atomic int64_t pregrant_bytes; /* granted ahead, not yet here */
    /* who has the next room; set under its lock, taken back before it is emptied */
    _Atomic(struct rendezvous *) claim;
    _Atomic int64_t early_bytes; /* values of steps that nobody has opened */

    pthread_mutex_t lock; /* guards what follows */
    struct u64map steps;  /* id → struct rendezvous, one reference each */
    struct step_ids ended;
    struct list orphans; /* oldest first */
    struct list pending; /* rendezvous.pending_link, one reference each, first come first served */
    struct rendezvous *free_steps;
    uint32_t n_free_steps;
    struct late_recv *late;
    struct loop_task late_task;
    bool is_late_posted, is_freed;
    uint32_t n_refs; /* the owner's, each live rendezvous, the posted task */
};

enum {
    RENDEZVOUS_EARLY_MAX_BYTES = 256 << 20, /* values that came before their RunGraph */
    RENDEZVOUS_EARLY_MAX_STEPS = 65536,
    RENDEZVOUS_ORPHAN_SECONDS = 120, /* how long they wait for it */
    /* Of the task's room: one in so many. */
    RENDEZVOUS_PEER_SHARE = 4,
    RENDEZVOUS_SESSION_SHARE = 2,
    RENDEZVOUS_PREGRANT_SHARE = 2,      /* besides: what may be granted ahead, */
    RENDEZVOUS_PREGRANT_PART_SHARE = 4, /* to a peer, and to a session */
    /* An Announce's or a Grant's meta: room for 254 dimensions, whose product is in an int64,
     * and all else. They are kept. */
    RENDEZVOUS_MAX_META_BYTES = 1024,
    SLOTS_KEPT = 64, /* per recycled rendezvous */
    STEPS_KEPT = 64,
};

/* ---- rendezvous.c ---- */
enum find_result { FOUND, FIND_ENDED, FIND_REFUSED };
/* The step's rendezvous for an arrival, made when new; with a reference. */
enum find_result rendezvous_find(struct rendezvous_table *table, uint64_t step_id, bool make,
                                 struct rendezvous **ret);
void rendezvous_add_pending(struct rendezvous *rendezvous); /* its lock is not held */
/* room may have come: those in line try again */
void rendezvous_next_turns(struct rendezvous_table *table);
void rendezvous_tell_late(struct rendezvous_table *table, struct rendezvous_recv *recv,
                          struct status *why_take);

/* ---- rendezvous_step.c; the step's lock is held ---- */
static inline bool slot_has_credit(const struct slot *slot) {
    return slot->kind == SLOT_GRANTED || slot->kind == SLOT_ARRIVING ||
           slot->kind == SLOT_PREGRANTED;
}
static inline bool slot_is_sent(const struct slot *slot) { return slot->kind >= SLOT_OFFERED; }
/* the receiver's */
struct slot *slot_find(struct rendezvous *rendezvous, uint32_t edge, uint64_t frame_iter);
struct slot *slot_find_sent(struct rendezvous *rendezvous, const struct peer *peer, uint32_t edge,
                            uint64_t frame_iter);
struct slot *slot_add(struct rendezvous *rendezvous, uint32_t edge, uint64_t frame_iter,
                      enum slot_kind kind);
/* Either a value, or the kept bytes of an announcement or of a grant ahead. */
void rendezvous_count_early(struct rendezvous *rendezvous, const struct tensor *value,
                            size_t kept_bytes);
/* its contents have been taken */
void slot_remove(struct rendezvous *rendezvous, struct slot *slot);
/* Lock not held: a value for a key, from here or from the wire. Takes *value. Errors: INTERNAL,
 * the key has a value already. */
struct status *rendezvous_deliver(struct rendezvous *rendezvous, uint32_t edge, uint64_t frame_iter,
                                  struct tensor *value) MUST_USE;
/* Lock not held: empties the step and gives its waits `why`. */
void rendezvous_clear(struct rendezvous *rendezvous, struct status *why, bool is_end);

/* ---- rendezvous_wire.c ---- */
struct status *rendezvous_push_or_announce(struct rendezvous *rendezvous, struct peer *peer,
                                           const struct plan_channel *channel, uint64_t frame_iter,
                                           struct tensor *value, struct rendezvous_recv *offer,
                                           bool *ret_is_offered);
/* Grants what there is room for. Lock not held. */
void rendezvous_try_grants(struct rendezvous *rendezvous);
/* The slot's bytes are no longer in flight. Any lock may be held; rendezvous_next_turns has to
 * follow without. */
void rendezvous_release_credit(struct rendezvous *rendezvous, const struct slot *slot);
bool rendezvous_reserve(_Atomic int64_t *in_flight_bytes, int64_t size, int64_t max);
void rendezvous_unreserve(_Atomic int64_t *in_flight_bytes, int64_t size);
/* Step's lock held: queues a message about an edge for the peer. False: there is no connection. */
bool rendezvous_queue_edge(struct rendezvous *rendezvous, struct peer *peer, enum wire_type type,
                           const struct str *meta, const struct tensor *payload);
struct buffer *rendezvous_keep_meta(struct span meta); /* a message's, to be read again later */
void rendezvous_announced(struct rendezvous *rendezvous, struct slot *slot, struct peer *peer,
                          size_t size_bytes,
                          /* step's lock held: rendezvous_try_grants has to follow without */
                          struct buffer *meta_take);
extern const struct peer_receiver rendezvous_receiver; /* arg: the table */

/* ---- rendezvous_pregrant.c ---- */
struct pending_pregrant {
    struct peer_pregrant pregrant;
    size_t meta_len;
    char meta[]; /* of the grant */
};
/* Whom the channel's value may be granted to before it is announced; NULL: nobody. */
struct peer *pregrant_peer(struct rendezvous *rendezvous, const struct plan_channel *channel,
                           enum peer_pregrant_way *ret_way);
/* Step's lock held: grants what a new Recv waits for, if there is room. */
void pregrant_value(struct rendezvous *rendezvous, struct slot *slot,
                    const struct plan_channel *channel, struct peer *peer,
                    enum peer_pregrant_way way);
void pregrant_release_credit(struct rendezvous *rendezvous, const struct slot *slot);
/* Step's lock held: an announcement for a slot that was granted ahead. True:
 * rendezvous_try_grants has to follow. */
struct status *pregrant_announced(struct rendezvous *rendezvous, struct slot *slot,
                                  const struct edge_message *edge, struct span meta,
                                  bool *ret_tries_grants) MUST_USE;
void pregrant_withdrawn(void *arg, struct peer *peer, uint64_t step, uint32_t edge,
                        uint64_t frame_iter, struct buffer *buffer);
/* The sender's: a Grant ahead has come. */
struct status *pregrant_on_grant(struct rendezvous_table *table, struct peer *peer,
                                 const struct wire_message *message,
                                 const struct edge_message *edge) MUST_USE;
/* Step's lock held: takes the grant that is held for a key; NULL: none is, or another task's. */
struct buffer *pregrant_take_pending(struct rendezvous *rendezvous, const struct peer *peer,
                                     uint32_t edge, uint64_t frame_iter);
/* Lock not held: the value does not go by it. Takes what pregrant_take_pending gave, or a slot's that
 * is HELD. Accepts NULL. */
void pregrant_drop_pending(struct peer *peer, struct buffer *held_take);
/* Lock not held: the value goes by it; takes both. */
void pregrant_send_pending(struct peer *peer, struct buffer *held_take,
                           struct peer_value *value_take);
bool pregrant_fits(const struct buffer *held, const struct tensor *value);

#endif
