/* What the files of the worker wire share: wire_frame.c (header and checksums), wire_output.c (what
 * is waiting to be written), wire_input.c (reading), wire_conn.c (the life of a connection),
 * wire_connect.c (opening one), wire_server.c (accepting), wire_local.c (within the process).
 *
 *              wire_connect          accept
 *                   │                   │
 *                   ▼                   │
 *              CONNECTING ──────────────┴──► [SECURING: TLS shakes hands ──►] OPEN
 *                   │   wire_conn_close (any thread), end of stream, bad bytes
 *                   ▼                             │
 *                CLOSING ◄────────────────────────┘   nothing is queued or delivered any more
 *                   │ on the loop
 *                   ▼
 *                CLOSED      on_closed has been called; the last reference frees the memory */
#ifndef MILLRACE_RPC_WIRE_WIRE_INTERNAL_H
#define MILLRACE_RPC_WIRE_WIRE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "rpc/grpc/grpc_refuser.h"
#include "rpc/listen.h"
#include "rpc/tls/tls_stream.h"
#include "rpc/wire/wire.h"

/* ---- wire_frame.c ---- */

struct wire_header {
    uint16_t type, flags;
    uint32_t meta_len;
    uint64_t payload_len;
    uint64_t id;
};

void wire_header_write(const struct wire_header *header, char *out); /* WIRE_HEADER_BYTES */
/* `must_have_checksum`: a message with checksums has arrived before. Errors: INVALID_ARGUMENT
 * (magic, type, flags, a missing checksum), DATA_LOSS (a wrong checksum), RESOURCE_EXHAUSTED (a
 * length beyond its limit). */
struct status *wire_header_read(const char *in, int64_t max_payload_bytes, bool must_have_checksum,
                                struct wire_header *ret) MUST_USE;

/* The limit of a payload; 0: the largest. Errors: RESOURCE_EXHAUSTED. */
struct status *wire_payload_check(enum wire_type type, uint64_t payload_len,
                                  int64_t max_payload_bytes) MUST_USE;

enum { WIRE_CHECKSUM_BYTES = 4 };
void wire_checksum_write(uint32_t checksum, char *out);
/* Compares the checksum of the received bytes with the one that was sent; `what` names the part
 * ("meta"). Errors: DATA_LOSS. */
struct status *wire_checksum_check(const char *what, enum wire_type type, uint32_t checksum,
                                   const char *sent) MUST_USE;
void wire_checksums_register(void); /* their metric */
/* How many bytes the checksum after a part of n_bytes has. */
static inline size_t wire_checksum_size(const struct wire_header *header, uint64_t n_bytes) {
    return (header->flags & WIRE_CHECKSUMMED) && n_bytes > 0 ? WIRE_CHECKSUM_BYTES : 0;
}

/* ---- wire_output.c: bytes and shared buffers in the order of writing ---- */

struct wire_chunk {
    size_t used, capacity;
    uint32_t n_segments; /* how many segments have bytes in it */
    char data[];
};

enum wire_segment_kind {
    WIRE_PLAIN,
    WIRE_PAYLOAD,          /* its checksum is computed while it is written */
    WIRE_PAYLOAD_CHECKSUM, /* 4 bytes, filled in once all before it are written */
};

struct wire_segment {
    const char *data;
    size_t len;
    enum wire_segment_kind kind;
    struct buffer *owner;     /* contains the bytes; one reference. NULL: */
    struct wire_chunk *chunk; /* contains them */
};

/* A ring of segments. Consecutive small pieces share one segment, so several small messages are
 * one iovec. The checksums of small messages are computed when they are added. That of a large
 * payload is computed while it is written, over the bytes that the socket has just taken,
 * because they are in the cache then. */
struct wire_output {
    struct wire_segment *segments;
    size_t first, n_segments, capacity; /* capacity: a power of two */
    struct wire_chunk *tail;            /* where the next bytes go */
    size_t n_bytes, n_copied_bytes;     /* waiting; of these, in chunks */
    bool has_checksums;                 /* messages that are added now */
    /* Used by the thread that writes, one at a time; no lock needed. */
    uint32_t checksum;           /* of the payload that is being written, so far */
    size_t n_before_checksummed; /* bytes of the last peek that the checksum does not cover */
};

enum {
    WIRE_MAX_IOV = 64,
    /* when more copied bytes wait for the other end to read, the connection ends */
    WIRE_MAX_UNREAD_BYTES = 1 << 30,
    /* smaller pieces are copied, because that is cheaper than a reference and an iovec */
    WIRE_SHARE_MIN_BYTES = 4096,
    /* how much of a payload with a checksum is written at a time, so that it stays in the cache
     * until its checksum is computed */
    WIRE_CHECKSUM_WRITE_BYTES = 512 << 10,
};

