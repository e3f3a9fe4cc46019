/* Tracks the health of a task: its heartbeat over the present connections, when it was last heard
 * of, and metrics with the task's name, which outlive connections. Part of struct task
 * (tasks_internal.h). Loop thread. */
#ifndef MILLRACE_MASTER_CLUSTER_TASK_HEALTH_H
#define MILLRACE_MASTER_CLUSTER_TASK_HEALTH_H

#include "common/base/metrics.h"
#include "rpc/wire/heartbeat.h"
#include "rpc/wire/wire.h"

/* Allocated apart from the task, since metrics stay registered until the process ends. */
struct task_metrics {
    char *labels;
    struct metric up, rtt, offset, missed, losses;
};

struct task_health {
    struct heartbeat heartbeat;
    int64_t interval_ms;
    int64_t seen_ns; /* when its last message arrived; 0: none has */
    uint64_t n_losses;
    struct task_metrics *metrics;
};

/* `task` NULL: without metrics, for a task that is soon forgotten. */
void task_health_init(struct task_health *health, const char *task, int64_t interval_ms);
/* Starts to watch new connections of the task. `is_ready`: the task has become READY. */
void task_health_watch(struct task_health *health, bool is_ready);
static inline void task_health_heard(struct task_health *health, int64_t now_ns) {
    health->seen_ns = now_ns;
    heartbeat_heard(&health->heartbeat, now_ns);
}
/* Sends a ping at once. A ping states the interval, so the task watches its master only after the
 * first one. */
void task_health_ping(struct task_health *health, int64_t now_ns, struct wire_conn *control);
/* Sends the ping that is due over `control`. Errors: UNAVAILABLE if the task has been silent for
 * too long. */
struct status *task_health_tick(struct task_health *health, int64_t now_ns,
                                struct wire_conn *control) MUST_USE;
void task_health_pong(struct task_health *health, const struct wire_message *message,
                      int64_t now_ns);
void task_health_lost(struct task_health *health, bool was_ready);
/* Appends " (last seen 6.1 s ago, at 14:05:09 UTC)"; nothing if the task was never heard of. */
void task_health_describe_seen(const struct task_health *health, struct str *out);
/* Appends members of a JSON object, for /statusz. */
void task_health_describe(const struct task_health *health, struct str *out);

#endif
