#include "worker/peer.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/tensor/tensor_proto.h"
#include "proto/worker.pb-c.h"
#include "rpc/host_id.h"
#include "worker/peer_internal.h"

static void on_timer(struct loop_timer *timer);

/* ---- the table ---- */

struct peer_table *peer_table_new(struct loop *loop, const char *task, uint64_t incarnation) {
    struct peer_table *table = xcalloc(1, sizeof(*table));
    table->loop = loop;
    table->task = xstrdup(task);
    table->incarnation = incarnation;
    table->heartbeat_ms = HEARTBEAT_DEFAULT_MS;
    table->n_streams = 1;
    table->max_kept_bytes = PEER_SHM_MAX_KEPT_BYTES;
    CHECK(pthread_mutex_init(&table->lock, NULL) == 0);
    strmap_init(&table->peers);
    loop_timer_init(loop, &table->timer, on_timer);
    return table;
}

void peer_table_set_heartbeat(struct peer_table *table, int64_t interval_ms) { table->heartbeat_ms = interval_ms; }

void peer_table_use_shm(struct peer_table *table, struct shm_arena *arena) {
    table->uses_shm = true;
    table->arena = arena;
}

void peer_table_set_shm_limit(struct peer_table *table, int64_t max_kept_bytes) { table->max_kept_bytes = max_kept_bytes; }

void peer_table_set_tls(struct peer_table *table, struct tls *tls) { table->tls = tls; }
void peer_table_set_streams(struct peer_table *table, unsigned n_streams) { table->n_streams = n_streams; }

void peer_table_set_sums(struct peer_table *table, bool uses_sums) { table->uses_sums = uses_sums; }

void peer_table_use_rdma(struct peer_table *table, enum rdma_mode mode, struct rdma_device *device_take, const char *why_not) {
    table->rdma = (struct peer_rdma_setup){
        .mode = mode, .device = device_take, .why_not = xstrdup(why_not ? why_not : ""), .retry_ms = PEER_RDMA_RETRY_MS};
}

void peer_table_set_rdma_retry(struct peer_table *table, int64_t retry_ms) { table->rdma.retry_ms = retry_ms; }

void peer_table_set_receiver(struct peer_table *table, const struct peer_receiver *receiver, void *arg) {
    table->receiver = receiver;
    table->receiver_arg = arg;
}

void peer_table_set_on_lost(struct peer_table *table, peer_lost_fn *on_lost, void *arg) {
    table->on_lost = on_lost;
    table->on_lost_arg = arg;
}

struct loop *peer_table_loop(struct peer_table *table) {
    return table->loop;
}
const char *peer_table_task(const struct peer_table *table) { return table->task; }
const char *peer_name(const struct peer *peer) { return peer->task; }
bool peer_is_self(const struct peer *peer) { return peer->is_self; }
_Atomic int64_t *peer_in_flight_bytes(struct peer *peer) { return &peer->in_flight_bytes; }
_Atomic int64_t *peer_ahead_bytes(struct peer *peer) { return &peer->ahead_bytes; }
_Atomic int *peer_n_held_ahead(struct peer *peer) { return &peer->n_held_ahead; }

static void peer_free(struct peer *peer) {
    pthread_mutex_destroy(&peer->lock);
    peer_shm_fini(&peer->shm);
    peer_rdma_fini(&peer->rdma);
    str_fini(&peer->why);
    free(peer->task);
    free(peer->address);
    free(peer->unix_address);
    free(peer);
}

void peer_table_free_when_done(struct peer_table *table) {
    if (!table->is_timer_closed || table->n_channels > 0 || atomic_load(&table->n_held) > 0)
        return;
    size_t cursor = 0;
    struct span key;
    void *peer;
    while (strmap_next(&table->peers, &cursor, &key, &peer))
        peer_free(peer);
    strmap_fini(&table->peers);
    pthread_mutex_destroy(&table->lock);
    free(table->rdma.why_not);
    free(table->task);
    free(table);
}

struct peer *peer_find(struct peer_table *table, const char *task) {
    pthread_mutex_lock(&table->lock);
    struct peer *peer = strmap_get(&table->peers, task);
    pthread_mutex_unlock(&table->lock);
    return peer;
}

