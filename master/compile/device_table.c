/* The builder and the look-up of device tables (device_table.h).
 *
 * While a table is being built its two arrays live on the heap, in the order of adding;
 * device_table_finish sorts them. Strings live in the table's arena from the start. A name that
 * is malformed or not full comes from a broken worker's registration: it is logged and left out,
 * so that a table holds only names that parse. */
#include "master/compile/device_table.h"

#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/log.h"
#include "common/base/str.h"

struct device_table *device_table_new(void) {
    struct device_table *table = xcalloc(1, sizeof(*table));
    atomic_init(&table->n_refs, 1);
    table->arena = xmalloc(sizeof(*table->arena));
    arena_init(table->arena);
    table->default_device = -1;
    return table;
}

static const char *copy_text(struct device_table *table, const char *text) {
    return text ? arena_strdup(table->arena, text) : NULL;
}

void device_table_add(struct device_table *table, const char *task, const char *address,
                      const char *unix_address, uint64_t incarnation) {
    struct device_name name;
    struct status *st = device_name_parse(span_of(task), &name);
    if (st || name.job[0] == '\0' || name.task < 0) {
        log_event(EVENT_PLACEMENT_TABLE,
                  "device table: '%s' is not the name of a task and is left out", task);
        status_unref(st);
        return;
    }
    name.replica = MAX(name.replica, 0);
    struct str full = STR_INIT;
    device_name_print_task(&name, &full);
    table->tasks = xreallocarray(table->tasks, (size_t)table->n_tasks + 1, sizeof(*table->tasks));
    table->tasks[table->n_tasks++] = (struct task_info){
        .name = arena_strdup(table->arena, str_text(&full)),
        .job = arena_strdup(table->arena, name.job),
        .index = name.task,
        .incarnation = incarnation,
        .address = copy_text(table, address),
        .unix_address = copy_text(table, unix_address),
    };
    str_fini(&full);
}

bool device_table_add_device(struct device_table *table, const char *full_name, const char *type,
                             int64_t memory_limit_bytes, uint64_t incarnation,
                             const char *description) {
    struct device_name name;
    struct status *st = device_name_parse(span_of(full_name), &name);
    if (st || !device_name_is_full(&name) || table->n_tasks == 0) {
        log_event(EVENT_PLACEMENT_TABLE,
                  "device table: '%s' is not the full name of a task's device and is left out",
                  full_name);
        status_unref(st);
        return false;
    }
    struct str canonical = STR_INIT;
    device_name_print(&name, &canonical);
    table->devices =
        xreallocarray(table->devices, (size_t)table->n_devices + 1, sizeof(*table->devices));
    table->devices[table->n_devices++] = (struct device_info){
        .name = name,
        .full_name = arena_strdup(table->arena, str_text(&canonical)),
        .type = arena_strdup(table->arena, type ? type : name.type),
        .task = table->n_tasks - 1,
        .memory_limit_bytes = memory_limit_bytes,
        .incarnation = incarnation,
        .description = arena_strdup(table->arena, description ? description : ""),
        .slowness = {1, 1, 1},
        .n_lanes = 1,
    };
    str_fini(&canonical);
    return true;
}

void device_table_set_speed(struct device_table *table, const struct device_slowness *slowness,
                            int n_lanes) {
    if (table->n_devices == 0)
        return;
    table->devices[table->n_devices - 1].slowness = *slowness;
    table->devices[table->n_devices - 1].n_lanes = MIN(MAX(n_lanes, 1), DEVICE_MAX_LANES);
}

void device_table_add_failed(struct device_table *table, const char *full_name, const char *why) {
    struct device_name name;
    struct status *st = device_name_parse(span_of(full_name), &name);
    bool is_named = !st && device_name_is_full(&name);
    status_unref(st);
    if (!is_named)
        return;
    table->failed =
        xreallocarray(table->failed, (size_t)table->n_failed + 1, sizeof(*table->failed));
    table->failed[table->n_failed++] =
        (struct failed_device){.name = name,
                               .full_name = arena_strdup(table->arena, full_name),
                               .why = arena_strdup(table->arena, why)};
}

