/* Device tables: order, default device, look-up, failed devices, names that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/unit/master/pass_file.h"

static void tasks_are_sorted_with_ps_last_and_devices_with_them(void **state) {
    struct device_table *table =
        devices_from_text("ps:1 worker:10 worker:2+gpu ps:0+cpu chief:0 zebra:0");
    const char *tasks[] = {"/job:chief/replica:0/task:0",   "/job:worker/replica:0/task:2",
                           "/job:worker/replica:0/task:10", "/job:zebra/replica:0/task:0",
                           "/job:ps/replica:0/task:0",      "/job:ps/replica:0/task:1"};
    const char *devices[] = {
        "/job:chief/replica:0/task:0/device:CPU:0",  "/job:worker/replica:0/task:2/device:CPU:0",
        "/job:worker/replica:0/task:2/device:GPU:0", "/job:worker/replica:0/task:10/device:CPU:0",
        "/job:zebra/replica:0/task:0/device:CPU:0",  "/job:ps/replica:0/task:0/device:CPU:0",
        "/job:ps/replica:0/task:0/device:CPU:1",     "/job:ps/replica:0/task:1/device:CPU:0"};
    assert_int_equal(table->n_tasks, ARRAY_LEN(tasks));
    assert_int_equal(table->n_devices, ARRAY_LEN(devices));
    for (size_t i = 0; i < ARRAY_LEN(tasks); i++)
        assert_string_equal(table->tasks[i].name, tasks[i]);
    for (size_t i = 0; i < ARRAY_LEN(devices); i++) {
        const struct device_info *device = &table->devices[i];
        assert_string_equal(device->full_name, devices[i]);
        assert_int_equal(strncmp(device->full_name, table->tasks[device->task].name,
                                 strlen(table->tasks[device->task].name)),
                         0);
    }
    assert_int_equal(table->tasks[1].first_device, 1);
    assert_int_equal(table->tasks[1].n_devices, 2);
    assert_int_equal(table->tasks[2].index, 10);
    assert_string_equal(table->tasks[4].job, "ps");
    device_table_unref(table);
}

static const char *default_of(const char *tasks, char *out, size_t len) {
    struct device_table *table = devices_from_text(tasks);
    int device = table->default_device;
    snprintf(out, len, "%s", device >= 0 ? table->devices[device].full_name : "none");
    device_table_unref(table);
    return out;
}

static void default_is_worker_0_else_the_first_job_that_is_not_ps(void **state) {
    char text[256];
    assert_string_equal(default_of("ps:0 chief:0 worker:1 worker:0", text, sizeof(text)),
                        "/job:worker/replica:0/task:0/device:CPU:0");
    assert_string_equal(default_of("ps:0 worker:3", text, sizeof(text)),
                        "/job:worker/replica:0/task:3/device:CPU:0");
    assert_string_equal(default_of("ps:0 trainer:1", text, sizeof(text)),
                        "/job:trainer/replica:0/task:1/device:CPU:0");
    assert_string_equal(default_of("ps:1 ps:0", text, sizeof(text)),
                        "/job:ps/replica:0/task:0/device:CPU:0");
    assert_string_equal(default_of("", text, sizeof(text)), "none");
}

static void names_that_are_no_tasks_or_devices_are_left_out(void **state) {
    struct device_table *table = device_table_new();
    /* of no task */
    device_table_add_device(table, "/job:w/replica:0/task:0/device:CPU:0", "CPU", 0, 1, NULL);
    device_table_add(table, "/job:worker", "a", NULL, 1);
    device_table_add(table, "rubbish", "a", NULL, 1);
    device_table_add(table, "/job:worker/task:0", "a", "b", 7);
    device_table_add_device(table, "/job:worker/task:0", "CPU", 0, 1, NULL);
    device_table_add_device(table, "/job:worker/replica:0/task:0/cpu:0", "CPU", 12, 9, "a CPU");
    device_table_finish(table);
    assert_int_equal(table->n_tasks, 1);
    assert_int_equal(table->n_devices, 1);
    assert_string_equal(table->tasks[0].name, "/job:worker/replica:0/task:0");
    assert_string_equal(table->tasks[0].unix_address, "b");
    assert_true(table->tasks[0].incarnation == 7);
    assert_string_equal(table->devices[0].full_name, "/job:worker/replica:0/task:0/device:CPU:0");
    assert_string_equal(table->devices[0].description, "a CPU");
    assert_true(table->devices[0].memory_limit_bytes == 12 && table->devices[0].incarnation == 9);
    struct device_table *other = device_table_ref(table);
    device_table_unref(table);
    assert_int_equal(other->n_devices, 1);
    device_table_unref(other);
    device_table_unref(NULL);
}

