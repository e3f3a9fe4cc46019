/* What the files of the rendezvous share: rendezvous.c (the task's table of steps),
 * rendezvous_step.c (the keys of one step, where ends meet), rendezvous_wire.c (push, announce,
 * grant and their credit), rendezvous_growing.c (values that are handed on while they arrive),
 * rendezvous_pregrant.c (pre-grants).
 *
 * A key has at most one slot at the receiver, and at the sender one for each receiving task. A slot
 * is freed when its value has been handed on, or when its step ends.
 *
 * The states of a slot:
 *
 *   (new)       -> WAITING           a Recv starts, and nothing is known of its value
 *   (new)       -> VALUE             a value arrives before its Recv
 *   (new)       -> ANNOUNCED         an announcement arrives before its Recv
 *   (new)       -> OFFERED           sender: a value is announced and waits for its grant
 *   (new)       -> PENDING_PREGRANT  sender: a pre-grant arrives before its value exists
 *   WAITING     -> ANNOUNCED         the announcement arrives
 *   WAITING     -> GRANTED           pre-granted: the value may be pushed
 *   WAITING     -> PREGRANTED        pre-granted: the value may be written by RDMA
 *   ANNOUNCED   -> GRANTED           there is credit for the value
 *   GRANTED     -> VALUE             it arrives before its Recv, without a payload or by RDMA
 *   GRANTED     -> ANNOUNCED         a pre-grant: another value than the expected is announced
 *   GRANTED     -> ARRIVING          its payload begins to fill the memory
 *   GRANTED     -> DONE              a pre-grant: handed on, but its announcement may still arrive
 *   ARRIVING    -> VALUE             the value has arrived before its Recv
 *   ARRIVING    -> DONE              as from GRANTED
 *   ARRIVING    -> GROWING           handed on to copies to devices while it arrives
 *   PREGRANTED  -> WAITING           the remote slot is declined, and nothing is announced
 *   PREGRANTED  -> ANNOUNCED         the remote slot is declined, and the value was announced
 *   PREGRANTED  -> GRANTED           the RDMA connection has ended: it may be pushed instead
 *   PREGRANTED  -> DONE              as from GRANTED
 *   GROWING     -> DONE              as from GRANTED, once it is whole
 *
 * A grant is valid for one message. So only the message that has begun to fill the memory may
 * continue to fill it. DONE lasts until the end of the step: a value that was sent by a pre-grant
 * may arrive before its own announcement, because the two use different connections.
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
    SLOT_GROWING,
    SLOT_OFFERED,
    SLOT_PENDING_PREGRANT,
    SLOT_N_STATES,
};
extern const struct state_machine slot_machine;

struct slot {
    union {                   /* by state: */
        struct tensor value;  /* VALUE; OFFERED if is_plain */
        struct buffer *proto; /* OFFERED if not is_plain: the TensorProto */
        struct {
            struct buffer *announced; /* ANNOUNCED, and PREGRANTED if is_announced: the meta */
            struct list in_announced; /* ANNOUNCED: rendezvous->announced */
        };
        struct {
            struct buffer *memory; /* GRANTED, ARRIVING, GROWING: the memory for the value */
            const struct plan_channel *grows; /* GROWING: the Recv's, whose memory is growing */
        };
        struct pending_pregrant *pregrant; /* PENDING_PREGRANT */
    };
    struct slot *next; /* of its bucket, or of the free ones */
    uint64_t frame_iter;
    uint32_t edge;
    uint8_t state;     /* changed by slot_add and slot_move only */
    uint8_t dtype;     /* that the Recv expects, once it waits */
    bool is_plain;     /* OFFERED: the value is a tensor of a plain dtype */
    bool is_announced; /* of a pre-grant: the announcement has arrived */
    bool is_pushed;    /* VALUE: it came without a grant, and counts in the sender's credit */
    bool is_unwanted;  /* granted before a Recv waited: counts in step_peer.unwanted_bytes */
    /* the wait for the value, or for the grant of an offered value; NULL: there is none yet */
    struct rendezvous_recv *recv;
    struct peer *peer; /* the task at the other end, in all states that need one */
    size_t size_bytes; /* of the payload, in all states but WAITING, DONE and PENDING_PREGRANT */
    /* not NULL: the slot was pre-granted, with the credit for pre-grants; describes the value */
    const struct plan_channel *channel;
};
_Static_assert(sizeof(struct slot) == 128, "two cache lines");

