/* Values that do not go through a peer's sockets as bytes: references into arenas, writes into
 * memory; and the peers' status page. */
#include <stdlib.h>

#include "worker/exchange/peer_internal.h"

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

static void rdma_send(struct peer *peer, enum transport_kind kind, const struct wire_out *message) {
    if (peer_queue(peer, kind, message))
        peer_flush(peer, kind);
}

static struct status *rdma_deliver(struct peer *peer, struct wire_message *message) {
    struct peer_table *table = peer->table;
    if (table->is_closing || !table->receiver)
        return NULL;
    return table->receiver->on_message(table->receiver_arg, peer, message);
}

/* By way of its control channel, since who asks may be in the midst of what the loss ends. */
static void rdma_fail(struct peer *peer, struct status *why) {
    if (peer->channels[TRANSPORT_CONTROL])
        peer->channels[TRANSPORT_CONTROL]->transport->close(peer->channels[TRANSPORT_CONTROL],
                                                            status_ref(why));
}

static void rdma_hold(struct peer *peer) { atomic_fetch_add(&peer->table->n_held, 1); }

static void rdma_let_go(struct peer *peer) {
    struct peer_table *table = peer->table;
    if (atomic_fetch_sub(&table->n_held, 1) == 1 && table->is_closing)
        peer_table_free_when_done(table);
}

static void rdma_place_gone(struct peer *peer, const struct peer_grant *grant,
                            struct buffer *buffer) {
    struct peer_table *table = peer->table;
    if (!table->is_closing && table->receiver && table->receiver->on_place_gone)
        table->receiver->on_place_gone(table->receiver_arg, peer, grant->step, grant->edge,
                                       grant->frame_iter, buffer);
}

const struct peer_rdma_host peer_rdma_host = {.send = rdma_send,
                                              .deliver = rdma_deliver,
                                              .place_gone = rdma_place_gone,
                                              .fail = rdma_fail,
                                              .hold = rdma_hold,
                                              .let_go = rdma_let_go};

bool peer_grant(struct peer *peer, const struct peer_grant *grant) {
    return peer_rdma_grant(&peer->rdma, grant);
}
void peer_decline(struct peer *peer, const struct rdma_place *place) {
    peer_rdma_decline(&peer->rdma, place);
}
struct status *peer_write(struct peer *peer, const struct rdma_place *place,
                          struct peer_value *value_take) {
    return peer_rdma_write(&peer->rdma, place, value_take);
}

void peer_push(struct peer *peer, const struct peer_value *value) {
    if (peer_streams_push(peer, value))
        return;
    const struct tensor *tensors[1] = {&value->value};
    struct wire_out out = {.type = WIRE_PUSH,
                           .id = value->step,
                           .meta = {value->meta.data, value->meta.len},
                           .tensors = tensors,
                           .n_tensors = value->proto ? 0 : 1};
    if (value->proto) {
        out.extra = (struct span){value->proto->data, value->size_bytes};
        out.extra_buffer = value->proto;
    }
    rdma_send(peer, TRANSPORT_BULK, &out);
}

/* ---- grants ahead ---- */

enum peer_ahead_way peer_ahead_way(struct peer *peer) {
    if (peer_rdma_takes_ahead(&peer->rdma))
        return PEER_AHEAD_PLACE;
    bool pushes = atomic_load_explicit(&peer->pushes_ahead, memory_order_acquire) &&
                  !peer_rdma_awaits_line(&peer->rdma);
    return pushes ? PEER_AHEAD_PUSH : PEER_AHEAD_NOT;
}

bool peer_grant_ahead(struct peer *peer, const struct peer_grant *grant) {
    return peer_rdma_grant_ahead(&peer->rdma, grant);
}

struct peer_ahead peer_ahead_take(struct peer *peer, const struct rdma_place *place) {
    struct peer_ahead ahead = {.connection = peer->n_losses};
    if (place) {
        ahead.has_place = true;
        ahead.place = *place;
        ahead.line = peer_rdma_line_to(&peer->rdma);
    }
    return ahead;
}

/* What another thread has to say of a grant ahead. */
struct ahead_end {
    struct loop_task task;
    struct peer *peer;
    struct peer_ahead ahead;
    struct peer_value value;
    bool is_dropped;
};

/* The steps of a lost connection have ended, or will. */
static bool is_over(const struct peer *peer, const struct peer_ahead *ahead) {
    return peer->table->is_closing || peer->n_losses != ahead->connection;
}

static void send_ahead(struct peer *peer, const struct peer_ahead *ahead,
                       struct peer_value *value_take) {
    struct status *st = NULL;
    if (is_over(peer, ahead)) {
        peer_value_fini(value_take);
    } else if (ahead->has_place) {
        st = peer_rdma_write_ahead(&peer->rdma, ahead->line, &ahead->place, value_take);
    } else {
        peer_push(peer, value_take);
        peer_value_fini(value_take);
    }
    if (st)
        rdma_fail(peer, st);
    status_unref(st);
}

