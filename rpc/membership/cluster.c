/* Parses a list of tasks from --cluster or TF_CONFIG and checks it. */
#include "rpc/membership/cluster.h"

#include <jansson.h>
#include <stdlib.h>

#include "rpc/listen.h"

enum { MAX_TASKS = 100000, MAX_JOB_BYTES = 63 };

void cluster_spec_init(struct cluster_spec *spec) {
    memset(spec, 0, sizeof(*spec));
    arena_init(&spec->arena);
}

void cluster_spec_fini(struct cluster_spec *spec) {
    if (!spec)
        return;
    free(spec->tasks);
    arena_fini(&spec->arena);
    memset(spec, 0, sizeof(*spec));
}

/* ---- adding ---- */

static bool is_job_name(struct span name) {
    if (name.len == 0 || name.len > MAX_JOB_BYTES)
        return false;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_letter && (i == 0 || !((c >= '0' && c <= '9') || c == '_')))
            return false;
    }
    return true;
}

static struct status *not_a_job_name(struct span job) {
    return status_invalid(
        "\"%.*s\" is not a job name: a letter, then letters, digits and _, at most %d",
        (int)MIN(job.len, (size_t)80), job.data, MAX_JOB_BYTES);
}

static struct status *check_job(const struct cluster_spec *spec, struct span job) {
    if (!is_job_name(job))
        return not_a_job_name(job);
    for (int i = 0; i < spec->n_tasks; i++)
        if (span_is(job, spec->tasks[i].job))
            return status_invalid("job %s is listed twice", spec->tasks[i].job);
    return NULL;
}

static struct status *check_address(const struct cluster_spec *spec, const char *job, int index,
                                    const char *address) {
    struct net_address parsed;
    for (const char *c = address; *c; c++)
        if (strchr(",;", *c) || (unsigned char)*c <= ' ')
            return status_invalid("task %d of job %s: an address cannot hold '%c'", index, job, *c);
    struct status *st = net_address_parse(address, &parsed);
    if (st)
        return status_prefix_take(st, "task %d of job %s: ", index, job);
    if (parsed.is_local)
        return status_invalid("task %d of job %s: only its own process can dial \"%s\"", index, job,
                              address);
    if (!parsed.is_unix && (parsed.port == 0 || parsed.host[0] == '\0'))
        return status_invalid(
            "task %d of job %s: \"%s\" has no host or port that others could connect to", index,
            job, address);
    for (int i = 0; i < spec->n_tasks; i++)
        if (strcmp(spec->tasks[i].address, address) == 0)
            return status_invalid("%s is the address of two tasks, %s and task %d of job %s",
                                  address, spec->tasks[i].name, index, job);
    return NULL;
}

static struct status *append_task(struct cluster_spec *spec, struct cluster_task task) {
    if (spec->n_tasks >= MAX_TASKS)
        return status_invalid("more than %d tasks", MAX_TASKS);
    task.name = arena_printf(&spec->arena, "/job:%s/replica:0/task:%d", task.job, task.index);
    if ((spec->n_tasks & (spec->n_tasks - 1)) == 0) /* a power of two: the array is full */
        spec->tasks = xreallocarray(spec->tasks, spec->n_tasks ? (size_t)spec->n_tasks * 2 : 1,
                                    sizeof(*spec->tasks));
    spec->tasks[spec->n_tasks++] = task;
    return NULL;
}

static struct status *add_task(struct cluster_spec *spec, const char *job, int index,
                               struct span address) {
    struct cluster_task task = {.job = job,
                                .index = index,
                                .address = arena_strndup(&spec->arena, address.data, address.len)};
    TRY(check_address(spec, job, index, task.address));
    return append_task(spec, task);
}

static int task_order(const void *a, const void *b) {
    const struct cluster_task *x = a, *y = b;
    int by_job = strcmp(x->job, y->job);
    return by_job ? by_job : (x->index > y->index) - (x->index < y->index);
}

static struct status *finish(struct cluster_spec *made, struct status *st,
                             struct cluster_spec *spec) {
    if (!st && made->n_tasks == 0)
        st = status_invalid("a cluster without tasks");
    if (st) {
        cluster_spec_fini(made);
        return st;
    }
    qsort(made->tasks, (size_t)made->n_tasks, sizeof(*made->tasks), task_order);
    cluster_spec_fini(spec);
    *spec = *made;
    return NULL;
}

/* ---- "ps=host:2400,worker=host:2300;host2:2300" ---- */

static struct span trim(struct span text) {
    while (text.len > 0 && strchr(" \t\r\n", text.data[0])) {
        text.data++;
        text.len--;
    }
    while (text.len > 0 && strchr(" \t\r\n", text.data[text.len - 1]))
        text.len--;
    return text;
}

/* Returns the part before `end`, or everything; moves `rest` past it. */
static struct span cut(struct span *rest, char end) {
    const char *at = rest->len > 0 ? memchr(rest->data, end, rest->len) : NULL;
    size_t len = at ? (size_t)(at - rest->data) : rest->len;
    struct span part = {rest->data, len};
    rest->data += len + (at != NULL);
    rest->len -= len + (at != NULL);
    return trim(part);
}

