/* What the files of the table of peers share: peer.c (the table, the loss of peers, sending),
 * peer_channels.c (opening, taking over and reading channels), peer_steps.c (steps whose values are
 * not acknowledged), peer_links.c (what the links can do), peer_values.c (values by reference and
 * by RDMA, the status page), peer_streams.c (values over several sockets), and peer_arrivals.c
 * (stripes that arrive). */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_INTERNAL_H
#define MILLRACE_WORKER_EXCHANGE_PEER_INTERNAL_H

#include <pthread.h>

#include "common/base/map.h"
#include "rpc/wire/heartbeat.h"
#include "rpc/wire/link_report.h"
#include "worker/exchange/peer.h"
#include "worker/exchange/peer_pieces.h"
#include "worker/exchange/peer_rdma.h"
#include "worker/exchange/peer_shm.h"
#include "worker/exchange/peer_streams.h"

struct peer_table {
    struct loop *loop;
    char *task;
    uint64_t cluster; /* of a session; 0: the tasks' own */
    char *own_task;   /* this task's name in its own cluster; NULL: `task` */
    uint64_t incarnation;
    const struct peer_receiver *receiver;
    void *receiver_arg;
    peer_lost_fn *on_lost;
    void *on_lost_arg;
    bool is_closing, is_timer_closed;
    /* live channels; loop thread. The memory is freed after the last, and after the timer. */
    int n_channels;
    struct loop_timer timer; /* ticks while there are channels */
    int64_t heartbeat_ms;
    bool uses_shm;
    struct shm_arena *arena;
    int64_t max_kept_bytes; /* how much one peer may keep alive in the arena */
    struct tls *tls;        /* NULL: without TLS */
    bool uses_checksums;
    struct peer_rdma_setup rdma;
    unsigned n_streams; /* over how many sockets a large value is sent */
    /* open streams, of all peers; loop thread */
    int n_streams_to, n_streams_from;
    _Atomic int n_holders; /* records that still use a peer; they keep the memory */
    pthread_mutex_t lock;
    struct strmap peers; /* guarded by lock; changed on the loop thread only */
    int n_series;        /* loop thread: peers with has_series */
    size_t reported_to;  /* loop thread: the cursor in `peers` of the next report to a master */
};

/* Bytes that were exchanged with a peer, by the way that they took (enum link_way). */
struct peer_traffic {
    uint64_t sent_bytes[LINK_N_WAYS], received_bytes[LINK_N_WAYS];
};

struct peer {
    struct peer_table *table;
    char *task;
    char *own_task; /* loop thread: its name in its own cluster; NULL: `task` */
    bool is_self;
    bool has_series; /* of its own in the metrics; never changes, so no counter decreases */
    char *address, *unix_address; /* loop thread */
    /* Loop thread. The incarnation in the last Hello of the task itself; 0: there was none yet. A
     * registration does not change it, because a master may know less (peer_set_incarnation). */
    uint64_t incarnation;
    /* Loop thread. The incarnation was stated over the present channels. */
    bool is_greeted;
    /* set on the loop thread; NULL before the first connection */
    _Atomic(const struct transport *) transport;
    struct str why;                  /* loop thread: why this transport was chosen */
    _Atomic int64_t in_flight_bytes; /* the rendezvous', as are the next two */
    _Atomic int64_t pregrant_bytes;
    _Atomic int n_pending_pregrants;
    /* there is a control channel over tcp; set on the loop thread */
    _Atomic bool pushes_pregranted;
    _Atomic bool takes_pieces;  /* its Hello says so; set on the loop thread */
    uint64_t n_losses;          /* loop thread: how often the peer was lost */
    struct heartbeat heartbeat; /* loop thread; on while there is a control channel */
    struct peer_traffic ended;  /* loop thread: of sockets that have closed */
    struct peer_traffic shown;  /* loop thread: what was last shown, which never becomes less */
    double ns_per_byte; /* loop thread: of large values from the peer over a socket; 0: unknown */
    struct peer_streams streams; /* loop thread */
    struct peer_pieces pieces;   /* loop thread */
    struct peer_shm shm;
    struct peer_rdma rdma;
    pthread_mutex_t lock;
    /* Guarded by lock: steps that have pushed and are not acknowledged → STEP_RUNS_ON, or one
     * more than the id of the last ping before the step's end. */
    struct u64map unacknowledged;
    uint64_t last_ping_id; /* guarded by lock */
    /* the channels to send on, or NULL; guarded by lock, changed on the loop thread */
    struct transport_channel *channels[CHANNEL_N_KINDS];
    /* loop thread: channels that the other end opened while there was one of ours */
    struct transport_channel *extras[CHANNEL_N_KINDS];
    /* loop thread: the epochs of the control channels that each end has opened; 0: none */
    uint64_t epoch_here, epoch_there;
    /* loop thread: the channel in `channels` was opened by the other end */
    bool is_adopted[CHANNEL_N_KINDS];
};

