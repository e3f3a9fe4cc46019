/* What the files of the table of tasks share: tasks.c (connections), tasks_calls.c, tasks_status.c
 * (what tasks say of themselves), tasks_members.c (tasks that come and go) and tasks_view.c
 * (queries). Loop thread. */
#ifndef MILLRACE_MASTER_CLUSTER_TASKS_INTERNAL_H
#define MILLRACE_MASTER_CLUSTER_TASKS_INTERNAL_H

#include "common/base/map.h"
#include "master/cluster/task_health.h"
#include "master/cluster/tasks.h"

/* A task whose process ends without a word is lost, even if it was draining. */
enum task_end { TASK_END_NONE, TASK_END_LEFT, TASK_END_LOST };

struct task {
    struct tasks *tasks;
    int index;
    char *name;
    char *address;  /* "" if it is expected and has not registered */
    char *own_name; /* of a session's cluster: in its own cluster; NULL: not known yet */
    uint8_t state;  /* enum task_state */
    struct wire_conn *probe, *control, *bulk;
    uint64_t n_received; /* over control and bulk, as the last tick saw it */
    int n_linked;        /* how many of control and bulk have greeted */
    char *unix_address, *host_id;
    bool is_draining; /* it has said that it was told to stop */
    bool has_left;    /* it has said that it ends its connections */
    uint8_t last_end; /* enum task_end, of its last process that was READY */
    /* an operator drains it: nothing new is placed on it, and nobody waits for it, until another
     * process of its name has connected */
    bool is_leaving;
    uint32_t revision;   /* WIRE_REVISION of its program */
    bool is_reconciling; /* PROBING: KeepGraphs has been sent */
    /* connecting to its Unix socket has failed, for example from another network namespace */
    bool avoid_unix;
    uint64_t incarnation, membership;
    struct device_row {
        char *name, *type, *description;
        int64_t memory_limit_bytes;
        uint64_t incarnation;
        struct device_slowness slowness;
        int n_lanes;
    } * devices;
    int n_devices;
    struct failed_row { /* what the task does without */
        char *name, *why;
    } * failed;
    int n_failed;
    struct u64map calls;     /* id → struct task_call */
    struct loop_timer timer; /* DOWN: to connect; PROBING, LINKING: to give up connecting */
    int64_t backoff_ms;
    struct task_health health;
    struct status *why_down;
    uint64_t registered_incarnation;
    bool is_static; /* it is in the list that tasks_new was given, and never leaves */
    /* the master connects to it; one that has deregistered stays while it is READY */
    bool is_registered;
    /* sessions wait for it; if it is neither expected, registered nor READY, it is gone */
    bool is_expected;
};

struct tasks {
    struct loop *loop;
    /* Rows are never removed: others point to them, and a task of that name may return. */
    struct task **rows;
    int n;
    bool is_dynamic;    /* tasks may come and go (tasks_members.c) */
    bool is_of_session; /* tasks have own names (tasks.h) */
    int64_t leaving_ns; /* since when the table is left (tasks_leave); 0: it is in use */
    uint64_t incarnation, id_prefix, next_sequence;
    int64_t heartbeat_ms;
    task_holdings_fn *holdings;
    struct tls *tls;      /* NULL: none */
    char *client_address; /* for Hello; NULL: none */
    bool uses_checksums;
    struct loop_timer tick;
    struct device_table *devices; /* NULL: to be made when it is asked for */
    struct link_table *links;
    task_event_fn *on_ready, *on_lost;
    void *arg;
    struct task_call *lost; /* failed calls whose on_reply the loop calls */
    struct loop_task lost_task;
    bool lost_posted, is_closing, is_freed;
};

/* ---- tasks.c ---- */
/* Adds a row. The task stays DOWN until task_connect_soon. */
struct task *task_add(struct tasks *tasks, const char *name, const char *address);
/* Closes the task's connections. The master connects to a registered one again after a while. */
void task_down(struct task *task, struct status *why);
/* Connects to a task that is DOWN, from the loop. */
void task_connect_soon(struct task *task);
/* Frees the table where tasks_free has been called and nothing of it is under way any more. */
void tasks_free_when_quiet(struct tasks *tasks);

/* ---- tasks_calls.c ---- */
/* Every call to the task ends with UNAVAILABLE, from the loop. */
void task_fail_calls(struct task *task);
/* Of tasks->lost_task. */
void tasks_report_lost_calls(struct loop_task *loop_task);

/* ---- tasks_status.c ---- */
/* Takes a WorkerStatus. Errors: the process is not the task; the message is malformed. */
struct status *task_take_status(struct task *task, struct span meta) MUST_USE;
/* The same from a READY task, a device of which has failed. Sessions that are opened from now on do
 * without it. */
void task_take_changed_devices(struct task *task, struct span meta);
/* What the reply to a heartbeat says of the task's links. */
void task_take_links(struct task *task, struct span reply);
void task_free_devices(struct task *task);

/* ---- tasks_members.c ---- */
/* Tells a READY task to drain, again where the connection was lost on the way. One that drains
 * already ignores it. */
void task_send_drain(struct task *task);
/* Does the task belong to the cluster, whether or not it can be reached? */
static inline bool task_is_member(const struct task *task) {
    return !task->is_leaving &&
           (task->is_registered || task->is_expected || task->state == TASK_READY);
}

#endif
