/* Offers this task's arena to a peer, maps the peer's, and exchanges references. */
#include "worker/exchange/peer_shm.h"

#include <stdlib.h>

#include "common/tensor/shm_arena.h"
#include "proto/worker.pb-c.h"
#include "rpc/shm/shm_ledger.h"
#include "rpc/shm/shm_map.h"
#include "worker/exchange/peer_internal.h"

struct shm_connection {
    struct list link;
    struct peer_shm *shm;
    struct transport_channel *channel; /* one reference */
    /* to_peer: the mapping of the peer's arena, once that has been announced */
    struct shm_map *map;
    /* to_us: what the peer holds, once it has mapped our arena */
    struct shm_ledger *ledger;
    bool is_offered; /* to_us: the arena was announced */
};

enum { TOKENS_PER_MESSAGE = 1 << 16 };

static void set_why(struct str *why, const char *text) {
    str_clear(why);
    str_add(why, text);
}

void peer_shm_init(struct peer_shm *shm, const char *task) {
    *shm = (struct peer_shm){.task = task};
    list_init(&shm->connections);
    set_why(&shm->why_not_from, "not asked yet");
    set_why(&shm->why_not_to, "it has not asked for the arena");
    CHECK(pthread_mutex_init(&shm->lock, NULL) == 0);
}

void peer_shm_fini(struct peer_shm *shm) {
    CHECK(list_is_empty(&shm->connections));
    str_fini(&shm->why_not_from);
    str_fini(&shm->why_not_to);
    pthread_mutex_destroy(&shm->lock);
}

/* ---- messages ---- */

static void send_on(struct shm_connection *connection, enum wire_type type, const void *meta,
                    size_t len) {
    connection->channel->transport->queue(connection->channel,
                                          &(struct wire_out){.type = type, .meta = {meta, len}});
    connection->channel->transport->flush(connection->channel);
}

static void send_references(struct shm_connection *connection, enum wire_type type,
                            uint64_t *tokens, size_t n, uint64_t up_to) {
    Millrace__References message = MILLRACE__REFERENCES__INIT;
    message.token = tokens;
    message.n_token = n;
    message.up_to = up_to;
    size_t len = millrace__references__get_packed_size(&message);
    uint8_t *bytes = xmalloc(len + 1);
    millrace__references__pack(&message, bytes);
    send_on(connection, type, bytes, len);
    free(bytes);
}

static void send_released(struct shm_connection *connection, uint64_t *tokens, size_t n) {
    for (size_t i = 0; i < n; i += TOKENS_PER_MESSAGE)
        send_references(connection, WIRE_RELEASE, tokens + i,
                        MIN(n - i, (size_t)TOKENS_PER_MESSAGE), 0);
}

static void send_arena(struct shm_connection *connection, const char *why_not) {
    Millrace__Arena message = MILLRACE__ARENA__INIT;
    message.size_bytes = why_not ? 0 : shm_arena_size(connection->shm->arena);
    message.why = (char *)(uintptr_t)(why_not ? why_not : "");
    uint8_t bytes[256];
    CHECK(millrace__arena__get_packed_size(&message) <= sizeof(bytes));
    size_t len = millrace__arena__pack(&message, bytes);
    if (!why_not)
        wire_conn_pass_fd(transport_socket_conn(connection->channel),
                          shm_arena_fd(connection->shm->arena));
    send_on(connection, WIRE_ARENA, bytes, len);
}

/* ---- connections ---- */

static struct shm_connection *connection_of(const struct peer_shm *shm,
                                            const struct transport_channel *channel) {
    LIST_FOR_EACH (link, &shm->connections)
        if (LIST_ENTRY(link, struct shm_connection, link)->channel == channel)
            return LIST_ENTRY(link, struct shm_connection, link);
    return NULL;
}

static void set_ledger(struct peer_shm *shm, struct shm_ledger *ledger) {
    pthread_mutex_lock(&shm->lock);
    shm->ledger = ledger;
    pthread_mutex_unlock(&shm->lock);
}

static void close_connection(struct shm_connection *connection, struct status *why) {
    connection->channel->transport->close(connection->channel, status_ref(why));
}

