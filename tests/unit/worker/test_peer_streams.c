/* Large values over several sockets: cutting and joining, what is lost with a stream, what
 * strangers may send, what never waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "tests/unit/worker/two_tasks.h"
#include "worker/exchange/peer_internal.h"

enum { MAX_GOT = 8, MIB = 1 << 20 };

static struct loop *loop;
static struct test_task a, b;

struct inbox {
    int n_small, n_values, n_allocs, n_values_at_small;
    uint64_t ids[MAX_GOT];
    struct buffer *values[MAX_GOT];
    bool discards, was_shared, is_unwanted;
    struct buffer *next; /* what the next message has, if not NULL */
};
static struct inbox at_a, at_b;

static struct status *receive(void *arg, struct peer *peer, struct wire_message *message,
                              const struct edge_message *edge) {
    struct inbox *inbox = arg;
    if (message->type != WIRE_PUSH) {
        inbox->n_small++;
        inbox->n_values_at_small = inbox->n_values;
        return NULL;
    }
    assert_true(inbox->n_values < MAX_GOT);
    inbox->was_shared |= !buffer_is_sole(message->payload);
    inbox->ids[inbox->n_values] = message->id;
    inbox->values[inbox->n_values++] = message->payload;
    message->payload = NULL;
    return NULL;
}

static struct buffer *receive_alloc(void *arg, struct peer *peer,
                                    const struct wire_message *message,
                                    const struct edge_message *edge, size_t size_bytes) {
    struct inbox *inbox = arg;
    assert_int_equal(message->type, WIRE_PUSH);
    inbox->n_allocs++;
    struct buffer *next = inbox->next;
    inbox->next = NULL;
    if (next)
        return next;
    return inbox->discards ? wire_discard : buffer_alloc(allocator_host(), size_bytes);
}

static bool is_wanted(void *arg, struct peer *peer, uint64_t step, uint32_t edge,
                      uint64_t frame_iter) {
    return !((struct inbox *)arg)->is_unwanted;
}

static const struct peer_receiver receiver = {
    .on_message = receive, .alloc = receive_alloc, .is_wanted = is_wanted};

static void clear(struct inbox *inbox) {
    for (int i = 0; i < inbox->n_values; i++)
        buffer_unref(inbox->values[i]);
    memset(inbox, 0, sizeof(*inbox));
}

static void begin(unsigned n_streams) {
    peer_table_set_streams(a.peers, n_streams);
    peer_table_set_streams(b.peers, n_streams);
    peer_connect(a.other);
    LOOP_UNTIL(loop, a.other->streams.n_theirs == PEER_MAX_STREAMS &&
                         b.other->streams.n_theirs == PEER_MAX_STREAMS);
}

static int setup(void **state) {
    loop = loop_new();
    task_init(&a, loop, "/job:worker/replica:0/task:0");
    task_init(&b, loop, "/job:ps/replica:0/task:0");
    tasks_meet(&a, &b);
    tasks_receive(&a, &b, &receiver, &at_a, &at_b);
    return 0;
}

static int setup_tcp(void **state) {
    setup(state);
    task_listen_tcp(&a, "127.0.0.1");
    task_listen_tcp(&b, "127.0.0.1");
    tasks_meet_over_tcp(&a, &b);
    return 0;
}

static int teardown(void **state) {
    clear(&at_a);
    clear(&at_b);
    task_fini(&a);
    task_fini(&b);
    loop_stop(loop);
    loop_run(loop);
    loop_free(loop);
    return 0;
}

static uint32_t word_of(uint64_t id, size_t i) { return (uint32_t)(id * 2654435761u + i); }

/* A value of its own, gone from here once it is queued. */
static void push(struct peer *peer, uint64_t id, size_t size_bytes) {
    struct peer_value value = {.step = id, .size_bytes = size_bytes};
    int64_t dim = (int64_t)(size_bytes / 4);
    assert_null(tensor_new(allocator_host(), DT_UINT32, (struct shape){1, &dim}, &value.value));
    uint32_t *words = tensor_data(&value.value);
    for (size_t i = 0; i < size_bytes / 4; i++)
        words[i] = word_of(id, i);
    edge_message_write(&value.meta, 7, id, &value.value, 0);
    peer_push(peer, &value);
    peer_value_fini(&value);
}

