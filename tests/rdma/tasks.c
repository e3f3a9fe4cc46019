/* Two tasks in two processes that exchange values over a real RDMA device: run in the guest of
 * tests/rdma.
 *
 *   rdma_tasks values MB     both ways, checked element by element
 *   rdma_tasks kill MB       the receiver is killed in the midst of a write, and then the sender
 *   rdma_tasks cut MB        the network of the device goes away: the value comes over TCP, and
 *                            the reason is said
 *   rdma_tasks refused MB    the other task has RDMA switched off
 *   rdma_tasks required      the same, where this one requires it
 *   rdma_tasks keys          a line alone: wrong keys, too many bytes, a place that has been
 *                            withdrawn
 *
 * Exits with 0 when all was as it should be; a CHECK that fails says which. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "rpc/rdma/rdma_in.h"
#include "tests/unit/worker/two_tasks.h"

static const char *const parent_name = "/job:ps/replica:0/task:0",
                         *const child_name = "/job:worker/replica:0/task:0";
enum { N_EDGES = 4 }; /* of the values that are under way when a task is killed */

static struct loop *loop;
static struct test_task task;
static int64_t n_elements;
static int to_child[2], to_parent[2];
static pid_t child;

/* Enough for everything, also when emulated on a busy machine: what hangs is ended. */
static void turn_until(bool (*is_done)(const void *arg), const void *arg) {
    alarm(120);
    while (!is_done(arg))
        loop_iterate(loop);
    alarm(0);
}

/* ---- tasks ---- */

static struct rdma_device *open_device(void) {
    const struct verbs *verbs;
    struct rdma_choice any = {.gid = -1};
    struct rdma_device *device;
    struct status *st = verbs_get(&verbs);
    if (!st)
        st = rdma_device_open(loop, verbs, &any, &device);
    if (st)
        fprintf(stderr, "%s\n", status_message(st));
    CHECK(!st);
    return device;
}

struct identity {
    char address[64];
    uint64_t incarnation;
};

static void start_task(const char *name, const char *other, enum rdma_mode mode, int out, int in) {
    struct identity mine = {.address = ""}, theirs;
    loop = loop_new();
    task_init(&task, loop, name);
    task.incarnation += (uint64_t)getpid() << 32;
    peer_table_use_rdma(task.peers, mode, mode == RDMA_OFF ? NULL : open_device(), "switched off");
    task_listen_tcp(&task, "127.0.0.1");
    snprintf(mine.address, sizeof(mine.address), "%s", task.tcp_address);
    CHECK(write(out, &mine, sizeof(mine)) == sizeof(mine));
    CHECK(read(in, &theirs, sizeof(theirs)) == sizeof(theirs));
    struct status *st = peer_table_know(task.peers, other, theirs.address, "", 0, &task.other);
    CHECK(!st);
}

static void end_task(void) {
    task_fini(&task);
    loop_stop(loop);
    loop_run(loop);
    loop_free(loop);
}

static bool says(const void *words) {
    struct str page = STR_INIT;
    peer_table_describe(task.peers, &page);
    bool is_said = strstr(str_text(&page), words) != NULL;
    str_fini(&page);
    return is_said;
}

static void show_page(void) {
    struct str page = STR_INIT;
    peer_table_describe(task.peers, &page);
    printf("%s\n", str_text(&page));
    str_fini(&page);
    fflush(stdout);
}

static bool is_ready(const void *arg) {
    return says("\"to\":\"ready\",\"from\":\"ready\",\"written\"");
}
static bool is_lost(const void *arg) { return task.n_lost > 0; }

/* ---- values ---- */

static int64_t element(int64_t i, uint64_t step) {
    return (int64_t)((uint64_t)i * 0x9e3779b97f4a7c15ull + step);
}

static void make(struct tensor *t, uint64_t step) {
    *t = TENSOR_INIT;
    struct status *st = tensor_new(allocator_host(), DT_INT64, (struct shape){1, &n_elements}, t);
    CHECK(!st);
    int64_t *data = tensor_data(t);
    for (int64_t i = 0; i < n_elements; i++)
        data[i] = element(i, step);
}

static void check_value(const struct tensor *t, uint64_t step) {
    const int64_t *data = tensor_cdata(t);
    CHECK(t->dtype == DT_INT64 && t->n_elements == n_elements);
    for (int64_t i = 0; i < n_elements; i++)
        CHECK(data[i] == element(i, step));
}

static bool has_come(const void *wait) { return ((const struct wait *)wait)->n_calls > 0; }

