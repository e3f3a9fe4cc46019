/* Cluster lists: the flag's form, TF_CONFIG, and what is wrong with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rpc/membership/cluster.h"

static struct cluster_spec spec;

static int setup(void **state) {
    cluster_spec_init(&spec);
    return 0;
}

static int teardown(void **state) {
    cluster_spec_fini(&spec);
    return 0;
}

static void expect_refusal(const char *text, const char *words) {
    struct status *st = cluster_spec_parse(text, &spec);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    if (!strstr(status_message(st), words))
        fail_msg("\"%s\" does not say \"%s\"", status_message(st), words);
    status_unref(st);
    assert_int_equal(spec.n_tasks, 0);
}

static void jobs_and_tasks_are_listed_by_name_and_index(void **state) {
    assert_null(cluster_spec_parse("worker=w0:2300;w1:2300, ps=p0:2400", &spec));
    assert_int_equal(spec.n_tasks, 3);
    assert_string_equal(spec.tasks[0].name, "/job:ps/replica:0/task:0");
    assert_string_equal(spec.tasks[0].address, "p0:2400");
    assert_string_equal(spec.tasks[2].name, "/job:worker/replica:0/task:1");
    assert_string_equal(spec.tasks[2].address, "w1:2300");
    struct str text = STR_INIT;
    cluster_spec_print(&spec, &text);
    assert_string_equal(text.data, "ps=p0:2400,worker=w0:2300;w1:2300");
    str_fini(&text);
    /* the old server's form */
    assert_null(cluster_spec_parse("local|localhost:1;localhost:2", &spec));
    assert_int_equal(spec.n_tasks, 2);
}

static void wrong_lists_are_refused(void **state) {
    expect_refusal("", "without tasks");
    expect_refusal("ps", "is not job=address");
    expect_refusal("ps=", "the address of task 0 is empty");
    expect_refusal("ps=a:1;;b:2", "the address of task 1 is empty");
    expect_refusal("ps=a", "has no port");
    expect_refusal("ps=a:0", "no host or port");
    expect_refusal("ps=:5", "no host or port");
    expect_refusal("ps=a:99999", "port");
    expect_refusal("1ps=a:1", "not a job name");
    expect_refusal("p-s=a:1", "not a job name");
    expect_refusal("ps=a:1,ps=b:1", "job ps is listed twice");
    expect_refusal("ps=a:1,worker=a:1", "is the address of two tasks");
}

static void tf_config_gives_cluster_and_task(void **state) {
    const char *job;
    int index;
    assert_null(cluster_spec_parse_tf_config(
        "{\"cluster\": {\"worker\": [\"a:1\", \"b:2\"], \"chief\": [\"c:3\"]},"
        " \"task\": {\"type\": \"worker\", \"index\": 1}, \"environment\": \"cloud\"}",
        &spec, &job, &index));
    assert_int_equal(spec.n_tasks, 3);
    assert_string_equal(spec.tasks[0].name, "/job:chief/replica:0/task:0");
    assert_string_equal(job, "worker");
    assert_int_equal(index, 1);
    assert_null(cluster_spec_parse_tf_config(
        "{\"cluster\": {\"ps\": [\"a:1\"]}, \"task\": {\"type\": \"ps\", \"index\": \"0\"}}", &spec,
        &job, &index));
    assert_int_equal(index, 0);
    assert_null(
        cluster_spec_parse_tf_config("{\"cluster\": {\"ps\": [\"a:1\"]}}", &spec, &job, &index));
    assert_null(job);
    assert_int_equal(index, -1);
}

static void a_wrong_tf_config_is_refused(void **state) {
    static const char *const cases[][2] = {
        {"nonsense", "not JSON"},
        {"{}", "no \"cluster\" object"},
        {"[]", "no \"cluster\" object"},
        {"{\"cluster\": {}}", "without tasks"},
        {"{\"cluster\": {\"ps\": \"a:1\"}}", "not a list of addresses"},
        {"{\"cluster\": {\"ps\": [1]}}", "is not a string"},
        {"{\"cluster\": {\"ps\": [\"a\"]}}", "has no port"},
        {"{\"cluster\": {\"ps\": [\"a:1\"]}, \"task\": 3}", "\"task\" is not"},
        {"{\"cluster\": {\"ps\": [\"a:1\"]}, \"task\": {\"type\": \"ps\", \"index\": \"x\"}}",
         "index is not a number"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *job;
        int index;
        struct status *st = cluster_spec_parse_tf_config(cases[i][0], &spec, &job, &index);
        if (!strstr(status_message(st), cases[i][1]))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i][0], status_message(st),
                     cases[i][1]);
        assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
        status_unref(st);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(jobs_and_tasks_are_listed_by_name_and_index),
        TEST(wrong_lists_are_refused),
        TEST(tf_config_gives_cluster_and_task),
        TEST(a_wrong_tf_config_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
