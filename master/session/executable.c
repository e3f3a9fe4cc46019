/* Compiles executables in jobs of the session, and registers their partitions at the tasks. */
#include "master/session/executable.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/graph/graph_proto.h"
#include "common/tensor/tensor_proto.h"
#include "master/compile/place/placement.h"
#include "master/compile/partition/device_graphs.h"
#include "master/session/replacement.h"
#include "master/session/session.h"
#include "proto/worker.pb-c.h"
#include "rpc/host_id.h"

static const struct state_row states[] = {
    [EXECUTABLE_COMPILING] = {"COMPILING",
                              STATE_SET(EXECUTABLE_REGISTERING) | STATE_SET(EXECUTABLE_READY) |
                                  STATE_SET(EXECUTABLE_FAILED),
                              .is_first = true},
    [EXECUTABLE_REGISTERING] = {"REGISTERING",
                                STATE_SET(EXECUTABLE_READY) | STATE_SET(EXECUTABLE_FAILED)},
    [EXECUTABLE_READY] = {"READY", STATE_SET(EXECUTABLE_REGISTERING)},
    [EXECUTABLE_FAILED] = {"FAILED", 0},
};
const struct state_machine executable_machine = {"executable", states, ARRAY_LEN(states)};

static void move(struct executable *executable, enum executable_state to) {
    state_machine_move(&executable_machine, &executable->state, to, executable);
}

struct compile_job {
    struct session_job job;
    struct executable *executable;
    struct executable *present; /* that it may replace: one reference; or NULL */
    struct compiled *compiled;
    struct str *graphdefs; /* by partition */
    struct status *status;
};

/* ---- the end of an executable ---- */

static void deregister(struct executable *executable) {
    for (int i = 0; executable->registrations && i < executable->compiled->n_partitions; i++) {
        struct registration *registration = &executable->registrations[i];
        task_call_forget(&registration->call);
        if (!registration->graph ||
            registration->incarnation != task_incarnation(registration->task))
            continue;
        Millrace__DeregisterGraph message = MILLRACE__DEREGISTER_GRAPH__INIT;
        uint8_t bytes[32];
        message.n_graph = 1;
        message.graph = &registration->graph;
        size_t len = millrace__deregister_graph__pack(&message, bytes);
        task_send_release(registration->task, &(struct wire_out){.type = WIRE_DEREGISTER_GRAPH,
                                                                 .meta = {(char *)bytes, len}});
    }
}

void executable_unref(struct executable *executable) {
    if (!executable || --executable->n_refs > 0)
        return;
    struct session *session = executable->session;
    CHECK(list_is_empty(&executable->waiting));
    replacement_end(executable);
    deregister(executable);
    compiled_free(executable->compiled);
    status_unref(executable->status);
    list_remove(&executable->live_link);
    free(executable->registrations);
    arena_fini(&executable->arena);
    free(executable);
    session_unref(session);
}

void session_graphs_at(const struct session *session, const struct task *task, struct str *out) {
    LIST_FOR_EACH (link, &session->live_executables) {
        const struct executable *executable = LIST_ENTRY(link, struct executable, live_link);
        for (int i = 0; executable->registrations && i < executable->compiled->n_partitions; i++) {
            const struct registration *registration = &executable->registrations[i];
            if (registration->task == task && registration->graph &&
                registration->incarnation == task_incarnation(task) &&
                registration->membership == task_membership(task))
                str_add_bytes(out, &registration->graph, sizeof(registration->graph));
        }
    }
}

/* Takes the executable out of the cache. Steps that use it are not affected. */
static void forget(struct executable *executable) {
    if (strmap_get_span(&executable->session->executables, executable->key) != executable)
        return;
    strmap_remove_span(&executable->session->executables, executable->key);
    list_remove(&executable->lru_link);
    executable_unref(executable);
}

static void call_waiters(struct executable *executable) {
    struct list waiting;
    list_init(&waiting);
    list_splice_back(&waiting, &executable->waiting);
    for (struct list *link; (link = list_pop_front(&waiting));) {
        struct executable_wait *waiter = LIST_ENTRY(link, struct executable_wait, link);
        waiter->settled(waiter);
    }
}

/* Moves to READY or FAILED and calls all waiters. The caller holds a reference. */
static void settle(struct executable *executable, enum executable_state state) {
    move(executable, state);
    if (state == EXECUTABLE_FAILED)
        forget(executable);
    call_waiters(executable);
}

/* ---- registering ---- */

