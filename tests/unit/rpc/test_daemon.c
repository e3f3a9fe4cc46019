/* What the daemons share: addresses that they may listen on, the admin port, and settings from
 * TF_CONFIG. */
#include "rpc/daemon/daemon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void only_loopback_needs_no_consent(void **state) {
    static const char *const near[] = {"127.0.0.1:0", "127.1.2.3:80", "localhost:80", "[::1]:80",
                                       "unix:/tmp/x"};
    static const char *const wide[] = {
        "0.0.0.0:80",         ":80",   "*:80", "[::]:80", "10.0.0.1:80", "host:80",
        "127.example.com:80", "127:80"};
    for (size_t i = 0; i < ARRAY_LEN(near); i++)
        assert_null(daemon_check_listen("listen", near[i], false));
    for (size_t i = 0; i < ARRAY_LEN(wide); i++) {
        struct status *st = daemon_check_listen("listen", wide[i], false);
        assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(status_message(st), "--insecure"));
        status_unref(st);
        assert_null(daemon_check_listen("listen", wide[i], true));
    }
}

static void what_is_no_address_is_refused_either_way(void **state) {
    static const char *const wrong[] = {
        "", "bad", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "::1:80", "unix:"};
    for (size_t i = 0; i < 2 * ARRAY_LEN(wrong); i++) {
        struct status *st = daemon_check_listen("admin", wrong[i / 2], i % 2);
        assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(status_message(st), "admin: address"));
        status_unref(st);
    }
}

static void the_admin_port_is_ten_thousand_above(void **state) {
    static const struct {
        const char *flag, *listen;
        int port;
        const char *admin; /* NULL: none */
    } cases[] = {
        {NULL, "127.0.0.1:2222", 2222, "127.0.0.1:12222"},
        {NULL, "[::1]:2300", 2300, "[::1]:12300"},
        {NULL, "127.0.0.1:0", 40000, "127.0.0.1:0"},     /* any port: any port */
        {NULL, "0.0.0.0:2222", 2222, "127.0.0.1:12222"}, /* on loopback unless told */
        {NULL, "[::]:2222", 2222, "127.0.0.1:12222"},
        {NULL, ":2222", 2222, "127.0.0.1:12222"},
        {NULL, "ps0.example:2400", 2400, "127.0.0.1:12400"},
        {NULL, "localhost:2300", 2300, "localhost:12300"},
        {"0.0.0.0:99", "127.0.0.1:2222", 2222, "0.0.0.0:99"},
        {NULL, "127.0.0.1:55535", 55535, "127.0.0.1:65535"},
        {NULL, "127.0.0.1:55536", 55536, "127.0.0.1:0"}, /* the sum is no port */
        {NULL, "unix:/tmp/x", 0, "127.0.0.1:0"},
        {"10.0.0.1:99", "127.0.0.1:2222", 2222, "10.0.0.1:99"},
        {"off", "127.0.0.1:2222", 2222, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str address = STR_INIT;
        bool is_served =
            daemon_admin_address(cases[i].flag, cases[i].listen, cases[i].port, &address);
        assert_int_equal(is_served, cases[i].admin != NULL);
        if (cases[i].admin)
            assert_string_equal(str_text(&address), cases[i].admin);
        str_fini(&address);
    }
}

/* ---- TF_CONFIG ---- */

struct values {
    const char *cluster, *job;
    int64_t task;
};
static const struct option_row rows[] = {
    {.name = "cluster", .kind = OPTION_STRING, .offset = offsetof(struct values, cluster)},
    {.name = "job",
     .kind = OPTION_STRING,
     .offset = offsetof(struct values, job),
     .default_text = "worker"},
    {.name = "task",
     .kind = OPTION_INT,
     .offset = offsetof(struct values, task),
     .default_text = "0"},
};
static const struct options_spec spec = {
    .program = "tf-test", .section = "test", .rows = rows, .n_rows = ARRAY_LEN(rows)};

static struct status *read_tf_config(const char *json, bool is_task, struct options *options,
                                     struct values *values) {
    memset(values, 0, sizeof(*values));
    options_init(options, &spec, values);
    if (json)
        setenv("TF_CONFIG", json, 1);
    else
        unsetenv("TF_CONFIG");
    return daemon_read_tf_config(options, is_task);
}

static void tf_config_becomes_settings(void **state) {
    static const char json[] = "{\"cluster\": {\"ps\": [\"a:1\"], \"worker\": [\"b:1\", \"b:2\"]}, "
                               "\"task\": {\"type\": \"ps\", \"index\": 3}}";
    struct options options;
    struct values values;
    assert_null(read_tf_config(json, true, &options, &values));
    assert_string_equal(values.cluster, "ps=a:1,worker=b:1;b:2");
    assert_string_equal(values.job, "ps");
    assert_int_equal(values.task, 3);
    options_fini(&options);
    /* of a master: the task is somebody else's */
    assert_null(read_tf_config(json, false, &options, &values));
    assert_string_equal(values.cluster, "ps=a:1,worker=b:1;b:2");
    assert_null(values.job);
    options_fini(&options);
    assert_null(read_tf_config("", true, &options, &values));
    assert_null(values.cluster);
    options_fini(&options);
    assert_null(read_tf_config(NULL, true, &options, &values));
    assert_null(values.cluster);
    options_fini(&options);
    struct status *st = read_tf_config("{", true, &options, &values);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
    options_fini(&options);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_loopback_needs_no_consent),
        cmocka_unit_test(what_is_no_address_is_refused_either_way),
        cmocka_unit_test(the_admin_port_is_ten_thousand_above),
        cmocka_unit_test(tf_config_becomes_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
