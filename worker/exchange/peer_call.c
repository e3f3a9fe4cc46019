/* Sends requests of kernels to other tasks, and hands their replies back. */
#include "worker/exchange/peer_call.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/map.h"
#include "proto/worker.pb-c.h"
#include "rpc/wire/heartbeat.h"
#include "worker/exchange/peer.h"

struct peer_call_table {
    struct loop *loop;
    char *task;
    uint64_t cluster; /* of a session; 0: the tasks' own */
    char *own_task;   /* this task's name in its own cluster; NULL: `task` */
    uint64_t incarnation;
    int64_t heartbeat_ms;
    struct tls *tls;
    bool uses_checksums;
    struct strmap tasks;
    struct loop_timer timer; /* ticks while there are connections */
    int n_conns;
    bool is_stopped, is_freed, is_timer_closed;
};

struct peer_call_task {
    struct peer_call_table *table;
    char *name;
    char *own_task; /* its name in its own cluster; NULL: `name` */
    char *address, *unix_address;
    struct wire_conn *conn; /* one reference, or NULL */
    bool is_unix, is_greeted, avoid_unix;
    /* An idle connection is being closed: new calls wait for the next one. */
    bool is_letting_go;
    struct heartbeat heartbeat;
    int64_t idle_since_ns;
    uint64_t next_id;
    struct u64map calls; /* id → struct peer_call */
    struct loop_task start_task;

    pthread_mutex_t lock; /* guards what follows */
    struct list starting; /* peer_call.link: calls that were not sent yet */
    bool is_start_posted;
};

/* ---- calls ---- */

/* Gives the call back to its caller. */
static void end_call(struct peer_call *call, struct status *status_take) {
    free(call->record);
    call->record = NULL;
    call->status = status_take;
    call->on_done(call);
}

static void fail_all(struct peer_call_task *task, struct status *why) {
    struct list failed;
    size_t cursor = 0;
    uint64_t id;
    void *call;
    list_init(&failed);
    while (u64map_next(&task->calls, &cursor, &id, &call))
        list_push_back(&failed, &((struct peer_call *)call)->link);
    u64map_fini(&task->calls);
    u64map_init(&task->calls);
    for (struct list *link; (link = list_pop_front(&failed));)
        end_call(LIST_ENTRY(link, struct peer_call, link), status_ref(why));
}

static void send_call(struct peer_call_task *task, struct peer_call *call) {
    call->id = ++task->next_id;
    u64map_put(&task->calls, call->id, call);
    wire_queue(task->conn, &(struct wire_out){.type = WIRE_PEER_REQUEST,
                                              .id = call->id,
                                              .meta = {call->record, call->request.len}});
}

static void open_conn(struct peer_call_task *task);

/* Takes the calls that may be sent now. The other task disconnects a caller with more than
 * PEER_MAX_CALLS unanswered calls, so the rest wait, in order, until replies arrive. A table that
 * has stopped takes all of them, to refuse them. */
static void take_starting(struct peer_call_task *task, struct list *ret) {
    bool is_over = !task->conn && task->table->is_stopped;
    struct list *link;
    for (size_t n = task->calls.n_entries;
         (is_over || n < PEER_MAX_CALLS) && (link = list_pop_front(&task->starting)); n++)
        list_push_back(ret, link);
}

static void on_start(struct loop_task *loop_task) {
    struct peer_call_task *task = CONTAINER_OF(loop_task, struct peer_call_task, start_task);
    struct list starting;
    list_init(&starting);
    pthread_mutex_lock(&task->lock);
    task->is_start_posted = false;
    if (!task->is_letting_go)
        take_starting(task, &starting);
    pthread_mutex_unlock(&task->lock);
    if (list_is_empty(&starting))
        return;
    if (!task->conn && !task->table->is_stopped)
        open_conn(task);
    for (struct list *link; (link = list_pop_front(&starting));) {
        struct peer_call *call = LIST_ENTRY(link, struct peer_call, link);
        if (task->conn && call->request.len <= PEER_MAX_REQUEST_BYTES)
            send_call(task, call);
        else if (task->conn)
            end_call(call,
                     status_exhausted("a request of %zu bytes to %s exceeds the limit of %d (it "
                                      "holds a name or path that is too long)",
                                      call->request.len, task->name, PEER_MAX_REQUEST_BYTES));
        else
            end_call(call, status_unavailable("%s is stopping", task->table->task));
    }
    if (task->conn)
        wire_flush(task->conn);
}

