/* A device table: the tasks of a cluster, their devices and incarnations at one moment.
 *
 * A table does not change once it is built, and is counted. A session keeps the table that its
 * graph was placed with. When a task restarts, a new table is made. Any thread. */
#ifndef MILLRACE_MASTER_COMPILE_DEVICE_TABLE_H
#define MILLRACE_MASTER_COMPILE_DEVICE_TABLE_H

#include <stdatomic.h>

#include "common/graph/device_name.h"
#include "kernels/rates.h"

enum { DEVICE_MAX_LANES = 4096 };

struct device_info {
    struct device_name name;
    const char *full_name; /* "/job:worker/replica:0/task:0/device:CPU:0" */
    const char *type;
    int task; /* index into tasks */
    int64_t memory_limit_bytes;
    uint64_t incarnation;
    const char *description;
    struct device_slowness slowness; /* 1 as far as is known */
    int n_lanes;                     /* kernels that it can run at once; at least 1 */
};

/* A device that its task does without. Nothing is placed on it. */
struct failed_device {
    struct device_name name;
    const char *full_name, *why;
};

struct task_info {
    const char *name; /* "/job:worker/replica:0/task:0" */
    const char *job;
    int index;            /* of the task in its job */
    uint64_t incarnation; /* 0 while unknown */
    const char *address, *unix_address;
    int first_device, n_devices;
};

struct device_table {
    _Atomic uint32_t n_refs;
    struct task_info *tasks; /* jobs in name order with "ps" last, then by index */
    int n_tasks;
    struct device_info *devices; /* grouped by task; CPU:0 first */
    int n_devices;
    struct failed_device *failed;
    int n_failed;
    /* CPU:0 of the session's default task: job "worker" task 0, else the first job that is not
     * "ps" */
    int default_device;
    struct arena *arena;
};

/* To build a table, add each task and then its devices, and finish. Strings are copied. */
struct device_table *device_table_new(void);
void device_table_add(struct device_table *table, const char *task, const char *address,
                      const char *unix_address, uint64_t incarnation);
/* Adds a device of the task that was added last. False: it is left out, because its name is no full
 * name of a task's device. */
bool device_table_add_device(struct device_table *table, const char *full_name, const char *type,
                             int64_t memory_limit_bytes, uint64_t incarnation,
                             const char *description);
/* Of the last device. n_lanes < 1: not known, which counts as 1. */
void device_table_set_speed(struct device_table *table, const struct device_slowness *slowness,
                            int n_lanes);
/* Adds a device that has failed, for messages. An invalid name is left out. */
void device_table_add_failed(struct device_table *table, const char *full_name, const char *why);
/* Sorts the tasks and chooses the default device. */
void device_table_finish(struct device_table *table);
/* Makes the first device of that task the default, if it has a device. Call it after
 * device_table_finish and before others see the table. */
void device_table_set_default(struct device_table *table, const char *task);
struct device_table *device_table_ref(struct device_table *table);
void device_table_unref(struct device_table *table);

#endif
