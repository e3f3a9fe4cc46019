/* One HTTP/2 connection of the server or the client: an nghttp2 session over a socket on the loop.
 *
 *   socket readable → read → nghttp2 → the role's callbacks (they note and submit; no user code)
 *   → dispatch: user code submits (reply, request, reset) → a flush is deferred → after all events
 *   of the loop: nghttp2 → output queue → one writev
 *
 * nghttp2 is called from two places only, the read and the flush, and no user code runs inside it.
 * A broken connection closes its socket at once. Its streams and session are freed by its next
 * flush, so never inside a call that uses them.
 *
 *   OPEN ── session over (GOAWAY, drained) and all written, or ──► LINGERING
 *     │     the peer broke a limit of the guard: GOAWAY             │ the peer's end, or 1 s
 *     └──── error, peer's end, grpc_connection_break ────► BROKEN ◄─┘
 *                                                            │ flush: frees streams and session
 *                                                            ▼
 *                                                          BURIED ── handles closed ──► freed
 *
 * While it lingers, our side of the socket is shut down, and the peer's end is awaited.
 *
 * Loop thread only. Internal to rpc/grpc. */
#ifndef MILLRACE_RPC_GRPC_GRPC_CONNECTION_H
#define MILLRACE_RPC_GRPC_GRPC_CONNECTION_H

#include <nghttp2/nghttp2.h>

#include "common/base/metrics.h"
#include "rpc/grpc/grpc_guard.h"
#include "rpc/grpc/grpc_output.h"
#include "rpc/grpc/grpc_preface.h"
#include "rpc/grpc/grpc_receive.h"
#include "rpc/loop.h"
#include "rpc/tls/tls_stream.h"

struct grpc_connection;
struct grpc_role;

/* The part that a server's call and a client's call have in common. The session holds a reference
 * while the stream is open. */
struct grpc_stream {
    unsigned n_refs;
    int32_t id;
    const struct grpc_role *role;
    struct grpc_connection *connection; /* NULL once the stream is closed */
    struct list link;                   /* in connection->streams */
    /* in connection->ready while on_ready is due; holds a reference */
    struct list ready_link;
    struct grpc_receiver in;
    struct grpc_sender *out;  /* NULL until a message is submitted */
    struct grpc_sender *next; /* a streaming reply's message that is sent after `out` */
    bool is_streaming;        /* more messages may follow `out` and `next` */
    bool is_deferred;         /* nghttp2 has nothing to send and must be told when there is */
    size_t n_moved;           /* bytes of messages, both ways */
    size_t n_checked;         /* n_moved when the stream last moved fast enough (grpc_sweep.c), */
    int64_t checked_ms;       /* and when that was; 0: nobody waits for the peer */
};

/* What the server and the client do differently. Functions that are called inside nghttp2 are
 * marked with *; they may submit frames but run no user code. */
struct grpc_role {
    bool is_server;
    /* may be NULL */
    struct metric *bytes_received, *bytes_sent;
    /* * a peer's request begins */
    struct grpc_stream *(*new_stream)(struct grpc_connection *connection);
    void (*on_header)(struct grpc_stream *stream, struct span name, struct span value); /* * */
    /* * after each header block */
    void (*on_headers_end)(struct grpc_stream *stream);
    /* * the message breaks a rule */
    void (*on_refused)(struct grpc_stream *stream, struct status *why_take);
    /* * the peer's last byte */
    void (*on_end)(struct grpc_stream *stream);
    /* * closed; why_take is NULL after a normal end */
    void (*on_gone)(struct grpc_stream *stream, struct status *why_take);
    /* * may be NULL */
    void (*on_goaway)(struct grpc_connection *connection);
    /* * a server's message ends; NULL: no trailers */
    bool (*submit_trailers)(struct grpc_stream *stream);
    /* as grpc_stream_wake asked; may be NULL */
    void (*on_ready)(struct grpc_stream *stream);
    /* called before the connection's memory is freed */
    void (*on_closed)(struct grpc_connection *connection);
    void (*free_stream)(struct grpc_stream *stream);
};

enum grpc_connection_state {
    CONNECTION_OPEN,
    CONNECTION_LINGERING,
    CONNECTION_BROKEN,
    CONNECTION_BURIED
};

