/* Exchanges values that are not sent as bytes over a peer's sockets: references into arenas, and
 * RDMA writes. Also writes the peers' status page. */
#include <stdlib.h>

#include "worker/exchange/peer_internal.h"
#include "worker/plan/plan.h"

/* ---- references ---- */

bool peer_give(struct peer *peer, const struct tensor *value, struct arena_reference *ret) {
    return peer_shm_give(&peer->shm, value, ret);
}
void peer_take_back(struct peer *peer, const struct arena_reference *reference) {
    peer_shm_take_back(&peer->shm, reference);
}
struct status *peer_take(struct peer *peer, const struct arena_reference *reference,
                         uint64_t size_bytes, struct buffer **ret) {
    return peer_shm_take(&peer->shm, reference, size_bytes, ret);
}

/* ---- writing into each other's memory ---- */

void peer_send(struct peer *peer, enum channel_kind kind, const struct wire_out *message) {
    if (peer_queue(peer, kind, message))
        peer_flush(peer, kind);
}

static struct status *rdma_deliver(struct peer *peer, struct wire_message *message) {
    struct peer_table *table = peer->table;
    struct edge_message edge;
    if (table->is_closing || !table->receiver)
        return NULL;
    TRY(edge_message_read(message->meta, &edge));
    return table->receiver->on_message(table->receiver_arg, peer, message, &edge);
}

/* Closes its control channel, because the caller may be using what the loss frees. */
static void rdma_fail(struct peer *peer, struct status *why) {
    if (peer->channels[CHANNEL_CONTROL])
        peer->channels[CHANNEL_CONTROL]->transport->close(peer->channels[CHANNEL_CONTROL],
                                                          status_ref(why));
}

void peer_hold(struct peer *peer) { atomic_fetch_add(&peer->table->n_holders, 1); }

void peer_release(struct peer *peer) {
    struct peer_table *table = peer->table;
    if (atomic_fetch_sub(&table->n_holders, 1) == 1 && table->is_closing)
        peer_table_free_when_done(table);
}

static void rdma_pregrant_withdrawn(struct peer *peer, const struct peer_grant *grant,
                                    struct buffer *buffer) {
    struct peer_table *table = peer->table;
    if (!table->is_closing && table->receiver && table->receiver->on_pregrant_withdrawn)
        table->receiver->on_pregrant_withdrawn(table->receiver_arg, peer, grant->step, grant->edge,
                                               grant->frame_iter, buffer);
}

const struct peer_rdma_host peer_rdma_host = {.send = peer_send,
                                              .deliver = rdma_deliver,
                                              .pregrant_withdrawn_ = rdma_pregrant_withdrawn,
                                              .fail = rdma_fail,
                                              .hold = peer_hold,
                                              .release = peer_release};

bool peer_grant(struct peer *peer, const struct peer_grant *grant) {
    return peer_rdma_grant(&peer->rdma, grant);
}
void peer_decline(struct peer *peer, const struct rdma_remote_slot *remote_slot) {
    peer_rdma_decline(&peer->rdma, remote_slot);
}
struct status *peer_write(struct peer *peer, const struct rdma_remote_slot *remote_slot,
                          struct peer_value *value_take) {
    if (peer_value_is_growing(value_take)) {
        peer_pieces_write(peer, peer_rdma_connection_to(&peer->rdma), remote_slot, value_take);
        return NULL;
    }
    return peer_rdma_write(&peer->rdma, remote_slot, value_take);
}

void peer_push(struct peer *peer, const struct peer_value *value) {
    if (peer_value_is_growing(value)) {
        peer_pieces_push(peer, value);
        return;
    }
    if (peer_streams_push(peer, value))
        return;
    const struct tensor *tensors[1] = {&value->value};
    bool has_tensor = !value->proto && value->value.storage != TENSOR_DEAD;
    struct wire_out out = {.type = WIRE_PUSH,
                           .id = value->step,
                           .meta = {value->meta.data, value->meta.len},
                           .tensors = tensors,
                           .n_tensors = has_tensor ? 1 : 0};
    if (value->proto) {
        out.extra = (struct span){value->proto->data, value->size_bytes};
        out.extra_buffer = value->proto;
    }
    peer_send(peer, value->size_bytes <= PEER_MAX_CONTROL_BYTES ? CHANNEL_CONTROL : CHANNEL_BULK,
              &out);
}

/* ---- grants ahead ---- */

enum peer_pregrant_way peer_pregrant_way(struct peer *peer) {
    if (peer_rdma_takes_pregrants(&peer->rdma))
        return PEER_PREGRANT_WRITE;
    bool pushes = atomic_load_explicit(&peer->pushes_pregranted, memory_order_acquire) &&
                  !peer_rdma_awaits_connection(&peer->rdma);
    return pushes ? PEER_PREGRANT_PUSH : PEER_PREGRANT_NONE;
}