void wire_output_fini(struct wire_output *output); /* all-zero is an empty output */
void wire_output_add_message(struct wire_output *output, const struct wire_out *message);
/* The first pieces as an iovec; returns how many, and their bytes. */
int wire_output_peek(struct wire_output *output, struct iovec *iov, size_t *ret_bytes);
/* n bytes of the last peek have been written: adds those of large payloads to the checksum. To be
 * called without the lock, before they are consumed. */
void wire_output_add_to_checksum(struct wire_output *output, const struct iovec *iov, size_t n);
/* Removes n bytes. Buffers that are not needed any more are put into `ret_done` (room for
 * WIRE_MAX_IOV), and the caller drops their references without the lock. Returns how many. */
int wire_output_consume(struct wire_output *output, size_t n, struct buffer **ret_done);
/* How many bytes the payload has, with the padding between its pieces. */
size_t wire_payload_size(const struct wire_out *message);

/* ---- wire_input.c ---- */

struct wire_input {
    /* the front of a message that has not arrived completely: header, meta, small payload */
    char *stash;
    size_t stash_len, stash_capacity;
    /* A large payload that is being read straight into its buffer. */
    bool is_large;
    struct wire_header large;
    struct str large_meta;
    struct buffer *payload; /* NULL: being dropped */
    size_t n_got;
    uint32_t checksum;    /* of the part that has arrived, if the payload has a checksum */
    bool awaits_checksum; /* the payload has arrived, and its checksum has not */
    bool has_checksums;   /* a message with checksums has arrived: each later one must have them */
    uint64_t frame_begin; /* offset of the message that is being read, in all received bytes */
    int fd;               /* passed by the other end and not taken yet; -1: none */
};

enum {
    WIRE_READ_BYTES = 64 * 1024,      /* of one read, when no large payload is being received */
    WIRE_LARGE_MIN_BYTES = 16 * 1024, /* larger payloads are read directly into their buffer */
    WIRE_BYTES_PER_EVENT = 1 << 20,   /* then the loop's other connections are served */
};

void wire_input_init(struct wire_input *input);
void wire_input_fini(struct wire_input *input);
/* Reads what has arrived and delivers whole messages. Returns the reason when the connection has to
 * end, else NULL. */
struct status *wire_input_read(struct wire_conn *conn) MUST_USE;

/* Asks the owner for memory for a payload. *ret is NULL when the payload has to be dropped. Errors:
 * RESOURCE_EXHAUSTED. */
struct status *wire_payload_alloc(struct wire_conn *conn, const struct wire_message *message,
                                  struct buffer **ret) MUST_USE;
/* A message whose payload has not been read. */
struct wire_message wire_message_of(const struct wire_header *header, const char *meta);
/* Hands a message to the owner, unless the connection has ended. */
void wire_deliver(struct wire_conn *conn, struct wire_message *message,
                  struct buffer *payload_take);

/* ---- wire_conn.c ---- */

enum wire_state { WIRE_CONNECTING, WIRE_SECURING, WIRE_OPEN, WIRE_CLOSING, WIRE_CLOSED };

/* A separate allocation, because libuv uses the handle until it has closed it. */
struct wire_poll {
    uv_poll_t uv;
    struct wire_conn *conn; /* NULL once it is closing */
};

struct wire_conn {
    _Atomic uint32_t n_refs;
    _Atomic int state; /* enum wire_state; changed under lock */
    struct loop *loop;
    char *peer;
    bool is_unix;

    /* loop thread */
    const struct wire_handlers *handlers;
    void *owner;
    struct wire_poll *poll;
    struct wire_input input;
    uint64_t ended_received_bytes; /* what had arrived when `input` was freed */
    struct grpc_refuser *refuser;  /* accepted, and nothing has been read yet; or NULL */
    /* NULL: without TLS. Decrypts on the loop thread, and encrypts on the thread that writes. */
    struct tls_stream *tls;
    /* to continue reading: `tls` holds bytes that it has read from the socket already */
    struct loop_task read_task;
    bool is_read_due;
    bool is_polling_writable, is_resolving;
    bool expects_fd;
    int connect_error;                         /* errno of the connect that failed */
    bool uses_checksums;                       /* asked for by either end */
    struct addrinfo *addresses, *next_address; /* of a name that is being connected */
    uv_getaddrinfo_t resolve;