/* What a step has exchanged with one peer; guarded by the step's lock. */
struct step_peer {
    struct peer *peer;
    bool is_dirty;          /* messages are queued for it, and rendezvous_flush has to write them */
    bool is_noted;          /* the step's first push to it was queued (peer_queue_first) */
    int64_t pushed_bytes;   /* pushed without a grant; no Recv has taken them there yet */
    int64_t taken_bytes;    /* received without a grant, and taken since the last Credit to it */
    int64_t unwanted_bytes; /* granted before a Recv waited for them, and not taken yet */
};

struct session_credit {
    _Atomic uint32_t n_refs;
    _Atomic int64_t in_flight_bytes, pregrant_bytes;
};

struct rendezvous {
    _Atomic uint32_t n_refs;
    struct rendezvous_table *table;
    uint64_t step_id;
    struct list link; /* table->orphans until it is opened; guarded by table->lock */
    int64_t since_ns; /* orphans: when the first message arrived; guarded by table->lock */
    struct rendezvous *next_free;

    pthread_mutex_t lock; /* guards what follows */
    bool is_opened;       /* its RunGraph has arrived */
    /* its session's, once it is opened; may be NULL; one reference */
    struct session_credit *credit;
    const struct plan_edges *late_edges; /* not granted before their Recvs start; NULL: none */
    bool is_ended;
    struct status *why; /* the status of an abort; NULL: not aborted */
    struct slot **buckets;
    uint32_t n_buckets, n_slots; /* n_buckets: a power of two, or 0 */
    struct slot *free_slots;
    uint32_t n_free_slots;
    struct list announced;           /* slot.in_announced, in the order of their arrival */
    uint32_t n_announced, n_granted; /* slots in these states */
    uint64_t n_considered;        /* announced slots that were looked at for a grant, for tests */
    uint32_t n_pending_pregrants; /* slots in PENDING_PREGRANT */
    bool has_dropped_pregrant;    /* a pre-grant could not be kept, so announcements say so */
    size_t early_bytes;           /* kept before its RunGraph; part of table->early_bytes */
    struct step_peer *peers;      /* few, so they are searched one by one */
    uint32_t n_peers, peers_capacity;
    struct list pending_link; /* in table->pending; guarded by table->lock */
};

/* A wait that began after the abort of its step. The loop calls its on_value. */
struct late_recv {
    struct late_recv *next;
    struct rendezvous_recv *recv;
    struct status *why;
};

struct rendezvous_table {
    struct peer_table *peers;
    struct allocator *allocator;
    struct pool *pool;               /* for much text; may be NULL */
    const char *task;                /* this task's name; NULL: there are no peers */
    _Atomic int64_t in_flight_bytes; /* granted and not arrived yet */
    int64_t max_in_flight_bytes;
    _Atomic int64_t pregrant_bytes; /* pre-granted and not arrived yet */
    /* The step that gets the next free credit, or NULL. Set under the step's lock, and reset before
     * the step is emptied. */
    _Atomic(struct rendezvous *) claim;
    _Atomic int64_t early_bytes; /* values that are kept for steps without a RunGraph */

    pthread_mutex_t lock; /* guards what follows */
    struct u64map steps;  /* id → struct rendezvous, one reference each */
    struct step_ids ended;
    struct list orphans; /* oldest first */
    struct list pending; /* steps that wait for credit, oldest first; one reference each */
    struct rendezvous *free_steps;
    uint32_t n_free_steps;
    struct late_recv *late;
    struct loop_task late_task;
    bool is_late_posted, is_freed;
    uint32_t n_refs; /* the owner's, each live rendezvous, the posted task */
};

