/* References between two tasks: in one process over real connections, and between processes that
 * are killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "common/tensor/shm_arena.h"
#include "tests/unit/worker/two_tasks.h"
#include "worker/exchange/peer_internal.h"

enum { N_FLOATS = 1 << 20 };

static struct loop *loop;
static struct test_task a, b;
static struct shm_arena *arena;

static void task_init_shm(struct test_task *task, const char *name, bool has_arena) {
    task_init(task, loop, name);
    peer_table_use_shm(task->peers, has_arena ? arena : NULL);
}

static int setup(void **state) {
    loop = loop_new();
    task_init_shm(&a, "/job:ps/replica:0/task:0", true);
    task_init_shm(&b, "/job:worker/replica:0/task:0", true);
    tasks_meet(&a, &b);
    return 0;
}

static int teardown(void **state) {
    tasks_fini(&a, &b);
    return 0;
}

/* ---- values ---- */

static void receive(struct test_task *task, const char *from, uint64_t step, struct wait *wait) {
    task_receive(task, from, step, 1, wait);
}
static void send_value(struct test_task *task, const char *to, uint64_t step,
                       const struct tensor *value) {
    task_send(task, to, step, 1, value);
}
static void make(struct tensor *t, struct allocator *allocator, float seed) {
    value_make(t, allocator, N_FLOATS, seed);
}
static bool holds(const struct tensor *t, float seed) { return value_holds(t, N_FLOATS, seed); }

static bool is_reference(const struct tensor *t) {
    return t->storage == TENSOR_BUFFER && (t->buffer->flags & BUFFER_IS_READ_ONLY);
}

static void connect_both(void) {
    peer_connect(a.other);
    LOOP_UNTIL(loop, task_says(&a, "\"to\":\"ready\"") && task_says(&b, "\"to\":\"ready\""));
}

static bool page_says(struct test_task *task, const char *text) {
    struct str page = STR_INIT;
    peer_table_page(task->peers, &page);
    bool is_found = strstr(str_text(&page), text) != NULL;
    str_fini(&page);
    return is_found;
}

/* What ends the control channel: the other end cannot read it. */
static void break_control(struct test_task *from) {
    struct wire_out out = {.type = WIRE_GRANT, .meta = {"\xff", 1}};
    assert_true(peer_queue(from->other, CHANNEL_CONTROL, &out));
    peer_flush(from->other, CHANNEL_CONTROL);
}

/* ---- in one process ---- */

static void a_large_value_crosses_as_a_reference(void **state) {
    struct tensor value;
    struct wait wait;
    connect_both();
    make(&value, allocator_host_shared(allocator_host()), 3);
    receive(&b, a.name, 7, &wait);
    send_value(&a, b.name, 7, &value);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_true(is_reference(&wait.value) && holds(&wait.value, 3));
    /* another mapping of the same pages */
    assert_ptr_not_equal(tensor_cdata(&wait.value), tensor_cdata(&value));
    assert_false(tensor_is_sole(&wait.value));
    assert_false(tensor_is_sole(&value));
    assert_true(task_says(&a, "\"transport\":\"shm\"") &&
                task_says(&a, "\"given\":1,\"given_bytes\":4194304,\"held\":1"));
    assert_true(task_says(&b, "\"mapped\":1,\"mapped_bytes\":4194304,\"holding\":1"));
    tensor_clear(&wait.value);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    assert_true(task_says(&a, "\"held\":0"));
    tensor_clear(&value);
}

static void the_other_direction_is_a_matter_of_its_own(void **state) {
    struct tensor value;
    struct wait wait;
    connect_both();
    make(&value, allocator_host_shared(allocator_host()), 4);
    receive(&a, b.name, 8, &wait);
    send_value(&b, a.name, 8, &value);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_true(is_reference(&wait.value) && holds(&wait.value, 4));
    tensor_clear(&wait.value);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
}

