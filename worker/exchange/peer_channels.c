/* Opens, takes over and greets the channels to a peer, and reads what arrives on them. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/tensor/tensor_proto.h"
#include "proto/worker.pb-c.h"
#include "rpc/host_id.h"
#include "worker/exchange/peer_arrivals.h"
#include "worker/exchange/peer_internal.h"
#include "worker/exchange/peer_links.h"

/* ---- what comes ---- */

static void answer_ping(struct transport_channel *channel, const struct wire_message *ping) {
    struct str meta = STR_INIT;
    heartbeat_answer(ping->meta, clock_wall_us(), &meta);
    channel->transport->queue(
        channel,
        &(struct wire_out){.type = WIRE_PONG, .id = ping->id, .meta = {meta.data, meta.len}});
    channel->transport->flush(channel);
    str_fini(&meta);
}
/* Reads the answer to our Hello. */
static struct status *check_hello(struct peer *peer, struct span meta) {
    Millrace__Hello *hello = millrace__hello__unpack(NULL, meta.len, (const uint8_t *)meta.data);
    if (!hello)
        return status_invalid("malformed Hello from task %s", peer->task);
    struct status *st = NULL;
    if (hello->protocol != WIRE_PROTOCOL)
        st = status_failed_precondition(
            "task %s speaks protocol %u of the worker wire, but this task speaks %d", peer->task,
            hello->protocol, WIRE_PROTOCOL);
    else if (strcmp(hello->task, peer->task) != 0)
        st = status_failed_precondition("task %s was dialled, but task %.200s answered", peer->task,
                                        hello->task);
    else if (peer->is_greeted && hello->incarnation != peer->incarnation)
        st = status_unavailable("task %s has been restarted", peer->task);
    if (!st) {
        peer_set_incarnation(peer, hello->incarnation);
        peer->is_greeted = true;
        peer->streams.n_theirs = hello->streams;
        atomic_store_explicit(&peer->takes_pieces, hello->takes_pieces, memory_order_relaxed);
    }
    millrace__hello__free_unpacked(hello, NULL);
    return st;
}

struct channel_input *peer_channel_input(struct transport_channel *channel) {
    if (!channel->input)
        channel->input = xcalloc(1, sizeof(struct channel_input));
    return channel->input;
}

/* Handles a message about an edge. on_alloc has read its meta if it has a payload. */
static struct status *on_edge_message(struct peer *peer, struct transport_channel *channel,
                                      struct wire_message *message) {
    struct peer_table *table = peer->table;
    struct channel_input *input = channel->input;
    struct edge_message edge;
    if (!table->receiver)
        return NULL;
    if (input && input->is_read) {
        input->is_read = false;
        if (channel->kind == CHANNEL_BULK && input->since_ns != 0)
            peer_link_note(&peer->ns_per_byte, message->payload_len,
                           clock_now_ns() - input->since_ns);
        return table->receiver->on_message(table->receiver_arg, peer, message, &input->edge);
    }
    TRY(status_prefix_take(edge_message_read(message->meta, &edge), "from task %s: ", peer->task));
    return table->receiver->on_message(table->receiver_arg, peer, message, &edge);
}

static struct status *on_credit(struct peer *peer, const struct wire_message *message) {
    struct peer_table *table = peer->table;
    uint64_t bytes;
    TRY(status_prefix_take(credit_read(message->meta, &bytes), "from task %s: ", peer->task));
    if (table->receiver && table->receiver->on_credit)
        table->receiver->on_credit(table->receiver_arg, peer, message->id, bytes);
    return NULL;
}

static void on_message(void *owner, struct transport_channel *channel,
                       struct wire_message *message) {
    struct peer *peer = owner;
    struct peer_table *table = peer->table;
    struct status *st = NULL;
    if (table->is_closing)
        return;
    int64_t now_ns = clock_now_ns();
    heartbeat_heard(&peer->heartbeat, now_ns);
    if (channel->kind == CHANNEL_ARENA && message->type != WIRE_HELLO) {
        st = peer_shm_on_message(&peer->shm, channel, message);
        if (st)
            channel->transport->close(channel, st);
        return;
    }
    if (peer_rdma_is_message(message->type)) {
        st = peer_rdma_on_message(&peer->rdma, message);
        if (st)
            channel->transport->close(channel, st);
        return;
    }
    switch (message->type) {
    case WIRE_HELLO:
        st = check_hello(peer, message->meta);
        if (!st && channel->kind > CHANNEL_STREAM)
            peer_streams_on_greeted(peer, channel);
        break;
    case WIRE_PING:
        answer_ping(channel, message);
        break;
    case WIRE_PONG:
        if (channel == peer->channels[CHANNEL_CONTROL])
            peer_steps_ponged(peer, message->id);
        heartbeat_pong(&peer->heartbeat, now_ns, message->id, message->meta);
        break;
    case WIRE_LOST_STEPS:
        st = peer_steps_on_lost(peer, message->meta);
        break;
    case WIRE_CREDIT:
        st = on_credit(peer, message);
        break;
    case WIRE_STRIPE:
        st = peer_arrivals_on_stripe(peer, channel, message);
        break;
    case WIRE_PUSH:
    case WIRE_ANNOUNCE:
    case WIRE_GRANT:
        st = on_edge_message(peer, channel, message);
        break;
    default:
        st = status_invalid("task %s sent a message of type %d, which masters send, not tasks",
                            peer->task, (int)message->type);
    }
    if (st)
        channel->transport->close(channel, st);
}

