/* ConfigProto as a session reads it: bytes are written by hand, field by field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/tensor/tensor_proto.h"
#include "master/request/session_config.h"

static struct status *parse(const struct str *bytes, struct session_config *config) {
    return session_config_parse((struct span){bytes->data ? bytes->data : "", bytes->len}, config);
}

static void an_empty_config_asks_for_nothing(void **state) {
    struct session_config config;
    struct str bytes = STR_INIT;
    assert_null(parse(&bytes, &config));
    assert_false(config.allow_soft_placement || config.log_device_placement || config.is_isolated ||
                 config.no_optimizations);
    assert_int_equal(config.cpu_devices, 0);
    assert_true(session_config_has_task(&config, "/job:ps/replica:0/task:0"));
    session_config_fini(&config);
}

static void flags_are_read(void **state) {
    struct session_config config;
    struct str bytes = STR_INIT, optimizer = STR_INIT, graph = STR_INIT;
    proto_add_int(&bytes, 7, 1);
    proto_add_int(&bytes, 8, 1);
    proto_add_int(&bytes, 11, 1500);
    proto_add_int(&bytes, 15, 1);
    proto_add_int(&optimizer, 3, (uint64_t)-1);
    proto_add_bytes(&graph, 3, optimizer.data, optimizer.len);
    proto_add_bytes(&bytes, 10, graph.data, graph.len);
    assert_null(parse(&bytes, &config));
    assert_true(config.allow_soft_placement && config.log_device_placement && config.is_isolated &&
                config.no_optimizations);
    assert_int_equal(config.operation_timeout_ms, 1500);
    session_config_fini(&config);
    str_fini(&bytes);
    str_fini(&optimizer);
    str_fini(&graph);
}

static void add_device_count(struct str *bytes, const char *type, int64_t count) {
    struct str entry = STR_INIT;
    proto_add_bytes(&entry, 1, type, strlen(type));
    proto_add_int(&entry, 2, (uint64_t)count);
    proto_add_bytes(bytes, 1, entry.data, entry.len);
    str_fini(&entry);
}

static void devices_are_counted(void **state) {
    struct session_config config;
    struct str bytes = STR_INIT;
    add_device_count(&bytes, "GPU", 9000);
    add_device_count(&bytes, "CPU", 3);
    assert_null(parse(&bytes, &config));
    assert_int_equal(config.cpu_devices, 3);
    session_config_fini(&config);
    add_device_count(&bytes, "CPU", 65);
    struct status *st = parse(&bytes, &config);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(status_message(st), "device_count"));
    status_unref(st);
    session_config_fini(&config);
    str_fini(&bytes);
}

static void add_filter(struct str *bytes, const char *text) {
    proto_add_bytes(bytes, 4, text, strlen(text));
}

static void filters_leave_tasks(void **state) {
    struct session_config config;
    struct str bytes = STR_INIT;
    add_filter(&bytes, "/job:ps");
    add_filter(&bytes, "/job:worker/task:1/cpu:0");
    assert_null(parse(&bytes, &config));
    assert_true(session_config_has_task(&config, "/job:ps/replica:0/task:3"));
    assert_true(session_config_has_task(&config, "/job:worker/replica:0/task:1"));
    assert_false(session_config_has_task(&config, "/job:worker/replica:0/task:0"));
    assert_false(session_config_has_task(&config, "/job:chief/replica:0/task:0"));
    session_config_fini(&config);
    str_fini(&bytes);
}

static void wrong_bytes_are_refused(void **state) {
    static const struct span wrong[] = {{"\x22\x06//\xff/b", 8},
                                        {"\x0a\x7f", 2},
                                        {"\x52\x02\x1a\x7f", 4},
                                        {"\x38", 1},
                                        {"\xff\xff", 2}};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct session_config config;
        struct status *st = session_config_parse(wrong[i], &config);
        assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(status_message(st), "ConfigProto"));
        status_unref(st);
        session_config_fini(&config);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_config_asks_for_nothing),
        cmocka_unit_test(flags_are_read),
        cmocka_unit_test(devices_are_counted),
        cmocka_unit_test(filters_leave_tasks),
        cmocka_unit_test(wrong_bytes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