static void on_registered(struct task_call *call, struct status *status_take,
                          struct wire_message *message) {
    struct registration *registration = CONTAINER_OF(call, struct registration, call);
    struct executable *executable = registration->executable;
    struct status *st = status_take;
    if (!st) {
        Millrace__Registered *reply = millrace__registered__unpack(
            NULL, message->meta.len, (const uint8_t *)message->meta.data);
        if (!reply)
            st = status_internal("task %s sent a malformed reply to RegisterGraph",
                                 task_name(registration->task));
        else if (reply->code)
            st = status_from_wire(reply->code, span_of(reply->message));
        else
            registration->graph = reply->graph;
        if (reply)
            millrace__registered__free_unpacked(reply, NULL);
        if (st)
            st = status_prefix_take(st, "From %s:\n", task_name(registration->task));
    }
    if (st && !executable->status)
        executable->status = st;
    else
        status_unref(st);
    if (--executable->n_registering == 0)
        settle(executable, executable->status ? EXECUTABLE_FAILED : EXECUTABLE_READY);
    executable_unref(executable);
}

static void fill_peer(const struct executable *executable, int peer_task, struct task *receiver,
                      Millrace__Peer *ret) {
    struct tasks *tasks = executable->session->env->tasks;
    struct task *task = tasks_find(tasks, executable->compiled->devices->tasks[peer_task].name);
    bool is_near = task && strcmp(task_host_id(task), task_host_id(receiver)) == 0;
    millrace__peer__init(ret);
    ret->task = (char *)executable->compiled->devices->tasks[peer_task].name;
    ret->address = (char *)(task ? task_address(task) : "");
    ret->unix_address = (char *)(is_near ? task_unix_address(task) : "");
    ret->incarnation = task ? task_incarnation(task) : 0;
    if (task && task_own_name(task))
        ret->own_task = (char *)task_own_name(task);
}

/* Adds all other tasks of the session. */
static void fill_others(const struct executable *executable, struct task *receiver,
                        struct arena *scratch, Millrace__RegisterGraph *message) {
    int n = executable->compiled->devices->n_tasks;
    Millrace__Peer *others = arena_array(scratch, Millrace__Peer, n + 1);
    message->other = arena_array(scratch, Millrace__Peer *, n + 1);
    for (int i = 0; i < n; i++) {
        if (strcmp(executable->compiled->devices->tasks[i].name, task_name(receiver)) == 0)
            continue;
        fill_peer(executable, i, receiver, &others[message->n_other]);
        message->other[message->n_other] = &others[message->n_other];
        message->n_other++;
    }
}

/* Encodes what registers a partition: its graph, and then those of its functions. Pool thread. */
static void encode_partition(const struct partition *partition, struct str *out) {
    graph_to_graphdef(&partition->graph, NULL, out);
    for (int i = 0; i < partition->n_functions; i++)
        str_add_bytes(out, partition->functions[i].graphdef.data,
                      partition->functions[i].graphdef.len);
}

/* Adds the functions, whose graphs are in the payload (encode_partition). */
static void fill_functions(const struct partition *partition, struct arena *scratch,
                           Millrace__RegisterGraph *message) {
    Millrace__Function *functions =
        arena_array(scratch, Millrace__Function, partition->n_functions + 1);
    message->function = arena_array(scratch, Millrace__Function *, partition->n_functions + 1);
    message->n_function = (size_t)partition->n_functions;
    for (int i = 0; i < partition->n_functions; i++) {
        const struct compiled_function *function = &partition->functions[i];
        millrace__function__init(&functions[i]);
        functions[i].key = (char *)(uintptr_t)function->key;
        functions[i].name = (char *)(uintptr_t)function->name;
        functions[i].graph_bytes = function->graphdef.len;
        message->function[i] = &functions[i];
    }
}

