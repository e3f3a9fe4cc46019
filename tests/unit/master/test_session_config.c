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
                 config.no_optimizations || config.recv_scheduling);
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
    proto_add_int(&graph, 2, 1);
    proto_add_bytes(&graph, 3, optimizer.data, optimizer.len);
    proto_add_bytes(&bytes, 10, graph.data, graph.len);
    assert_null(parse(&bytes, &config));
    assert_true(config.allow_soft_placement && config.log_device_placement && config.is_isolated &&
                config.no_optimizations && config.recv_scheduling);
    assert_int_equal(config.operation_timeout_ms, 1500);
    session_config_fini(&config);
    str_fini(&bytes);
    str_fini(&optimizer);
    str_fini(&graph);
}

/* GraphOptions.rewrite_options.custom_optimizers {name, parameter_map {key, {s}}}. */
static struct status *parse_wish(const char *optimizer, const char *key, const char *value,
                                 struct session_config *config) {
    struct str bytes = STR_INIT, graph = STR_INIT, rewriter = STR_INIT, custom = STR_INIT,
               entry = STR_INIT, attr = STR_INIT;
    proto_add_bytes(&attr, 2, value, strlen(value));
    proto_add_bytes(&entry, 1, key, strlen(key));
    proto_add_bytes(&entry, 2, attr.data, attr.len);
    proto_add_bytes(&custom, 1, optimizer, strlen(optimizer));
    proto_add_bytes(&custom, 2, entry.data, entry.len);
    proto_add_bytes(&rewriter, 200, custom.data, custom.len);
    proto_add_bytes(&graph, 10, rewriter.data, rewriter.len);
    proto_add_bytes(&bytes, 10, graph.data, graph.len);
    struct status *st = parse(&bytes, config);
    struct str *all[] = {&bytes, &graph, &rewriter, &custom, &entry, &attr};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        str_fini(all[i]);
    return st;
}

static void a_session_chooses_its_placement(void **state) {
    struct session_config config;
    for (int i = 0; placement_names[i]; i++) {
        assert_null(parse_wish("millrace", "placement", placement_names[i], &config));
        assert_true(config.has_placement && config.placement == (enum placement)i);
        session_config_fini(&config);
    }
    assert_null(parse_wish("another", "placement", "nowhere", &config));
    assert_false(config.has_placement);
    session_config_fini(&config);
}

static void a_wish_that_nobody_knows_is_refused(void **state) {
    const char *const wishes[][3] = {{"placement", "somewhere", "'somewhere'"},
                                     {"placement", "", "''"},
                                     {"colour", "blue", "'colour'"}};
    for (size_t i = 0; i < ARRAY_LEN(wishes); i++) {
        struct session_config config;
        struct status *st = parse_wish("millrace", wishes[i][0], wishes[i][1], &config);
        assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(status_message(st), wishes[i][2]));
        status_unref(st);
        session_config_fini(&config);
    }
}

