/* The sender's half of an RDMA connection: writes values into the remote slots that the peer has
 * granted.
 *
 *   rdma_out_write ─► registering (device's thread) ─► queued ─► posted in pieces
 *                         │                                          │
 *                         └─► on_refused                            └─► acknowledged: on_written
 *
 * rdma_out_close drops transfers in any of these states. The owner knows which it has; for one that
 * is being registered, on_abandoned follows once the thread has finished.
 *
 * A transfer holds its buffer until the last piece has been acknowledged, or the queue is closed:
 * until then the device reads the memory. The device limits the size of a message, so values are
 * split, and the pieces of all values are posted in turn. The connection keeps the order: the last
 * piece carries the slot's number, which the peer sees once the whole value has arrived.
 *
 * A value may be in the memory of a device (a GPU), once the device has done the work that makes
 * the value.
 *
 * Threads: the loop's. */
#ifndef MILLRACE_RPC_RDMA_RDMA_OUT_H
#define MILLRACE_RPC_RDMA_RDMA_OUT_H

#include "rpc/rdma/rdma_remote_slot.h"
#include "rpc/rdma/rdma_queue.h"

enum { RDMA_PIECE_BYTES = 8 << 20 };

struct rdma_out;

/* A value that is being sent. Embedded in its owner's record, which must live until on_written,
 * on_refused or on_abandoned, or until the connection has been closed. */
struct rdma_transfer {
    struct list link;
    struct rdma_out *out;
    struct rdma_job job;
    struct rdma_remote_slot remote_slot;
    struct buffer *buffer; /* one reference, the transfer's */
    const char *data;
    size_t size_bytes, n_posted; /* n_posted: bytes that have been posted */
    size_t n_unacknowledged;     /* pieces */
    int64_t begun_ns;            /* when the first one was posted */
    struct rdma_region *region;
    struct status *why;  /* registering failed with this */
    bool is_registering; /* the device's thread uses the record */
    bool is_abandoned;
};

struct rdma_out_handlers {
    /* The whole value has arrived. The transfer belongs to the owner again, its buffer is
     * released. */
    void (*on_written)(void *owner, struct rdma_transfer *transfer);
    /* The memory cannot be registered, and nothing was written. The transfer belongs to the
     * owner again. `why` is borrowed. */
    void (*on_refused)(void *owner, struct rdma_transfer *transfer, struct status *why);
    /* The connection has failed. The owner must call rdma_out_close next. */
    void (*on_failed)(void *owner, struct status *why);
    /* The connection was closed while the memory was being registered, which has ended now. */
    void (*on_abandoned)(struct rdma_transfer *transfer);
};

struct rdma_out {
    struct rdma_queue queue;
    struct list registering, queued, posted;
    int n_posted; /* pieces in the queue pair */
    struct status *why_failed;
    const struct rdma_out_handlers *handlers;
    void *owner;
    uint64_t n_written, written_bytes;
};

struct status *rdma_out_open(struct rdma_out *out, struct rdma_device *device,
                             const struct rdma_out_handlers *handlers, void *owner) MUST_USE;
/* Sends `data`, which is inside the buffer; takes a reference to the buffer. */
void rdma_out_write(struct rdma_out *out, struct rdma_transfer *transfer,
                    const struct rdma_remote_slot *remote_slot, struct buffer *buffer,
                    const char *data, size_t size_bytes);
/* Destroys the queue pair: nothing is read after that. All transfers belong to the owner again,
 * except those that are being registered (on_abandoned). May be called again. */
void rdma_out_close(struct rdma_out *out);

#endif
