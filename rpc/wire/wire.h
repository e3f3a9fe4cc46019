/* The worker wire: our own framed messages between master and workers and among workers, over
 * TCP and Unix sockets.
 *
 *   header (32 bytes, little-endian) │ meta: a protobuf message (proto/worker.proto) │ payload: raw tensor bytes
 *
 *     0  u32 magic "MRW1"      8  u32 meta length      16  u64 payload length
 *     4  u16 type  u16 flags  12  u32 crc32c or 0      24  u64 id (pairs a reply with its request; step id for tensors)
 *
 * A message with sums (flag 1) has the CRC32C of the header's other bytes in it, and behind the
 * meta and behind the payload, where there is one, the CRC32C of that in 4 bytes more: nothing
 * is believed, no memory taken and nothing delivered before its sum was right. Who has been
 * asked for sums sends each message so; the first that comes with sums asks for them in the
 * other direction, and from then on none comes without. They find what TCP's 16 bits do not:
 * failing memory in a switch or a card, a driver's mistake. They are no defence against people
 * (that is TLS).
 *
 * The payload is written by writev from the tensors' own buffers and read straight into one
 * counted buffer that the receiver's `alloc` gives: tensors are views on it, each starting at a
 * multiple of 64. Sockets are plain, non-blocking descriptors: any thread may send; what the
 * socket does not take at once is finished by the loop. Bytes from a stranger yield a closed
 * connection with a status that says what was wrong; nothing else. */
#ifndef MILLRACE_RPC_WIRE_WIRE_H
#define MILLRACE_RPC_WIRE_WIRE_H

#include "common/base/status.h"
#include "common/base/str.h"
#include "common/tensor/tensor.h"
#include "rpc/loop.h"

enum wire_type {
    WIRE_HELLO = 1, /* first message of each side: Hello */
    WIRE_PING,      /* Ping (rpc/wire/heartbeat.h); answered by WIRE_PONG */
    WIRE_PONG,
    WIRE_GET_STATUS, /* empty; answered by WIRE_STATUS: WorkerStatus */
    WIRE_STATUS,
    WIRE_REGISTER_GRAPH,   /* RegisterGraph, payload: GraphDefs; answered by WIRE_REGISTERED */
    WIRE_REGISTERED,       /* Registered */
    WIRE_DEREGISTER_GRAPH, /* DeregisterGraph; no answer */
    WIRE_RUN_GRAPH,        /* RunGraph, payload: feeds; answered by WIRE_RUN_DONE */
    WIRE_RUN_DONE,         /* RunDone, payload: fetches */
    WIRE_CANCEL_STEP,      /* CancelStep; no answer: RUN_DONE follows */
    WIRE_RESET,            /* Reset; answered by WIRE_RESET_DONE */
    WIRE_RESET_DONE,
    WIRE_PUSH,          /* Push, payload: the tensor */
    WIRE_ANNOUNCE,      /* Announce */
    WIRE_GRANT,         /* Grant */
    WIRE_FEED_STEP,     /* FeedStep, payload: feeds; no answer */
    WIRE_CLOSE_SESSION, /* CloseSession; no answer */
    WIRE_STEP_FETCHED,  /* StepFetched, payload: the fetch; RUN_DONE follows some time */
    WIRE_GET_STEPS,     /* empty; answered by WIRE_STEPS: Steps */
    WIRE_STEPS,
    /* Arena, and a descriptor with it: what the owner of an arena says to who may map it */
    WIRE_ARENA,
    WIRE_ARENA_MAPPED, /* empty: references may come */
    WIRE_RELEASE,      /* References: they are no longer held */
    WIRE_SETTLE,       /* References, `up_to` only: which of these are held? */
    WIRE_HELD,         /* References: these, of all up to `up_to` */
    WIRE_END_JOB,      /* empty; no answer: the task drains and exits */
    /* a request's bytes, from one task's kernels to another's; answered by WIRE_PEER_REPLY */
    WIRE_PEER_REQUEST,
    WIRE_PEER_REPLY, /* PeerReply, payload: what goes with it */
    /* empty; the header's id is the step's: one more SaveV2 of it holds all that it saves */
    WIRE_INPUTS_TAKEN,
    WIRE_KEEP_GRAPHS,    /* KeepGraphs; answered by WIRE_KEPT */
    WIRE_KEPT,           /* empty */
    WIRE_RDMA_OFFER,     /* RdmaOffer (worker/exchange/peer_rdma.h) */
    WIRE_RDMA_REPLY,     /* RdmaReply */
    WIRE_RDMA_END,       /* RdmaNotice, of who sends on the line: its queue pair is no more */
    WIRE_RDMA_ENDED,     /* RdmaNotice, the answer: all places are withdrawn */
    WIRE_RDMA_DECLINE,   /* RdmaNotice: the place is not written */
    WIRE_RDMA_WITHDRAWN, /* RdmaNotice: the place is void, its value may come as a Push */
    /* Stripe (worker/exchange/peer_streams.h), payload: its part of the tensor */
    WIRE_STRIPE,
    /* LostSteps: values of these steps were lost with a connection (worker/exchange/peer.h) */
    WIRE_LOST_STEPS,
    WIRE_CREDIT, /* Credit, the header's id is the step's: small values have been received */
    WIRE_TYPE_END,
};

