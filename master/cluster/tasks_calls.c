/* Sends calls and messages to the worker tasks, and ends the calls of a task that is lost. */
#include "master/cluster/tasks.h"

#include "master/cluster/tasks_internal.h"

enum { BULK_BYTES = 64 * 1024 };

uint64_t tasks_new_id(struct tasks *tasks) {
    return tasks->id_prefix | (++tasks->next_sequence & 0xffffffffff);
}

/* UNAVAILABLE with the task's name, its last error and when it was last heard of. */
static struct status *task_unavailable(const struct task *task) {
    struct str seen = STR_INIT;
    task_health_describe_seen(&task->health, &seen);
    struct status *st = status_unavailable(
        "Task %s at %s is not reachable: %s%s", task->name, task->address,
        task->why_down ? status_message(task->why_down) : "not connected yet", str_text(&seen));
    str_fini(&seen);
    return st;
}

void tasks_report_lost_calls(struct loop_task *loop_task) {
    struct tasks *tasks = CONTAINER_OF(loop_task, struct tasks, lost_task);
    tasks->lost_posted = false;
    while (tasks->lost) {
        struct task_call *call = tasks->lost;
        tasks->lost = call->next_lost;
        struct task *task = call->task;
        call->task = NULL;
        struct status *why = call->refused ? call->refused : task_unavailable(task);
        call->refused = NULL;
        call->on_reply(call, why, NULL);
    }
    tasks_free_when_quiet(tasks);
}

static void queue_lost_call(struct task *task, struct task_call *call) {
    struct tasks *tasks = task->tasks;
    call->next_lost = tasks->lost;
    tasks->lost = call;
    if (!tasks->lost_posted) {
        tasks->lost_posted = true;
        loop_defer(tasks->loop, &tasks->lost_task);
    }
}

static struct wire_conn *channel_for(struct task *task, const struct wire_out *out) {
    size_t size = out->extra.len;
    for (size_t i = 0; i < out->n_tensors; i++)
        size += tensor_size_bytes(out->tensors[i]);
    return size > BULK_BYTES ? task->bulk : task->control;
}

void task_call_start(struct task *task, struct task_call *call, struct wire_out *out) {
    if (!out->id)
        out->id = tasks_new_id(task->tasks);
    call->task = task;
    call->id = out->id;
    call->refused = wire_check_meta(out->type, out->meta.len);
    if (task->state != TASK_READY || call->refused) {
        queue_lost_call(task, call);
        return;
    }
    u64map_put(&task->calls, call->id, call);
    wire_send(channel_for(task, out), out);
}

void task_call_refuse(struct task *task, struct task_call *call, struct status *why_take) {
    call->task = task;
    call->refused = why_take;
    queue_lost_call(task, call);
}

void task_call_forget(struct task_call *call) {
    if (!call->task)
        return;
    struct tasks *tasks = call->task->tasks;
    u64map_remove(&call->task->calls, call->id);
    for (struct task_call **at = &tasks->lost; *at; at = &(*at)->next_lost)
        if (*at == call) {
            *at = call->next_lost;
            break;
        }
    call->task = NULL;
}

void task_send(struct task *task, const struct wire_out *out) {
    if (task->state == TASK_READY)
        wire_send(channel_for(task, out), out);
}

void task_send_in_order(struct task *task, const struct wire_out *out) {
    if (task->state == TASK_READY)
        wire_send(task->control, out);
}

void task_send_release(struct task *task, const struct wire_out *out) {
    if (task->state == TASK_LINKING || task->state == TASK_READY)
        wire_send(task->control, out);
    else if (task->state == TASK_PROBING && task->is_reconciling)
        wire_send(task->probe, out);
}

void task_fail_calls(struct task *task) {
    struct u64map calls = task->calls;
    size_t cursor = 0;
    uint64_t id;
    void *value;
    u64map_init(&task->calls);
    while (u64map_next(&calls, &cursor, &id, &value)) {
        struct task_call *call = value;
        queue_lost_call(task, call);
    }
    u64map_fini(&calls);
}