/* A failed device is in no task's devices and never the default, however the tasks are sorted. */
static void failed_devices_are_kept_apart_with_their_reasons(void **state) {
    struct device_table *table = device_table_new();
    char why[] = "GPU 1 has failed: Xid 79", name[] = "/job:worker/replica:0/task:0/device:GPU:1";
    device_table_add(table, "/job:worker/task:1", "a", NULL, 1);
    device_table_add_device(table, "/job:worker/replica:0/task:1/device:GPU:0", "GPU", 0, 3, NULL);
    device_table_add_failed(table, name, why);
    device_table_add(table, "/job:worker/task:0", "b", NULL, 2);
    device_table_add_failed(table, "/job:worker/replica:0/task:1/device:GPU:2", "no memory");
    memset(why, 'x', sizeof(why) - 1); /* strings are copied */
    memset(name, 'x', sizeof(name) - 1);
    device_table_finish(table);
    assert_int_equal(table->n_tasks, 2);
    assert_int_equal(table->n_devices, 1);
    assert_int_equal(table->tasks[0].n_devices, 0);
    assert_int_equal(table->tasks[1].n_devices, 1);
    assert_int_equal(table->default_device, 0);
    assert_string_equal(table->devices[0].full_name, "/job:worker/replica:0/task:1/device:GPU:0");
    assert_int_equal(table->n_failed, 2);
    assert_string_equal(table->failed[0].full_name, "/job:worker/replica:0/task:0/device:GPU:1");
    assert_string_equal(table->failed[0].why, "GPU 1 has failed: Xid 79");
    assert_string_equal(table->failed[0].name.type, "GPU");
    assert_int_equal(table->failed[0].name.task, 0);
    assert_int_equal(table->failed[0].name.id, 1);
    assert_int_equal(table->failed[1].name.task, 1);
    assert_int_equal(table->failed[1].name.id, 2);
    assert_string_equal(table->failed[1].why, "no memory");
    device_table_unref(table);
}

static void failed_devices_without_a_full_name_are_left_out(void **state) {
    const char *names[] = {"",
                           "rubbish",
                           "/device:GPU:0",
                           "/job:worker/replica:0/task:0",
                           "/job:worker/replica:0/task:0/device:GPU:*",
                           "/job:worker/task:0/device:GPU:0",
                           "/job:worker/replica:0/task:0/device:GPU:-1"};
    struct device_table *table = device_table_new();
    device_table_add(table, "/job:worker/task:0", "a", NULL, 1);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        device_table_add_failed(table, names[i], "why");
    device_table_finish(table);
    assert_int_equal(table->n_failed, 0);
    device_table_unref(table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_are_sorted_with_ps_last_and_devices_with_them),
        cmocka_unit_test(default_is_worker_0_else_the_first_job_that_is_not_ps),
        cmocka_unit_test(names_that_are_no_tasks_or_devices_are_left_out),
        cmocka_unit_test(failed_devices_are_kept_apart_with_their_reasons),
        cmocka_unit_test(failed_devices_without_a_full_name_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
