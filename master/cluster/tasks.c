/* Connects to the worker tasks. */
#include "master/cluster/tasks.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "master/cluster/tasks_internal.h"
#include "master/compile/cost/link_table.h"
#include "proto/worker.pb-c.h"
#include "rpc/host_id.h"
#include "rpc/listen.h"
#include "rpc/wire/wire_last.h"

enum {
    RECONNECT_MIN_MS = 50,
    RECONNECT_MAX_MS = 500,
    /* How long the kernel may try to connect: as long as it waits before it sends SYN again, so a
     * new attempt costs nothing. */
    CONNECT_MIN_MS = 1000,
    CONNECT_MAX_MS = 10000,
    SAYS_LEAVING_REVISION = 2, /* tasks of an older WIRE_REVISION leave without a word */
};

static const struct wire_handlers handlers;

static const struct state_row states[] = {
    [TASK_DOWN] = {"DOWN", STATE_SET(TASK_PROBING), .is_first = true},
    [TASK_PROBING] = {"PROBING", STATE_SET(TASK_DOWN) | STATE_SET(TASK_LINKING)},
    [TASK_LINKING] = {"LINKING", STATE_SET(TASK_DOWN) | STATE_SET(TASK_READY)},
    [TASK_READY] = {"READY", STATE_SET(TASK_DOWN)},
};
const struct state_machine task_machine = {"task", states, ARRAY_LEN(states)};

static void move(struct task *task, enum task_state to) {
    state_machine_move(&task_machine, &task->state, to, task);
}

/* ---- messages ---- */

static void send_hello(struct task *task, struct wire_conn *conn, unsigned channel,
                       uint64_t expected) {
    Millrace__Hello hello = MILLRACE__HELLO__INIT;
    hello.protocol = WIRE_PROTOCOL;
    hello.task = (char *)"master";
    hello.incarnation = task->tasks->incarnation;
    hello.channel = channel;
    hello.host_id = (char *)host_id();
    hello.expected_incarnation = expected;
    if (task->tasks->is_of_session && conn != task->probe)
        hello.as_task = task->name;
    if (task->tasks->client_address)
        hello.client_address = task->tasks->client_address;
    uint8_t bytes[1024];
    CHECK(millrace__hello__get_packed_size(&hello) <= sizeof bytes);
    size_t len = millrace__hello__pack(&hello, bytes);
    wire_send(conn, &(struct wire_out){.type = WIRE_HELLO, .meta = {(char *)bytes, len}});
}

/* ---- connecting ---- */

static void drop_conn(struct wire_conn **conn, struct status *why) {
    struct wire_conn *dropped = *conn;
    *conn = NULL;
    if (!dropped)
        return;
    wire_conn_set_owner(dropped, NULL, &handlers);
    wire_conn_close(dropped, status_ref(why));
    wire_conn_unref(dropped);
}

void task_down(struct task *task, struct status *why) {
    /* not `is_leaving`: the task may have crashed before it was told */
    bool was_ready = task->state == TASK_READY, was_draining = task->is_draining;
    bool has_left = task->has_left || (was_draining && task->revision < SAYS_LEAVING_REVISION);
    struct tasks *tasks = task->tasks;
    task->is_draining = task->has_left = false;
    status_unref(task->why_down);
    task->why_down = status_ref(why);
    if (task->state != TASK_DOWN)
        move(task, TASK_DOWN);
    drop_conn(&task->probe, why);
    drop_conn(&task->control, why);
    drop_conn(&task->bulk, why);
    task_health_lost(&task->health, was_ready);
    task_fail_calls(task);
    if (tasks->is_closing || tasks->leaving_ns)
        return;
    if (was_ready) {
        task->last_end = has_left ? TASK_END_LEFT : TASK_END_LOST;
        if (has_left)
            log_event(EVENT_TASK_LEFT, "task %s has left: it was told to stop", task->name);
        else
            log_event(EVENT_TASK_LOST, "lost task %s%s: %s", task->name,
                      was_draining ? " while it was draining" : "", status_message(why));
        link_table_forget(tasks->links, task->name);
        tasks->on_lost(tasks->arg, task);
    }
    if (!task->is_registered) {
        loop_timer_stop(&task->timer);
        return;
    }
    loop_timer_start(&task->timer, task->backoff_ms, 0);
    task->backoff_ms = MIN(task->backoff_ms * 2, (int64_t)RECONNECT_MAX_MS);
}

