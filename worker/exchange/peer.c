/* Keeps the table of other tasks, notices their loss, and sends to them. */
#include "worker/exchange/peer.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "worker/exchange/peer_internal.h"

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

void peer_table_set_cluster(struct peer_table *table, uint64_t cluster, const char *own_task) {
    table->cluster = cluster;
    text_replace(&table->own_task, own_task);
}

void peer_table_set_heartbeat(struct peer_table *table, int64_t interval_ms) {
    table->heartbeat_ms = interval_ms;
}

void peer_table_use_shm(struct peer_table *table, struct shm_arena *arena) {
    table->uses_shm = true;
    table->arena = arena;
}

void peer_table_set_shm_limit(struct peer_table *table, int64_t max_kept_bytes) {
    table->max_kept_bytes = max_kept_bytes;
}

void peer_table_set_tls(struct peer_table *table, struct tls *tls) { table->tls = tls; }
void peer_table_set_streams(struct peer_table *table, unsigned n_streams) {
    table->n_streams = n_streams;
}

void peer_table_set_checksums(struct peer_table *table, bool uses_checksums) {
    table->uses_checksums = uses_checksums;
}

void peer_table_use_rdma(struct peer_table *table, enum rdma_mode mode,
                         struct rdma_device *device_take, const char *why_not) {
    table->rdma = (struct peer_rdma_setup){.mode = mode,
                                           .device = device_take,
                                           .why_not = xstrdup(why_not ? why_not : ""),
                                           .retry_ms = PEER_RDMA_RETRY_MS};
}

