/* The other tasks, by name, and the connections to them.
 *
 * A task becomes a peer when a graph that exchanges values with it is registered, with its
 * addresses. The first such step opens the peer's control channel, the first large value its bulk
 * channel. If the other task connects first, its Hello hands the connection to this table. When
 * both ends connect at once, each sends on the channel that it opened, and reads both.
 *
 * Each end says in its Hello which process it is (its incarnation), and which process the later
 * channels have to reach. So a restarted task never gets a message that was sent to the process
 * before it over the same channels.
 *
 * When a channel of a peer ends, or three pings over its control channel are not answered
 * (rpc/wire/heartbeat.h), the peer is lost: all its channels are closed, and on_lost tells those
 * who run steps that exchange with it. The next such step opens new channels.
 *
 * Peers are freed with their table, so a struct peer may be kept until then. Threads: queueing and
 * flushing, and what says so, on any thread; all else on the loop's. */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_H
#define MILLRACE_WORKER_EXCHANGE_PEER_H

#include "worker/exchange/transport.h"
#include "rpc/wire/messages.h"
#include "worker/exchange/peer_streams.h"

struct peer;
struct shm_arena;
struct peer_table;
struct rdma_device;

enum rdma_mode { RDMA_OFF, RDMA_PREFER, RDMA_REQUIRE };

enum {
    PEER_MAX_CONTROL_BYTES = 64 << 10, /* a larger value is pushed over the bulk channel */
    PEER_MAX_KNOWN = 65536,
    PEER_SHM_MAX_KEPT_BYTES = 256 << 20,
    PEER_MAX_PENDING_PREGRANTS = 1024
};

/* Who gets the tensor messages (PUSH, ANNOUNCE, GRANT) of all peers. */
struct peer_receiver {
    /* A message has come; `edge` is its meta, read. An error closes the peer's connections. */
    struct status *(*on_message)(void *arg, struct peer *peer, struct wire_message *message,
                                 const struct edge_message *edge);
    /* Memory for the payload of a PUSH, before it is read, as struct wire_handlers says of
     * `alloc`; on_message follows with the same `edge`. */
    struct buffer *(*alloc)(void *arg, struct peer *peer, const struct wire_message *message,
                            const struct edge_message *edge, size_t size_bytes);
    /* Is what `alloc` gave for that key still waited for? Its step may have ended. */
    bool (*is_wanted)(void *arg, struct peer *peer, uint64_t step, uint32_t edge,
                      uint64_t frame_iter);
    /* The peer has handed on as many bytes of small values that the step had pushed. Optional. */
    void (*on_credit)(void *arg, struct peer *peer, uint64_t step, uint64_t bytes);
    /* Values that the peer has pushed in these steps may have been lost with a connection: they
     * have to fail with `why`. Optional. */
    void (*on_steps_lost)(void *arg, struct peer *peer, const uint64_t *steps, size_t n_steps,
                          struct status *why);
    /* Nothing is, or will be, written to the slot that peer_grant_early prepared. With a buffer
     * (borrowed), the sender was told of the slot, and may push the value into that buffer.
     * Without one, the sender was not told, or has declined. Optional. */
    void (*on_pregrant_withdrawn)(void *arg, struct peer *peer, uint64_t step, uint32_t edge,
                                  uint64_t frame_iter, struct buffer *buffer);
};

/* Who runs steps: each that exchanges with the peer has to end with `why`, which names the task. */
typedef void peer_lost_fn(void *arg, struct peer *peer, struct status *why);

struct peer_table *peer_table_new(struct loop *loop, const char *task, uint64_t incarnation);
/* Closes all connections; no callback is called afterwards. The memory is freed when the last one
 * has closed on the loop. */
void peer_table_free(struct peer_table *table);
void peer_table_set_receiver(struct peer_table *table, const struct peer_receiver *receiver,
                             void *arg);
void peer_table_set_on_lost(struct peer_table *table, peer_lost_fn *on_lost, void *arg);
/* Before the first connection; default 2 s. */
void peer_table_set_heartbeat(struct peer_table *table, int64_t interval_ms);
/* Before the first connection; default: off. `arena` is this process' own, NULL where it has
 * none: peers' arenas are mapped all the same.
 */
void peer_table_use_shm(struct peer_table *table, struct shm_arena *arena);
/* Before the first connection; default: PEER_SHM_MAX_KEPT_BYTES. What a peer may keep alive in
 * this task's arena (rpc/shm/shm_ledger.h); beyond it values go over the socket, as grants
 * allow. 0: any number. */
