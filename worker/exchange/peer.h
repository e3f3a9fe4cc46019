/* Keeps the table of other tasks, by name, and the connections to them.
 *
 * A task becomes a peer when a graph that exchanges values with it is registered; the registration
 * states its addresses. The first step of such a graph opens the peer's control channel, and the
 * first large value its bulk channel. If the other task connects first, the service passes its
 * connection to this table after its Hello. When both ends connect at once, each sends on the
 * channel that it has opened, and reads both.
 *
 * Each end states in its Hello which process it is (its incarnation), and which process it wants to
 * reach. So a restarted task never gets a message that was sent to the process before it.
 *
 * A peer is lost when one of its channels ends, or when three pings over its control channel are
 * not answered (rpc/wire/heartbeat.h). Then all its channels are closed, and on_lost is called so
 * that the steps that exchange with it end. The next such step opens new channels.
 *
 * Peers are freed with their table, so a struct peer may be kept until then. Threads: the loop's,
 * except that peer_queue, peer_flush and the functions that say so may be called on any thread. */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_H
#define MILLRACE_WORKER_EXCHANGE_PEER_H

#include "worker/exchange/transport.h"
#include "rpc/wire/messages.h"
#include "worker/exchange/peer_streams.h"

struct peer;
struct shm_arena;
struct peer_table;
struct rdma_device;

enum rdma_mode { RDMA_OFF, RDMA_PREFER, RDMA_REQUIRE }; /* --rdma */

enum {
    PEER_MAX_CONTROL_BYTES = 64 << 10, /* a larger value is pushed over the bulk channel */
    PEER_MAX_KNOWN = 65536,
    PEER_SHM_MAX_KEPT_BYTES = 256 << 20,
    PEER_MAX_PENDING_PREGRANTS = 1024
};

/* Receives the messages about tensors (PUSH, ANNOUNCE, GRANT, …) of all peers: the rendezvous, or a
 * test. Called on the loop thread. */
struct peer_receiver {
    /* A message has arrived; `edge` is its decoded meta. An error closes the peer's connections. */
    struct status *(*on_message)(void *arg, struct peer *peer, struct wire_message *message,
                                 const struct edge_message *edge);
    /* Returns memory for the payload of a PUSH before it is read, with the contract of `alloc` in
     * struct wire_handlers. on_message follows with the same `edge`. */
    struct buffer *(*alloc)(void *arg, struct peer *peer, const struct wire_message *message,
                            const struct edge_message *edge, size_t size_bytes);
    /* The first bytes of a value for which `alloc` returned memory are there; `edge` is as in
     * on_message. Returns NULL if the value is wanted only when it is whole. Otherwise the callee
     * has handed it on in a growing buffer over the memory (common/tensor/growing_buffer.h), to
     * which the caller gets a reference. The caller tells the buffer which bytes are there, but not
     * the last ones; the callee ends its growth, in on_message or with the step. Optional. */
    struct buffer *(*on_begun)(void *arg, struct peer *peer, uint64_t step,
                               const struct edge_message *edge, struct buffer *memory);
    /* Does a step still wait for the value for which `alloc` returned memory? */
    bool (*is_wanted)(void *arg, struct peer *peer, uint64_t step, uint32_t edge,
                      uint64_t frame_iter);
    /* At the peer, Recvs have taken this many bytes of small values that the step had pushed.
     * Optional. */
    void (*on_credit)(void *arg, struct peer *peer, uint64_t step, uint64_t bytes);
    /* Values that the peer has pushed in these steps may have been lost with a connection, so the
     * steps have to fail with `why` (borrowed). Optional. */
    void (*on_steps_lost)(void *arg, struct peer *peer, const uint64_t *steps, size_t n_steps,
                          struct status *why);
    /* No value was or will be written to the slot that peer_grant_early has prepared. With a
     * buffer (borrowed), the sender was told of the slot, and may push the value into that buffer.
     * Without a buffer, the sender was not told of the slot, or has declined it. Optional. */
    void (*on_pregrant_withdrawn)(void *arg, struct peer *peer, uint64_t step, uint32_t edge,
                                  uint64_t frame_iter, struct buffer *buffer);
};

/* Each step that exchanges with the peer has to end with `why` (borrowed), which names the task. */
typedef void peer_lost_fn(void *arg, struct peer *peer, struct status *why);