static void begin_receive_edge(uint64_t step, uint32_t edge, struct wait *wait) {
    const char *other = peer_name(task.other);
    struct plan_channel channel = {
        .edge = edge, .tensor_name = "v:0", .peer_task = other, .dtype = DT_INT64};
    struct rendezvous *rendezvous = rendezvous_open(task.rendezvous, step, NULL, NULL);
    memset(wait, 0, sizeof(*wait));
    wait->recv.on_value = wait_on_value;
    if (rendezvous_recv_start(rendezvous, &channel, 0, &wait->recv, &wait->value))
        wait->n_calls = 1;
    rendezvous_unref(rendezvous);
}

static void receive(uint64_t step) {
    struct wait wait;
    begin_receive_edge(step, 0, &wait);
    turn_until(has_come, &wait);
    CHECK(!wait.status);
    check_value(&wait.value, step);
    tensor_clear(&wait.value);
}

static void send_edge(uint64_t step, uint32_t edge, const struct tensor *value) {
    struct plan_channel channel = {
        .edge = edge, .tensor_name = "v:0", .peer_task = peer_name(task.other), .dtype = DT_INT64};
    struct rendezvous *rendezvous = rendezvous_open(task.rendezvous, step, NULL, NULL);
    struct tensor copy;
    tensor_copy(&copy, value);
    struct status *st = rendezvous_send(rendezvous, &channel, 0, &copy);
    CHECK(!st);
    rendezvous_flush(rendezvous);
    rendezvous_unref(rendezvous);
}

static void send_value(uint64_t step, const struct tensor *value) { send_edge(step, 0, value); }

static bool is_sole(const void *value) { return tensor_is_sole((struct tensor *)(uintptr_t)value); }

/* ---- the other process ---- */

static void child_echo(void) { /* step 7 comes, step 8 goes */
    struct tensor value;
    receive(7);
    make(&value, 8);
    send_value(8, &value);
    for (;;)
        loop_iterate(loop);
}

static void child_receive(void) {
    static struct wait waits[N_EDGES];
    for (uint32_t edge = 0; edge < N_EDGES; edge++)
        begin_receive_edge(7, edge, &waits[edge]);
    for (;;)
        loop_iterate(loop);
}

static void child_send(void) {
    struct tensor value;
    peer_connect(task.other);
    turn_until(is_ready, NULL);
    make(&value, 7);
    for (uint32_t edge = 0; edge < N_EDGES; edge++)
        send_edge(7, edge, &value);
    for (;;)
        loop_iterate(loop);
}

static void start_both(enum rdma_mode parent_mode, enum rdma_mode child_mode,
                       void (*run_child)(void)) {
    CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
    child = fork(); /* before there is a loop, a device or a thread */
    CHECK(child >= 0);
    if (child == 0) {
        start_task(child_name, parent_name, child_mode, to_parent[1], to_child[0]);
        run_child();
    }
    start_task(parent_name, child_name, parent_mode, to_child[1], to_parent[0]);
}

static void kill_child(void) {
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child);
    for (int i = 0; i < 2; i++) {
        close(to_child[i]);
        close(to_parent[i]);
    }
}

/* ---- cases ---- */

static void exchange(void) {
    struct tensor value;
    peer_connect(task.other);
    make(&value, 7);
    send_value(7, &value);
    receive(8);
    turn_until(is_sole, &value);
    tensor_clear(&value);
}

static void case_values(void) {
    char words[100];
    start_both(RDMA_PREFER, RDMA_PREFER, child_echo);
    exchange();
    snprintf(words, sizeof(words),
             "\"written\":1,\"written_bytes\":%lld,\"received\":1,\"received_bytes\":%lld,\"tcp_"
             "instead\":0",
             (long long)n_elements * 8, (long long)n_elements * 8);
    show_page();
    CHECK(says(words) && says("\"transport\":\"rdma\"") && says("\"bulk\":false"));
    struct str page = STR_INIT;
    peer_table_describe_rdma(task.peers, &page);
    printf("%s\n", str_text(&page));
    str_fini(&page);
    kill_child();
    end_task();
}

static bool is_writing(const void *arg) { return says("\"written\":0") && !says("\"writing\":0"); }
static bool is_landing(const void *arg) { return is_ready(NULL) && !says("\"pending\":0"); }

/* How far the writes get until the system has taken the other process apart is its own affair:
 * what matters is what comes after. */
