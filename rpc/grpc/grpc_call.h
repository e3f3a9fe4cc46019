/* A call in the server: the stream of one request, and the user's work on it. Internal to rpc/grpc.
 *
 *          headers           message whole      on_call           grpc_call_reply, _fail
 *   begun ────────► receiving ───────────► ready ──────► delivered ──────────────────► answered
 *     │                 │    └ compressed ► inflating ─►┘    └ grpc_call_send, any number ►┘
 *     │ wrong headers   │ limit, lie,        │ reset         │ reset, deadline, connection lost
 *     └─────────────────┴─► refused          └► dropped      └► cancelled (on_cancel) ─► answered
 *
 * References: the session's while the stream is open, the ready list's, the open deadline
 * timer's, and the user's from delivery to answer. */
#ifndef MILLRACE_RPC_GRPC_GRPC_CALL_H
#define MILLRACE_RPC_GRPC_GRPC_CALL_H

#include "common/base/map.h"
#include "rpc/grpc/grpc_connection.h"
#include "rpc/grpc/grpc_health.h"
#include "rpc/grpc/grpc_inflate.h"
#include "rpc/grpc/grpc_inproc.h"
#include "rpc/listen.h"

struct grpc_server {
    struct loop *loop;
    struct grpc_server_options options;
    struct listener *listener;
    struct strmap methods; /* path → struct grpc_method */
    struct grpc_quota quota;
    struct list connections;
    struct list inprocs; /* struct grpc_inproc.link: calls without a connection */
    int64_t n_connections;
    int64_t n_calls;       /* call objects in memory */
    int64_t n_orphans;     /* cancelled, not yet answered by the user */
    struct list inflating; /* struct grpc_call.inflating_link; each has a slice in turn */
    struct loop_task inflate;
    bool inflate_is_due;
    struct loop_timer sweep; /* for what stalls (grpc_sweep.c) */
    bool has_sweep;
    struct grpc_health *health; /* NULL: none */
    struct loop_task report;    /* tells that it is drained or closed */
    bool report_is_due, is_draining, is_drained, is_closing;
    void (*on_drained)(void *arg), (*on_closed)(void *arg);
    void *drained_arg, *closed_arg;
};

struct grpc_call {
    struct grpc_stream stream;
    struct grpc_server *server;
    uint64_t connection_id;
    /* who asks, for a call without a connection, until it is told; else NULL */
    struct grpc_inproc *inproc;
    const struct grpc_method *method; /* NULL: unknown */
    char *unknown_path, *unknown_encoding;
    enum grpc_encoding encoding;
    struct grpc_message message;
    struct grpc_inflater *inflater; /* while the message is being inflated */
    struct list inflating_link;
    struct status *final; /* the status that ends a streaming reply; NULL: OK */
    int64_t timeout_ms;   /* -1: none */
    struct loop_timer deadline;
    void *user;
    void (*on_cancel)(struct grpc_call *call, void *user);
    size_t n_header_bytes;
    bool is_post, is_grpc, has_bad_timeout; /* what the headers said */
    bool has_headers, is_ended, is_refused, is_delivered, is_cancelled, is_answered;
};

extern const struct grpc_role grpc_server_role;

void grpc_server_on_connection_closed(struct grpc_connection *connection);
/* A connection or call has ended: reports that the server is drained or closed if it is now. */
void grpc_server_check_idle(struct grpc_server *server);

/* ---- calls without a connection (grpc_inproc.h) ---- */

/* A call that the caller delivers next. */
struct grpc_call *grpc_call_new_inproc(struct grpc_server *server, const struct grpc_method *method,
                                       struct grpc_inproc *inproc, struct grpc_message message_take,
                                       int64_t timeout_ms);
void grpc_call_deliver(struct grpc_call *call);
/* Nobody waits for the answer any more: tells the user. */
void grpc_call_abandon(struct grpc_call *call);

/* ---- peers that stall, and compressed messages ---- */

/* Ends a call whose peer neither sends the bytes that it owes nor takes ours for too long. */
void grpc_call_stalled(struct grpc_call *call);
bool grpc_call_waits_for_peer(const struct grpc_call *call);
void grpc_server_run_inflate(struct loop_task *task);
/* Starts and stops the timer that looks for streams and connections that stall, every quarter of
 * the stall timeout. */
void grpc_sweep_start(struct grpc_server *server);
void grpc_sweep_stop(struct grpc_server *server);

void grpc_server_count_call(void);
extern struct metric grpc_server_bytes_received, grpc_server_bytes_sent;

#endif
