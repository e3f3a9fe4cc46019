/* Two ends of a wire in one loop, and what each got: for tests of rpc/wire/wire. Included once
 * per test program, after cmocka. */
#ifndef MILLRACE_TESTS_UNIT_RPC_WIRE_ENDS_H
#define MILLRACE_TESTS_UNIT_RPC_WIRE_ENDS_H

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/wire/wire_internal.h"
#include "tests/unit/rpc/loop_until.h"
#include "tests/unit/rpc/wire_end.h"

/* One end: what it got, and how it ended. */
struct end {
    struct wire_conn *conn;
    int n_messages, n_closed, n_allocs;
    enum wire_type last_type;
    uint64_t last_id;
    struct str last_meta, last_payload;
    enum status_code closed_code;
    struct str closed_why;
    bool refuse_payloads, discard_payloads, close_on_message, asks_for_checksums;
    uint64_t next_by_sender[8];
    bool is_out_of_order;
};

static struct loop *loop;
static struct wire_server *server;
static struct end here, there; /* who connects, who was connected to */
static char address[128];

static inline void on_message(void *owner, struct wire_conn *conn, struct wire_message *message) {
    struct end *end = owner;
    end->n_messages++;
    end->last_type = message->type;
    end->last_id = message->id;
    str_clear(&end->last_meta);
    str_add_bytes(&end->last_meta, message->meta.data, message->meta.len);
    str_clear(&end->last_payload);
    if (message->payload)
        str_add_bytes(&end->last_payload, message->payload->data, message->payload_len);
    size_t sender = message->id >> 32;
    if (sender < ARRAY_LEN(end->next_by_sender)) {
        end->is_out_of_order |= (message->id & 0xffffffff) != end->next_by_sender[sender];
        end->next_by_sender[sender] = (message->id & 0xffffffff) + 1;
    }
    if (end->close_on_message)
        wire_conn_close(conn, status_new(STATUS_CANCELLED, "enough"));
}

static inline struct buffer *on_alloc(void *owner, struct wire_conn *conn,
                                      const struct wire_message *message, size_t size_bytes) {
    struct end *end = owner;
    end->n_allocs++;
    if (end->refuse_payloads)
        return NULL;
    return end->discard_payloads ? wire_discard : buffer_alloc(allocator_host(), size_bytes);
}

static inline void on_closed(void *owner, struct wire_conn *conn, struct status *why) {
    struct end *end = owner;
    end->n_closed++;
    end->closed_code = status_code(why);
    str_add(&end->closed_why, status_message(why));
}

static const struct wire_handlers handlers = {
    .on_message = on_message, .alloc = on_alloc, .on_closed = on_closed};

static inline void on_accept(void *arg, struct wire_conn *conn_take) {
    there.conn = conn_take;
    if (there.asks_for_checksums)
        wire_conn_use_checksums(conn_take);
    wire_conn_set_owner(conn_take, &there, &handlers);
}

static inline void listen_on(const char *listen_address) {
    struct status *st = wire_listen(loop, listen_address, on_accept, NULL, &server);
    if (st)
        fail_msg("%s", status_message(st));
    if (wire_server_port(server) > 0)
        snprintf(address, sizeof(address), "127.0.0.1:%d", wire_server_port(server));
    else
        snprintf(address, sizeof(address), "%s", listen_address);
}

static inline int setup(void **state) {
    loop = loop_new();
    memset(&here, 0, sizeof(here));
    memset(&there, 0, sizeof(there));
    char text[64];
    snprintf(text, sizeof(text), "unix:@millrace-test-wire-%d", (int)getpid());
    listen_on(text);
    return 0;
}

static inline void end_fini(struct end *end) {
    wire_end(loop, end->conn, &end->n_closed);
    str_fini(&end->last_meta);
    str_fini(&end->last_payload);
    str_fini(&end->closed_why);
}

static inline int teardown(void **state) {
    end_fini(&here);
    end_fini(&there);
    wire_server_close(server);
    loop_end(loop);
    return 0;
}

static inline void connect_here(void) {
    here.conn = wire_connect(loop, address, &handlers, &here);
    if (here.asks_for_checksums)
        wire_conn_use_checksums(here.conn);
}

static inline int connect_raw(void) {
    struct net_address parsed;
    struct sockaddr_storage sockaddr;
    assert_null(net_address_parse(address, &parsed));
    socklen_t len = wire_sockaddr(&parsed, &sockaddr);
    int fd = socket(sockaddr.ss_family, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sockaddr, len), 0);
    return fd;
}

static inline void write_raw(int fd, const void *data, size_t len) {
    assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), len);
}

static inline void make_tensor(struct tensor *t, int64_t n_bytes, int seed) {
    *t = TENSOR_INIT;
    assert_null(tensor_new(allocator_host(), DT_UINT8, (struct shape){1, &n_bytes}, t));
    uint8_t *data = tensor_data(t);
    for (int64_t i = 0; i < n_bytes; i++)
        data[i] = (uint8_t)(i * 7 + seed);
}

static inline void send_text(struct wire_conn *conn, enum wire_type type, uint64_t id,
                             const char *meta) {
    wire_send(conn, &(struct wire_out){.type = type, .id = id, .meta = span_of(meta)});
}

static inline void check_sizes(void) {
    static const int64_t sizes[] = {0,    1,     16,    63,    64,    65,     4095,
                                    4096, 16384, 16385, 65536, 65537, 300000, 5000000};
    connect_here();
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct tensor a, b;
        make_tensor(&a, sizes[i], 1);
        make_tensor(&b, 100, 2);
        const struct tensor *tensors[2] = {&a, &b};
        int before = there.n_messages;
        wire_send(here.conn, &(struct wire_out){.type = WIRE_PUSH,
                                                .id = i + 100,
                                                .meta = span_of("meta"),
                                                .tensors = tensors,
                                                .n_tensors = 2});
        LOOP_UNTIL(loop, there.n_messages == before + 1);
        assert_int_equal(there.last_type, WIRE_PUSH);
        assert_int_equal(there.last_id, i + 100);
        assert_string_equal(str_text(&there.last_meta), "meta");
        struct wire_message message = {.payload_len = there.last_payload.len};
        size_t offset = 0, begin;
        assert_true(wire_payload_next(&message, &offset, (size_t)sizes[i], &begin));
        if (sizes[i] > 0)
            assert_memory_equal(there.last_payload.data + begin, tensor_cdata(&a),
                                (size_t)sizes[i]);
        assert_true(wire_payload_next(&message, &offset, 100, &begin));
        assert_int_equal(begin % WIRE_ALIGN, 0);
        assert_memory_equal(there.last_payload.data + begin, tensor_cdata(&b), 100);
        assert_false(wire_payload_next(&message, &offset, 1, &begin));
        tensor_clear(&a);
        tensor_clear(&b);
        send_text(there.conn, WIRE_PONG, 5, "back");
        int n = here.n_messages;
        LOOP_UNTIL(loop, here.n_messages == n + 1);
        assert_string_equal(str_text(&here.last_meta), "back");
    }
}

#endif
