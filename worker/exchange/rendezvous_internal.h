/* The rendezvous' parts: rendezvous.c (the task's table of steps), rendezvous_step.c (one step's
 * table of keys, where ends meet), rendezvous_wire.c (push, announce, grant and their credit),
 * rendezvous_pregrant.c (pre-grants).
 *
 * A key has at most one slot at the receiver, and one at the sender for each receiving task. The
 * states of a slot; it is freed when its value has been handed on, and when its step ends:
 *
 *   (new)       -> WAITING           a Recv starts, and nothing is known of its value
 *   (new)       -> VALUE             a value comes before its Recv
 *   (new)       -> ANNOUNCED         an announcement comes before its Recv
 *   (new)       -> OFFERED           sender: a value is announced and waits for its grant
 *   (new)       -> PENDING_PREGRANT  sender: a pre-grant comes before its value
 *   WAITING     -> ANNOUNCED         the announcement comes
 *   WAITING     -> GRANTED           pre-granted, by a Push
 *   WAITING     -> PREGRANTED        pre-granted, by an RDMA write
 *   ANNOUNCED   -> GRANTED           there is credit for it
 *   GRANTED     -> VALUE             it comes before its Recv, without a payload or by RDMA
 *   GRANTED     -> ANNOUNCED         a pre-grant: another value than the expected is announced
 *   GRANTED     -> ARRIVING          its payload begins to fill the memory
 *   GRANTED     -> DONE              a pre-grant: the value is handed on, its announcement may come
 *   ARRIVING    -> VALUE             it comes before its Recv
 *   ARRIVING    -> DONE              as from GRANTED
 *   PREGRANTED  -> WAITING           the remote slot is declined, and nothing is announced
 *   PREGRANTED  -> ANNOUNCED         the same for what has been announced meanwhile
 *   PREGRANTED  -> GRANTED           the RDMA connection has ended: it may be pushed instead
 *   PREGRANTED  -> DONE              as from GRANTED
 *
 * A grant is good for one message, so only the message that has begun to fill the memory may go
 * on filling it. DONE stays until the step's end: an announcement may come later than the value
 * that it is about, since the pre-grant met it on its way and they take different connections.
 *
 * Locks: table->lock and a step's lock are never held together. No callback runs under either. */
#ifndef MILLRACE_WORKER_EXCHANGE_RENDEZVOUS_INTERNAL_H
#define MILLRACE_WORKER_EXCHANGE_RENDEZVOUS_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/state_machine.h"
#include "rpc/wire/messages.h"
#include "worker/exchange/peer.h"
#include "worker/exchange/rendezvous.h"
#include "worker/exchange/step_ids.h"

/* In the order of the table in rendezvous_step.c. The sender's states are the last. */
enum slot_state {
    SLOT_WAITING,
    SLOT_VALUE,
    SLOT_ANNOUNCED,
    SLOT_GRANTED,
    SLOT_ARRIVING,
    SLOT_PREGRANTED,
    SLOT_DONE,
    SLOT_OFFERED,
    SLOT_PENDING_PREGRANT,
    SLOT_N_STATES,
};
extern const struct state_machine slot_machine;

struct slot {
    union {                                /* by state: */
        struct tensor value;               /* VALUE; OFFERED if is_plain */
        struct buffer *proto;              /* OFFERED if not is_plain: the TensorProto */
        struct buffer *announced;          /* ANNOUNCED, and PREGRANTED if is_announced: the meta */
        struct buffer *memory;             /* GRANTED, ARRIVING: where the value comes to */
        struct pending_pregrant *pregrant; /* PENDING_PREGRANT */
    };
    struct slot *next; /* of its bucket, or of the free ones */
    uint64_t frame_iter;
    uint32_t edge;
    uint8_t state;     /* changed by slot_add and slot_move only */
    uint8_t dtype;     /* that the Recv wants, once it waits */
    bool is_plain;     /* OFFERED: the value is a tensor of a plain dtype */
    bool is_announced; /* of a pre-grant: the announcement has come */
    bool is_pushed;    /* VALUE: it came without a grant, and counts in the sender's credit */
    bool is_unwanted;  /* granted before a Recv waited: counts in step_peer.unwanted_bytes */
    /* who waits: for the value, or for the grant of what is offered; NULL: nobody does yet */
    struct rendezvous_recv *recv;
    struct peer *peer; /* the task at the other end, in all states that need one */
    size_t size_bytes; /* of the payload, in all states but WAITING, DONE and PENDING_PREGRANT */
    /* not NULL: pre-granted, and what is expected; its credit is that of pre-grants */
    const struct plan_channel *channel;
};
_Static_assert(sizeof(struct slot) == 128, "two cache lines");

