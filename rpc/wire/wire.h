/* The worker wire: our own framed messages between master and workers and among workers, over TCP
 * and Unix sockets, and within one process.
 *
 *   header (32 bytes, little-endian) │ meta: protobuf (proto/worker.proto) │ payload: tensor bytes
 *
 *     0  u32 magic "MRW1"      8  u32 meta length      16  u64 payload length
 *     4  u16 type  u16 flags  12  u32 crc32c or 0      24  u64 id
 *
 * The id pairs a reply with its request; in messages about tensors it is the step's.
 *
 * Checksums. A message with checksums (flag 1) has in its header the CRC32C of the header's other
 * bytes. 4 bytes after the meta hold the CRC32C of the meta, and 4 bytes after the payload that of
 * the payload. The receiver uses nothing, takes no memory and delivers nothing before the checksum
 * is right. An end that was told to use checksums sends every message with them. The first message
 * that arrives with checksums makes the other end send them, too; from then on a message without is
 * an error. Checksums find what TCP's 16 bits do not: failing memory in a switch or a network card,
 * mistakes of a driver. They do not protect against attackers; TLS does.
 *
 * The payload is written by writev from the tensors' own buffers, and read straight into one
 * counted buffer that the receiver's `alloc` returns. Tensors are views on that buffer; each starts
 * at a multiple of 64. Sockets are non-blocking. Any thread may send; the loop sends what the
 * socket does not take at once. Malformed bytes close the connection with a status that says what
 * was wrong, and have no other effect. Within one process nothing is framed, and a payload is
 * another buffer than that of `alloc`, which is asked all the same. */
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
    WIRE_ARENA,        /* Arena, passed with its descriptor by the owner: map it */
    WIRE_ARENA_MAPPED, /* empty; the arena is mapped, so references may be sent */
    WIRE_RELEASE,      /* References: their tokens are returned */
    WIRE_SETTLE,       /* References with `up_to` only; answered by WIRE_HELD */
    WIRE_HELD,         /* References: the tokens up to `up_to` that are held */
    WIRE_END_JOB,      /* empty; no answer: the task drains and exits */
    /* the bytes of a peer call's request; answered by WIRE_PEER_REPLY */
    WIRE_PEER_REQUEST,
    WIRE_PEER_REPLY, /* PeerReply, payload: that of the reply */
    /* empty; the header's id is the step's: one more SaveV2 of the step has taken its inputs */
    WIRE_INPUTS_TAKEN,
    WIRE_KEEP_GRAPHS,    /* KeepGraphs; answered by WIRE_KEPT */
    WIRE_KEPT,           /* empty */
    WIRE_RDMA_OFFER,     /* RdmaOffer (worker/exchange/peer_rdma.h); answered by WIRE_RDMA_REPLY */
    WIRE_RDMA_REPLY,     /* RdmaReply */
    WIRE_RDMA_END,       /* RdmaNotice: the sender of values has destroyed its queue pair */
    WIRE_RDMA_ENDED,     /* RdmaNotice, the answer to it: all remote slots are withdrawn */
    WIRE_RDMA_DECLINE,   /* RdmaNotice: the remote slot will not be written */
    WIRE_RDMA_WITHDRAWN, /* RdmaNotice: the remote slot is void; its value may be pushed */
    /* Stripe (worker/exchange/peer_streams.h), payload: its part of the tensor */
    WIRE_STRIPE,
    /* LostSteps: values of these steps were lost with a connection (worker/exchange/peer.h) */
    WIRE_LOST_STEPS,
    WIRE_CREDIT, /* Credit; the header's id is the step's: small values have been received */
    /* empty; no answer: the master leaves for good, so all that is its own is freed, and the task
     * closes its connections */
    WIRE_LEAVE,
    WIRE_GET_TRACES, /* GetTraces; answered by WIRE_TRACES: Traces */
    WIRE_TRACES,
    WIRE_DRAIN, /* empty; no answer: the task drains and exits, and the job goes on */
    WIRE_TYPE_END,
};

