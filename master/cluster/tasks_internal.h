/* The parts of the master's table of tasks: tasks.c (connections and calls), tasks_members.c
 * (who belongs to the cluster, where that changes) and tasks_view.c (what others see of it).
 * Loop thread. */
#ifndef MILLRACE_MASTER_CLUSTER_TASKS_INTERNAL_H
#define MILLRACE_MASTER_CLUSTER_TASKS_INTERNAL_H

#include "common/base/map.h"
#include "master/cluster/task_health.h"
#include "master/cluster/tasks.h"

struct task {
    struct tasks *tasks;
    int index;
    char *name;
    char *address; /* "" for one that is expected and has not registered */
    uint8_t state; /* enum task_state */
    struct wire_conn *probe, *control, *bulk;
    uint64_t n_received; /* over control and bulk, as the last tick saw it */
    int n_linked;        /* of control and bulk: greeted */
    char *unix_address, *host_id;
    bool is_reconciling; /* PROBING: it has been told what is held there */
    /* the Unix socket did not work: a container without our abstract names, perhaps */
    bool avoid_unix;
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
    uint64_t registered_incarnation;
    bool is_static; /* of the list that the master was given: nothing makes it leave */
    /* a member now: it is connected to; one that is no more stays as long as its connections do */
    bool is_registered;
    /* a member that is missing while it is not there; with neither, and not READY, it is gone */
    bool is_expected;
};

struct tasks {
    struct loop *loop;
    /* they stay when they are gone: others point to them, and a task of that name may come again */
    struct task **rows;
    int n;
    bool is_dynamic; /* tasks may come and go (tasks_members.c) */
    uint64_t incarnation, id_prefix, next_sequence;
    int64_t heartbeat_ms;
    task_holdings_fn *holdings;
    struct tls *tls; /* NULL: in the clear */
    bool uses_checksums;
    struct loop_timer tick;
    struct device_table *devices; /* NULL after a change */
    task_event_fn *on_ready, *on_lost;
    void *arg;
    struct task_call *lost; /* calls that failed at once: told from the loop */
    struct loop_task lost_task;
    bool lost_posted, is_closing, is_freed;
};

/* ---- tasks.c ---- */
/* A new row, which is not connected to yet. */
struct task *task_add(struct tasks *tasks, const char *name, const char *address);
/* Its connections end; a listed one is connected to anew after a while. */
void task_down(struct task *task, struct status *why);
void task_connect_soon(struct task *task); /* one that is DOWN */

/* ---- tasks_members.c ---- */
/* Does the cluster have it, be it reachable or not? */
static inline bool task_is_member(const struct task *task) {
    return task->is_registered || task->is_expected || task->state == TASK_READY;
}

#endif