/* `call` may be NULL: then the connection is for the calls that wait already, if there are any. */
static void post_start(struct peer_call_task *task, struct peer_call *call) {
    pthread_mutex_lock(&task->lock);
    if (call)
        list_push_back(&task->starting, &call->link);
    bool must_post = !task->is_start_posted && !list_is_empty(&task->starting);
    task->is_start_posted |= must_post;
    pthread_mutex_unlock(&task->lock);
    if (must_post)
        loop_post(task->table->loop, &task->start_task);
}

void peer_call_start(struct peer_call_task *task, struct peer_call *call) {
    char *copy = xmalloc(call->request.len + 1);
    memcpy(copy, call->request.data, call->request.len);
    call->record = copy;
    call->status = NULL;
    call->reply = STR_INIT;
    call->payload = NULL;
    call->payload_bytes = 0;
    post_start(task, call);
}

/* ---- replies ---- */

static struct status *on_reply(struct peer_call_task *task, struct wire_message *message) {
    struct peer_call *call = u64map_remove(&task->calls, message->id);
    if (!call)
        return status_invalid("task %s replied to a call that it did not get", task->name);
    Millrace__PeerReply *reply =
        millrace__peer_reply__unpack(NULL, message->meta.len, (const uint8_t *)message->meta.data);
    struct status *st = NULL;
    if (!reply) {
        st = status_internal("task %s sent a malformed reply", task->name);
    } else if (reply->code) {
        st = status_prefix_take(status_from_wire(reply->code, span_of(reply->message)),
                                "From %s: ", task->name);
    } else {
        str_add_bytes(&call->reply, reply->reply.data, reply->reply.len);
        call->payload = message->payload;
        call->payload_bytes = message->payload_len;
        message->payload = NULL;
    }
    if (reply)
        millrace__peer_reply__free_unpacked(reply, NULL);
    if (task->calls.n_entries == 0)
        task->idle_since_ns = clock_now_ns();
    end_call(call, st);
    post_start(task, NULL);
    return NULL;
}

static struct status *check_hello(struct peer_call_task *task, struct span meta) {
    Millrace__Hello *hello = millrace__hello__unpack(NULL, meta.len, (const uint8_t *)meta.data);
    struct status *st = NULL;
    if (!hello)
        return status_invalid("malformed Hello from task %s", task->name);
    if (hello->protocol != WIRE_PROTOCOL)
        st = status_failed_precondition(
            "task %s speaks protocol %u of the worker wire, but this task speaks %d", task->name,
            hello->protocol, WIRE_PROTOCOL);
    else if (strcmp(hello->task, task->name) != 0)
        st = status_failed_precondition("task %s was dialled, but task %.200s answered", task->name,
                                        hello->task);
    millrace__hello__free_unpacked(hello, NULL);
    task->is_greeted = !st;
    return st;
}

static void on_message(void *owner, struct wire_conn *conn, struct wire_message *message) {
    struct peer_call_task *task = owner;
    struct status *st = NULL;
    if (task->conn != conn)
        return;
    heartbeat_heard(&task->heartbeat, clock_now_ns());
    switch (message->type) {
    case WIRE_HELLO:
        st = check_hello(task, message->meta);
        break;
    case WIRE_PONG:
        heartbeat_pong(&task->heartbeat, clock_now_ns(), message->id, message->meta);
        break;
    case WIRE_PEER_REPLY:
        st = on_reply(task, message);
        break;
    default:
        st = status_invalid("a message of type %d instead of a reply", (int)message->type);
    }
    if (st)
        wire_conn_close(conn, st);
}

static struct buffer *on_alloc(void *owner, struct wire_conn *conn,
                               const struct wire_message *message, size_t size_bytes) {
    struct peer_call_task *task = owner;
    if (message->type != WIRE_PEER_REPLY || size_bytes > PEER_MAX_PAYLOAD_BYTES ||
        !u64map_get(&task->calls, message->id))
        return NULL;
    return buffer_alloc(allocator_host(), size_bytes);
}

