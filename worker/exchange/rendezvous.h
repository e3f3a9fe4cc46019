/* Hands values from the Send of an edge to its Recv, within a task and across tasks [WP 3.2.2].
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
 *   its RunGraph has not arrived       the pre-grant waits in the step's table
 *
 * A pre-granted value may take as long as its step, so it must not use the credit of values that
 * exist. Pre-grants have credit of their own: half as much for the task, a quarter for a peer and
 * for a session, and only while the whole is within the task's limit. Otherwise the value is
 * announced as usual. A sender keeps at most PEER_MAX_PENDING_PREGRANTS of one peer.
 *
 * A step's table is made by whichever comes first, an arrival or RunGraph, and ends when the
 * step's run has ended here. Ids of ended steps are remembered, so late arrivals are dropped. An
 * abort ends every wait with the same status. A step of which values were lost is aborted with
 * UNAVAILABLE, also before its RunGraph arrives.
 *
 * Threads: any. Callbacks run without locks, on the thread that brought the value. */
#ifndef MILLRACE_WORKER_EXCHANGE_RENDEZVOUS_H
#define MILLRACE_WORKER_EXCHANGE_RENDEZVOUS_H

#include "common/base/pool.h"
#include "common/base/status.h"
#include "common/tensor/tensor_pieces.h"
#include "worker/plan/plan.h"

enum { RENDEZVOUS_PUSH_LIMIT_BYTES = PLAN_PUSH_LIMIT_BYTES };
#define RENDEZVOUS_IN_FLIGHT_BYTES \
    (2ll << 30) /* default limit of granted bytes that have not arrived */

struct rendezvous_table; /* of the task: all live steps */
struct rendezvous;       /* one step's */
struct peer_table;       /* worker/exchange/peer.h: connections to other tasks */

/* A wait for one value. Embedded in the waiter's record, which must live until on_value. */
struct rendezvous_recv {
    /* Called exactly once, never inside rendezvous_recv_start. The callee takes the status and the
     * value (TENSOR_DEAD for a dead one). */
    void (*on_value)(struct rendezvous_recv *recv, struct status *status_take,
                     struct tensor *value_take);
    struct rendezvous_recv *next;       /* the table's */
    const struct plan_channel *channel; /* the table's; borrowed */
    uint32_t edge;
    uint64_t frame_iter;
    int64_t since_ns; /* when the wait began, for /stepz */
};

/* The credit that the steps of one session have used. Its references are counted: the session's
 * graphs and steps hold them. Any thread. */
struct session_credit;
struct session_credit *session_credit_new(void); /* the caller holds one reference */
struct session_credit *session_credit_ref(struct session_credit *credit);
void session_credit_unref(struct session_credit *credit); /* accepts NULL */

/* `peers` is borrowed; NULL: all edges are within this task. `allocator`, borrowed, is for values
 * that arrive. Becomes the receiver of `peers`. */
struct rendezvous_table *rendezvous_table_new(struct peer_table *peers,
                                              struct allocator *allocator);
/* Ends all waits. The memory is freed with the last rendezvous. Accepts NULL. */
void rendezvous_table_free(struct rendezvous_table *table);
/* Before the first step; default RENDEZVOUS_IN_FLIGHT_BYTES. */
void rendezvous_table_set_in_flight_limit(struct rendezvous_table *table, int64_t bytes);
/* Before the first step: much text that is exchanged with other tasks is encoded and decoded on
 * this pool, borrowed. Without a pool, the calling threads do it. */
void rendezvous_table_set_pool(struct rendezvous_table *table, struct pool *pool);
/* Appends a JSON object for /statusz. */
void rendezvous_table_describe(struct rendezvous_table *table, struct str *out);

/* Appends members of a JSON object, for /rendezvousz: what the table holds in all, and by step
 * which Recvs wait, and which values wait for a Recv or a grant. Only an operator sees the message
 * of the error that aborted a step. */
void rendezvous_table_page(struct rendezvous_table *table, bool is_operator, struct str *out);

/* Opens the rendezvous of a step; it may exist already, because messages have arrived. The caller
 * holds one reference. `credit` is that of the step's session; it gets a reference, and NULL limits
 * nothing. Announced values of `late_edges` are not granted before their Recvs start; it is
 * borrowed until the step has ended, and may be NULL. Returns NULL when the step has ended. */
struct rendezvous *rendezvous_open(struct rendezvous_table *table, uint64_t step_id,
                                   struct session_credit *credit,
                                   const struct plan_edges *late_edges);
void rendezvous_unref(struct rendezvous *rendezvous);
/* The step has ended here: drops what waits in it, and what arrives for it later. */
void rendezvous_end_step(struct rendezvous_table *table, uint64_t step_id);
/* The master's steps before `oldest_live_step` have ended: forgets their ids, and drops what waits
 * for their RunGraphs. */
