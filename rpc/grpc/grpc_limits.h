/* The limits of a gRPC server: defaults, what each refuses, and how often. Internal to rpc/grpc. */
#ifndef MILLRACE_RPC_GRPC_GRPC_LIMITS_H
#define MILLRACE_RPC_GRPC_GRPC_LIMITS_H

#include "rpc/grpc/grpc_server.h"

enum grpc_refusal {
    REFUSED_NOTHING,
    REFUSED_CONNECTION,
    REFUSED_CALL,
    REFUSED_STREAM,
    REFUSED_HEADERS,
    REFUSED_RESETS,
    REFUSED_CONTROL,
    REFUSED_MESSAGE,
    REFUSED_INFLIGHT,
    REFUSED_INFLATE,
    REFUSED_HANDSHAKE,
    REFUSED_STALL,
    N_REFUSALS
};

/* Sets each limit that is 0 to its default. */
void grpc_limits_fill(struct grpc_server_limits *limits);
void grpc_limits_register_metrics(void);
void grpc_refusal_count(enum grpc_refusal refusal);
/* Logs that a connection was closed because of the limit, at most one line a second: a flood must
 * not become a flood of lines. Loop thread. */
void grpc_refusal_log(enum grpc_refusal refusal);
/* Returns the reason in words, for GOAWAY and the log. */
const char *grpc_refusal_text(enum grpc_refusal refusal);

/* How much of each limit is in use now. */
struct grpc_use {
    int64_t connections, calls, streams, inflight_bytes;
};
void grpc_limits_describe(const struct grpc_server_limits *limits, const struct grpc_use *use,
                          struct str *out);

#endif