static void private_memory_crosses_as_bytes(void **state) {
    struct tensor value;
    struct wait wait;
    connect_both();
    make(&value, allocator_host(), 5);
    receive(&b, a.name, 9, &wait);
    send_value(&a, b.name, 9, &value);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_false(is_reference(&wait.value));
    assert_true(holds(&wait.value, 5));
    assert_true(page_says(&a, "\"large_by_socket\":{\"outside_shared_memory_bytes\":4194304}"));
    assert_true(page_says(&a, "\"transport\":\"unix\"") && page_says(&a, "no such value yet"));
    assert_true(page_says(&b, "\"large_by_socket\":{}"));
    tensor_clear(&wait.value);
    tensor_clear(&value);
}

static void beyond_the_limit_bytes_cross(void **state) {
    struct tensor value;
    struct wait waits[3];
    a.other->shm.max_kept_bytes = N_FLOATS * 4 + 100;
    connect_both();
    for (int i = 0; i < 3; i++) {
        make(&value, allocator_host_shared(allocator_host()), (float)i);
        receive(&b, a.name, 20 + (uint64_t)i, &waits[i]);
        send_value(&a, b.name, 20 + (uint64_t)i, &value);
        tensor_clear(&value); /* nobody here holds it any more */
        LOOP_UNTIL(loop, waits[i].n_calls == 1);
        assert_true(holds(&waits[i].value, (float)i));
        assert_int_equal(is_reference(&waits[i].value), i == 0);
    }
    assert_true(task_says(&a, "\"refused\":2"));
    assert_true(page_says(&a, "\"large_by_socket\":{\"peer_keeps_too_much_bytes\":8388608}"));
    assert_true(page_says(&a, "\"transport\":\"shm, unix\""));
    tensor_clear(&waits[0].value);
    LOOP_UNTIL(loop, task_says(&a, "\"held\":0"));
    make(&value, allocator_host_shared(allocator_host()), 9); /* there is room again */
    struct wait wait;
    receive(&b, a.name, 30, &wait);
    send_value(&a, b.name, 30, &value);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_true(is_reference(&wait.value) && holds(&wait.value, 9));
    tensor_clear(&wait.value);
    LOOP_UNTIL(loop, task_says(&a, "\"held\":0"));
    tensor_clear(&value);
    for (int i = 1; i < 3; i++)
        tensor_clear(&waits[i].value);
}

static void before_the_arena_is_mapped_bytes_cross(void **state) {
    struct tensor value;
    struct wait wait;
    make(&value, allocator_host_shared(allocator_host()), 6);
    peer_connect(a.other);
    receive(&b, a.name, 10, &wait);
    send_value(&a, b.name, 10, &value);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_true(holds(&wait.value, 6));
    assert_false(is_reference(&wait.value));
    assert_true(page_says(&a, "\"large_by_socket\":{\"not_mapped_bytes\":4194304}"));
    tensor_clear(&wait.value);
    tensor_clear(&value);
}

static void a_task_without_an_arena_takes_references_and_says_why_it_gives_none(void **state) {
    struct tensor value;
    struct wait wait;
    task_fini(&b);
    task_init_shm(&b, "/job:worker/replica:0/task:0", false);
    tasks_meet(&a, &b);
    peer_connect(a.other);
    LOOP_UNTIL(loop, task_says(&a, "\"to\":\"ready\"") &&
                         task_says(&a, "\"from\":\"the owner has no arena"));
    assert_true(task_says(&b, "\"to\":\"the owner has no arena"));
    make(&value, allocator_host_shared(allocator_host()), 7);
    receive(&b, a.name, 11, &wait);
    send_value(&a, b.name, 11, &value);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_true(is_reference(&wait.value));
    tensor_clear(&wait.value);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
}