bool peer_sends_pieces(struct peer *peer) {
    return peer_pregrant_way(peer) == PEER_PREGRANT_PUSH &&
           atomic_load_explicit(&peer->takes_pieces, memory_order_relaxed);
}

bool peer_grant_early(struct peer *peer, const struct peer_grant *grant) {
    return peer_rdma_pregrant(&peer->rdma, grant);
}

struct peer_pregrant peer_pregrant_take(struct peer *peer,
                                        const struct rdma_remote_slot *remote_slot) {
    struct peer_pregrant pregrant = {.n_losses = peer->n_losses};
    if (remote_slot) {
        pregrant.has_remote_slot = true;
        pregrant.remote_slot = *remote_slot;
        pregrant.rdma_connection = peer_rdma_connection_to(&peer->rdma);
    }
    return pregrant;
}

/* A message of another thread about a pre-grant. */
struct pregrant_end {
    struct loop_task task;
    struct peer *peer;
    struct peer_pregrant pregrant;
    struct peer_value value;
    bool is_dropped;
};

/* The steps of a lost connection have ended, or will end. */
static bool is_over(const struct peer *peer, const struct peer_pregrant *pregrant) {
    return peer->table->is_closing || peer->n_losses != pregrant->n_losses;
}

static void send_pregranted(struct peer *peer, const struct peer_pregrant *pregrant,
                            struct peer_value *value_take) {
    struct status *st = NULL;
    if (is_over(peer, pregrant)) {
        peer_value_fini(value_take);
    } else if (pregrant->has_remote_slot && peer_value_is_growing(value_take)) {
        peer_pieces_write(peer, pregrant->rdma_connection, &pregrant->remote_slot, value_take);
    } else if (pregrant->has_remote_slot) {
        st = peer_rdma_write_pregranted(&peer->rdma, pregrant->rdma_connection,
                                        &pregrant->remote_slot, value_take);
    } else {
        peer_push(peer, value_take);
        peer_value_fini(value_take);
    }
    if (st)
        rdma_fail(peer, st);
    status_unref(st);
}

static void drop_pregrant(struct peer *peer, const struct peer_pregrant *pregrant) {
    if (!is_over(peer, pregrant) && pregrant->has_remote_slot &&
        pregrant->rdma_connection == peer_rdma_connection_to(&peer->rdma))
        peer_rdma_decline(&peer->rdma, &pregrant->remote_slot);
}

static void on_pregrant_end(struct loop_task *task) {
    struct pregrant_end *end = CONTAINER_OF(task, struct pregrant_end, task);
    struct peer *peer = end->peer;
    if (end->is_dropped)
        drop_pregrant(peer, &end->pregrant);
    else
        send_pregranted(peer, &end->pregrant, &end->value);
    free(end);
    peer_release(peer);
}

static void post_pregrant_end(struct peer *peer, const struct pregrant_end *from) {
    struct pregrant_end *end = xmalloc(sizeof(*end));
    *end = *from;
    end->peer = peer;
    end->task.run = on_pregrant_end;
    peer_hold(peer);
    loop_post(peer->table->loop, &end->task);
}

void peer_send_pregranted(struct peer *peer, const struct peer_pregrant *pregrant,
                          struct peer_value *value_take) {
    if (loop_is_current(peer->table->loop)) {
        send_pregranted(peer, pregrant, value_take);
        return;
    }
    post_pregrant_end(peer, &(struct pregrant_end){.pregrant = *pregrant, .value = *value_take});
    *value_take = (struct peer_value){0};
}

void peer_drop_pregrant(struct peer *peer, const struct peer_pregrant *pregrant) {
    if (!pregrant->has_remote_slot)
        return;
    if (loop_is_current(peer->table->loop))
        drop_pregrant(peer, pregrant);
    else
        post_pregrant_end(peer, &(struct pregrant_end){.pregrant = *pregrant, .is_dropped = true});
}

/* ---- the status page ---- */

enum link_way peer_link_way(const struct peer *peer) {
    if (!peer->channels[CHANNEL_CONTROL])
        return LINK_WAY_UNKNOWN;
    if (peer->transport == &transport_tcp || peer->transport == &transport_rdma)
        return peer_rdma_is_used(&peer->rdma) ? LINK_WAY_RDMA : LINK_WAY_TCP;
    return peer_shm_is_used(&peer->shm) ? LINK_WAY_SHM : LINK_WAY_UNIX;
}

enum link_way peer_socket_way(const struct peer *peer) {
    const struct transport *transport = atomic_load(&peer->transport);
    if (!peer->channels[CHANNEL_CONTROL])
        return LINK_WAY_UNKNOWN;
    return transport == &transport_tcp || transport == &transport_rdma ? LINK_WAY_TCP
                                                                       : LINK_WAY_UNIX;
}