enum {
    /* limits of what arrives before the RunGraph of its step */
    RENDEZVOUS_EARLY_MAX_BYTES = 256 << 20,
    RENDEZVOUS_EARLY_MAX_STEPS = 65536,
    RENDEZVOUS_ORPHAN_SECONDS = 120, /* how long it is kept */
    /* A peer may have 1/4 of the task's credit, and a session 1/2 of what a peer may have. */
    RENDEZVOUS_PEER_SHARE = 4,
    RENDEZVOUS_SESSION_SHARE = 2,
    /* Pre-grants have 1/2 of the task's credit in addition; a peer or a session may have 1/4 of
     * that. */
    RENDEZVOUS_PREGRANT_SHARE = 2,
    RENDEZVOUS_PREGRANT_PART_SHARE = 4,
    /* limit of the metas of announcements and grants, which are kept: enough for 254 dimensions of
     * any size */
    RENDEZVOUS_MAX_META_BYTES = 4096,
    /* How many bytes of small values a step may have pushed to a peer that no Recv has taken there.
     * Further values are announced, like large ones. A Credit is sent for each half of it. */
    RENDEZVOUS_STEP_CREDIT_BYTES = 8 << 20,
    /* How many bytes may be granted to a step and a peer before a Recv waits for them. */
    RENDEZVOUS_UNWANTED_MAX_BYTES = 64 << 20,
    RENDEZVOUS_VALUE_BYTES = 256, /* what each value counts in these in addition to its payload */
    SLOTS_KEPT = 64,              /* free slots in each recycled rendezvous */
    STEPS_KEPT = 64,              /* recycled rendezvous */
};

/* ---- rendezvous.c ---- */
/* REFUSED: the limits of what is kept for steps without a RunGraph are reached. */
enum find_result { FOUND, FIND_ENDED, FIND_REFUSED };
/* Finds the step's rendezvous for a message from a peer; with `make`, makes it if it does not
 * exist. The caller gets a reference. */
enum find_result rendezvous_find(struct rendezvous_table *table, uint64_t step_id, bool make,
                                 struct rendezvous **ret);
/* Values of the step are lost: its waits, now and later, end with `why` (shared), also if its
 * RunGraph has not arrived yet. */
void rendezvous_lose_step(struct rendezvous_table *table, uint64_t step_id, struct status *why);
/* Queues the step, which waits for credit. Its lock must not be held. */
void rendezvous_add_pending(struct rendezvous *rendezvous);
/* Credit was returned: the queued steps try again, in order. No lock may be held. */
void rendezvous_retry_pending(struct rendezvous_table *table);
/* Has on_value called from the loop, with `why_take`. */
void rendezvous_tell_late(struct rendezvous_table *table, struct rendezvous_recv *recv,
                          struct status *why_take);

/* ---- rendezvous_step.c; the step's lock is held ---- */
static inline bool slot_has_credit(const struct slot *slot) {
    return state_is_in(slot->state, STATE_SET(SLOT_GRANTED) | STATE_SET(SLOT_ARRIVING) |
                                        STATE_SET(SLOT_PREGRANTED) | STATE_SET(SLOT_GROWING));
}
static inline bool slot_is_sent(const struct slot *slot) { return slot->state >= SLOT_OFFERED; }
/* Changes a slot's state. The caller sets what belongs to the new state before. */
static inline void slot_move(struct slot *slot, enum slot_state to) {
    state_machine_move(&slot_machine, &slot->state, to, slot);
}
/* Finds the receiver's slot, or the sender's slot for a peer; NULL if there is none. */
struct slot *slot_find(struct rendezvous *rendezvous, uint32_t edge, uint64_t frame_iter);
struct slot *slot_find_sent(struct rendezvous *rendezvous, const struct peer *peer, uint32_t edge,
                            uint64_t frame_iter);
