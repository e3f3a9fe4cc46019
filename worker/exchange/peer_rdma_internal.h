/* What the files about the RDMA connections of a pair of tasks share: peer_rdma.c (how connections
 * begin and end), peer_rdma_values.c (values), peer_rdma_pregrant.c (remote slots that are granted
 * before their values are announced).
 *
 * The states of the connection to the peer, over which this task writes:
 *
 *   (new)       -> OUT_NONE
 *   OUT_NONE    -> OUT_OFFERED   RdmaOffer is sent
 *   OUT_OFFERED -> OUT_NONE      the channels to the peer are gone; the same for the next ones
 *               -> OUT_PROVING   RdmaReply with an address: the probe is written
 *               -> OUT_ENDING    RdmaReply with a reason, or the device fails: RdmaEnd is sent
 *   OUT_PROVING -> OUT_NONE
 *               -> OUT_READY     the probe is acknowledged
 *               -> OUT_ENDING    as from OUT_OFFERED
 *   OUT_READY   -> OUT_NONE
 *               -> OUT_ENDING    as from OUT_OFFERED
 *   OUT_ENDING  -> OUT_NONE      RdmaEnded: all remote slots are withdrawn
 *
 * The states of the connection from the peer, over which the peer writes:
 *
 *   (new)      -> IN_NONE
 *   IN_NONE    -> IN_PROVING   RdmaOffer: RdmaReply is sent, with a remote slot for the probe
 *              -> IN_ENDING    RdmaEnd about an offer that was refused
 *   IN_PROVING -> IN_NONE      the channels to the peer are gone; the same for the next ones
 *              -> IN_READY     the probe has arrived, and is right
 *              -> IN_BROKEN    this end fails: RdmaReply with the reason is sent
 *              -> IN_ENDING    RdmaEnd
 *   IN_READY   -> IN_NONE
 *              -> IN_BROKEN    as from IN_PROVING
 *              -> IN_ENDING    RdmaEnd
 *   IN_BROKEN  -> IN_NONE
 *              -> IN_ENDING    RdmaEnd, the peer's reply to the reason
 *   IN_ENDING  -> IN_NONE      the last remote slot is withdrawn: RdmaEnded is sent */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_RDMA_INTERNAL_H
#define MILLRACE_WORKER_EXCHANGE_PEER_RDMA_INTERNAL_H

#include "common/base/state_machine.h"
#include "worker/exchange/peer_rdma.h"

extern const struct state_machine peer_out_machine, peer_in_machine;

/* A buffer that the peer may write into, or will be asked to; the probe is one. */
struct peer_pending_write {
    struct loop_task task;
    struct rdma_pending_write write;
    struct list link; /* rdma->requested, waiting, pending_writes or prepared */
    struct peer_rdma *rdma;
    uint64_t generation;
    struct peer_grant grant; /* it holds references to the grant's buffers */
    bool is_told;            /* the peer knows the remote slot */
    bool is_probe;
    bool is_pregrant;
    bool is_unused; /* the slot was declined, and no value follows */
    /* pre-granted, and not for a value yet: the grant has a buffer, a size and an allocator only */
    bool is_prepared;
    int64_t since_ns; /* when it was prepared */
};

/* A value that is written into a remote slot; the probe is one. */
struct peer_write {
    struct rdma_transfer transfer;
    struct list link; /* rdma->writes */
    struct peer_rdma *rdma;
    struct rdma_remote_slot remote_slot;
    struct peer_value value;
    bool is_started; /* parts of the value may have been written */
    bool is_parked;  /* it is not written, but waits for RdmaWithdrawn */
    bool is_gone;    /* the value is not wanted any more; freed after its registration */
};

extern const struct rdma_out_handlers peer_out_handlers;
extern const struct rdma_in_handlers peer_in_handlers;

/* ---- peer_rdma.c ---- */
void peer_rdma_send_notice(struct peer_rdma *rdma, enum wire_type type, uint64_t connection,
                           uint32_t number, const char *why);
/* Tells the peer that a slot will not be written. is_pushed: its value will be pushed instead. */
void peer_rdma_send_decline(struct peer_rdma *rdma, uint32_t number, bool is_pushed);
/* Replies to RdmaOffer: with the slot for the probe, or with the reason why not. */
void peer_rdma_send_reply(struct peer_rdma *rdma, const struct rdma_remote_slot *probe,
                          const char *why);
void peer_rdma_out_ready(struct peer_rdma *rdma); /* the probe is acknowledged */
void peer_rdma_in_ready(struct peer_rdma *rdma);  /* the probe has arrived */
/* The connection has failed: tells the peer, and ends this task's half. */
void peer_rdma_out_failed(struct peer_rdma *rdma, struct status *why);
void peer_rdma_in_failed(struct peer_rdma *rdma, struct status *why);
/* A pending write of the connection has ended. It may have been the last one that IN_ENDING waits
 * for. */
void peer_rdma_pending_write_ended(struct peer_rdma *rdma);

/* ---- peer_rdma_values.c ---- */
bool peer_rdma_expect_probe(struct peer_rdma *rdma); /* false: no memory for it */
void peer_rdma_write_probe(struct peer_rdma *rdma, const struct rdma_remote_slot *remote_slot);
/* Starts the waiting pending writes, or, without a connection, grants their values without
 * slots. */
void peer_rdma_start_waiting(struct peer_rdma *rdma);
void peer_rdma_drop_waiting(struct peer_rdma *rdma);
/* The connection ends: its writes wait until their slots are withdrawn. */
void peer_rdma_park_writes(struct peer_rdma *rdma);
void peer_rdma_push_unstarted(struct peer_rdma *rdma); /* all remote slots are withdrawn */
void peer_rdma_drop_writes(struct peer_rdma *rdma);
/* Borrows the grant and takes references to its buffers. */
struct peer_pending_write *peer_pending_write_new(struct peer_rdma *rdma,
                                                  const struct peer_grant *grant, bool is_pregrant);
void peer_pending_write_free(struct peer_pending_write *pending);
/* Does it belong to the present connection? */
static inline bool peer_pending_write_is_current(const struct peer_pending_write *pending) {
    return pending->generation == pending->rdma->generation;
}
void peer_rdma_deliver(struct peer_pending_write *pending); /* hands the value on as a Push */
struct status *peer_rdma_on_withdrawn(struct peer_rdma *rdma, uint32_t number) MUST_USE;

/* ---- peer_rdma_pregrant.c ---- */
/* The memory of a pre-granted slot is registered, so the peer may be told of it. */
void peer_rdma_pregrant_registered(struct peer_pending_write *pending);
/* The value has been written, or never will be. Both free `pending`. */
void peer_rdma_pregrant_received(struct peer_pending_write *pending);
void peer_rdma_pregrant_ended(struct peer_pending_write *pending);
/* Withdraws prepared slots that were not used for PEER_RDMA_PREPARED_MS. */
void peer_rdma_expire_prepared(struct peer_rdma *rdma, int64_t now_ns);

#endif
