/* The receiver's half of an RDMA connection: buffers that the peer may write into. A pending write
 * is one buffer, for one value.
 *
 *   rdma_in_add_write ─► REGISTERING ─► GRANTED ─► its number arrives ─► WITHDRAWING ─► on_received
 *                            │             ├────► the peer declines ─► WITHDRAWING ─► on_withdrawn
 *                            ▼             └─────► rdma_in_close ────► WITHDRAWING ─► on_withdrawn
 *                        on_refused
 *
 * Nobody writes into memory that has another owner: a pending write holds its buffer until
 * rdma_unregister has returned, whatever happens to its step, and hands the buffer back only then.
 * A peer that sends a wrong number, or declines wrongly, harms only itself: the buffer waits until
 * then, and its key is void afterwards. A key works in no other peer's queue pair, because each
 * connection has its own protection domain. If a peer claims to have written what it has not, the
 * value is whatever the memory held before.
 *
 * A buffer may be in the memory of a device (a GPU). The device must have done whatever it was told
 * to do with the memory before the write is added. When on_received is called, the writes have been
 * flushed: the device's later work finds them.
 *
 * Pre-granted pending writes, for values that the sender has not announced, have limits of their
 * own. So there is always a slot for a value that exists, however long the others take.
 *
 * Threads: the loop's. Registering and withdrawing run on the device's thread. */
#ifndef MILLRACE_RPC_RDMA_RDMA_IN_H
#define MILLRACE_RPC_RDMA_RDMA_IN_H

#include "common/base/map.h"
#include "rpc/rdma/rdma_out.h"

struct rdma_in;

/* Memory that one peer can block by not answering. Beyond it nothing is granted, except one value
 * when nothing else is granted. */
#define RDMA_GRANTED_MAX_BYTES (4ll << 30)
#define RDMA_MAX_PREGRANT_BYTES (1ll << 30) /* in addition, for pre-granted ones */
enum { RDMA_MAX_PREGRANTS = RDMA_RECEIVE_DEPTH / 2 };

enum rdma_pending_write_state { RDMA_REGISTERING, RDMA_GRANTED, RDMA_WITHDRAWING };

/* Embedded in its owner's record. The record must live until one of the handlers has been called
 * with it. */
struct rdma_pending_write {
    struct rdma_in *in;
    struct rdma_domain *domain;
    struct rdma_job job;
    struct rdma_remote_slot remote_slot;
    struct buffer *buffer; /* one reference; the owner has it again after the handler */
    size_t size_bytes;
    struct ibv_mr *mr;
    struct status *why; /* registering failed with this */
    enum rdma_pending_write_state state;
    bool is_received; /* the number has arrived */
    bool is_orphan;   /* the connection was closed */
    bool is_pregrant;
};

struct rdma_in_handlers {
    /* The peer may be told the remote slot. */
    void (*on_granted)(void *owner, struct rdma_pending_write *pending);
    /* The memory cannot be registered. `why` is borrowed. */
    void (*on_refused)(void *owner, struct rdma_pending_write *pending, struct status *why);
    /* The value has been written, and the memory is withdrawn. */
    void (*on_received)(void *owner, struct rdma_pending_write *pending);
    /* Nothing will be written: the peer has declined, or the connection has ended. */
    void (*on_withdrawn)(void *owner, struct rdma_pending_write *pending);
    /* The connection has failed. The owner must call rdma_in_close next. */
    void (*on_failed)(void *owner, struct status *why);
};

struct rdma_in {
    struct rdma_queue queue;
    struct rdma_domain *domain;
    struct u64map pending_writes; /* by number, of this connection, in any state */
    uint32_t last_number;
    int64_t granted_bytes, pregrant_bytes; /* of these; of the pre-granted ones */
    int n_pregrants;
    bool has_failed;
    const struct rdma_in_handlers *handlers;
    void *owner;
    uint64_t n_received, received_bytes;
};

struct status *rdma_in_open(struct rdma_in *in, struct rdma_device *device,
                            const struct rdma_in_handlers *handlers, void *owner) MUST_USE;
/* Connects to the peer's queue. From now on numbers may arrive. */
struct status *rdma_in_connect(struct rdma_in *in, const struct rdma_address *to) MUST_USE;
/* Adds a pending write of `size_bytes` into the buffer, and takes a reference to the buffer.
 * False, with nothing done, when RDMA_RECEIVE_DEPTH are pending, or RDMA_GRANTED_MAX_BYTES. */
bool rdma_in_add_write(struct rdma_in *in, struct rdma_pending_write *pending,
                       struct buffer *buffer, size_t size_bytes) MUST_USE;
/* The same for a pre-granted one; its limits are RDMA_MAX_PREGRANTS and RDMA_MAX_PREGRANT_BYTES.
 * rdma_in_has_pregrant_credit tells before a buffer is allocated. */
bool rdma_in_has_pregrant_credit(const struct rdma_in *in, size_t size_bytes);
bool rdma_in_add_pregranted(struct rdma_in *in, struct rdma_pending_write *pending,
                            struct buffer *buffer, size_t size_bytes) MUST_USE;
/* Withdraws what the peer will not write, or was never told of. Errors: INVALID_ARGUMENT, the
 * number is not granted. */
struct status *rdma_in_decline(struct rdma_in *in, uint32_t number) MUST_USE;
/* Destroys the queue pair and withdraws all pending writes; a handler follows for each. May be
 * called again. */
void rdma_in_close(struct rdma_in *in);

#endif