void task_connect_soon(struct task *task) {
    task->backoff_ms = RECONNECT_MIN_MS;
    loop_timer_start(&task->timer, 0, 0);
}

/* Limits how long the kernel may try to connect. A connection to an unreachable host is tried
 * again, because the kernel waits longer after each SYN and may notice half a minute late that the
 * host is back. */
static int64_t connect_ms(const struct task *task) {
    return MIN(MAX(task->tasks->heartbeat_ms / 2, (int64_t)CONNECT_MIN_MS),
               (int64_t)CONNECT_MAX_MS);
}

static bool is_connected(const struct wire_conn *conn) { return !conn || wire_conn_is_open(conn); }

static struct wire_conn *connect_to(struct task *task, const char *address) {
    struct wire_conn *conn = wire_connect(task->tasks->loop, address, &handlers, task);
    wire_conn_secure(conn, task->tasks->tls,
                     task->tasks->is_of_session ? task->own_name : task->name);
    if (task->tasks->uses_checksums)
        wire_conn_use_checksums(conn);
    return conn;
}

static void connect_probe(struct task *task) {
    move(task, TASK_PROBING);
    task->is_reconciling = false;
    task->probe = connect_to(task, task->address);
    task_health_watch(&task->health, false);
    send_hello(task, task->probe, 0, 0);
    wire_send(task->probe,
              &(struct wire_out){.type = WIRE_GET_STATUS, .id = tasks_new_id(task->tasks)});
    loop_timer_start(&task->timer, connect_ms(task), 0);
}

static void on_timer(struct loop_timer *timer) {
    struct task *task = CONTAINER_OF(timer, struct task, timer);
    if (task->state == TASK_DOWN) {
        connect_probe(task);
    } else if (task->state != TASK_READY &&
               !(is_connected(task->probe) && is_connected(task->control) &&
                 is_connected(task->bulk))) {
        struct status *why =
            status_unavailable("no connection within %.1f s", (double)connect_ms(task) / 1000);
        task_down(task, why);
        status_unref(why);
    } /* otherwise it is connected, and the heartbeat watches whether it answers */
}

static void connect_channels(struct task *task) {
    const char *address = task->address;
    if (!task->avoid_unix && *task->unix_address && strcmp(task->host_id, host_id()) == 0)
        address = task->unix_address;
    move(task, TASK_LINKING);
    task->n_linked = 0;
    task->control = connect_to(task, address);
    task->bulk = connect_to(task, address);
    send_hello(task, task->control, 0, task->incarnation);
    send_hello(task, task->bulk, 1, task->incarnation);
    loop_timer_start(&task->timer, connect_ms(task), 0);
}

/* A task that remembers this master may hold more graphs than the master knows. It must answer
 * KeepGraphs before anything else is sent. */
static void reconcile(struct task *task, bool is_remembered) {
    struct str meta = STR_INIT;
    if (!is_remembered) {
        connect_channels(task);
        return;
    }
    task->tasks->holdings(task->tasks->arg, task, &meta);
    task->is_reconciling = true;
    wire_send(task->probe, &(struct wire_out){.type = WIRE_KEEP_GRAPHS,
                                              .id = tasks_new_id(task->tasks),
                                              .meta = {str_text(&meta), meta.len}});
    str_fini(&meta);
}

