/* The receiver's half of an RDMA line: buffers that the peer may write into, one transfer each.
 *
 *     land ──► registering ──► granted ──► its number comes ──► withdrawing ──► on_received      nobody can write it any more
 *                  │ refused       │ the peer declines it ───► withdrawing ──► on_withdrawn
 *                  ▼               │ rdma_in_close: the queue pair is gone ──► withdrawing ──► on_withdrawn
 *              on_refused
 *
 * Why nothing is written that has another owner by then: a landing holds its buffer from the
 * grant until after rdma_unregister, whatever becomes of its step, and hands it on only then. A
 * peer that gets an answer (the number, or that it declines) wrong can only hurt itself: until
 * that answer the buffer waits, after it the key is void. Its key works in no other peer's queue
 * pair, since each line has a protection domain of its own. What a peer claims to have written
 * and has not holds whatever the memory held before.
 *
 * Places ahead, for values whose sender has not announced them, have limits of their own, so
 * that however long those values take, there is always a place for what is there.
 *
 * Loop thread; registering and withdrawing happen on the device's. */
#ifndef MILLRACE_RPC_RDMA_RDMA_IN_H
#define MILLRACE_RPC_RDMA_RDMA_IN_H

#include "common/base/map.h"
#include "rpc/rdma/rdma_out.h"

struct rdma_in;

/* That one peer can keep from being used again, by not served_call: more is not granted, but for
 * one value where nothing else is. */
#define RDMA_GRANTED_MAX_BYTES (4ll << 30)
#define RDMA_MAX_PREGRANT_BYTES (1ll << 30) /* besides: of places ahead */
enum { RDMA_MAX_PREGRANTS = RDMA_RECEIVE_DEPTH / 2 };

enum rdma_pending_write_state { RDMA_REGISTERING, RDMA_GRANTED, RDMA_WITHDRAWING };

/* Embedded in its owner's record, which lives until one of the handlers has been called for it. */
struct rdma_pending_write {
    struct rdma_in *in;
    struct rdma_domain *domain;
    struct rdma_job job;
    struct rdma_remote_slot remote_slot;
    struct buffer *buffer; /* one reference, the owner's again after the handler */
    size_t size_bytes;
    struct ibv_mr *mr;
    struct status *why; /* registering has failed */
    enum rdma_pending_write_state state;
    bool is_received; /* the number has come */
    bool is_orphan;   /* the line was closed */
    bool is_pregrant;
};

struct rdma_in_handlers {
    /* The peer may be told the place. */
    void (*on_granted)(void *owner, struct rdma_pending_write *pending);
    /* Its memory cannot be registered. `why` is borrowed. */
    void (*on_refused)(void *owner, struct rdma_pending_write *pending, struct status *why);
    /* All has been written, and nothing more will be. */
    void (*on_received)(void *owner, struct rdma_pending_write *pending);
    /* Nothing will be written: the peer has declined, or the line is over. */
    void (*on_withdrawn)(void *owner, struct rdma_pending_write *pending);
    /* The line is over: rdma_in_close is the owner's next call. */
    void (*on_failed)(void *owner, struct status *why);
};

struct rdma_in {
    struct rdma_queue queue;
    struct rdma_domain *domain;
    struct u64map pending_writes; /* by number: those of this line, in any state */
    uint32_t last_number;
    int64_t granted_bytes, pregrant_bytes; /* of these; the second: of places ahead */
    int n_pregrants;
    bool has_failed;
    const struct rdma_in_handlers *handlers;
    void *owner;
    uint64_t n_received, received_bytes;
};

struct status *rdma_in_open(struct rdma_in *in, struct rdma_device *device,
                            const struct rdma_in_handlers *handlers, void *owner) MUST_USE;
/* The peer's queue: numbers may come from now on. */
struct status *rdma_in_connect(struct rdma_in *in, const struct rdma_address *to) MUST_USE;
/* False when as many are granted as the queue takes, or as many bytes as may be. Takes a
 * reference of the buffer. */
bool rdma_in_add_write(struct rdma_in *in, struct rdma_pending_write *pending,
                       struct buffer *buffer, size_t size_bytes) MUST_USE;
/* The same for a place ahead. False beyond RDMA_MAX_PREGRANTS, RDMA_MAX_PREGRANT_BYTES, as
 * rdma_in_has_pregrant_credit says before there is a buffer.
 */
bool rdma_in_has_pregrant_credit(const struct rdma_in *in, size_t size_bytes);
bool rdma_in_add_pregranted(struct rdma_in *in, struct rdma_pending_write *pending,
                            struct buffer *buffer, size_t size_bytes) MUST_USE;
/* The peer will not write it, or was never told of it. Errors: INVALID_ARGUMENT, it was not
 * granted. */
struct status *rdma_in_decline(struct rdma_in *in, uint32_t number) MUST_USE;
/* Destroys the queue pair and withdraws all landings; on_withdrawn follows for each. May be
 * called again. */
void rdma_in_close(struct rdma_in *in);

#endif
