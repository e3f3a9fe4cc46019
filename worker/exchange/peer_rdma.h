/* Large values written straight into another task's memory, over the network: what a pair of
 * tasks does beside its sockets.
 *
 *     sender (opens the line)                         receiver
 *        RdmaOffer: its queue pair ───────────────────────►
 *        ◄────────────────────── RdmaReply: its queue pair, and a place to prove the line on; or the reason why not
 *        ═══ write of a known pattern ═══════════════════►    checked: from now on grants carry places
 *
 *        Announce ────────────────────────────────────────►
 *        ◄──────────────────────────────── Grant with a place    once the buffer is registered
 *        ═══ write, its last piece with the place's number ═►  withdrawn, then handed on as a Push would be
 *      or RdmaDecline ────────────────────────────────────►    withdrawn
 *        ◄──────────────────────────────── RdmaWithdrawn         now the value may come as a Push, if there is one
 *
 *        ◄────────────────── Grant ahead: with a place, and what it is for
 *        ═══ write, once the value is there ═══════════════►   as above; or RdmaDecline where another one has come, or none
 *
 *        RdmaEnd: its queue pair is gone ─────────────────►    it ends its own, and withdraws all places
 *        ◄──────────────────────────────── RdmaWithdrawn … RdmaEnded
 *
 * All of this goes over the control channel, in order; each direction has a line of its own. A
 * line is proved before any value depends on it, so a network that drops what it should carry
 * (an MTU too large, a path that is not there) costs half a second and no step.
 *
 * What is under way when a line ends is pushed over the bulk channel once its place has been
 * withdrawn: no step fails by it. Under `require` the peer is lost instead. A line is tried
 * again after a minute; no grant waits for that.
 *
 * Places ahead are taken from those that are prepared, where one has the size: when a value has
 * landed in one, another of its size is registered for the next step, so that in a steady state
 * a grant ahead waits for nothing. Each is still used once. A prepared place is unknown to the
 * peer; it goes when it was not wanted for a while, or when the task is short of memory. As a
 * recycled block it counts for no device until it is used, so no step finds less memory because
 * of it. A place ahead that ends with its line leaves a grant that the value may be pushed by,
 * as any other; one that is declined leaves none, and its value, if one comes, is announced; a
 * value that comes after its line has ended is pushed once the receiver has said that the line
 * has ended.
 *
 * When may memory be used again? A receiver's buffer belongs to its landing from the grant until
 * it has been withdrawn, whether its step still lives or not (rpc/rdma/rdma_in.h); a step that
 * ends gives up its claim on the value, not the memory. It is withdrawn when the number has
 * come, when the sender declines, or when the queue pair has been destroyed: so at the latest
 * when the peer is lost. Each place is answered once, by the write or by RdmaDecline, since the
 * sender's end of a step answers with RdmaDecline too. A sender's value is held by its write
 * until it has been acknowledged or the queue pair has been destroyed.
 *
 * Loop thread, but for peer_rdma_grant, peer_rdma_pregrant and what says otherwise. */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_RDMA_H
#define MILLRACE_WORKER_EXCHANGE_PEER_RDMA_H

#include <pthread.h>

#include "rpc/rdma/rdma_in.h"
#include "rpc/rdma/rdma_out.h"
#include "worker/exchange/transport.h"
#include "worker/exchange/peer.h"

enum {
    PEER_RDMA_RETRY_MS = 60000,    /* after a line has failed */
    PEER_RDMA_PROBE_BYTES = 16384, /* several packets of the largest size */
    /* places of a peer, between the steps that use them, */
    PEER_RDMA_MAX_PREPARED = RDMA_MAX_PREGRANTS / 2,
    PEER_RDMA_PREPARED_MS = 10000, /* for so long, */
};
#define PEER_RDMA_PREPARED_BYTES (1ll << 30) /* and of all peers */

/* Of the task; outlives its peers. */
struct peer_rdma_setup {
    enum rdma_mode mode;
    struct rdma_device *device; /* NULL: none */
    char *why_not;              /* then */
    int64_t retry_ms;           /* after a line has failed */
    int64_t prepared_bytes;     /* of all peers' prepared places; loop thread */
};

/* What the peer does for its lines. */
struct peer_rdma_host {
    /* and flush; dropped where it is lost */
    void (*send)(struct peer *peer, enum channel_kind kind, const struct wire_out *message);
    /* a Push */
    struct status *(*deliver)(struct peer *peer, struct wire_message *message);
    /* struct peer_receiver's on_pregrant_withdrawn */
    void (*pregrant_withdrawn_)(struct peer *peer, const struct peer_grant *grant,
                                struct buffer *buffer);
    /* it is lost soon, with that status */
    void (*fail)(struct peer *peer, struct status *why);
    /* its memory stays. Any thread. */
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
    bool is_on; /* there is a control channel, over tcp */