/* "worker=host:2300;host2:2300". As in TensorFlow's own server, '|' may replace '='. */
static struct status *parse_job(struct cluster_spec *spec, struct span text) {
    size_t n = 0;
    while (n < text.len && text.data[n] != '=' && text.data[n] != '|')
        n++;
    if (n == text.len)
        return status_invalid("\"%.*s\" is not job=address;address", (int)MIN(text.len, (size_t)80),
                              text.data);
    struct span name = trim((struct span){text.data, n});
    struct span rest = {text.data + n + 1, text.len - n - 1};
    TRY(check_job(spec, name));
    const char *job = arena_strndup(&spec->arena, name.data, name.len);
    int index = 0;
    do {
        struct span address = cut(&rest, ';');
        if (address.len == 0)
            return status_invalid("job %s: the address of task %d is empty", job, index);
        TRY(add_task(spec, job, index++, address));
    } while (rest.len > 0);
    return NULL;
}

struct status *cluster_spec_parse(const char *text, struct cluster_spec *spec) {
    struct cluster_spec made;
    struct status *st = NULL;
    struct span rest = trim(span_of(text));
    cluster_spec_init(&made);
    while (!st && rest.len > 0)
        st = parse_job(&made, cut(&rest, ','));
    if (st)
        st = status_prefix_take(st, "cluster: ");
    return finish(&made, st, spec);
}

/* ---- TF_CONFIG ---- */

static struct status *parse_json_job(struct cluster_spec *spec, const char *name,
                                     const json_t *addresses) {
    TRY(check_job(spec, span_of(name)));
    const char *job = arena_strdup(&spec->arena, name);
    if (!json_is_array(addresses))
        return status_invalid("TF_CONFIG: job %s is not a list of addresses", job);
    for (size_t i = 0; i < json_array_size(addresses); i++) {
        const json_t *address = json_array_get(addresses, i);
        if (!json_is_string(address))
            return status_invalid("TF_CONFIG: address %zu of job %s is not a string", i, job);
        TRY(add_task(spec, job, (int)i, span_of(json_string_value(address))));
    }
    return NULL;
}

static struct status *parse_json_task(struct cluster_spec *spec, const json_t *task,
                                      const char **ret_job, int *ret_index) {
    const json_t *type = json_object_get(task, "type"), *index = json_object_get(task, "index");
    *ret_job = NULL;
    *ret_index = -1;
    if (!task)
        return NULL;
    if (!json_is_object(task) || (type && !json_is_string(type)))
        return status_invalid("TF_CONFIG: \"task\" is not {\"type\": job, \"index\": number}");
    if (type)
        *ret_job = arena_strdup(&spec->arena, json_string_value(type));
    if (index && json_is_integer(index))
        *ret_index = (int)MIN(MAX(json_integer_value(index), -1), (json_int_t)MAX_TASKS);
    else if (index && json_is_string(index) && json_string_length(index) > 0 &&
             strspn(json_string_value(index), "0123456789") == json_string_length(index))
        *ret_index = (int)MIN(strtol(json_string_value(index), NULL, 10), (long)MAX_TASKS);
    else if (index)
        return status_invalid("TF_CONFIG: the task's index is not a number");
    return NULL;
}

static struct status *parse_json(struct cluster_spec *spec, const json_t *root,
                                 const char **ret_job, int *ret_index) {
    const json_t *cluster = json_object_get(root, "cluster");
    if (!json_is_object(cluster))
        return status_invalid("TF_CONFIG has no \"cluster\" object");
    const char *name;
    json_t *addresses;
    json_object_foreach((json_t *)(uintptr_t)cluster, name, addresses)
        TRY(parse_json_job(spec, name, addresses));
    return parse_json_task(spec, json_object_get(root, "task"), ret_job, ret_index);
}

struct status *cluster_spec_parse_tf_config(const char *json, struct cluster_spec *spec,
                                            const char **ret_job, int *ret_index) {
    json_error_t error;
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return status_invalid("TF_CONFIG is not JSON: line %d, column %d: %s", error.line,
                              error.column, error.text);
    struct cluster_spec made;
    const char *job = NULL;
    int index = -1;
    cluster_spec_init(&made);
    struct status *st = finish(&made, parse_json(&made, root, &job, &index), spec);
    json_decref(root);
    if (st)
        return st;
    *ret_job = job;
    *ret_index = index;
    return NULL;
}

struct status *cluster_spec_add(struct cluster_spec *spec, struct span job, int index,
                                struct span address) {
    if (!is_job_name(job))
        return not_a_job_name(job);
    const char *name = arena_strndup(&spec->arena, job.data, job.len);
    if (index < 0 || index >= MAX_TASKS)
        return status_invalid("%d is not the number of a task of job %s", index, name);
    for (int i = 0; i < spec->n_tasks; i++)
        if (spec->tasks[i].index == index && strcmp(spec->tasks[i].job, name) == 0)
            return status_invalid("task %d of job %s is listed twice", index, name);
    if (memchr(address.data, '\0', address.len))
        return status_invalid("task %d of job %s: an address with a NUL byte", index, name);
    return add_task(spec, name, index, address);
}

struct status *cluster_spec_add_local(struct cluster_spec *spec, const char *job,
                                      const char *address) {
    return append_task(spec, (struct cluster_task){.job = arena_strdup(&spec->arena, job),
                                                   .address = arena_strdup(&spec->arena, address)});
}

void cluster_spec_print(const struct cluster_spec *spec, struct str *out) {
    for (int i = 0; i < spec->n_tasks; i++) {
        const struct cluster_task *task = &spec->tasks[i];
        bool is_new_job = i == 0 || strcmp(task->job, spec->tasks[i - 1].job) != 0;
        if (is_new_job)
            str_addf(out, "%s%s=%s", i > 0 ? "," : "", task->job, task->address);
        else
            str_addf(out, ";%s", task->address);
    }
}
