/* Cancels graph runs: for their master, after the loss of a task that they exchange with, or at
 * their deadline. A cancel may arrive before the RunGraph that it is for; it is kept for a
 * while. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "worker/service/service_internal.h"

/* ---- runs that are here ---- */

void service_cancel_runs(struct worker_service *service,
                         bool (*matches)(const struct graph_run *run, const void *arg),
                         const void *arg, struct status *why) {
    size_t n = 0;
    pthread_mutex_lock(&service->lock);
    struct graph_run **found = xcalloc(service->by_step.n_entries + 1, sizeof(struct graph_run *));
    LIST_FOR_EACH (link, &service->runs) {
        struct graph_run *run = LIST_ENTRY(link, struct graph_run, link);
        if (!matches(run, arg))
            continue;
        atomic_fetch_add_explicit(&run->n_refs, 1, memory_order_relaxed);
        found[n++] = run;
    }
    pthread_mutex_unlock(&service->lock);
    for (size_t i = 0; i < n; i++) {
        execution_cancel(&found[i]->execution, why);
        graph_run_unref(found[i]);
    }
    free(found);
}

/* ---- cancels that came first ---- */

struct early_cancel {
    struct status *why;
    int64_t since_ns;
};

struct status *early_cancel_take(struct worker_service *service, uint64_t step_id) {
    struct early_cancel *early = u64map_remove(&service->early_cancels, step_id);
    struct status *why = early ? early->why : NULL;
    free(early);
    return why;
}

static void cancel_early(struct service_connection *connection, uint64_t step_id,
                         struct status *why_take) {
    struct worker_service *service = connection->service;
    if (rendezvous_is_ended(exchange_of(connection)->rendezvous, step_id) ||
        service->early_cancels.n_entries >= SERVICE_MAX_EARLY_CANCELS) {
        status_unref(why_take); /* RunDone and CancelStep have crossed */
        return;
    }
    status_unref(early_cancel_take(service, step_id));
    struct early_cancel *early = xmalloc(sizeof(*early));
    *early = (struct early_cancel){.why = why_take, .since_ns = clock_now_ns()};
    u64map_put(&service->early_cancels, step_id, early);
}

struct status *service_cancel_step(struct service_connection *connection,
                                   const struct wire_message *message) {
    struct worker_service *service = connection->service;
    struct cancel_step_message request;
    TRY(cancel_step_read(message->meta, &request));
    struct status *why =
        status_from_wire(request.code ? request.code : STATUS_CANCELLED, request.message);
    pthread_mutex_lock(&service->lock);
    struct graph_run *run = u64map_get(&service->by_step, request.step_id);
    bool is_own = run && run->master_incarnation == connection->incarnation;
    if (is_own) {
        atomic_fetch_add_explicit(&run->n_refs, 1, memory_order_relaxed);
        if (!run->cancelled)
            run->cancelled = status_ref(why);
    }
    pthread_mutex_unlock(&service->lock);
    if (is_own) {
        execution_cancel(&run->execution, why);
        graph_run_unref(run);
        status_unref(why);
    } else if (run) {
        status_unref(why);
    } else {
        cancel_early(connection, request.step_id, why);
    }
    return NULL;
}

static bool has_connection(const struct graph_run *run, const void *arg) {
    return run->conn == arg;
}

void service_cancel_runs_of(struct service_connection *connection) {
    struct worker_service *service = connection->service;
    if (worker_service_n_steps(service) == 0)
        return;
    struct status *why = status_unavailable("%s lost its connection to the master", service->task);
    service_cancel_runs(service, has_connection, connection->wire, why);
    status_unref(why);
}

static bool exchanges_with(const struct graph_run *run, const void *arg) {
    for (int i = 0; i < run->graph->n_peers; i++)
        if (run->graph->peers[i] == arg)
            return true;
    return false;
}

void service_on_peer_lost(void *arg, struct peer *peer, struct status *why) {
    service_cancel_runs(arg, exchanges_with, peer, why);
}

static bool is_overdue(const struct graph_run *run, const void *arg) {
    return run->deadline_ns != 0 && *(const int64_t *)arg > run->deadline_ns;
}

static void expire_early_cancels(struct worker_service *service, int64_t before_ns) {
    size_t cursor = 0;
    uint64_t step_id;
    void *value;
    while (u64map_next(&service->early_cancels, &cursor, &step_id, &value))
        if (((struct early_cancel *)value)->since_ns < before_ns ||
            rendezvous_is_ended(service->home->rendezvous, step_id))
            status_unref(early_cancel_take(service, step_id));
}

void early_cancels_clear(struct worker_service *service) {
    expire_early_cancels(service, INT64_MAX);
}

void steps_expire(struct worker_service *service, int64_t now_ns) {
    if (worker_service_n_steps(service) > 0) {
        struct status *why =
            status_new(STATUS_DEADLINE_EXCEEDED,
                       "the step's deadline has passed, and its master did not end the step");
        service_cancel_runs(service, is_overdue, &now_ns, why);
        status_unref(why);
    }
    if (service->early_cancels.n_entries > 0)
        expire_early_cancels(service, now_ns - SERVICE_EARLY_CANCEL_SECONDS * 1000000000ll);
}
