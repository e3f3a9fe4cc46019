/* Reads what a task says of itself: its name, its devices, and the links to other tasks. */
#include <stdlib.h>

#include "common/base/log.h"
#include "master/cluster/tasks_internal.h"
#include "master/compile/cost/link_table.h"
#include "proto/worker.pb-c.h"

void task_free_devices(struct task *task) {
    for (int i = 0; i < task->n_devices; i++) {
        free(task->devices[i].name);
        free(task->devices[i].type);
        free(task->devices[i].description);
    }
    free(task->devices);
    task->devices = NULL;
    task->n_devices = 0;
    for (int i = 0; i < task->n_failed; i++) {
        free(task->failed[i].name);
        free(task->failed[i].why);
    }
    free(task->failed);
    task->failed = NULL;
    task->n_failed = 0;
}

/* Checks that the process at the address may be the task, and notes its own name. */
static struct status *check_name(struct task *task, const char *stated) {
    const char *expected = task->tasks->is_of_session ? task->own_name : task->name;
    struct device_name name;
    if (expected && strcmp(stated, expected) != 0)
        return status_failed_precondition("%s answered as %.200s: is the list of the cluster "
                                          "correct?",
                                          task->address, stated);
    if (expected)
        return NULL;
    TRY(status_prefix_take(device_name_parse(span_of(stated), &name),
                           "%s answered as: ", task->address));
    TRY(wire_conn_check_task(task->probe, stated));
    task->own_name = xstrdup(stated);
    return NULL;
}

/* A device's name with the session's name of its task. NULL: it is no device of the task. */
static char *session_device(const struct task *task, const char *device) {
    size_t n = strlen(task->own_name);
    struct str out = STR_INIT;
    if (strncmp(device, task->own_name, n) != 0 || device[n] != '/')
        return NULL;
    str_addf(&out, "%s%s", task->name, device + n);
    return str_detach(&out);
}

/* How slow a device is by what its task says of it. A task that says nothing counts as one that is
 * as fast as the cost rows. */
static struct device_slowness slowness_of(const Millrace__DeviceInfo *device) {
    struct device_rates rates = {0};
    if (device->rates)
        rates = (struct device_rates){.flops_per_second = device->rates->flops_per_second,
                                      .bytes_per_second = device->rates->bytes_per_second,
                                      .dispatch_ns = device->rates->dispatch_ns};
    return device_slowness_of(device->type, &rates);
}

static void take_devices(struct task *task, const Millrace__WorkerStatus *status) {
    task_free_devices(task);
    task->devices = xcalloc(status->n_device + 1, sizeof *task->devices);
    for (size_t i = 0; i < status->n_device; i++) {
        const Millrace__DeviceInfo *from = status->device[i];
        char *name = task->own_name ? session_device(task, from->name) : xstrdup(from->name);
        if (name)
            task->devices[task->n_devices++] =
                (struct device_row){name,
                                    xstrdup(from->type),
                                    xstrdup(from->description),
                                    (int64_t)from->memory_limit_bytes,
                                    from->incarnation,
                                    slowness_of(from),
                                    (int)MIN(from->lanes, DEVICE_MAX_LANES)};
    }
}

static void take_failed(struct task *task, const Millrace__WorkerStatus *status) {
    task->failed = xcalloc(status->n_failed_device + 1, sizeof *task->failed);
    for (size_t i = 0; i < status->n_failed_device; i++) {
        const Millrace__FailedDevice *from = status->failed_device[i];
        char *name = task->own_name ? session_device(task, from->name) : xstrdup(from->name);
        if (name)
            task->failed[task->n_failed++] = (struct failed_row){name, xstrdup(from->why)};
    }
}

struct status *task_take_status(struct task *task, struct span meta) {
    Millrace__WorkerStatus *status =
        millrace__worker_status__unpack(NULL, meta.len, (const uint8_t *)meta.data);
    if (!status)
        return status_internal("task %s sent a malformed WorkerStatus", task->name);
    struct status *st = check_name(task, status->task);
    if (!st) {
        free(task->unix_address);
        free(task->host_id);
        task->unix_address = xstrdup(status->unix_address);
        task->host_id = xstrdup(status->host_id);
        task->is_leaving &= task->incarnation == status->incarnation; /* another process is new */
        task->revision = status->revision;
        task->incarnation = status->incarnation;
        task->membership = status->membership;
        take_devices(task, status);
        take_failed(task, status);
    }
    millrace__worker_status__free_unpacked(status, NULL);
    return st;
}

/* Only the names of tasks count, so the table of links is not larger than the cluster. A reply of
 * megabytes would hold up the loop. */
void task_take_links(struct task *task, struct span reply) {
    struct tasks *tasks = task->tasks;
    struct link_report report;
    if (reply.len > LINK_REPLY_MAX_BYTES)
        return;
    while (link_report_next(&reply, &report))
        for (int i = 0; i < tasks->n; i++)
            if (span_is(report.task, tasks->rows[i]->name))
                link_table_note(tasks->links, task->name, &report);
}

/* A device of the task has failed. Sessions that are opened from now on do without it. */
void task_take_changed_devices(struct task *task, struct span meta) {
    struct status *st = task_take_status(task, meta);
    if (st) {
        task_down(task, st);
    } else {
        device_table_unref(task->tasks->devices);
        task->tasks->devices = NULL;
        log_event(EVENT_DEVICE_FAILED, "a device of %s has failed: %d are left", task->name,
                  task->n_devices);
    }
    status_unref(st);
}