/* The sender may write the value into memory here by RDMA. If it also came as a Push, it would be
 * read into memory that the sender may still write. */
static bool is_pending_write(struct peer *peer, const struct wire_message *message,
                             const struct edge_message *edge) {
    return unlikely(peer_rdma_has_pending_writes(&peer->rdma)) && message->type == WIRE_PUSH &&
           peer_rdma_is_pending_write(&peer->rdma, message->id, edge->edge, edge->frame_iter);
}

struct buffer *peer_alloc_push(struct peer *peer, const struct wire_message *message,
                               const struct edge_message *edge, size_t size_bytes) {
    struct peer_table *table = peer->table;
    struct buffer *buffer =
        table->receiver->alloc(table->receiver_arg, peer, message, edge, size_bytes);
    /* Tested after is_wanted, so that a grant on another thread is seen by both tests or by
     * none. */
    if (!buffer || !is_pending_write(peer, message, edge))
        return buffer;
    if (buffer != wire_discard)
        buffer_unref(buffer);
    return NULL;
}

static struct status *not_granted(const struct peer *peer, const struct wire_message *message,
                                  size_t size_bytes) {
    return status_exhausted(
        "task %s sends %zu bytes of a %s that were not granted, that arrive a second time, or that "
        "there is no memory for",
        peer->task, size_bytes, wire_type_name(message->type));
}

static struct buffer *alloc_push(struct peer *peer, struct transport_channel *channel,
                                 const struct wire_message *message, size_t size_bytes,
                                 struct status **ret_why) {
    struct channel_input *input = peer_channel_input(channel);
    *ret_why = status_prefix_take(edge_message_read(message->meta, &input->edge),
                                  "from task %s: ", peer->task);
    if (*ret_why)
        return NULL;
    struct buffer *buffer = peer_alloc_push(peer, message, &input->edge, size_bytes);
    input->is_read = buffer && buffer != wire_discard;
    input->since_ns = size_bytes >= PEER_LINK_MIN_BYTES ? clock_now_ns() : 0;
    return buffer;
}

static struct buffer *on_alloc(void *owner, struct transport_channel *channel,
                               const struct wire_message *message, size_t size_bytes) {
    struct peer *peer = owner;
    if (peer->table->is_closing || !peer->table->receiver || channel->kind == CHANNEL_ARENA)
        return NULL;
    if (channel->kind > CHANNEL_STREAM)
        peer_streams_on_used(peer, channel);
    struct status *why = NULL;
    struct buffer *buffer = message->type == WIRE_STRIPE
                                ? peer_arrivals_alloc(peer, channel, message, size_bytes)
                                : alloc_push(peer, channel, message, size_bytes, &why);
    if (!buffer)
        channel->transport->close(channel, why ? why : not_granted(peer, message, size_bytes));
    return buffer;
}

static const struct transport_handlers handlers = {
    .on_message = on_message, .alloc = on_alloc, .on_closed = peer_on_channel_closed};

/* ---- opening ---- */

void peer_hello_write(struct str *out, const char *task, uint64_t incarnation, unsigned channel,
                      uint64_t expected_incarnation) {
    Millrace__Hello hello = MILLRACE__HELLO__INIT;
    hello.protocol = WIRE_PROTOCOL;
    hello.task = (char *)(uintptr_t)task;
    hello.incarnation = incarnation;
    hello.channel = channel;
    hello.host_id = (char *)(uintptr_t)host_id();
    hello.expected_incarnation = expected_incarnation;
    hello.streams = PEER_MAX_STREAMS;
    hello.takes_pieces = true;
    size_t len = millrace__hello__get_packed_size(&hello);
    uint8_t *bytes = xmalloc(len);
    millrace__hello__pack(&hello, bytes);
    str_add_bytes(out, bytes, len);
    free(bytes);
}

void peer_hello_add_cluster(struct str *out, uint64_t cluster, const char *own_task) {
    proto_add_tag(out, 9, 1);
    str_add_bytes(out, &cluster, sizeof(cluster));
    proto_add_bytes(out, 10, own_task, strlen(own_task));
}