    uint8_t out_state; /* enum peer_out_state */
    struct rdma_out out;
    uint64_t out_connection;
    struct peer_write *probe;
    struct list writes; /* that the peer has granted */
    struct str why_not_to;
    int64_t failed_ns; /* 0: the line has not failed */
    bool is_refused;   /* not tried again over these channels */

    uint8_t in_state; /* enum peer_in_state */
    struct rdma_in in;
    uint64_t in_connection;
    uint64_t generation; /* of in_connection: what belongs to one before is not talked about */
    pthread_mutex_t lock;
    struct list requested; /* landings that have not come to the loop yet; guarded by lock */
    _Atomic int
        n_pending_writes;       /* all that there are, asked and waiting ones too, but none ahead */
    _Atomic int n_pregrants;    /* of those ahead: all but the prepared ones */
    struct list waiting;        /* landings, until the line is proved or has room */
    struct list pending_writes; /* of the line */
    struct list prepared;       /* of the line, for values that nobody waits for yet */
    struct str why_not_from;
    bool has_failed_from;           /* over these channels */
    _Atomic bool takes_grants;      /* read on any thread */
    _Atomic bool takes_pregrants;   /* likewise */
    _Atomic bool awaits_connection; /* likewise */

    /* the last: values pushed over tcp in their place */
    uint64_t n_written, written_bytes, n_received, received_bytes, n_instead;
    /* Ahead: of those granted, from prepared places; landed; written; declined, or the line has
     * ended. */
    uint64_t n_pregranted, n_from_prepared, n_received_pregranted, n_written_pregranted,
        n_pregrants_ended;
};

/* `setup` and `host` are borrowed. */
void peer_rdma_init(struct peer_rdma *rdma, struct peer *peer, const char *task, struct loop *loop,
                    struct peer_rdma_setup *setup, const struct peer_rdma_host *host);
void peer_rdma_fini(struct peer_rdma *rdma); /* after peer_rdma_reset, and nothing holds the peer */

/* a control channel over tcp has come about */
void peer_rdma_begin(struct peer_rdma *rdma);
void peer_rdma_reset(struct peer_rdma *rdma);                /* the channels are gone */
void peer_rdma_tick(struct peer_rdma *rdma, int64_t now_ns); /* time to try again? */
bool peer_rdma_is_message(enum wire_type type);              /* one for peer_rdma_on_message? */
struct status *peer_rdma_on_message(struct peer_rdma *rdma,
                                    const struct wire_message *message) MUST_USE;

/* The receiver has room for an announced value: true when its Grant, with a place or without
 * one, will be sent from here. `announcement` is the Announce's meta; buffers are borrowed. Any
 * thread. */
bool peer_rdma_grant(struct peer_rdma *rdma, const struct peer_grant *grant);
/* Must its bytes not come as a Push now? From the moment of peer_rdma_grant on. */
bool peer_rdma_is_pending_write(struct peer_rdma *rdma, uint64_t step, uint32_t edge,
                                uint64_t frame_iter);
static inline bool peer_rdma_has_pending_writes(const struct peer_rdma *rdma) {
    return atomic_load_explicit(&rdma->n_pending_writes, memory_order_acquire) > 0;
}

/* Is there, or may there soon be, a line that values come by? Any thread, as the next two. */
static inline bool peer_rdma_awaits_connection(const struct peer_rdma *rdma) {
    return atomic_load_explicit(&rdma->awaits_connection, memory_order_acquire);
}
/* Places ahead (peer.h): the line is proved. */
static inline bool peer_rdma_takes_pregrants(const struct peer_rdma *rdma) {
    return atomic_load_explicit(&rdma->takes_pregrants, memory_order_acquire);
}
/* false: as many are granted as may be */
bool peer_rdma_pregrant(struct peer_rdma *rdma, const struct peer_grant *grant) MUST_USE;
/* The line to the peer, that places which come now belong to; 0: none. */
uint64_t peer_rdma_connection_to(const struct peer_rdma *rdma);
/* A value for a place ahead of that line: written there, or pushed where the line is no more and
 * the place withdrawn. Errors: INVALID_ARGUMENT, the place has been granted twice. */
struct status *peer_rdma_write_pregranted(struct peer_rdma *rdma, uint64_t connection,
                                          const struct rdma_remote_slot *remote_slot,
                                          struct peer_value *value_take) MUST_USE;

/* A Grant with a place has come, for a value that is here: it is written there, or pushed when
 * the place is withdrawn. Errors: INVALID_ARGUMENT, there is no line. */
struct status *peer_rdma_write(struct peer_rdma *rdma, const struct rdma_remote_slot *remote_slot,
                               struct peer_value *value_take) MUST_USE;
/* The same for one that is not. */
void peer_rdma_decline(struct peer_rdma *rdma, const struct rdma_remote_slot *remote_slot);

bool peer_rdma_is_used(const struct peer_rdma *rdma);                   /* in some direction */
void peer_rdma_describe(const struct peer_rdma *rdma, struct str *out); /* a JSON object */

#endif
