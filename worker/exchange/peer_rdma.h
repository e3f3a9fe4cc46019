/* Exchanges large values between two tasks by RDMA: the sender writes them directly into the
 * receiver's memory. Each direction has its own connection, beside the pair's channels.
 *
 *     sender (connects)                               receiver
 *        RdmaOffer: its queue pair ─────────────────────►
 *        ◄──────────────── RdmaReply: its queue pair and a remote slot for the probe, or the reason
 *                                     why there is no connection
 *        ═══ the probe, a known pattern ════════════════►  checked: from now on grants carry slots
 *
 *        Announce ──────────────────────────────────────►
 *        ◄──────────────────────── Grant, with a slot     once the buffer is registered
 *        ═══ write; its last piece has the slot's number ►  withdrawn, then handed on like a Push
 *     or RdmaDecline ───────────────────────────────────►  withdrawn
 *        ◄──────────────────────── RdmaWithdrawn          the value may be pushed, if there is one
 *
 *        ◄──────────────── pre-grant: a slot, and what value it is for
 *        ═══ write, once the value exists ══════════════►  as above; RdmaDecline if another value
 *                                                          comes, or none
 *
 *        RdmaEnd: its queue pair is destroyed ──────────►  it ends its own, withdraws all slots
 *        ◄──────────────────────── RdmaWithdrawn … RdmaEnded
 *
 * All of these messages travel over the control channel, in order. A connection is proved before
 * any value depends on it, so a network that drops what it should carry (an MTU that is too large,
 * a missing path) costs half a second and no step.
 *
 * What is being written when a connection ends is pushed over the bulk channel, once its slot has
 * been withdrawn: no step fails because of it. With --rdma=require the peer is lost instead. A
 * connection is tried again after a minute; no grant waits for that.
 *
 * Pre-granted slots are taken from those that are prepared, if one has the size. When a value has
 * arrived in a pre-granted slot, another buffer of that size is registered for the next step, so
 * in a steady state a pre-grant waits for nothing. Each slot is used once. The peer does not know
 * of a prepared slot. It is dropped when it was not used for PEER_RDMA_PREPARED_MS, or when the
 * task is short of memory. Like a recycled block it counts for no device until it is used. A
 * pre-granted slot that ends with its connection leaves a grant by which the value may be pushed.
 * One that is declined leaves nothing, and its value, if there is one, is announced. A value whose
 * connection has ended is pushed once the receiver has said that the connection has ended.
 *
 * When may memory be used again? A receiver's buffer belongs to its pending write from the grant
 * until it has been withdrawn, whether its step still runs or not (rpc/rdma/rdma_in.h). A step that
 * ends gives up the value, not the memory. A buffer is withdrawn when its number has arrived, when
 * the sender declines, or when the queue pair has been destroyed, so at the latest when the peer
 * is lost. Each slot is answered once, by the write or by RdmaDecline, because the end of the
 * sender's step sends RdmaDecline too. A sender's value is held until its write has been
 * acknowledged, or the queue pair has been destroyed.
 *
 * Threads: the loop's, except for peer_rdma_grant, peer_rdma_pregrant and those that say so. */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_RDMA_H
#define MILLRACE_WORKER_EXCHANGE_PEER_RDMA_H

#include <pthread.h>

#include "rpc/rdma/rdma_in.h"
#include "rpc/rdma/rdma_out.h"
#include "worker/exchange/transport.h"
#include "worker/exchange/peer.h"

enum {
    PEER_RDMA_RETRY_MS = 60000,                      /* after a connection has failed */
    PEER_RDMA_PROBE_BYTES = 16384,                   /* several packets of the largest size */
    PEER_RDMA_MAX_PREPARED = RDMA_MAX_PREGRANTS / 2, /* prepared slots of one peer */
    PEER_RDMA_PREPARED_MS = 10000,                   /* how long one is kept unused */
};
#define PEER_RDMA_PREPARED_BYTES (1ll << 30) /* prepared, for all peers */

/* The task's settings. They outlive its peers. */
struct peer_rdma_setup {
    enum rdma_mode mode;
    struct rdma_device *device; /* NULL: none */
    char *why_not;              /* then */
    int64_t retry_ms;           /* after a connection has failed */
    int64_t prepared_bytes;     /* of all peers' prepared slots; loop thread */
};

/* What the peer does for its connections. */
struct peer_rdma_host {
    /* Queues and flushes a message; drops it when the peer is lost. */
    void (*send)(struct peer *peer, enum channel_kind kind, const struct wire_out *message);
    /* Hands a Push on, as if it had come over a channel. */
    struct status *(*deliver)(struct peer *peer, struct wire_message *message);
    /* struct peer_receiver's on_pregrant_withdrawn */
    void (*pregrant_withdrawn_)(struct peer *peer, const struct peer_grant *grant,
                                struct buffer *buffer);
    /* The peer is to be lost, with that status. It is lost after this call. */
    void (*fail)(struct peer *peer, struct status *why);
    /* Keeps the peer's memory until `release`. Any thread. */
    void (*hold)(struct peer *peer);
    void (*release)(struct peer *peer);
};

/* The moves between them are drawn in peer_rdma_internal.h. */
enum peer_out_state { OUT_NONE, OUT_OFFERED, OUT_PROVING, OUT_READY, OUT_ENDING };
enum peer_in_state { IN_NONE, IN_PROVING, IN_READY, IN_BROKEN, IN_ENDING };