/* What a step has exchanged with one peer; guarded by the step's lock. */
struct step_peer {
    struct peer *peer;
    bool is_dirty;          /* something is queued for it: rendezvous_flush */
    bool is_noted;          /* the peer has been told of the step's first push (peer_queue_first) */
    int64_t pushed_bytes;   /* pushed without a grant, and not handed on there yet */
    int64_t taken_bytes;    /* came without a grant and handed on, since the last Credit to it */
    int64_t unwanted_bytes; /* granted before any Recv waited, and not handed on yet */
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
    struct step_peer *peers; /* few: searched one by one */
    uint32_t n_peers, peers_capacity;
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
    /* An Announce's or a Grant's meta, which are kept: enough for 254 dimensions of any size. */
    RENDEZVOUS_MAX_META_BYTES = 4096,
    /* Small values that a step may have pushed to a peer which have not been handed on there:
     * beyond, they are announced as large ones are. A Credit is sent for each half. */
    RENDEZVOUS_STEP_CREDIT_BYTES = 8 << 20,
    /* Announced values of a step and peer that no Recv waits for: as much is granted. */
    RENDEZVOUS_UNWANTED_MAX_BYTES = 64 << 20,
    RENDEZVOUS_VALUE_BYTES = 256, /* what a value costs in these besides its payload */
    SLOTS_KEPT = 64,              /* per recycled rendezvous */
    STEPS_KEPT = 64,
};

/* ---- rendezvous.c ---- */
/* REFUSED: more has come for steps that nobody has opened than may be kept. */
enum find_result { FOUND, FIND_ENDED, FIND_REFUSED };
/* The step's rendezvous for an arrival, made when new; with a reference. */
enum find_result rendezvous_find(struct rendezvous_table *table, uint64_t step_id, bool make,
                                 struct rendezvous **ret);
/* Values of the step are lost: its waits, now and later, end with `why` (shared), also if its
 * RunGraph has not come yet. */
void rendezvous_lose_step(struct rendezvous_table *table, uint64_t step_id, struct status *why);
void rendezvous_add_pending(struct rendezvous *rendezvous); /* its lock is not held */
/* room may have come: those in line try again */
void rendezvous_next_turns(struct rendezvous_table *table);
void rendezvous_tell_late(struct rendezvous_table *table, struct rendezvous_recv *recv,
                          struct status *why_take);

/* ---- rendezvous_step.c; the step's lock is held ---- */
static inline bool slot_has_credit(const struct slot *slot) {
    return state_is_in(slot->state, STATE_SET(SLOT_GRANTED) | STATE_SET(SLOT_ARRIVING) |
                                        STATE_SET(SLOT_PREGRANTED));
}
static inline bool slot_is_sent(const struct slot *slot) { return slot->state >= SLOT_OFFERED; }
/* The one way in which a slot's state changes: what belongs to the state has been set before. */
static inline void slot_move(struct slot *slot, enum slot_state to) {
    state_machine_move(&slot_machine, &slot->state, to, slot);
}
/* the receiver's */
struct slot *slot_find(struct rendezvous *rendezvous, uint32_t edge, uint64_t frame_iter);
struct slot *slot_find_sent(struct rendezvous *rendezvous, const struct peer *peer, uint32_t edge,
                            uint64_t frame_iter);
/* A slot without a state, in the table: slot_start follows once its fields are set. */
struct slot *slot_add(struct rendezvous *rendezvous, uint32_t edge, uint64_t frame_iter);
static inline void slot_start(struct slot *slot, enum slot_state first) {
    state_machine_start(&slot_machine, &slot->state, first, slot);
}
/* The record about a peer, made when new; valid until the next call. */
struct step_peer *rendezvous_peer(struct rendezvous *rendezvous, struct peer *peer);
/* Either a value, or the kept bytes of an announcement or of a grant ahead. */
void rendezvous_count_early(struct rendezvous *rendezvous, const struct tensor *value,
                            size_t kept_bytes);
/* its contents have been taken */
void slot_remove(struct rendezvous *rendezvous, struct slot *slot);
/* Where a value comes from: all zero for this task. */
struct value_source {
    struct peer *peer;
    size_t size_bytes; /* of its payload or inline_proto; 0 for a reference */
    bool is_small;     /* a payload or reference that needs no grant */
};
/* Lock not held: a value for a key, from here or from the wire. Takes *value. Errors: INTERNAL,
 * the key has a value already. */
struct status *rendezvous_deliver(struct rendezvous *rendezvous, uint32_t edge, uint64_t frame_iter,
                                  struct value_source source, struct tensor *value) MUST_USE;
/* Lock not held: empties the step and gives its waits `why`. */
void rendezvous_clear(struct rendezvous *rendezvous, struct status *why, bool is_end);