enum { WIRE_PROTOCOL = 4 }; /* Hello.protocol; both ends must have the same */

/* WorkerStatus.revision: counts what has been added since WIRE_PROTOCOL was last raised. A master
 * sends it only to tasks that say so. 1: GetTraces and Drain. 2: a task that was told to stop says
 * so again right before it ends its connections (Ping.is_leaving). */
enum { WIRE_REVISION = 2 };

enum { WIRE_HEADER_BYTES = 32, WIRE_MAX_META_BYTES = 64 << 20, WIRE_ALIGN = 64 };

/* Checks that the meta of a message of that type is not too long. A sender calls it first when the
 * length depends on a client, a graph or a page, and then fails what the message is about. Errors:
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

/* `alloc` returns this for a payload that is not wanted any more. Then the bytes are read and
 * dropped, and on_message is not called. */
extern struct buffer *const wire_discard;

struct wire_handlers {
    /* A whole message has arrived. Loop thread. */
    void (*on_message)(void *owner, struct wire_conn *conn, struct wire_message *message);
    /* Returns memory for a payload before it is read; `message` is complete but for the payload.
     * NULL ends the connection with RESOURCE_EXHAUSTED. Without this method (NULL) the memory comes
     * from allocator_host(). */
    struct buffer *(*alloc)(void *owner, struct wire_conn *conn, const struct wire_message *message,
                            size_t size_bytes);
    /* The connection has ended. Called exactly once, also when connecting failed. `why` is
     * borrowed. The connection is freed with its last reference. */
    void (*on_closed)(void *owner, struct wire_conn *conn, struct status *why);
    int64_t max_payload_bytes; /* a longer payload ends the connection; 0: 1 TiB */
};

/* A message to send. The meta is copied. The payload consists of tensors, which are shared by
 * reference; each starts at a multiple of 64 in the payload. */
struct wire_out {
    enum wire_type type;
    uint64_t id;
    struct span meta;
    /* plain dtypes only: rpc/wire/wire_values.h says how others travel */
    const struct tensor *const *tensors;
    size_t n_tensors;
    struct span extra;           /* further payload bytes, after the tensors; copied, unless: */
    struct buffer *extra_buffer; /* not NULL: contains `extra`, which is shared by reference */
};

/* Connects in the background; messages are queued meanwhile. `address` is "host:port",
 * "unix:/path", "unix:@name" for the abstract namespace, or "local:NAME" for a wire_listen of this
 * process. The caller holds one reference.
 * Never fails: on_closed says why a connection could not be made. Loop thread. */
struct wire_conn *wire_connect(struct loop *loop, const char *address,
                               const struct wire_handlers *handlers, void *owner);
/* Call it right after wire_connect. Over TCP the connection speaks TLS, and the other end must
 * be this task ("/job:ps/replica:0/task:0" or "master"; rpc/tls/tls.h); nothing is sent before
 * that has been checked. With a NULL `task` it may be any process of the authority, and the caller
 * has to call wire_conn_check_task once it knows the name. The process at the other end of a Unix
 * socket must have this process'
 * user. A NULL `tls` changes nothing. */
void wire_conn_secure(struct wire_conn *conn, struct tls *tls, const char *task);
/* Call it right after wire_connect, or in on_accept: this end sends checksums, and the other end
 * will do so once it has received one. */
void wire_conn_use_checksums(struct wire_conn *conn);
/* For status pages. Returns "no" (no checksums), "sent" (the other end has not sent any yet) or
 * "both". Loop thread. */
const char *wire_conn_checksums(const struct wire_conn *conn);
/* Checks whether the other end's certificate names that task. Returns NULL without TLS. Loop
 * thread. */