static void drop_ahead(struct peer *peer, const struct peer_ahead *ahead) {
    if (!is_over(peer, ahead) && ahead->has_place && ahead->line == peer_rdma_line_to(&peer->rdma))
        peer_rdma_decline(&peer->rdma, &ahead->place);
}

static void on_ahead_end(struct loop_task *task) {
    struct ahead_end *end = CONTAINER_OF(task, struct ahead_end, task);
    struct peer *peer = end->peer;
    if (end->is_dropped)
        drop_ahead(peer, &end->ahead);
    else
        send_ahead(peer, &end->ahead, &end->value);
    free(end);
    rdma_let_go(peer);
}

static void post_ahead_end(struct peer *peer, const struct ahead_end *from) {
    struct ahead_end *end = xmalloc(sizeof(*end));
    *end = *from;
    end->peer = peer;
    end->task.run = on_ahead_end;
    rdma_hold(peer);
    loop_post(peer->table->loop, &end->task);
}

void peer_send_ahead(struct peer *peer, const struct peer_ahead *ahead,
                     struct peer_value *value_take) {
    if (loop_is_current(peer->table->loop)) {
        send_ahead(peer, ahead, value_take);
        return;
    }
    post_ahead_end(peer, &(struct ahead_end){.ahead = *ahead, .value = *value_take});
    *value_take = (struct peer_value){0};
}

void peer_drop_ahead(struct peer *peer, const struct peer_ahead *ahead) {
    if (!ahead->has_place)
        return;
    if (loop_is_current(peer->table->loop))
        drop_ahead(peer, ahead);
    else
        post_ahead_end(peer, &(struct ahead_end){.ahead = *ahead, .is_dropped = true});
}

/* ---- the status page ---- */

/* Where arenas could be shared, what became of it. */
static const char *transport_name(const struct peer *peer) {
    if (peer->is_self)
        return transport_local.name;
    if (!peer->channels[TRANSPORT_CONTROL])
        return "";
    if (peer->transport == &transport_tcp || peer->transport == &transport_rdma)
        return peer_rdma_is_used(&peer->rdma) ? transport_rdma.name : transport_tcp.name;
    return peer_shm_is_used(&peer->shm) ? transport_shm.name : transport_unix.name;
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

static void describe_sums(const struct peer *peer, struct str *out) {
    static const char *const names[TRANSPORT_N_KINDS] = {
        [TRANSPORT_CONTROL] = "control", [TRANSPORT_BULK] = "bulk"};
    for (int kind = 0; kind < TRANSPORT_N_KINDS; kind++)
        str_addf(out, "%s\"%s\":\"%s\"", kind > 0 ? "," : "{", names[kind],
                 peer->channels[kind] ? wire_conn_sums(transport_socket_conn(peer->channels[kind]))
                                      : "no");
    str_add_char(out, '}');
}

static void describe(struct peer *peer, bool is_first, struct str *out) {
    size_t queued = 0;
    for (int kind = 0; kind < TRANSPORT_N_KINDS; kind++)
        if (peer->channels[kind])
            queued += peer->channels[kind]->transport->queued_bytes(peer->channels[kind]);
    str_addf(out, "%s{\"task\":\"", is_first ? "" : ",");
    str_add_json_escaped(out, peer->task, strlen(peer->task));
    str_addf(out, "\",\"incarnation\":\"%016llx\",\"transport\":\"%s\",\"why\":\"",
             (unsigned long long)peer->incarnation, transport_name(peer));
    str_add_json_escaped(out, str_text(&peer->why), peer->why.len);
    str_addf(out,
             "\",\"bulk\":%s,\"queued_bytes\":%zu,\"in_flight_bytes\":%lld,\"losses\":%llu,\"rtt_"
             "us\":%lld,\"clock_offset_us\":%lld,"
             "\"missed\":%llu,\"checksum\":",
             peer->channels[TRANSPORT_BULK] ? "true" : "false", queued,
             (long long)atomic_load(&peer->in_flight_bytes), (unsigned long long)peer->n_losses,
             (long long)(peer->heartbeat.rtt_ns / 1000),
             (long long)heartbeat_offset_us(&peer->heartbeat),
             (unsigned long long)peer->heartbeat.n_missed);
    describe_sums(peer, out);
    str_add(out, ",\"streams\":");
    peer_streams_describe(peer, out);
    str_add(out, ",\"shm\":");
    peer_shm_describe(&peer->shm, out);
    str_add(out, ",\"rdma\":");
    peer_rdma_describe(&peer->rdma, out);
    str_add_char(out, '}');
}

void peer_table_describe(struct peer_table *table, struct str *out) {
    size_t cursor = 0;
    struct span key;
    void *peer;
    bool is_first = true;
    str_add_char(out, '[');
    while (strmap_next(&table->peers, &cursor, &key, &peer)) {
        describe(peer, is_first, out);
        is_first = false;
    }
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