enum { WIRE_PROTOCOL = 4 }; /* Hello.protocol: both sides must say the same */

enum { WIRE_HEADER_BYTES = 32, WIRE_MAX_META_BYTES = 64 << 20, WIRE_ALIGN = 64 };

/* May a message of that type have so many bytes of meta? Who builds a meta from what a client, a
 * graph or a page named checks it before it sends, and fails what the message is about. Errors:
 * RESOURCE_EXHAUSTED. */
struct status *wire_check_meta(enum wire_type type, size_t meta_len) MUST_USE;

enum { WIRE_CHECKSUMMED = 1 }; /* in a header's flags */

const char *wire_type_name(enum wire_type type); /* "Push", for messages */

struct tls;
struct wire_conn;
struct wire_server;

struct wire_message {
    enum wire_type type;
    uint16_t flags;
    uint64_t id;
    struct span meta;       /* borrowed for the callback */
    struct buffer *payload; /* NULL when empty; the callee may take its reference (set to NULL) */
    size_t payload_len;
};

/* What `alloc` returns for a payload that nobody wants any more: its bytes are read and dropped,
 * and on_message is not called. */
extern struct buffer *const wire_discard;

struct wire_handlers {
    /* A whole message. Loop thread. */
    void (*on_message)(void *owner, struct wire_conn *conn, struct wire_message *message);
    /* Memory for a payload, before it is read; `message` has all but the payload. NULL refuses:
     * the connection ends with RESOURCE_EXHAUSTED. A NULL method takes allocator_host(). */
    struct buffer *(*alloc)(void *owner, struct wire_conn *conn, const struct wire_message *message,
                            size_t size_bytes);
    /* The connection has ended; exactly once, also when connecting failed. `why` is borrowed.
     * The conn is freed when its references go. */
    void (*on_closed)(void *owner, struct wire_conn *conn, struct status *why);
    int64_t max_payload_bytes; /* 0: 1 TiB */
};

/* A message to send: meta is copied; payload pieces are tensors, shared by reference; each
 * starts at a multiple of 64 in the payload. */
struct wire_out {
    enum wire_type type;
    uint64_t id;
    struct span meta;
    /* plain dtypes only: rpc/wire/wire_values.h says how others travel */
    const struct tensor *const *tensors;
    size_t n_tensors;
    struct span extra;           /* further payload bytes (copied), after the tensors */
    struct buffer *extra_buffer; /* not NULL: extra lies in it and is shared instead */
};

/* `address`: "host:port" or "unix:/path" ("unix:@name" for the abstract namespace). Connecting
 * goes on in the background; messages queue meanwhile. The caller holds one reference. Loop
 * thread. */
struct wire_conn *wire_connect(struct loop *loop, const char *address,
                               const struct wire_handlers *handlers, void *owner);
/* Right after wire_connect: TCP is to speak TLS, and what answers must be this task
 * ("/job:ps/replica:0/task:0", "master"; tls.h); nothing is sent before that is certain. The
 * other end of a Unix socket must be of this process' user. A NULL `tls` changes nothing. */
