/* Runs RunGraph messages: the path of every step, from RunGraph to RunDone. service_cancel.c
 * cancels them. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "rpc/wire/wire_values.h"
#include "worker/service/service_internal.h"

struct metric worker_steps_total =
    METRIC_COUNTER_INIT("millrace_worker_steps_total", "Partition runs that ended");
struct metric worker_steps_failed_total = METRIC_COUNTER_INIT(
    "millrace_worker_steps_failed_total", "Partition runs that ended with an error");
struct metric worker_steps_live =
    METRIC_GAUGE_INIT("millrace_worker_steps_live", "Partition runs that have not ended");
struct metric worker_step_duration =
    METRIC_HISTOGRAM_INIT("millrace_worker_step_duration_seconds", "From RunGraph to RunDone");

/* ---- records ---- */

static void on_done(struct execution *execution, struct status *status_take);

static struct graph_run *run_take(struct worker_service *service) {
    pthread_mutex_lock(&service->lock);
    struct graph_run *run = service->free_runs;
    if (run) {
        service->free_runs = run->next_free;
        service->n_free_runs--;
    }
    service->n_runs++;
    pthread_mutex_unlock(&service->lock);
    if (!run) {
        run = xcalloc(1, sizeof(*run));
        execution_init(&run->execution);
        list_init(&run->link);
        run->service = service;
    }
    atomic_init(&run->n_refs, 1);
    return run;
}

static void run_destroy(struct graph_run *run) {
    step_stats_free(run->execution.spare_stats);
    execution_fini(&run->execution);
    str_fini(&run->meta);
    free(run->values);
    free(run);
}

/* The run's contents are freed with its last reference, because a canceller may still be using
 * them. */