static void offer_arena(struct shm_connection *connection) {
    struct peer_shm *shm = connection->shm;
    const char *why_not = NULL;
    if (!shm->arena)
        why_not = "the owner has no arena: it is switched off, or its system has refused it";
    else if (!wire_conn_is_same_user(transport_socket_conn(connection->channel)))
        why_not = "the two tasks run as different users";
    connection->is_offered = !why_not;
    set_why(&shm->why_not_to, why_not ? why_not : "it has not mapped the arena yet");
    send_arena(connection, why_not);
}

/* To be called after a change of the connections, of a map or of a ledger. */
static void note_used(struct peer_shm *shm) {
    bool is_used = (shm->to_peer && shm->to_peer->map) || (shm->to_us && shm->to_us->ledger);
    atomic_store_explicit(&shm->is_used, is_used, memory_order_relaxed);
}

/* A peer that opens a second connection has given up the first. */
void peer_shm_add_connection(struct peer_shm *shm, struct transport_channel *channel_take,
                             bool is_to_peer) {
    struct shm_connection **place = is_to_peer ? &shm->to_peer : &shm->to_us, *old = *place;
    struct shm_connection *connection = xcalloc(1, sizeof(*connection));
    connection->shm = shm;
    connection->channel = channel_take;
    list_push_back(&shm->connections, &connection->link);
    if (!is_to_peer)
        set_ledger(shm, NULL);
    *place = connection;
    note_used(shm);
    if (old) {
        struct status *why = status_new(
            STATUS_CANCELLED, "task %s has opened a new connection about arenas", shm->task);
        close_connection(old, why);
        status_unref(why);
    }
    if (!is_to_peer)
        offer_arena(connection);
}

bool peer_shm_has_connection_to_peer(const struct peer_shm *shm) { return shm->to_peer != NULL; }

bool peer_shm_on_closed(struct peer_shm *shm, struct transport_channel *channel, bool is_stopping) {
    struct shm_connection *connection = connection_of(shm, channel);
    if (!connection)
        return false;
    bool is_current = connection == shm->to_peer || connection == shm->to_us,
         was_used = connection->map || connection->ledger;
    if (connection == shm->to_peer) {
        shm->to_peer = NULL;
        if (connection->map)
            set_why(&shm->why_not_from, "the connection about its arena has ended");
    } else if (connection == shm->to_us) {
        set_ledger(shm, NULL);
        shm->to_us = NULL;
        if (connection->ledger)
            set_why(&shm->why_not_to, "the connection about the arena has ended");
    }
    note_used(shm);
    list_remove(&connection->link);
    shm->ended_sent_bytes += shm_ledger_given_bytes(connection->ledger);
    shm->ended_received_bytes += shm_map_taken_bytes(connection->map);
    shm_map_close(connection->map);
    if (is_stopping)
        shm_ledger_abandon(connection->ledger);
    else
        shm_ledger_free(connection->ledger);
    transport_channel_unref(connection->channel);
    free(connection);
    return is_current && was_used;
}

void peer_shm_settle(struct peer_shm *shm) {
    struct shm_ledger *ledger = shm->to_us ? shm->to_us->ledger : NULL;
    if (ledger && shm_ledger_n_held(ledger) > 0)
        send_references(shm->to_us, WIRE_SETTLE, NULL, 0, shm_ledger_last(ledger));
}

/* This task closes its connection to the arena of the old process. The connection from that process
 * ends with it; until then the process may still read our arena. */
void peer_shm_forget(struct peer_shm *shm) {
    struct shm_connection *to_peer = shm->to_peer;
    set_ledger(shm, NULL);
    shm->to_peer = shm->to_us = NULL;
    note_used(shm);
    if (to_peer) {
        struct status *why = status_new(STATUS_ABORTED, "task %s has been restarted", shm->task);
        close_connection(to_peer, why);
        status_unref(why);
    }
}

void peer_shm_close(struct peer_shm *shm, struct status *why) {
    LIST_FOR_EACH (link, &shm->connections)
        close_connection(LIST_ENTRY(link, struct shm_connection, link), why);
}

/* ---- what comes ---- */

