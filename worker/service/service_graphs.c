/* Handles the messages about graphs, and the masters that register them. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "proto/worker.pb-c.h"
#include "worker/service/service_internal.h"

struct metric worker_graphs = METRIC_GAUGE_INIT("millrace_worker_graphs", "Registered graphs");

static void count_graphs(struct worker_service *service) {
    metric_set(&worker_graphs, (int64_t)graph_cache_n_graphs(service->graphs));
}

/* ---- masters ---- */

struct master *master_join(struct worker_service *service, uint64_t incarnation) {
    int n = 0;
    LIST_FOR_EACH (link, &service->masters) {
        struct master *master = LIST_ENTRY(link, struct master, link);
        if (master->incarnation == incarnation) {
            master->n_connections++;
            service->masterless_ns = 0;
            return master;
        }
        n++;
    }
    if (n >= SERVICE_MAX_MASTERS)
        return NULL;
    struct master *master = xcalloc(1, sizeof(*master));
    master->incarnation = incarnation;
    master->membership = random_u64();
    master->n_connections = 1;
    list_push_back(&service->masters, &master->link);
    service->masterless_ns = 0;
    return master;
}

static bool has_master(const struct worker_service *service) {
    LIST_FOR_EACH (link, &service->masters)
        if (LIST_ENTRY(link, struct master, link)->n_connections > 0)
            return true;
    return false;
}

static bool is_of_master(const struct graph_run *run, const void *arg) {
    return run->master_incarnation == *(const uint64_t *)arg;
}

struct exchange *service_find_exchange(struct worker_service *service, uint64_t cluster) {
    if (cluster == 0)
        return service->home;
    LIST_FOR_EACH (link, &service->exchanges) {
        struct exchange *exchange = LIST_ENTRY(link, struct exchange, link);
        if (exchange->cluster == cluster && !exchange->is_closed)
            return exchange;
    }
    return NULL;
}

struct status *master_enter_cluster(struct worker_service *service, struct master *master,
                                    const char *task) {
    if (master->exchange && strcmp(master->exchange->task, task) == 0)
        return NULL;
    if (master->exchange)
        return status_failed_precondition("%s is %s of the session's cluster, and cannot also be "
                                          "%.200s",
                                          service->task, master->exchange->task, task);
    if (strlen(task) > 512)
        return status_invalid("a task name of %zu bytes in Hello", strlen(task));
    master->exchange = exchange_new(service->loop, &service->options, service->incarnation,
                                    master->incarnation, task, service_exchange_freed, service);
    service->n_exchanges++;
    list_push_back(&service->exchanges, &master->exchange->link);
    peer_table_set_on_lost(master->exchange->peers, service_on_peer_lost, service);
    return NULL;
}

/* Frees what the master has here. Its exchange lives until the last step that uses it has ended. */
static void master_free(struct worker_service *service, struct master *master) {
    graph_cache_remove_master(service->graphs, master->incarnation);
    if (service->home)
        rendezvous_forget_master(service->home->rendezvous, master->incarnation);
    if (master->exchange)
        master->exchange->is_closed = true;
    exchange_unref(master->exchange);
    list_remove(&master->link);
    free(master);
    count_graphs(service);
}

/* The last connection of a master has ended: its steps end now, and its graphs wait for a while. */
void master_leave(struct worker_service *service, struct master *master) {
    if (--master->n_connections > 0)
        return;
    master->lost_ns = clock_now_ns();
    heartbeat_stop(&master->heartbeat);
    if (!has_master(service))
        service->masterless_ns = master->lost_ns;
    struct status *why = status_unavailable("%s lost its connection to the master", service->task);
    service_cancel_runs(service, is_of_master, &master->incarnation, why);
    status_unref(why);
    if (master->has_left)
        master_free(service, master);
}