static void run_unref(struct graph_run *run) {
    if (atomic_fetch_sub_explicit(&run->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    if (likely(!service_release_later(run)))
        graph_run_recycle(run);
}

void graph_run_recycle(struct graph_run *run) {
    struct worker_service *service = run->service;
    graph_entry_unref(run->graph);
    wire_conn_unref(run->conn);
    status_unref(run->cancelled);
    status_unref(run->execution.cancelled_before); /* a cancel that came after the end */
    run->execution.cancelled_before = NULL;
    run->graph = NULL;
    run->conn = NULL;
    run->cancelled = NULL;
    pthread_mutex_lock(&service->lock);
    bool keep = service->n_free_runs < RUNS_KEPT;
    if (keep) {
        run->next_free = service->free_runs;
        service->free_runs = run;
        service->n_free_runs++;
    }
    bool is_last = --service->n_runs == 0 && service->is_end_watched;
    if (is_last)
        service->is_end_watched = false;
    pthread_mutex_unlock(&service->lock);
    if (!keep)
        run_destroy(run);
    if (is_last)
        loop_post(service->loop, &service->drain_task);
}

void graph_run_unref(struct graph_run *run) { run_unref(run); }

void graph_runs_free(struct worker_service *service) {
    for (struct graph_run *run = service->free_runs, *next; run; run = next) {
        next = run->next_free;
        run_destroy(run);
    }
}

int worker_service_n_steps(struct worker_service *service) {
    pthread_mutex_lock(&service->lock);
    int n = service->n_runs;
    pthread_mutex_unlock(&service->lock);
    return n;
}

/* Returns space for the values, all TENSOR_NONE, feeds first. Never NULL. */
static void run_make_values(struct graph_run *run, uint32_t n) {
    if (run->values_capacity <= n) {
        size_t size_bytes = ((size_t)n + 1) * sizeof(struct tensor);
        free(run->values);
        run->values = aligned_alloc(64, size_bytes);
        if (!run->values)
            out_of_memory(size_bytes);
        run->values_capacity = n + 1;
    }
    memset(run->values, 0, n * sizeof(struct tensor));
    run->n_values = n;
}

/* ---- the answer ---- */

/* A failure that CancelStep brought is not this task's own. */
static bool is_derived(struct graph_run *run, const struct status *status) {
    if (!status)
        return false;
    pthread_mutex_lock(&run->service->lock);
    bool derived = run->cancelled == status;
    pthread_mutex_unlock(&run->service->lock);
    return derived;
}

static struct status *add_fetches(struct graph_run *run, const struct encoded_reply *encoded,
                                  struct wire_values *values) {
    const struct plan *plan = run->graph->plan;
    for (uint32_t i = 0; !run->execution.is_partial && i < plan->n_fetches; i++) {
        const struct tensor *t = &run->execution.fetches[i];
        size_t proto_bytes = 0;
        const struct encoded *text = encoded ? &encoded->texts[i] : NULL;
        if (text && text->buffer)
            TRY(wire_values_add_proto(values, (struct span){text->buffer->data, text->len},
                                      text->buffer, &proto_bytes));
        else if (t->storage != TENSOR_DEAD)
            TRY(wire_values_add(values, t, &proto_bytes));
        run_done_add_fetch(&run->meta, t, proto_bytes);
    }
    return wire_check_meta(WIRE_RUN_DONE, run->meta.len);
}

static void send_done(struct graph_run *run, const struct encoded_reply *encoded,
                      struct status **status) {
    struct wire_values values;
    wire_values_init(&values, run->graph->plan->n_fetches);
    str_clear(&run->meta);
    str_reserve(&run->meta, 128);
    if (!*status)
        *status = add_fetches(run, encoded, &values);
    if (*status) {
        str_clear(&run->meta);
        values.n_parts = 0;
        run_done_add_status(&run->meta, *status, is_derived(run, *status));
    }
    const struct encoded *trace = encoded && encoded->trace.buffer ? &encoded->trace : NULL;
    if (trace)
        run_done_add_trace(&run->meta, trace->len);
    struct wire_out out = {.type = WIRE_RUN_DONE,
                           .id = run->id,
                           .meta = {run->meta.data, run->meta.len},
                           .tensors = values.parts,
                           .n_tensors = values.n_parts};
    if (trace) {
        out.extra = (struct span){trace->buffer->data, trace->len};
        out.extra_buffer = trace->buffer;
    }
    wire_send(run->conn, &out);
    wire_values_fini(&values);
}

/* Writes what the step has done into the ring, and keeps the memory of its statistics. */
static void keep_in_ring(struct graph_run *run, const struct status *status, int64_t end_ns) {
    struct execution *execution = &run->execution;
    struct step_stats *stats = execution->stats;
    int64_t started_ns = stats ? stats->start_ns : end_ns;
    int64_t start_us = stats ? stats->start_wall_us : clock_wall_us();
    step_ring_add(run->service->ring,
                  &(struct step_ring_step){
                      .step_id = run->id,
                      .master_incarnation = run->master_incarnation,
                      .graph = run->graph->handle,
                      .start_us = start_us - (started_ns - run->start_ns) / 1000,
                      .prepare_ns = started_ns - run->start_ns,
                      .run_ns = end_ns - started_ns,
                      .code = status ? (int32_t)status_code(status) : 0,
                      .has_nodes = execution->stats_level >= EXECUTION_STATS_NODES,
                  },
                  run->start_ns, stats);
    step_ring_earn(&run->graph->ring_credit_ns, end_ns - run->start_ns);
    atomic_store_explicit(&run->graph->n_executed, execution->n_executed, memory_order_relaxed);
    execution->stats = NULL;
    execution->spare_stats = step_stats_reset(stats);
}

void graph_run_finish(struct graph_run *run, const struct encoded_reply *encoded,
                      struct status *status_take) {
    struct execution *execution = &run->execution;
    struct worker_service *service = run->service;
    struct status *status = status_take;
    int64_t now_ns = clock_now_ns();
    send_done(run, encoded, &status); /* the answer is sent first */
    metric_add(&worker_steps_total, 1);
    metric_add(&worker_steps_failed_total, status != NULL);
    metric_add(&worker_steps_live, -1);
    metric_observe_us(&worker_step_duration, (now_ns - run->start_ns) / 1000);
    keep_in_ring(run, status, now_ns);
    pthread_mutex_lock(&service->lock);
    u64map_remove(&service->by_step, run->id);
    list_remove(&run->link);
    pthread_mutex_unlock(&service->lock);
    rendezvous_end_step(run->graph->exchange->rendezvous, run->id);
    rendezvous_unref(execution->rendezvous);
    execution->rendezvous = NULL;
    status_unref(status);
    run_unref(run);
}

/* Called on any thread. */
static void on_done(struct execution *execution, struct status *status_take) {
    struct graph_run *run = CONTAINER_OF(execution, struct graph_run, execution);
    if (likely(!service_encode_later(run, status_take)))
        graph_run_finish(run, NULL, status_take);
}

/* Sends a fetch of a partial run. Called on any thread, by the execution's owner. */
static void on_fetch(struct execution *execution, uint32_t position, struct tensor *value) {
    struct graph_run *run = CONTAINER_OF(execution, struct graph_run, execution);
    struct str meta = STR_INIT;
    struct wire_values values;
    size_t proto_bytes = 0;
    wire_values_init(&values, 1);
    struct status *why =
        value->storage == TENSOR_DEAD ? NULL : wire_values_add(&values, value, &proto_bytes);
    if (why) {
        execution_cancel(execution, why);
        status_unref(why);
    } else {
        step_fetched_write(&meta, position, value, proto_bytes);
        wire_send(run->conn, &(struct wire_out){.type = WIRE_STEP_FETCHED,
                                                .id = run->id,
                                                .meta = {meta.data, meta.len},
                                                .tensors = values.parts,
                                                .n_tensors = values.n_parts});
    }
    wire_values_fini(&values);
    str_fini(&meta);
    tensor_clear(value);
}

static void on_inputs_taken(struct execution *execution) {
    struct graph_run *run = CONTAINER_OF(execution, struct graph_run, execution);
    service_send(run->conn, WIRE_INPUTS_TAKEN, run->id, NULL, 0);
}

/* Answers a RunGraph that did not start. */
static void refuse(struct wire_conn *conn, uint64_t id, struct status *why_take, bool derived) {
    struct str meta = STR_INIT;
    run_done_add_status(&meta, why_take, derived);
    service_send(conn, WIRE_RUN_DONE, id, meta.data, meta.len);
    str_fini(&meta);
    status_unref(why_take);
}

void service_refuse_run(struct service_connection *connection, const struct wire_message *message,
                        struct status *why_take) {
    rendezvous_end_step(exchange_of(connection)->rendezvous, message->id);
    refuse(connection->wire, message->id, why_take, false);
}

/* ---- the question ---- */

static void connect_peers(const struct graph_entry *graph) {
    for (int i = 0; i < graph->n_peers; i++)
        peer_connect(graph->peers[i]);
}

/* Adds the run to the live ones, unless its step was here before. */
static struct status *enter(struct worker_service *service, struct graph_run *run) {
    struct status *st = NULL;
    pthread_mutex_lock(&service->lock);
    if (u64map_get(&service->by_step, run->id))
        st = status_new(STATUS_ALREADY_EXISTS, "step %llx is running here already",
                        (unsigned long long)run->id);
    else if (service->n_runs > service->options.max_steps)
        st = status_exhausted("%d steps are running on %s already", service->options.max_steps,
                              service->task);
    else
        u64map_put(&service->by_step, run->id, run);
    if (!st)
        list_push_back(&service->runs, &run->link);
    pthread_mutex_unlock(&service->lock);
    return st;
}

static void leave(struct worker_service *service, struct graph_run *run) {
    pthread_mutex_lock(&service->lock);
    u64map_remove(&service->by_step, run->id);
    list_remove(&run->link);
    pthread_mutex_unlock(&service->lock);
}

/* Everything between entering and the start, but for the feeds. */
static struct status *prepare(struct worker_service *service, struct graph_run *run,
                              const struct run_graph_message *request) {
    const struct plan *plan = run->graph->plan;
    struct execution *execution = &run->execution;
    struct rendezvous_table *rendezvous = run->graph->exchange->rendezvous;
    bool is_over;
    execution->rendezvous = NULL;
    run_make_values(run, plan->n_feeds + plan->n_fetches);
    if (plan->n_channels > 0) {
        connect_peers(run->graph);
        execution->rendezvous =
            rendezvous_open(rendezvous, run->id, run->graph->credit, &plan->late_edges);
        is_over = execution->rendezvous == NULL;
    } else {
        is_over = rendezvous_is_ended(rendezvous, run->id);
    }
    if (is_over)
        return status_new(STATUS_ABORTED, "step %llx has ended here already",
                          (unsigned long long)run->id);
    execution->plan = run->graph->plan;
    execution->step_id = run->id;
    execution->feeds = run->values;
    execution->fetches = run->values + plan->n_feeds;
    execution->containers = run->graph->containers ? run->graph->containers : service->containers;
    execution->pool = service->options.pool;
    execution->io_pool = service->options.io_pool;
    execution->alarms = service->alarms;
    execution->others = run->graph->others;
    execution->n_others = run->graph->n_others;
    uint64_t n_nodes = MAX((uint64_t)plan->n_nodes,
                           atomic_load_explicit(&run->graph->n_executed, memory_order_relaxed));
    execution->stats_level =
        request->collect_stats
            ? EXECUTION_STATS_ALL
            : step_ring_level(service->ring, &run->graph->ring_credit_ns, n_nodes);
    execution->inline_budget_ns = service->options.inline_budget_ns;
    execution->scale = service->options.device_scale;
    execution->on_done = on_done;
    execution->is_partial = request->is_partial;
    execution->on_fetch = on_fetch;
    execution->on_inputs_taken = request->tells_saves ? on_inputs_taken : NULL;
    return NULL;
}

static void prune(const struct service_connection *connection,
                  const struct run_graph_message *request) {
    struct worker_service *service = connection->service;
    if (request->oldest_live_step == 0 || request->oldest_live_step == service->oldest_live_step)
        return;
    service->oldest_live_step = request->oldest_live_step;
    rendezvous_prune(exchange_of(connection)->rendezvous, request->master_incarnation,
                     request->oldest_live_step);
}

struct status *service_run_graph(struct service_connection *connection,
                                 struct wire_message *message) {
    struct worker_service *service = connection->service;
    struct run_graph_message request;
    TRY(run_graph_read(message->meta, &request));
    if (request.master_incarnation != connection->incarnation || request.step_id != message->id)
        return status_failed_precondition(
            "RunGraph for another master, or for another step, than its header states");
    int64_t now_ns = clock_now_ns();
    service_check_awake(service, now_ns);
    if (!wire_conn_is_open(connection->wire))
        return NULL;
    prune(connection, &request);
    struct status *early =
        service->early_cancels.n_entries > 0 ? early_cancel_take(service, message->id) : NULL;
    if (unlikely(early != NULL)) {
        rendezvous_end_step(exchange_of(connection)->rendezvous, message->id);
        refuse(connection->wire, message->id, early, true);
        return NULL;
    }
    struct graph_entry *graph = graph_cache_find(service->graphs, request.graph);
    if (unlikely(!graph || service->refusal)) {
        service_refuse_run(connection, message,
                           graph ? status_ref(service->refusal)
                                 : status_new(STATUS_ABORTED,
                                              "Graph handle %llu is not registered on %s",
                                              (unsigned long long)request.graph, service->task));
        return NULL;
    }
    struct graph_run *run = run_take(service);
    run->conn = wire_conn_ref(connection->wire);
    run->graph = graph_entry_ref(graph);
    run->id = message->id;
    run->master_incarnation = request.master_incarnation;
    run->start_ns = now_ns;
    run->deadline_ns = 0;
    run->clock_ahead_us = request.clock_ahead_us;
    if (request.timeout_ms > 0 && request.timeout_ms < INT64_MAX / 2000000)
        run->deadline_ns =
            run->start_ns + (request.timeout_ms + SERVICE_TIMEOUT_SLACK_MS) * 1000000;
    struct status *st = enter(service, run);
    bool has_entered = !st, is_later = false;
    if (!st)
        st = prepare(service, run, &request);
    if (!st)
        st = service_take_feeds(run, message, &is_later);
    if (unlikely(st != NULL)) {
        if (has_entered) {
            leave(service, run);
            rendezvous_end_step(graph->exchange->rendezvous, run->id);
        }
        rendezvous_unref(run->execution.rendezvous);
        run->execution.rendezvous = NULL;
        refuse(connection->wire, run->id, st, false);
        run_unref(run);
        return NULL;
    }
    graph->n_runs++;
    metric_add(&worker_steps_live, 1);
    if (is_later)
        service_decode_feeds(run);
    else
        execution_start(&run->execution);
    return NULL;
}

/* ---- feeds of a partial run that come later ---- */

/* Returns a live run of this master with a reference. NULL: it has ended, or belongs to another
 * master. */
static struct graph_run *find_run(struct service_connection *connection, uint64_t step_id) {
    struct worker_service *service = connection->service;
    pthread_mutex_lock(&service->lock);
    struct graph_run *run = u64map_get(&service->by_step, step_id);
    if (run && run->master_incarnation != connection->incarnation)
        run = NULL;
    if (run)
        atomic_fetch_add_explicit(&run->n_refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&service->lock);
    return run;
}

/* A feed that cannot be taken ends its step, not the connection. */
struct status *service_feed_step(struct service_connection *connection,
                                 struct wire_message *message) {
    struct graph_run *run = find_run(connection, message->id);
    if (!run)
        return NULL; /* RunDone and FeedStep have crossed */
    struct status *st = service_feed_run(run, message);
    if (st)
        execution_cancel(&run->execution, st);
    status_unref(st);
    run_unref(run);
    return NULL;
}

void service_refuse_feed(struct service_connection *connection, const struct wire_message *message,
                         struct status *why_take) {
    struct graph_run *run = find_run(connection, message->id);
    if (run) {
        execution_cancel(&run->execution, why_take);
        run_unref(run);
    }
    status_unref(why_take);
}
