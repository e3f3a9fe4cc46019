/* The sender's half of an RDMA line: values go into the places that the peer has granted.
 *
 *   write ──► registering (device thread) ──► queued ──► posted, piece by piece ──► all acknowledged: on_written
 *                   │                          │            │
 *                   ├──► on_refused            └────────────┴── rdma_out_close: dropped; the owner knows which it has
 *                   └── rdma_out_close: dropped, on_abandoned when the thread lets go of it
 *
 * A value is read until its last piece has been acknowledged or the queue is closed; it keeps
 * its buffer until then. A message of the device has a largest size, so values are split, and
 * values under way take turns piece by piece. RC keeps the order: the last piece carries the
 * place's number, which the peer sees once all is there.
 *
 * Loop thread. */
#ifndef MILLRACE_RPC_RDMA_RDMA_OUT_H
#define MILLRACE_RPC_RDMA_RDMA_OUT_H

#include "rpc/rdma/rdma_remote_slot.h"
#include "rpc/rdma/rdma_queue.h"

enum { RDMA_PIECE_BYTES = 8 << 20 };

struct rdma_out;

/* A value on its way: embedded in its owner's record, which lives until on_written, on_refused
 * or on_abandoned, or else until the line has been closed. */
struct rdma_transfer {
    struct list link;
    struct rdma_out *out;
    struct rdma_job job;
    struct rdma_remote_slot remote_slot;
    struct buffer *buffer; /* one reference, the transfer's */
    const char *data;
    size_t size_bytes, n_posted, n_unacknowledged; /* the last: pieces */
    struct rdma_region *region;
    struct status *why;  /* registering has failed */
    bool is_registering; /* the device's thread has it: the record must stay */
    bool is_abandoned;
};

struct rdma_out_handlers {
    /* All of it is at the peer. The transfer is the owner's again, its buffer let go. */
    void (*on_written)(void *owner, struct rdma_transfer *transfer);
    /* Its memory cannot be registered: nothing was written. The transfer is the owner's again.
     * `why` is borrowed. */
    void (*on_refused)(void *owner, struct rdma_transfer *transfer, struct status *why);
    /* The line is over; rdma_out_close is the owner's next call. */
    void (*on_failed)(void *owner, struct status *why);
    /* The line was closed while it was being registered; that has ended now. */
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
/* Takes one more reference of the buffer, in which the bytes lie. */
void rdma_out_write(struct rdma_out *out, struct rdma_transfer *transfer,
                    const struct rdma_remote_slot *remote_slot, struct buffer *buffer,
                    const char *data, size_t size_bytes);
/* Ends the queue pair: nothing is read any more, and all transfers are the owner's again, but
 * those that are being registered (see on_abandoned). May be called again. */
void rdma_out_close(struct rdma_out *out);

#endif
