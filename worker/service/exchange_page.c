/* Writes /rendezvousz and /transportz: the task's own cluster first, then the clusters of
 * sessions. */
#include "rpc/daemon/page.h"
#include "worker/service/service_internal.h"

enum { MAX_BYTES = 1 << 20 /* of the clusters of sessions, about */ };

/* Calls `add` for the exchanges of sessions' clusters, each in an object of its own. */
static void add_clusters(const struct worker_service *service,
                         void (*add)(struct exchange *exchange, bool is_operator, struct str *out),
                         bool is_operator, struct str *out) {
    size_t begin = out->len, n_more = 0;
    if (list_is_empty(&service->exchanges))
        return;
    page_open(out, "session_clusters", '[');
    LIST_FOR_EACH (link, &service->exchanges) {
        struct exchange *exchange = LIST_ENTRY(link, struct exchange, link);
        if (out->len - begin > MAX_BYTES) {
            n_more++;
            continue;
        }
        page_open(out, NULL, '{');
        page_id(out, "cluster", exchange->cluster);
        page_name(out, "task", exchange->task);
        add(exchange, is_operator, out);
        page_close(out, '}');
    }
    page_more(out, n_more);
    page_close(out, ']');
}

static void add_rendezvous(struct exchange *exchange, bool is_operator, struct str *out) {
    rendezvous_table_page(exchange->rendezvous, is_operator, out);
}

static void add_peers(struct exchange *exchange, bool is_operator, struct str *out) {
    peer_table_page(exchange->peers, out);
}

void worker_service_page_rendezvous(struct worker_service *service, bool is_operator,
                                    struct str *out) {
    page_open(out, NULL, '{');
    add_rendezvous(service->home, is_operator, out);
    add_clusters(service, add_rendezvous, is_operator, out);
    page_close(out, '}');
    str_add_char(out, '\n');
}

void worker_service_page_transport(struct worker_service *service, struct str *out) {
    page_open(out, NULL, '{');
    page_text(out, "unix_address", service->unix_address);
    page_key(out, "rdma");
    peer_table_describe_rdma(service->home->peers, out);
    add_peers(service->home, false, out);
    add_clusters(service, add_peers, false, out);
    page_close(out, '}');
    str_add_char(out, '\n');
}
