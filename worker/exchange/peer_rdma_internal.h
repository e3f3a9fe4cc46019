/* The RDMA connections of a pair of tasks, for their files: peer_rdma.c (how they begin and end),
 * peer_rdma_values.c (what is sent over them), peer_rdma_pregrant.c (remote slots that are granted
 * before anything is announced).
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
    struct list link; /* rdma->asked, rdma->waiting, rdma->landings or rdma->prepared */
    struct peer_rdma *rdma;
    uint64_t generation;
    struct peer_grant grant; /* with references */
    bool is_told;            /* the peer knows the place */
    bool is_probe;
    bool is_pregrant;
    bool is_unused; /* declined: no value comes instead */
    /* ahead, and for no value yet: the grant has a buffer, a size and an allocator */
    bool is_prepared;
    int64_t since_ns; /* then */
};

/* A value that goes to a place; the probe is one. */
struct peer_write {
    struct rdma_transfer transfer;
    struct list link; /* rdma->writes */
    struct peer_rdma *rdma;
    struct rdma_remote_slot remote_slot;
    struct peer_value value;
    bool is_started; /* some of it may be there */
    bool is_parked;  /* not written: it waits for RdmaWithdrawn */
    bool is_gone;    /* nobody wants it any more: it ends with its registration */
};

extern const struct rdma_out_handlers peer_out_handlers;
extern const struct rdma_in_handlers peer_in_handlers;

/* ---- peer_rdma.c ---- */
void peer_rdma_send_notice(struct peer_rdma *rdma, enum wire_type type, uint64_t connection,
                           uint32_t number, const char *why);
/* is_pushed: its value will be */
void peer_rdma_send_decline(struct peer_rdma *rdma, uint32_t number, bool is_pushed);
void peer_rdma_send_reply(struct peer_rdma *rdma, const struct rdma_remote_slot *probe,
                          const char *why);
void peer_rdma_out_ready(struct peer_rdma *rdma);
void peer_rdma_in_ready(struct peer_rdma *rdma);
/* The line cannot go on: tells the peer, and ends this task's half. */
void peer_rdma_out_failed(struct peer_rdma *rdma, struct status *why);
void peer_rdma_in_failed(struct peer_rdma *rdma, struct status *why);
/* one less on the line: it may have been the last */
void peer_rdma_pending_write_ended(struct peer_rdma *rdma);

/* ---- peer_rdma_values.c ---- */
bool peer_rdma_expect_probe(struct peer_rdma *rdma);
void peer_rdma_write_probe(struct peer_rdma *rdma, const struct rdma_remote_slot *remote_slot);
/* lands those that wait, or grants them without a place */
void peer_rdma_start_waiting(struct peer_rdma *rdma);
void peer_rdma_drop_waiting(struct peer_rdma *rdma);
void peer_rdma_park_writes(struct peer_rdma *rdma);
void peer_rdma_push_unstarted(struct peer_rdma *rdma); /* all places are withdrawn */
void peer_rdma_drop_writes(struct peer_rdma *rdma);
struct peer_pending_write *peer_pending_write_new(struct peer_rdma *rdma,
                                                  const struct peer_grant *grant, bool is_pregrant);
void peer_pending_write_free(struct peer_pending_write *pending);
static inline bool peer_pending_write_is_current(const struct peer_pending_write *pending) {
    return pending->generation == pending->rdma->generation;
}
void peer_rdma_deliver(struct peer_pending_write *pending); /* what it was for, as a Push */
struct status *peer_rdma_on_withdrawn(struct peer_rdma *rdma, uint32_t number) MUST_USE;

/* ---- peer_rdma_pregrant.c ---- */
void peer_rdma_pregrant_registered(struct peer_pending_write *pending); /* its place may be told */
void peer_rdma_pregrant_received(
    struct peer_pending_write *pending); /* both take it: it is freed */
void peer_rdma_pregrant_ended(struct peer_pending_write *pending);
void peer_rdma_expire_prepared(struct peer_rdma *rdma, int64_t now_ns);

#endif