static void set_text(char **field, const char *text) {
    if (*field && strcmp(*field, text) == 0)
        return;
    free(*field);
    *field = xstrdup(text);
}

/* ---- channels ---- */

static const struct transport_handlers handlers;

static void close_channel(struct transport_channel *channel_take, struct status *why) {
    if (channel_take)
        channel_take->transport->close(channel_take, status_ref(why));
    transport_channel_unref(channel_take);
}

static void drop_extra(struct peer *peer, int kind, struct status *why) {
    struct transport_channel *extra = peer->extras[kind];
    peer->extras[kind] = NULL;
    close_channel(extra, why);
}

/* Takes all channels off the peer and closes them. */
static void drop_channels(struct peer *peer, struct status *why) {
    heartbeat_stop(&peer->heartbeat);
    peer_rdma_reset(&peer->rdma);
    peer_streams_reset(peer, why);
    peer->epoch_here = peer->epoch_there = 0;
    atomic_store_explicit(&peer->pushes_ahead, false, memory_order_relaxed);
    for (int kind = 0; kind < TRANSPORT_N_KINDS; kind++) {
        pthread_mutex_lock(&peer->lock);
        struct transport_channel *channel = peer->channels[kind];
        peer->channels[kind] = NULL;
        pthread_mutex_unlock(&peer->lock);
        close_channel(channel, why);
        drop_extra(peer, kind, why);
    }
}

static void peer_lost(struct peer *peer, struct status *why) {
    struct peer_table *table = peer->table;
    drop_channels(peer, why);
    peer_shm_settle(&peer->shm);
    peer->n_losses++;
    if (table->on_lost && !table->is_closing)
        table->on_lost(table->on_lost_arg, peer, why);
}

static void on_closed(void *owner, struct transport_channel *channel, struct status *why) {
    struct peer *peer = owner;
    struct peer_table *table = peer->table;
    bool is_lost;
    if (channel->kind == TRANSPORT_ARENA) /* with the last channel, or before the others */
        is_lost = peer_shm_on_closed(&peer->shm, channel, table->is_closing) && peer->channels[TRANSPORT_CONTROL];
    else if (channel->kind > TRANSPORT_STREAM)
        is_lost = peer_streams_on_closed(peer, channel, why);
    else
        is_lost = peer->channels[channel->kind] == channel;
    if (is_lost && !table->is_closing) {
        struct status *lost = why ? status_ref(why) : status_unavailable("closed");
        if (channel->kind > TRANSPORT_STREAM)
            lost = status_prefix_take(lost, "stream %d: ", (int)channel->kind - TRANSPORT_STREAM);
        lost = status_prefix_take(lost, "Lost the connection to task %s: ", peer->task);
        peer_lost(peer, lost);
        status_unref(lost);
    } else if (channel->kind < TRANSPORT_N_KINDS && peer->extras[channel->kind] == channel) {
        drop_extra(peer, (int)channel->kind, why);
    }
    if (--table->n_channels == 0)
        loop_timer_stop(&table->timer);
    peer_table_free_when_done(table);
}

/* ---- heartbeats ---- */

static void add_channel(struct peer_table *table) {
    if (table->n_channels++ == 0)
        loop_timer_start(&table->timer, heartbeat_tick_ms(table->heartbeat_ms), heartbeat_tick_ms(table->heartbeat_ms));
}

static void send_ping(struct peer *peer, int64_t now_ns) {
    struct str meta = STR_INIT;
    heartbeat_ping(&peer->heartbeat, now_ns, clock_wall_us(), &meta);
    if (peer_queue(peer, TRANSPORT_CONTROL,
                   &(struct wire_out){.type = WIRE_PING, .id = peer->heartbeat.ping_id, .meta = {meta.data, meta.len}}))
        peer_flush(peer, TRANSPORT_CONTROL);
    str_fini(&meta);
}

static void answer_ping(struct transport_channel *channel, const struct wire_message *ping) {
    struct str meta = STR_INIT;
    heartbeat_answer(ping->meta, clock_wall_us(), &meta);
    channel->transport->queue(channel, &(struct wire_out){.type = WIRE_PONG, .id = ping->id, .meta = {meta.data, meta.len}});
    channel->transport->flush(channel);
    str_fini(&meta);
}