void wire_conn_secure(struct wire_conn *conn, struct tls *tls, const char *task);
/* Right after wire_connect, or in on_accept: what this end sends carries sums, and so will what
 * comes, once the other end has seen it. */
void wire_conn_use_checksums(struct wire_conn *conn);
/* For status pages: "no" sums, "sent" (the other end has not answered yet), "both" ways. Loop
 * thread. */
const char *wire_conn_checksums(const struct wire_conn *conn);
/* The other end says that it is that task: does its certificate say so, too? NULL where the
 * connection speaks no TLS. Loop thread. */
struct status *wire_conn_check_task(struct wire_conn *conn, const char *task) MUST_USE;
struct wire_conn *wire_conn_ref(struct wire_conn *conn);
void wire_conn_unref(struct wire_conn *conn);
/* loop thread */
void wire_conn_set_owner(struct wire_conn *conn, void *owner, const struct wire_handlers *handlers);
/* its address, for messages */
const char *wire_conn_peer(const struct wire_conn *conn);
struct loop *wire_conn_loop(const struct wire_conn *conn);
bool wire_conn_is_unix(const struct wire_conn *conn);
/* connected, as far as the kernel knows; not: being connected, or ended */
bool wire_conn_is_open(const struct wire_conn *conn);
/* In on_closed: errno of the connect that failed (ECONNREFUSED, …); 0 where none did. Loop
 * thread. */
int wire_conn_connect_error(const struct wire_conn *conn);
/* The other end has closed it, though what it said before may not have been read. Loop thread. */
bool wire_conn_is_hung_up(const struct wire_conn *conn);
/* Unix sockets: is the process at the other end this one's user's? */
bool wire_conn_is_same_user(struct wire_conn *conn);
/* Unix sockets: a descriptor goes along with the next bytes that are written. Borrowed until the
 * connection has ended. Any thread. */
void wire_conn_pass_fd(struct wire_conn *conn, int fd);
/* Unix sockets: the other end may pass descriptors; the last one is kept until it is taken (-1:
 * there is none). Without this call they are dropped by the kernel. Loop thread. */
void wire_conn_expect_fd(struct wire_conn *conn);
int wire_conn_take_fd(struct wire_conn *conn);
/* Ends it; on_closed follows on the loop. Any thread. */
void wire_conn_close(struct wire_conn *conn, struct status *why_take);

/* Queues a message. Never blocks and never fails: a connection that has ended drops it, and one
 * whose meta is too long (wire_check_meta) ends the connection. Any thread. wire_flush writes what is queued in one system call where the socket takes it.
 * wire_send = queue + flush. */
void wire_queue(struct wire_conn *conn, const struct wire_out *out);
void wire_flush(struct wire_conn *conn);
void wire_send(struct wire_conn *conn, const struct wire_out *out);
size_t wire_conn_queued_bytes(struct wire_conn *conn);
/* All that has come, whole messages and the part of the next one: who sends a large message is
 * alive, though no message ends. Loop thread.
 */
uint64_t wire_conn_received_bytes(const struct wire_conn *conn);

/* Listens on one address; each accepted connection is handed to on_accept, which sets its owner. */
struct status *wire_listen(struct loop *loop, const char *address,
                           void (*on_accept)(void *arg, struct wire_conn *conn_take), void *arg,
                           struct wire_server **ret_server) MUST_USE;
/* Right after wire_listen: who comes over TCP must speak TLS and show a certificate, over a Unix
 * socket be of this process' user. */
void wire_server_secure(struct wire_server *server, struct tls *tls);
/* Right after wire_listen: who comes is asked for sums. */
void wire_server_use_checksums(struct wire_server *server);
/* Right after wire_listen: the first call of a gRPC client that dials this port is answered with
 * these words (rpc/grpc/grpc_refuser.h). Not where TLS is spoken: ALPN refuses such a client. */
void wire_server_refuse_grpc(struct wire_server *server, const char *words);
int wire_server_port(const struct wire_server *server);
void wire_server_close(struct wire_server *server);

/* Splits a payload: offset of the next tensor of `size_bytes` after *offset (moved past it);
 * false when it does not fit. */
bool wire_payload_next(const struct wire_message *message, size_t *offset, size_t size_bytes,
                       size_t *ret_begin);

#endif