/* The first large value opens the streams, and goes as a whole. */
static void open_streams(struct peer *peer, struct inbox *there, unsigned n_streams) {
    push(peer, 99, PEER_STRIPE_MIN_BYTES);
    LOOP_UNTIL(loop, there->n_values == 1 && peer->streams.greeted == (1u << n_streams) - 2);
    assert_int_equal(peer->streams.n_sent, 0);
    clear(there);
}

static void begin_open(unsigned n_streams) {
    begin(n_streams);
    open_streams(a.other, &at_b, n_streams);
}

static void check_value(const struct inbox *inbox, int at, size_t size_bytes) {
    const uint32_t *words = (const uint32_t *)(const void *)inbox->values[at]->data;
    for (size_t i = 0; i < size_bytes / 4; i++)
        if (words[i] != word_of(inbox->ids[at], i))
            fail_msg("value %d, word %zu", at, i);
}

/* ---- values ---- */

static void check_sizes(unsigned n_streams) {
    static const size_t sizes[] = {PEER_STRIPE_MIN_BYTES, PEER_STRIPE_MIN_BYTES + 4, 9 * MIB + 12,
                                   20 * MIB, 33 * MIB + 65536};
    begin_open(n_streams);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        push(a.other, 100 + i, sizes[i]);
        LOOP_UNTIL(loop, at_b.n_values == (int)i + 1);
        check_value(&at_b, (int)i, sizes[i]);
    }
    assert_int_equal(at_b.n_allocs, ARRAY_LEN(sizes));
    assert_false(at_b.was_shared);
    assert_int_equal(a.other->streams.n_sent, ARRAY_LEN(sizes));
    assert_int_equal(b.other->streams.n_received, ARRAY_LEN(sizes));
    assert_int_equal(a.peers->n_streams_to, n_streams - 1);
    assert_int_equal(b.peers->n_streams_from, n_streams - 1);
    open_streams(b.other, &at_a, n_streams);
    push(b.other, 1, 10 * MIB); /* and the other way, over streams of its own */
    LOOP_UNTIL(loop, at_a.n_values == 1);
    check_value(&at_a, 0, 10 * MIB);
    assert_int_equal(a.other->streams.n_received, 1);
    assert_int_equal(a.peers->n_streams_from, n_streams - 1);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void values_cross_over_two_unix_sockets(void **state) { check_sizes(2); }
static void values_cross_over_eight_unix_sockets(void **state) { check_sizes(8); }
static void values_cross_over_four_tcp_sockets(void **state) { check_sizes(4); }

static void values_with_checksums_cross(void **state) {
    peer_table_set_checksums(a.peers, true);
    check_sizes(3);
}

static void several_values_are_under_way_at_once(void **state) {
    begin_open(4);
    for (uint64_t id = 1; id <= 4; id++)
        push(a.other, id, (8 + 3 * (size_t)id) * MIB);
    LOOP_UNTIL(loop, at_b.n_values == 4);
    for (int i = 0; i < 4; i++)
        check_value(&at_b, i, (8 + 3 * (size_t)at_b.ids[i]) * MIB);
}

static void what_is_smaller_has_one_socket(void **state) {
    begin(4);
    push(a.other, 1, PEER_STRIPE_MIN_BYTES - 4);
    LOOP_UNTIL(loop, at_b.n_values == 1);
    assert_int_equal(a.other->streams.n_sent, 0);
    assert_int_equal(a.peers->n_streams_to, 0);
}

static void one_stream_is_none(void **state) {
    begin(1);
    push(a.other, 1, 20 * MIB);
    LOOP_UNTIL(loop, at_b.n_values == 1);
    check_value(&at_b, 0, 20 * MIB);
    assert_int_equal(a.other->streams.n_sent, 0);
}