static void peer_tick(struct peer *peer, int64_t now_ns) {
    peer_rdma_tick(&peer->rdma, now_ns);
    peer_streams_tick(peer, now_ns);
    unsigned actions = heartbeat_tick(&peer->heartbeat, now_ns);
    if (actions & HEARTBEAT_PING)
        send_ping(peer, now_ns);
    if (actions & HEARTBEAT_LOST) {
        struct status *why =
            status_prefix_take(heartbeat_silence(&peer->heartbeat, now_ns), "Lost the connection to task %s: ", peer->task);
        peer_lost(peer, why);
        status_unref(why);
    }
}

/* Peers are added on this thread only, and never by what a tick does. */
static void on_timer(struct loop_timer *timer) {
    struct peer_table *table = CONTAINER_OF(timer, struct peer_table, timer);
    int64_t now_ns = clock_now_ns();
    size_t cursor = 0;
    struct span key;
    void *peer;
    while (strmap_next(&table->peers, &cursor, &key, &peer))
        peer_tick(peer, now_ns);
}

/* The answer to our Hello. */
static struct status *check_hello(struct peer *peer, struct span meta) {
    Millrace__Hello *hello = millrace__hello__unpack(NULL, meta.len, (const uint8_t *)meta.data);
    if (!hello)
        return status_invalid("malformed Hello from task %s", peer->task);
    struct status *st = NULL;
    if (hello->protocol != WIRE_PROTOCOL)
        st = status_failed_precondition("task %s speaks protocol %u of the worker wire, this is %d", peer->task, hello->protocol,
                                        WIRE_PROTOCOL);
    else if (strcmp(hello->task, peer->task) != 0)
        st = status_failed_precondition("at the address of task %s answers task %.200s", peer->task, hello->task);
    else if (peer->incarnation != 0 && hello->incarnation != peer->incarnation)
        st = status_new(STATUS_ABORTED, "task %s has been restarted", peer->task);
    if (!st)
        peer->streams.n_theirs = hello->streams;
    millrace__hello__free_unpacked(hello, NULL);
    return st;
}

static void on_message(void *owner, struct transport_channel *channel, struct wire_message *message) {
    struct peer *peer = owner;
    struct peer_table *table = peer->table;
    struct status *st = NULL;
    if (table->is_closing)
        return;
    int64_t now_ns = clock_now_ns();
    heartbeat_heard(&peer->heartbeat, now_ns);
    if (channel->kind == TRANSPORT_ARENA && message->type != WIRE_HELLO) {
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
        if (!st && channel->kind > TRANSPORT_STREAM)
            peer_streams_on_greeted(peer, channel);
        break;
    case WIRE_PING:
        answer_ping(channel, message);
        break;
    case WIRE_PONG:
        heartbeat_pong(&peer->heartbeat, now_ns, message->id, message->meta);
        break;
    case WIRE_STRIPE:
        st = peer_streams_on_stripe(peer, message);
        break;
    case WIRE_PUSH:
    case WIRE_ANNOUNCE:
    case WIRE_GRANT:
        if (table->receiver)
            st = table->receiver->on_message(table->receiver_arg, peer, message);
        break;
    default:
        st = status_invalid("task %s sent a message of type %d, which is not for another worker", peer->task, (int)message->type);
    }
    if (st)
        channel->transport->close(channel, st);
}

/* What has a place is written there: a Push as well would be read into memory that the sender may still write. */
static bool is_to_land(struct peer *peer, const struct wire_message *message) {
    struct edge_message edge;
    if (likely(!peer_rdma_has_landings(&peer->rdma)) || message->type != WIRE_PUSH)
        return false;
    struct status *st = edge_message_read(message->meta, &edge);
    bool is_to_land = st || peer_rdma_is_landing(&peer->rdma, message->id, edge.edge, edge.frame_iter);
    status_unref(st);
    return is_to_land;
}