/* What `alloc` has decoded of the message that a channel receives, kept for its on_message. */
struct channel_input {
    bool is_read;
    int64_t since_ns;         /* when a large Push began; 0: it is not measured */
    struct edge_message edge; /* a Push's */
    struct arrival *arrival;  /* a Stripe's value */
    unsigned stripe;          /* its index */
};
/* Returns the channel's record, which it makes at first use. */
struct channel_input *peer_channel_input(struct transport_channel *channel);

/* ---- peer.c ---- */
/* Frees the table if it is closed and nothing uses it any more. */
void peer_table_free_when_done(struct peer_table *table);
/* Closes all channels of the peer and calls on_lost. `why` is borrowed. */
void peer_lost(struct peer *peer, struct status *why);
void peer_drop_extra(struct peer *peer, int kind, struct status *why);
void peer_table_add_channel(struct peer_table *table); /* counts one more live channel */
/* A transport's on_closed for every channel of a peer. */
void peer_on_channel_closed(void *owner, struct transport_channel *channel, struct status *why);

/* ---- peer_channels.c ---- */
void peer_open(struct peer *peer, enum channel_kind kind); /* opens the channel unless it exists */
/* A Hello of the task has stated which process it is. If that has changed, drops what belonged to
 * the old process. Keeps unacknowledged steps, because values for a step of the new process may
 * have been sent to the old one. */
void peer_set_incarnation(struct peer *peer, uint64_t incarnation);
/* Opens a stream to the peer and sends its Hello. The caller holds one reference. */
struct transport_channel *peer_open_stream(struct peer *peer, unsigned index);
/* Returns memory for a Push whose decoded meta is `edge`, with the contract of `alloc` in struct
 * wire_handlers. */
struct buffer *peer_alloc_push(struct peer *peer, const struct wire_message *message,
                               const struct edge_message *edge, size_t size_bytes);

/* ---- peer_steps.c ---- */
/* To be called before a ping is queued: notes which steps its reply will acknowledge. */
void peer_steps_pinged(struct peer *peer, uint64_t ping_id);
/* The reply has arrived: forgets the steps that it acknowledges. */
void peer_steps_ponged(struct peer *peer, uint64_t ping_id);
/* Makes the control channel the one to send on, after a message on it that names the steps whose
 * values may be lost. */
void peer_steps_publish(struct peer *peer, struct transport_channel *channel_take);
/* A LostSteps message has arrived. Errors: INVALID_ARGUMENT. */
struct status *peer_steps_on_lost(struct peer *peer, struct span meta) MUST_USE;

/* ---- peer_page.c ---- */
/* A channel of the peer has closed: counts what it has moved. */
void peer_count_ended(struct peer *peer, struct transport_channel *channel);

/* ---- peer_values.c ---- */
const char *peer_transport_name(const struct peer *peer); /* "": there is no connection */
/* How large values travel; UNKNOWN without a connection. */
enum link_way peer_link_way(const struct peer *peer);
enum link_way peer_socket_way(const struct peer *peer); /* how small ones do; likewise */
extern const struct peer_rdma_host peer_rdma_host;
/* Appends a member of a JSON object: "name":"ready", or the reason why it is not. */
void peer_describe_way(struct str *out, const char *name, bool is_ready, const struct str *why_not);
/* Queues a message and flushes. Loop thread. */
void peer_send(struct peer *peer, enum channel_kind kind, const struct wire_out *message);
/* A record uses the peer from now on, until peer_release, and keeps the table's memory. */
void peer_hold(struct peer *peer);
void peer_release(struct peer *peer);

#endif
