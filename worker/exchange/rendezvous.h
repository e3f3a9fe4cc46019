/* The rendezvous: where the Send and the Recv of an edge meet, within a task and across tasks
 * [WP 3.2.2].
 *
 * The key is (step, edge, frame and iteration). The master numbers the cut edges of a compiled
 * step, so the edge's number stands for source device, tensor name and destination device.
 *
 *   a dead value, or up to 64 KiB      ──► Push, at once, while the step has credit for it
 *   a larger value                     ──► Announce ◄── Grant ──► Push: the receiver has credit
 *   a larger value in shared memory    ──► Push of a reference, at once
 *
 * What arrives before its RunGraph, or before its Recv, waits in the step's table.
 *
 * Credit for granted values: the bytes that are granted and have not arrived are limited for the
 * task; for one peer to a quarter, and for one session to a half of that. One value is always
 * granted when nothing else is in flight. An announced value without credit is queued. A value
 * that a Recv waits for, and that only the task's limit holds back, gets the next free credit, so
 * large values do not starve. Granted bytes arrive, or their sender is lost, so every wait ends.
 *
 * Credit for small values: a step may have RENDEZVOUS_STEP_CREDIT_BYTES pushed to a peer that no
 * Recv has taken there. Beyond that its small values are announced too. The receiver gives the
 * credit back with a message for each half of it, so a short step needs none.
 *
 * Pre-grants: a Recv whose channel says what its value will be (plan_channel.slot_bytes) grants
 * the value when it starts, if an RDMA or a TCP connection leads from the sender to it. A pre-grant
 * says what value it is for. At the sender:
 *
 *   the value exists and fits          it is written or pushed at once
 *   it has another shape or type       it is announced; the remote slot is declined
 *   it is small or dead                it is pushed; the remote slot is declined
 *   it never exists                    the remote slot is declined when the step ends
 *   it has been announced already      it is sent by the pre-grant if it fits
 *   its RunGraph has not come          the pre-grant waits in the step's table
 *
 * A pre-granted value may take as long as its step, so it must not use the credit of values that
 * exist. Pre-grants have credit of their own: half as much for the task, a quarter for a peer and
 * for a session, and only while the whole is within the task's limit. Otherwise the value is
 * announced as usual. A sender keeps at most PEER_MAX_PENDING_PREGRANTS of one peer.
 *
 * A step's table is made by whichever comes first, an arrival or RunGraph, and ends when the
 * step's run has ended here. Ids of ended steps are remembered, so late arrivals are dropped. An
 * abort ends every wait with the same status. A step of which values were lost is aborted with
 * UNAVAILABLE, also before its RunGraph comes.
 *
 * Threads: any. Callbacks run without locks, on the thread that brought the value. */
#ifndef MILLRACE_WORKER_EXCHANGE_RENDEZVOUS_H
#define MILLRACE_WORKER_EXCHANGE_RENDEZVOUS_H

#include "common/base/status.h"
#include "common/tensor/tensor.h"
#include "worker/plan/plan.h"

enum { RENDEZVOUS_PUSH_LIMIT_BYTES = PLAN_PUSH_LIMIT_BYTES };
#define RENDEZVOUS_IN_FLIGHT_BYTES \
    (2ll << 30) /* default limit of granted bytes that have not arrived */

struct rendezvous_table; /* of the task: all live steps */
struct rendezvous;       /* one step's */
struct peer_table;       /* worker/exchange/peer.h: connections to other tasks */

/* A wait for one value. Embedded in the waiter's record, which lives until on_value. */
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

/* The credit that the steps of one session have used. Counted: the session's graphs and steps
 * hold references. Any thread. */
struct session_credit;
struct session_credit *session_credit_new(void);
struct session_credit *session_credit_ref(struct session_credit *credit);
void session_credit_unref(struct session_credit *credit);

struct rendezvous_table *rendezvous_table_new(struct peer_table *peers,
                                              struct allocator *allocator);
void rendezvous_table_free(struct rendezvous_table *table);
/* Before the first step; default RENDEZVOUS_IN_FLIGHT_BYTES. */
void rendezvous_table_set_in_flight_limit(struct rendezvous_table *table, int64_t bytes);
/* Appends a JSON object for /statusz. */
void rendezvous_table_describe(struct rendezvous_table *table, struct str *out);

/* The step's rendezvous, made when new. One reference for the caller. NULL when the step has
 * ended already. */
struct rendezvous *rendezvous_open(struct rendezvous_table *table, uint64_t step_id);
/* The same for a step of a session; `credit` may be NULL. */
struct rendezvous *rendezvous_open_in(struct rendezvous_table *table, uint64_t step_id,
                                      struct session_credit *credit);
void rendezvous_unref(struct rendezvous *rendezvous);
/* The step has ended here: what waits in it is dropped, and so are later arrivals. */
void rendezvous_end_step(struct rendezvous_table *table, uint64_t step_id);
void rendezvous_prune(struct rendezvous_table *table, uint64_t master_incarnation,
                      uint64_t oldest_live_step);
bool rendezvous_is_ended(struct rendezvous_table *table, uint64_t step_id);
/* The master has gone, with its graphs: drops what waits for its RunGraphs, and forgets its ended
 * steps. */
void rendezvous_forget_master(struct rendezvous_table *table, uint64_t master_incarnation);
/* Drops what came for steps whose RunGraph has not come within RENDEZVOUS_ORPHAN_SECONDS. To be
 * called every few seconds. */
void rendezvous_expire(struct rendezvous_table *table, int64_t now_ns);
/* Ends every wait of the step, now and later, with `why` (shared). */
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
/* Writes what the step has queued: one write for each peer. */
void rendezvous_flush(struct rendezvous *rendezvous);
/* The receiver's end. True: the value is there, moved into *ret (recv is not used). False: recv
 * waits and on_value will be called; what is granted ahead is queued: rendezvous_flush writes
 * it. The channel is borrowed until the step has ended. */
bool rendezvous_recv_start(struct rendezvous *rendezvous, const struct plan_channel *channel,
                           uint64_t frame_iter, struct rendezvous_recv *recv, struct tensor *ret);

#endif
