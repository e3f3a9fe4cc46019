/* Finds what stalls in a gRPC server: peers that have begun a request or a reply, and transfer less
 * than a KiB a second of it within the stall timeout. They cost only the memory that they hold, so
 * a look now and then is enough. */
#include "rpc/grpc/grpc_call.h"

enum { SWEEPS_PER_TIMEOUT = 4, MIN_SWEEP_MS = 10, MIN_BYTES_PER_MS = 1 };

struct sweep {
    int64_t now_ms, timeout_ms;
};

/* Has too little been transferred for too long? `moved` is a growing total. The marks hold the
 * total and the time when the stream was last fast enough. */
static bool is_stalled(const struct sweep *sweep, uint64_t moved, uint64_t *mark,
                       int64_t *mark_ms) {
    bool is_well =
        *mark_ms == 0 || moved - *mark >= (uint64_t)(sweep->timeout_ms * MIN_BYTES_PER_MS);
    if (is_well) {
        *mark = moved;
        *mark_ms = sweep->now_ms;
    }
    return !is_well && sweep->now_ms - *mark_ms >= sweep->timeout_ms;
}

/* Bytes that the socket does not take. If it takes any at all, the connection is well, because a
 * slow network is not an attack. */
static bool is_unread(const struct sweep *sweep, struct grpc_connection *connection) {
    if (connection->out.size_bytes == 0 || connection->n_written != connection->n_written_checked ||
        connection->written_checked_ms == 0) {
        connection->n_written_checked = connection->n_written;
        connection->written_checked_ms = sweep->now_ms;
        return false;
    }
    return sweep->now_ms - connection->written_checked_ms >= sweep->timeout_ms;
}

static void sweep_connection(const struct sweep *sweep, struct grpc_connection *connection) {
    if (connection->state != CONNECTION_OPEN)
        return;
    if (is_unread(sweep, connection)) {
        grpc_connection_expel(connection, REFUSED_STALL);
        return;
    }
    LIST_FOR_EACH_SAFE (link, next, &connection->streams) {
        struct grpc_stream *stream = LIST_ENTRY(link, struct grpc_stream, link);
        struct grpc_call *call = CONTAINER_OF(stream, struct grpc_call, stream);
        uint64_t mark = stream->n_checked;
        if (!grpc_call_waits_for_peer(call)) {
            stream->checked_ms = 0;
        } else if (is_stalled(sweep, stream->n_moved, &mark, &stream->checked_ms)) {
            stream->checked_ms = sweep->now_ms; /* its end may be waiting, too */
            grpc_call_stalled(call);
            if (connection->state != CONNECTION_OPEN)
                return;
        }
        stream->n_checked = (size_t)mark;
    }
}

static void on_sweep(struct loop_timer *timer) {
    struct grpc_server *server = CONTAINER_OF(timer, struct grpc_server, sweep);
    struct sweep sweep = {(int64_t)uv_now(loop_uv(server->loop)),
                          server->options.limits.stall_timeout_ms};
    LIST_FOR_EACH_SAFE (link, next, &server->connections)
        sweep_connection(&sweep, LIST_ENTRY(link, struct grpc_connection, link));
}

void grpc_sweep_start(struct grpc_server *server) {
    int64_t every_ms =
        MAX(server->options.limits.stall_timeout_ms / SWEEPS_PER_TIMEOUT, (int64_t)MIN_SWEEP_MS);
    loop_timer_init(server->loop, &server->sweep, on_sweep);
    loop_timer_start(&server->sweep, every_ms, every_ms);
    server->has_sweep = true;
}

static void on_sweep_closed(struct loop_timer *timer) {
    struct grpc_server *server = CONTAINER_OF(timer, struct grpc_server, sweep);
    server->has_sweep = false;
    grpc_server_check_idle(server);
}

void grpc_sweep_stop(struct grpc_server *server) {
    loop_timer_close(&server->sweep, on_sweep_closed);
}
