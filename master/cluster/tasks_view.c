/* Answers queries about the tasks: which are ready or missing, their devices, and their rows on
 * /statusz. */
#include "common/base/map.h"
#include "common/base/str.h"
#include "master/cluster/tasks_internal.h"

int tasks_count(const struct tasks *tasks) { return tasks->n; }
struct task *tasks_at(struct tasks *tasks, int index) {
    return tasks->rows[index];
}

struct task *tasks_find(struct tasks *tasks, const char *name) {
    for (int i = 0; i < tasks->n; i++)
        if (strcmp(tasks->rows[i]->name, name) == 0)
            return tasks->rows[i];
    return NULL;
}

/* Does the session need the task although it is not READY? */
static bool is_missing(const struct task *task, const struct session_config *config) {
    return task->state != TASK_READY && task_is_member(task) &&
           session_config_has_task(config, task->name);
}

static bool has_members(const struct tasks *tasks) {
    for (int i = 0; i < tasks->n; i++)
        if (task_is_member(tasks->rows[i]))
            return true;
    return !tasks->is_dynamic && tasks->n == 0;
}

static bool has_drained(const struct tasks *tasks) {
    for (int i = 0; i < tasks->n; i++)
        if (tasks->rows[i]->is_leaving)
            return true;
    return false;
}

bool tasks_all_ready(const struct tasks *tasks, const struct session_config *config) {
    for (int i = 0; i < tasks->n; i++)
        if (is_missing(tasks->rows[i], config))
            return false;
    return has_members(tasks);
}

static bool is_first_attempt(const struct task *task) {
    return task->state != TASK_READY && !task->why_down && task->is_registered &&
           task_is_member(task);
}

bool tasks_all_tried(const struct tasks *tasks) {
    for (int i = 0; i < tasks->n; i++)
        if (is_first_attempt(tasks->rows[i]))
            return false;
    return true;
}

void tasks_describe_missing(const struct tasks *tasks, const struct session_config *config,
                            struct str *out) {
    for (int i = 0; i < tasks->n; i++) {
        const struct task *task = tasks->rows[i];
        if (!is_missing(task, config))
            continue;
        str_addf(out, "%s%s%s%s (%s)", out->len ? ", " : "", task->name,
                 *task->address ? " at " : "", task->address,
                 !task->is_registered ? "not registered"
                 : task->why_down     ? status_message(task->why_down)
                                      : "no answer yet");
        task_health_describe_seen(&task->health, out);
    }
    if (!has_members(tasks))
        str_add(out, has_drained(tasks) ? "every task has been drained or has left"
                                        : "no task has registered");
}

/* The incarnation is that of the status, which a process tells under any name. */
static bool is_one_process(const struct task *a, const struct task *b) {
    return a->incarnation != 0 && a->incarnation == b->incarnation;
}

struct status *tasks_check_distinct(const struct tasks *tasks) {
    for (int i = 0; i < tasks->n; i++)
        for (int k = 0; k < i; k++)
            if (is_one_process(tasks->rows[i], tasks->rows[k]))
                return status_invalid("ConfigProto.cluster_def: %s at %s and %s at %s are the same "
                                      "process",
                                      tasks->rows[k]->name, tasks->rows[k]->address,
                                      tasks->rows[i]->name, tasks->rows[i]->address);
    return NULL;
}

/* A worker runs nodes of any CPU device number. The additional devices differ only by name and
 * incarnation. */
static void add_further_cpus(struct device_table *table, const struct task *task, int wanted) {
    const struct device_row *first = NULL;
    int n = 0;
    for (int k = 0; k < task->n_devices; k++)
        if (strcmp(task->devices[k].type, "CPU") == 0 && n++ == 0)
            first = &task->devices[k];
    for (; first && n < wanted; n++) {
        struct str name = STR_INIT;
        str_addf(&name, "%s/device:CPU:%d", task->name, n);
        if (device_table_add_device(table, str_text(&name), "CPU", first->memory_limit_bytes,
                                    first->incarnation + (uint64_t)n, first->description))
            device_table_set_speed(table, &first->slowness, first->n_lanes);
        str_fini(&name);
    }
}

static struct device_table *make_table(const struct tasks *tasks,
                                       const struct session_config *config) {
    struct device_table *table = device_table_new();
    for (int i = 0; i < tasks->n; i++) {
        const struct task *task = tasks->rows[i];
        if (task->state != TASK_READY || task->is_leaving ||
            !session_config_has_task(config, task->name))
            continue;
        device_table_add(table, task->name, task->address, task->unix_address, task->incarnation);
        for (int k = 0; k < task->n_devices; k++)
            if (device_table_add_device(table, task->devices[k].name, task->devices[k].type,
                                        task->devices[k].memory_limit_bytes,
                                        task->devices[k].incarnation, task->devices[k].description))
                device_table_set_speed(table, &task->devices[k].slowness, task->devices[k].n_lanes);
        for (int k = 0; k < task->n_failed; k++)
            device_table_add_failed(table, task->failed[k].name, task->failed[k].why);
        if (config)
            add_further_cpus(table, task, config->cpu_devices);
    }
    device_table_finish(table);
    if (config && config->default_task)
        device_table_set_default(table, config->default_task);
    return table;
}

