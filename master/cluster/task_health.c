/* Runs a task's heartbeat and its metrics. */
#include "master/cluster/task_health.h"

#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"

/* Of the tasks without metrics: written, and never shown. */
static struct task_metrics unlisted;

static struct task_metrics *metrics_new(const char *task) {
    struct task_metrics *metrics = xcalloc(1, sizeof(*metrics));
    struct str labels = STR_INIT;
    str_add(&labels, "task=\"");
    str_add(&labels, task);
    str_add_char(&labels, '"');
    metrics->labels = str_detach(&labels);
    metrics->up = (struct metric)METRIC_GAUGE_INIT("millrace_task_up",
                                                   "1 while the master is connected to the task");
    metrics->rtt = (struct metric)METRIC_GAUGE_US_INIT(
        "millrace_task_heartbeat_rtt_seconds", "Round trip of heartbeats to the task, smoothed");
    metrics->offset = (struct metric)METRIC_GAUGE_US_INIT(
        "millrace_task_clock_offset_seconds", "How far the task's clock is ahead of the master's");
    metrics->missed = (struct metric)METRIC_COUNTER_INIT("millrace_task_heartbeats_missed_total",
                                                         "Heartbeats not answered in time");
    metrics->losses = (struct metric)METRIC_COUNTER_INIT("millrace_task_losses_total",
                                                         "How often the task was lost");
    struct metric *all[] = {&metrics->up, &metrics->rtt, &metrics->offset, &metrics->missed,
                            &metrics->losses};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        all[i]->labels = metrics->labels;
        metrics_register(all[i]);
    }
    return metrics;
}

void task_health_init(struct task_health *health, const char *task, int64_t interval_ms) {
    *health = (struct task_health){.interval_ms = interval_ms,
                                   .metrics = task ? metrics_new(task) : &unlisted};
}

void task_health_watch(struct task_health *health, bool is_ready) {
    heartbeat_start(&health->heartbeat, health->interval_ms, !is_ready, clock_now_ns());
    metric_set(&health->metrics->up, is_ready);
}

void task_health_ping(struct task_health *health, int64_t now_ns, struct wire_conn *control) {
    struct str meta = STR_INIT;
    heartbeat_ping(&health->heartbeat, now_ns, clock_wall_us(), &meta);
    wire_send(control, &(struct wire_out){.type = WIRE_PING,
                                          .id = health->heartbeat.ping_id,
                                          .meta = {meta.data, meta.len}});
    str_fini(&meta);
}

struct status *task_health_tick(struct task_health *health, int64_t now_ns,
                                struct wire_conn *control) {
    uint64_t n_missed = health->heartbeat.n_missed;
    unsigned actions = heartbeat_tick(&health->heartbeat, now_ns);
    metric_add(&health->metrics->missed, (int64_t)(health->heartbeat.n_missed - n_missed));
    if (actions & HEARTBEAT_LOST)
        return heartbeat_silence(&health->heartbeat, now_ns);
    if (actions & HEARTBEAT_PING)
        task_health_ping(health, now_ns, control);
    return NULL;
}

void task_health_pong(struct task_health *health, const struct wire_message *message,
                      int64_t now_ns) {
    heartbeat_pong(&health->heartbeat, now_ns, message->id, message->meta);
    metric_set(&health->metrics->rtt, health->heartbeat.rtt_ns / 1000);
    metric_set(&health->metrics->offset, heartbeat_offset_us(&health->heartbeat));
}

void task_health_lost(struct task_health *health, bool was_ready) {
    heartbeat_stop(&health->heartbeat);
    metric_set(&health->metrics->up, 0);
    metric_add(&health->metrics->losses, was_ready);
    health->n_losses += was_ready;
}

static double seconds_since(int64_t then_ns) { return (double)(clock_now_ns() - then_ns) / 1e9; }

void task_health_describe_seen(const struct task_health *health, struct str *out) {
    if (health->seen_ns == 0)
        return;
    double ago_s = seconds_since(health->seen_ns);
    time_t then = (time_t)((double)clock_wall_us() / 1e6 - ago_s);
    struct tm utc;
    char text[32];
    gmtime_r(&then, &utc);
    strftime(text, sizeof(text), "%H:%M:%S", &utc);
    str_addf(out, " (last seen %.1f s ago, at %s UTC)", ago_s, text);
}

void task_health_describe(const struct task_health *health, struct str *out) {
    if (health->seen_ns != 0)
        str_addf(out, "\"last_seen_s\": %.3f, ", seconds_since(health->seen_ns));
    str_addf(out, "\"rtt_us\": %lld, \"clock_offset_us\": %lld, \"missed\": %llu, \"losses\": %llu",
             (long long)(health->heartbeat.rtt_ns / 1000),
             (long long)heartbeat_offset_us(&health->heartbeat),
             (unsigned long long)health->heartbeat.n_missed, (unsigned long long)health->n_losses);
}