struct buffer *peer_alloc_push(struct peer *peer, const struct wire_message *message, size_t size_bytes) {
    struct peer_table *table = peer->table;
    struct buffer *buffer = table->receiver->alloc(table->receiver_arg, peer, message, size_bytes);
    if (!buffer || !is_to_land(peer, message)) /* asked after: a grant on another thread is seen by both or by none */
        return buffer;
    if (buffer != wire_discard)
        buffer_unref(buffer);
    return NULL;
}

static struct buffer *on_alloc(void *owner, struct transport_channel *channel, const struct wire_message *message, size_t size_bytes) {
    struct peer *peer = owner;
    if (peer->table->is_closing || !peer->table->receiver || channel->kind == TRANSPORT_ARENA)
        return NULL;
    bool is_stripe = message->type == WIRE_STRIPE;
    if (channel->kind > TRANSPORT_STREAM)
        peer_streams_on_used(peer, channel);
    struct buffer *buffer = is_stripe ? peer_streams_alloc(peer, message, size_bytes) : peer_alloc_push(peer, message, size_bytes);
    if (!buffer)
        channel->transport->close(channel,
                                  status_exhausted("task %s sends %zu bytes of a %s that were not granted, that come a second time, "
                                                   "or that there is no memory for",
                                                   peer->task, size_bytes, wire_type_name(message->type)));
    return buffer;
}

static const struct transport_handlers handlers = {.on_message = on_message, .alloc = on_alloc, .on_closed = on_closed};

void peer_hello_write(struct str *out, const char *task, uint64_t incarnation, unsigned channel, uint64_t expected_incarnation) {
    Millrace__Hello hello = MILLRACE__HELLO__INIT;
    hello.protocol = WIRE_PROTOCOL;
    hello.task = (char *)(uintptr_t)task;
    hello.incarnation = incarnation;
    hello.channel = channel;
    hello.host_id = (char *)(uintptr_t)host_id();
    hello.expected_incarnation = expected_incarnation;
    hello.streams = PEER_MAX_STREAMS;
    size_t len = millrace__hello__get_packed_size(&hello);
    uint8_t *bytes = xmalloc(len);
    millrace__hello__pack(&hello, bytes);
    str_add_bytes(out, bytes, len);
    free(bytes);
}

static void peer_set_channel(struct peer *peer, enum transport_kind kind, struct transport_channel *channel_take, bool is_adopted) {
    peer->is_adopted[kind] = is_adopted;
    if (kind == TRANSPORT_CONTROL)
        heartbeat_start(&peer->heartbeat, peer->table->heartbeat_ms, false, clock_now_ns());
    pthread_mutex_lock(&peer->lock);
    peer->channels[kind] = channel_take;
    pthread_mutex_unlock(&peer->lock);
}

/* Of the control channel that is opened, or that a stream belongs to. */
static void add_epoch(struct peer *peer, unsigned kind, struct str *hello) {
    if (kind == TRANSPORT_CONTROL)
        peer->epoch_here = random_u64();
    uint64_t epoch = kind > TRANSPORT_STREAM && peer->is_adopted[TRANSPORT_CONTROL] ? peer->epoch_there : peer->epoch_here;
    proto_add_tag(hello, 8, 1);
    str_add_bytes(hello, &epoch, sizeof(epoch));
}

/* A channel over the peer's transport, that has greeted. One reference for the caller. */
static struct transport_channel *open_channel(struct peer *peer, const struct transport *transport, const struct transport_endpoint *there,
                                              unsigned kind) {
    struct peer_table *table = peer->table;
    add_channel(table);
    struct transport_channel *channel = transport->open(table->loop, there, (enum transport_kind)kind, &handlers, peer);
    struct str hello = STR_INIT;
    peer_hello_write(&hello, table->task, table->incarnation, kind, peer->incarnation);
    add_epoch(peer, kind, &hello);
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
                                       .incarnation = peer->incarnation,
                                       .address = peer->address,
                                       .unix_address = peer->unix_address,
                                       .uses_shm = true,
                                       .tls = peer->table->tls,
                                       .uses_sums = peer->table->uses_sums};
}

struct transport_channel *peer_open_stream(struct peer *peer, unsigned index) {
    struct transport_endpoint here = endpoint_here(peer->table), there = endpoint_there(peer);
    struct str why = STR_INIT; /* peer->transport is the other end's choice where that has connected */
    const struct transport *transport = transport_choose(&here, &there, &why);
    str_fini(&why);
    return open_channel(peer, transport, &there, TRANSPORT_STREAM + index);
}

