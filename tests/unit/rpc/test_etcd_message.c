/* etcd's JSON: requests as text, replies into structures, garbage into statuses. */
#include "rpc/membership/etcd_message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <stdlib.h>

static void check_base64(const char *bytes, size_t len, const char *expected) {
    struct str out = STR_INIT;
    struct arena arena;
    struct span back;
    arena_init(&arena);
    base64_encode(&out, (struct span){bytes, len});
    assert_string_equal(str_text(&out), expected);
    assert_null(base64_decode((struct span){str_text(&out), out.len}, &arena, &back));
    assert_int_equal(back.len, len);
    assert_memory_equal(back.data, bytes, len);
    str_fini(&out);
    arena_fini(&arena);
}

static void test_base64(void **state) {
    check_base64("", 0, "");
    check_base64("f", 1, "Zg==");
    check_base64("fo", 2, "Zm8=");
    check_base64("foo", 3, "Zm9v");
    check_base64("foobar", 6, "Zm9vYmFy");
    check_base64("\0\xff\xfe?", 4, "AP/+Pw==");
    static const char *const wrong[] = {"Zg=",  "Zg",     "Z===", "Zg=a",
                                        "Z g=", "Zm9v\n", "Zm9_", "===="};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct arena arena;
        struct span back;
        arena_init(&arena);
        struct status *st = base64_decode(span_of(wrong[i]), &arena, &back);
        if (!st)
            fail_msg("'%s' was taken", wrong[i]);
        status_unref(st);
        arena_fini(&arena);
    }
}

#define CHECK_REQUEST(call, expected)                    \
    do {                                                 \
        struct str out = STR_INIT;                       \
        call;                                            \
        assert_string_equal(str_text(&out), (expected)); \
        str_fini(&out);                                  \
    } while (0)

static void test_requests(void **state) {
    const char *keys[] = {"a", "b"};
    CHECK_REQUEST(etcd_write_range(&out, "a", false), "{\"key\":\"YQ==\"}");
    /* "a0" follows all that begins "a/" */
    CHECK_REQUEST(etcd_write_range(&out, "a/", true), "{\"key\":\"YS8=\",\"range_end\":\"YTA=\"}");
    CHECK_REQUEST(etcd_write_read(&out, keys, 2), "{\"success\":[{\"request_range\":{\"key\":\"YQ=="
                                                  "\"}},{\"request_range\":{\"key\":\"Yg==\"}}]}");
    CHECK_REQUEST(etcd_write_put(&out, "a", span_of("v"), 7),
                  "{\"key\":\"YQ==\",\"value\":\"dg==\",\"lease\":\"7\"}");
    CHECK_REQUEST(
        etcd_write_claim(&out, "a", 0, span_of("v"), 7),
        "{\"compare\":[{\"key\":\"YQ==\",\"result\":\"EQUAL\",\"target\":\"CREATE\",\"create_"
        "revision\":\"0\"}],"
        "\"success\":[{\"request_put\":{\"key\":\"YQ==\",\"value\":\"dg==\",\"lease\":\"7\"}}],"
        "\"failure\":[{\"request_range\":{\"key\":\"YQ==\"}}]}");
    CHECK_REQUEST(etcd_write_claim(&out, "a", 9, span_of(""), 0),
                  "{\"compare\":[{\"key\":\"YQ==\",\"result\":\"EQUAL\",\"target\":\"MOD\",\"mod_"
                  "revision\":\"9\"}],"
                  "\"success\":[{\"request_put\":{\"key\":\"YQ==\",\"value\":\"\"}}],\"failure\":[{"
                  "\"request_range\":{\"key\":\"YQ==\"}}]}");
    CHECK_REQUEST(etcd_write_grant(&out, 10), "{\"TTL\":\"10\"}");
    CHECK_REQUEST(
        etcd_write_watch(&out, "a/", 12),
        "{\"create_request\":{\"key\":\"YS8=\",\"range_end\":\"YTA=\",\"start_revision\":\"12\"}}");
}

static void test_range(void **state) {
    struct etcd_reply reply;
    etcd_reply_init(&reply);
    assert_null(etcd_reply_parse(span_of("{\"header\":{\"revision\":\"42\",\"new\":[1]},\"kvs\":[{"
                                         "\"key\":\"YQ==\",\"create_revision\":\"3\","
                                         "\"mod_revision\":\"9223372036854775807\",\"value\":\"dg=="
                                         "\",\"lease\":5,\"more\":{}}],\"count\":\"1\"}"),
                                 &reply));
    assert_int_equal(reply.revision, 42);
    assert_int_equal(reply.n_ranges, 1);
    assert_int_equal(reply.ranges[0].n, 1);
    const struct etcd_kv *kv = &reply.ranges[0].kvs[0];
    assert_string_equal(kv->key, "a");
    assert_true(span_is(kv->value, "v"));
    assert_int_equal(kv->create_revision, 3);
    assert_true(kv->mod_revision == INT64_MAX);
    assert_int_equal(kv->lease, 5);
    etcd_reply_fini(&reply);
}