void master_pinged(struct master *master, struct span meta, int64_t now_ns) {
    int64_t interval_ms = heartbeat_ping_interval_ms(meta);
    if (interval_ms > 0 &&
        (!master->heartbeat.is_on || master->heartbeat.interval_ns != interval_ms * 1000000))
        heartbeat_start(&master->heartbeat, interval_ms, true, now_ns);
}

static void end_connections(struct worker_service *service, const struct master *master,
                            struct status *why) {
    LIST_FOR_EACH (link, &service->connections) {
        struct service_connection *connection = LIST_ENTRY(link, struct service_connection, link);
        if (connection->master == master)
            wire_conn_close(connection->wire, status_ref(why));
    }
}

void masters_beat(struct worker_service *service, int64_t now_ns) {
    LIST_FOR_EACH (link, &service->masters) {
        struct master *master = LIST_ENTRY(link, struct master, link);
        if (!(heartbeat_tick(&master->heartbeat, now_ns) & HEARTBEAT_LOST))
            continue;
        struct status *why =
            status_prefix_take(heartbeat_silence(&master->heartbeat, now_ns),
                               "master %016llx: ", (unsigned long long)master->incarnation);
        log_event(EVENT_MASTER_SILENT, "%s", status_message(why));
        end_connections(service, master, why);
        status_unref(why);
    }
}

void masters_expire(struct worker_service *service, int64_t now_ns) {
    LIST_FOR_EACH_SAFE (link, next, &service->masters) {
        struct master *master = LIST_ENTRY(link, struct master, link);
        if (master->n_connections > 0 ||
            now_ns - master->lost_ns < service->options.graph_grace_ms * 1000000)
            continue;
        log_event(EVENT_MASTER_DROPPED,
                  "dropping the graphs of master %016llx, which has not returned",
                  (unsigned long long)master->incarnation);
        master_free(service, master);
    }
}

void masters_free(struct worker_service *service) {
    LIST_FOR_EACH_SAFE (link, next, &service->masters)
        master_free(service, LIST_ENTRY(link, struct master, link));
}

void service_master_leaves(struct service_connection *connection) {
    struct worker_service *service = connection->service;
    struct master *master = connection->master;
    struct status *why = status_new(STATUS_CANCELLED, "the master has left");
    master->has_left = true;
    service_cancel_runs(service, is_of_master, &master->incarnation, why);
    graph_cache_remove_master(service->graphs, master->incarnation);
    count_graphs(service);
    end_connections(service, master, why);
    status_unref(why);
}

/* ---- registering ---- */

/* The answer waits for the plan, which may be built on the pool. The connection may end
 * meanwhile. */
struct registration {
    struct worker_service *service;
    struct wire_conn *conn;
    uint64_t id;
};

static void send_registered(struct wire_conn *conn, uint64_t id, uint64_t graph,
                            const struct status *status) {
    Millrace__Registered reply = MILLRACE__REGISTERED__INIT;
    reply.graph = graph;
    reply.code = (int32_t)status_code(status);
    reply.message = (char *)(uintptr_t)status_message(status);
    size_t len = millrace__registered__get_packed_size(&reply);
    uint8_t *bytes = xmalloc(len + 1);
    millrace__registered__pack(&reply, bytes);
    service_send(conn, WIRE_REGISTERED, id, bytes, len);
    free(bytes);
}

void service_refuse_graph(struct service_connection *connection, const struct wire_message *message,
                          struct status *why_take) {
    send_registered(connection->wire, message->id, 0, why_take);
    status_unref(why_take);
}

static void on_built(void *arg, struct graph_entry *entry, struct status *status_take) {
    struct registration *registration = arg;
    struct worker_service *service = registration->service;
    uint64_t handle = entry ? entry->handle : 0;
    if (entry && !wire_conn_is_open(registration->conn)) { /* no message can ever name the graph */
        graph_cache_remove(service->graphs, handle, entry->master_incarnation);
        handle = 0;
    }
    send_registered(registration->conn, registration->id, handle, status_take);
    status_unref(status_take);
    wire_conn_unref(registration->conn);
    free(registration);
    service->n_registering--;
    count_graphs(service);
    service_maybe_free(service);
}