/* `graphs_take` is what encode_partition has written. */
static void register_partition(struct executable *executable, int index, struct str *graphs_take) {
    struct registration *registration = &executable->registrations[index];
    const struct partition *partition = &executable->compiled->partitions[index];
    struct arena scratch;
    arena_init(&scratch);
    Millrace__RegisterGraph message = MILLRACE__REGISTER_GRAPH__INIT;
    Millrace__Peer *peers = arena_array(&scratch, Millrace__Peer, partition->n_peers + 1);
    message.session = executable->session->handle;
    message.is_isolated = executable->session->is_isolated;
    message.client = executable->session->client;
    message.master_incarnation = executable->session->env->incarnation;
    message.n_peer = (size_t)partition->n_peers;
    message.peer = arena_array(&scratch, Millrace__Peer *, partition->n_peers + 1);
    for (int i = 0; i < partition->n_peers; i++) {
        fill_peer(executable, partition->peers[i], registration->task, &peers[i]);
        message.peer[i] = &peers[i];
    }
    if (partition->reads_peer_files)
        fill_others(executable, registration->task, &scratch, &message);
    fill_functions(partition, &scratch, &message);
    size_t len = millrace__register_graph__get_packed_size(&message);
    uint8_t *bytes = arena_alloc(&scratch, len + 1);
    millrace__register_graph__pack(&message, bytes);

    registration->incarnation = task_incarnation(registration->task);
    registration->membership = task_membership(registration->task);
    registration->graph = 0;
    registration->call.on_reply = on_registered;
    executable->n_refs++; /* the call's */
    executable->n_registering++;
    size_t graph_len = graphs_take->len;
    struct wire_out out = {.type = WIRE_REGISTER_GRAPH, .meta = {(char *)bytes, len}};
    char *graph_bytes = str_detach(graphs_take);
    if (graph_len) {
        out.extra = (struct span){graph_bytes, graph_len};
        out.extra_buffer = buffer_wrap(graph_bytes, graph_len, free, graph_bytes);
    } else {
        free(graph_bytes);
    }
    task_call_start(registration->task, &registration->call, &out);
    buffer_unref(out.extra_buffer);
    arena_fini(&scratch);
}

/* ---- encoding the graphs again, on the pool ---- */

struct encode_job {
    struct session_job job;
    struct executable *executable;
    struct str *graphdefs; /* by partition */
    struct str graphs;     /* fields of RunMetadata, for hand_out_graphs */
    void (*done)(struct encode_job *job);
};

static void register_again(struct encode_job *job);
static void hand_out_graphs(struct encode_job *job);

static void encode_work(struct session_job *session_job) {
    struct encode_job *job = CONTAINER_OF(session_job, struct encode_job, job);
    const struct compiled *compiled = job->executable->compiled;
    for (int i = 0; i < compiled->n_partitions; i++) {
        if (job->done == register_again) {
            encode_partition(&compiled->partitions[i], &job->graphdefs[i]);
            continue;
        }
        device_graphs_add(&compiled->partitions[i].graph, &job->graphs);
    }
}

static void encode_done(struct session_job *session_job) {
    struct encode_job *job = CONTAINER_OF(session_job, struct encode_job, job);
    struct executable *executable = job->executable;
    job->done(job);
    for (int i = 0; i < executable->compiled->n_partitions; i++)
        str_fini(&job->graphdefs[i]);
    free(job->graphdefs);
    free(job);
    executable_unref(executable);
}

static void start_encoding(struct executable *executable, void (*done)(struct encode_job *job)) {
    struct encode_job *job = xcalloc(1, sizeof *job);
    job->executable = executable;
    executable->n_refs++; /* the job's */
    job->graphdefs =
        xcalloc((size_t)executable->compiled->n_partitions + 1, sizeof *job->graphdefs);
    job->done = done;
    job->job.work = encode_work;
    job->job.done = encode_done;
    session_run_job(executable->session, &job->job);
}

static void register_again(struct encode_job *job) {
    for (int i = 0; i < job->executable->compiled->n_partitions; i++)
        register_partition(job->executable, i, &job->graphdefs[i]);
}

static void hand_out_graphs(struct encode_job *job) {
    struct executable *executable = job->executable;
    size_t len = job->graphs.len;
    char *bytes = str_detach(&job->graphs);
    executable->is_encoding_graphs = false;
    executable->graphs = buffer_wrap(bytes, len, free, bytes);
    call_waiters(executable);
    buffer_unref(executable->graphs);
    executable->graphs = NULL;
}

/* True: READY, and registered under the present incarnation and membership of each of its tasks.
 * False: not READY, or it has just begun to register all partitions again. */
static bool ensure_registered(struct executable *executable) {
    if (executable->state != EXECUTABLE_READY)
        return false;
    bool is_current = true;
    for (int i = 0; i < executable->compiled->n_partitions; i++) {
        struct registration *registration = &executable->registrations[i];
        if (registration->incarnation == task_incarnation(registration->task) &&
            registration->membership == task_membership(registration->task))
            continue;
        is_current = false;
    }
    if (is_current)
        return true;
    move(executable, EXECUTABLE_REGISTERING);
    /* Peers name each other by incarnation, so all partitions are registered again, also at tasks
     * that still hold the old ones. */
    deregister(executable);
    start_encoding(executable, register_again);
    return false;
}