static void case_kill_receiver(void) {
    struct tensor value;
    start_both(RDMA_PREFER, RDMA_PREFER, child_receive);
    peer_connect(task.other);
    turn_until(is_ready, NULL);
    make(&value, 7);
    for (uint32_t edge = 0; edge < N_EDGES; edge++)
        send_edge(7, edge, &value);
    turn_until(is_writing, NULL);
    kill_child();
    turn_until(is_lost, NULL);
    rendezvous_end_step(task.rendezvous, 7);
    turn_until(is_sole, &value);
    CHECK(says("\"writing\":0"));
    tensor_clear(&value);
    end_task();
}

static void case_kill_sender(void) {
    struct wait waits[N_EDGES];
    start_both(RDMA_PREFER, RDMA_PREFER, child_send);
    int64_t before = atomic_load(&allocator_host()->in_use_bytes);
    for (uint32_t edge = 0; edge < N_EDGES; edge++)
        begin_receive_edge(7, edge, &waits[edge]);
    turn_until(is_landing, NULL);
    kill_child();
    turn_until(is_lost, NULL);
    rendezvous_end_step(task.rendezvous, 7);
    for (int i = 0; i < N_EDGES; i++) {
        CHECK(waits[i].n_calls == 1);
        if (waits[i].status) {
            status_unref(waits[i].status);
        } else { /* it had arrived */
            check_value(&waits[i].value, 7);
            tensor_clear(&waits[i].value);
        }
    }
    end_task();
    CHECK(atomic_load(&allocator_host()->in_use_bytes) <= before);
}

static void case_kill(void) {
    case_kill_receiver();
    case_kill_sender();
}

static void case_cut(void) {
    start_both(RDMA_PREFER, RDMA_PREFER, child_echo);
    peer_connect(task.other);
    turn_until(is_ready, NULL);
    CHECK(system("ip link set dummy0 down") == 0);
    exchange();
    show_page();
    CHECK(task.n_lost == 0 && says("\"written\":0") && says("\"transport\":\"tcp\""));
    CHECK(says("RDMA write: ")); /* and then the verb's words */
    kill_child();
    end_task();
    CHECK(
        system("ip link set dummy0 up && ip addr add 10.77.0.1/24 dev dummy0 2> /dev/null; true") ==
        0);
}

static void case_refused(void) {
    start_both(RDMA_PREFER, RDMA_OFF, child_echo);
    exchange();
    CHECK(says("\"to\":\"it says: switched off\"") && says("\"transport\":\"tcp\"") &&
          says("\"written\":0"));
    kill_child();
    end_task();
}

static void case_required(void) {
    start_both(RDMA_REQUIRE, RDMA_OFF, child_echo);
    peer_connect(task.other);
    turn_until(is_lost, NULL);
    printf("%s\n", str_text(&task.lost_why));
    CHECK(task.lost_code == STATUS_FAILED_PRECONDITION &&
          strstr(str_text(&task.lost_why), "RDMA is required here (--rdma=require)"));
    kill_child();
    end_task();
}

/* ---- a line alone ---- */

enum { PLACE_BYTES = 1 << 20 };

struct connection {
    struct rdma_device *sender, *receiver;
    struct rdma_out out;
    struct rdma_in in;
    struct rdma_transfer transfer;
    struct rdma_pending_write pending;
    struct buffer *source, *target;
    bool is_granted, is_written, is_landed, is_over, is_withdrawn;
    struct str why;
};

static void on_written(void *owner, struct rdma_transfer *transfer) {
    ((struct connection *)owner)->is_written = true;
}
static void on_out_refused(void *owner, struct rdma_transfer *transfer, struct status *why) {
    CHECK(!why);
}
static void on_out_failed(void *owner, struct status *why) {
    struct connection *connection = owner;
    connection->is_over = true;
    str_add(&connection->why, status_message(why));
}
static void on_abandoned(struct rdma_transfer *transfer) { CHECK(false); }
static void on_granted(void *owner, struct rdma_pending_write *pending) {
    ((struct connection *)owner)->is_granted = true;
}
static void on_in_refused(void *owner, struct rdma_pending_write *pending, struct status *why) {
    CHECK(!why);
}
static void on_received(void *owner, struct rdma_pending_write *pending) {
    ((struct connection *)owner)->is_landed = true;
}
static void on_withdrawn(void *owner, struct rdma_pending_write *pending) {
    ((struct connection *)owner)->is_withdrawn = true;
}
static void on_in_failed(void *owner, struct status *why) {}

static const struct rdma_out_handlers out_handlers = {.on_written = on_written,
                                                      .on_refused = on_out_refused,
                                                      .on_failed = on_out_failed,
                                                      .on_abandoned = on_abandoned};
static const struct rdma_in_handlers in_handlers = {.on_granted = on_granted,
                                                    .on_refused = on_in_refused,
                                                    .on_received = on_received,
                                                    .on_withdrawn = on_withdrawn,
                                                    .on_failed = on_in_failed};