static void a_peer_that_takes_none_gets_none(void **state) {
    begin(4);
    a.other->streams.n_theirs = 0; /* as a Hello of an older one says */
    push(a.other, 1, 20 * MIB);
    LOOP_UNTIL(loop, at_b.n_values == 1);
    assert_int_equal(a.other->streams.n_sent, 0);
}

static void what_nobody_wants_is_read_past(void **state) {
    begin_open(4);
    at_b.discards = true;
    push(a.other, 1, 20 * MIB);
    LOOP_UNTIL(loop, at_b.n_allocs == 4);
    at_b.discards = false;
    push(a.other, 2, 20 * MIB);
    LOOP_UNTIL(loop, at_b.n_values == 1);
    assert_int_equal(at_b.ids[0], 2);
    check_value(&at_b, 0, 20 * MIB);
}

static void release_map(void *arg) { munmap(arg, (size_t)1 << 30); }

/* A gigabyte that takes no memory at either end: pages of zeros, read past. */
static void push_gigabyte(struct peer *peer, uint64_t id) {
    size_t size = (size_t)1 << 30;
    void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    struct buffer *buffer = buffer_wrap(map, size, release_map, map);
    struct peer_value value = {.step = id, .size_bytes = size};
    int64_t dim = (int64_t)size;
    assert_null(tensor_view(buffer, buffer->data, DT_UINT8, (struct shape){1, &dim}, &value.value));
    buffer_unref(buffer);
    edge_message_write(&value.meta, 7, id, &value.value, 0);
    peer_push(peer, &value);
    peer_value_fini(&value);
}

static size_t queued_bytes(const struct peer *peer) {
    struct transport_channel *bulk = peer->channels[CHANNEL_BULK];
    size_t n = bulk ? bulk->transport->queued_bytes(bulk) : 0;
    for (int i = 1; i < PEER_MAX_STREAMS; i++)
        if (peer->streams.to_peer[i])
            n += peer->streams.to_peer[i]->transport->queued_bytes(peer->streams.to_peer[i]);
    return n;
}

static void check_small_overtakes(unsigned n_streams) {
    begin(n_streams);
    if (n_streams > 1)
        open_streams(a.other, &at_b, n_streams);
    at_b.discards = true;
    push_gigabyte(a.other, 1);
    LOOP_UNTIL(loop, at_b.n_allocs > 0); /* it has begun to come */
    for (int i = 0; i < 20; i++) {
        int before = at_b.n_small;
        assert_true(
            peer_queue(a.other, CHANNEL_CONTROL, &(struct wire_out){.type = WIRE_GRANT, .id = 5}));
        peer_flush(a.other, CHANNEL_CONTROL);
        LOOP_UNTIL(loop, at_b.n_small == before + 1);
        /* and most of the large one has not left */
        assert_true(queued_bytes(a.other) > (size_t)512 * MIB);
    }
}

static void a_small_message_does_not_wait_for_a_gigabyte(void **state) { check_small_overtakes(1); }
static void nor_for_one_over_several_sockets(void **state) { check_small_overtakes(4); }

/* ---- losses ---- */

static void a_lost_stream_is_the_peers_loss_and_the_next_value_has_one_socket(void **state) {
    begin_open(4);
    push(a.other, 1, 64 * MIB);
    LOOP_UNTIL(loop, (b.other->streams.used & 1u << 2) != 0);
    assert_int_equal(at_b.n_values, 0);
    struct transport_channel *stream = b.other->streams.from_peer[2];
    stream->transport->close(stream, status_unavailable("cut"));
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
    assert_non_null(strstr(str_text(&b.lost_why), "stream 2: cut"));
    assert_true(list_is_empty(&b.other->streams.arrivals));
    assert_int_equal(a.peers->n_streams_to + b.peers->n_streams_from, 0);
    peer_connect(a.other);
    LOOP_UNTIL(loop, a.other->streams.n_theirs > 0);
    push(a.other, 2, 20 * MIB);
    LOOP_UNTIL(loop, at_b.n_values == 1);
    assert_int_equal(at_b.ids[0], 2);
    check_value(&at_b, 0, 20 * MIB);
}