/* ---- connections ---- */

static void table_free_when_done(struct peer_call_table *table);

/* Its Unix socket could not be reached (another network namespace with the same host id, or the
 * socket is off), so TCP is tried. */
static bool try_tcp(struct peer_call_task *task) {
    if (!task->is_unix || task->is_greeted || task->table->is_stopped || !*task->address)
        return false;
    size_t cursor = 0;
    uint64_t id;
    void *call;
    task->avoid_unix = true;
    while (u64map_next(&task->calls, &cursor, &id, &call))
        post_start(task, call);
    u64map_fini(&task->calls);
    u64map_init(&task->calls);
    return true;
}

static void on_closed(void *owner, struct wire_conn *conn, struct status *why) {
    struct peer_call_task *task = owner;
    struct peer_call_table *table = task->table;
    heartbeat_stop(&task->heartbeat);
    wire_conn_unref(task->conn);
    task->conn = NULL;
    if (--table->n_conns == 0)
        loop_timer_stop(&table->timer);
    task->is_letting_go = false;
    if (!try_tcp(task) && task->calls.n_entries > 0) {
        struct status *lost = status_unavailable("Lost the connection to task %s: %s", task->name,
                                                 why ? status_message(why) : "closed");
        fail_all(task, lost);
        status_unref(lost);
    }
    post_start(task, NULL);
    table_free_when_done(table);
}

static const struct wire_handlers handlers = {.on_message = on_message,
                                              .alloc = on_alloc,
                                              .on_closed = on_closed,
                                              .max_payload_bytes = PEER_MAX_PAYLOAD_BYTES};

static void open_conn(struct peer_call_task *task) {
    struct peer_call_table *table = task->table;
    struct str hello = STR_INIT;
    task->is_unix = *task->unix_address && !task->avoid_unix;
    task->is_greeted = false;
    task->idle_since_ns = clock_now_ns();
    task->conn = wire_connect(table->loop, task->is_unix ? task->unix_address : task->address,
                              &handlers, task);
    wire_conn_secure(task->conn, table->tls, task->own_task ? task->own_task : task->name);
    if (table->uses_checksums)
        wire_conn_use_checksums(task->conn);
    heartbeat_start(&task->heartbeat, table->heartbeat_ms, false, clock_now_ns());
    if (table->n_conns++ == 0)
        loop_timer_start(&table->timer, heartbeat_tick_ms(table->heartbeat_ms),
                         heartbeat_tick_ms(table->heartbeat_ms));
    peer_hello_write(&hello, table->task, table->incarnation, CHANNEL_PEER_CALLS, 0);
    if (table->cluster)
        peer_hello_add_cluster(&hello, table->cluster, table->own_task);
    wire_queue(task->conn, &(struct wire_out){.type = WIRE_HELLO, .meta = {hello.data, hello.len}});
    str_fini(&hello);
}

static void send_ping(struct peer_call_task *task, int64_t now_ns) {
    struct str meta = STR_INIT;
    heartbeat_ping(&task->heartbeat, now_ns, clock_wall_us(), &meta);
    wire_send(task->conn, &(struct wire_out){.type = WIRE_PING,
                                             .id = task->heartbeat.ping_id,
                                             .meta = {meta.data, meta.len}});
    str_fini(&meta);
}

static void task_tick(struct peer_call_task *task, int64_t now_ns) {
    if (!task->conn)
        return;
    if (task->calls.n_entries == 0 &&
        now_ns - task->idle_since_ns > PEER_CALL_IDLE_MS * 1000000ll) {
        task->is_letting_go = true;
        wire_conn_close(task->conn, NULL);
        return;
    }
    unsigned actions = heartbeat_tick(&task->heartbeat, now_ns);
    if (actions & HEARTBEAT_PING)
        send_ping(task, now_ns);
    if (actions & HEARTBEAT_LOST)
        wire_conn_close(task->conn, heartbeat_silence(&task->heartbeat, now_ns));
}