/* ---- rendezvous_wire.c ---- */
struct send_options {
    struct rendezvous_recv *offer; /* told once the value has been granted, or NULL */
    bool only_push; /* a value that would have to be announced is left alone, and not sent */
};
/* A Send to another task: pushes the value if it is small, else offers it by an announcement.
 * rendezvous_send_or_offer says the rest. */
struct status *rendezvous_push_or_announce(struct rendezvous *rendezvous, struct peer *peer,
                                           const struct plan_channel *channel, uint64_t frame_iter,
                                           struct tensor *value, const struct send_options *options,
                                           bool *ret_is_sent) MUST_USE;
/* Grants all announced values that there is credit for. Lock not held. */
void rendezvous_try_grants(struct rendezvous *rendezvous);
/* The slot's bytes are no longer in flight. Any lock may be held; rendezvous_next_turns has to
 * follow once none is. */
void rendezvous_release_credit(struct rendezvous *rendezvous, const struct slot *slot);
bool rendezvous_reserve(_Atomic int64_t *in_flight_bytes, int64_t size, int64_t max);
void rendezvous_unreserve(_Atomic int64_t *in_flight_bytes, int64_t size);
/* Step's lock held: queues a message about an edge for the peer. False: there is no connection. */
bool rendezvous_queue_edge(struct rendezvous *rendezvous, struct peer *peer, enum wire_type type,
                           const struct str *meta, const struct tensor *payload);
/* A copy of a message's meta. One reference for the caller. */
struct buffer *rendezvous_keep_meta(struct span meta);
/* Step's lock held: sets what an announcement says of the slot; slot_start or slot_move to
 * ANNOUNCED follows, and rendezvous_try_grants once the lock is not held. */
void rendezvous_set_announced(struct rendezvous *rendezvous, struct slot *slot, struct peer *peer,
                              size_t size_bytes, struct buffer *meta_take);
/* Fails a step that nobody has opened, since what came for it cannot be kept. */
void rendezvous_refuse_early(struct rendezvous_table *table, const struct peer *peer,
                             uint64_t step_id);
extern const struct peer_receiver rendezvous_receiver; /* arg: the table */

/* ---- rendezvous_pregrant.c ---- */
/* A pre-grant that waits for its value. It is kept decoded. */
struct pending_pregrant {
    struct peer_pregrant pregrant;
    enum dtype dtype; /* what the value has to be */
    int rank;
    int64_t dims[];
};
/* The peer that a pre-grant for the channel's value may be sent to, and in which way; NULL:
 * nobody. */
struct peer *pregrant_peer(struct rendezvous *rendezvous, const struct plan_channel *channel,
                           enum peer_pregrant_way *ret_way);
/* Step's lock held: pre-grants what a new Recv, whose slot is WAITING, waits for; does nothing
 * where there is no credit for it. */
void pregrant_value(struct rendezvous *rendezvous, struct slot *slot,
                    const struct plan_channel *channel, struct peer *peer,
                    enum peer_pregrant_way way);
void pregrant_release_credit(struct rendezvous *rendezvous, const struct slot *slot);
/* Step's lock held: an announcement for a slot that was pre-granted. *ret_tries_grants:
 * rendezvous_try_grants has to follow. Errors: INTERNAL, it is announced twice. */
struct status *pregrant_announced(struct rendezvous *rendezvous, struct slot *slot,
                                  const struct edge_message *edge, struct span meta,
                                  bool *ret_tries_grants) MUST_USE;
/* The receiver's on_pregrant_withdrawn (worker/exchange/peer.h). */
void pregrant_withdrawn(void *arg, struct peer *peer, uint64_t step, uint32_t edge,
                        uint64_t frame_iter, struct buffer *buffer);
/* At the sender: a pre-grant has come. */
struct status *pregrant_on_grant(struct rendezvous_table *table, struct peer *peer,
                                 const struct wire_message *message,
                                 const struct edge_message *edge) MUST_USE;
/* Step's lock held: takes the peer's pre-grant that is pending for a key; NULL: there is none. */
struct pending_pregrant *pregrant_take_pending(struct rendezvous *rendezvous,
                                               const struct peer *peer, uint32_t edge,
                                               uint64_t frame_iter);
/* Lock not held: the value is not sent by it. Frees it. Accepts NULL. */
void pregrant_drop_pending(struct peer *peer, struct pending_pregrant *pending_take);
/* Lock not held: the value is sent by it. Takes both. */
void pregrant_send_pending(struct peer *peer, struct pending_pregrant *pending_take,
                           struct peer_value *value_take);
bool pregrant_fits(const struct pending_pregrant *pending, const struct tensor *value);

#endif