static bool is_granted(const void *connection) {
    return ((const struct connection *)connection)->is_granted;
}
static bool is_landed(const void *connection) {
    return ((const struct connection *)connection)->is_landed &&
           ((const struct connection *)connection)->is_written;
}
static bool is_over(const void *connection) {
    return ((const struct connection *)connection)->is_over;
}
static bool is_withdrawn(const void *connection) {
    return ((const struct connection *)connection)->is_withdrawn ||
           ((const struct connection *)connection)->is_landed;
}

static void open_line(struct connection *connection) {
    struct rdma_address out_address, in_address;
    memset(connection, 0, sizeof(*connection));
    loop = loop_new();
    connection->sender = open_device();
    connection->receiver = open_device();
    connection->source = buffer_alloc(allocator_host(), 2 * PLACE_BYTES);
    connection->target = buffer_alloc(allocator_host(), PLACE_BYTES);
    memset(connection->source->data, 'x', 2 * PLACE_BYTES);
    memset(connection->target->data, '.', PLACE_BYTES);
    struct status *st =
        rdma_out_open(&connection->out, connection->sender, &out_handlers, connection);
    CHECK(!st);
    st = rdma_in_open(&connection->in, connection->receiver, &in_handlers, connection);
    CHECK(!st);
    rdma_queue_address(&connection->out.queue, &out_address);
    rdma_queue_address(&connection->in.queue, &in_address);
    st = rdma_in_connect(&connection->in, &out_address);
    CHECK(!st);
    st = rdma_queue_connect(&connection->out.queue, &in_address);
    CHECK(!st);
    CHECK(
        rdma_in_add_write(&connection->in, &connection->pending, connection->target, PLACE_BYTES));
    turn_until(is_granted, connection);
}

static void write_to(struct connection *connection, uint32_t key, size_t size_bytes) {
    struct rdma_remote_slot remote_slot = connection->pending.remote_slot;
    remote_slot.key = key;
    rdma_out_write(&connection->out, &connection->transfer, &remote_slot, connection->source,
                   connection->source->data, size_bytes);
}

/* The receiver's end is closed last: what it granted is withdrawn then. */
static void close_connection(struct connection *connection) {
    rdma_out_close(&connection->out);
    rdma_in_close(&connection->in);
    turn_until(is_withdrawn, connection);
    buffer_unref(connection->pending.buffer);
    buffer_unref(connection->target);
    buffer_unref(connection->source);
    rdma_device_close(connection->sender);
    rdma_device_close(connection->receiver);
    str_fini(&connection->why);
    loop_stop(loop);
    loop_run(loop);
    loop_free(loop);
}

static void expect_access_error(struct connection *connection) {
    turn_until(is_over, connection);
    printf("%s\n", str_text(&connection->why));
    CHECK(strstr(str_text(&connection->why), "RDMA write: remote access error"));
}

static void case_keys(void) {
    struct connection connection;
    open_line(&connection);
    write_to(&connection, connection.pending.remote_slot.key ^ 0x5500, PLACE_BYTES);
    expect_access_error(&connection);
    CHECK(connection.target->data[0] == '.' && !connection.is_landed);
    close_connection(&connection);

    open_line(&connection);
    write_to(&connection, connection.pending.remote_slot.key, PLACE_BYTES + 4096);
    expect_access_error(&connection);
    CHECK(!connection.is_landed);
    close_connection(&connection);

    open_line(&connection);
    uint32_t key = connection.pending.remote_slot.key;
    write_to(&connection, key, PLACE_BYTES);
    turn_until(is_landed, &connection);
    CHECK(connection.target->data[0] == 'x' && connection.target->data[PLACE_BYTES - 1] == 'x');
    memset(connection.target->data, '.', PLACE_BYTES); /* it is somebody else's now */
    write_to(&connection, key, PLACE_BYTES);
    expect_access_error(&connection);
    CHECK(connection.target->data[0] == '.');
    close_connection(&connection);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"values", case_values},   {"kill", case_kill},         {"cut", case_cut},
                 {"refused", case_refused}, {"required", case_required}, {"keys", case_keys}};
    const char *name = argc > 1 ? argv[1] : "";
    n_elements = (argc > 2 ? strtol(argv[2], NULL, 10) : 1) << 17;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (strcmp(cases[i].name, name) == 0) {
            cases[i].run();
            return 0;
        }
    fprintf(stderr, "usage: rdma_tasks CASE [MEGABYTES]\n");
    return 64;
}