/* Makes the table of the task `task` ("/job:ps/replica:0/task:0", copied). */
struct peer_table *peer_table_new(struct loop *loop, const char *task, uint64_t incarnation);
/* Closes all connections; no callback is called afterwards. The memory is freed on the loop when
 * the last connection has closed. Accepts NULL. */
void peer_table_free(struct peer_table *table);
void peer_table_set_receiver(struct peer_table *table, const struct peer_receiver *receiver,
                             void *arg);
void peer_table_set_on_lost(struct peer_table *table, peer_lost_fn *on_lost, void *arg);
/* The settings below are made before the first connection. */
/* The table is that of a session's cluster (worker/service/exchange.h): its tasks have other names
 * there than their own. `own_task` (copied) is this task's own name. Each peer's own name has to be
 * set, and proves who a task is. Default: the names in the table are the tasks' own. */
void peer_table_set_cluster(struct peer_table *table, uint64_t cluster, const char *own_task);
void peer_table_set_heartbeat(struct peer_table *table, int64_t interval_ms); /* default 2 s */
/* Values in shared memory are exchanged by reference; by default they are not. `arena` is this
 * process' own; if it is NULL, the arenas of peers are used all the same. Borrowed. */
void peer_table_use_shm(struct peer_table *table, struct shm_arena *arena);
/* How much a peer may keep alive in this task's arena (rpc/shm/shm_ledger.h). Beyond the limit,
 * values are sent over the socket. Default PEER_SHM_MAX_KEPT_BYTES; 0: no limit. */
void peer_table_set_shm_limit(struct peer_table *table, int64_t max_kept_bytes);
/* TCP connections to other tasks use TLS. Borrowed for the table's life. */
void peer_table_set_tls(struct peer_table *table, struct tls *tls);
/* Over how many sockets a value of 8 MB or more is sent (worker/exchange/peer_streams.h). Default
 * 1. */
void peer_table_set_streams(struct peer_table *table, unsigned n_streams);
/* Messages to other tasks carry checksums (rpc/wire/wire.h). */
void peer_table_set_checksums(struct peer_table *table, bool uses_checksums);
/* Large values are written by RDMA; by default they are not. Takes the device. If it is NULL,
 * `why_not` (copied) says why there is none. */
void peer_table_use_rdma(struct peer_table *table, enum rdma_mode mode,
                         struct rdma_device *device_take, const char *why_not);
struct loop *peer_table_loop(struct peer_table *table);
const char *peer_table_task(const struct peer_table *table); /* this task's name */

/* Notes where a task can be reached, as a registration says. The strings are copied.
 *
 * Which process it is, the task itself states in the Hello of each connection. Two masters may name
 * different incarnations, and a master that does not know of a restart must not disturb the running
 * task. Therefore the incarnation and the addresses of a registration are ignored while another
 * process of the task is connected. Errors: RESOURCE_EXHAUSTED (PEER_MAX_KNOWN). */
struct status *peer_table_know(struct peer_table *table, const char *task, const char *address,
                               const char *unix_address, uint64_t incarnation,
                               struct peer **ret_peer) MUST_USE;
/* In a session's cluster: the task's name in its own cluster, as its certificate has it (copied).
 * Call it after each peer_table_know. */
void peer_set_own_task(struct peer *peer, const char *own_task);
/* Returns NULL when the task is not known. Any thread. */
struct peer *peer_find(struct peer_table *table, const char *task);
const char *peer_name(const struct peer *peer);

/* What a value of that size takes to the task or from it, for people: "local", "tcp", "rdma",
 * "unix" or "shm"; "" before the first connection. Small values go over the socket. The first large
 * ones do, too, while RDMA connects, which this does not know. Any thread. */
const char *peer_table_transport(struct peer_table *table, const char *task, int64_t size_bytes);

/* Counters of the rendezvous for this peer. Any thread. */
/* The bytes that are granted to the peer and have not arrived. */
_Atomic int64_t *peer_in_flight_bytes(struct peer *peer);
/* The same for pre-grants. */
_Atomic int64_t *peer_pregrant_bytes(struct peer *peer);
/* How many of the peer's pre-grants are pending here, at most PEER_MAX_PENDING_PREGRANTS. */
_Atomic int *peer_n_pending_pregrants(struct peer *peer);

