/* Writes how many bytes went to and came from each peer, and over what: /transportz and metrics. */
#include <inttypes.h>

#include "common/base/metrics.h"
#include "rpc/daemon/page.h"
#include "worker/exchange/peer_internal.h"
#include "worker/plan/plan.h"

enum { MAX_PEERS_SHOWN = 1000 };

static void add_channel(struct peer_traffic *traffic, struct transport_channel *channel) {
    if (!channel)
        return;
    struct wire_conn *conn = transport_socket_conn(channel);
    bool is_unix = channel->transport == &transport_unix || channel->transport == &transport_shm;
    enum link_way way = is_unix ? LINK_WAY_UNIX : LINK_WAY_TCP;
    traffic->sent_bytes[way] += wire_conn_sent_bytes(conn);
    traffic->received_bytes[way] += wire_conn_received_bytes(conn);
}

void peer_count_ended(struct peer *peer, struct transport_channel *channel) {
    add_channel(&peer->ended, channel);
}

/* A channel that is being closed is counted nowhere until it has closed. So what was shown before
 * may be more, and is shown again, because counters must not decrease. */
static const struct peer_traffic *traffic_of(struct peer *peer) {
    struct peer_traffic now = peer->ended;
    for (int kind = 0; kind < CHANNEL_N_KINDS; kind++) {
        add_channel(&now, peer->channels[kind]);
        add_channel(&now, peer->extras[kind]);
    }
    for (int i = 0; i < PEER_MAX_STREAMS; i++) {
        add_channel(&now, peer->streams.to_peer[i]);
        add_channel(&now, peer->streams.from_peer[i]);
    }
    peer_shm_moved(&peer->shm, &now.sent_bytes[LINK_WAY_SHM], &now.received_bytes[LINK_WAY_SHM]);
    now.sent_bytes[LINK_WAY_RDMA] = peer->rdma.written_bytes;
    now.received_bytes[LINK_WAY_RDMA] = peer->rdma.received_bytes;
    for (int way = 0; way < LINK_N_WAYS; way++) {
        peer->shown.sent_bytes[way] = MAX(peer->shown.sent_bytes[way], now.sent_bytes[way]);
        peer->shown.received_bytes[way] =
            MAX(peer->shown.received_bytes[way], now.received_bytes[way]);
    }
    return &peer->shown;
}

/* ---- /transportz ---- */

static void add_moved(const char *key, const uint64_t *by_way, struct str *out) {
    uint64_t sum = 0;
    for (int way = 0; way < LINK_N_WAYS; way++)
        sum += by_way[way];
    str_addf(out, ",\"%s_bytes\":%" PRIu64 ",\"%s_by\":{", key, sum, key);
    for (int way = LINK_WAY_UNKNOWN + 1; way < LINK_N_WAYS; way++)
        if (by_way[way] > 0)
            str_addf(out, "%s\"%s_bytes\":%" PRIu64, out->data[out->len - 1] == '{' ? "" : ",",
                     link_way_names[way], by_way[way]);
    str_add_char(out, '}');
}

static void add_why_not(const char *key, bool is_ready, const struct str *why_not,
                        struct str *out) {
    page_text(out, key, is_ready ? "ready" : str_text(why_not));
}

/* The ways by which bytes have come or gone; before the first byte, the socket's. */
static void add_transports(const struct peer *peer, const struct peer_traffic *traffic,
                           struct str *out) {
    struct str ways = STR_INIT;
    for (int way = LINK_N_WAYS - 1; way > LINK_WAY_UNKNOWN; way--)
        if (traffic->sent_bytes[way] + traffic->received_bytes[way] > 0)
            str_addf(&ways, "%s%s", ways.len > 0 ? ", " : "", link_way_names[way]);
    if (peer_link_way(peer) == LINK_WAY_UNKNOWN)
        str_clear(&ways);
    else if (ways.len == 0)
        str_add(&ways, link_way_names[peer_socket_way(peer)]);
    page_text(out, "transport", str_text(&ways));
    str_fini(&ways);
}

static void add_why(const struct peer *peer, const struct peer_traffic *traffic, struct str *out) {
    enum link_way way = peer_link_way(peer), socket_way = peer_socket_way(peer);
    struct str why = STR_INIT;
    str_add(&why, str_text(&peer->why));
    if (way != LINK_WAY_UNKNOWN && way == socket_way)
        str_addf(&why, "%severything goes over the socket (%s)", why.len > 0 ? "; " : "",
                 link_way_names[socket_way]);
    else if (way != LINK_WAY_UNKNOWN)
        str_addf(&why, "%svalues of more than %d bytes go by %s%s, all else over the socket (%s)%s",
                 why.len > 0 ? "; " : "", PLAN_PUSH_LIMIT_BYTES, link_way_names[way],
                 way == LINK_WAY_SHM ? " if they lie in the sender's shared memory" : "",
                 link_way_names[socket_way],
                 traffic->sent_bytes[way] + traffic->received_bytes[way] == 0
                     ? "; no such value yet"
                     : "");
    page_text(out, "why", str_text(&why));
    str_fini(&why);
}