static void the_cost_model_is_asked_for(void **state) {
    struct session_config config;
    struct str bytes = STR_INIT, graph = STR_INIT;
    proto_add_int(&graph, 4, 7);
    proto_add_int(&graph, 9, 3);
    proto_add_bytes(&bytes, 10, graph.data, graph.len);
    assert_null(parse(&bytes, &config));
    assert_int_equal(config.build_cost_model, 7);
    assert_int_equal(config.build_cost_model_after, 3);
    session_config_fini(&config);
    str_fini(&bytes);
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

/* ---- cluster_def ---- */

static void add_job(struct str *cluster, const char *name, int first, int n, int port) {
    struct str job = STR_INIT;
    for (int i = 0; i < n; i++) {
        struct str task = STR_INIT, address = STR_INIT;
        str_addf(&address, "host:%d", port + i);
        proto_add_int(&task, 1, (uint64_t)(int64_t)(first + i));
        proto_add_bytes(&task, 2, address.data, address.len);
        proto_add_bytes(&job, 2, task.data, task.len);
        str_fini(&task);
        str_fini(&address);
    }
    proto_add_bytes(&job, 1, name, strlen(name)); /* after the tasks, which proto3 allows */
    proto_add_bytes(cluster, 1, job.data, job.len);
    str_fini(&job);
}

static struct status *parse_cluster(struct str *cluster, struct session_config *config) {
    struct str bytes = STR_INIT;
    proto_add_bytes(&bytes, 14, cluster->data ? cluster->data : "", cluster->len);
    struct status *st = parse(&bytes, config);
    str_fini(&bytes);
    str_fini(cluster);
    return st;
}

static void a_cluster_is_read(void **state) {
    struct session_config config;
    struct str cluster = STR_INIT;
    add_job(&cluster, "store", 0, 2, 100);
    add_job(&cluster, "a", 7, 1, 200);
    assert_null(parse_cluster(&cluster, &config));
    assert_int_equal(config.cluster->n_tasks, 3);
    assert_string_equal(config.cluster->tasks[1].name, "/job:store/replica:0/task:1");
    assert_string_equal(config.cluster->tasks[1].address, "host:101");
    assert_string_equal(config.cluster->tasks[2].name, "/job:a/replica:0/task:7");
    session_config_fini(&config);
    assert_null(config.cluster);
}

static void an_empty_cluster_is_none(void **state) {
    struct session_config config;
    struct str cluster = STR_INIT;
    add_job(&cluster, "a", 0, 0, 0);
    assert_null(parse_cluster(&cluster, &config));
    assert_null(config.cluster);
    session_config_fini(&config);
}

static void expect_wrong_cluster(struct str *cluster, const char *words) {
    struct session_config config;
    struct status *st = parse_cluster(cluster, &config);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    if (!strstr(status_message(st), words))
        fail_msg("%s lacks '%s'", status_message(st), words);
    status_unref(st);
    session_config_fini(&config);
}

static void wrong_clusters_are_refused(void **state) {
    struct str cluster = STR_INIT;
    add_job(&cluster, "a", 0, SESSION_MAX_CLUSTER_TASKS, 1);
    struct session_config largest;
    assert_null(parse_cluster(&cluster, &largest));
    session_config_fini(&largest);
    add_job(&cluster, "a", 0, SESSION_MAX_CLUSTER_TASKS + 1, 1);
    expect_wrong_cluster(&cluster, "more than 512 tasks");
    add_job(&cluster, "a", 0, 1, 1);
    add_job(&cluster, "a", 1, 1, 2);
    expect_wrong_cluster(&cluster, "job a is listed twice");
    add_job(&cluster, "a", 0, 1, 1);
    add_job(&cluster, "b", 0, 1, 1);
    expect_wrong_cluster(&cluster, "the address of two tasks");
    add_job(&cluster, "a", -1, 1, 1);
    expect_wrong_cluster(&cluster, "-1 is not the number of a task");
    add_job(&cluster, "a/b", 0, 1, 1);
    expect_wrong_cluster(&cluster, "not a job name");
    add_job(&cluster, "a", 0, 1, 0);
    expect_wrong_cluster(&cluster, "host:0");
    str_add(&cluster, "\x0a\x7f");
    expect_wrong_cluster(&cluster, "cluster_def");
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
        cmocka_unit_test(a_session_chooses_its_placement),
        cmocka_unit_test(a_wish_that_nobody_knows_is_refused),
        cmocka_unit_test(the_cost_model_is_asked_for),
        cmocka_unit_test(devices_are_counted),
        cmocka_unit_test(filters_leave_tasks),
        cmocka_unit_test(a_cluster_is_read),
        cmocka_unit_test(an_empty_cluster_is_none),
        cmocka_unit_test(wrong_clusters_are_refused),
        cmocka_unit_test(wrong_bytes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
