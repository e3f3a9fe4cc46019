/* The transports over sockets: shm, unix, rdma and tcp. A channel is a connection of the worker
 * wire. The channels of shm are those of unix, and the channels of rdma are those of tcp; the peers
 * add the rest. */
#include <stdlib.h>

#include "worker/exchange/transport.h"

struct socket_channel {
    struct transport_channel base;
    struct wire_conn *conn;
};

static struct socket_channel *socket_of(struct transport_channel *channel) {
    return CONTAINER_OF(channel, struct socket_channel, base);
}

/* ---- what comes in: the connection's owner is the channel, which it holds ---- */

static void on_message(void *owner, struct wire_conn *conn, struct wire_message *message) {
    struct socket_channel *channel = owner;
    channel->base.handlers->on_message(channel->base.owner, &channel->base, message);
}

static struct buffer *on_alloc(void *owner, struct wire_conn *conn,
                               const struct wire_message *message, size_t size_bytes) {
    struct socket_channel *channel = owner;
    if (!channel->base.handlers->alloc)
        return buffer_alloc(allocator_host(), size_bytes);
    return channel->base.handlers->alloc(channel->base.owner, &channel->base, message, size_bytes);
}

static void on_closed(void *owner, struct wire_conn *conn, struct status *why) {
    struct socket_channel *channel = owner;
    channel->base.handlers->on_closed(channel->base.owner, &channel->base, why);
    transport_channel_unref(&channel->base); /* the connection's reference */
}

static const struct wire_handlers wire_handlers = {
    .on_message = on_message, .alloc = on_alloc, .on_closed = on_closed};

/* ---- methods ---- */

static bool unix_accepts(const struct transport_endpoint *here,
                         const struct transport_endpoint *there, struct str *why) {
    bool has_address = there->unix_address && *there->unix_address;
    str_add(why, has_address ? "the same host" : "no Unix address: another host, or switched off");
    return has_address;
}

static bool shm_accepts(const struct transport_endpoint *here,
                        const struct transport_endpoint *there, struct str *why) {
    if (here->uses_shm)
        return unix_accepts(here, there, why);
    str_add(why, "switched off");
    return false;
}

static bool rdma_accepts(const struct transport_endpoint *here,
                         const struct transport_endpoint *there, struct str *why) {
    if (here->uses_rdma)
        str_add(why, "this task has an RDMA device");
    else
        str_add(why, here->why_no_rdma ? here->why_no_rdma : "switched off");
    return here->uses_rdma;
}

static bool tcp_accepts(const struct transport_endpoint *here,
                        const struct transport_endpoint *there, struct str *why) {
    str_add(why, "always possible");
    return true;
}

static struct socket_channel *socket_new(const struct transport *transport, enum channel_kind kind,
                                         const struct transport_handlers *handlers, void *owner) {
    struct socket_channel *channel = xcalloc(1, sizeof(*channel));
    channel->base = (struct transport_channel){
        .transport = transport, .kind = kind, .handlers = handlers, .owner = owner};
    atomic_init(&channel->base.n_refs, 2); /* the caller's and the connection's references */
    return channel;
}

/* Settings of both ends, which have to be made before the first message. */
static void prepare(struct wire_conn *conn, const struct transport_endpoint *there) {
    wire_conn_secure(conn, there->tls, there->own_task);
    if (there->uses_checksums)
        wire_conn_use_checksums(conn);
}

static struct transport_channel *
shm_open_channel(struct loop *loop, const struct transport_endpoint *there, enum channel_kind kind,
                 const struct transport_handlers *handlers, void *owner) {
    struct socket_channel *channel = socket_new(&transport_shm, kind, handlers, owner);
    channel->conn = wire_connect(loop, there->unix_address, &wire_handlers, channel);
    prepare(channel->conn, there);
    if (kind == CHANNEL_ARENA)
        wire_conn_expect_fd(channel->conn);
    return &channel->base;
}

static struct transport_channel *unix_open(struct loop *loop,
                                           const struct transport_endpoint *there,
                                           enum channel_kind kind,
                                           const struct transport_handlers *handlers, void *owner) {
    struct socket_channel *channel = socket_new(&transport_unix, kind, handlers, owner);
    channel->conn = wire_connect(loop, there->unix_address, &wire_handlers, channel);
    prepare(channel->conn, there);
    return &channel->base;
}

static struct transport_channel *open_over_tcp(const struct transport *transport, struct loop *loop,
                                               const struct transport_endpoint *there,
                                               enum channel_kind kind,
                                               const struct transport_handlers *handlers,
                                               void *owner) {
    struct socket_channel *channel = socket_new(transport, kind, handlers, owner);
    channel->conn = wire_connect(loop, there->address, &wire_handlers, channel);
    prepare(channel->conn, there);
    return &channel->base;
}

static struct transport_channel *tcp_open(struct loop *loop, const struct transport_endpoint *there,
                                          enum channel_kind kind,
                                          const struct transport_handlers *handlers, void *owner) {
    return open_over_tcp(&transport_tcp, loop, there, kind, handlers, owner);
}

static struct transport_channel *rdma_open(struct loop *loop,
                                           const struct transport_endpoint *there,
                                           enum channel_kind kind,
                                           const struct transport_handlers *handlers, void *owner) {
    return open_over_tcp(&transport_rdma, loop, there, kind, handlers, owner);
}

struct wire_conn *transport_socket_conn(struct transport_channel *channel) {
    return socket_of(channel)->conn;
}

struct transport_channel *transport_socket_adopt(struct wire_conn *conn_take,
                                                 enum channel_kind kind,
                                                 const struct transport_handlers *handlers,
                                                 void *owner) {
    struct socket_channel *channel = socket_new(
        wire_conn_is_unix(conn_take) ? &transport_unix : &transport_tcp, kind, handlers, owner);
    channel->conn = conn_take;
    wire_conn_set_owner(conn_take, channel, &wire_handlers);
    return &channel->base;
}

static void socket_queue(struct transport_channel *channel, const struct wire_out *message) {
    wire_queue(socket_of(channel)->conn, message);
}
static void socket_flush(struct transport_channel *channel) {
    wire_flush(socket_of(channel)->conn);
}
static size_t socket_queued_bytes(struct transport_channel *channel) {
    return wire_conn_queued_bytes(socket_of(channel)->conn);
}
static void socket_close(struct transport_channel *channel, struct status *why_take) {
    wire_conn_close(socket_of(channel)->conn, why_take);
}
static struct buffer *socket_alloc(struct allocator *allocator, size_t size_bytes) {
    return buffer_alloc(allocator, size_bytes);
}

static void socket_free(struct transport_channel *channel) {
    wire_conn_unref(socket_of(channel)->conn);
    free(channel->input);
    free(socket_of(channel));
}

#define SOCKET_METHODS                                                                 \
    .queue = socket_queue, .flush = socket_flush, .queued_bytes = socket_queued_bytes, \
    .close = socket_close, .alloc = socket_alloc, .free = socket_free

const struct transport transport_shm = {
    .name = "shm", .accepts = shm_accepts, .open = shm_open_channel, SOCKET_METHODS};
const struct transport transport_unix = {
    .name = "unix", .accepts = unix_accepts, .open = unix_open, SOCKET_METHODS};
const struct transport transport_rdma = {
    .name = "rdma", .accepts = rdma_accepts, .open = rdma_open, SOCKET_METHODS};
const struct transport transport_tcp = {
    .name = "tcp", .accepts = tcp_accepts, .open = tcp_open, SOCKET_METHODS};