/* A control channel has come about: the peer's arena is asked for as well. */
static void open_arena(struct peer *peer) {
    struct peer_table *table = peer->table;
    struct transport_endpoint here = endpoint_here(table), there = endpoint_there(peer);
    struct str why = STR_INIT;
    if (!table->is_closing && !peer_shm_has_line_to_peer(&peer->shm) && transport_choose(&here, &there, &why) == &transport_shm)
        peer_shm_add_line(&peer->shm, open_channel(peer, &transport_shm, &there, TRANSPORT_ARENA), true);
    str_fini(&why);
}

/* What a control channel makes possible. */
static void open_besides(struct peer *peer) {
    bool is_tcp = peer->transport == &transport_tcp || peer->transport == &transport_rdma;
    open_arena(peer);
    atomic_store_explicit(&peer->pushes_ahead, is_tcp, memory_order_relaxed);
    if (is_tcp)
        peer_rdma_begin(&peer->rdma);
}

static void peer_open(struct peer *peer, enum transport_kind kind) {
    struct peer_table *table = peer->table;
    if (peer->is_self || peer->channels[kind] || table->is_closing)
        return;
    struct transport_endpoint here = endpoint_here(table), there = endpoint_there(peer);
    str_clear(&peer->why);
    peer->transport = transport_choose(&here, &there, &peer->why);
    peer_set_channel(peer, kind, open_channel(peer, peer->transport, &there, kind), false);
    if (kind == TRANSPORT_CONTROL)
        open_besides(peer);
}

void peer_connect(struct peer *peer) { peer_open(peer, TRANSPORT_CONTROL); }

/* ---- knowing peers ---- */

struct status *peer_table_know(struct peer_table *table, const char *task, const char *address, const char *unix_address,
                               uint64_t incarnation, struct peer **ret_peer) {
    struct peer *peer = peer_find(table, task);
    if (!peer) {
        if (table->peers.n_entries >= PEER_MAX_KNOWN)
            return status_exhausted("%d other tasks are known already, task %.200s would be one more", PEER_MAX_KNOWN, task);
        peer = xcalloc(1, sizeof(*peer));
        peer->table = table;
        peer->task = xstrdup(task);
        peer->is_self = strcmp(task, table->task) == 0;
        peer_streams_init(&peer->streams);
        peer_shm_init(&peer->shm, peer->task);
        peer->shm.arena = table->arena;
        peer->shm.max_kept_bytes = table->max_kept_bytes;
        peer_rdma_init(&peer->rdma, peer, peer->task, table->loop, &table->rdma, &peer_rdma_host);
        CHECK(pthread_mutex_init(&peer->lock, NULL) == 0);
        pthread_mutex_lock(&table->lock);
        strmap_put(&table->peers, peer->task, peer);
        pthread_mutex_unlock(&table->lock);
    }
    bool is_restarted = peer->incarnation != 0 && incarnation != 0 && peer->incarnation != incarnation;
    set_text(&peer->address, address);
    set_text(&peer->unix_address, unix_address);
    if (incarnation != 0)
        peer->incarnation = incarnation;
    if (is_restarted) {
        struct status *why = status_new(STATUS_ABORTED, "Task %s has been restarted", task);
        peer_shm_forget(&peer->shm);
        peer_lost(peer, why);
        peer->streams.off_until_ns = peer->streams.retry_ms = 0; /* the new one has refused none */
        status_unref(why);
    }
    *ret_peer = peer;
    return NULL;
}

/* Nobody opens a second one but who has lost the first. */
static void lose_to_another(struct peer *peer) {
    struct status *why = status_unavailable("Lost the connection to task %s: it has opened another one", peer->task);
    peer_lost(peer, why);
    status_unref(why);
}