bool executable_await(struct executable *executable, struct executable_wait *waiter) {
    if (executable->state == EXECUTABLE_FAILED || ensure_registered(executable))
        return true;
    list_push_back(&executable->waiting, &waiter->link);
    return false;
}

bool executable_await_graphs(struct executable *executable, struct executable_wait *waiter,
                             struct buffer **ret_graphs) {
    *ret_graphs = executable->graphs ? buffer_ref(executable->graphs) : NULL;
    if (executable->graphs || executable->compiled->n_partitions == 0)
        return true;
    if (!executable->is_encoding_graphs)
        start_encoding(executable, hand_out_graphs);
    executable->is_encoding_graphs = true;
    list_push_back(&executable->waiting, &waiter->link);
    return false;
}

/* ---- compiling ---- */

static void log_placement(const struct session *session, char *text) {
    for (char *line; (line = strsep(&text, "\n")) != NULL;)
        if (*line)
            log_event(EVENT_SESSION_PLACEMENT, "session %s: %s", session->handle, line);
}

static void compile_work(struct session_job *session_job) {
    struct compile_job *job = CONTAINER_OF(session_job, struct compile_job, job);
    struct session *session = session_job->session;
    struct compile_options options = session->options;
    struct str placement = STR_INIT;
    options.links = tasks_links(session->env->tasks);
    options.present = job->present ? job->present->compiled : NULL;
    options.is_away = job->executable->is_away;
    options.is_by_simple_rule = job->executable->is_by_simple_rule;
    if (session->log_device_placement)
        options.placement_log = &placement;
    job->status = compile_step(&session->graph, &job->executable->signature, session->devices,
                               &options, session->env->pool, &job->compiled);
    if (placement.len > 0)
        log_placement(session, placement.data);
    str_fini(&placement);
    if (!job->status && job->present && placements_are_equal(job->present->compiled, job->compiled))
        job->status = status_new(STATUS_ALREADY_EXISTS, "its nodes are where they are");
    if (job->status)
        return;
    job->graphdefs = xcalloc((size_t)job->compiled->n_partitions + 1, sizeof *job->graphdefs);
    for (int i = 0; i < job->compiled->n_partitions; i++)
        encode_partition(&job->compiled->partitions[i], &job->graphdefs[i]);
}

/* Fills in the tasks by task_index, the numbers by which the save barrier compares steps. */
static struct status *find_tasks(struct executable *executable) {
    const struct compiled *compiled = executable->compiled;
    executable->tasks = arena_array(&executable->arena, int, compiled->n_partitions + 1);
    executable->saved_tasks = arena_array(&executable->arena, int, compiled->n_saved_tasks + 1);
    for (int i = 0; i < compiled->n_partitions; i++)
        executable->tasks[executable->n_tasks++] = task_index(executable->registrations[i].task);
    for (int i = 0; i < compiled->n_saved_tasks; i++) {
        struct task *task = tasks_find(executable->session->env->tasks,
                                       compiled->devices->tasks[compiled->saved_tasks[i]].name);
        if (!task)
            return status_internal("a saved value is on a task that does not exist");
        executable->saved_tasks[executable->n_saved_tasks++] = task_index(task);
    }
    return NULL;
}

static struct status *begin_registering(struct executable *executable) {
    const struct compiled *compiled = executable->compiled;
    executable->registrations =
        xcalloc((size_t)compiled->n_partitions + 1, sizeof *executable->registrations);
    for (int i = 0; i < compiled->n_partitions; i++) {
        struct registration *registration = &executable->registrations[i];
        registration->executable = executable;
        registration->partition = i;
        registration->task =
            tasks_find(executable->session->env->tasks,
                       compiled->devices->tasks[compiled->partitions[i].task].name);
        if (!registration->task)
            return status_internal("partition %d has no task", i);
    }
    return find_tasks(executable);
}

static void compile_done(struct session_job *session_job) {
    struct compile_job *job = CONTAINER_OF(session_job, struct compile_job, job);
    struct executable *executable = job->executable;
    executable->compiled = job->compiled;
    executable->status = job->status;
    if (!executable->status)
        executable->status = begin_registering(executable);
    if (!executable->status && !job->present)
        replacement_begin(executable);
    if (executable->status) {
        settle(executable, EXECUTABLE_FAILED);
    } else if (executable->compiled->n_partitions == 0) {
        settle(executable, EXECUTABLE_READY);
    } else {
        move(executable, EXECUTABLE_REGISTERING);
        for (int i = 0; i < executable->compiled->n_partitions; i++)
            register_partition(executable, i, &job->graphdefs[i]);
    }
    for (int i = 0; job->graphdefs && job->compiled && i < job->compiled->n_partitions; i++)
        str_fini(&job->graphdefs[i]);
    free(job->graphdefs);
    executable_unref(job->present);
    free(job);
    executable_unref(executable);
}

