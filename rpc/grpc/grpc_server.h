/* A gRPC server on a loop. Its user (master/service) gets calls with whole, uncompressed messages.
 *
 * The life of a call: on_call is called when headers and the whole message have arrived. The user
 * answers with exactly one grpc_call_reply or grpc_call_fail, now or later, on the loop thread, and
 * may not use the call after that. When the client resets the stream, the deadline passes or the
 * connection ends first, on_cancel is called once. The user still has to answer; the answer is
 * dropped. A compressed request (grpc-encoding: gzip, deflate) is inflated in slices, between which
 * the loop serves other calls. The server itself answers grpc.health.v1.Health, for the services
 * that its options name.
 *
 * Everything that a peer can make grow has a limit below, which is checked before memory is taken.
 * A call beyond a limit ends with a status that says which. A connection that floods gets
 * GOAWAY(ENHANCE_YOUR_CALM) with the reason and is closed. /metrics counts each refusal. */
#ifndef MILLRACE_RPC_GRPC_GRPC_SERVER_H
#define MILLRACE_RPC_GRPC_GRPC_SERVER_H

#include "rpc/grpc/grpc.h"
#include "rpc/loop.h"

struct grpc_server;
struct grpc_call;
struct tls;

/* "The call fails" means that it ends with RESOURCE_EXHAUSTED. A limit of a rate allows ten
 * seconds' worth at once. */
struct grpc_server_limits {
    int64_t max_connections; /* default 10000; one more is closed when it is accepted */
    /* of all connections, default 100000; one more is reset with ENHANCE_YOUR_CALM, which a client
     * sees as RESOURCE_EXHAUSTED */
    int64_t max_calls;
    /* per connection, default 10000; one more is reset with REFUSED_STREAM. A peer that has
     * acknowledged the limit and breaks it loses the connection. The same number of cancelled calls
     * may await their answers; beyond it a call fails */
    int64_t max_streams;
    /* of a call's header list, default 16384; beyond it the call fails. A block of four times as
     * much ends the connection */
    int64_t max_header_bytes;
    /* streams that the peer resets, or that we reset because of it, per connection; default 1000;
     * more end the connection */
    int64_t max_resets_per_s;
    /* frames that complete no call, per connection; default 1000; more end the connection
     * (grpc_guard.h) */
    int64_t max_control_per_s;
    /* also of an inflated message; default 2 GiB - 1; beyond it the call fails */
    int64_t max_message_bytes;
    /* of request bodies in the server, default 16 GiB; beyond it the call fails */
    int64_t max_inflight_bytes;
    /* of one inflated message, default max_message_bytes; beyond it the call fails */
    int64_t max_inflate_bytes;
    /* of inflated to compressed bytes, default 1100 (deflate reaches at most 1032); beyond it the
     * call fails */
    int64_t max_inflate_ratio;
    int64_t handshake_timeout_ms; /* until the peer's SETTINGS, default 20 s; then it is closed */
    /* A peer that has begun a header block or a message, or has a reply to take, must move a KiB a
     * second within this time, default 60 s. Otherwise the call ends with DEADLINE_EXCEEDED. A
     * connection that takes or completes nothing is closed. */
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
    struct tls *tls; /* clients must speak TLS, except over Unix sockets; NULL: no TLS */
};

/* `address` is "127.0.0.1:2222", "[::]:0", "localhost:2222" (both families) or "unix:/path". With
 * NULL the server does not listen; connections come by grpc_server_adopt. Limits that are 0 take
 * their defaults. Errors: UNAVAILABLE, which names the address and the reason (port in use),
 * INVALID_ARGUMENT (not an address). */
struct status *grpc_server_new(struct loop *loop, const char *address,
                               const struct grpc_server_options *options,
                               struct grpc_server **ret_server) MUST_USE;
int grpc_server_port(const struct grpc_server *server); /* the bound port, 0 for unix */
/* Takes a connected, non-blocking socket. */
void grpc_server_adopt(struct grpc_server *server, int fd_take);
/* Takes such a socket, ends its first call with that status, and closes the connection. */
void grpc_server_adopt_refused(struct grpc_server *server, int fd_take, struct status *why_take);
/* is_serving may say something else now: tells the clients that watch. */
void grpc_server_review_health(struct grpc_server *server);
/* Appends a JSON object for /statusz: the limits, their present use, and what they refused. */
struct str;
void grpc_server_describe(const struct grpc_server *server, struct str *out);
/* Drains: stops accepting and tells each connection that it will end (GOAWAY with the highest
 * stream id). Calls that the peer sent before it knew are still served; then GOAWAY names the
 * last id. Calls in progress finish. on_drained is called once when none is left. Health says
 * NOT_SERVING, and its watchers' calls end with UNAVAILABLE. */
void grpc_server_drain(struct grpc_server *server, void (*on_drained)(void *arg), void *arg);
/* Closes everything at once; on_cancel is called for live calls. on_closed (may be NULL) is called
 * when the memory has been freed, which is after the last live call has been answered. */
void grpc_server_close(struct grpc_server *server, void (*on_closed)(void *arg), void *arg);

/* Appends where the client of a connection is, "10.0.0.7:4711". False: there is none of that id.
 * It searches all connections. */
bool grpc_server_peer_name(const struct grpc_server *server, uint64_t connection_id,
                           struct str *out);

/* ---- a call; loop thread ---- */
const char *grpc_call_path(const struct grpc_call *call);
/* Borrowed; keep its buffer with buffer_ref. */
struct grpc_message *grpc_call_message(struct grpc_call *call);
uint64_t grpc_call_connection_id(const struct grpc_call *call);
/* The task through whose client port the call came, as the connection claims
 * (rpc/grpc/grpc_preface.h). NULL: the client dialled this port. */
const char *grpc_call_relay_task(const struct grpc_call *call);
/* How many ms were left until the client's deadline when the call arrived; -1: no deadline. */
int64_t grpc_call_timeout_ms(const struct grpc_call *call);
/* To be called inside on_call. on_cancel is called once if the call is cancelled after this. */
void grpc_call_set_user(struct grpc_call *call, void *user,
                        void (*on_cancel)(struct grpc_call *call, void *user));
bool grpc_call_is_cancelled(const struct grpc_call *call);
/* Sends the body, whose contents are moved out, and grpc-status 0. The call may not be used after
 * this. A body beyond 2 GiB - 1 fails the call with RESOURCE_EXHAUSTED. */
void grpc_call_reply(struct grpc_call *call, struct grpc_body *body);
/* Ends the call with an error, or ends a streaming reply. Takes the status. The call may not be
 * used after this. */
void grpc_call_fail(struct grpc_call *call, struct status *status_take);
/* Sends one message of a streaming reply of states. Any number of them, then grpc_call_fail,
 * take the place of grpc_call_reply. The body is moved out. At most one message waits while
 * another is being sent, and a newer one replaces it: a peer that reads slowly misses states,
 * but never the last. */
void grpc_call_send(struct grpc_call *call, struct grpc_body *body);

#endif
