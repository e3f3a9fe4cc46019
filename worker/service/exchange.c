/* Makes and frees what a task needs to exchange values in one cluster. */
#include "worker/service/exchange.h"

#include <stdlib.h>

static void exchange_free(struct exchange *exchange) {
    list_remove(&exchange->link);
    rendezvous_table_free(exchange->rendezvous);
    peer_table_free(exchange->peers);
    peer_call_table_free(exchange->peer_calls);
    void (*on_freed)(void *arg) = exchange->on_freed;
    void *arg = exchange->arg;
    free(exchange->task);
    free(exchange->own_task);
    free(exchange->cpu_device);
    free(exchange);
    if (on_freed)
        on_freed(arg);
}

static void free_on_loop(struct loop_task *task) {
    exchange_free(CONTAINER_OF(task, struct exchange, free_task));
}

/* The device's name with another task in it. */
static char *rename_device(const char *device, const char *task) {
    const char *end = strstr(device, "/device:");
    struct str out = STR_INIT;
    str_add(&out, task);
    str_add(&out, end ? end : "");
    return str_detach(&out);
}

static void make_peers(struct exchange *exchange, const struct worker_options *options,
                       uint64_t incarnation) {
    struct peer_table *peers = peer_table_new(exchange->loop, exchange->task, incarnation);
    exchange->peers = peers;
    if (exchange->cluster)
        peer_table_set_cluster(peers, exchange->cluster, options->task);
    if (options->use_shm)
        peer_table_use_shm(peers, allocator_host_arena());
    peer_table_set_tls(peers, options->tls);
    peer_table_set_checksums(peers, options->use_checksums);
    peer_table_set_shm_limit(peers, options->max_shm_kept_bytes);
    peer_table_set_streams(peers, (unsigned)options->n_streams);
    if (exchange->cluster)
        peer_table_use_rdma(peers, RDMA_OFF, NULL, "the clusters of sessions do not use RDMA");
    else
        peer_table_use_rdma(peers, options->rdma_mode, options->rdma_device, options->why_no_rdma);
    peer_table_set_heartbeat(peers, options->heartbeat_ms);
}

struct exchange *exchange_new(struct loop *loop, const struct worker_options *options,
                              uint64_t incarnation, uint64_t cluster, const char *task,
                              void (*on_freed)(void *arg), void *arg) {
    struct exchange *exchange = xcalloc(1, sizeof(*exchange));
    atomic_init(&exchange->n_refs, 1);
    list_init(&exchange->link);
    exchange->loop = loop;
    exchange->cluster = cluster;
    exchange->task = xstrdup(task);
    exchange->own_task = xstrdup(options->task);
    exchange->cpu_device = rename_device(options->devices[0].full_name, task);
    exchange->free_task.run = free_on_loop;
    exchange->on_freed = on_freed;
    exchange->arg = arg;
    make_peers(exchange, options, incarnation);
    exchange->peer_calls =
        peer_call_table_new(loop, exchange->task, incarnation, options->heartbeat_ms);
    if (cluster)
        peer_call_table_set_cluster(exchange->peer_calls, cluster, options->task);
    peer_call_table_set_tls(exchange->peer_calls, options->tls);
    peer_call_table_set_checksums(exchange->peer_calls, options->use_checksums);
    exchange->rendezvous = rendezvous_table_new(exchange->peers, options->devices[0].allocator);
    rendezvous_table_set_in_flight_limit(
        exchange->rendezvous, cluster ? options->max_in_flight_bytes / EXCHANGE_SESSION_SHARE
                                      : options->max_in_flight_bytes);
    rendezvous_table_set_pool(exchange->rendezvous, options->pool);
    return exchange;
}

struct exchange *exchange_ref(struct exchange *exchange) {
    atomic_fetch_add_explicit(&exchange->n_refs, 1, memory_order_relaxed);
    return exchange;
}

void exchange_unref(struct exchange *exchange) {
    if (!exchange || atomic_fetch_sub_explicit(&exchange->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    if (loop_is_current(exchange->loop))
        exchange_free(exchange);
    else
        loop_post(exchange->loop, &exchange->free_task);
}

void exchange_describe(struct exchange *exchange, struct str *out) {
    str_addf(out, "{\"cluster\":\"%016llx\",\"task\":\"", (unsigned long long)exchange->cluster);
    str_add_json_escaped(out, exchange->task, strlen(exchange->task));
    str_add(out, "\",\"peers\":");
    peer_table_describe(exchange->peers, out);
    str_add(out, ",\"rendezvous\":");
    rendezvous_table_describe(exchange->rendezvous, out);
    str_add_char(out, '}');
}