static void task_ready(struct task *task) {
    struct tasks *tasks = task->tasks;
    move(task, TASK_READY);
    task->backoff_ms = RECONNECT_MIN_MS;
    status_unref(task->why_down);
    task->why_down = NULL;
    drop_conn(&task->probe, NULL);
    loop_timer_stop(&task->timer);
    task_health_watch(&task->health, true);
    /* from now on the task watches its master, too */
    task_health_ping(&task->health, clock_now_ns(), task->control);
    device_table_unref(tasks->devices);
    tasks->devices = NULL;
    log_event(EVENT_TASK_READY, "task %s is ready over %s", task->name,
              wire_conn_peer(task->control));
    for (int i = 0; i < task->n_failed; i++)
        log_event(EVENT_DEVICE_FAILED, "%s is not used: %s", task->failed[i].name,
                  task->failed[i].why);
    if (task->is_leaving)
        task_send_drain(task);
    tasks->on_ready(tasks->arg, task);
}

static void on_message(void *owner, struct wire_conn *conn, struct wire_message *message) {
    struct task *task = owner;
    if (!task)
        return;
    int64_t now_ns = clock_now_ns();
    task_health_heard(&task->health, now_ns);
    if (message->type == WIRE_PONG) {
        task_health_pong(&task->health, message, now_ns);
        task->is_draining |= heartbeat_is_draining(message->meta);
        task->has_left |= heartbeat_is_leaving(message->meta);
        task_take_links(task, message->meta);
        return;
    }
    if (message->type == WIRE_HELLO) {
        if (task->state == TASK_LINKING && conn != task->probe && !task->tasks->leaving_ns &&
            ++task->n_linked == 2)
            task_ready(task);
        return;
    }
    if (message->type == WIRE_STATUS && conn == task->probe && task->state == TASK_PROBING) {
        uint64_t membership = task->membership, incarnation = task->incarnation;
        struct status *st = task_take_status(task, message->meta);
        if (st)
            task_down(task, st);
        else
            reconcile(task, incarnation == task->incarnation && membership == task->membership);
        status_unref(st);
        return;
    }
    if (message->type == WIRE_STATUS && conn == task->control &&
        (task->state == TASK_LINKING || task->state == TASK_READY)) {
        task_take_changed_devices(task, message->meta);
        return;
    }
    if (message->type == WIRE_KEPT && conn == task->probe && task->state == TASK_PROBING) {
        connect_channels(task);
        return;
    }
    if (message->type == WIRE_STEP_FETCHED) {
        struct task_call *fetching = u64map_get(&task->calls, message->id);
        if (fetching && fetching->on_fetched)
            fetching->on_fetched(fetching, message);
        return;
    }
    if (message->type == WIRE_INPUTS_TAKEN) {
        struct task_call *saving = u64map_get(&task->calls, message->id);
        if (saving && saving->on_taken)
            saving->on_taken(saving);
        return;
    }
    struct task_call *call = u64map_remove(&task->calls, message->id);
    if (!call)
        return; /* the caller has forgotten the call */
    call->task = NULL;
    call->on_reply(call, NULL, message);
}

static void on_closed(void *owner, struct wire_conn *conn, struct status *why) {
    struct task *task = owner;
    if (!task || (conn != task->probe && conn != task->control && conn != task->bulk))
        return;
    if (task->state == TASK_LINKING && conn != task->probe && wire_conn_is_unix(conn) &&
        !task->avoid_unix)
        task->avoid_unix = true;
    /* The replies over the other connection may be the last that the task has sent. */
    if (task->state == TASK_READY) {
        wire_conn_read_rest(conn == task->control ? task->bulk : task->control);
        if (task->state != TASK_READY)
            return; /* that connection has ended, too */
    }
    struct status *reason = why ? status_ref(why) : status_unavailable("the connection was closed");
    task_down(task, reason);
    status_unref(reason);
}

static const struct wire_handlers handlers = {.on_message = on_message, .on_closed = on_closed};

/* ---- the table ---- */

/* A reply of gigabytes may take longer than a task may be silent, and pongs are queued behind
 * it. */
static void hear_bytes(struct task *task, int64_t now_ns) {
    uint64_t n = task->control ? wire_conn_received_bytes(task->control) : 0;
    n += task->bulk ? wire_conn_received_bytes(task->bulk) : 0;
    if (n > task->n_received)
        task_health_heard(&task->health, now_ns);
    task->n_received = n;
}

