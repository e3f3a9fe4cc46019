/* Registers, expects and deregisters tasks while the master runs. */
#include <stdlib.h>

#include "common/base/log.h"
#include "master/cluster/tasks_internal.h"

void tasks_set_dynamic(struct tasks *tasks) { tasks->is_dynamic = true; }

void tasks_expect(struct tasks *tasks, const char *name) {
    struct task *task = tasks_find(tasks, name);
    if (!task)
        task = task_add(tasks, name, "");
    task->is_expected = true;
}

/* The task has another address or incarnation, so its connections lead to an ended process. */
static void move(struct task *task, const char *address, uint64_t incarnation) {
    struct status *why =
        status_unavailable("it has registered again, at %s with incarnation %016llx", address,
                           (unsigned long long)incarnation);
    free(task->address);
    task->address = xstrdup(address);
    task->avoid_unix = false;
    task_down(task, why);
    status_unref(why);
    task_connect_soon(task);
}

void tasks_register(struct tasks *tasks, const char *name, const char *address,
                    uint64_t incarnation) {
    struct task *task = tasks_find(tasks, name);
    if (!task)
        task = task_add(tasks, name, address);
    bool was_registered = task->is_registered;
    bool is_moved = strcmp(task->address, address) != 0;
    /* An entry that is older than our connection changes nothing. */
    bool is_known = task->incarnation == incarnation ||
                    (!is_moved && task->registered_incarnation == incarnation);
    task->is_registered = true;
    task->registered_incarnation = incarnation;
    if (!was_registered || is_moved)
        log_event(EVENT_TASK_REGISTERED, "task %s is registered at %s", name, address);
    /* the same process: other processes may reach it elsewhere from now on */
    if (task->state == TASK_READY && is_known) {
        free(task->address);
        task->address = xstrdup(address);
        return;
    }
    if (task->state == TASK_DOWN && !is_moved)
        task_connect_soon(task);
    else if (is_moved || task->state == TASK_READY)
        move(task, address, incarnation);
}

void tasks_deregister(struct tasks *tasks, const char *name) {
    struct task *task = tasks_find(tasks, name);
    if (!task || !task->is_registered || task->is_static)
        return;
    task->is_registered = false;
    if (task->state == TASK_READY)
        return; /* etcd may have lost the task's key, while the task still works */
    struct status *why = status_unavailable("it has left the cluster");
    task_down(task, why);
    status_unref(why);
}

void task_send_drain(struct task *task) {
    task_send_in_order(task, &(struct wire_out){.type = WIRE_DRAIN});
}

struct status *task_drain(struct task *task) {
    struct tasks *tasks = task->tasks;
    if (task->is_leaving) {
        task_send_drain(task);
        return NULL;
    }
    if (task->state != TASK_READY)
        return status_failed_precondition("task %s is not connected", task->name);
    if (task->revision < 1)
        return status_new(STATUS_UNIMPLEMENTED,
                          "task %s runs an older program, which cannot be told to drain: stop it "
                          "with TERM",
                          task->name);
    task->is_leaving = true;
    device_table_unref(tasks->devices);
    tasks->devices = NULL;
    task_send_drain(task);
    return NULL;
}

bool task_is_gone(const struct task *task) { return !task_is_member(task); }