/* Loop thread. Buffers of the map have been released. */
static void on_released(void *arg) {
    struct shm_connection *connection = arg;
    uint64_t *tokens;
    size_t n = shm_map_take_released(connection->map, &tokens);
    send_released(connection, tokens, n);
    free(tokens);
}

static struct status *map_arena(struct shm_connection *connection, const Millrace__Arena *message) {
    struct wire_conn *conn = transport_socket_conn(connection->channel);
    int fd = wire_conn_take_fd(conn);
    if (!wire_conn_is_same_user(conn)) {
        if (fd >= 0)
            close(fd);
        return status_new(STATUS_PERMISSION_DENIED, "the two tasks run as different users");
    }
    TRY(shm_map_new(wire_conn_loop(conn), fd, message->size_bytes, on_released, connection,
                    &connection->map));
    shm_map_limit_kept(connection->map, connection->shm->max_kept_bytes);
    send_on(connection, WIRE_ARENA_MAPPED, NULL, 0);
    return NULL;
}

static struct status *on_arena(struct shm_connection *connection, struct span meta) {
    struct peer_shm *shm = connection->shm;
    Millrace__Arena *message = millrace__arena__unpack(NULL, meta.len, (const uint8_t *)meta.data);
    if (!message || connection->map || connection != shm->to_peer) {
        if (message)
            millrace__arena__free_unpacked(message, NULL);
        return status_invalid("task %s sent a malformed or second Arena", shm->task);
    }
    struct status *st = NULL;
    str_clear(&shm->why_not_from);
    if (message->size_bytes == 0)
        str_addf(&shm->why_not_from, "%.200s", message->why);
    else
        st = map_arena(connection, message);
    note_used(shm);
    millrace__arena__free_unpacked(message, NULL);
    if (st)
        str_add(&shm->why_not_from, status_message(st));
    return st;
}

static struct status *on_mapped(struct shm_connection *connection) {
    if (!connection->is_offered || connection->ledger)
        return status_invalid("task %s has mapped an arena that it was not offered",
                              connection->shm->task);
    connection->ledger = shm_ledger_new(connection->shm->max_kept_bytes);
    if (connection == connection->shm->to_us) {
        str_clear(&connection->shm->why_not_to);
        set_ledger(connection->shm, connection->ledger);
    }
    note_used(connection->shm);
    return NULL;
}

static struct status *on_settle(struct shm_connection *connection, uint64_t up_to) {
    uint64_t *released, *held;
    size_t n_released, n_held;
    if (!connection->map)
        return status_invalid("task %s asks about references before it could have any",
                              connection->shm->task);
    shm_map_settle(connection->map, up_to, &released, &n_released, &held, &n_held);
    send_released(connection, released, n_released);
    send_references(connection, WIRE_HELD, held, n_held, up_to);
    free(released);
    free(held);
    return NULL;
}

static struct status *on_references(struct shm_connection *connection, enum wire_type type,
                                    struct span meta) {
    Millrace__References *message =
        millrace__references__unpack(NULL, meta.len, (const uint8_t *)meta.data);
    if (!message)
        return status_invalid("task %s sent a malformed message about references",
                              connection->shm->task);
    struct status *st = NULL;
    if (type == WIRE_SETTLE)
        st = on_settle(connection, message->up_to);
    else if (!connection->ledger)
        st = status_invalid("task %s returns references that it was not given",
                            connection->shm->task);
    else if (type == WIRE_RELEASE)
        st = shm_ledger_release(connection->ledger, message->token, message->n_token);
    else
        st = shm_ledger_keep_only(connection->ledger, message->up_to, message->token,
                                  message->n_token);
    millrace__references__free_unpacked(message, NULL);
    return st ? status_prefix_take(st, "from task %s: ", connection->shm->task) : NULL;
}

