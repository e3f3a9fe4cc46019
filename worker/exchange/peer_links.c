/* Measures the links to other tasks, from heartbeats, from the large values that arrive over
 * sockets and from those that are written by RDMA, and reports them to masters. A socket's sender
 * only knows when a buffer took the bytes; RDMA's receiver only learns that all have come, and its
 * sender when they are acknowledged. An RDMA device is taken to be as fast in one direction as in
 * the other. */
#include "worker/exchange/peer_links.h"

#include "worker/exchange/peer_internal.h"

enum { SMOOTHING = 4 }; /* a value counts for a quarter */

void peer_link_note(double *ns_per_byte, size_t size_bytes, int64_t took_ns) {
    if (size_bytes < PEER_LINK_MIN_BYTES || took_ns <= 0)
        return;
    double of_this = (double)took_ns / (double)size_bytes;
    *ns_per_byte =
        *ns_per_byte == 0 ? of_this : *ns_per_byte + (of_this - *ns_per_byte) / SMOOTHING;
}

static struct link_report report_of(const struct peer *peer) {
    int64_t rtt_ns = heartbeat_shortest_rtt_ns(&peer->heartbeat);
    enum link_way way = peer_link_way(peer);
    double ns_per_byte = way == LINK_WAY_RDMA ? peer->rdma.written_ns_per_byte : peer->ns_per_byte;
    return (struct link_report){.task = span_of(peer->task),
                                .way = way,
                                .latency_ns = (uint64_t)(rtt_ns / 2),
                                .bytes_per_second =
                                    ns_per_byte > 0 ? (uint64_t)(1e9 / ns_per_byte) : 0};
}

void peer_table_report_links(struct peer_table *table, struct str *out) {
    size_t begin = out->len, n_peers = table->peers.n_entries;
    struct span key;
    void *value;
    /* each peer once, and once the end of the table */
    for (size_t i = 0; i < n_peers + 1; i++) {
        size_t cursor = table->reported_to;
        if (!strmap_next(&table->peers, &cursor, &key, &value)) {
            table->reported_to = 0;
            continue;
        }
        const struct peer *peer = value;
        struct link_report report = report_of(peer);
        bool is_measured = !peer->is_self && report.way != LINK_WAY_UNKNOWN;
        if (is_measured && !link_report_add(out, begin, &report))
            return; /* the next reply begins with this peer */
        table->reported_to = cursor;
    }
}
