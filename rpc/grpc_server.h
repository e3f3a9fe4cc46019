/* A gRPC server on a loop: HTTP/2 connections, calls in, replies out. Its user (master/service) gets whole messages.
 *
 * Life of a call: on_call (headers and the whole message are there) → the user answers with exactly one grpc_call_reply or
 * grpc_call_fail, now or later, on the loop thread → the call is gone. When the client resets the stream, its deadline
 * passes or its connection ends first, on_cancel is called once; the user still answers (the answer is dropped).
 * All limits below are enforced before memory is taken, and each refusal is a clear status, counted in /metrics. */
#ifndef MILLRACE_RPC_GRPC_SERVER_H
#define MILLRACE_RPC_GRPC_SERVER_H

#include "rpc/grpc.h"
#include "rpc/loop.h"

struct grpc_server;
struct grpc_call;

struct grpc_server_limits {
    int64_t max_message_bytes;  /* default 2 GiB - 1: RESOURCE_EXHAUSTED beyond */
    int64_t max_connections;    /* default 10000: accepted and closed at once beyond */
    int64_t max_streams;        /* per connection, default 10000 */
    int64_t max_header_bytes;   /* default 16384 */
    int64_t max_resets_per_s;   /* per connection, burst ten times that; default 1000: GOAWAY beyond */
    int64_t max_inflight_bytes; /* of request bodies in the server, default 16 GiB: RESOURCE_EXHAUSTED beyond */
};
void grpc_server_limits_default(struct grpc_server_limits *limits);

/* A method row: full path and its handler. */
struct grpc_method {
    const char *path; /* "/tensorflow.MasterService/RunStep" */
    void (*on_call)(void *service, struct grpc_call *call);
    grpc_align_fn *align; /* NULL: alignment does not matter */
};

struct grpc_server_options {
    const struct grpc_method *methods;                                   /* borrowed, static */
    size_t n_methods;                                                    /* unknown paths get UNIMPLEMENTED with the path's name */
    void *service;                                                       /* handed to on_call */
    void (*on_connection_closed)(void *service, uint64_t connection_id); /* may be NULL */
    struct grpc_server_limits limits;
};

/* `address`: "127.0.0.1:2222", "[::]:0", "localhost:2222" (both families) or "unix:/path". Errors: UNAVAILABLE naming the address
 * and the reason (port in use), INVALID_ARGUMENT (not an address). NULL: no listening, connections come by grpc_server_adopt. Limits that
 * are 0 take their defaults. */
struct status *grpc_server_new(struct loop *loop, const char *address, const struct grpc_server_options *options,
                               struct grpc_server **ret_server) MUST_USE;
int grpc_server_port(const struct grpc_server *server);          /* the bound port, 0 for unix */
void grpc_server_adopt(struct grpc_server *server, int fd_take); /* a connected, non-blocking socket from elsewhere */
/* Graceful: stops accepting, GOAWAY on all connections, calls in flight finish; on_drained once when none is left. */
void grpc_server_drain(struct grpc_server *server, void (*on_drained)(void *arg), void *arg);
/* At once: closes everything; live calls get on_cancel. on_closed (may be NULL) runs when the memory is gone: after the last live
 * call has been answered. */
void grpc_server_close(struct grpc_server *server, void (*on_closed)(void *arg), void *arg);

/* ---- a call; loop thread ---- */
const char *grpc_call_path(const struct grpc_call *call);
struct grpc_message *grpc_call_message(struct grpc_call *call); /* borrowed; take its buffer by buffer_ref */
uint64_t grpc_call_connection_id(const struct grpc_call *call);
/* Time left until the client's deadline in ms when the call arrived, or -1 without a grpc-timeout. */
int64_t grpc_call_timeout_ms(const struct grpc_call *call);
/* Inside on_call: a call that is already cancelled gets no on_cancel any more. */
void grpc_call_set_user(struct grpc_call *call, void *user, void (*on_cancel)(struct grpc_call *call, void *user));
bool grpc_call_is_cancelled(const struct grpc_call *call);
/* Sends the body (its contents are moved out; body is empty after) and grpc-status 0. The call is gone after. */
void grpc_call_reply(struct grpc_call *call, struct grpc_body *body);
/* Trailers-only error. Takes the status. The call is gone after. */
void grpc_call_fail(struct grpc_call *call, struct status *status_take);

#endif