/* Opens the control channel unless it exists. */
void peer_connect(struct peer *peer);
/* The contents of the Hello by which another task opens a channel. */
struct peer_greeting {
    const char *task;
    const char *own_task; /* in a session's cluster: its name in its own cluster */
    uint64_t incarnation;
    enum channel_kind kind;
    unsigned n_streams; /* control channel: how many sockets the task takes for a value */
    bool takes_pieces;  /* control channel: it takes values in pieces */
    /* control channel: its own; stream: the epoch of the control channel that it belongs to */
    uint64_t epoch;
};
/* Takes over a connection after its Hello. The caller has checked the Hello and answered it, except
 * that a stream's Hello is answered after this call. Errors: FAILED_PRECONDITION (unknown task,
 * wrong incarnation, a stream whose control channel has ended), RESOURCE_EXHAUSTED. After an error
 * the connection is still the caller's. */
struct status *peer_table_accept(struct peer_table *table, struct wire_conn *conn,
                                 const struct peer_greeting *greeting) MUST_USE;

/* Queues a message. Returns false when there is no connection to the peer; on_lost was called when
 * it was lost. Any thread. */
bool peer_queue(struct peer *peer, enum channel_kind kind, const struct wire_out *message) MUST_USE;
/* Writes what is queued. Any thread. */
void peer_flush(struct peer *peer, enum channel_kind kind);

/* ---- steps whose values the peer has not acknowledged ----
 *
 * A part of a step may end as soon as its values are queued. If the connection is lost before the
 * peer has received them, the peer has to learn that they will not arrive. Therefore each step that
 * pushes to the peer is noted, and the first message on the next control channel (LostSteps) names
 * all noted steps. A step is forgotten when a ping that was sent after its end is answered, because
 * a channel keeps the order of its messages. This needs no messages of its own, and the notes cover
 * at most the steps that end in about two heartbeat intervals. Any thread. */

/* Queues the first push of a step over the control channel, as peer_queue does, and notes the step.
 * Without a connection it notes nothing. */
bool peer_queue_first(struct peer *peer, uint64_t step, const struct wire_out *message) MUST_USE;
/* The step has ended here, and pushes nothing more. */
void peer_step_ended(struct peer *peer, uint64_t step);

/* ---- values by reference (worker/exchange/peer_shm.h) ---- */

/* Makes a reference to the value, which is sent instead of its bytes. The reference keeps the value
 * until the peer returns it. Returns false when the value is not in this task's arena, when the
 * peer has not mapped the arena, or when the peer keeps too much. A reference that is not sent has
 * to be returned by peer_take_back. Any thread. */
bool peer_give(struct peer *peer, const struct tensor *value, struct arena_reference *ret);
void peer_take_back(struct peer *peer, const struct arena_reference *reference);
/* Makes a read-only buffer over the memory that the peer's reference names; the caller owns it.
 * *ret stays NULL when the reference came too late. Errors: INVALID_ARGUMENT. Loop thread. */
struct status *peer_take(struct peer *peer, const struct arena_reference *reference,
                         uint64_t size_bytes, struct buffer **ret) MUST_USE;

/* ---- writing into a peer's memory (worker/exchange/peer_rdma.h) ---- */

/* An announced value for which there is credit. */
struct peer_grant {
    uint64_t step, frame_iter;
    uint32_t edge;
    struct buffer *announcement; /* the meta of the Announce */
    struct buffer *buffer;       /* the memory for the value */
    struct allocator *allocator; /* of a pre-grant, in place of the buffer */
    size_t size_bytes;
};
/* Returns true when the Grant will be sent from here, with a remote slot or without one. Otherwise
 * the caller sends it. Borrows the grant, and takes references to its buffers. Any thread. */
bool peer_grant(struct peer *peer, const struct peer_grant *grant);

/* A value that has to be sent. */
struct peer_value {
    uint64_t step;
    struct str meta;      /* of its Push */
    struct tensor value;  /* of a plain dtype, or: */
    struct buffer *proto; /* its TensorProto */
    size_t size_bytes;
};
void peer_value_fini(struct peer_value *value);
/* Pushes the value over the control or the bulk channel, depending on its size. Borrows it. Any
 * thread, but the loop's for a growing value (common/tensor/growing_buffer.h). */
void peer_push(struct peer *peer, const struct peer_value *value);
/* Writes the value to the slot that the peer has granted. Takes the contents of the value, also on
 * failure. Errors: INVALID_ARGUMENT. Loop thread. */