static struct status *accept_stream(struct peer *peer, struct wire_conn *conn, unsigned index, uint64_t epoch) {
    if (epoch != peer->epoch_here && epoch != peer->epoch_there)
        return status_failed_precondition("task %s opens stream %u of a connection that is no more", peer->task, index);
    TRY(peer_streams_check_room(peer, index));
    if (peer->streams.from_peer[index]) {
        lose_to_another(peer);
        return status_failed_precondition("task %s opens stream %u a second time", peer->task, index);
    }
    add_channel(peer->table);
    enum transport_kind kind = (enum transport_kind)(TRANSPORT_STREAM + index);
    peer_streams_add(peer, index, transport_socket_adopt(conn, kind, &handlers, peer));
    return NULL;
}

struct status *peer_table_accept(struct peer_table *table, struct wire_conn *conn, const struct peer_greeting *greeting) {
    const char *task = greeting->task;
    enum transport_kind kind = greeting->kind;
    struct peer *peer = peer_find(table, task);
    if (!peer || peer->is_self)
        return status_failed_precondition("task %.200s is not known to %s: no registered graph exchanges with it", task, table->task);
    if (peer->incarnation != 0 && greeting->incarnation != peer->incarnation)
        return status_failed_precondition("task %s connects as another incarnation than the master told", task);
    if (kind == TRANSPORT_ARENA) {
        add_channel(table);
        peer_shm_add_line(&peer->shm, transport_socket_adopt(conn, kind, &handlers, peer), false);
        return NULL;
    }
    if (kind > TRANSPORT_STREAM)
        return accept_stream(peer, conn, (unsigned)kind - TRANSPORT_STREAM, greeting->epoch);
    if (peer->channels[kind] && peer->is_adopted[kind])
        lose_to_another(peer);
    if (kind == TRANSPORT_CONTROL) {
        peer->epoch_there = greeting->epoch;
        peer->streams.n_theirs = greeting->n_streams;
    }
    add_channel(table);
    struct transport_channel *channel = transport_socket_adopt(conn, kind, &handlers, peer);
    if (peer->channels[kind]) { /* both opened one: each end sends on its own */
        struct status *why = status_new(STATUS_CANCELLED, "task %s has opened another connection", task);
        drop_extra(peer, (int)kind, why);
        status_unref(why);
        peer->extras[kind] = channel;
        return NULL;
    }
    peer->transport = channel->transport;
    str_clear(&peer->why);
    str_add(&peer->why, "the other task connected");
    peer_set_channel(peer, kind, channel, true);
    if (kind == TRANSPORT_CONTROL)
        open_besides(peer);
    return NULL;
}

static void on_timer_closed(struct loop_timer *timer) {
    struct peer_table *table = CONTAINER_OF(timer, struct peer_table, timer);
    table->is_timer_closed = true;
    peer_table_free_when_done(table);
}

void peer_table_free(struct peer_table *table) {
    if (!table)
        return;
    struct status *why = status_unavailable("task %s is stopping", table->task);
    table->is_closing = true;
    size_t cursor = 0;
    struct span key;
    void *peer;
    while (strmap_next(&table->peers, &cursor, &key, &peer)) {
        drop_channels(peer, why);
        peer_shm_close(&((struct peer *)peer)->shm, why);
    }
    status_unref(why);
    rdma_device_close(table->rdma.device);
    table->rdma.device = NULL;
    loop_timer_close(&table->timer, on_timer_closed);
}

/* ---- sending ---- */

static struct transport_channel *channel_get(struct peer *peer, enum transport_kind kind) {
    pthread_mutex_lock(&peer->lock);
    struct transport_channel *channel = peer->channels[kind];
    if (channel)
        transport_channel_ref(channel);
    pthread_mutex_unlock(&peer->lock);
    return channel;
}

bool peer_queue(struct peer *peer, enum transport_kind kind, const struct wire_out *message) {
    if (kind == TRANSPORT_BULK && loop_is_current(peer->table->loop))
        peer_open(peer, TRANSPORT_BULK);
    struct transport_channel *channel = channel_get(peer, kind);
    if (!channel)
        return false;
    channel->transport->queue(channel, message);
    transport_channel_unref(channel);
    return true;
}

void peer_flush(struct peer *peer, enum transport_kind kind) {
    struct transport_channel *channel = channel_get(peer, kind);
    if (!channel)
        return;
    channel->transport->flush(channel);
    transport_channel_unref(channel);
}