/* Large values for the peer that could not go by reference. */
static void add_refused(struct peer *peer, struct str *out) {
    static const char *const names[SHM_N_REFUSALS] = {
        [SHM_OUTSIDE_ARENA] = "outside_shared_memory_bytes",
        [SHM_NOT_MAPPED] = "not_mapped_bytes",
        [SHM_KEPT_TOO_MUCH] = "peer_keeps_too_much_bytes"};
    if (peer_socket_way(peer) != LINK_WAY_UNIX)
        return;
    page_open(out, "large_by_socket", '{');
    for (int why = 0; why < SHM_N_REFUSALS; why++) {
        uint64_t bytes = atomic_load_explicit(&peer->shm.refused_bytes[why], memory_order_relaxed);
        if (bytes > 0)
            page_int(out, names[why], (int64_t)bytes);
    }
    page_close(out, '}');
}

/* Values that are sent while they are copied from a device. */
static void add_pieces(const struct peer *peer, struct str *out) {
    const struct peer_pieces *pieces = &peer->pieces;
    if (pieces->n_values + peer->streams.n_pieces_received == 0)
        return;
    page_open(out, "pieces", '{');
    page_int(out, "values_sent", (int64_t)pieces->n_values);
    page_int(out, "sent", (int64_t)pieces->n_sent);
    page_int(out, "sent_before_whole", (int64_t)pieces->n_early);
    page_int(out, "failed", (int64_t)pieces->n_failed);
    page_int(out, "received", (int64_t)peer->streams.n_pieces_received);
    page_close(out, '}');
}

static void add_peer(struct peer *peer, struct str *out) {
    const struct peer_traffic *traffic = traffic_of(peer);
    size_t queued_bytes = 0;
    for (int kind = 0; kind < CHANNEL_N_KINDS; kind++)
        if (peer->channels[kind])
            queued_bytes += peer->channels[kind]->transport->queued_bytes(peer->channels[kind]);
    page_open(out, NULL, '{');
    page_name(out, "task", peer->task);
    add_transports(peer, traffic, out);
    add_why(peer, traffic, out);
    page_text(out, "address", peer->address);
    add_moved("sent", traffic->sent_bytes, out);
    add_moved("received", traffic->received_bytes, out);
    add_refused(peer, out);
    add_pieces(peer, out);
    page_int(out, "queued_bytes", (int64_t)queued_bytes);
    page_int(out, "in_flight_bytes", atomic_load(&peer->in_flight_bytes));
    page_int(out, "rtt_us", peer->heartbeat.rtt_ns / 1000);
    if (peer->ns_per_byte > 0)
        page_real(out, "received_bytes_per_second", 1e9 / peer->ns_per_byte);
    if (peer->rdma.written_ns_per_byte > 0)
        page_real(out, "written_bytes_per_second", 1e9 / peer->rdma.written_ns_per_byte);
    page_int(out, "losses", (int64_t)peer->n_losses);
    add_why_not("shm_to", peer->shm.to_us && peer->shm.ledger, &peer->shm.why_not_to, out);
    add_why_not("shm_from", peer_link_way(peer) == LINK_WAY_SHM && peer->shm.to_peer,
                &peer->shm.why_not_from, out);
    add_why_not("rdma_to", peer->rdma.out_state == OUT_READY, &peer->rdma.why_not_to, out);
    add_why_not("rdma_from", peer->rdma.in_state == IN_READY, &peer->rdma.why_not_from, out);
    page_close(out, '}');
}

void peer_table_page(struct peer_table *table, struct str *out) {
    size_t cursor = 0, n = 0;
    struct span key;
    void *peer;
    page_open(out, "peers", '[');
    while (strmap_next(&table->peers, &cursor, &key, &peer))
        if (!((struct peer *)peer)->is_self && n++ < MAX_PEERS_SHOWN)
            add_peer(peer, out);
    page_more(out, n > MAX_PEERS_SHOWN ? n - MAX_PEERS_SHOWN : 0);
    page_close(out, ']');
}

/* ---- metrics ---- */

static void write_series(struct str *out, const char *name, const char *peer,
                         const uint64_t *by_way) {
    for (int way = LINK_WAY_UNKNOWN + 1; way < LINK_N_WAYS; way++) {
        if (by_way[way] == 0)
            continue;
        str_addf(out, "%s{peer=\"", name);
        metrics_add_label_value(out, peer);
        str_addf(out, "\",transport=\"%s\"} %" PRIu64 "\n", link_way_names[way], by_way[way]);
    }
}

static void write_family(struct peer_table *table, bool is_sent, struct str *out) {
    const char *name =
        is_sent ? "millrace_peer_sent_bytes_total" : "millrace_peer_received_bytes_total";
    uint64_t others[LINK_N_WAYS] = {0};
    size_t cursor = 0;
    struct span key;
    void *value;
    metrics_write_head(out, name, "counter",
                       is_sent ? "Bytes sent to another task, by transport"
                               : "Bytes received from another task, by transport");
    while (strmap_next(&table->peers, &cursor, &key, &value)) {
        struct peer *peer = value;
        const struct peer_traffic *traffic = traffic_of(peer);
        const uint64_t *by_way = is_sent ? traffic->sent_bytes : traffic->received_bytes;
        if (peer->is_self)
            continue;
        if (peer->has_series)
            write_series(out, name, peer->task, by_way);
        for (int way = 0; !peer->has_series && way < LINK_N_WAYS; way++)
            others[way] += by_way[way];
    }
    write_series(out, name, "others", others);
}

void peer_table_write_metrics(struct peer_table *table, struct str *out) {
    write_family(table, true, out);
    write_family(table, false, out);
}
