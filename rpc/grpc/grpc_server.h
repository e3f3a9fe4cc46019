/* A gRPC server on a loop: HTTP/2 connections, calls in, replies out. Its user (master/service)
 * gets whole, uncompressed messages.
 *
 * Life of a call: on_call (headers and the whole message are there) → the user answers with
 * exactly one grpc_call_reply or grpc_call_fail, now or later, on the loop thread → the call is
 * gone. When the client resets the stream, its deadline passes or its connection ends first,
 * on_cancel is called once; the user still answers (the answer is dropped). A request may be
 * compressed (grpc-encoding: gzip, deflate): it is inflated in slices between which the loop
 * serves others. The server answers grpc.health.v1.Health itself, for the services that its
 * options name.
 *
 * Everything that a peer can make grow has a limit below, enforced before memory is taken. A
 * call beyond one ends with a clear status; a connection that floods is told
 * GOAWAY(ENHANCE_YOUR_CALM) with the reason and closed. Each refusal is counted in /metrics. */
#ifndef MILLRACE_RPC_GRPC_GRPC_SERVER_H
#define MILLRACE_RPC_GRPC_GRPC_SERVER_H

#include "rpc/grpc/grpc.h"
#include "rpc/loop.h"

struct grpc_server;
struct grpc_call;
struct tls;

/* "Calls get": the call ends with RESOURCE_EXHAUSTED. Limits of a rate allow ten seconds' worth
 * at once. */
struct grpc_server_limits {
    int64_t max_connections; /* default 10000: accepted and closed at once beyond */
    /* of all connections, default 100000: reset with ENHANCE_YOUR_CALM (RESOURCE_EXHAUSTED to a
     * client) */
    int64_t max_calls;
    /* per connection, default 10000: reset with REFUSED_STREAM; who knows the limit and breaks
     * it loses the connection. Also of cancelled calls that are not wound up yet: calls get */
    int64_t max_streams;
    /* of a call's header list, default 16384: calls get. A block of four times as much ends the
     * connection */
    int64_t max_header_bytes;
    /* streams reset by the peer or because of it, per connection; default 1000: ends the
     * connection */
    int64_t max_resets_per_s;
    /* frames that move no call on, per connection; default 1000: ends the connection
     * (grpc_guard.h) */
    int64_t max_control_per_s;
    int64_t max_message_bytes;  /* also of an inflated one; default 2 GiB - 1: calls get */
    int64_t max_inflight_bytes; /* of request bodies in the server, default 16 GiB: calls get */
    /* that one compressed message becomes, default max_message_bytes: calls get */
    int64_t max_inflate_bytes;
    /* of inflated to compressed bytes, default 1100 (deflate itself ends at 1032): calls get */
    int64_t max_inflate_ratio;
    int64_t handshake_timeout_ms; /* until the peer's SETTINGS came, default 20 s: closed */
    /* A peer that owes bytes (of a header block, of a message that it began) or does not take
     * its reply's must move a KiB a second within this time, default 60 s: the call gets
     * DEADLINE_EXCEEDED; a connection that takes or completes nothing is closed. */
    int64_t stall_timeout_ms;
};
void grpc_server_limits_default(struct grpc_server_limits *limits);

/* A method row: full path and its handler. */
struct grpc_method {
    const char *path; /* "/tensorflow.MasterService/RunStep" */
    void (*on_call)(void *service, struct grpc_call *call);
    grpc_align_fn *align; /* NULL: alignment does not matter */
};

struct grpc_server_options {
    const struct grpc_method *methods; /* borrowed, static */
    /* unknown paths get UNIMPLEMENTED with the path's name */
    size_t n_methods;
    void *service;                                                       /* handed to on_call */
    void (*on_connection_closed)(void *service, uint64_t connection_id); /* may be NULL */
    /* grpc.health.v1.Health: names of services, NULL-terminated, borrowed; "" is the server as a
     * whole. They serve while is_serving says so and the server is not draining. NULL: no health
     * service. */
    const char *const *health_services;
    bool (*is_serving)(void *service);
    struct grpc_server_limits limits;
    struct tls *tls; /* who comes must speak TLS; NULL: in the clear. Unix sockets always are */
};

/* `address`: "127.0.0.1:2222", "[::]:0", "localhost:2222" (both families) or "unix:/path".
 * Errors: UNAVAILABLE naming the address and the reason (port in use), INVALID_ARGUMENT (not an
 * address). NULL: no listening, connections come by grpc_server_adopt. Limits that are 0 take
 * their defaults. */
struct status *grpc_server_new(struct loop *loop, const char *address,
                               const struct grpc_server_options *options,
                               struct grpc_server **ret_server) MUST_USE;
int grpc_server_port(const struct grpc_server *server); /* the bound port, 0 for unix */
/* a connected, non-blocking socket from elsewhere */
void grpc_server_adopt(struct grpc_server *server, int fd_take);
/* One whose first call gets that status, and which ends then. */
void grpc_server_adopt_refused(struct grpc_server *server, int fd_take, struct status *why_take);
/* What is_serving says may have changed: those who watch are told. */
void grpc_server_review_health(struct grpc_server *server);
/* The limits with their present use and refusals, a JSON object (for /statusz). */
struct str;
void grpc_server_describe(const struct grpc_server *server, struct str *out);
/* Graceful: stops accepting; each connection is told that it will end (GOAWAY of the highest
 * stream id), what the peer had sent until it knew is still served, then GOAWAY with the last
 * id; calls in flight finish; on_drained once when none is left. Health says NOT_SERVING, and
 * its watchers' calls end with UNAVAILABLE. */
void grpc_server_drain(struct grpc_server *server, void (*on_drained)(void *arg), void *arg);
/* At once: closes everything; live calls get on_cancel. on_closed (may be NULL) runs when the
 * memory is gone: after the last live call has been answered. */
void grpc_server_close(struct grpc_server *server, void (*on_closed)(void *arg), void *arg);

/* ---- a call; loop thread ---- */
const char *grpc_call_path(const struct grpc_call *call);
/* borrowed; take its buffer by buffer_ref */
struct grpc_message *grpc_call_message(struct grpc_call *call);
uint64_t grpc_call_connection_id(const struct grpc_call *call);
/* The task through whose client port the call came (rpc/grpc/grpc_preface.h), as the connection
 * claims; NULL: it came straight. */
const char *grpc_call_relay_task(const struct grpc_call *call);
/* Time left until the client's deadline in ms when the call arrived, or -1 without a
 * grpc-timeout. */
int64_t grpc_call_timeout_ms(const struct grpc_call *call);
/* Inside on_call: a call that is already cancelled gets no on_cancel any more. */
void grpc_call_set_user(struct grpc_call *call, void *user,
                        void (*on_cancel)(struct grpc_call *call, void *user));
bool grpc_call_is_cancelled(const struct grpc_call *call);
/* Sends the body (its contents are moved out; body is empty after) and grpc-status 0. The call
 * is gone after. */
void grpc_call_reply(struct grpc_call *call, struct grpc_body *body);
/* Trailers-only error, or the end of a streaming reply. Takes the status. The call is gone
 * after. */
void grpc_call_fail(struct grpc_call *call, struct status *status_take);
/* A streaming reply, of states: any number of grpc_call_send instead of grpc_call_reply, then
 * grpc_call_fail (or a cancellation, which grpc_call_fail answers). The body is moved out. At
 * most one message waits behind the one on its way: a newer one takes its place, so a peer that
 * reads slowly misses states, but never the last. */
void grpc_call_send(struct grpc_call *call, struct grpc_body *body);

#endif
