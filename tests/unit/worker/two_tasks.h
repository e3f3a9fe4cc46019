/* Two tasks in one process and on one loop, each with its peers and rendezvous, connected as
 * tf-workers are. */
#ifndef MILLRACE_TESTS_UNIT_WORKER_TWO_TASKS_H
#define MILLRACE_TESTS_UNIT_WORKER_TWO_TASKS_H

#include <stdio.h>

#include "proto/worker.pb-c.h"
#include "tests/unit/rpc/loop_until.h"
#include "worker/exchange/peer.h"
#include "worker/exchange/rendezvous.h"

struct test_task {
    const char *name;
    uint64_t incarnation;
    struct loop *loop;
    struct peer_table *peers;
    struct rendezvous_table *rendezvous;
    struct wire_server *server, *tcp_server; /* the second: after task_listen_tcp */
    char address[64], tcp_address[64];
    struct peer *other;
    int n_lost; /* calls of on_lost */
    enum status_code lost_code;
    struct str lost_why;
    struct wire_conn *stranger; /* an accepted connection whose Hello was refused */
    int n_refused;
};

static inline void task_answer_hello(struct test_task *task, struct wire_conn *conn,
                                     unsigned channel) {
    struct str answer = STR_INIT;
    peer_hello_write(&answer, task->name, task->incarnation, channel, 0);
    wire_send(conn, &(struct wire_out){.type = WIRE_HELLO, .meta = {answer.data, answer.len}});
    str_fini(&answer);
}

static inline void task_on_hello(void *owner, struct wire_conn *conn,
                                 struct wire_message *message) {
    struct test_task *task = owner;
    Millrace__Hello *hello =
        millrace__hello__unpack(NULL, message->meta.len, (const uint8_t *)message->meta.data);
    CHECK(hello && message->type == WIRE_HELLO);
    if (hello->channel <= CHANNEL_STREAM)
        task_answer_hello(task, conn, hello->channel);
    struct peer_greeting greeting = {.task = hello->task,
                                     .incarnation = hello->incarnation,
                                     .kind = (enum channel_kind)hello->channel,
                                     .n_streams = hello->streams,
                                     .takes_pieces = hello->takes_pieces,
                                     .epoch = hello->epoch};
    struct status *st = peer_table_accept(task->peers, conn, &greeting);
    if (!st && hello->channel > CHANNEL_STREAM)
        task_answer_hello(task, conn, hello->channel);
    millrace__hello__free_unpacked(hello, NULL);
    if (st) {
        task->n_refused++;
        wire_conn_close(conn, st);
    }
}

static inline void task_on_closed(void *owner, struct wire_conn *conn, struct status *why) {
    wire_conn_unref(conn);
}

static const struct wire_handlers task_handlers = {.on_message = task_on_hello,
                                                   .on_closed = task_on_closed};

static inline void task_on_accept(void *arg, struct wire_conn *conn_take) {
    wire_conn_set_owner(conn_take, arg, &task_handlers);
}

static inline void task_on_lost(void *arg, struct peer *peer, struct status *why) {
    struct test_task *task = arg;
    task->n_lost++;
    task->lost_code = status_code(why);
    str_clear(&task->lost_why);
    str_add(&task->lost_why, status_message(why));
}

static inline void task_init(struct test_task *task, struct loop *loop, const char *name) {
    static int n_made;
    memset(task, 0, sizeof(*task));
    task->loop = loop;
    task->name = name;
    task->incarnation = 1000 + (uint64_t)n_made;
    task->peers = peer_table_new(loop, name, task->incarnation);
    peer_table_set_on_lost(task->peers, task_on_lost, task);
    task->rendezvous = rendezvous_table_new(task->peers, allocator_host());
    snprintf(task->address, sizeof(task->address), "unix:@millrace-test-task-%d-%d", (int)getpid(),
             n_made++);
    struct status *st = wire_listen(loop, task->address, task_on_accept, task, &task->server);
    CHECK(!st);
}

/* For transports over TCP. */
static inline void task_listen_tcp(struct test_task *task, const char *host) {
    char address[64];
    snprintf(address, sizeof(address), "%s:0", host);
    struct status *st = wire_listen(task->loop, address, task_on_accept, task, &task->tcp_server);
    CHECK(!st);
    snprintf(task->tcp_address, sizeof(task->tcp_address), "%s:%d", host,
             wire_server_port(task->tcp_server));
}

static inline void task_fini(struct test_task *task) {
    rendezvous_table_free(task->rendezvous);
    peer_table_free(task->peers);
    wire_server_close(task->server);
    wire_server_close(task->tcp_server);
    str_fini(&task->lost_why);
}