void peer_table_set_shm_limit(struct peer_table *table, int64_t max_kept_bytes);
/* At once: TCP to other tasks speaks TLS. Borrowed for the table's life. */
void peer_table_set_tls(struct peer_table *table, struct tls *tls);
/* Before the first connection; default: 1. Values of 8 MB and more go over so many sockets at
 * once (worker/exchange/peer_streams.h). */
void peer_table_set_streams(struct peer_table *table, unsigned n_streams);
/* At once: what is sent to other tasks carries checksums (rpc/wire/wire.h). */
void peer_table_set_checksums(struct peer_table *table, bool uses_checksums);
/* Before the first connection; default: off. Takes the device; NULL: there is none, and why. */
void peer_table_use_rdma(struct peer_table *table, enum rdma_mode mode,
                         struct rdma_device *device_take, const char *why_not);
/* After peer_table_use_rdma; default a minute. */
void peer_table_set_rdma_retry(struct peer_table *table, int64_t retry_ms);
struct loop *peer_table_loop(struct peer_table *table);
const char *peer_table_task(const struct peer_table *table); /* this task's name */

/* Takes in what a registration says about a task: where it can be reached. Which process it is
 * says the task itself, in the Hello of each connection: two masters may name different
 * incarnations, and the one that has not heard of a restart must not disturb the task that lives.
 * A registration that names another incarnation than the connected task's is ignored, as far as
 * this task's connections are concerned. Errors: RESOURCE_EXHAUSTED. */
struct status *peer_table_know(struct peer_table *table, const char *task, const char *address,
                               const char *unix_address, uint64_t incarnation,
                               struct peer **ret_peer) MUST_USE;
/* NULL when unknown. Any thread. */
struct peer *peer_find(struct peer_table *table, const char *task);
const char *peer_name(const struct peer *peer);
bool peer_is_self(const struct peer *peer);

/* Bytes that the rendezvous has granted to it and that have not come. Any thread. */
_Atomic int64_t *peer_in_flight_bytes(struct peer *peer);

/* The same for pre-grants; and how many of its pre-grants are pending here (at most
 * PEER_MAX_PENDING_PREGRANTS). */
_Atomic int64_t *peer_pregrant_bytes(struct peer *peer);
_Atomic int *peer_n_pending_pregrants(struct peer *peer);

/* Opens the control channel unless it is there. */
void peer_connect(struct peer *peer);
/* What the Hello says with which another task opens a channel. */
struct peer_greeting {
    const char *task;
    uint64_t incarnation;
    enum channel_kind kind;
    unsigned n_streams; /* control */
    /* control: its own; streams: that of the control channel that they belong to */
    uint64_t epoch;
};
/* Takes over a connection whose Hello named this task's peer: the Hello has been checked and,
 * but for a stream's, answered; a stream's is answered once it is taken. Errors:
 * FAILED_PRECONDITION (unknown task, wrong incarnation, a stream of a control channel that is no
 * more), RESOURCE_EXHAUSTED; the connection is then still the caller's. */
struct status *peer_table_accept(struct peer_table *table, struct wire_conn *conn,
                                 const struct peer_greeting *greeting) MUST_USE;

/* Queues a message. False when there is no connection to the peer: on_lost has been called. */
bool peer_queue(struct peer *peer, enum channel_kind kind, const struct wire_out *message) MUST_USE;
void peer_flush(struct peer *peer, enum channel_kind kind);

/* ---- steps whose values the peer has not acknowledged ----
 *
 * A part of a step may end as soon as its values are queued. If the connection is lost before
 * the peer has received them, the peer has to learn that they will not come: so a step that
 * pushes to the peer is noted, and all noted steps are named (LostSteps) on the next control
 * channel, before anything else is said on it. A step is forgotten once a ping that was sent
 * after its end is answered, since a channel keeps the order. No message is needed for it, and
 * what is noted is at most what ends in about two intervals of the heartbeat. Any thread. */

/* peer_queue over the control channel, for the first push of a step: notes the step, unless
 * there is no connection. */
bool peer_queue_first(struct peer *peer, uint64_t step, const struct wire_out *message) MUST_USE;
/* The step has ended here, and pushes nothing more. */
void peer_step_ended(struct peer *peer, uint64_t step);

/* A reference to the value, to be sent instead of its bytes; false unless the value is in this
 * task's arena and the peer has mapped that. It keeps the value until the peer gives it back. One
 * that is not sent has to be taken back with peer_take_back. Any thread. */
