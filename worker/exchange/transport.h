/* Chooses how two tasks exchange tensors. The transports are rows of a table, and the first row
 * that accepts a pair of tasks is used.
 *
 *   local   both ends are this task: values meet in the step's own table, without a channel
 *   shm     two tasks of one host and user: as unix, and large values in the sender's arena are
 *           sent as references into it (worker/exchange/peer_shm.h)
 *   unix    two tasks of one host and network namespace: a Unix socket
 *   rdma    this task has an RDMA device: as tcp, and large values are written into the receiver's
 *           memory if the two devices reach each other (worker/exchange/peer_rdma.h)
 *   tcp     every other pair
 *
 * A channel carries messages of the worker wire (rpc/wire/wire.h) between two tasks, in order and
 * in both directions. A pair has a control channel for small messages and a bulk channel for large
 * payloads, so that a small message never waits for a large one. Very large values may have further
 * channels (worker/exchange/peer_streams.h). A task that maps the other one's arena opens a channel
 * for that arena, which lives as long as both processes even if other channels break. */
#ifndef MILLRACE_WORKER_EXCHANGE_TRANSPORT_H
#define MILLRACE_WORKER_EXCHANGE_TRANSPORT_H

#include <stdatomic.h>

#include "rpc/wire/wire.h"

struct transport;

enum channel_kind {
    CHANNEL_CONTROL,
    CHANNEL_BULK,
    CHANNEL_N_KINDS,
    CHANNEL_ARENA = CHANNEL_N_KINDS,
    /* 3 is CHANNEL_PEER_CALLS (worker/exchange/peer_call.h). Stream i has CHANNEL_STREAM + i, from
     * 1 on (worker/exchange/peer_streams.h). */
    CHANNEL_STREAM = 4,
};

/* One end of a pair. Strings are borrowed for the call. Fields marked "here" are of this task,
 * those marked "there" of the other one. */
struct transport_endpoint {
    const char *task; /* "/job:ps/replica:0/task:0" */
    uint64_t incarnation;
    const char *address;      /* "host:port" */
    const char *unix_address; /* "unix:@…"; "" if the other end cannot reach one */
    bool uses_shm;            /* here: arenas are not switched off */
    /* there: TCP uses TLS, and the other end must be `own_task`; NULL: without TLS */
    struct tls *tls;
    const char *own_task;    /* there: its name in its own cluster, which its certificate proves */
    bool uses_checksums;     /* there: messages carry checksums */
    bool uses_rdma;          /* here: there is an RDMA device */
    const char *why_no_rdma; /* here: if there is none */
};

/* The fields that the channels of all transports begin with. */
struct transport_channel {
    const struct transport *transport;
    enum channel_kind kind;
    const struct transport_handlers *handlers;
    void *owner;
    /* The owner's record of the message that is being received, malloc'd; the channel frees it.
     * Loop thread. */
    void *input;
    _Atomic uint32_t n_refs;
};

/* What a channel calls, on the loop thread. The contracts are those of struct wire_handlers. */
struct transport_handlers {
    void (*on_message)(void *owner, struct transport_channel *channel,
                       struct wire_message *message);
    struct buffer *(*alloc)(void *owner, struct transport_channel *channel,
                            const struct wire_message *message, size_t size_bytes);
    void (*on_closed)(void *owner, struct transport_channel *channel, struct status *why);
};

struct transport {
    const char *name;
    /* Can it serve this pair? `why` gets the reason for either answer, for the status page ("the
     * same host"). Any thread. */
    bool (*accepts)(const struct transport_endpoint *here, const struct transport_endpoint *there,
                    struct str *why);
    /* Opens a channel to `there`; the caller holds one reference. Messages that are queued
     * meanwhile are sent once it is connected. A connection that cannot be made ends with
     * on_closed. Returns NULL for `local`, which needs no channel. Loop thread. */
    struct transport_channel *(*open)(struct loop *loop, const struct transport_endpoint *there,
                                      enum channel_kind kind,
                                      const struct transport_handlers *handlers, void *owner);
    /* Queues a message. Never blocks and never fails. Copies the meta and shares the tensors. Any
     * thread. */
    void (*queue)(struct transport_channel *channel, const struct wire_out *message);
    /* Writes what is queued. Any thread. */
    void (*flush)(struct transport_channel *channel);
    size_t (*queued_bytes)(struct transport_channel *channel); /* any thread */
    /* Ends the channel; on_closed follows on the loop. Any thread. */
    void (*close)(struct transport_channel *channel, struct status *why_take);
    /* Returns memory for a value that will be received, so that it is received without a further
     * copy. NULL: memory is exhausted, or the allocator's limit is reached. Any thread. */
    struct buffer *(*alloc)(struct allocator *allocator, size_t size_bytes);
    /* Frees the channel after its last reference was dropped and on_closed was called. */
    void (*free)(struct transport_channel *channel);
};

/* The rows, in the order in which they are asked. */
extern const struct transport *const transports[];
extern const size_t n_transports;
extern const struct transport transport_local, transport_shm, transport_unix, transport_rdma,
    transport_tcp;

/* Returns the first row that accepts the pair; never NULL. Appends to `why` its reason and those of
 * the rows that refused. Any thread. */
const struct transport *transport_choose(const struct transport_endpoint *here,
                                         const struct transport_endpoint *there, struct str *why);

static inline struct transport_channel *transport_channel_ref(struct transport_channel *channel) {
    atomic_fetch_add_explicit(&channel->n_refs, 1, memory_order_relaxed);
    return channel;
}
static inline void transport_channel_unref(struct transport_channel *channel) {
    if (channel && atomic_fetch_sub_explicit(&channel->n_refs, 1, memory_order_acq_rel) == 1)
        channel->transport->free(channel);
}

/* Makes a channel of a connection that the other end has opened, after its Hello was read. The
 * caller holds one reference. Loop thread. */
struct transport_channel *transport_socket_adopt(struct wire_conn *conn_take,
                                                 enum channel_kind kind,
                                                 const struct transport_handlers *handlers,
                                                 void *owner);
/* Returns the connection of a channel; borrowed. All channels are over sockets. */
struct wire_conn *transport_socket_conn(struct transport_channel *channel);

#endif