static void a_reference_for_a_step_that_has_ended_goes_back(void **state) {
    struct tensor value;
    connect_both();
    make(&value, allocator_host_shared(allocator_host()), 8);
    rendezvous_unref(rendezvous_open(b.rendezvous, 12, NULL, NULL));
    rendezvous_end_step(b.rendezvous, 12);
    send_value(&a, b.name, 12, &value);
    assert_false(tensor_is_sole(&value));
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    assert_int_equal(a.n_lost + b.n_lost, 0);
    tensor_clear(&value);
}

/* Many that nobody has asked for yet take nothing of the receiver's memory, and end with their
 * step. */
static void references_do_not_count_as_early_bytes(void **state) {
    struct tensor value;
    connect_both();
    make(&value, allocator_host_shared(allocator_host()), 9);
    for (uint64_t step = 100; step < 200; step++) /* 400 MB, beyond what unopened steps may hold */
        send_value(&a, b.name, step, &value);
    LOOP_UNTIL(loop, task_says(&b, "\"mapped\":100,"));
    assert_int_equal(a.n_lost + b.n_lost, 0);
    for (uint64_t step = 100; step < 200; step++)
        rendezvous_end_step(b.rendezvous, step);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
}

static void what_was_under_way_when_a_channel_broke_goes_back(void **state) {
    struct tensor value;
    struct arena_reference reference;
    connect_both();
    make(&value, allocator_host_shared(allocator_host()), 10);
    assert_true(peer_give(a.other, &value, &reference)); /* lost with its message */
    break_control(&a);
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    peer_connect(a.other);
    LOOP_UNTIL(loop, task_says(&a, "\"transport\":\"shm\""));
    struct wait wait; /* and references go on over the same lines */
    receive(&b, a.name, 13, &wait);
    send_value(&a, b.name, 13, &value);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_true(is_reference(&wait.value));
    tensor_clear(&wait.value);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
}

static void what_is_looked_at_stays_when_a_channel_breaks(void **state) {
    struct tensor value;
    struct wait wait;
    struct arena_reference under_way;
    connect_both();
    make(&value, allocator_host_shared(allocator_host()), 11);
    receive(&b, a.name, 14, &wait);
    send_value(&a, b.name, 14, &value);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_true(peer_give(a.other, &value, &under_way));
    break_control(&a);
    LOOP_UNTIL(loop, a.n_lost == 1 && task_says(&a, "\"held\":1,"));
    assert_false(tensor_is_sole(&value));
    assert_true(holds(&wait.value, 11));
    tensor_clear(&wait.value);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
}

static void what_is_not_sent_goes_back_at_once(void **state) {
    struct tensor value;
    struct arena_reference reference;
    make(&value, allocator_host_shared(allocator_host()), 12);
    assert_false(peer_give(a.other, &value, &reference)); /* no line */
    connect_both();
    assert_true(peer_give(a.other, &value, &reference));
    peer_take_back(a.other, &reference);
    assert_true(tensor_is_sole(&value));
    tensor_clear(&value);
}

/* ---- several threads ---- */

enum { N_STEPS = 300 };

struct crowd {
    struct tensor value;
    struct wait waits[N_STEPS];
};

static void *send_all(void *arg) {
    struct crowd *crowd = arg;
    for (uint64_t i = 0; i < N_STEPS; i++)
        send_value(&a, b.name, 1000 + i, &crowd->value);
    return NULL;
}

/* Lets go of each as it comes, while the loop gives back those before. */
static void *release_all(void *arg) {
    struct crowd *crowd = arg;
    for (int i = 0; i < N_STEPS; i++) {
        while (atomic_load(&crowd->waits[i].n_calls) == 0)
            sched_yield();
        assert_true(is_reference(&crowd->waits[i].value));
        assert_true(((const float *)tensor_cdata(&crowd->waits[i].value))[N_FLOATS - 1] ==
                    14 + (float)((N_FLOATS - 1) % 1000));
        tensor_clear(&crowd->waits[i].value);
    }
    return NULL;
}