/* A new executable without a signature, with one reference. */
static struct executable *executable_new(struct session *session, struct span key) {
    struct executable *executable = xcalloc(1, sizeof *executable);
    state_machine_start(&executable_machine, &executable->state, EXECUTABLE_COMPILING, executable);
    arena_init(&executable->arena);
    list_init(&executable->waiting);
    list_init(&executable->lru_link);
    executable->session = session;
    executable->number = ++session->n_executables_total;
    session_ref(session);
    executable->key = (struct span){arena_memdup(&executable->arena, key.data, key.len), key.len};
    executable->n_refs = 1;
    list_push_back(&session->live_executables, &executable->live_link);
    return executable;
}

/* The job has a reference of its own, and one on `present` unless that is NULL. */
static void start_compiling(struct executable *executable, struct executable *present) {
    struct compile_job *job = xcalloc(1, sizeof *job);
    job->executable = executable;
    executable->n_refs++;
    job->present = present;
    if (present)
        present->n_refs++;
    if (executable->session->options.placement != PLACEMENT_SIMPLE)
        executable->is_away = tasks_find_away(executable->session->env->tasks,
                                              executable->session->devices, &executable->arena);
    job->job.work = compile_work;
    job->job.done = compile_done;
    session_run_job(executable->session, &job->job);
}

static const char **copy_names(struct arena *arena, const char *const *names, int n) {
    const char **copies = arena_array(arena, const char *, n + 1);
    for (int i = 0; i < n; i++)
        copies[i] = arena_strdup(arena, names[i]);
    return copies;
}

struct executable *executable_compile_again(struct executable *present, bool is_by_simple_rule) {
    struct executable *executable = executable_new(present->session, present->key);
    executable->is_by_simple_rule = is_by_simple_rule;
    struct signature *signature = &executable->signature;
    struct arena *arena = &executable->arena;
    *signature = present->signature;
    signature->feeds = copy_names(arena, signature->feeds, signature->n_feeds);
    signature->fetches = copy_names(arena, signature->fetches, signature->n_fetches);
    signature->targets = copy_names(arena, signature->targets, signature->n_targets);
    signature->connect_from = copy_names(arena, signature->connect_from, signature->n_connections);
    signature->connect_to = copy_names(arena, signature->connect_to, signature->n_connections);
    executable->is_repeated_fetch = arena_memdup(arena, present->is_repeated_fetch,
                                                 sizeof(bool) * ((size_t)signature->n_fetches + 1));
    start_compiling(executable, present);
    return executable;
}

bool executable_take_place(struct executable *other, struct executable *present) {
    struct session *session = present->session;
    if (strmap_get_span(&session->executables, present->key) != present)
        return false;
    strmap_remove_span(&session->executables, present->key);
    list_remove(&present->lru_link);
    strmap_put_span(&session->executables, other->key, other);
    list_push_front(&session->lru, &other->lru_link);
    other->n_refs++;
    other->earlier_numbers[0] = present->number;
    for (int i = 1; i < TRIAL_MAX_TAKES; i++)
        other->earlier_numbers[i] = present->earlier_numbers[i - 1];
    return true;
}

struct executable *session_executable(struct session *session, struct span key,
                                      void (*fill)(void *arg, struct executable *executable),
                                      void *arg) {
    struct executable *executable = strmap_get_span(&session->executables, key);
    if (executable) {
        list_remove(&executable->lru_link);
        list_push_front(&session->lru, &executable->lru_link);
        executable = replacement_choose(executable);
        executable->n_refs++;
        return executable;
    }
    while (session->executables.n_entries >= (size_t)session->env->options.max_executables)
        forget(LIST_ENTRY(session->lru.prev, struct executable, lru_link));
    executable = executable_new(session, key);
    executable->n_refs++; /* the cache's */
    fill(arg, executable);
    strmap_put_span(&session->executables, executable->key, executable);
    list_push_front(&session->lru, &executable->lru_link);
    start_compiling(executable, NULL);
    return executable;
}