static void peer_set_channel(struct peer *peer, enum channel_kind kind,
                             struct transport_channel *channel_take, bool is_adopted) {
    peer->is_adopted[kind] = is_adopted;
    if (kind == CHANNEL_CONTROL) {
        heartbeat_start(&peer->heartbeat, peer->table->heartbeat_ms, false, clock_now_ns());
        peer_steps_publish(peer, channel_take);
        return;
    }
    pthread_mutex_lock(&peer->lock);
    peer->channels[kind] = channel_take;
    pthread_mutex_unlock(&peer->lock);
}

/* Returns the epoch of the control channel that is opened, or that a stream belongs to. */
static void add_epoch(struct peer *peer, unsigned kind, struct str *hello) {
    if (kind == CHANNEL_CONTROL)
        peer->epoch_here = random_u64();
    uint64_t epoch = kind > CHANNEL_STREAM && peer->is_adopted[CHANNEL_CONTROL] ? peer->epoch_there
                                                                                : peer->epoch_here;
    proto_add_tag(hello, 8, 1);
    str_add_bytes(hello, &epoch, sizeof(epoch));
}

/* Opens a channel over the peer's transport and sends its Hello. The caller holds one reference. */
static struct transport_channel *open_channel(struct peer *peer, const struct transport *transport,
                                              const struct transport_endpoint *there,
                                              unsigned kind) {
    struct peer_table *table = peer->table;
    peer_table_add_channel(table);
    struct transport_channel *channel =
        transport->open(table->loop, there, (enum channel_kind)kind, &handlers, peer);
    struct str hello = STR_INIT;
    /* The first channel finds out which process answers. The others have to reach the same
     * process. */
    peer_hello_write(&hello, table->task, table->incarnation, kind,
                     peer->is_greeted ? peer->incarnation : 0);
    add_epoch(peer, kind, &hello);
    if (table->cluster)
        peer_hello_add_cluster(&hello, table->cluster, table->own_task);
    struct wire_out out = {.type = WIRE_HELLO, .meta = {hello.data, hello.len}};
    channel->transport->queue(channel, &out);
    channel->transport->flush(channel);
    str_fini(&hello);
    return channel;
}

static struct transport_endpoint endpoint_here(const struct peer_table *table) {
    return (struct transport_endpoint){.task = table->task,
                                       .incarnation = table->incarnation,
                                       .address = "",
                                       .unix_address = "",
                                       .uses_shm = table->uses_shm,
                                       .uses_rdma = table->rdma.device != NULL,
                                       .why_no_rdma = table->rdma.why_not};
}

static struct transport_endpoint endpoint_there(const struct peer *peer) {
    return (struct transport_endpoint){.task = peer->task,
                                       .own_task = peer->own_task ? peer->own_task : peer->task,
                                       .incarnation = peer->incarnation,
                                       .address = peer->address,
                                       .unix_address = peer->unix_address,
                                       .uses_shm = true,
                                       .tls = peer->table->tls,
                                       .uses_checksums = peer->table->uses_checksums};
}

struct transport_channel *peer_open_stream(struct peer *peer, unsigned index) {
    struct transport_endpoint here = endpoint_here(peer->table), there = endpoint_there(peer);
    /* peer->transport was chosen by the other end if that one has connected */
    struct str why = STR_INIT;
    const struct transport *transport = transport_choose(&here, &there, &why);
    str_fini(&why);
    return open_channel(peer, transport, &there, CHANNEL_STREAM + index);
}

/* A control channel exists now, so the peer's arena is asked for, too. */
static void open_arena(struct peer *peer) {
    struct peer_table *table = peer->table;
    struct transport_endpoint here = endpoint_here(table), there = endpoint_there(peer);
    struct str why = STR_INIT;
    if (!table->is_closing && !peer_shm_has_connection_to_peer(&peer->shm) &&
        transport_choose(&here, &there, &why) == &transport_shm)
        peer_shm_add_connection(&peer->shm,
                                open_channel(peer, &transport_shm, &there, CHANNEL_ARENA), true);
    str_fini(&why);
}

void peer_set_incarnation(struct peer *peer, uint64_t incarnation) {
    bool is_another = peer->incarnation != 0 && peer->incarnation != incarnation;
    peer->incarnation = incarnation;
    if (!is_another)
        return;
    peer_shm_forget(&peer->shm);
    /* the new process has not refused a connection */
    peer->streams.off_until_ns = peer->streams.retry_ms = 0;
    if (peer->channels[CHANNEL_CONTROL])
        open_arena(peer);
}

