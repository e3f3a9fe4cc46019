/* Ends the steps before the task ends, and sees to it that the masters hear how they ended.
 *
 *   worker_service_drain     all steps go on ──────────────────────────────────┐
 *   worker_service_abandon   steps of a failed device go on for a second, ─────┤
 *                            all others are cancelled                          │ the last has ended
 *                                                                              ▼
 *                            on_drained ◄── all has arrived, or nothing moves ── flush */
#include "common/base/clock.h"
#include "rpc/wire/heartbeat.h"
#include "rpc/wire/wire_last.h"
#include "worker/service/service_internal.h"

enum {
    /* a step whose device has failed notices that when it uses the device, or waits for it */
    FAILED_STEP_MS = 1000,
    FLUSH_LOOK_MS = 5, /* the kernel does not say when a host has received something */
    FLUSH_STALL_MS = 2000,
};

void service_tell_masters(struct worker_service *service, void (*add_what)(struct str *ret_meta)) {
    struct str meta = STR_INIT;
    add_what(&meta);
    LIST_FOR_EACH (link, &service->connections) {
        struct service_connection *connection = LIST_ENTRY(link, struct service_connection, link);
        if (connection->master)
            service_send(connection->wire, WIRE_PONG, 0, meta.data, meta.len);
    }
    str_fini(&meta);
}

/* ---- the replies ---- */

static size_t unarrived_bytes(const struct worker_service *service) {
    size_t n = (size_t)service->n_registering; /* replies that are not written yet */
    LIST_FOR_EACH (link, &service->connections) {
        struct service_connection *connection = LIST_ENTRY(link, struct service_connection, link);
        if (connection->master)
            n += wire_conn_unarrived_bytes(connection->wire);
    }
    return n;
}

static void flush(struct worker_service *service) {
    size_t n = unarrived_bytes(service);
    int64_t now_ns = clock_now_ns();
    if (n < service->unarrived_bytes) {
        service->unarrived_bytes = n;
        service->unarrived_since_ns = now_ns;
    }
    if (n > 0 && now_ns - service->unarrived_since_ns < FLUSH_STALL_MS * INT64_C(1000000))
        return;
    loop_timer_stop(&service->drain_timer);
    void (*on_drained)(void *arg) = service->on_drained;
    service->on_drained = NULL;
    on_drained(service->on_drained_arg);
}

static void on_last_run_ended(struct loop_task *task) {
    struct worker_service *service = CONTAINER_OF(task, struct worker_service, drain_task);
    if (service->on_drained && !service->is_freed) {
        service->is_flushing = true;
        service->unarrived_bytes = SIZE_MAX;
        loop_timer_start(&service->drain_timer, FLUSH_LOOK_MS, FLUSH_LOOK_MS);
        flush(service);
    }
    service_maybe_free(service);
}

/* ---- the steps ---- */

static bool any_run(const struct graph_run *run, const void *arg) { return true; }

static bool uses_no_failed_device(const struct graph_run *run, const void *arg) {
    const struct plan *plan = run->graph->plan;
    for (uint32_t i = 0; i < plan->n_used_devices; i++)
        if (device_failure(plan->used_devices[i]))
            return false;
    return true;
}

static void on_drain_timer(struct loop_timer *timer) {
    struct worker_service *service = CONTAINER_OF(timer, struct worker_service, drain_timer);
    if (service->is_flushing)
        flush(service);
    else
        service_cancel_runs(service, any_run, NULL, service->refusal);
}

static void await_last_run(struct worker_service *service, void (*on_drained)(void *arg),
                           void *arg) {
    service->on_drained = on_drained;
    service->on_drained_arg = arg;
    pthread_mutex_lock(&service->lock);
    bool is_idle = service->n_runs == 0;
    service->is_end_watched = !is_idle;
    pthread_mutex_unlock(&service->lock);
    if (is_idle)
        loop_post(service->loop, &service->drain_task);
}

void worker_service_drain(struct worker_service *service, void (*on_drained)(void *arg),
                          void *arg) {
    service->is_draining = true;
    service->refusal = status_unavailable("%s is draining", service->task);
    service_tell_masters(service, heartbeat_add_draining);
    await_last_run(service, on_drained, arg);
}

void worker_service_abandon(struct worker_service *service, struct device *device,
                            void (*on_drained)(void *arg), void *arg) {
    service->refusal = status_unavailable("%s is stopping: %s", service->task,
                                          status_message(device_failure(device)));
    wire_server_close(service->server);
    wire_server_close(service->unix_server);
    service->server = service->unix_server = NULL;
    loop_timer_start(&service->drain_timer, FAILED_STEP_MS, 0);
    service_cancel_runs(service, uses_no_failed_device, NULL, service->refusal);
    await_last_run(service, on_drained, arg);
}

void service_drain_init(struct worker_service *service) {
    service->drain_task.run = on_last_run_ended;
    loop_timer_init(service->loop, &service->drain_timer, on_drain_timer);
}

void service_drain_close(struct worker_service *service,
                         void (*on_closed)(struct loop_timer *timer)) {
    loop_timer_close(&service->drain_timer, on_closed);
}
