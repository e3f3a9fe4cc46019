/* The Prometheus text: one head per name, series of a name together, histograms that add up. */
#include "common/base/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/process_metrics.h"

static struct metric steps_ok = {.kind = METRIC_COUNTER,
                                 .name = "t_steps_total",
                                 .labels = "code=\"OK\"",
                                 .help = "Steps by outcome."};
static struct metric sessions = METRIC_GAUGE_INIT("t_sessions", "Live sessions.");
static struct metric steps_aborted = {.kind = METRIC_COUNTER,
                                      .name = "t_steps_total",
                                      .labels = "code=\"ABORTED\"",
                                      .help = "Steps by outcome."};
static struct metric step_seconds = METRIC_HISTOGRAM_INIT("t_step_seconds", "Time of a step.");
static struct metric waits = {
    .kind = METRIC_HISTOGRAM, .name = "t_wait_seconds", .labels = "queue=\"a\"", .help = "Waits."};
static struct metric offset = METRIC_GAUGE_US_INIT("t_offset_seconds", "Of a clock.");

static void assert_has(const struct str *out, const char *line) {
    if (!strstr(str_text(out), line))
        fail_msg("no \"%s\" in:\n%s", line, str_text(out));
}

static int register_all(void **state) {
    for (int twice = 0; twice < 2; twice++) {
        metrics_register(&steps_ok);
        metrics_register(&sessions);
        metrics_register(&steps_aborted);
        metrics_register(&step_seconds);
        metrics_register(&waits);
        metrics_register(&offset);
    }
    return 0;
}

static void series_of_one_name_stand_under_one_head(void **state) {
    struct str out = STR_INIT;
    metric_add(&steps_ok, 5);
    metric_add(&steps_ok, 2);
    metric_set(&sessions, -3);
    metrics_write_prometheus(&out);
    assert_has(&out, "# HELP t_steps_total Steps by outcome.\n"
                     "# TYPE t_steps_total counter\n"
                     "t_steps_total{code=\"OK\"} 7\n"
                     "t_steps_total{code=\"ABORTED\"} 0\n"
                     "# HELP t_sessions Live sessions.\n"
                     "# TYPE t_sessions gauge\n"
                     "t_sessions -3\n"
                     "# HELP");
    const char *head = strstr(str_text(&out), "# TYPE t_steps_total");
    assert_null(strstr(head + 1, "# TYPE t_steps_total"));
    str_fini(&out);
}

static void a_histogram_is_in_seconds(void **state) {
    struct str out = STR_INIT;
    static const int64_t times_us[] = {
        -5, 0, 1, 2, 3, 4, 5, 1 << 20, 1 << 26, (1 << 26) + 1, INT64_C(1) << 40};
    for (size_t i = 0; i < ARRAY_LEN(times_us); i++)
        metric_observe_us(&step_seconds, times_us[i]);
    metrics_write_prometheus(&out);
    assert_has(&out, "# TYPE t_step_seconds histogram\n"
                     "t_step_seconds_bucket{le=\"1e-06\"} 3\n"
                     "t_step_seconds_bucket{le=\"2e-06\"} 4\n"
                     "t_step_seconds_bucket{le=\"4e-06\"} 6\n"
                     "t_step_seconds_bucket{le=\"8e-06\"} 7\n");
    assert_has(&out, "t_step_seconds_bucket{le=\"0.524288\"} 7\n"
                     "t_step_seconds_bucket{le=\"1.048576\"} 8\n");
    assert_has(&out, "t_step_seconds_bucket{le=\"67.108864\"} 9\n"
                     "t_step_seconds_bucket{le=\"+Inf\"} 11\n"
                     "t_step_seconds_sum 1099646.894096\n"
                     "t_step_seconds_count 11\n");
    str_fini(&out);
}

static void labels_of_a_histogram_stand_before_its_bounds(void **state) {
    struct str out = STR_INIT;
    metric_observe_us(&waits, 3);
    metric_observe_us(&waits, 1000);
    metrics_write_prometheus(&out);
    assert_has(&out, "t_wait_seconds_bucket{queue=\"a\",le=\"2e-06\"} 0\n"
                     "t_wait_seconds_bucket{queue=\"a\",le=\"4e-06\"} 1\n");
    assert_has(&out, "t_wait_seconds_bucket{queue=\"a\",le=\"67.108864\"} 2\n"
                     "t_wait_seconds_bucket{queue=\"a\",le=\"+Inf\"} 2\n"
                     "t_wait_seconds_sum{queue=\"a\"} 0.001003\n"
                     "t_wait_seconds_count{queue=\"a\"} 2\n");
    str_fini(&out);
}

static void a_gauge_of_a_time_is_in_seconds(void **state) {
    struct str out = STR_INIT;
    metric_set(&offset, -1500);
    metrics_write_prometheus(&out);
    assert_has(&out, "# TYPE t_offset_seconds gauge\nt_offset_seconds -0.0015\n");
    str_fini(&out);
}

static double process_value(const struct str *out, const char *name) {
    char line[100];
    snprintf(line, sizeof(line), "\n%s ", name);
    const char *at = strstr(str_text(out), line);
    if (!at)
        fail_msg("no %s in:\n%s", name, str_text(out));
    return strtod(at + strlen(line), NULL);
}

static void a_process_says_what_it_uses(void **state) {
    struct str before = STR_INIT, after = STR_INIT;
    process_metrics_write(&before);
    assert_has(&before, "millrace_build_info{version=\"" MILLRACE_VERSION "\"} 1\n");
    int fd = dup(0);
    process_metrics_write(&after);
    close(fd);
    assert_true(process_value(&after, "process_open_fds") ==
                process_value(&before, "process_open_fds") + 1);
    assert_true(process_value(&after, "process_max_fds") >= 64);
    assert_true(process_value(&after, "process_cpu_seconds_total") <= (double)clock() / 1e6 + 1);
    double resident = process_value(&after, "process_resident_memory_bytes");
    assert_true(resident > 100e3 && resident < 10e9);
    assert_true(process_value(&after, "process_virtual_memory_bytes") >= resident);
    double age_s = (double)time(NULL) - process_value(&after, "process_start_time_seconds");
    assert_true(age_s > -10 && age_s < 3600);
    str_fini(&before);
    str_fini(&after);
}

static void label_values_are_escaped(void **state) {
    struct str out = STR_INIT;
    metrics_write_head(&out, "a_bytes", "gauge", "help");
    metrics_add_label_value(&out, "a\"b\\c\nd\xff\xc3\xa9");
    assert_string_equal(str_text(&out), "# HELP a_bytes help\n# TYPE a_bytes gauge\n"
                                        "a\\\"b\\\\c\\nd\xef\xbf\xbd\xc3\xa9");
    str_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(label_values_are_escaped),
        cmocka_unit_test(series_of_one_name_stand_under_one_head),
        cmocka_unit_test(a_histogram_is_in_seconds),
        cmocka_unit_test(labels_of_a_histogram_stand_before_its_bounds),
        cmocka_unit_test(a_gauge_of_a_time_is_in_seconds),
        cmocka_unit_test(a_process_says_what_it_uses),
    };
    return cmocka_run_group_tests(tests, register_all, NULL);
}
