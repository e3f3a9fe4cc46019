/* A task's record and the table of them: tasks.c (connections, calls), tasks_view.c (what others ask). Loop thread. */
#ifndef MILLRACE_MASTER_TASKS_INTERNAL_H
#define MILLRACE_MASTER_TASKS_INTERNAL_H

#include "common/base/map.h"
#include "master/task_health.h"
#include "master/tasks.h"

struct task {
    struct tasks *tasks;
    int index;
    char *name;
    char *address;
    enum task_state state;
    struct wire_conn *probe, *control, *bulk;
    int n_linked; /* of control and bulk: greeted */
    char *unix_address, *host_id;
    bool avoid_unix; /* the Unix socket did not work: a container without our abstract names, perhaps */
    uint64_t incarnation, membership;
    struct device_row {
        char *name, *type, *description;
        int64_t memory_limit_bytes;
        uint64_t incarnation;
    } * devices;
    int n_devices;
    struct u64map calls;     /* id → struct task_call */
    struct loop_timer timer; /* DOWN: to connect; PROBING, LINKING: to give up connecting */
    int64_t backoff_ms;
    struct task_health health;
    struct status *why_down;
};

struct tasks {
    struct loop *loop;
    struct task *rows;
    int n;
    uint64_t incarnation, id_prefix, next_sequence;
    int64_t heartbeat_ms;
    struct loop_timer tick;
    struct device_table *devices; /* NULL after a change */
    task_event_fn *on_ready, *on_lost;
    void *arg;
    struct task_call *lost; /* calls that failed at once: told from the loop */
    struct loop_task lost_task;
    bool lost_posted, is_closing, is_freed;
};

#endif
