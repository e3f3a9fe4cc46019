/* Makes and ends sessions, runs their jobs, and keeps their request ids. */
#include "master/session/session.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "proto/worker.pb-c.h"

enum { N_REQUEST_IDS = 8192 }; /* how many of the last request ids a session remembers */

struct session *session_new(struct master_env *env, const struct session_config *config,
                            void (*on_end)(struct session *session)) {
    struct session *session = xcalloc(1, sizeof *session);
    struct str handle = STR_INIT;
    str_addf(&handle, "%016llx%016llx", (unsigned long long)random_u64(),
             (unsigned long long)random_u64());
    session->env = env;
    session->on_end = on_end;
    session->handle = str_detach(&handle);
    session->n_refs = 1;
    session->options = env->options.compile;
    session->options.allow_soft_placement = config->allow_soft_placement;
    session->options.no_optimizations = config->no_optimizations;
    if (config->has_placement)
        session->options.placement = config->placement;
    session->options.recv_scheduling |= config->recv_scheduling;
    if (session->options.placement == PLACEMENT_SIMPLE && !session->options.recv_scheduling &&
        !env->options.measures_all)
        session->options.costs = NULL; /* nobody would read them */
    session->options.bfloat16_sends |= config->bfloat16_sends;
    session->operation_timeout_ms = config->operation_timeout_ms;
    session->is_isolated = config->is_isolated || config->cluster;
    session->log_device_placement = config->log_device_placement;
    session->build_cost_model = config->build_cost_model;
    session->build_cost_model_after = config->build_cost_model_after;
    session->devices = tasks_session_devices(env->tasks, config);
    session->created_us = clock_wall_us();
    graph_init(&session->graph);
    graph_shapes_init(&session->shapes);
    strmap_init(&session->executables);
    strmap_init(&session->partial_runs);
    u64map_init(&session->request_ids);
    list_init(&session->lru);
    list_init(&session->live_executables);
    list_init(&session->steps);
    list_init(&session->jobs);
    list_init(&session->link);
    session->known_devices = xcalloc((size_t)tasks_count(env->tasks) + 1, sizeof(uint64_t));
    session->known_incarnations = xcalloc((size_t)tasks_count(env->tasks) + 1, sizeof(uint64_t));
    return session;
}

void session_ref(struct session *session) { session->n_refs++; }

void session_unref(struct session *session) {
    if (!session || --session->n_refs > 0)
        return;
    CHECK(list_is_empty(&session->steps) && list_is_empty(&session->jobs));
    session->on_end(session);
    strmap_fini(&session->executables);
    strmap_fini(&session->partial_runs);
    u64map_fini(&session->request_ids);
    graph_shapes_fini(&session->shapes);
    graph_fini(&session->graph);
    device_table_unref(session->devices);
    free(session->request_ring);
    free(session->known_incarnations);
    free(session->known_devices);
    status_unref(session->last_error);
    free(session->handle);
    free(session);
}

/* A task frees the containers of an isolated session when the session's last step there has
 * ended. */
static void drop_state(struct session *session) {
    Millrace__CloseSession message = MILLRACE__CLOSE_SESSION__INIT;
    message.session = session->handle;
    uint8_t bytes[64];
    CHECK(millrace__close_session__get_packed_size(&message) <= sizeof bytes);
    size_t len = millrace__close_session__pack(&message, bytes);
    for (int i = 0; i < session->devices->n_tasks; i++) {
        struct task *task = tasks_find(session->env->tasks, session->devices->tasks[i].name);
        if (task)
            task_send_release(
                task, &(struct wire_out){.type = WIRE_CLOSE_SESSION, .meta = {(char *)bytes, len}});
    }
}

bool session_begin_close(struct session *session) {
    if (session->is_closed)
        return false;
    session->is_closed = true;
    if (session->is_isolated)
        drop_state(session);
    return true;
}

void session_end_close(struct session *session) {
    /* An executable with running steps lives until these have ended. */
    struct strmap executables = session->executables;
    size_t cursor = 0;
    struct span key;
    void *value;
    strmap_init(&session->executables);
    while (strmap_next(&executables, &cursor, &key, &value)) {
        list_remove(&((struct executable *)value)->lru_link);
        executable_unref(value);
    }
    strmap_fini(&executables);
    session_unref(session);
}

/* ---- jobs ---- */

static void start_next_job(struct session *session);

static void job_finished(struct loop_task *task) {
    struct session_job *job = CONTAINER_OF(task, struct session_job, loop_task);
    struct session *session = job->session;
    session->running_job = NULL;
    job->done(job);
    start_next_job(session);
    session_unref(session);
}

static void job_work(struct pool_task *task) {
    struct session_job *job = CONTAINER_OF(task, struct session_job, pool_task);
    job->work(job);
    loop_post(job->session->env->loop, &job->loop_task);
}

static void start_next_job(struct session *session) {
    struct list *link;
    if (session->running_job || !(link = list_pop_front(&session->jobs)))
        return;
    session->running_job = LIST_ENTRY(link, struct session_job, link);
    pool_submit(session->env->pool, &session->running_job->pool_task);
}

void session_run_job(struct session *session, struct session_job *job) {
    session_ref(session);
    job->session = session;
    job->pool_task.run = job_work;
    job->loop_task.run = job_finished;
    list_push_back(&session->jobs, &job->link);
    start_next_job(session);
}

/* ---- fences ---- */

struct status *session_note_request(struct session *session, const char *method,
                                    uint64_t request_id) {
    if (request_id == 0)
        return NULL;
    if (u64map_get(&session->request_ids, request_id))
        return status_new(STATUS_ABORTED, "The same %s request was received twice: request id %lld",
                          method, (long long)request_id);
    if (!session->request_ring)
        session->request_ring = xcalloc(N_REQUEST_IDS, sizeof *session->request_ring);
    uint64_t *slot = &session->request_ring[session->request_at];
    if (*slot)
        u64map_remove(&session->request_ids, *slot);
    *slot = request_id;
    session->request_at = (session->request_at + 1) % N_REQUEST_IDS;
    u64map_put(&session->request_ids, request_id, session);
    return NULL;
}

/* Is the incarnation another one than before? Notes it then. It counts even if the task is lost
 * again before the next step. */
static bool has_changed(uint64_t *known, uint64_t now, bool is_told, bool is_ready) {
    bool is_changed = *known && *known != now && !is_told;
    if (is_changed || is_ready)
        *known = now;
    return is_changed;
}

struct status *session_check_incarnations(struct session *session, struct executable *executable) {
    struct status *st = NULL;
    for (int i = 0; i < executable->compiled->n_partitions; i++) {
        struct task *task = executable->registrations[i].task;
        int index = task_index(task);
        bool is_ready = task_state(task) == TASK_READY,
             has_restarted = has_changed(&session->known_incarnations[index],
                                         task_incarnation(task), st != NULL, is_ready);
        if (has_restarted) {
            session->known_devices[index] = 0;
            st = status_new(STATUS_ABORTED,
                            "Task %s has restarted since this session last used it: its variables "
                            "and queues are gone",
                            task_name(task));
        }
        if (executable->compiled->partitions[i].uses_devices &&
            has_changed(&session->known_devices[index], task_devices_incarnation(task), st != NULL,
                        is_ready))
            st = status_new(STATUS_ABORTED,
                            "A device of task %s has failed since this session last used it: its "
                            "variables are gone",
                            task_name(task));
    }
    return st;
}