struct status *peer_shm_on_message(struct peer_shm *shm, struct transport_channel *channel,
                                   struct wire_message *message) {
    struct shm_connection *connection = connection_of(shm, channel);
    if (!connection)
        return NULL; /* it is being closed */
    switch (message->type) {
    case WIRE_ARENA:
        return on_arena(connection, message->meta);
    case WIRE_ARENA_MAPPED:
        return on_mapped(connection);
    case WIRE_RELEASE:
    case WIRE_SETTLE:
    case WIRE_HELD:
        return on_references(connection, message->type, message->meta);
    default:
        return status_invalid("task %s sent a message of type %d, which is not about arenas",
                              shm->task, (int)message->type);
    }
}

/* ---- references ---- */

static bool refuse(struct peer_shm *shm, const struct tensor *value, enum shm_refusal why) {
    atomic_fetch_add_explicit(&shm->refused_bytes[why], tensor_size_bytes(value),
                              memory_order_relaxed);
    return false;
}

bool peer_shm_give(struct peer_shm *shm, const struct tensor *value, struct arena_reference *ret) {
    const void *data = tensor_cdata(value);
    if (!shm->arena || value->storage != TENSOR_BUFFER ||
        !shm_arena_find(shm->arena, data, &ret->offset) || ret->offset % BUFFER_ALIGN != 0)
        return refuse(shm, value, SHM_OUTSIDE_ARENA);
    pthread_mutex_lock(&shm->lock);
    bool is_mapped = shm->ledger != NULL;
    /* The caller holds the block, so its pages are the same until the token is returned. */
    ret->epoch = shm_arena_epoch(shm->arena, ret->offset, tensor_size_bytes(value));
    bool is_given = is_mapped && shm_ledger_give(shm->ledger, value->buffer,
                                                 tensor_size_bytes(value), &ret->token);
    pthread_mutex_unlock(&shm->lock);
    return is_given || refuse(shm, value, is_mapped ? SHM_KEPT_TOO_MUCH : SHM_NOT_MAPPED);
}

void peer_shm_take_back(struct peer_shm *shm, const struct arena_reference *reference) {
    pthread_mutex_lock(&shm->lock);
    /* otherwise the reference was dropped with its ledger, or settling has dropped it */
    if (shm->ledger)
        status_unref(shm_ledger_release(shm->ledger, &reference->token, 1));
    pthread_mutex_unlock(&shm->lock);
}

struct status *peer_shm_take(struct peer_shm *shm, const struct arena_reference *reference,
                             uint64_t size_bytes, struct buffer **ret) {
    if (!shm->to_peer || !shm->to_peer->map)
        return status_invalid("task %s sent a reference into an arena that is not mapped here",
                              shm->task);
    TRY(shm_map_take(shm->to_peer->map, reference->token, reference->offset, size_bytes, ret));
    if (*ret)
        shm_map_note_epoch(shm->to_peer->map, reference->offset, size_bytes, reference->epoch);
    return NULL;
}

/* ---- the status page ---- */

bool peer_shm_is_used(const struct peer_shm *shm) {
    return atomic_load_explicit(&shm->is_used, memory_order_relaxed);
}

void peer_shm_moved(const struct peer_shm *shm, uint64_t *ret_sent_bytes,
                    uint64_t *ret_received_bytes) {
    *ret_sent_bytes = shm->ended_sent_bytes;
    *ret_received_bytes = shm->ended_received_bytes;
    LIST_FOR_EACH (link, &shm->connections) {
        const struct shm_connection *connection = LIST_ENTRY(link, struct shm_connection, link);
        *ret_sent_bytes += shm_ledger_given_bytes(connection->ledger);
        *ret_received_bytes += shm_map_taken_bytes(connection->map);
    }
}

void peer_shm_describe(struct peer_shm *shm, struct str *out) {
    struct shm_ledger *ledger = shm->to_us ? shm->to_us->ledger : NULL;
    struct shm_map *map = shm->to_peer ? shm->to_peer->map : NULL;
    str_add_char(out, '{');
    peer_describe_way(out, "to", ledger != NULL, &shm->why_not_to);
    str_add_char(out, ',');
    peer_describe_way(out, "from", map != NULL, &shm->why_not_from);
    if (ledger) {
        str_add_char(out, ',');
        shm_ledger_describe(ledger, out);
    }
    if (map) {
        str_add_char(out, ',');
        shm_map_describe(map, out);
    }
    str_add_char(out, '}');
}