static void references_are_sent_and_let_go_on_any_thread(void **state) {
    static struct crowd crowd;
    pthread_t sender, releaser;
    connect_both();
    make(&crowd.value, allocator_host_shared(allocator_host()), 14);
    for (uint64_t i = 0; i < N_STEPS; i++)
        receive(&b, a.name, 1000 + i, &crowd.waits[i]);
    assert_int_equal(pthread_create(&sender, NULL, send_all, &crowd), 0);
    assert_int_equal(pthread_create(&releaser, NULL, release_all, &crowd), 0);
    LOOP_UNTIL(loop, task_says(&a, "\"given\":300,") && task_says(&a, "\"held\":0,"));
    pthread_join(sender, NULL);
    pthread_join(releaser, NULL);
    assert_true(tensor_is_sole(&crowd.value));
    tensor_clear(&crowd.value);
}

/* ---- a stranger that claims to be b ---- */

struct stranger {
    struct wire_conn *conn;
    bool has_arena, is_closed;
};

static void stranger_on_message(void *owner, struct wire_conn *conn, struct wire_message *message) {
    struct stranger *stranger = owner;
    stranger->has_arena |= message->type == WIRE_ARENA;
}
static void stranger_on_closed(void *owner, struct wire_conn *conn, struct status *why) {
    ((struct stranger *)owner)->is_closed = true;
}
static const struct wire_handlers stranger_handlers = {.on_message = stranger_on_message,
                                                       .on_closed = stranger_on_closed};

static void stranger_opens_a_line(struct stranger *stranger) {
    struct str hello = STR_INIT;
    *stranger = (struct stranger){0};
    stranger->conn = wire_connect(loop, a.address, &stranger_handlers, stranger);
    peer_hello_write(&hello, b.name, b.incarnation, CHANNEL_ARENA, a.incarnation);
    wire_send(stranger->conn,
              &(struct wire_out){.type = WIRE_HELLO, .meta = {hello.data, hello.len}});
    str_fini(&hello);
    LOOP_UNTIL(loop, stranger->has_arena);
}

static void say_tokens(struct stranger *stranger, enum wire_type type, uint64_t first,
                       uint64_t second) {
    Millrace__References message = MILLRACE__REFERENCES__INIT;
    uint64_t tokens[2] = {first, second};
    uint8_t bytes[64];
    message.token = tokens;
    message.n_token = 2;
    size_t len = millrace__references__pack(&message, bytes);
    wire_send(stranger->conn, &(struct wire_out){.type = type, .meta = {(const char *)bytes, len}});
}

static void expect_closed(struct stranger *stranger) {
    LOOP_UNTIL(loop, stranger->is_closed);
    wire_conn_unref(stranger->conn);
}

static void who_gives_back_what_it_has_not_is_shut_out(void **state) {
    struct stranger stranger;
    struct tensor value;
    struct arena_reference reference;
    make(&value, allocator_host_shared(allocator_host()), 13);
    stranger_opens_a_line(&stranger);
    say_tokens(&stranger, WIRE_RELEASE, 1, 2); /* before it has mapped anything */
    expect_closed(&stranger);
    stranger_opens_a_line(&stranger);
    wire_send(stranger.conn, &(struct wire_out){.type = WIRE_ARENA_MAPPED});
    LOOP_UNTIL(loop, task_says(&a, "\"to\":\"ready\""));
    assert_true(peer_give(a.other, &value, &reference));
    say_tokens(&stranger, WIRE_RELEASE, reference.token, reference.token);
    expect_closed(&stranger);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    stranger_opens_a_line(&stranger);
    wire_send(stranger.conn, &(struct wire_out){.type = WIRE_ARENA_MAPPED});
    LOOP_UNTIL(loop, task_says(&a, "\"to\":\"ready\""));
    assert_true(peer_give(a.other, &value, &reference));
    say_tokens(&stranger, WIRE_HELD, reference.token + 1000, reference.token);
    expect_closed(&stranger);
    LOOP_UNTIL(loop, tensor_is_sole(&value)); /* its process no longer counts as a holder */
    tensor_clear(&value);
}