    pthread_mutex_t lock; /* guards what follows; never held over a system call or a callback */
    struct wire_output output;
    uint64_t sent_bytes;
    int fd;          /* written under lock, on the loop thread */
    int fd_to_pass;  /* with the next bytes; -1 */
    bool is_writing; /* a thread is in sendmsg, so the others only queue */
    bool is_blocked; /* the socket is full; the loop continues when it is writable */
    bool is_arm_posted;
    bool is_fd_closing; /* the thread that writes closes the descriptor afterwards */
    struct status *why; /* of WIRE_CLOSING; may be NULL */
    /* Without a socket, within the process (wire_local.c): */
    bool is_local;           /* never changes */
    struct wire_conn *other; /* a reference; NULL once this end has ended */
    struct list inbox;       /* struct parcel.link, sent and not delivered yet */
    size_t inbox_bytes;      /* of its memory */
    bool is_accepted;        /* somebody takes what is delivered */
    bool is_delivery_due;    /* deliver_task is posted */
    struct loop_task deliver_task;
    struct loop_task arm_task, close_task;
};

/* Makes a connection of a connected socket. The caller holds one reference. Reading starts with
 * wire_conn_set_owner. Loop thread. */
struct wire_conn *wire_conn_adopt(struct loop *loop, int fd_take, const char *peer, bool is_unix);
static inline bool wire_conn_is_live(struct wire_conn *conn) {
    return atomic_load_explicit(&conn->state, memory_order_acquire) <= WIRE_OPEN;
}
/* Makes the status that ends the connection after a system call's error, or TLS' (EPROTO). */
struct status *wire_why_broken(struct wire_conn *conn, int error) MUST_USE;
/* Reads what has arrived, which may end the connection. The caller holds a reference. */
void wire_conn_read(struct wire_conn *conn);
/* Makes a connection without a socket, in CONNECTING. The caller holds one reference. */
struct wire_conn *wire_conn_new(struct loop *loop, const char *peer, bool is_unix);
void wire_conn_close_socket(struct wire_conn *conn);
/* Ends the connection from a callback of the loop: on_closed is called inside this call. */
void wire_conn_end(struct wire_conn *conn, struct status *why_take);
struct status *wire_conn_begin_polling(struct wire_conn *conn, int events) MUST_USE;
void wire_conn_poll_for(struct wire_conn *conn, bool is_writable_wanted);
void wire_conn_on_writable(struct wire_conn *conn); /* writes what is waiting, and polls for more */

/* ---- wire_local.c: ends of connections within the process ---- */

struct wire_local_listener;

/* on_accept is called on the loop. Errors: UNAVAILABLE, the name is taken. */
struct status *wire_local_listen(struct loop *loop, const char *name,
                                 void (*on_accept)(void *arg, struct wire_conn *conn_take),
                                 void *arg, struct wire_local_listener **ret) MUST_USE;
/* What waits to be accepted is closed. The loop frees the memory later. Loop thread. */
void wire_local_listener_close(struct wire_local_listener *listener);
/* Opens a connection, which is in CONNECTING. Errors: UNAVAILABLE, nobody listens to the name. */
struct status *wire_local_dial(struct wire_conn *conn, const char *name) MUST_USE;
/* The end has an owner. Loop thread. */
void wire_local_accepted(struct wire_conn *conn);
/* As wire_queue and wire_flush; `out` may be NULL. Any thread. */
void wire_local_send(struct wire_conn *conn, const struct wire_out *out, bool flush);
size_t wire_local_queued_bytes(struct wire_conn *conn);
bool wire_local_is_hung_up(struct wire_conn *conn);
/* Lets go of the other end, which is told once it has read what was sent. Loop thread. */
void wire_local_end(struct wire_conn *conn);

/* ---- wire_connect.c ---- */
/* The kernel has decided whether a connect succeeded. */
void wire_conn_on_connect_result(struct wire_conn *conn);
void wire_conn_shake(struct wire_conn *conn); /* continues TLS' handshake */
/* Does what wire_conn_secure does, for a connection that was accepted. */
void wire_conn_secure_accepted(struct wire_conn *conn, struct tls *tls);
/* Writes the kernel's form of an address, also of an abstract Unix name, and returns its length.
 * Returns 0 for a name, which needs a resolver. */
socklen_t wire_sockaddr(const struct net_address *address, struct sockaddr_storage *ret_sockaddr);
void wire_socket_tune(int fd, bool is_unix);

#endif