static void review_leaving(struct tasks *tasks, int64_t now_ns) {
    bool is_over = now_ns - tasks->leaving_ns > TASKS_LEAVE_MS * 1000000ll;
    for (int i = 0; i < tasks->n && !is_over; i++)
        if (tasks->rows[i]->state != TASK_DOWN)
            return;
    tasks_free(tasks);
}

static void on_tick(struct loop_timer *timer) {
    struct tasks *tasks = CONTAINER_OF(timer, struct tasks, tick);
    int64_t now_ns = clock_now_ns();
    log_flush_repeats(false);
    if (tasks->leaving_ns) {
        review_leaving(tasks, now_ns);
        return;
    }
    for (int i = 0; i < tasks->n; i++) {
        struct task *task = tasks->rows[i];
        hear_bytes(task, now_ns);
        struct status *why = task->state == TASK_DOWN
                                 ? NULL
                                 : task_health_tick(&task->health, now_ns, task->control);
        if (why)
            task_down(task, why);
        status_unref(why);
    }
}

struct task *task_add(struct tasks *tasks, const char *name, const char *address) {
    struct task *task = xcalloc(1, sizeof *task);
    *task = (struct task){.tasks = tasks, .index = tasks->n, .backoff_ms = RECONNECT_MIN_MS};
    state_machine_start(&task_machine, &task->state, TASK_DOWN, task);
    task->name = xstrdup(name);
    task->address = xstrdup(address);
    task->unix_address = xstrdup("");
    task->host_id = xstrdup("");
    u64map_init(&task->calls);
    task_health_init(&task->health, tasks->is_of_session ? NULL : task->name, tasks->heartbeat_ms);
    loop_timer_init(tasks->loop, &task->timer, on_timer);
    if ((tasks->n & (tasks->n - 1)) == 0) /* a power of two: the array is full */
        tasks->rows =
            xreallocarray(tasks->rows, tasks->n ? (size_t)tasks->n * 2 : 1, sizeof *tasks->rows);
    tasks->rows[tasks->n++] = task;
    return task;
}

static struct tasks *table_new(struct loop *loop, const struct cluster_spec *cluster,
                               bool is_of_session, uint64_t incarnation, int64_t heartbeat_ms,
                               task_event_fn *on_ready, task_event_fn *on_lost,
                               task_holdings_fn *holdings, void *arg) {
    struct tasks *tasks = xcalloc(1, sizeof *tasks);
    *tasks = (struct tasks){.loop = loop,
                            .is_of_session = is_of_session,
                            .incarnation = incarnation,
                            .heartbeat_ms = heartbeat_ms,
                            .on_ready = on_ready,
                            .on_lost = on_lost,
                            .holdings = holdings,
                            .links = link_table_new(),
                            .arg = arg};
    tasks->id_prefix = incarnation << 40; /* 24 random bits tell masters apart */
    tasks->lost_task.run = tasks_report_lost_calls;
    for (int i = 0; i < cluster->n_tasks; i++) {
        struct task *task = task_add(tasks, cluster->tasks[i].name, cluster->tasks[i].address);
        task->is_static = task->is_registered = task->is_expected = true;
        task_connect_soon(task);
    }
    loop_timer_init(loop, &tasks->tick, on_tick);
    loop_timer_start(&tasks->tick, heartbeat_tick_ms(heartbeat_ms),
                     heartbeat_tick_ms(heartbeat_ms));
    return tasks;
}

struct tasks *tasks_new(struct loop *loop, const struct cluster_spec *cluster, uint64_t incarnation,
                        int64_t heartbeat_ms, task_event_fn *on_ready, task_event_fn *on_lost,
                        task_holdings_fn *holdings, void *arg) {
    return table_new(loop, cluster, false, incarnation, heartbeat_ms, on_ready, on_lost, holdings,
                     arg);
}

