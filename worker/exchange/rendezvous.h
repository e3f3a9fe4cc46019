/* The rendezvous: where the two ends of an edge meet, within a task and across tasks [WP 3.2.2].
 *
 * Key: (step, edge, frame and iteration). The master numbers the cut edges of a compiled step,
 * so the edge number stands for (source device, tensor name, destination device); incarnations
 * are fenced when graphs are registered and connections greet.
 *
 *   sender, other task:  value <= 64 KiB or dead ──────────────► push, at once
 *                        larger ──► announce ◄── grant ──► push    the receiver grants when it has room
 *                        larger, in an arena that the receiver has mapped ──► push of a reference, at once: it takes no room
 *   receiver:            what arrives before its RunGraph, or before its Recv, waits in the step's table
 *
 * Room: the bytes granted and not here yet are limited for the task, to a quarter of that for a
 * peer, to a half for a session, so that none of them takes all; one value is always let through
 * where nothing else is in flight. Who finds no room waits in line, and a value that is awaited
 * and that only the task's limit keeps out has the next room: large ones do not starve. What is
 * granted comes whatever else happens, or its sender is lost, so every wait for room ends.
 *
 * Grants ahead: a Recv whose channel says what its value will be (plan_channel.slot_bytes)
 * grants it as it starts, if a line of RDMA or a TCP connection comes from its sender; the
 * step's Recvs start first. The Grant says what it is for.
 *
 *   sender:              the value is there and fits ──► written, or pushed, at once
 *                        of another shape or type    ──► announced, as above; the place is declined
 *                        small, or dead              ──► pushed, as above; the place is declined
 *                        it never comes              ──► the place is declined when the step ends here
 *   they meet on the way (announce ──► ◄── grant ahead): the grant ahead counts if it fits; the announcement is then about nothing
 *   before its RunGraph at the sender: it waits in the step's table; after its step's end: the
 *   place is declined
 *
 * What is granted ahead may take as long as its step, and waits for other values perhaps, so it
 * must not keep room from values that are there: its room is its own, besides the other; half as
 * much for the task, a quarter as much for a peer and for a session. Nothing is granted ahead
 * where that, or the task's room, is taken: then the value is announced as usual. A sender holds
 * PEER_MAX_PENDING_PREGRANTS grants of a peer.
 *
 * A step's table is made by whoever comes first (an arrival or RunGraph) and ends when the
 * step's run has ended here; ids of ended steps are remembered so that late arrivals are dropped
 * (steps_ended below). An abort ends every wait with the same status.
 *
 * Threads: any. Callbacks run without locks held, on the thread that brought the value. */
#ifndef MILLRACE_WORKER_EXCHANGE_RENDEZVOUS_H
#define MILLRACE_WORKER_EXCHANGE_RENDEZVOUS_H

#include "common/base/status.h"
#include "common/tensor/tensor.h"
#include "worker/plan/plan.h"

enum { RENDEZVOUS_PUSH_LIMIT_BYTES = PLAN_PUSH_LIMIT_BYTES };
#define RENDEZVOUS_IN_FLIGHT_BYTES \
    (2ll << 30) /* default cap of granted bytes that have not arrived */

struct rendezvous_table; /* of the task: all live steps */
struct rendezvous;       /* one step's */
struct peer_table;       /* worker/exchange/peer.h: connections to other tasks */

/* A wait for one value: embedded in the waiter's record. */
struct rendezvous_recv {
    /* Exactly once, never inside rendezvous_recv_start. The value is taken (TENSOR_DEAD for a
     * dead one); status is taken. */
    void (*on_value)(struct rendezvous_recv *recv, struct status *status_take,
                     struct tensor *value_take);
    struct rendezvous_recv *next; /* the table's */
    uint32_t edge;
    uint64_t frame_iter;
    int64_t since_ns; /* when the wait began, for /stepz */
};

