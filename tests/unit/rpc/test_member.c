/* Registrations: writes values and keys, and reads them back. */
#include "rpc/membership/member.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void test_there_and_back(void **state) {
    const char *devices[] = {"/job:ps/replica:0/task:0/device:CPU:0",
                             "/job:ps/replica:0/task:0/device:CPU:1"},
               *transports[] = {"tcp"};
    struct cluster_member member = {.address = "10.0.0.1:2400",
                                    .admin_address = "10.0.0.1:12400",
                                    .unix_address = "unix:@x",
                                    .host_id = "a \"host\"\n/1",
                                    .version = "0.1.0",
                                    .incarnation = 0xfedcba9876543210,
                                    .devices = devices,
                                    .n_devices = 2,
                                    .transports = transports,
                                    .n_transports = 1};
    struct cluster_member back;
    struct str text = STR_INIT;
    struct arena arena;
    arena_init(&arena);
    member_write(&member, &text);
    assert_null(member_parse((struct span){text.data, text.len}, &arena, &back));
    assert_string_equal(back.address, member.address);
    assert_string_equal(back.admin_address, member.admin_address);
    assert_string_equal(back.unix_address, member.unix_address);
    assert_string_equal(back.host_id, member.host_id);
    assert_string_equal(back.version, member.version);
    assert_true(back.incarnation == member.incarnation);
    assert_int_equal(back.n_devices, 2);
    assert_string_equal(back.devices[1], devices[1]);
    assert_int_equal(back.n_transports, 1);
    str_fini(&text);
    arena_fini(&arena);
}

static void check_value(const char *text, const char *complaint) {
    struct cluster_member member;
    struct arena arena;
    arena_init(&arena);
    struct status *st = member_parse(span_of(text), &arena, &member);
    if (complaint && (!st || !strstr(status_message(st), complaint)))
        fail_msg("%s: '%s'", text, status_message(st));
    if (!complaint && st)
        fail_msg("%s: %s", text, status_message(st));
    status_unref(st);
    arena_fini(&arena);
}

static void test_values(void **state) {
    check_value(
        "{\"incarnation\": \"00000000000000ff\", \"address\": \"h:1\", \"colour\": [\"red\"]}",
        NULL);
    check_value("", "not a JSON object");
    check_value("ended", "not a JSON object");
    check_value("[]", "not a JSON object");
    check_value("{\"address\": \"h:1\"}", "\"incarnation\"");
    check_value("{\"incarnation\": 255, \"address\": \"h:1\"}", "\"incarnation\"");
    check_value("{\"incarnation\": \"0x000000000000ff\", \"address\": \"h:1\"}", "\"incarnation\"");
    check_value("{\"incarnation\": \"00000000000000ff\"}", "\"address\"");
    check_value("{\"incarnation\": \"00000000000000ff\", \"address\": \"h:0\"}", "no host or port");
    check_value("{\"incarnation\": \"00000000000000ff\", \"address\": \":80\"}", "no host or port");
    check_value("{\"incarnation\": \"00000000000000ff\", \"address\": \"nowhere\"}", "has no port");
    check_value(
        "{\"incarnation\": \"00000000000000ff\", \"address\": \"h:1\", \"admin_address\": \"x\"}",
        "\"admin_address\"");
    check_value("{\"incarnation\": \"00000000000000ff\", \"address\": \"h:1\", \"devices\": {}}",
                "\"devices\"");
    check_value("{\"incarnation\": \"00000000000000ff\", \"address\": \"h:1\", \"devices\": [1]}",
                "\"devices\"");
    check_value("{\"incarnation\": \"00000000000000ff\", \"address\": \"h:1\", \"host_id\": 1}",
                "\"host_id\"");
}

static void check_key(const char *key, const char *expected) {
    struct str task = STR_INIT;
    bool is_task = member_read_task_key("c", key, &task);
    if (is_task != (expected != NULL) || strcmp(str_text(&task), expected ? expected : "") != 0)
        fail_msg("%s: '%s'", key, str_text(&task));
    str_fini(&task);
}

static void test_keys(void **state) {
    struct str key = STR_INIT;
    member_key_of_task("c", "ps", 3, &key);
    assert_string_equal(str_text(&key), "/millrace/c/tasks/ps/3");
    check_key(str_text(&key), "/job:ps/replica:0/task:3");
    str_fini(&key);
    check_key("/millrace/c/tasks/my_worker2/0", "/job:my_worker2/replica:0/task:0");
    static const char *const wrong[] = {"",
                                        "/millrace/c/tasks/",
                                        "/millrace/c/tasks/ps",
                                        "/millrace/c/tasks/ps/",
                                        "/millrace/c/tasks//0",
                                        "/millrace/c/tasks/ps/x",
                                        "/millrace/c/tasks/ps/00",
                                        "/millrace/c/tasks/ps/1/2",
                                        "/millrace/c/tasks/ps/-1",
                                        "/millrace/c/tasks/ps/123456",
                                        "/millrace/c/tasks/p s/0",
                                        "/millrace/c/tasks/2ps/0",
                                        "/millrace/c/tasks/ps:0/0",
                                        "/millrace/d/tasks/ps/0",
                                        "/millrace/c/master"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        check_key(wrong[i], NULL);
}

static void test_cluster_names(void **state) {
    static const char *const good[] = {"a", "default", "A.b_c-9"};
    static const char *const bad[] = {
        "", "a/b", "a b", "\xc3\xa4",
        "0123456789012345678901234567890123456789012345678901234567890123"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_null(member_check_cluster(good[i]));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct status *st = member_check_cluster(bad[i]);
        assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
        status_unref(st);
    }
}

static void check_address(const char *advertise, const char *listen, const char *expected) {
    struct str out = STR_INIT;
    member_address(advertise, listen, 2300, &out);
    assert_string_equal(str_text(&out), expected);
    str_fini(&out);
}

static void test_addresses(void **state) {
    check_address(NULL, "10.0.0.1:0", "10.0.0.1:2300");
    check_address(NULL, "[::1]:0", "[::1]:2300");
    check_address(NULL, "unix:/run/x", "unix:/run/x");
    check_address("host:0", "0.0.0.0:0", "host:2300");
    check_address("host:99", "0.0.0.0:0", "host:99");
    struct str out = STR_INIT;
    member_address(NULL, "0.0.0.0:0", 2300, &out);
    assert_null(strstr(str_text(&out), "0.0.0.0"));
    assert_non_null(strstr(str_text(&out), ":2300"));
    str_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_there_and_back),
                                       cmocka_unit_test(test_values), cmocka_unit_test(test_keys),
                                       cmocka_unit_test(test_cluster_names),
                                       cmocka_unit_test(test_addresses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
