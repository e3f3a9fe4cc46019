/* A reliable queue pair with its own completion queue. Both halves of an RDMA connection are one.
 *
 * A connection has one direction. The sender's queue only posts writes, and gives its peer no
 * rights. The receiver's queue lets its peer write, by keys that the receiver hands out, and is
 * told of those writes that carry a number. So the two ends need not agree on who connects, and
 * the receiver may end its half at any time. Nothing is written here after that.
 *
 *     rdma_queue_open ──► addresses are exchanged over the control channel
 *                     ──► rdma_queue_connect ──► … ──► rdma_queue_close
 *
 * Threads: the loop's. */
#ifndef MILLRACE_RPC_RDMA_RDMA_QUEUE_H
#define MILLRACE_RPC_RDMA_RDMA_QUEUE_H

#include "rpc/rdma/rdma_device.h"

/* Where a queue can be reached. What comes from a peer is checked by rdma_queue_connect. */
struct rdma_address {
    uint32_t qpn, psn;
    uint8_t gid[16];
    uint32_t lid;
    uint32_t mtu; /* enum ibv_mtu */
    bool is_ethernet;
    uint64_t max_message_bytes;
};

enum rdma_direction { RDMA_SENDS, RDMA_RECEIVES };

enum {
    RDMA_SEND_DEPTH = 64, /* writes that may be in the queue pair at one time */
    /* numbers that may arrive before the loop looks, so as many slots are granted at one time */
    RDMA_RECEIVE_DEPTH = 256,
    RDMA_COMPLETIONS_AT_ONCE = 16,
    RDMA_RETRY_TIMEOUT = 14, /* a packet is sent again after 4.096 µs · 2^14 = 67 ms */
    /* and this many times, so a dead peer is noticed in half a second (7 means for ever on some
     * devices) */
    RDMA_RETRY_COUNT = 6,
};

struct rdma_queue {
    struct rdma_device *device;
    enum rdma_direction direction;
    struct ibv_pd *pd; /* borrowed */
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    uint32_t psn;
    uint64_t max_message_bytes; /* of both ends, once connected */
    /* on_completion is called for each successful completion. on_error is called for the first
     * that failed; `why` (borrowed) names the verb and the error, and no call follows. Both may
     * close the queue. */
    void (*on_completion)(void *owner, const struct ibv_wc *wc);
    void (*on_error)(void *owner, struct status *why);
    void *owner;
    bool is_failed, is_draining;
    bool *is_closed_inside; /* not NULL while completions are handed on: set by a close */
    struct ibv_wc batch[RDMA_COMPLETIONS_AT_ONCE];
    int n_batch, next_in_batch; /* taken from the device; of them handed on */
};

/* Errors: RESOURCE_EXHAUSTED, UNAVAILABLE. The queue is then closed. `pd` and `device` are
 * borrowed until rdma_queue_close. */
struct status *rdma_queue_open(struct rdma_queue *queue, struct rdma_device *device,
                               struct ibv_pd *pd, enum rdma_direction direction) MUST_USE;
/* Puts the queue pair into the error state, so that nothing more arrives, and hands on the
 * completions that have arrived. The queue must still be closed. */
void rdma_queue_drain(struct rdma_queue *queue);
/* Destroys the queue pair. No callback is called afterwards, and the device neither reads nor
 * writes memory for this queue. May be called again. */
void rdma_queue_close(struct rdma_queue *queue);
static inline bool rdma_queue_is_open(const struct rdma_queue *queue) { return queue->qp != NULL; }

void rdma_queue_address(const struct rdma_queue *queue, struct rdma_address *ret);
/* Connects to the peer's queue; the peer has to do the same with this one's address. Errors:
 * INVALID_ARGUMENT (not an address), FAILED_PRECONDITION (another kind of link), UNAVAILABLE. */
struct status *rdma_queue_connect(struct rdma_queue *queue, const struct rdma_address *to) MUST_USE;

/* Lets one more number arrive. Errors: UNAVAILABLE. */
struct status *rdma_queue_post_receive(struct rdma_queue *queue) MUST_USE;
/* A write of bytes to the peer. With a number, the peer is told of it once these bytes and all
 * earlier ones have arrived. `id` returns in the completion. */
struct rdma_write {
    uint64_t id;
    const char *data;
    uint32_t key, size_bytes;
    uint64_t to;
    uint32_t to_key, number;
    bool has_number;
};
struct status *rdma_queue_post_write(struct rdma_queue *queue,
                                     const struct rdma_write *write) MUST_USE;

void rdma_queue_on_event(struct rdma_queue *queue); /* called by the device */

#endif