struct status *wire_conn_check_task(struct wire_conn *conn, const char *task) MUST_USE;
struct wire_conn *wire_conn_ref(struct wire_conn *conn);
void wire_conn_unref(struct wire_conn *conn);
/* loop thread */
void wire_conn_set_owner(struct wire_conn *conn, void *owner, const struct wire_handlers *handlers);
/* its address, for messages */
const char *wire_conn_peer(const struct wire_conn *conn);
struct loop *wire_conn_loop(const struct wire_conn *conn);
bool wire_conn_is_unix(const struct wire_conn *conn);
/* Is it connected, as far as the kernel knows? False while it is being connected and after its
 * end. */
bool wire_conn_is_open(const struct wire_conn *conn);
/* To be called in on_closed: the errno of a connect that failed (ECONNREFUSED, …), else 0. Loop
 * thread. */
int wire_conn_connect_error(const struct wire_conn *conn);
/* Has the other end closed it? What it sent before may not have been read yet. Loop thread. */
bool wire_conn_is_hung_up(struct wire_conn *conn);
/* Unix sockets: has the process at the other end the same user as this one? */
bool wire_conn_is_same_user(struct wire_conn *conn);
/* Unix sockets: sends a descriptor together with the next bytes. It is borrowed until the
 * connection has ended. Any thread. */
void wire_conn_pass_fd(struct wire_conn *conn, int fd);
/* Unix sockets: lets the other end pass descriptors; without this call the kernel closes them. The
 * last one is kept until wire_conn_take_fd, which returns -1 when there is none. Loop thread. */
void wire_conn_expect_fd(struct wire_conn *conn);
int wire_conn_take_fd(struct wire_conn *conn);
/* Ends the connection; on_closed is called later, on the loop. Any thread. */
void wire_conn_close(struct wire_conn *conn, struct status *why_take);

/* Queues a message. Never blocks and never fails: a connection that has ended drops it, and one
 * whose meta is too long (wire_check_meta) ends the connection. Any thread. wire_flush writes
 * what is queued in one system call where the socket takes it. wire_send = queue + flush. */
void wire_queue(struct wire_conn *conn, const struct wire_out *out);
void wire_flush(struct wire_conn *conn);
void wire_send(struct wire_conn *conn, const struct wire_out *out);
size_t wire_conn_queued_bytes(struct wire_conn *conn);
/* How many bytes have arrived, those of unfinished messages included: an end that sends a large
 * message is alive although no message completes. Stays the same once the connection has ended.
 * Loop thread. */
uint64_t wire_conn_received_bytes(const struct wire_conn *conn);

/* How many bytes the system has taken. Stays the same once the connection has ended. Any thread. */
uint64_t wire_conn_sent_bytes(struct wire_conn *conn);

/* Listens on one address. on_accept gets each accepted connection and one reference, and must
 * set its owner. Errors: as listener_new. Loop thread. */
struct status *wire_listen(struct loop *loop, const char *address,
                           void (*on_accept)(void *arg, struct wire_conn *conn_take), void *arg,
                           struct wire_server **ret_server) MUST_USE;
/* Call it right after wire_listen: other ends must speak TLS and show a certificate over TCP,
 * and have this process' user over a Unix socket. */
void wire_server_secure(struct wire_server *server, struct tls *tls);
/* Call it right after wire_listen: accepted connections use checksums. */
void wire_server_use_checksums(struct wire_server *server);
/* Call it right after wire_listen: the first call of a gRPC client without TLS that dials this port
 * ends with these words (rpc/grpc/grpc_refuser.h), also where the port speaks TLS. A gRPC client
 * with TLS is refused by ALPN instead. A later call replaces the words. */
void wire_server_refuse_grpc(struct wire_server *server, const char *words);
int wire_server_port(const struct wire_server *server); /* the bound port; 0 for Unix */
/* Stops listening. Accepted connections are not affected. Accepts NULL. */
void wire_server_close(struct wire_server *server);

/* Finds the next part of a payload, of `size_bytes` bytes: *ret_begin is its offset, and *offset is
 * moved to its end. Returns false when the payload is too short. */
bool wire_payload_next(const struct wire_message *message, size_t *offset, size_t size_bytes,
                       size_t *ret_begin);

#endif