/* Both, and the loop that they share. */
static inline void tasks_fini(struct test_task *a, struct test_task *b) {
    struct loop *loop = a->loop;
    task_fini(a);
    task_fini(b);
    loop_end(loop);
}

/* Makes the tasks known to each other, as a registration does. */
static inline void tasks_meet(struct test_task *a, struct test_task *b) {
    struct status *st =
        peer_table_know(a->peers, b->name, "127.0.0.1:1", b->address, b->incarnation, &a->other);
    CHECK(!st);
    st = peer_table_know(b->peers, a->name, "127.0.0.1:1", a->address, a->incarnation, &b->other);
    CHECK(!st);
}

/* As tasks_meet, for tasks on two hosts: they have no Unix address for each other. */
static inline void tasks_meet_over_tcp(struct test_task *a, struct test_task *b) {
    struct status *st =
        peer_table_know(a->peers, b->name, b->tcp_address, "", b->incarnation, &a->other);
    CHECK(!st);
    st = peer_table_know(b->peers, a->name, a->tcp_address, "", a->incarnation, &b->other);
    CHECK(!st);
}

/* Replaces the rendezvous of both tasks by `receiver`, with the arguments `at_a` and `at_b`. */
static inline void tasks_receive(struct test_task *a, struct test_task *b,
                                 const struct peer_receiver *receiver, void *at_a, void *at_b) {
    rendezvous_table_free(a->rendezvous);
    rendezvous_table_free(b->rendezvous);
    a->rendezvous = b->rendezvous = NULL;
    peer_table_set_receiver(a->peers, receiver, at_a);
    peer_table_set_receiver(b->peers, receiver, at_b);
}

/* A receive and its result. */
struct wait {
    struct rendezvous_recv recv; /* on_value: wait_on_value */
    struct tensor value;
    struct status *status;
    _Atomic int n_calls;
};

static inline void wait_on_value(struct rendezvous_recv *recv, struct status *status_take,
                                 struct tensor *value_take) {
    struct wait *wait = CONTAINER_OF(recv, struct wait, recv);
    wait->status = status_take;
    if (!status_take)
        tensor_move(&wait->value, value_take);
    wait->n_calls++;
}

static inline void task_receive(struct test_task *task, const char *from, uint64_t step,
                                uint32_t edge, struct wait *wait) {
    struct plan_channel channel = {
        .edge = edge, .tensor_name = "v:0", .peer_task = from, .dtype = DT_INVALID};
    struct rendezvous *rendezvous = rendezvous_open(task->rendezvous, step, NULL, NULL);
    memset(wait, 0, sizeof(*wait));
    wait->recv.on_value = wait_on_value;
    if (rendezvous_recv_start(rendezvous, &channel, 0, &wait->recv, &wait->value))
        wait->n_calls = 1;
    rendezvous_unref(rendezvous);
}

static inline void task_send(struct test_task *task, const char *to, uint64_t step, uint32_t edge,
                             const struct tensor *value) {
    struct plan_channel channel = {
        .edge = edge, .tensor_name = "v:0", .peer_task = to, .dtype = DT_INVALID};
    struct rendezvous *rendezvous = rendezvous_open(task->rendezvous, step, NULL, NULL);
    struct tensor copy;
    tensor_copy(&copy, value);
    struct status *st = rendezvous_send(rendezvous, &channel, 0, &copy);
    CHECK(!st);
    rendezvous_flush(rendezvous);
    rendezvous_unref(rendezvous);
}

/* Does the page about the peers contain the words? */
static inline bool task_says(struct test_task *task, const char *words) {
    struct str page = STR_INIT;
    peer_table_describe(task->peers, &page);
    bool is_said = strstr(str_text(&page), words) != NULL;
    str_fini(&page);
    return is_said;
}

/* n floats that tell values apart. */
static inline void value_make(struct tensor *t, struct allocator *allocator, int64_t n,
                              float seed) {
    *t = TENSOR_INIT;
    struct status *st = tensor_new(allocator, DT_FLOAT, (struct shape){1, &n}, t);
    CHECK(!st);
    for (int64_t i = 0; i < n; i++)
        ((float *)tensor_data(t))[i] = seed + (float)(i % 1000);
}

static inline bool value_holds(const struct tensor *t, int64_t n, float seed) {
    bool is_right = t->dtype == DT_FLOAT && t->n_elements == n;
    for (int64_t i = 0; is_right && i < n; i++)
        is_right = ((const float *)tensor_cdata(t))[i] == seed + (float)(i % 1000);
    return is_right;
}

#endif