/* Starts what needs a control channel. */
static void open_extra_channel(struct peer *peer) {
    bool is_tcp = peer->transport == &transport_tcp || peer->transport == &transport_rdma;
    open_arena(peer);
    if (is_tcp)
        peer_rdma_begin(
            /* This is first: a thread that sees that values may be pushed must also see that an
             * RDMA connection may come. */
            &peer->rdma);
    atomic_store_explicit(&peer->pushes_pregranted, is_tcp, memory_order_release);
}

void peer_open(struct peer *peer, enum channel_kind kind) {
    struct peer_table *table = peer->table;
    if (peer->is_self || peer->channels[kind] || table->is_closing)
        return;
    struct transport_endpoint here = endpoint_here(table), there = endpoint_there(peer);
    str_clear(&peer->why);
    peer->transport = transport_choose(&here, &there, &peer->why);
    peer_set_channel(peer, kind, open_channel(peer, peer->transport, &there, kind), false);
    if (kind == CHANNEL_CONTROL)
        open_extra_channel(peer);
}

void peer_connect(struct peer *peer) { peer_open(peer, CHANNEL_CONTROL); }
/* ---- taking over ---- */

/* A task opens a second channel only when it has lost the first. */
static void lose_to_another(struct peer *peer) {
    struct status *why =
        status_unavailable("Lost the connection to task %s: it has opened a new one", peer->task);
    peer_lost(peer, why);
    status_unref(why);
}

static void lose_to_restart(struct peer *peer) {
    struct status *why =
        status_unavailable("Lost the connection to task %s: it has been restarted", peer->task);
    peer_lost(peer, why);
    status_unref(why);
}

static struct status *accept_stream(struct peer *peer, struct wire_conn *conn, unsigned index,
                                    uint64_t epoch) {
    if (epoch != peer->epoch_here && epoch != peer->epoch_there)
        return status_failed_precondition("task %s opens stream %u of a connection that has ended",
                                          peer->task, index);
    TRY(peer_streams_check_room(peer, index));
    if (peer->streams.from_peer[index]) {
        lose_to_another(peer);
        return status_failed_precondition("task %s opens stream %u a second time", peer->task,
                                          index);
    }
    peer_table_add_channel(peer->table);
    enum channel_kind kind = (enum channel_kind)(CHANNEL_STREAM + index);
    peer_streams_add(peer, index, transport_socket_adopt(conn, kind, &handlers, peer));
    return NULL;
}

struct status *peer_table_accept(struct peer_table *table, struct wire_conn *conn,
                                 const struct peer_greeting *greeting) {
    const char *task = greeting->task;
    enum channel_kind kind = greeting->kind;
    struct peer *peer = peer_find(table, task);
    if (!peer || peer->is_self)
        return status_failed_precondition(
            "task %.200s is not known to %s: no registered graph exchanges with it", task,
            table->task);
    if (peer->own_task && strcmp(peer->own_task, greeting->own_task) != 0)
        return status_failed_precondition(
            "task %s of a session's cluster is %s, but %.200s connected under its name", task,
            peer->own_task, greeting->own_task);
    if (peer->is_greeted && greeting->incarnation != peer->incarnation) {
        if (kind > CHANNEL_STREAM)
            return status_failed_precondition("task %s opens a stream as another incarnation",
                                              task);
        lose_to_restart(peer);
    }
    peer_set_incarnation(peer, greeting->incarnation);
    peer->is_greeted |= kind != CHANNEL_ARENA; /* this channel outlives the others */
    if (kind == CHANNEL_ARENA) {
        peer_table_add_channel(table);
        peer_shm_add_connection(&peer->shm, transport_socket_adopt(conn, kind, &handlers, peer),
                                false);
        return NULL;
    }
    if (kind > CHANNEL_STREAM)
        return accept_stream(peer, conn, (unsigned)kind - CHANNEL_STREAM, greeting->epoch);
    if (peer->channels[kind] && peer->is_adopted[kind])
        lose_to_another(peer);
    if (kind == CHANNEL_CONTROL) {
        peer->epoch_there = greeting->epoch;
        peer->streams.n_theirs = greeting->n_streams;
        atomic_store_explicit(&peer->takes_pieces, greeting->takes_pieces, memory_order_relaxed);
    }
    peer_table_add_channel(table);
    struct transport_channel *channel = transport_socket_adopt(conn, kind, &handlers, peer);
    if (peer->channels[kind]) { /* Both ends have opened one: each sends on its own. */
        struct status *why =
            status_new(STATUS_CANCELLED, "task %s has opened another connection", task);
        peer_drop_extra(peer, (int)kind, why);
        status_unref(why);
        peer->extras[kind] = channel;
        return NULL;
    }
    peer->transport = channel->transport;
    str_clear(&peer->why);
    str_add(&peer->why, "the other task connected");
    peer_set_channel(peer, kind, channel, true);
    if (kind == CHANNEL_CONTROL)
        open_extra_channel(peer);
    return NULL;
}
