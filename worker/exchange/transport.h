/* How two tasks exchange tensors: one table of rows, asked in order, the first that accepts a
 * pair wins.
 *
 *   local   both ends are this task: values meet in the step's own table, there is no channel
 *   shm     two tasks of one host and user: as unix, and large values that lie in the sender's
 *           arena travel as references into it
 *           (worker/exchange/peer_shm.h)
 *   unix    two tasks of one host and network namespace, over a Unix socket
 *   rdma    this task has an RDMA device: as tcp, and large values are written straight into the
 *           receiver's memory where the pair's devices
 *           reach each other (worker/exchange/peer_rdma.h)
 *   tcp     everything else
 *
 * A channel carries the messages of the worker wire (rpc/wire/wire.h) between two tasks, in
 * order, in both directions. A pair has a control channel for what is small and a bulk channel
 * for large payloads, so that a small message never waits behind a large one; very large ones
 * may have more (worker/exchange/peer_streams.h). Where arenas are shared there is one channel
 * more for each of the two, opened by who maps it: it lives as long as both processes, whatever
 * becomes of the others. */
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
    /* and more: CHANNEL_STREAM + 1 is the first (worker/exchange/peer_streams.h); 3 is
     * worker/exchange/peer_call.h's */
    CHANNEL_STREAM = 4,
};

/* One end of a pair. Text is borrowed for the call. */
struct transport_endpoint {
    const char *task; /* "/job:ps/replica:0/task:0" */
    uint64_t incarnation;
    const char *address;      /* "host:port" */
    const char *unix_address; /* "unix:@…"; "" where there is none that the other end can reach */
    bool uses_shm;            /* here: arenas are not switched off */
    /* there: TCP speaks TLS, and the other end must be `task`; NULL: in the clear */
    struct tls *tls;
    bool uses_checksums;     /* there: messages carry checksums */
    bool uses_rdma;          /* here: there is an RDMA device */
    const char *why_no_rdma; /* else */
};

/* The common head of every transport's channel. */
struct transport_channel {
    const struct transport *transport;
    enum channel_kind kind;
    const struct transport_handlers *handlers;
    void *owner;
    /* The owner's memory for what it has read of the message that is being received; free'd
     * with the channel. Loop thread. */
    void *input;
    _Atomic uint32_t n_refs;
};

/* What comes out of a channel; loop thread. The contracts are those of struct wire_handlers. */
struct transport_handlers {
    void (*on_message)(void *owner, struct transport_channel *channel,
                       struct wire_message *message);
    struct buffer *(*alloc)(void *owner, struct transport_channel *channel,
                            const struct wire_message *message, size_t size_bytes);
    void (*on_closed)(void *owner, struct transport_channel *channel, struct status *why);
};

struct transport {
    const char *name;
    /* Can it serve this pair? Either way `why` gets a few words for the status page ("same
     * host", "no Unix address"). Any thread. */
    bool (*accepts)(const struct transport_endpoint *here, const struct transport_endpoint *there,
                    struct str *why);
    /* A new channel to `there`, with one reference for the caller; what is queued meanwhile goes
     * out once it is connected. It cannot fail: a connection that does not come about ends with
     * on_closed. NULL where both ends meet without one. Loop thread. */
    struct transport_channel *(*open)(struct loop *loop, const struct transport_endpoint *there,
                                      enum channel_kind kind,
                                      const struct transport_handlers *handlers, void *owner);
    /* Queues a message: never blocks, never fails, copies or shares what it needs. Any thread. */
    void (*queue)(struct transport_channel *channel, const struct wire_out *message);
    /* Writes what is queued. Any thread. */
    void (*flush)(struct transport_channel *channel);
    size_t (*queued_bytes)(struct transport_channel *channel);
    /* Ends it; on_closed follows on the loop. Any thread. */
    void (*close)(struct transport_channel *channel, struct status *why_take);
    /* Memory for a value that will arrive through the transport: where it lands without a
     * further copy. NULL when memory is out or the allocator's limit is reached. Any thread. */
    struct buffer *(*alloc)(struct allocator *allocator, size_t size_bytes);
    /* The last reference has gone, on_closed has been called. */
    void (*free)(struct transport_channel *channel);
};

/* The rows, in the order of asking. */
extern const struct transport *const transports[];
extern const size_t n_transports;
extern const struct transport transport_local, transport_shm, transport_unix, transport_rdma,
    transport_tcp;

/* The first row that accepts; never NULL. `why` gets its reason, and those of the rows that
 * refused. */
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

/* A channel over a connection that the other end opened (its Hello has been read). One reference
 * for the caller. Loop thread. */
struct transport_channel *transport_socket_adopt(struct wire_conn *conn_take,
                                                 enum channel_kind kind,
                                                 const struct transport_handlers *handlers,
                                                 void *owner);
/* The connection of a channel of any of them but local; borrowed. */
struct wire_conn *transport_socket_conn(struct transport_channel *channel);

#endif
