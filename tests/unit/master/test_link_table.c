/* Tests master/compile/cost/link_table.h: what tasks report of their links, and what it makes of
 * costs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "master/compile/cost/link_table.h"

static const char A[] = "/job:worker/replica:0/task:0", B[] = "/job:worker/replica:0/task:1",
                  C[] = "/job:worker/replica:0/task:10";

static struct link_table *table;

static int setup(void **state) {
    table = link_table_new();
    return 0;
}
static int teardown(void **state) {
    link_table_free(table);
    return 0;
}

static void note(const char *from, const char *to, enum link_way way, uint64_t latency_ns,
                 uint64_t bytes_per_second) {
    link_table_note(table, to,
                    &(struct link_report){span_of(from), way, latency_ns, bytes_per_second});
}

static void expect(const char *from, const char *to, double latency_ns, double ns_per_byte) {
    struct schedule_link link = link_table_find(table, from, to);
    assert_true(fabs(link.latency_ns - latency_ns) < 1e-6 * latency_ns);
    assert_true(fabs(link.ns_per_byte - ns_per_byte) < 1e-6 * ns_per_byte);
}

static void without_a_report_there_are_defaults(void **state) {
    expect(A, B, 20000, 0.3);
    struct schedule_link link = link_table_find(NULL, A, B);
    assert_true(link.latency_ns == 20000);
}

static void a_report_counts_for_its_direction(void **state) {
    note(A, B, LINK_WAY_TCP, 500000, 100000000);
    expect(A, B, 500000, 10);
    expect(B, A, 20000, 0.3);
    note(A, B, LINK_WAY_TCP, 400000, 200000000);
    expect(A, B, 400000, 5);
}

static void what_is_not_measured_follows_from_the_transport(void **state) {
    note(A, B, LINK_WAY_TCP, 0, 0);
    expect(A, B, 50000, 0.8);
    note(A, B, LINK_WAY_SHM, 30000, 0);
    expect(A, B, 30000, 0.02);
    /* bytes that went through a socket say nothing of references */
    note(A, B, LINK_WAY_SHM, 30000, 1000);
    expect(A, B, 30000, 0.02);
    note(A, B, LINK_WAY_RDMA, 4000, 0);
    expect(A, B, 4000, 0.1);
    note(A, B, LINK_WAY_RDMA, 4000, 20000000000);
    expect(A, B, 4000, 0.05);
}

static void wild_numbers_are_limited(void **state) {
    note(A, B, LINK_WAY_TCP, UINT64_MAX, UINT64_MAX);
    expect(A, B, 1e10, 0.001);
    note(A, B, LINK_WAY_TCP, 1, 1);
    expect(A, B, 1000, 1e5);
}

static void a_lost_task_takes_its_links_along(void **state) {
    note(A, B, LINK_WAY_TCP, 500000, 0);
    note(B, A, LINK_WAY_TCP, 500000, 0);
    note(A, C, LINK_WAY_TCP, 500000, 0);
    link_table_forget(table, B);
    expect(A, B, 20000, 0.3);
    expect(B, A, 20000, 0.3);
    expect(A, C, 500000, 0.8);
}

static void a_page_says_what_is_measured(void **state) {
    struct str page = STR_INIT;
    note(A, B, LINK_WAY_UNIX, 30000, 0);
    link_table_describe(table, 10, &page);
    assert_string_equal(str_text(&page),
                        "[{\"from\": \"/job:worker/replica:0/task:0\", \"to\": "
                        "\"/job:worker/replica:0/task:1\", \"transport\": \"unix\", "
                        "\"latency_us\": 30.0, \"latency\": \"measured\", \"ns_per_byte\": 0.3, "
                        "\"bandwidth\": \"default\"}]");
    str_clear(&page);
    note(B, A, LINK_WAY_UNIX, 30000, 0);
    link_table_describe(table, 1, &page);
    assert_null(strstr(str_text(&page), "}, {"));
    str_fini(&page);
}

/* ---- the rows in replies to pings ---- */

static void rows_come_back_as_they_were(void **state) {
    struct str reply = STR_INIT;
    struct link_report in = {span_of(A), LINK_WAY_RDMA, 12345, 678}, out;
    assert_true(link_report_add(&reply, 0, &in));
    in.task = span_of(B);
    assert_true(link_report_add(&reply, 0, &in));
    struct span rest = {reply.data, reply.len};
    assert_true(link_report_next(&rest, &out));
    assert_true(span_is(out.task, A) && out.way == LINK_WAY_RDMA);
    assert_true(out.latency_ns == 12345 && out.bytes_per_second == 678);
    assert_true(link_report_next(&rest, &out) && span_is(out.task, B));
    assert_false(link_report_next(&rest, &out));
    str_fini(&reply);
}

static void a_reply_has_room_for_some_rows(void **state) {
    struct str reply = STR_INIT;
    struct link_report row = {span_of(A), LINK_WAY_TCP, 20000, 1000000};
    int n = 0;
    str_add(&reply, "before");
    while (link_report_add(&reply, strlen("before"), &row))
        n++;
    assert_true(n >= 8);
    assert_true(reply.len <= LINK_REPORT_MAX_BYTES + strlen("before"));
    str_fini(&reply);
}

static void cut_replies_and_strange_rows_are_survived(void **state) {
    struct str reply = STR_INIT;
    struct link_report row = {span_of(A), LINK_WAY_TCP, 20000, 1000000}, out;
    link_report_add(&reply, 0, &row);
    for (size_t len = 0; len < reply.len; len++) {
        struct span cut = {reply.data, len};
        assert_false(link_report_next(&cut, &out));
    }
    str_clear(&reply);
    row.way = (enum link_way)99;
    link_report_add(&reply, 0, &row);
    struct span rest = {reply.data, reply.len};
    assert_true(link_report_next(&rest, &out));
    assert_int_equal(out.way, LINK_WAY_UNKNOWN);
    str_fini(&reply);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(without_a_report_there_are_defaults),
        TEST(a_report_counts_for_its_direction),
        TEST(what_is_not_measured_follows_from_the_transport),
        TEST(wild_numbers_are_limited),
        TEST(a_lost_task_takes_its_links_along),
        TEST(a_page_says_what_is_measured),
        TEST(rows_come_back_as_they_were),
        TEST(a_reply_has_room_for_some_rows),
        TEST(cut_replies_and_strange_rows_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