/* What is in flight to the steps of one session. Counted: its graphs and steps hold it. Any
 * thread. */
struct session_credit;
struct session_credit *session_credit_new(void);
struct session_credit *session_credit_ref(struct session_credit *credit);
void session_credit_unref(struct session_credit *credit);

struct rendezvous_table *rendezvous_table_new(struct peer_table *peers,
                                              struct allocator *allocator);
void rendezvous_table_free(struct rendezvous_table *table);
/* before the first step */
void rendezvous_table_set_in_flight_limit(struct rendezvous_table *table, int64_t bytes);
/* a JSON object for /statusz */
void rendezvous_table_describe(struct rendezvous_table *table, struct str *out);

/* The step's rendezvous, made when new. One reference for the caller. NULL when the step has
 * ended already. */
struct rendezvous *rendezvous_open(struct rendezvous_table *table, uint64_t step_id);
/* The same for a session's step; flow may be NULL. */
struct rendezvous *rendezvous_open_in(struct rendezvous_table *table, uint64_t step_id,
                                      struct session_credit *credit);
void rendezvous_unref(struct rendezvous *rendezvous);
/* The step has ended here: what waits is dropped; later arrivals too. `oldest_live_step` of the
 * same master prunes the memory of ended ids.
 */
void rendezvous_end_step(struct rendezvous_table *table, uint64_t step_id);
void rendezvous_prune(struct rendezvous_table *table, uint64_t master_incarnation,
                      uint64_t oldest_live_step);
bool rendezvous_is_ended(struct rendezvous_table *table, uint64_t step_id);
/* The master is gone and its graphs with it: what waits for its RunGraphs is dropped, its ended
 * ids are forgotten. */
void rendezvous_forget_master(struct rendezvous_table *table, uint64_t master_incarnation);
/* Drops what came for steps whose RunGraph has not come within RENDEZVOUS_ORPHAN_SECONDS: call
 * now and then. */
void rendezvous_expire(struct rendezvous_table *table, int64_t now_ns);
/* Every wait of the step, now and later, ends with `why` (shared). */
void rendezvous_abort(struct rendezvous *rendezvous, struct status *why);

/* The sender's end. Takes what *value holds (TENSOR_DEAD sends a dead flag). Sends to peers are
 * queued: rendezvous_flush writes them. */
struct status *rendezvous_send(struct rendezvous *rendezvous, const struct plan_channel *channel,
                               uint64_t frame_iter, struct tensor *value) MUST_USE;
/* The same for a value that may be too large to push: where it was only announced,
 * *ret_is_offered is set and `offer` waits until the receiver has granted it (on_value without
 * status and value) or the step was aborted. A sender's step must not end before: the value is
 * in its table. */
struct status *rendezvous_send_or_offer(struct rendezvous *rendezvous,
                                        const struct plan_channel *channel, uint64_t frame_iter,
                                        struct tensor *value, struct rendezvous_recv *offer,
                                        bool *ret_is_offered) MUST_USE;
/* The same for a value that can be pushed without waiting. Where it cannot, *ret_is_sent is false
 * and *value is left alone: rendezvous_send_or_offer has to follow. */
struct status *rendezvous_try_send(struct rendezvous *rendezvous,
                                   const struct plan_channel *channel, uint64_t frame_iter,
                                   struct tensor *value, bool *ret_is_sent) MUST_USE;
/* One write per peer for what the last quiescent point queued. */
void rendezvous_flush(struct rendezvous *rendezvous);
/* The receiver's end. True: the value is there, moved into *ret (recv is not used). False: recv
 * waits and on_value will be called; what is granted ahead is queued: rendezvous_flush writes
 * it. The channel is borrowed until the step has ended. */
bool rendezvous_recv_start(struct rendezvous *rendezvous, const struct plan_channel *channel,
                           uint64_t frame_iter, struct rendezvous_recv *recv, struct tensor *ret);

#endif