struct device_table *tasks_devices(struct tasks *tasks) {
    if (!tasks->devices)
        tasks->devices = make_table(tasks, NULL);
    return device_table_ref(tasks->devices);
}

struct device_table *tasks_session_devices(struct tasks *tasks,
                                           const struct session_config *config) {
    bool is_plain = config->n_filters == 0 && config->cpu_devices <= 1 && !config->default_task;
    return is_plain ? tasks_devices(tasks) : make_table(tasks, config);
}

struct link_table *tasks_links(struct tasks *tasks) {
    return tasks->links;
}

/* A task that was drained on purpose is "draining" while its steps end, then "drained", or "lost"
 * if its process ended without a word. */
static const char *state_name(const struct task *task) {
    static const char *const states[] = {"down", "probing", "linking", "ready"};
    if (task->is_leaving)
        return task->state == TASK_READY         ? "draining"
               : task->last_end == TASK_END_LEFT ? "drained"
                                                 : "lost";
    return task_is_member(task) ? states[task->state] : "gone";
}

static void describe_failed(const struct task *task, struct str *out) {
    str_add(out, "\"failed_devices\": [");
    for (int i = 0; i < task->n_failed; i++) {
        str_add(out, i ? ", {\"device\": \"" : "{\"device\": \"");
        str_add_json_escaped(out, task->failed[i].name, strlen(task->failed[i].name));
        str_add(out, "\", \"why\": \"");
        str_add_json_escaped(out, task->failed[i].why, strlen(task->failed[i].why));
        str_add(out, "\"}");
    }
    str_add(out, "], ");
}

void tasks_describe(struct tasks *tasks, int max_rows, struct str *out) {
    static const char *const ends[] = {"", "left", "lost"}; /* by enum task_end */
    str_add_char(out, '[');
    for (int i = 0; i < MIN(tasks->n, max_rows); i++) {
        const struct task *task = tasks->rows[i];
        str_addf(out,
                 "%s{\"task\": \"%s\", \"address\": \"%s\", \"state\": \"%s\", \"last_end\": "
                 "\"%s\", \"incarnation\": \"%016llx\", \"transport\": \"%s\", "
                 "\"own_task\": \"",
                 i ? ", " : "", task->name, task->address, state_name(task), ends[task->last_end],
                 (unsigned long long)task->incarnation,
                 task->control ? wire_conn_peer(task->control) : "");
        if (task->own_name) /* a stranger's text */
            str_add_json_escaped(out, task->own_name, strlen(task->own_name));
        str_add(out, "\", \"why\": \"");
        const char *why = task->why_down ? status_message(task->why_down) : "";
        str_add_json_escaped(out, why, strlen(why));
        str_addf(out,
                 "\", \"calls\": %zu, \"devices\": %d, \"checksum\": {\"control\": \"%s\", "
                 "\"bulk\": \"%s\"}, ",
                 task->calls.n_entries, task->n_devices,
                 task->control ? wire_conn_checksums(task->control) : "no",
                 task->bulk ? wire_conn_checksums(task->bulk) : "no");
        describe_failed(task, out);
        task_health_describe(&task->health, out);
        str_add_char(out, '}');
    }
    if (tasks->n > max_rows)
        str_addf(out, ", {\"more\": %d}", tasks->n - max_rows);
    str_add_char(out, ']');
}

int task_index(const struct task *task) { return task->index; }
const char *task_name(const struct task *task) { return task->name; }
enum task_state task_state(const struct task *task) { return (enum task_state)task->state; }
uint64_t task_incarnation(const struct task *task) { return task->incarnation; }
uint64_t task_devices_incarnation(const struct task *task) {
    uint64_t sum = 0;
    for (int i = 0; i < task->n_devices; i++)
        if (strcmp(task->devices[i].type, "CPU") != 0)
            sum += task->devices[i].incarnation;
    return sum | 1;
}
uint64_t task_membership(const struct task *task) { return task->membership; }
uint32_t task_revision(const struct task *task) { return task->revision; }
int64_t task_clock_ahead_us(const struct task *task) {
    return heartbeat_offset_us(&task->health.heartbeat);
}
const char *task_address(const struct task *task) { return task->address; }
const char *task_unix_address(const struct task *task) { return task->unix_address; }
const char *task_own_name(const struct task *task) { return task->own_name; }
const struct tasks *task_table(const struct task *task) { return task->tasks; }
const char *task_host_id(const struct task *task) { return task->host_id; }

const bool *tasks_find_away(const struct tasks *tasks, const struct device_table *devices,
                            struct arena *arena) {
    struct strmap names; /* mostly empty, so that a thousand tasks are looked up fast */
    bool *is_away = NULL;
    strmap_init(&names);
    for (int i = 0; i < tasks->n; i++)
        if (task_state(tasks->rows[i]) != TASK_READY)
            strmap_put(&names, tasks->rows[i]->name, tasks->rows[i]);
    if (names.n_entries > 0) {
        is_away = arena_array(arena, bool, devices->n_tasks + 1);
        for (int i = 0; i < devices->n_tasks; i++)
            is_away[i] = strmap_get(&names, devices->tasks[i].name) != NULL;
    }
    strmap_fini(&names);
    return is_away;
}