static void nonsense_on_a_line_closes_it(void **state) {
    static const struct {
        enum wire_type type;
        struct span meta;
    } bad[] = {{WIRE_ARENA, {"", 0}},        {WIRE_SETTLE, {"", 0}}, {WIRE_RELEASE, {"\xff", 1}},
               {WIRE_PUSH, {"\x08\x01", 2}}, {WIRE_HELD, {"", 0}},   {WIRE_ANNOUNCE, {"", 0}}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct stranger stranger;
        stranger_opens_a_line(&stranger);
        wire_send(stranger.conn, &(struct wire_out){.type = bad[i].type, .meta = bad[i].meta});
        expect_closed(&stranger);
    }
}

/* A stranger as a sender: a Push whose reference leads nowhere. */
static void a_reference_into_nothing_ends_the_connection(void **state) {
    static const int64_t n = N_FLOATS;
    struct tensor value = TENSOR_INIT;
    struct str meta = STR_INIT;
    connect_both();
    assert_null(tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &value));
    edge_message_write(&meta, 1, 0, &value, 0);
    edge_message_add_reference(
        &meta, &(struct arena_reference){.token = 1u << 30, .offset = UINT64_MAX - 63});
    assert_true(
        peer_queue(a.other, CHANNEL_CONTROL,
                   &(struct wire_out){.type = WIRE_PUSH, .id = 5, .meta = {meta.data, meta.len}}));
    peer_flush(a.other, CHANNEL_CONTROL);
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
    str_fini(&meta);
    tensor_clear(&value);
}

/* ---- between processes ---- */

struct pipes {
    int to_child[2], to_parent[2];
};

struct identity {
    char address[64];
    uint64_t incarnation;
};

static void meet_over_pipes(struct test_task *self, const char *other_name, int out, int in) {
    struct identity mine = {.incarnation = self->incarnation}, theirs;
    snprintf(mine.address, sizeof(mine.address), "%s", self->address);
    CHECK(write(out, &mine, sizeof(mine)) == sizeof(mine));
    CHECK(read(in, &theirs, sizeof(theirs)) == sizeof(theirs));
    struct status *st = peer_table_know(self->peers, other_name, "127.0.0.1:1", theirs.address,
                                        theirs.incarnation, &self->other);
    CHECK(!st);
}

/* The child: a task with an arena of its own that receives the value of step 20 or sends one,
 * says so, and stays until it is killed. */
static void be_child(struct pipes *pipes, bool is_sender) {
    struct tensor value;
    struct wait wait = {.n_calls = 0};
    struct status *st = shm_arena_new(0, &arena);
    CHECK(!st);
    allocator_host_set_arena(arena);
    loop = loop_new();
    task_init_shm(&b, "/job:worker/replica:0/task:0", true);
    meet_over_pipes(&b, "/job:ps/replica:0/task:0", pipes->to_parent[1], pipes->to_child[0]);
    peer_connect(b.other);
    LOOP_UNTIL(loop, task_says(&b, "\"to\":\"ready\"") && task_says(&b, "\"from\":\"ready\""));
    if (is_sender) {
        make(&value, allocator_host_shared(allocator_host()), 77);
        send_value(&b, "/job:ps/replica:0/task:0", 20, &value);
    } else {
        receive(&b, "/job:ps/replica:0/task:0", 20, &wait);
        LOOP_UNTIL(loop, wait.n_calls == 1);
        CHECK(is_reference(&wait.value) && holds(&wait.value, 21));
    }
    CHECK(write(pipes->to_parent[1], "r", 1) == 1);
    for (;;)
        loop_iterate(loop);
}

static pid_t start_child(struct pipes *pipes, bool is_sender) {
    assert_int_equal(pipe(pipes->to_child), 0);
    assert_int_equal(pipe(pipes->to_parent), 0);
    pid_t child = fork(); /* before this process has a loop: nothing of it is shared */
    if (child == 0)
        be_child(pipes, is_sender);
    loop = loop_new();
    task_init_shm(&a, "/job:ps/replica:0/task:0", true);
    meet_over_pipes(&a, "/job:worker/replica:0/task:0", pipes->to_child[1], pipes->to_parent[0]);
    return child;
}