/* ---- order ---- */

static int compare_jobs(const char *a, const char *b) {
    int a_is_ps = strcmp(a, "ps") == 0, b_is_ps = strcmp(b, "ps") == 0;
    return a_is_ps != b_is_ps ? a_is_ps - b_is_ps : strcmp(a, b);
}

/* A task with its position before sorting, which its devices still refer to. */
struct task_row {
    struct task_info info;
    int added_at;
};

static int compare_tasks(const void *left, const void *right) {
    const struct task_row *a = left, *b = right;
    int order = compare_jobs(a->info.job, b->info.job);
    if (order != 0)
        return order;
    if (a->info.index != b->info.index)
        return a->info.index < b->info.index ? -1 : 1;
    return a->added_at - b->added_at;
}

static int compare_devices(const void *left, const void *right) {
    const struct device_info *a = left, *b = right;
    if (a->task != b->task)
        return a->task - b->task;
    int a_is_cpu = strcmp(a->name.type, "CPU") == 0, b_is_cpu = strcmp(b->name.type, "CPU") == 0;
    if (a_is_cpu != b_is_cpu)
        return b_is_cpu - a_is_cpu;
    int order = strcmp(a->name.type, b->name.type);
    return order != 0 ? order : a->name.id - b->name.id;
}

static void sort_tasks(struct device_table *table) {
    struct task_row *rows = xcalloc((size_t)table->n_tasks + 1, sizeof(*rows));
    int *moved_to = xcalloc((size_t)table->n_tasks + 1, sizeof(*moved_to));
    for (int i = 0; i < table->n_tasks; i++)
        rows[i] = (struct task_row){table->tasks[i], i};
    qsort(rows, (size_t)table->n_tasks, sizeof(*rows), compare_tasks);
    for (int i = 0; i < table->n_tasks; i++) {
        table->tasks[i] = rows[i].info;
        moved_to[rows[i].added_at] = i;
    }
    for (int i = 0; i < table->n_devices; i++)
        table->devices[i].task = moved_to[table->devices[i].task];
    free(rows);
    free(moved_to);
}

/* Returns the session's default device: CPU:0 of "worker" task 0, else of the first job that is not
 * "ps", else of the first task. Jobs are sorted with "ps" last, so the last two are the first task
 * that has a device. */
static int choose_default(const struct device_table *table) {
    int first = -1;
    for (int i = 0; i < table->n_tasks; i++) {
        if (table->tasks[i].n_devices == 0)
            continue;
        if (strcmp(table->tasks[i].job, "worker") == 0)
            return table->tasks[i].first_device;
        if (first < 0)
            first = table->tasks[i].first_device;
    }
    return first;
}

void device_table_finish(struct device_table *table) {
    if (table->n_tasks > 0)
        sort_tasks(table);
    if (table->n_devices > 0)
        qsort(table->devices, (size_t)table->n_devices, sizeof(*table->devices), compare_devices);
    for (int i = table->n_devices - 1; i >= 0; i--) {
        struct task_info *task = &table->tasks[table->devices[i].task];
        task->first_device = i;
        task->n_devices++;
    }
    table->default_device = choose_default(table);
}

void device_table_set_default(struct device_table *table, const char *task) {
    for (int i = 0; i < table->n_tasks; i++)
        if (strcmp(table->tasks[i].name, task) == 0 && table->tasks[i].n_devices > 0)
            table->default_device = table->tasks[i].first_device;
}

/* ---- lifetime, look-up ---- */

struct device_table *device_table_ref(struct device_table *table) {
    atomic_fetch_add_explicit(&table->n_refs, 1, memory_order_relaxed);
    return table;
}

void device_table_unref(struct device_table *table) {
    if (!table || atomic_fetch_sub_explicit(&table->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    free(table->tasks);
    free(table->devices);
    free(table->failed);
    arena_fini(table->arena);
    free(table->arena);
    free(table);
}