const char *peer_transport_name(const struct peer *peer) {
    enum link_way way = peer_link_way(peer);
    if (peer->is_self)
        return transport_local.name;
    return way == LINK_WAY_UNKNOWN ? "" : link_way_names[way];
}

const char *peer_table_transport(struct peer_table *table, const char *task, int64_t size_bytes) {
    struct peer *peer = peer_find(table, task);
    if (strcmp(table->task, task) == 0)
        return transport_local.name;
    const struct transport *transport = peer ? atomic_load(&peer->transport) : NULL;
    bool is_small = size_bytes <= PLAN_PUSH_LIMIT_BYTES;
    if (!transport)
        return "";
    if (transport == &transport_tcp || (transport == &transport_rdma && is_small))
        return transport_tcp.name;
    if (transport == &transport_rdma)
        return transport_rdma.name;
    return peer_shm_is_used(&peer->shm) && !is_small ? transport_shm.name : transport_unix.name;
}

void peer_describe_way(struct str *out, const char *name, bool is_ready,
                       const struct str *why_not) {
    str_addf(out, "\"%s\":\"", name);
    if (is_ready)
        str_add(out, "ready");
    else
        str_add_json_escaped(out, str_text(why_not), why_not->len);
    str_add_char(out, '"');
}

static void describe_checksums(const struct peer *peer, struct str *out) {
    static const char *const names[CHANNEL_N_KINDS] = {
        [CHANNEL_CONTROL] = "control", [CHANNEL_BULK] = "bulk"};
    for (int kind = 0; kind < CHANNEL_N_KINDS; kind++)
        str_addf(out, "%s\"%s\":\"%s\"", kind > 0 ? "," : "{", names[kind],
                 peer->channels[kind]
                     ? wire_conn_checksums(transport_socket_conn(peer->channels[kind]))
                     : "no");
    str_add_char(out, '}');
}

static void describe(struct peer *peer, bool is_first, struct str *out) {
    size_t queued = 0;
    for (int kind = 0; kind < CHANNEL_N_KINDS; kind++)
        if (peer->channels[kind])
            queued += peer->channels[kind]->transport->queued_bytes(peer->channels[kind]);
    str_addf(out, "%s{\"task\":\"", is_first ? "" : ",");
    str_add_json_escaped(out, peer->task, strlen(peer->task));
    str_addf(out, "\",\"incarnation\":\"%016llx\",\"transport\":\"%s\",\"why\":\"",
             (unsigned long long)peer->incarnation, peer_transport_name(peer));
    str_add_json_escaped(out, str_text(&peer->why), peer->why.len);
    str_addf(out,
             "\",\"bulk\":%s,\"queued_bytes\":%zu,\"in_flight_bytes\":%lld,\"losses\":%llu,\"rtt_"
             "us\":%lld,\"clock_offset_us\":%lld,"
             "\"missed\":%llu,\"ns_per_byte\":%.3g,\"checksum\":",
             peer->channels[CHANNEL_BULK] ? "true" : "false", queued,
             (long long)atomic_load(&peer->in_flight_bytes), (unsigned long long)peer->n_losses,
             (long long)(peer->heartbeat.rtt_ns / 1000),
             (long long)heartbeat_offset_us(&peer->heartbeat),
             (unsigned long long)peer->heartbeat.n_missed, peer->ns_per_byte);
    describe_checksums(peer, out);
    str_add(out, ",\"streams\":");
    peer_streams_describe(peer, out);
    str_add(out, ",\"pieces\":");
    peer_pieces_describe(peer, out);
    str_add(out, ",\"shm\":");
    peer_shm_describe(&peer->shm, out);
    str_add(out, ",\"rdma\":");
    peer_rdma_describe(&peer->rdma, out);
    str_add_char(out, '}');
}

void peer_table_describe(struct peer_table *table, struct str *out) {
    enum { MAX_SHOWN = 1000 };
    size_t cursor = 0, n = 0;
    struct span key;
    void *peer;
    str_add_char(out, '[');
    for (; strmap_next(&table->peers, &cursor, &key, &peer); n++)
        if (n < MAX_SHOWN)
            describe(peer, n == 0, out);
    if (n > MAX_SHOWN)
        str_addf(out, ",{\"more\":%zu}", n - MAX_SHOWN);
    str_add_char(out, ']');
}

void peer_table_describe_rdma(struct peer_table *table, struct str *out) {
    if (table->rdma.device) {
        rdma_device_describe(table->rdma.device, out);
        return;
    }
    const char *why = table->rdma.why_not ? table->rdma.why_not : "";
    str_add(out, "{\"why_not\":\"");
    str_add_json_escaped(out, why, strlen(why));
    str_add(out, "\"}");
}