struct peer_rdma {
    struct peer *peer;
    const char *task; /* its name; borrowed */
    struct peer_rdma_setup *setup;
    const struct peer_rdma_host *host;
    struct loop *loop;
    bool is_on; /* there is a control channel over TCP */

    uint8_t out_state; /* enum peer_out_state */
    struct rdma_out out;
    uint64_t out_connection;
    struct peer_write *probe;
    struct list writes; /* into slots that the peer has granted */
    struct str why_not_to;
    int64_t failed_ns; /* 0: the connection has not failed */
    bool is_refused;   /* not tried again over these channels */

    uint8_t in_state; /* enum peer_in_state */
    struct rdma_in in;
    uint64_t in_connection;
    uint64_t generation; /* of in_connection: nothing is said to the peer about earlier ones */
    pthread_mutex_t lock;
    struct list requested; /* pending writes that have not reached the loop; guarded by lock */
    _Atomic int
        n_pending_writes;    /* all, those in `requested` and `waiting` too, but no pre-granted */
    _Atomic int n_pregrants; /* pre-granted ones, without those that are prepared */
    struct list waiting;     /* until the connection is proved, or has credit */
    struct list pending_writes; /* of the connection */
    struct list prepared;       /* of the connection, for values that nobody waits for yet */
    struct str why_not_from;
    bool has_failed_from;           /* over these channels */
    _Atomic bool takes_grants;      /* read on any thread */
    _Atomic bool takes_pregrants;   /* likewise */
    _Atomic bool awaits_connection; /* likewise */

    /* n_instead: values that were pushed over TCP instead */
    uint64_t n_written, written_bytes, n_received, received_bytes, n_instead;
    double written_ns_per_byte; /* of large values, until they were acknowledged; 0: unknown */
    /* Pre-grants: sent; from prepared slots; received; written; declined, or their connection has
     * ended. */
    uint64_t n_pregranted, n_from_prepared, n_received_pregranted, n_written_pregranted,
        n_pregrants_ended;
};

/* `setup` and `host` are borrowed. */
void peer_rdma_init(struct peer_rdma *rdma, struct peer *peer, const char *task, struct loop *loop,
                    struct peer_rdma_setup *setup, const struct peer_rdma_host *host);
void peer_rdma_fini(struct peer_rdma *rdma); /* after peer_rdma_reset, and nothing holds the peer */

/* A control channel over TCP exists: connects if there is a device. */
void peer_rdma_begin(struct peer_rdma *rdma);
void peer_rdma_reset(struct peer_rdma *rdma);                /* the channels are closed */
void peer_rdma_tick(struct peer_rdma *rdma, int64_t now_ns); /* time to try again? */
bool peer_rdma_is_message(enum wire_type type);              /* one for peer_rdma_on_message? */
struct status *peer_rdma_on_message(struct peer_rdma *rdma,
                                    const struct wire_message *message) MUST_USE;

/* The receiver has credit for an announced value: true when its Grant, with a slot or without,
 * will be sent from here. `announcement` is the Announce's meta; buffers are borrowed. Any
 * thread. */
bool peer_rdma_grant(struct peer_rdma *rdma, const struct peer_grant *grant);
/* Is the value a pending write, so that its bytes must not be pushed? From peer_rdma_grant on. */
bool peer_rdma_is_pending_write(struct peer_rdma *rdma, uint64_t step, uint32_t edge,
                                uint64_t frame_iter);
static inline bool peer_rdma_has_pending_writes(const struct peer_rdma *rdma) {
    return atomic_load_explicit(&rdma->n_pending_writes, memory_order_acquire) > 0;
}

/* Is there, or may there soon be, a connection from the peer? Any thread, as the next two. */
static inline bool peer_rdma_awaits_connection(const struct peer_rdma *rdma) {
    return atomic_load_explicit(&rdma->awaits_connection, memory_order_acquire);
}
/* Can values be pre-granted by remote slots? True once the connection is proved. */
static inline bool peer_rdma_takes_pregrants(const struct peer_rdma *rdma) {
    return atomic_load_explicit(&rdma->takes_pregrants, memory_order_acquire);
}
/* As peer_grant_early (peer.h). */
bool peer_rdma_pregrant(struct peer_rdma *rdma, const struct peer_grant *grant) MUST_USE;
/* The connection that remote slots which arrive now belong to; 0: there is none. */
uint64_t peer_rdma_connection_to(const struct peer_rdma *rdma);
/* Sends a value by a pre-granted slot of that connection: writes it, or pushes it if the
 * connection has ended and the slot is withdrawn. Errors: INVALID_ARGUMENT, the slot has been
 * granted twice. */
struct status *peer_rdma_write_pregranted(struct peer_rdma *rdma, uint64_t connection,
                                          const struct rdma_remote_slot *remote_slot,
                                          struct peer_value *value_take) MUST_USE;

/* A Grant with a slot has come, for a value that exists: writes it there, or pushes it once the
 * slot is withdrawn. Errors: INVALID_ARGUMENT, there is no connection. */
struct status *peer_rdma_write(struct peer_rdma *rdma, const struct rdma_remote_slot *remote_slot,
                               struct peer_value *value_take) MUST_USE;
/* The value does not exist any more: declines the slot. */
void peer_rdma_decline(struct peer_rdma *rdma, const struct rdma_remote_slot *remote_slot);

bool peer_rdma_is_used(const struct peer_rdma *rdma);                   /* in some direction */
void peer_rdma_describe(const struct peer_rdma *rdma, struct str *out); /* a JSON object */

#endif