static void test_transaction(void **state) {
    struct etcd_reply reply;
    etcd_reply_init(&reply);
    assert_null(etcd_reply_parse(
        span_of("{\"header\":{\"revision\":\"1\"},\"succeeded\":true,\"responses\":[{\"response_"
                "range\":{}},"
                "{\"response_put\":{}},{\"response_range\":{\"kvs\":[{\"key\":\"Yg==\"}]}}]}"),
        &reply));
    assert_true(reply.has_succeeded);
    assert_int_equal(reply.n_ranges, 2);
    assert_int_equal(reply.ranges[0].n, 0);
    assert_string_equal(reply.ranges[1].kvs[0].key, "b");
    assert_int_equal(reply.ranges[1].kvs[0].value.len, 0);
    etcd_reply_fini(&reply);
}

static void test_watch_lines(void **state) {
    struct etcd_reply reply;
    etcd_reply_init(&reply);
    assert_null(etcd_reply_parse(
        span_of("{\"result\":{\"header\":{\"revision\":\"8\"},\"events\":[{\"kv\":{\"key\":\"YQ=="
                "\",\"value\":\"dg==\"}},"
                "{\"type\":\"DELETE\",\"kv\":{\"key\":\"Yg==\",\"mod_revision\":\"8\"}}]}}\n"),
        &reply));
    assert_int_equal(reply.n_events, 2);
    assert_false(reply.events[0].is_delete);
    assert_true(reply.events[1].is_delete);
    assert_string_equal(reply.events[1].kv.key, "b");
    etcd_reply_fini(&reply);
    etcd_reply_init(&reply);
    assert_null(etcd_reply_parse(
        span_of("{\"result\":{\"canceled\":true,\"compact_revision\":\"5\"}}"), &reply));
    assert_true(reply.is_cancelled);
    assert_int_equal(reply.compact_revision, 5);
    etcd_reply_fini(&reply);
}

static void check_failure(enum status_code code, const char *part, struct status *st) {
    if (status_code(st) != code || !strstr(status_message(st), part))
        fail_msg("%s: %s", status_code_name(status_code(st)), status_message(st));
    status_unref(st);
}

static void test_errors(void **state) {
    check_failure(
        STATUS_NOT_FOUND, "requested lease not found",
        etcd_failure_parse(
            404, span_of("{\"error\":\"etcdserver: requested lease not found\",\"code\":5}")));
    check_failure(
        STATUS_UNAVAILABLE, "no leader",
        etcd_failure_parse(503, span_of("{\"error\":\"etcdserver: no leader\",\"code\":14}")));
    /* as etcd 3.6 has it */
    check_failure(STATUS_INVALID_ARGUMENT, "etcd: etcdserver: user name is empty",
                  etcd_failure_parse(400, span_of("{\"code\":3,\"message\":\"etcdserver: user name "
                                                  "is empty\",\"details\":[]}")));
    check_failure(STATUS_UNAVAILABLE, "HTTP status 502",
                  etcd_failure_parse(502, span_of("<html>bad gateway</html>")));
    check_failure(STATUS_UNKNOWN, "HTTP status 404",
                  etcd_failure_parse(404, span_of("404 page not found")));
    check_failure(STATUS_UNKNOWN, "HTTP status 400", etcd_failure_parse(400, span_of("{}")));
    struct etcd_reply reply;
    etcd_reply_init(&reply);
    check_failure(
        STATUS_UNAVAILABLE, "gone",
        etcd_reply_parse(
            span_of("{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"gone\"}}"),
            &reply));
    etcd_reply_fini(&reply);
}

static void test_garbage(void **state) {
    static const char *const wrong[] = {
        "",
        "[]",
        "{",
        "null",
        "\xff",
        "{\"header\":{\"revision\":\"x\"}}",
        "{\"header\":{\"revision\":\"99999999999999999999\"}}",
        "{\"header\":{\"revision\":\"\"}}",
        "{\"header\":{\"revision\":\"1\\u0000\"}}",
        "{\"header\":{\"revision\":{}}}",
        "{\"kvs\":{}}",
        "{\"kvs\":[3]}",
        "{\"kvs\":[{\"key\":1}]}",
        "{\"kvs\":[{\"key\":\"?\"}]}",
        "{\"kvs\":[{\"key\":\"AGE=\"}]}",
        "{\"responses\":3}",
        "{\"events\":\"x\"}",
        "{\"events\":[3]}",
        "{\"events\":[{\"kv\":[]}]}",
        "{\"TTL\":1.5}",
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct etcd_reply reply;
        etcd_reply_init(&reply);
        struct status *st = etcd_reply_parse(span_of(wrong[i]), &reply);
        if (!st)
            fail_msg("%s was taken", wrong[i]);
        status_unref(st);
        etcd_reply_fini(&reply);
    }
}

static void test_a_value_that_is_too_large(void **state) {
    struct str text = STR_INIT;
    struct etcd_reply reply;
    str_add(&text, "{\"kvs\":[{\"key\":\"YQ==\",\"value\":\"");
    for (size_t i = 0; i < ETCD_MAX_VALUE_BYTES / 3 * 4 + 64; i++)
        str_add_char(&text, 'A');
    str_add(&text, "\"}]}");
    etcd_reply_init(&reply);
    check_failure(STATUS_RESOURCE_EXHAUSTED, "\"value\"",
                  etcd_reply_parse((struct span){text.data, text.len}, &reply));
    etcd_reply_fini(&reply);
    str_fini(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base64),      cmocka_unit_test(test_requests),
        cmocka_unit_test(test_range),       cmocka_unit_test(test_transaction),
        cmocka_unit_test(test_watch_lines), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_garbage),     cmocka_unit_test(test_a_value_that_is_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
