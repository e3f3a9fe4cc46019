/* A task's peers, for their own files: peer.c (the table, the loss of peers, sending),
 * peer_channels.c (opening and taking over channels, what comes in by them), peer_values.c
 * (values past the sockets, the status page), peer_streams.c (values over several sockets). */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_INTERNAL_H
#define MILLRACE_WORKER_EXCHANGE_PEER_INTERNAL_H

#include <pthread.h>

#include "common/base/map.h"
#include "rpc/wire/heartbeat.h"
#include "worker/exchange/peer.h"
#include "worker/exchange/peer_rdma.h"
#include "worker/exchange/peer_shm.h"
#include "worker/exchange/peer_streams.h"

struct peer_table {
    struct loop *loop;
    char *task;
    uint64_t incarnation;
    const struct peer_receiver *receiver;
    void *receiver_arg;
    peer_lost_fn *on_lost;
    void *on_lost_arg;
    bool is_closing, is_timer_closed;
    /* live ones, loop thread: the memory goes with the last, and the timer */
    int n_channels;
    struct loop_timer timer; /* ticks while there are channels */
    int64_t heartbeat_ms;
    bool uses_shm;
    struct shm_arena *arena;
    int64_t max_kept_bytes; /* in it, by one peer */
    struct tls *tls;        /* NULL: in the clear */
    bool uses_checksums;
    struct peer_rdma_setup rdma;
    unsigned n_streams;               /* sockets for a large value */
    int n_streams_to, n_streams_from; /* all peers; loop thread */
    _Atomic int n_holders;            /* of what works for some peer still */
    pthread_mutex_t lock;
    struct strmap peers; /* guarded by lock; changed on the loop thread only */
};

struct peer {
    struct peer_table *table;
    char *task;
    bool is_self;
    char *address, *unix_address; /* loop thread */
    /* Loop thread. What the task itself has said last in a Hello of its own; 0: nothing yet. No
     * registration changes it, since a master may not know better (peer_set_incarnation). */
    uint64_t incarnation;
    bool is_greeted; /* loop thread: said over the present channels; not while there is none */
    const struct transport *transport; /* loop thread; NULL before the first connection */
    struct str why;                    /* loop thread: why this transport */
    _Atomic int64_t in_flight_bytes;   /* the rendezvous' */
    _Atomic int64_t pregrant_bytes;    /* likewise */
    _Atomic int n_pending_pregrants;   /* likewise */
    /* there is a control channel over tcp; set on the loop thread */
    _Atomic bool pushes_pregranted;
    uint64_t n_losses;           /* loop thread */
    struct heartbeat heartbeat;  /* loop thread; on while there is a control channel */
    struct peer_streams streams; /* loop thread */
    struct peer_shm shm;
    struct peer_rdma rdma;
    pthread_mutex_t lock;
    /* Guarded by lock: steps that have pushed and are not acknowledged → STEP_RUNS_ON, or one
     * more than the last ping before the step's end; and the last ping. */
    struct u64map unacknowledged;
    uint64_t last_ping_id;
    /* the ones to send on, or NULL; guarded by lock, changed on the loop thread */
    struct transport_channel *channels[CHANNEL_N_KINDS];
    /* loop thread: opened by the other end while ours was there */
    struct transport_channel *extras[CHANNEL_N_KINDS];
    /* loop thread: of the control channels that each end has opened; 0: none */
    uint64_t epoch_here, epoch_there;
    /* loop thread: the other end opened the one in `channels` */
    bool is_adopted[CHANNEL_N_KINDS];
};

/* What `alloc` has read of the message that a channel receives, kept for its on_message. */
struct channel_input {
    bool is_read;
    struct edge_message edge; /* a Push's */
    struct arrival *arrival;  /* a Stripe's value */
    unsigned stripe;          /* and its number */
};
struct channel_input *peer_channel_input(struct transport_channel *channel); /* made when new */

void peer_table_free_when_done(struct peer_table *table); /* is it closed, and nothing left? */

void peer_lost(struct peer *peer, struct status *why);
void peer_drop_extra(struct peer *peer, int kind, struct status *why);
void peer_table_add_channel(struct peer_table *table); /* one more that lives */
void peer_on_channel_closed(void *owner, struct transport_channel *channel, struct status *why);

/* ---- peer_channels.c ---- */
void peer_open(struct peer *peer, enum channel_kind kind); /* unless it is there */
/* The task has said in a Hello which process it is. If it was another one before, what belongs to
 * that process alone is forgotten. Unacknowledged steps are not: a step of the new process may
 * have been sent what went to the old one. */
void peer_set_incarnation(struct peer *peer, uint64_t incarnation);
/* A stream to the peer, greeted; one reference for the caller. */
struct transport_channel *peer_open_stream(struct peer *peer, unsigned index);
/* Memory for a Push whose meta is `edge`, as struct wire_handlers says of `alloc`. */
struct buffer *peer_alloc_push(struct peer *peer, const struct wire_message *message,
                               const struct edge_message *edge, size_t size_bytes);

/* ---- peer_steps.c ---- */
/* Before the ping is queued: what its answer will acknowledge. */
void peer_steps_pinged(struct peer *peer, uint64_t ping_id);
void peer_steps_ponged(struct peer *peer, uint64_t ping_id);
/* Makes the channel the one to send on, and names on it the steps whose values may be lost. */
void peer_steps_publish(struct peer *peer, struct transport_channel *channel_take);
struct status *peer_steps_on_lost(struct peer *peer, struct span meta) MUST_USE;

/* ---- peer_values.c ---- */
extern const struct peer_rdma_host peer_rdma_host;
/* On the status page: "name":"ready", or why it is not. */
void peer_describe_way(struct str *out, const char *name, bool is_ready, const struct str *why_not);

#endif