struct grpc_connection {
    struct list link; /* the owner's */
    void *owner;
    uint64_t id;
    struct loop *loop;
    const struct grpc_role *role;
    enum grpc_connection_state state;
    struct status *why;       /* why it broke; NULL: it did not */
    nghttp2_session *session; /* a server's: NULL until the peer speaks, for it takes a dozen KiB */
    int fd;
    struct tls_stream *tls; /* NULL: in the clear */
    /* a server's: the status that ends every call; the connection ends after the first. NULL: calls
     * are served */
    struct status *calls_get;
    /* `tls` holds bytes that it has read from the socket already: the flush continues to read */
    bool read_is_due;
    uv_poll_t poll;
    int poll_events;
    struct loop_timer timer;                 /* the handshake's, then the lingering's limit */
    bool has_settings;                       /* the peer's first SETTINGS came */
    const struct grpc_server_limits *limits; /* NULL: a client's */
    struct grpc_preface *preface;            /* a server's, until the first bytes of HTTP/2 */
    /* the task whose client port the peer dialled; NULL: none */
    char *relay_task;
    struct grpc_guard guard;
    enum grpc_refusal refusal;  /* of the guard's; the connection ends as soon as nghttp2 is left */
    int64_t n_open;             /* streams */
    int64_t claimed_bytes;      /* of messages, still to come */
    uint64_t n_written;         /* bytes, in all */
    uint64_t n_written_checked; /* as a stream's n_checked and checked_ms */
    int64_t written_checked_ms;
    size_t n_lingered_bytes;
    bool is_draining, has_said_goaway;
    unsigned n_handles; /* still open */
    struct loop_task flush;
    bool flush_is_due;
    struct list streams; /* open ones */
    struct list ready;
    struct grpc_output out;
    /* of the DATA frame that is being read, and how much of it is to come */
    int32_t data_stream_id;
    size_t data_left;
};

/* Takes a non-blocking socket. A client sends SETTINGS first, a server answers with its own. The
 * limits are borrowed; a client has none (NULL). */
struct grpc_connection *grpc_connection_new(struct loop *loop, int fd_take,
                                            const struct grpc_role *role, void *owner,
                                            const struct grpc_server_limits *limits);
/* Call it right after grpc_connection_new: the connection speaks TLS, after the header that may
 * come first (rpc/grpc/grpc_preface.h). */
void grpc_connection_secure(struct grpc_connection *connection, struct tls_stream *stream_take);
/* Every call of the connection ends with that status. */
void grpc_connection_refuse_calls(struct grpc_connection *connection, struct status *why_take);
/* Breaks the connection: its streams end with `why_take` (NULL: UNAVAILABLE), and then the role's
 * on_closed is called. A second call does nothing. */
void grpc_connection_break(struct grpc_connection *connection, struct status *why_take);
/* The peer broke a limit: sends GOAWAY with the reason, ends the streams and closes. Not to be
 * called inside nghttp2. */
void grpc_connection_expel(struct grpc_connection *connection, enum grpc_refusal refusal);
/* Tells the peer that the connection will end. Streams that the peer opened before it knew are
 * still served; the connection closes when all have ended. */
void grpc_connection_drain(struct grpc_connection *connection);
/* The peer knows of the drain, or has had enough time. May be called inside nghttp2. */
void grpc_connection_finish_drain(struct grpc_connection *connection);
/* Something was submitted: has it sent after all events that are ready now. */
void grpc_connection_schedule(struct grpc_connection *connection);

/* The caller holds one reference. */
void grpc_stream_init(struct grpc_stream *stream, const struct grpc_role *role,
                      struct grpc_quota *quota, grpc_align_fn *align);
/* The connection takes the caller's reference and drops it after on_gone. */
void grpc_stream_attach_take(struct grpc_stream *stream_take, struct grpc_connection *connection);
static inline struct grpc_stream *grpc_stream_ref(struct grpc_stream *stream) {
    stream->n_refs++;
    return stream;
}
void grpc_stream_unref(struct grpc_stream *stream);
/* Has on_ready called, later and outside nghttp2. */
void grpc_stream_wake(struct grpc_connection *connection, struct grpc_stream *stream);
/* Sends a reply (server) or request (client): headers, then the message, then the role's trailers.
 * Without a body (NULL) the headers end the stream. If is_streaming was set before, more messages
 * may follow. Returns false when nghttp2 refuses it. */
bool grpc_stream_send(struct grpc_stream *stream, const nghttp2_nv *headers, size_t n_headers,
                      struct grpc_body *body);
/* Queues the next message of a streaming reply. It replaces a message that is still waiting. */
void grpc_stream_send_next(struct grpc_stream *stream, struct grpc_body *body);
/* nghttp2 had nothing to send; now there is a message, or is_streaming has ended. */
void grpc_stream_resume(struct grpc_stream *stream);
void grpc_stream_reset(struct grpc_stream *stream, uint32_t error_code);

/* A header field: a value that recurs (indexed by HPACK), one that does not, and one that is
 * static on top. Names are static. */
#define GRPC_NV(name_, value_, value_len_) \
    GRPC_NV_FLAGS(name_, value_, value_len_, NGHTTP2_NV_FLAG_NONE)
#define GRPC_NV_ONCE(name_, value_, value_len_) \
    GRPC_NV_FLAGS(name_, value_, value_len_, NGHTTP2_NV_FLAG_NO_INDEX)
#define GRPC_NV_STATIC(name_, value_) \
    GRPC_NV_FLAGS(name_, value_, sizeof(value_) - 1, NGHTTP2_NV_FLAG_NO_COPY_VALUE)
#define GRPC_NV_FLAGS(name_, value_, value_len_, flags_)                          \
    (nghttp2_nv) {                                                                \
        (uint8_t *)(name_), (uint8_t *)(value_), sizeof(name_) - 1, (value_len_), \
            (flags_) | NGHTTP2_NV_FLAG_NO_COPY_NAME                               \
    }

#endif