void peer_table_set_receiver(struct peer_table *table, const struct peer_receiver *receiver,
                             void *arg) {
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
_Atomic int64_t *peer_in_flight_bytes(struct peer *peer) { return &peer->in_flight_bytes; }
_Atomic int64_t *peer_pregrant_bytes(struct peer *peer) { return &peer->pregrant_bytes; }
_Atomic int *peer_n_pending_pregrants(struct peer *peer) { return &peer->n_pending_pregrants; }

static void peer_free(struct peer *peer) {
    pthread_mutex_destroy(&peer->lock);
    u64map_fini(&peer->unacknowledged);
    peer_shm_fini(&peer->shm);
    peer_rdma_fini(&peer->rdma);
    str_fini(&peer->why);
    free(peer->task);
    free(peer->own_task);
    free(peer->address);
    free(peer->unix_address);
    free(peer);
}

void peer_table_free_when_done(struct peer_table *table) {
    if (!table->is_timer_closed || table->n_channels > 0 || atomic_load(&table->n_holders) > 0)
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
    free(table->own_task);
    free(table);
}

struct peer *peer_find(struct peer_table *table, const char *task) {
    pthread_mutex_lock(&table->lock);
    struct peer *peer = strmap_get(&table->peers, task);
    pthread_mutex_unlock(&table->lock);
    return peer;
}

/* ---- channels ---- */

static void close_channel(struct transport_channel *channel_take, struct status *why) {
    if (channel_take)
        channel_take->transport->close(channel_take, status_ref(why));
    transport_channel_unref(channel_take);
}

void peer_drop_extra(struct peer *peer, int kind, struct status *why) {
    struct transport_channel *extra = peer->extras[kind];
    peer->extras[kind] = NULL;
    close_channel(extra, why);
}

/* Removes all channels from the peer and closes them. */
static void drop_channels(struct peer *peer, struct status *why) {
    heartbeat_stop(&peer->heartbeat);
    atomic_store_explicit(&peer->pushes_pregranted, false, memory_order_relaxed);
    atomic_store_explicit(&peer->takes_pieces, false, memory_order_relaxed);
    peer_rdma_reset(&peer->rdma);
    peer_streams_reset(peer, why);
    peer->epoch_here = peer->epoch_there = 0;
    peer->is_greeted = false;
    for (int kind = 0; kind < CHANNEL_N_KINDS; kind++) {
        pthread_mutex_lock(&peer->lock);
        struct transport_channel *channel = peer->channels[kind];
        peer->channels[kind] = NULL;
        pthread_mutex_unlock(&peer->lock);
        close_channel(channel, why);
        peer_drop_extra(peer, kind, why);
    }
}

void peer_lost(struct peer *peer, struct status *why) {
    struct peer_table *table = peer->table;
    drop_channels(peer, why);
    peer_shm_settle(&peer->shm);
    peer->n_losses++;
    if (table->on_lost && !table->is_closing)
        table->on_lost(table->on_lost_arg, peer, why);
}

void peer_on_channel_closed(void *owner, struct transport_channel *channel, struct status *why) {
    struct peer *peer = owner;
    struct peer_table *table = peer->table;
    bool is_lost;
    peer_count_ended(peer, channel);
    if (channel->kind == CHANNEL_ARENA) /* the last channel has closed, or there is none */
        is_lost = peer_shm_on_closed(&peer->shm, channel, table->is_closing) &&
                  peer->channels[CHANNEL_CONTROL];
    else if (channel->kind > CHANNEL_STREAM)
        is_lost = peer_streams_on_closed(peer, channel, why);
    else
        is_lost = peer->channels[channel->kind] == channel;
    if (is_lost && !table->is_closing) {
        struct status *lost = why ? status_ref(why) : status_unavailable("closed");
        if (channel->kind > CHANNEL_STREAM)
            lost = status_prefix_take(lost, "stream %d: ", (int)channel->kind - CHANNEL_STREAM);
        lost = status_prefix_take(lost, "Lost the connection to task %s: ", peer->task);
        peer_lost(peer, lost);
        status_unref(lost);
    } else if (channel->kind < CHANNEL_N_KINDS && peer->extras[channel->kind] == channel) {
        peer_drop_extra(peer, (int)channel->kind, why);
    }
    if (--table->n_channels == 0)
        loop_timer_stop(&table->timer);
    peer_table_free_when_done(table);
}

/* ---- heartbeats ---- */

void peer_table_add_channel(struct peer_table *table) {
    if (table->n_channels++ == 0)
        loop_timer_start(&table->timer, heartbeat_tick_ms(table->heartbeat_ms),
                         heartbeat_tick_ms(table->heartbeat_ms));
}

static void send_ping(struct peer *peer, int64_t now_ns) {
    struct str meta = STR_INIT;
    heartbeat_ping(&peer->heartbeat, now_ns, clock_wall_us(), &meta);
    peer_steps_pinged(peer, peer->heartbeat.ping_id);
    if (peer_queue(peer, CHANNEL_CONTROL,
                   &(struct wire_out){.type = WIRE_PING,
                                      .id = peer->heartbeat.ping_id,
                                      .meta = {meta.data, meta.len}}))
        peer_flush(peer, CHANNEL_CONTROL);
    str_fini(&meta);
}

static void peer_tick(struct peer *peer, int64_t now_ns) {
    peer_rdma_tick(&peer->rdma, now_ns);
    peer_streams_tick(peer, now_ns);
    unsigned actions = heartbeat_tick(&peer->heartbeat, now_ns);
    if (actions & HEARTBEAT_PING)
        send_ping(peer, now_ns);
    if (actions & HEARTBEAT_LOST) {
        struct status *why = status_prefix_take(heartbeat_silence(&peer->heartbeat, now_ns),
                                                "Lost the connection to task %s: ", peer->task);
        peer_lost(peer, why);
        status_unref(why);
    }
}

/* Peers are added on this thread only, and no callback of a tick adds one. */
static void on_timer(struct loop_timer *timer) {
    struct peer_table *table = CONTAINER_OF(timer, struct peer_table, timer);
    int64_t now_ns = clock_now_ns();
    size_t cursor = 0;
    struct span key;
    void *peer;
    while (strmap_next(&table->peers, &cursor, &key, &peer))
        peer_tick(peer, now_ns);
}

/* ---- knowing peers ---- */

struct status *peer_table_know(struct peer_table *table, const char *task, const char *address,
                               const char *unix_address, uint64_t incarnation,
                               struct peer **ret_peer) {
    struct peer *peer = peer_find(table, task);
    if (!peer) {
        if (table->peers.n_entries >= PEER_MAX_KNOWN)
            return status_exhausted(
                "%d other tasks are known already, so task %.200s cannot be added", PEER_MAX_KNOWN,
                task);
        peer = xcalloc(1, sizeof(*peer));
        peer->table = table;
        peer->task = xstrdup(task);
        peer->is_self = strcmp(task, table->task) == 0;
        peer->has_series = !peer->is_self && table->n_series < PEER_METRICS_MAX;
        table->n_series += peer->has_series;
        peer_streams_init(&peer->streams);
        peer_shm_init(&peer->shm, peer->task);
        peer->shm.arena = table->arena;
        peer->shm.max_kept_bytes = table->max_kept_bytes;
        peer_rdma_init(&peer->rdma, peer, peer->task, table->loop, &table->rdma, &peer_rdma_host);
        CHECK(pthread_mutex_init(&peer->lock, NULL) == 0);
        u64map_init(&peer->unacknowledged);
        pthread_mutex_lock(&table->lock);
        strmap_put(&table->peers, peer->task, peer);
        pthread_mutex_unlock(&table->lock);
    }
    /* While the task itself is connected, its own Hello is newer than what a master says, which may
     * not know of a restart yet. The master's address may belong to an ended process. */
    if (!peer->is_greeted || incarnation == 0 || incarnation == peer->incarnation) {
        text_replace(&peer->address, address);
        text_replace(&peer->unix_address, unix_address);
    }
    *ret_peer = peer;
    return NULL;
}

void peer_set_own_task(struct peer *peer, const char *own_task) {
    text_replace(&peer->own_task, own_task);
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

static struct transport_channel *channel_get(struct peer *peer, enum channel_kind kind) {
    pthread_mutex_lock(&peer->lock);
    struct transport_channel *channel = peer->channels[kind];
    if (channel)
        transport_channel_ref(channel);
    pthread_mutex_unlock(&peer->lock);
    return channel;
}

bool peer_queue(struct peer *peer, enum channel_kind kind, const struct wire_out *message) {
    if (kind == CHANNEL_BULK && loop_is_current(peer->table->loop))
        peer_open(peer, CHANNEL_BULK);
    struct transport_channel *channel = channel_get(peer, kind);
    if (!channel)
        return false;
    channel->transport->queue(channel, message);
    transport_channel_unref(channel);
    return true;
}

void peer_flush(struct peer *peer, enum channel_kind kind) {
    struct transport_channel *channel = channel_get(peer, kind);
    if (!channel)
        return;
    channel->transport->flush(channel);
    transport_channel_unref(channel);
}
