/* A server's call: one request stream and what its user makes of it. Internal to rpc/grpc*.
 *
 *            headers            message whole       on_call            grpc_call_reply, _fail
 *   begun ──────────► receiving ────────────► ready ───────► delivered ───────────────────────► answered
 *     │ headers are wrong │ limit, lie, deadline  │ reset        │ reset, deadline, connection lost
 *     └───────────────────┴──► refused            └► dropped     └► cancelled (on_cancel) ── answer is dropped ──► answered
 *
 * References: the session's while the stream is open, the ready list's, the open deadline timer's, and the user's from delivery to
 * answer. */
#ifndef MILLRACE_RPC_GRPC_CALL_H
#define MILLRACE_RPC_GRPC_CALL_H

#include "common/base/map.h"
#include "rpc/grpc_connection.h"
#include "rpc/grpc_server.h"
#include "rpc/listen.h"

struct grpc_server {
    struct loop *loop;
    struct grpc_server_options options;
    struct listener *listener;
    struct strmap methods; /* path → struct grpc_method */
    struct grpc_quota quota;
    struct list connections;
    int64_t n_connections;
    int64_t n_calls;         /* objects that live */
    int64_t n_orphans;       /* cancelled, not yet answered by the user */
    struct loop_task report; /* tells that it is drained or closed */
    bool report_is_due, is_draining, is_drained, is_closing;
    void (*on_drained)(void *arg), (*on_closed)(void *arg);
    void *drained_arg, *closed_arg;
};

struct grpc_call {
    struct grpc_stream stream;
    struct grpc_server *server;
    uint64_t connection_id;
    const struct grpc_method *method; /* NULL: unknown */
    char *unknown_path;
    struct grpc_message message;
    int64_t timeout_ms; /* -1: none */
    struct loop_timer deadline;
    void *user;
    void (*on_cancel)(struct grpc_call *call, void *user);
    size_t n_header_bytes;
    bool is_post, is_grpc, has_bad_timeout; /* what the headers said */
    bool has_headers, is_refused, is_delivered, is_cancelled, is_answered;
};

extern const struct grpc_role grpc_server_role;

void grpc_server_on_connection_closed(struct grpc_connection *connection);
/* Something ended: is the server drained, or closed? */
void grpc_server_check_idle(struct grpc_server *server);

enum grpc_refusal { REFUSED_CONNECTION, REFUSED_STREAM, REFUSED_HEADERS, REFUSED_MESSAGE, N_REFUSALS };
void grpc_server_count_refusal(enum grpc_refusal refusal);
void grpc_server_count_call(void);
extern struct metric grpc_server_bytes_received, grpc_server_bytes_sent;

#endif