/* Adds a slot without a state. The caller sets its fields and then calls slot_start. */
struct slot *slot_add(struct rendezvous *rendezvous, uint32_t edge, uint64_t frame_iter);
static inline void slot_start(struct slot *slot, enum slot_state first) {
    state_machine_start(&slot_machine, &slot->state, first, slot);
}
/* Returns the record about a peer, which it makes at first use. Valid until the next call. */
struct step_peer *rendezvous_peer(struct rendezvous *rendezvous, struct peer *peer);
/* Counts what is kept before the RunGraph: a value, or (value NULL) the bytes of an announcement or
 * of a pre-grant. */
void rendezvous_count_early(struct rendezvous *rendezvous, const struct tensor *value,
                            size_t kept_bytes);
/* Removes a slot whose contents were taken. */
void slot_remove(struct rendezvous *rendezvous, struct slot *slot);
/* The sender of a value; all zero for this task. */
struct value_source {
    struct peer *peer;
    size_t size_bytes; /* of its payload or inline_proto; 0 for a reference */
    bool is_small;     /* a payload or reference that needs no grant */
};
/* Lock not held. Hands a value, from this task or from a peer, to its Recv, or keeps it until the
 * Recv starts. Takes *value, also on failure. Errors: INTERNAL when the key has a value already. */
struct status *rendezvous_deliver(struct rendezvous *rendezvous, uint32_t edge, uint64_t frame_iter,
                                  struct value_source source, struct tensor *value) MUST_USE;
/* Lock not held. Empties the step, and ends its waits with `why` (borrowed). is_end: the step has
 * ended here. */
void rendezvous_clear(struct rendezvous *rendezvous, struct status *why, bool is_end);

/* ---- rendezvous_wire.c ---- */
struct send_options {
    struct rendezvous_recv *offer; /* its on_value is called after the grant; or NULL */
    bool only_push;                /* do not send a value that would have to be announced */
    struct buffer *proto;          /* borrowed: the value's TensorProto, or NULL */
};
/* Sends a value to another task: pushes a small one, and announces a large one. The contract is
 * that of rendezvous_send_or_offer. */
struct status *rendezvous_push_or_announce(struct rendezvous *rendezvous, struct peer *peer,
                                           const struct plan_channel *channel, uint64_t frame_iter,
                                           struct tensor *value, const struct send_options *options,
                                           bool *ret_is_sent) MUST_USE;
/* ---- rendezvous_text.c ---- */
/* Has a pushed value of much text decoded on the pool, and delivered then. *ret_is_later is false
 * for every other value. Errors: as tensor_meta_find_proto. */
struct status *rendezvous_decode_later(struct rendezvous *rendezvous, struct value_source source,
                                       const struct wire_message *message,
                                       const struct edge_message *edge,
                                       bool *ret_is_later) MUST_USE;

/* ---- rendezvous_wire.c, continued ---- */
/* Lock not held. Grants all announced values for which there is credit. */
void rendezvous_try_grants(struct rendezvous *rendezvous);
/* The slot's bytes are no longer in flight: returns their credit. Any lock may be held. The caller
 * calls rendezvous_retry_pending once it holds none. */
void rendezvous_release_credit(struct rendezvous *rendezvous, const struct slot *slot);
/* Adds `size` to a counter unless that would exceed `max`; a counter of 0 takes any size. Returns
 * false, with nothing done, otherwise. */
bool rendezvous_reserve(_Atomic int64_t *in_flight_bytes, int64_t size, int64_t max);
void rendezvous_unreserve(_Atomic int64_t *in_flight_bytes, int64_t size);
/* Step's lock held: queues a message about an edge for the peer. False: there is no connection. */
bool rendezvous_queue_edge(struct rendezvous *rendezvous, struct peer *peer, enum wire_type type,
                           const struct str *meta, const struct tensor *payload);