static void a_stream_that_is_opened_twice_is_a_loss(void **state) {
    begin_open(2);
    push(a.other, 1, 20 * MIB);
    LOOP_UNTIL(loop, at_b.n_values == 1);
    struct transport_channel *second = peer_open_stream(a.other, 1);
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
    transport_channel_unref(second);
    LOOP_UNTIL(loop, a.peers->n_channels == 0 && b.peers->n_channels == 0);
}

/* ---- streams that do not come about ---- */

static void send_whole(uint64_t id) {
    int n_values = at_b.n_values;
    uint64_t n_sent = a.other->streams.n_sent;
    push(a.other, id, 10 * MIB);
    LOOP_UNTIL(loop, at_b.n_values == n_values + 1);
    check_value(&at_b, n_values, 10 * MIB);
    assert_int_equal(a.other->streams.n_sent, n_sent);
}

static void send_cut(uint64_t id) {
    int n_values = at_b.n_values;
    uint64_t n_sent = a.other->streams.n_sent;
    push(a.other, id, 10 * MIB);
    LOOP_UNTIL(loop, at_b.n_values == n_values + 1);
    check_value(&at_b, n_values, 10 * MIB);
    assert_int_equal(a.other->streams.n_sent, n_sent + 1);
}

static void a_refused_stream_is_no_loss(void **state) {
    begin(3);
    b.peers->n_streams_from = PEER_STREAMS_MAX_OPEN;
    send_whole(1);
    LOOP_UNTIL(loop, b.n_refused == 2 && a.peers->n_streams_to == 0);
    assert_int_equal(a.other->streams.retry_ms, PEER_STREAMS_RETRY_MS); /* once for both */
    assert_true(a.other->streams.off_until_ns > clock_now_ns());
    send_whole(2); /* and nothing is opened meanwhile */
    assert_int_equal(a.peers->n_streams_to, 0);
    a.other->streams.off_until_ns = 1;
    send_whole(3);
    LOOP_UNTIL(loop, b.n_refused == 4 && a.peers->n_streams_to == 0);
    assert_int_equal(a.other->streams.retry_ms, 2 * PEER_STREAMS_RETRY_MS);
    b.peers->n_streams_from = 0;
    a.other->streams.off_until_ns = 1;
    send_whole(4);
    LOOP_UNTIL(loop, a.other->streams.greeted == 6);
    send_cut(5);
    assert_int_equal(a.other->streams.retry_ms, 0);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void streams_to_a_task_do_not_count_among_those_from_it(void **state) {
    begin(3);
    a.peers->n_streams_from = PEER_STREAMS_MAX_OPEN; /* of others */
    b.peers->n_streams_to = PEER_STREAMS_MAX_OPEN;
    open_streams(a.other, &at_b, 3);
    send_cut(1);
    a.peers->n_streams_from = b.peers->n_streams_to = 0;
}

static void at_the_limit_values_have_the_streams_that_there_are(void **state) {
    begin(8);
    a.peers->n_streams_to = PEER_STREAMS_MAX_OPEN - 2;
    open_streams(a.other, &at_b, 3);
    send_cut(1);
    a.peers->n_streams_to = 2;
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

/* Accepts, and says nothing: as a path does that loses what opens a connection. */
static void mute_on_message(void *owner, struct wire_conn *conn, struct wire_message *message) {}
static const struct wire_handlers mute_handlers = {.on_message = mute_on_message,
                                                   .on_closed = task_on_closed};
static void mute_on_accept(void *arg, struct wire_conn *conn_take) {
    wire_conn_set_owner(conn_take, NULL, &mute_handlers);
}

static void streams_that_nobody_answers_hold_nothing_up(void **state) {
    struct wire_server *mute;
    struct peer *same;
    char address[64];
    snprintf(address, sizeof(address), "unix:@millrace-test-mute-streams-%d", (int)getpid());
    assert_null(wire_listen(loop, address, mute_on_accept, NULL, &mute));
    peer_table_set_heartbeat(a.peers, 30);
    peer_table_set_heartbeat(b.peers, 30);
    begin(1);
    send_whole(1); /* the bulk channel is there */
    peer_table_set_streams(a.peers, 4);
    assert_null(peer_table_know(a.peers, b.name, "127.0.0.1:1", address, b.incarnation, &same));
    send_whole(2);
    assert_int_equal(a.peers->n_streams_to, 3);
    send_whole(3);
    LOOP_UNTIL(loop, a.peers->n_streams_to == 0);
    assert_int_equal(a.other->streams.retry_ms, PEER_STREAMS_RETRY_MS);
    send_whole(4);
    assert_int_equal(a.n_lost + b.n_lost, 0);
    wire_server_close(mute);
}

static void a_stream_that_carried_nothing_may_be_opened_anew(void **state) {
    begin(2);
    push(a.other, 99, PEER_STRIPE_MIN_BYTES);
    LOOP_UNTIL(loop, at_b.n_values == 1 && a.other->streams.greeted == 2);
    struct transport_channel *second = peer_open_stream(a.other, 1),
                             *first = b.other->streams.from_peer[1];
    LOOP_UNTIL(loop, b.other->streams.from_peer[1] != first);
    assert_int_equal(b.n_lost, 0);
    assert_int_equal(b.peers->n_streams_from, 1);
    transport_channel_unref(second);
}

/* Its Hello has been on the way while the peer was lost, and connected again. */
static void a_stream_of_the_connection_before_is_refused(void **state) {
    begin_open(2);
    uint64_t epoch = a.other->epoch_here;
    struct transport_channel *control = a.other->channels[CHANNEL_CONTROL];
    control->transport->close(control, status_unavailable("cut"));
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
    begin(2);
    uint64_t now = a.other->epoch_here;
    assert_int_not_equal(epoch, now);
    a.other->epoch_here = epoch;
    push(a.other, 1, PEER_STRIPE_MIN_BYTES);
    LOOP_UNTIL(loop, b.n_refused == 1 && a.peers->n_streams_to == 0);
    assert_null(b.other->streams.from_peer[1]);
    a.other->epoch_here = now;
    a.other->streams.off_until_ns = 1;
    LOOP_UNTIL(loop, at_b.n_values == 1);
    clear(&at_b);
    open_streams(a.other, &at_b, 2);
    assert_int_equal(a.n_lost + b.n_lost, 2);
}

/* Both ends connect at once, or the other one alone: both know what a stream belongs to. */
static void streams_belong_to_whichever_control_channel(void **state) {
    peer_table_set_streams(a.peers, 3);
    peer_table_set_streams(b.peers, 3);
    peer_connect(b.other);
    LOOP_UNTIL(loop, a.other->streams.n_theirs > 0 && b.other->streams.n_theirs > 0);
    open_streams(a.other, &at_b, 3); /* over what b has opened */
    open_streams(b.other, &at_a, 3);
    assert_int_equal(a.other->epoch_here, 0);
    assert_int_equal(a.n_refused + b.n_refused, 0);
}

static void a_task_that_is_restarted_gets_streams_at_once(void **state) {
    begin(2);
    a.other->streams.off_until_ns = INT64_MAX;
    a.other->streams.retry_ms = 8;
    peer_set_incarnation(a.other, 77); /* as its Hello says */
    assert_int_equal(a.other->streams.off_until_ns, 0);
    assert_int_equal(a.other->streams.retry_ms, 0);
}

/* One end has the other's Unix address, which has none of its: streams go where their opener can
 * reach. */
static void each_end_opens_streams_its_own_way(void **state) {
    struct peer *same;
    assert_null(peer_table_know(a.peers, b.name, b.tcp_address, b.address, b.incarnation, &same));
    begin(3);
    assert_ptr_equal(b.other->transport, &transport_unix);
    open_streams(b.other, &at_a, 3);
    push(b.other, 1, 10 * MIB);
    LOOP_UNTIL(loop, at_a.n_values == 1);
    check_value(&at_a, 0, 10 * MIB);
    assert_int_equal(b.other->streams.n_sent, 1);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

/* ---- what strangers may send ---- */

static void send_stripe_of(const struct str *push, uint64_t total_bytes, uint32_t n_stripes,
                           uint32_t index, size_t payload_bytes) {
    Millrace__Stripe stripe = MILLRACE__STRIPE__INIT;
    uint8_t meta[128];
    assert_true(push->len < 64);
    stripe.total_bytes = total_bytes;
    stripe.n_stripes = n_stripes;
    stripe.index = index;
    stripe.push = (ProtobufCBinaryData){.len = push->len, .data = (uint8_t *)push->data};
    size_t len = millrace__stripe__pack(&stripe, meta);
    char *bytes = calloc(1, payload_bytes + 1);
    struct wire_out out = {
        .type = WIRE_STRIPE, .id = 1, .meta = {(char *)meta, len}, .extra = {bytes, payload_bytes}};
    assert_true(peer_queue(a.other, CHANNEL_BULK, &out));
    peer_flush(a.other, CHANNEL_BULK);
    free(bytes);
}

static void send_stripe(uint64_t total_bytes, uint32_t n_stripes, uint32_t index,
                        size_t payload_bytes) {
    struct str push = STR_INIT;
    edge_message_write(&push, 7, 1, NULL, 0);
    send_stripe_of(&push, total_bytes, n_stripes, index, payload_bytes);
    str_fini(&push);
}

static void expect_refused(void) {
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
    assert_int_equal(at_b.n_values, 0);
    assert_true(list_is_empty(&b.other->streams.arrivals));
}

enum { TOTAL = 8 * MIB, HALF = 4 * MIB };

static void a_stripe_of_too_few_is_refused(void **state) {
    begin(4);
    send_stripe(TOTAL, 1, 0, TOTAL);
    expect_refused();
}

static void a_stripe_of_too_many_is_refused(void **state) {
    begin(4);
    send_stripe(TOTAL, PEER_MAX_STREAMS + 1, 0, 100);
    expect_refused();
}

static void a_stripe_beyond_its_value_is_refused(void **state) {
    begin(4);
    send_stripe(TOTAL, 2, 2, HALF);
    expect_refused();
}

static void a_stripe_of_another_size_is_refused(void **state) {
    begin(4);
    send_stripe(TOTAL, 2, 0, HALF + 1);
    expect_refused();
}

static void a_stripe_of_a_huge_value_is_refused(void **state) {
    begin(4);
    send_stripe(UINT64_MAX, 2, 1, 100);
    expect_refused();
}

static void an_empty_stripe_is_refused(void **state) {
    begin(4);
    send_stripe(TOTAL, 2, 0, 0);
    expect_refused();
}

static void a_stripe_that_comes_twice_is_refused(void **state) {
    begin(4);
    send_stripe(TOTAL, 2, 0, HALF);
    send_stripe(TOTAL, 2, 0, HALF);
    expect_refused();
}

static void stripes_that_disagree_are_refused(void **state) {
    begin(4);
    send_stripe(TOTAL, 2, 0, HALF);
    send_stripe(2 * TOTAL, 4, 1, HALF);
    expect_refused();
}

/* The same edge in other bytes would be another value over the same grant. */
static void stripes_of_another_push_for_the_edge_are_refused(void **state) {
    struct str push = STR_INIT;
    begin(4);
    send_stripe(TOTAL, 2, 0, HALF);
    edge_message_write(&push, 7, 1, NULL, 0);
    str_add(&push, "\xf8\x07\x01"); /* a field that nobody knows */
    send_stripe_of(&push, TOTAL, 2, 1, HALF);
    expect_refused();
    assert_int_equal(at_b.n_allocs, 1);
    str_fini(&push);
}

static void a_stripe_without_an_edge_is_refused(void **state) {
    struct str push = STR_INIT;
    begin(4);
    str_add(&push, "\xff");
    send_stripe_of(&push, TOTAL, 2, 0, HALF);
    expect_refused();
    assert_int_equal(at_b.n_allocs, 0);
    str_fini(&push);
}

static void release_flag(void *arg) { *(bool *)arg = true; }

/* A value of which half has come, in memory whose end is seen. */
static void bring_half(bool *ret_is_gone) {
    static char bytes[TOTAL];
    begin(4);
    at_b.next = buffer_wrap(bytes, TOTAL, release_flag, ret_is_gone);
    send_stripe(TOTAL, 2, 0, HALF);
    LOOP_UNTIL(loop, b.other->streams.n_arrivals == 1);
}

static void half_a_value_of_an_ended_step_gives_its_memory_back(void **state) {
    static bool is_gone;
    peer_table_set_heartbeat(a.peers, 30);
    peer_table_set_heartbeat(b.peers, 30);
    bring_half(&is_gone);
    assert_false(is_gone);
    at_b.is_unwanted = true;
    LOOP_UNTIL(loop, is_gone);
    send_stripe(TOTAL, 2, 1, HALF);
    LOOP_UNTIL(loop, b.other->streams.n_arrivals == 0);
    assert_int_equal(at_b.n_values, 0);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void a_later_stripe_of_an_ended_step_is_read_past(void **state) {
    static bool is_gone;
    bring_half(&is_gone);
    at_b.is_unwanted = true;
    send_stripe(TOTAL, 2, 1, HALF);
    LOOP_UNTIL(loop, b.other->streams.n_arrivals == 0);
    assert_true(is_gone);
    assert_int_equal(at_b.n_values, 0);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void values_under_way_have_a_limit(void **state) {
    begin(4);
    b.other->streams.n_arrivals = PEER_STREAMS_MAX_ARRIVALS;
    send_stripe(TOTAL, 2, 0, HALF);
    expect_refused();
    assert_int_equal(at_b.n_allocs, 0);
    b.other->streams.n_arrivals = 0;
}

static void half_a_value_is_dropped_with_its_peer(void **state) {
    begin(4);
    send_stripe(TOTAL, 2, 0, HALF);
    LOOP_UNTIL(loop, !list_is_empty(&b.other->streams.arrivals));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TEST_TCP(name) cmocka_unit_test_setup_teardown(name, setup_tcp, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(values_cross_over_two_unix_sockets),
        TEST(values_cross_over_eight_unix_sockets),
        TEST_TCP(values_cross_over_four_tcp_sockets),
        TEST(values_with_checksums_cross),
        TEST(several_values_are_under_way_at_once),
        TEST(what_is_smaller_has_one_socket),
        TEST(one_stream_is_none),
        TEST(a_peer_that_takes_none_gets_none),
        TEST(what_nobody_wants_is_read_past),
        TEST(a_small_message_does_not_wait_for_a_gigabyte),
        TEST_TCP(nor_for_one_over_several_sockets),
        TEST(a_lost_stream_is_the_peers_loss_and_the_next_value_has_one_socket),
        TEST(a_stream_that_is_opened_twice_is_a_loss),
        TEST(a_refused_stream_is_no_loss),
        TEST(streams_to_a_task_do_not_count_among_those_from_it),
        TEST(at_the_limit_values_have_the_streams_that_there_are),
        TEST(streams_that_nobody_answers_hold_nothing_up),
        TEST(a_stream_that_carried_nothing_may_be_opened_anew),
        TEST(a_stream_of_the_connection_before_is_refused),
        TEST(streams_belong_to_whichever_control_channel),
        TEST(a_task_that_is_restarted_gets_streams_at_once),
        TEST_TCP(each_end_opens_streams_its_own_way),
        TEST(a_stripe_of_too_few_is_refused),
        TEST(a_stripe_of_too_many_is_refused),
        TEST(a_stripe_beyond_its_value_is_refused),
        TEST(a_stripe_of_another_size_is_refused),
        TEST(a_stripe_of_a_huge_value_is_refused),
        TEST(an_empty_stripe_is_refused),
        TEST(a_stripe_that_comes_twice_is_refused),
        TEST(stripes_that_disagree_are_refused),
        TEST(stripes_of_another_push_for_the_edge_are_refused),
        TEST(a_stripe_without_an_edge_is_refused),
        TEST(half_a_value_of_an_ended_step_gives_its_memory_back),
        TEST(a_later_stripe_of_an_ended_step_is_read_past),
        TEST(values_under_way_have_a_limit),
        TEST(half_a_value_is_dropped_with_its_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
