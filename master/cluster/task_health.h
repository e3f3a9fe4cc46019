/* What the master knows of a task's health: its heartbeat over the present connections, when it
 * was last heard of, and the numbers that outlive connections, as metrics with the task's name.
 * Part of struct task (tasks.c). Loop thread. */
#ifndef MILLRACE_MASTER_CLUSTER_TASK_HEALTH_H
#define MILLRACE_MASTER_CLUSTER_TASK_HEALTH_H

#include "common/base/metrics.h"
#include "rpc/wire/heartbeat.h"
#include "rpc/wire/wire.h"

/* Metrics stay registered for the process's life, so they lie apart from the task. */
struct task_metrics {
    char *labels;
    struct metric up, rtt, offset, missed, losses;
};

struct task_health {
    struct heartbeat heartbeat;
    int64_t interval_ms;
    int64_t seen_ns; /* its last message; 0: none yet */
    struct task_metrics *metrics;
};

void task_health_init(struct task_health *health, const char *task, int64_t interval_ms);
/* A connection is being made, or its channels are: watched from now on. */
void task_health_watch(struct task_health *health, bool is_ready);
static inline void task_health_heard(struct task_health *health, int64_t now_ns) {
    health->seen_ns = now_ns;
    heartbeat_heard(&health->heartbeat, now_ns);
}
/* One sign of life more than ticks ask for. Pings tell the task how often they come: before the
 * first it does not miss its master. */
void task_health_ping(struct task_health *health, int64_t now_ns, struct wire_conn *control);
/* A tick: sends the ping that is due over `control`. UNAVAILABLE when the task has been silent
 * for too long. */
struct status *task_health_tick(struct task_health *health, int64_t now_ns,
                                struct wire_conn *control) MUST_USE;
void task_health_pong(struct task_health *health, const struct wire_message *message,
                      int64_t now_ns);
void task_health_lost(struct task_health *health, bool was_ready);
/* " (last seen 6.1 s ago, at 14:05:09 UTC)"; nothing for a task that was never heard of. */
void task_health_describe_seen(const struct task_health *health, struct str *out);
/* JSON members for /statusz. */
void task_health_describe(const struct task_health *health, struct str *out);

#endif