struct status *peer_write(struct peer *peer, const struct rdma_remote_slot *remote_slot,
                          struct peer_value *value_take) MUST_USE;
/* Declines the slot, because the value does not exist any more. Loop thread. */
void peer_decline(struct peer *peer, const struct rdma_remote_slot *remote_slot);

/* Would a large value that is pushed now be sent in pieces, while it is still growing? Otherwise it
 * would have to be whole first. Any thread. */
bool peer_sends_pieces(struct peer *peer);

/* ---- pre-grants (worker/exchange/rendezvous.h) ---- */

/* How a value that the peer has not announced can be granted: not at all, by a remote slot (WRITE),
 * or as a permission to push it. A grant costs a message and memory, so it is useless where values
 * are sent by reference. Any thread. */
enum peer_pregrant_way { PEER_PREGRANT_NONE, PEER_PREGRANT_WRITE, PEER_PREGRANT_PUSH };
enum peer_pregrant_way peer_pregrant_way(struct peer *peer);
/* Is the allocator's memory too scarce for a pre-grant of this size? Pre-granted memory may not
 * bring the use above half of the limit. */
static inline bool peer_pregrant_is_scarce(const struct allocator *allocator, size_t size_bytes) {
    int64_t in_use = atomic_load_explicit(&allocator->in_use_bytes, memory_order_relaxed);
    return allocator->limit_bytes > 0 && in_use + (int64_t)size_bytes > allocator->limit_bytes / 2;
}
/* For PEER_PREGRANT_WRITE: prepares a remote slot and sends its Grant. The grant's announcement
 * describes the value. The grant has an allocator instead of a buffer, because the slot's memory is
 * allocated here, or exists already. Afterwards either the value arrives as a Push, or
 * on_pregrant_withdrawn is called, or the peer is lost. Returns false, with nothing done, when too
 * many slots are granted. Any thread. */
bool peer_grant_early(struct peer *peer, const struct peer_grant *grant) MUST_USE;

/* A pre-grant that the peer has sent. One value may be sent by it, at any time. */
struct peer_pregrant {
    uint64_t n_losses, rdma_connection; /* the connections that it belongs to */
    struct rdma_remote_slot remote_slot;
    bool has_remote_slot;
};
/* Makes the record of a pre-grant that has just arrived. The slot may be NULL. Loop thread. */
struct peer_pregrant peer_pregrant_take(struct peer *peer,
                                        const struct rdma_remote_slot *remote_slot);
/* Sends the value by the pre-grant, and takes the contents of the value. Any thread. */
void peer_send_pregranted(struct peer *peer, const struct peer_pregrant *pregrant,
                          struct peer_value *value_take);
/* No value will be sent by the pre-grant: declines its slot. Any thread. */
void peer_drop_pregrant(struct peer *peer, const struct peer_pregrant *pregrant);

/* Appends JSON rows for /statusz: task, incarnation, transport and the reason for it, queued bytes,
 * heartbeat. At most 1000, and then {"more":N}. */
void peer_table_describe(struct peer_table *table, struct str *out);
/* Appends a member "peers" of a JSON object, for /transportz: how each peer is reached, why so, and
 * the bytes each way. */
void peer_table_page(struct peer_table *table, struct str *out);
/* Appends the bytes of each peer, by transport and direction, as Prometheus text. The
 * PEER_METRICS_MAX peers that were known first have series of their own. The others' are summed as
 * peer="others". */
enum { PEER_METRICS_MAX = 256 };
void peer_table_write_metrics(struct peer_table *table, struct str *out);
/* Appends to a reply to a master's ping what is measured of some of the links to peers
 * (rpc/wire/link_report.h); the next call goes on with others. */
void peer_table_report_links(struct peer_table *table, struct str *out);
/* Appends a JSON object that describes this task's RDMA device, or says why there is none. */
void peer_table_describe_rdma(struct peer_table *table, struct str *out);

/* Appends this task's Hello, for connections that it opens and for answers. `channel` is an enum
 * channel_kind. `expected_incarnation` is the process that it wants to reach; 0: any. */
void peer_hello_write(struct str *out, const char *task, uint64_t incarnation, unsigned channel,
                      uint64_t expected_incarnation);
/* Adds to a Hello between tasks of a session's cluster: the cluster, and the sender's own name. */
void peer_hello_add_cluster(struct str *out, uint64_t cluster, const char *own_task);

#endif