struct tasks *tasks_new_session(struct loop *loop, const struct cluster_spec *cluster,
                                uint64_t incarnation, int64_t heartbeat_ms, task_event_fn *on_ready,
                                task_event_fn *on_lost, task_holdings_fn *holdings, void *arg) {
    return table_new(loop, cluster, true, incarnation, heartbeat_ms, on_ready, on_lost, holdings,
                     arg);
}

void task_expect_own(struct task *task, const char *own_name) {
    text_replace(&task->own_name, own_name);
}

void tasks_set_checksums(struct tasks *tasks, bool uses_checksums) {
    tasks->uses_checksums = uses_checksums;
}
void tasks_set_tls(struct tasks *tasks, struct tls *tls) { tasks->tls = tls; }

void tasks_set_client_address(struct tasks *tasks, const char *listen, int port) {
    struct net_address parsed;
    struct status *st = net_address_parse(listen, &parsed);
    bool is_any = !st && (!parsed.host[0] || strcmp(parsed.host, "0.0.0.0") == 0 ||
                          strcmp(parsed.host, "::") == 0);
    struct str text = STR_INIT;
    if (!st && !parsed.is_unix) {
        str_addf(&text, "%.*s:%d", is_any ? 0 : (int)(strrchr(listen, ':') - listen), listen, port);
        text_replace(&tasks->client_address, str_text(&text));
    }
    str_fini(&text);
    status_unref(st);
}

static void table_free(struct tasks *tasks) {
    device_table_unref(tasks->devices);
    link_table_free(tasks->links);
    free(tasks->client_address);
    free(tasks->rows);
    free(tasks);
}

static void timer_closed(struct loop_timer *timer) {
    struct task *task = CONTAINER_OF(timer, struct task, timer);
    struct tasks *tasks = task->tasks;
    task_free_devices(task);
    u64map_fini(&task->calls);
    status_unref(task->why_down);
    free(task->name);
    free(task->address);
    free(task->own_name);
    free(task->unix_address);
    free(task->host_id);
    free(task);
    if (--tasks->n > 0)
        return;
    table_free(tasks);
}

static void tick_closed(struct loop_timer *timer) {
    struct tasks *tasks = CONTAINER_OF(timer, struct tasks, tick);
    int n = tasks->n;
    if (n == 0)
        table_free(tasks);
    for (int i = 0; i < n; i++)
        loop_timer_close(&tasks->rows[i]->timer, timer_closed);
}

/* The loop refers to the table while lost_task is posted. */
void tasks_free_when_quiet(struct tasks *tasks) {
    if (tasks->is_freed && !tasks->lost_posted)
        loop_timer_close(&tasks->tick, tick_closed);
}

void tasks_close(struct tasks *tasks) {
    if (tasks->is_closing)
        return;
    struct status *why = status_new(STATUS_CANCELLED, "the master is stopping");
    tasks->is_closing = true;
    loop_timer_stop(&tasks->tick);
    for (int i = 0; i < tasks->n; i++) {
        loop_timer_stop(&tasks->rows[i]->timer);
        task_down(tasks->rows[i], why);
    }
    status_unref(why);
}

void tasks_free(struct tasks *tasks) {
    if (!tasks)
        return;
    tasks_close(tasks);
    tasks->is_freed = true;
    tasks_free_when_quiet(tasks);
}

/* While it is being linked, the task may hear each of the two Hellos before or after the other
 * connection has ended: behind each it must hear that this master leaves. */
static void leave_task(struct task *task, struct status *why) {
    static const struct wire_out leave = {.type = WIRE_LEAVE};
    loop_timer_stop(&task->timer);
    if (task->state != TASK_LINKING && task->state != TASK_READY) {
        task_down(task, why);
        return;
    }
    wire_send(task->control, &leave);
    if (task->state == TASK_LINKING)
        wire_send(task->bulk, &leave);
}

void tasks_leave(struct tasks *tasks) {
    if (!tasks)
        return;
    struct status *why = status_new(STATUS_CANCELLED, "the session's cluster is left");
    tasks->leaving_ns = clock_now_ns();
    for (int i = 0; i < tasks->n; i++)
        leave_task(tasks->rows[i], why);
    status_unref(why);
}
