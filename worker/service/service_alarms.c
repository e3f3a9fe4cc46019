/* Drives the alarms of kernels (common/base/alarm.h) by a timer of the loop, to the millisecond. */
#include "common/base/clock.h"
#include "worker/service/service_internal.h"

static int64_t now_ns(void *arg) { return clock_now_ns(); }

static void wake(void *arg) {
    struct worker_service *service = arg;
    if (!atomic_exchange(&service->is_alarm_posted, true))
        loop_post(service->loop, &service->alarm_task);
}

/* Rings the alarms that are due, and sleeps until the next one. Rounded up, because the loop's own
 * time may be late. */
static void run(struct worker_service *service) {
    int64_t next_ns = alarm_clock_run(service->alarms);
    if (next_ns == INT64_MAX) {
        loop_timer_stop(&service->alarm_timer);
        return;
    }
    int64_t wait_ns = MAX(next_ns - clock_now_ns(), (int64_t)0);
    loop_timer_start(&service->alarm_timer, wait_ns / 1000000 + 1, 0);
}

static void on_timer(struct loop_timer *timer) {
    run(CONTAINER_OF(timer, struct worker_service, alarm_timer));
}

static void on_wake(struct loop_task *task) {
    struct worker_service *service = CONTAINER_OF(task, struct worker_service, alarm_task);
    atomic_store(&service->is_alarm_posted, false);
    if (service->is_freed)
        service_maybe_free(service);
    else
        run(service);
}

void service_alarms_init(struct worker_service *service) {
    const struct alarm_clock_options options = {.now_ns = now_ns, .wake = wake, .arg = service};
    service->alarms = alarm_clock_new(&options);
    service->alarm_task.run = on_wake;
    loop_timer_init(service->loop, &service->alarm_timer, on_timer);
}

void service_alarms_close(struct worker_service *service,
                          void (*on_closed)(struct loop_timer *timer)) {
    loop_timer_close(&service->alarm_timer, on_closed);
}

bool service_alarms_is_busy(const struct worker_service *service) {
    return atomic_load(&service->is_alarm_posted);
}