bool peer_give(struct peer *peer, const struct tensor *value, struct arena_reference *ret);
void peer_take_back(struct peer *peer, const struct arena_reference *reference);
/* The memory that a reference from the peer names, which must only be read. *ret stays NULL when
 * the reference came too late. Errors: INVALID_ARGUMENT. Loop thread. */
struct status *peer_take(struct peer *peer, const struct arena_reference *reference,
                         uint64_t size_bytes, struct buffer **ret) MUST_USE;

/* ---- writing into a peer's memory (worker/exchange/peer_rdma.h) ---- */

/* There is credit for an announced value. */
struct peer_grant {
    uint64_t step, frame_iter;
    uint32_t edge;
    struct buffer *announcement; /* the Announce's meta */
    struct buffer *buffer;       /* where the value comes to */
    struct allocator *allocator; /* of a pre-grant: instead of the buffer */
    size_t size_bytes;
};
/* True when its Grant will be sent from here, with a remote slot or without; then the caller sends
 * none. Borrows the grant and its buffers. Any thread. */
bool peer_grant(struct peer *peer, const struct peer_grant *grant);

/* A value that was announced and is to be sent. */
struct peer_value {
    uint64_t step;
    struct str meta;      /* of its Push */
    struct tensor value;  /* plain dtypes */
    struct buffer *proto; /* else: its TensorProto */
    size_t size_bytes;
};
void peer_value_fini(struct peer_value *value);
/* Over the control or the bulk channel, by its size; borrows it. */
void peer_push(struct peer *peer, const struct peer_value *value);
/* Writes the value to the slot that the peer has granted. Takes its contents. Errors:
 * INVALID_ARGUMENT. Loop thread. */
struct status *peer_write(struct peer *peer, const struct rdma_remote_slot *remote_slot,
                          struct peer_value *value_take) MUST_USE;
/* The value does not exist any more. Loop thread. */
void peer_decline(struct peer *peer, const struct rdma_remote_slot *remote_slot);

/* ---- pre-grants (worker/exchange/rendezvous.h) ---- */

/* How a value that the peer has not announced could be granted: not at all, by a remote slot, or
 * so that it may be pushed. A grant costs a message and memory, so nothing is gained where values
 * travel by reference. Any thread. */
enum peer_pregrant_way { PEER_PREGRANT_NONE, PEER_PREGRANT_WRITE, PEER_PREGRANT_PUSH };
enum peer_pregrant_way peer_pregrant_way(struct peer *peer);
/* Would this much more be too much? What is prepared, or waits for its value, takes at most half
 * of the memory that a device may use. */
static inline bool peer_pregrant_is_scarce(const struct allocator *allocator, size_t size_bytes) {
    int64_t in_use = atomic_load_explicit(&allocator->in_use_bytes, memory_order_relaxed);
    return allocator->limit_bytes > 0 && in_use + (int64_t)size_bytes > allocator->limit_bytes / 2;
}
/* For PEER_PREGRANT_WRITE: prepares a remote slot and sends its Grant. The grant's announcement
 * says what the slot is for. It has an allocator instead of a buffer: the memory is allocated
 * there, or prepared already. Then the value arrives as a Push, or on_pregrant_withdrawn is
 * called, or the peer is lost. False, with nothing done, when too many are granted. Any thread. */
bool peer_grant_early(struct peer *peer, const struct peer_grant *grant) MUST_USE;

/* A pre-grant that the peer has sent: one value may be sent by it, at any time. */
struct peer_pregrant {
    uint64_t n_losses, rdma_connection; /* that it belongs to */
    struct rdma_remote_slot remote_slot;
    bool has_remote_slot;
};
/* Loop thread; the slot may be NULL. */
struct peer_pregrant peer_pregrant_take(struct peer *peer,
                                        const struct rdma_remote_slot *remote_slot);
/* Sends the value by it, and takes its contents. Any thread. */
void peer_send_pregranted(struct peer *peer, const struct peer_pregrant *pregrant,
                          struct peer_value *value_take);
/* No value is sent by it. Any thread. */
void peer_drop_pregrant(struct peer *peer, const struct peer_pregrant *pregrant);

/* JSON rows for /statusz: task, incarnation, transport and why, queued bytes, heartbeat. */
void peer_table_describe(struct peer_table *table, struct str *out);

/* a JSON object: this task's device, or why there is none */
void peer_table_describe_rdma(struct peer_table *table, struct str *out);

/* This task's Hello, for its own connections and for answers. */
void peer_hello_write(struct str *out, const char *task, uint64_t incarnation, unsigned channel,
                      uint64_t expected_incarnation);

#endif