/* Copies a message's meta. The caller holds one reference. */
struct buffer *rendezvous_keep_meta(struct span meta);
/* Step's lock held. Sets the slot's fields from an announcement. The caller then starts the slot in
 * ANNOUNCED or moves it there, and calls rendezvous_try_grants once it does not hold the lock. */
void rendezvous_set_announced(struct rendezvous *rendezvous, struct slot *slot, struct peer *peer,
                              size_t size_bytes, struct buffer *meta_take);
/* Fails a step without a RunGraph, because what has arrived for it cannot be kept. */
void rendezvous_refuse_early(struct rendezvous_table *table, const struct peer *peer,
                             uint64_t step_id);
extern const struct peer_receiver rendezvous_receiver; /* arg: the table */

/* ---- rendezvous_growing.c ---- */
/* The receiver's on_begun (worker/exchange/peer.h). */
struct buffer *rendezvous_on_begun(void *arg, struct peer *peer, uint64_t step,
                                   const struct edge_message *edge, struct buffer *memory);
/* Lock not held. The value of a slot in GROWING, which the caller has taken from its step, will not
 * be whole. `why` is borrowed; NULL: the step has ended. */
void rendezvous_fail_growing(const struct slot *slot, struct status *why);

/* ---- rendezvous_pregrant.c ---- */
/* A pre-grant that waits for its value, decoded. */
struct pending_pregrant {
    struct peer_pregrant pregrant;
    enum dtype dtype; /* the type and shape that the value must have */
    int rank;
    int64_t dims[];
};
/* Returns the peer that a pre-grant for the channel's value can be sent to, and which kind of
 * pre-grant; NULL if there is none. */
struct peer *pregrant_peer(struct rendezvous *rendezvous, const struct plan_channel *channel,
                           enum peer_pregrant_way *ret_way);
/* Step's lock held. Pre-grants the value of a new Recv, whose slot is WAITING. Does nothing when
 * there is no credit for it. */
void pregrant_value(struct rendezvous *rendezvous, struct slot *slot,
                    const struct plan_channel *channel, struct peer *peer,
                    enum peer_pregrant_way way);
void pregrant_release_credit(struct rendezvous *rendezvous, const struct slot *slot);
/* Step's lock held. An announcement has arrived for a pre-granted slot. *ret_tries_grants: the
 * caller has to call rendezvous_try_grants. Errors: INTERNAL when it is announced twice. */
struct status *pregrant_announced(struct rendezvous *rendezvous, struct slot *slot,
                                  const struct edge_message *edge, struct span meta,
                                  bool *ret_tries_grants) MUST_USE;
/* The receiver's on_pregrant_withdrawn (worker/exchange/peer.h). */
void pregrant_withdrawn(void *arg, struct peer *peer, uint64_t step, uint32_t edge,
                        uint64_t frame_iter, struct buffer *buffer);
/* At the sender: a pre-grant has arrived. Errors: INVALID_ARGUMENT. */
struct status *pregrant_on_grant(struct rendezvous_table *table, struct peer *peer,
                                 const struct wire_message *message,
                                 const struct edge_message *edge) MUST_USE;
/* Step's lock held. Takes the peer's pending pre-grant for a key; NULL: there is none. */
struct pending_pregrant *pregrant_take_pending(struct rendezvous *rendezvous,
                                               const struct peer *peer, uint32_t edge,
                                               uint64_t frame_iter);
/* Lock not held. The value is not sent by this pre-grant: declines and frees it. Accepts NULL. */
void pregrant_drop_pending(struct peer *peer, struct pending_pregrant *pending_take);
/* Lock not held. Sends the value by this pre-grant. Takes both. */
void pregrant_send_pending(struct peer *peer, struct pending_pregrant *pending_take,
                           struct peer_value *value_take);
/* Has the value the type and shape of the pre-grant? */
bool pregrant_fits(const struct pending_pregrant *pending, const struct tensor *value);

#endif