static void on_timer(struct loop_timer *timer) {
    struct peer_call_table *table = CONTAINER_OF(timer, struct peer_call_table, timer);
    int64_t now_ns = clock_now_ns();
    size_t cursor = 0;
    struct span key;
    void *task;
    while (strmap_next(&table->tasks, &cursor, &key, &task))
        task_tick(task, now_ns);
}

/* ---- the table ---- */

struct peer_call_table *peer_call_table_new(struct loop *loop, const char *task,
                                            uint64_t incarnation, int64_t heartbeat_ms) {
    struct peer_call_table *table = xcalloc(1, sizeof(*table));
    table->loop = loop;
    table->task = xstrdup(task);
    table->incarnation = incarnation;
    table->heartbeat_ms = heartbeat_ms;
    strmap_init(&table->tasks);
    loop_timer_init(loop, &table->timer, on_timer);
    return table;
}

void peer_call_table_set_checksums(struct peer_call_table *table, bool uses_checksums) {
    table->uses_checksums = uses_checksums;
}
void peer_call_table_set_tls(struct peer_call_table *table, struct tls *tls) { table->tls = tls; }

void peer_call_table_set_cluster(struct peer_call_table *table, uint64_t cluster,
                                 const char *own_task) {
    table->cluster = cluster;
    text_replace(&table->own_task, own_task);
}

struct status *peer_call_table_know(struct peer_call_table *table, const char *name,
                                    const char *address, const char *unix_address,
                                    struct peer_call_task **ret) {
    struct peer_call_task *task = strmap_get(&table->tasks, name);
    if (!task) {
        if (table->tasks.n_entries >= PEER_CALL_MAX_TASKS)
            return status_exhausted(
                "%d other tasks are known already, so task %.200s cannot be added",
                PEER_CALL_MAX_TASKS, name);
        task = xcalloc(1, sizeof(*task));
        task->table = table;
        task->name = xstrdup(name);
        task->start_task.run = on_start;
        u64map_init(&task->calls);
        list_init(&task->starting);
        CHECK(pthread_mutex_init(&task->lock, NULL) == 0);
        strmap_put(&table->tasks, task->name, task);
    }
    if (!task->unix_address || strcmp(task->unix_address, unix_address) != 0)
        task->avoid_unix = false; /* another process: the old connection leads to an ended one */
    text_replace(&task->address, address);
    text_replace(&task->unix_address, unix_address);
    *ret = task;
    return NULL;
}

void peer_call_task_set_own(struct peer_call_task *task, const char *own_task) {
    text_replace(&task->own_task, own_task);
}
const char *peer_call_task_name(const struct peer_call_task *task) { return task->name; }

void peer_call_table_stop(struct peer_call_table *table) {
    size_t cursor = 0;
    struct span key;
    void *entry;
    table->is_stopped = true;
    while (strmap_next(&table->tasks, &cursor, &key, &entry)) {
        struct peer_call_task *task = entry;
        if (task->conn)
            wire_conn_close(task->conn, status_unavailable("%s is stopping", table->task));
    }
}

static void table_free_when_done(struct peer_call_table *table) {
    size_t cursor = 0;
    struct span key;
    void *entry;
    if (!table->is_freed || !table->is_timer_closed || table->n_conns > 0)
        return;
    while (strmap_next(&table->tasks, &cursor, &key, &entry)) {
        struct peer_call_task *task = entry;
        CHECK(task->calls.n_entries == 0 && list_is_empty(&task->starting));
        u64map_fini(&task->calls);
        pthread_mutex_destroy(&task->lock);
        free(task->name);
        free(task->own_task);
        free(task->address);
        free(task->unix_address);
        free(task);
    }
    strmap_fini(&table->tasks);
    free(table->task);
    free(table->own_task);
    free(table);
}

static void on_timer_closed(struct loop_timer *timer) {
    struct peer_call_table *table = CONTAINER_OF(timer, struct peer_call_table, timer);
    table->is_timer_closed = true;
    table_free_when_done(table);
}

void peer_call_table_free(struct peer_call_table *table) {
    if (!table)
        return;
    peer_call_table_stop(table);
    table->is_freed = true;
    loop_timer_close(&table->timer, on_timer_closed);
}