void rendezvous_prune(struct rendezvous_table *table, uint64_t master_incarnation,
                      uint64_t oldest_live_step);
bool rendezvous_is_ended(struct rendezvous_table *table, uint64_t step_id);
/* The master is lost, and its graphs are dropped: drops what waits for its RunGraphs, and forgets
 * its ended steps. */
void rendezvous_forget_master(struct rendezvous_table *table, uint64_t master_incarnation);
/* Drops what has waited for a RunGraph for RENDEZVOUS_ORPHAN_SECONDS. To be called every few
 * seconds. `now_ns` is the monotonic clock. */
void rendezvous_expire(struct rendezvous_table *table, int64_t now_ns);
/* Ends every wait of the step, now and later, with `why` (shared). */
void rendezvous_abort(struct rendezvous *rendezvous, struct status *why);

/* Sends a value. Takes the contents of *value, also on failure; TENSOR_DEAD sends a dead value. A
 * message to a peer is queued, and rendezvous_flush writes it. Errors: INTERNAL (a second value for
 * the key, an unknown peer), UNAVAILABLE (no connection), the status of an abort. */
struct status *rendezvous_send(struct rendezvous *rendezvous, const struct plan_channel *channel,
                               uint64_t frame_iter, struct tensor *value) MUST_USE;
/* Does the same for a value that may be too large to push. If it was only announced,
 * *ret_is_offered is true, and the on_value of `offer` is called when the receiver has granted the
 * value (without status and value) or the step is aborted. The sender's step must not end before,
 * because its table holds the value. */
struct status *rendezvous_send_or_offer(struct rendezvous *rendezvous,
                                        const struct plan_channel *channel, uint64_t frame_iter,
                                        struct tensor *value, struct rendezvous_recv *offer,
                                        bool *ret_is_offered) MUST_USE;
/* Must the value be encoded by a text_encoding before it is sent? */
bool rendezvous_encodes_apart(const struct rendezvous *rendezvous,
                              const struct plan_channel *channel, const struct tensor *value);
/* Encodes a value of much text on the pool. Embedded in the sender's record, which must live until
 * on_encoded, as the value must. */
struct text_encoding {
    struct pool_task task;
    struct tensor_encoder encoder;
    struct rendezvous *rendezvous;
    /* Called exactly once, on a pool thread, with the TensorProto or with the status of the step's
     * abort; takes either. */
    void (*on_encoded)(struct text_encoding *encoding, struct status *status_take,
                       struct buffer *proto_take);
};
void text_encoding_start(struct text_encoding *encoding, struct rendezvous *rendezvous,
                         const struct tensor *value);
/* Does what rendezvous_send_or_offer does for a value whose TensorProto exists, and flushes. Takes
 * the reference to `proto`. */
struct status *rendezvous_send_encoded(struct rendezvous *rendezvous,
                                       const struct plan_channel *channel, uint64_t frame_iter,
                                       struct tensor *value, struct buffer *proto_take,
                                       struct rendezvous_recv *offer,
                                       bool *ret_is_offered) MUST_USE;
/* Is a large value of the channel sent in pieces now, so that it may be a growing one
 * (common/tensor/growing_buffer.h)? Every growing value is sent, also when this was not asked or
 * has changed; then it is sent when it is whole. */
bool rendezvous_sends_pieces(const struct rendezvous *rendezvous,
                             const struct plan_channel *channel);
/* Sends a value only if it can be pushed at once. Otherwise *ret_is_sent is false and *value is
 * unchanged, and the caller calls rendezvous_send_or_offer. */
struct status *rendezvous_try_send(struct rendezvous *rendezvous,
                                   const struct plan_channel *channel, uint64_t frame_iter,
                                   struct tensor *value, bool *ret_is_sent) MUST_USE;
/* Writes the messages that the step has queued, with one write for each peer. */
void rendezvous_flush(struct rendezvous *rendezvous);
/* Receives a value. True: the value has arrived and was moved into *ret; `recv` is not used. False:
 * on_value will be called. If the channel takes growing values, on_value may get a growing buffer
 * (common/tensor/growing_buffer.h), which ends when the value has arrived, or when the step is
 * aborted or ends, with a failure that names the tensor and its sender. A pre-grant may be queued,
 * and rendezvous_flush writes it. The channel is borrowed until the step has ended. */
bool rendezvous_recv_start(struct rendezvous *rendezvous, const struct plan_channel *channel,
                           uint64_t frame_iter, struct rendezvous_recv *recv, struct tensor *ret);

#endif