static struct status *know_peers(const struct service_connection *connection,
                                 const Millrace__RegisterGraph *message, struct peer **peers,
                                 int *ret_n) {
    struct exchange *exchange = exchange_of(connection);
    int n = 0;
    if (exchange->cluster && connection->service->options.rdma_mode == RDMA_REQUIRE &&
        message->n_peer > 0)
        return status_failed_precondition(
            "%s runs with --rdma=require, but the clusters of sessions do not use RDMA",
            exchange->own_task);
    for (size_t i = 0; i < message->n_peer; i++) {
        const Millrace__Peer *from = message->peer[i];
        if (strcmp(from->task, exchange->task) == 0)
            continue;
        TRY(peer_table_know(exchange->peers, from->task, from->address, from->unix_address,
                            from->incarnation, &peers[n]));
        if (exchange->cluster)
            peer_set_own_task(peers[n], from->own_task);
        n++;
    }
    *ret_n = n;
    return NULL;
}

static struct status *know_others(struct exchange *exchange, const Millrace__RegisterGraph *message,
                                  struct peer_call_task **others, int *ret_n) {
    for (size_t i = 0; i < message->n_other; i++) {
        const Millrace__Peer *from = message->other[i];
        struct peer_call_task *other;
        if (strcmp(from->task, exchange->task) == 0)
            continue;
        TRY(peer_call_table_know(exchange->peer_calls, from->task, from->address,
                                 from->unix_address, &other));
        if (exchange->cluster)
            peer_call_task_set_own(other, from->own_task);
        others[(*ret_n)++] = other;
    }
    return NULL;
}

/* Finds where each graph is in the payload. Errors: INVALID_ARGUMENT when they are longer than the
 * payload. */
static struct status *find_graphs(const Millrace__RegisterGraph *request,
                                  const struct wire_message *message,
                                  struct function_source *functions,
                                  struct graph_registration *ret) {
    const char *payload = message->payload ? message->payload->data : "";
    size_t len = message->payload_len, end = len;
    for (size_t i = request->n_function; i-- > 0;) {
        const Millrace__Function *from = request->function[i];
        if (from->graph_bytes > end)
            return status_invalid("the functions of RegisterGraph are longer than its payload");
        end -= (size_t)from->graph_bytes;
        functions[i] = (struct function_source){
            from->key, from->name, {payload + end, (size_t)from->graph_bytes}};
    }
    ret->graphdef = (struct span){payload, end};
    ret->functions = functions;
    ret->n_functions = (int)request->n_function;
    ret->bytes = message->payload;
    return NULL;
}

struct status *service_register_graph(struct service_connection *connection,
                                      struct wire_message *message) {
    struct worker_service *service = connection->service;
    Millrace__RegisterGraph *request = millrace__register_graph__unpack(
        NULL, message->meta.len, (const uint8_t *)message->meta.data);
    if (!request)
        return status_invalid("malformed RegisterGraph");
    int n_peers = 0, n_others = 0;
    struct peer **peers = xcalloc(request->n_peer + 1, sizeof(struct peer *));
    struct peer_call_task **others = xcalloc(request->n_other + 1, sizeof(struct peer_call_task *));
    struct function_source *functions = xcalloc(request->n_function + 1, sizeof(*functions));
    struct graph_registration graphs = {.master_incarnation = request->master_incarnation,
                                        .exchange = exchange_of(connection),
                                        .session = request->session,
                                        .client = request->client,
                                        .is_isolated = request->is_isolated};
    struct status *st = NULL;
    if (request->master_incarnation != connection->incarnation)
        st = status_failed_precondition("RegisterGraph for another master than its connection's");
    else if (service->refusal)
        st = status_ref(service->refusal);
    else
        st = know_peers(connection, request, peers, &n_peers);
    if (!st)
        st = know_others(exchange_of(connection), request, others, &n_others);
    if (!st)
        st = find_graphs(request, message, functions, &graphs);
    if (st) {
        send_registered(connection->wire, message->id, 0, st);
        status_unref(st);
        free(peers);
        free(others);
    } else {
        struct registration *registration = xmalloc(sizeof(*registration));
        *registration =
            (struct registration){service, wire_conn_ref(connection->wire), message->id};
        service->n_registering++;
        graphs.peers = peers;
        graphs.n_peers = n_peers;
        graphs.others = others;
        graphs.n_others = n_others;
        graph_cache_register(service->graphs, &graphs, on_built, registration);
    }
    free(functions);
    millrace__register_graph__free_unpacked(request, NULL);
    return NULL;
}

