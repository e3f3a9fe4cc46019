/* One HTTP/2 connection: an nghttp2 session over a socket on the loop. What the server and the client share.
 *
 *   socket readable → read → nghttp2 → the role's callbacks (they note and submit; no user code) → dispatch: user code runs
 *   submit (reply, request, reset) → a turn is deferred → at the quiescent point: nghttp2 → output queue → one writev
 *
 * nghttp2 is entered from two places only, the read and the turn, and user code runs in neither's inside. A broken connection
 * closes its socket at once and is torn down by its next turn, never under a caller's feet.
 *
 *   OPEN ── session over (GOAWAY, drained) and all written ──► LINGERING (our side shut; waits for the peer's end, 1 s at most)
 *     └──── error, peer's end, grpc_connection_break ────────► BROKEN ◄┘ ── turn: streams and session go ── handles closed ──► freed
 *
 * Loop thread only. Internal to rpc/grpc*. */
#ifndef MILLRACE_RPC_GRPC_CONNECTION_H
#define MILLRACE_RPC_GRPC_CONNECTION_H

#include <nghttp2/nghttp2.h>

#include "common/base/metrics.h"
#include "rpc/grpc_output.h"
#include "rpc/grpc_receive.h"
#include "rpc/loop.h"

struct grpc_connection;
struct grpc_role;

/* What a server's call and a client's call both are. Counted: by the session while the stream is open, and by who else needs it. */
struct grpc_stream {
    unsigned n_refs;
    int32_t id;
    const struct grpc_role *role;
    struct grpc_connection *connection; /* NULL once the stream is closed */
    struct list link;                   /* in connection->streams */
    struct list ready_link;             /* in connection->ready while on_ready is due; holds a reference */
    struct grpc_receiver in;
    struct grpc_sender *out; /* NULL until a message is submitted */
};

/* The two ends. Inside nghttp2 (marked *) a role may submit frames, but runs no user code. */
struct grpc_role {
    bool is_server;
    struct metric *bytes_received, *bytes_sent;                                         /* may be NULL */
    struct grpc_stream *(*new_stream)(struct grpc_connection *connection);              /* * a peer's request begins */
    void (*on_header)(struct grpc_stream *stream, struct span name, struct span value); /* * */
    void (*on_headers_end)(struct grpc_stream *stream);                                 /* * after each header block */
    void (*on_refused)(struct grpc_stream *stream, struct status *why_take);            /* * the message breaks a rule */
    void (*on_end)(struct grpc_stream *stream);                                         /* * the peer's last byte */
    void (*on_gone)(struct grpc_stream *stream, struct status *why_take);               /* * closed; NULL: in good order */
    void (*on_goaway)(struct grpc_connection *connection);                              /* * may be NULL */
    void (*on_ready)(struct grpc_stream *stream);                                       /* as grpc_stream_wake asked; may be NULL */
    void (*on_closed)(struct grpc_connection *connection);                              /* before its memory goes */
    void (*free_stream)(struct grpc_stream *stream);
};

enum grpc_connection_state { CONNECTION_OPEN, CONNECTION_LINGERING, CONNECTION_BROKEN, CONNECTION_BURIED };

struct grpc_connection {
    struct list link; /* the owner's */
    void *owner;
    uint64_t id;
    struct loop *loop;
    const struct grpc_role *role;
    enum grpc_connection_state state;
    struct status *why; /* it broke; NULL: in good order */
    nghttp2_session *session;
    int fd;
    uv_poll_t poll;
    int poll_events;
    struct loop_timer timer; /* the handshake's, then the lingering's limit */
    bool has_settings;       /* the peer's first SETTINGS came */
    unsigned n_handles;      /* still open */
    struct loop_task turn;
    bool turn_is_due;
    struct list streams; /* open ones */
    struct list ready;
    struct grpc_output out;
    int32_t data_stream_id; /* of the DATA frame that is being read, and how much of it is to come */
    size_t data_left;
};

struct grpc_connection_limits {
    int64_t max_streams, max_header_bytes, max_resets_per_s;
};

/* Takes the socket (non-blocking). Sends SETTINGS. NULL limits: a client's. */
struct grpc_connection *grpc_connection_new(struct loop *loop, int fd_take, const struct grpc_role *role, void *owner,
                                            const struct grpc_connection_limits *limits);
/* Breaks it: streams end with `why` (UNAVAILABLE without one), on_closed follows. Twice is harmless. */
void grpc_connection_break(struct grpc_connection *connection, struct status *why_take);
/* No new streams from the peer; it closes when the live ones are done. */
void grpc_connection_drain(struct grpc_connection *connection);
/* Something was submitted: it leaves at the quiescent point. */
void grpc_connection_schedule(struct grpc_connection *connection);
/* One event's work on bytes that came from anywhere (the fuzzer's way in). */
void grpc_connection_feed(struct grpc_connection *connection, const char *bytes, size_t len);

/* With one reference. */
void grpc_stream_init(struct grpc_stream *stream, const struct grpc_role *role, struct grpc_quota *quota, grpc_align_fn *align);
/* The connection takes the caller's reference, until on_gone. */
void grpc_stream_attach_take(struct grpc_stream *stream_take, struct grpc_connection *connection);
static inline struct grpc_stream *grpc_stream_ref(struct grpc_stream *stream) {
    stream->n_refs++;
    return stream;
}
void grpc_stream_unref(struct grpc_stream *stream);
/* on_ready follows outside nghttp2. */
void grpc_stream_wake(struct grpc_connection *connection, struct grpc_stream *stream);
/* A reply (server) or request (client): headers, then the message unless body is NULL. A server's reply ends with `trailers` (static
 * `grpc-status: 0`); without a body the headers end the stream. False when the stream cannot take it. */
bool grpc_stream_send(struct grpc_stream *stream, const nghttp2_nv *headers, size_t n_headers, struct grpc_body *body);
void grpc_stream_reset(struct grpc_stream *stream, uint32_t error_code);

/* A header field: a value that recurs (indexed by HPACK), one that does not, and one that is static on top. Names are static. */
#define GRPC_NV(name_, value_, value_len_) GRPC_NV_FLAGS(name_, value_, value_len_, NGHTTP2_NV_FLAG_NONE)
#define GRPC_NV_ONCE(name_, value_, value_len_) GRPC_NV_FLAGS(name_, value_, value_len_, NGHTTP2_NV_FLAG_NO_INDEX)
#define GRPC_NV_STATIC(name_, value_) GRPC_NV_FLAGS(name_, value_, sizeof(value_) - 1, NGHTTP2_NV_FLAG_NO_COPY_VALUE)
#define GRPC_NV_FLAGS(name_, value_, value_len_, flags_) \
    (nghttp2_nv) { (uint8_t *)(name_), (uint8_t *)(value_), sizeof(name_) - 1, (value_len_), (flags_) | NGHTTP2_NV_FLAG_NO_COPY_NAME }

#endif
