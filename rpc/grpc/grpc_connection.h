/* One HTTP/2 connection: an nghttp2 session over a socket on the loop. What the server and the
 * client share.
 *
 *   socket readable → read → nghttp2 → the role's callbacks (they note and submit; no user code)
 *   → dispatch: user code runs submit (reply, request, reset) → a turn is deferred → at the
 *   quiescent point: nghttp2 → output queue → one writev
 *
 * nghttp2 is entered from two places only, the read and the turn, and user code runs in
 * neither's inside. A broken connection closes its socket at once and is torn down by its next
 * turn, never under a caller's feet.
 *
 *   OPEN ── session over (GOAWAY, drained) and all written ──► LINGERING (our side shut; waits for the peer's end, 1 s at most)
 *     │     or the peer broke a limit of the guard's: GOAWAY
 *     └──── error, peer's end, grpc_connection_break ────────► BROKEN ◄┘ ── turn: streams and session go ── handles closed ──► freed
 *
 * Loop thread only. Internal to rpc/grpc/grpc*. */
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

/* What a server's call and a client's call both are. Counted: by the session while the stream is
 * open, and by who else needs it. */
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
    struct grpc_sender *next; /* a streaming reply's message that waits for `out` to be gone */
    bool is_streaming;        /* the reply goes on after `out` and `next` */
    bool is_deferred;         /* nghttp2 has nothing to send and must be told when there is */
    size_t n_moved;           /* bytes of messages, both ways */
    size_t n_checked;         /* n_moved when its progress was last good (grpc_sweep.c), */
    int64_t checked_ms;       /* and when that was; 0: nobody waits for the peer */
};

/* The two ends. Inside nghttp2 (marked *) a role may submit frames, but runs no user code. */
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
    /* * closed; NULL: in good order */
    void (*on_gone)(struct grpc_stream *stream, struct status *why_take);
    /* * may be NULL */
    void (*on_goaway)(struct grpc_connection *connection);
    /* * a server's message ends; NULL: no trailers */
    bool (*submit_trailers)(struct grpc_stream *stream);
    /* as grpc_stream_wake asked; may be NULL */
    void (*on_ready)(struct grpc_stream *stream);
    /* before its memory goes */
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
    struct status *why;       /* it broke; NULL: in good order */
    nghttp2_session *session; /* a server's: NULL until the peer speaks, for it takes a dozen KiB */
    int fd;
    struct tls_stream *tls; /* NULL: in the clear */
    /* a server's: what every call gets; the connection ends after the first. NULL: they are
     * served */
    struct status *calls_get;
    /* bytes lie in `tls` of which the socket knows nothing: the turn reads on */
    bool read_is_due;
    uv_poll_t poll;
    int poll_events;
    struct loop_timer timer;                 /* the handshake's, then the lingering's limit */
    bool has_settings;                       /* the peer's first SETTINGS came */
    const struct grpc_server_limits *limits; /* NULL: a client's */
    struct grpc_preface *preface;            /* a server's, until the first bytes of HTTP/2 came */
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
    struct loop_task turn;
    bool turn_is_due;
    struct list streams; /* open ones */
    struct list ready;
    struct grpc_output out;
    /* of the DATA frame that is being read, and how much of it is to come */
    int32_t data_stream_id;
    size_t data_left;
};

/* Takes the socket (non-blocking). A client sends SETTINGS, a server answers with its own. The
 * limits are borrowed; NULL: a client's. */
struct grpc_connection *grpc_connection_new(struct loop *loop, int fd_take,
                                            const struct grpc_role *role, void *owner,
                                            const struct grpc_server_limits *limits);
/* Right after: it speaks TLS, but for what may stand before (rpc/grpc/grpc_preface.h). */
void grpc_connection_secure(struct grpc_connection *connection, struct tls_stream *stream_take);
/* Its calls are not served. Takes the status. */
void grpc_connection_refuse_calls(struct grpc_connection *connection, struct status *why_take);
/* Breaks it: streams end with `why` (UNAVAILABLE without one), on_closed follows. Twice is
 * harmless. */
void grpc_connection_break(struct grpc_connection *connection, struct status *why_take);
/* Its peer goes beyond a limit: GOAWAY says so, its streams end, and it closes. Not inside
 * nghttp2. */
void grpc_connection_expel(struct grpc_connection *connection, enum grpc_refusal refusal);
/* Tells the peer that the end comes; after what it sent until it knew, no new streams; closes
 * when the live ones are done. */
void grpc_connection_drain(struct grpc_connection *connection);
/* The peer knows of the drain, or has had time enough. Inside nghttp2, too. */
void grpc_connection_finish_drain(struct grpc_connection *connection);
/* Something was submitted: it leaves at the quiescent point. */
void grpc_connection_schedule(struct grpc_connection *connection);
/* One event's work on bytes that came from anywhere (the fuzzer's way in). */
void grpc_connection_feed(struct grpc_connection *connection, const char *bytes, size_t len);

/* With one reference. */
void grpc_stream_init(struct grpc_stream *stream, const struct grpc_role *role,
                      struct grpc_quota *quota, grpc_align_fn *align);
/* The connection takes the caller's reference, until on_gone. */
void grpc_stream_attach_take(struct grpc_stream *stream_take, struct grpc_connection *connection);
static inline struct grpc_stream *grpc_stream_ref(struct grpc_stream *stream) {
    stream->n_refs++;
    return stream;
}
void grpc_stream_unref(struct grpc_stream *stream);
/* on_ready follows outside nghttp2. */
void grpc_stream_wake(struct grpc_connection *connection, struct grpc_stream *stream);
/* A reply (server) or request (client): headers, then the message unless body is NULL, then the
 * role's trailers; without a body the headers end the stream. With is_streaming set before, more
 * messages may follow. False when the stream cannot take it. */
bool grpc_stream_send(struct grpc_stream *stream, const nghttp2_nv *headers, size_t n_headers,
                      struct grpc_body *body);
/* A streaming reply's next message, in place of one that still waits. */
void grpc_stream_send_next(struct grpc_stream *stream, struct grpc_body *body);
/* Something changed that nghttp2 waits for: a message, or is_streaming ended. */
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
