/* A reliable queue pair with a completion queue of its own: what both ends of an RDMA line are
 * made of.
 *
 * A line goes one way. The sender's queue only posts writes and lets nobody do anything here;
 * the receiver's lets its peer write, by keys that it gives, and only takes notice of the ones
 * that carry a number. So nobody needs to agree on who opens a line, and the receiver can end
 * its half at any time, after which nothing lands.
 *
 *     rdma_queue_open ──► (addresses are exchanged over the control channel) ──► rdma_queue_connect ──► … ──► rdma_queue_close
 *
 * Loop thread. */
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
    RDMA_SEND_DEPTH = 64, /* writes under way at a time */
    /* numbers that may come before the loop looks: what may be granted at a time */
    RDMA_RECEIVE_DEPTH = 256,
    RDMA_COMPLETIONS_AT_ONCE = 16,
    RDMA_RETRY_TIMEOUT = 14, /* 4.096 µs · 2^14 = 67 ms until an unanswered packet goes again, */
    /* so many times: a dead peer is known in half a second (7 is for ever on some devices) */
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
    /* Each completion that is good, and the first that is not: then `why` says which verb and
     * how, and no more follow. Either may close the queue. */
    void (*on_completion)(void *owner, const struct ibv_wc *wc);
    void (*on_error)(void *owner, struct status *why);
    void *owner;
    bool is_failed, is_draining;
    bool *is_closed_inside; /* set while completions are handed on */
    struct ibv_wc batch[RDMA_COMPLETIONS_AT_ONCE];
    int n_batch, next_in_batch; /* taken from the device; handed on */
};

/* Errors: RESOURCE_EXHAUSTED, UNAVAILABLE; the queue is closed then. */
struct status *rdma_queue_open(struct rdma_queue *queue, struct rdma_device *device,
                               struct ibv_pd *pd, enum rdma_direction direction) MUST_USE;
/* Nothing more comes, and what has come already is handed on: the queue pair is in error, and
 * still to be closed. */
void rdma_queue_drain(struct rdma_queue *queue);
/* No callback comes after, and nothing is read, written or landed any more. May be called again. */
void rdma_queue_close(struct rdma_queue *queue);
static inline bool rdma_queue_is_open(const struct rdma_queue *queue) { return queue->qp != NULL; }

void rdma_queue_address(const struct rdma_queue *queue, struct rdma_address *ret);
/* Both must have each other's address. Errors: INVALID_ARGUMENT (not an address),
 * FAILED_PRECONDITION (another kind of link), UNAVAILABLE.
 */
struct status *rdma_queue_connect(struct rdma_queue *queue, const struct rdma_address *to) MUST_USE;

/* One more number may come. */
struct status *rdma_queue_post_receive(struct rdma_queue *queue) MUST_USE;
/* Writes bytes to the peer; with a number, it learns of it once these and all before are there.
 * `id` comes back in the completion. */
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

void rdma_queue_on_event(struct rdma_queue *queue); /* the device's */

#endif