/* The master's other connections are over, even if their ends were not noticed yet. No step that
 * came over them may continue beside those that come now. */
struct status *service_keep_graphs(struct service_connection *connection,
                                   const struct wire_message *message) {
    struct worker_service *service = connection->service;
    Millrace__KeepGraphs *kept =
        millrace__keep_graphs__unpack(NULL, message->meta.len, (const uint8_t *)message->meta.data);
    if (!kept)
        return status_invalid("malformed KeepGraphs");
    struct status *why = status_unavailable("the master has connected again");
    LIST_FOR_EACH (link, &service->connections) {
        struct service_connection *other = LIST_ENTRY(link, struct service_connection, link);
        if (other != connection && other->master == connection->master)
            wire_conn_close(other->wire, status_ref(why));
    }
    status_unref(why);
    graph_cache_keep(service->graphs, connection->incarnation, kept->graph, kept->n_graph,
                     kept->session, kept->n_session);
    millrace__keep_graphs__free_unpacked(kept, NULL);
    count_graphs(service);
    service_send(connection->wire, WIRE_KEPT, message->id, NULL, 0);
    return NULL;
}

struct status *service_close_session(struct service_connection *connection,
                                     const struct wire_message *message) {
    Millrace__CloseSession *request = millrace__close_session__unpack(
        NULL, message->meta.len, (const uint8_t *)message->meta.data);
    if (!request)
        return status_invalid("malformed CloseSession");
    graph_cache_close_session(connection->service->graphs, connection->incarnation,
                              span_of(request->session));
    millrace__close_session__free_unpacked(request, NULL);
    return NULL;
}

struct status *service_deregister_graph(struct service_connection *connection,
                                        const struct wire_message *message) {
    struct worker_service *service = connection->service;
    Millrace__DeregisterGraph *request = millrace__deregister_graph__unpack(
        NULL, message->meta.len, (const uint8_t *)message->meta.data);
    if (!request)
        return status_invalid("malformed DeregisterGraph");
    for (size_t i = 0; i < request->n_graph; i++)
        graph_cache_remove(service->graphs, request->graph[i], connection->incarnation);
    millrace__deregister_graph__free_unpacked(request, NULL);
    count_graphs(service);
    return NULL;
}

struct status *service_reset_containers(struct service_connection *connection,
                                        const struct wire_message *message) {
    struct worker_service *service = connection->service;
    Millrace__Reset *request =
        millrace__reset__unpack(NULL, message->meta.len, (const uint8_t *)message->meta.data);
    if (!request)
        return status_invalid("malformed Reset");
    if (request->n_container == 0)
        container_reset(service->containers, NULL);
    for (size_t i = 0; i < request->n_container; i++)
        container_reset(service->containers, request->container[i]);
    if (request->drop_graphs)
        graph_cache_remove_all(service->graphs);
    millrace__reset__free_unpacked(request, NULL);
    count_graphs(service);
    service_send(connection->wire, WIRE_RESET_DONE, message->id, NULL, 0);
    return NULL;
}