static void kill_child(pid_t child, struct pipes *pipes) {
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    for (int i = 0; i < 2; i++) {
        close(pipes->to_child[i]);
        close(pipes->to_parent[i]);
    }
}

static void end_parent(void) {
    task_fini(&a);
    loop_end(loop);
}

static void wait_for_child(struct pipes *pipes) {
    struct pollfd word = {.fd = pipes->to_parent[0], .events = POLLIN};
    char byte;
    LOOP_UNTIL(loop, poll(&word, 1, 0) == 1);
    assert_int_equal(read(pipes->to_parent[0], &byte, 1), 1);
}

static void a_killed_holders_references_come_back(void **state) {
    struct pipes pipes;
    struct tensor value;
    pid_t child = start_child(&pipes, false);
    make(&value, allocator_host_shared(allocator_host()), 21);
    peer_connect(a.other);
    LOOP_UNTIL(loop, task_says(&a, "\"to\":\"ready\""));
    send_value(&a, "/job:worker/replica:0/task:0", 20, &value);
    wait_for_child(&pipes);
    assert_false(tensor_is_sole(&value));
    kill(child, SIGSTOP); /* silent is not dead */
    break_control(&a);
    for (int i = 0; i < 20; i++)
        loop_iterate(loop);
    assert_false(tensor_is_sole(&value));
    kill_child(child, &pipes);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
    end_parent();
}

static void a_killed_owners_values_can_still_be_read(void **state) {
    struct pipes pipes;
    struct wait wait;
    pid_t child = start_child(&pipes, true);
    receive(&a, "/job:worker/replica:0/task:0", 20, &wait);
    wait_for_child(&pipes);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_true(is_reference(&wait.value));
    kill_child(child, &pipes);
    LOOP_UNTIL(loop, a.n_lost == 1 && !task_says(&a, "\"from\":\"ready\""));
    assert_true(holds(&wait.value, 77));
    tensor_clear(&wait.value);
    end_parent();
}

static int make_arena(void **state) {
    struct status *st = shm_arena_new(0, &arena);
    CHECK(!st);
    allocator_host_set_arena(arena);
    return 0;
}

static int drop_arena(void **state) {
    allocator_host_set_arena(NULL); /* fails where a block is still in use */
    assert_int_equal(shm_arena_taken_bytes(arena), 0);
    shm_arena_free(arena);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest processes[] = {
        cmocka_unit_test(a_killed_holders_references_come_back),
        cmocka_unit_test(a_killed_owners_values_can_still_be_read),
    };
    const struct CMUnitTest tests[] = {
        TEST(a_large_value_crosses_as_a_reference),
        TEST(the_other_direction_is_a_matter_of_its_own),
        TEST(private_memory_crosses_as_bytes),
        TEST(beyond_the_limit_bytes_cross),
        TEST(before_the_arena_is_mapped_bytes_cross),
        TEST(a_task_without_an_arena_takes_references_and_says_why_it_gives_none),
        TEST(a_reference_for_a_step_that_has_ended_goes_back),
        TEST(references_do_not_count_as_early_bytes),
        TEST(what_was_under_way_when_a_channel_broke_goes_back),
        TEST(what_is_looked_at_stays_when_a_channel_breaks),
        TEST(what_is_not_sent_goes_back_at_once),
        TEST(references_are_sent_and_let_go_on_any_thread),
        TEST(who_gives_back_what_it_has_not_is_shut_out),
        TEST(nonsense_on_a_line_closes_it),
        TEST(a_reference_into_nothing_ends_the_connection),
    };
    return cmocka_run_group_tests(processes, make_arena, drop_arena) +
           cmocka_run_group_tests(tests, make_arena, drop_arena);
}
