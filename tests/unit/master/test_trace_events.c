/* Files of trace events: where steps and what tasks say of them are drawn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "master/service/trace_events.h"

static const int64_t DAY_US = 86400000000, NOW_US = 1800000000000000;

/* Writes a file of two steps, three days apart, and one row of a task. */
static char *write_file(int64_t start_us, int64_t row_ns) {
    struct step_log_entry old = {.id = 1, .what = "old", .start_us = NOW_US - 3 * DAY_US},
                          young = {.id = 2, .what = "young", .start_us = NOW_US};
    young.start_ns = 1000;
    young.run_ns = 5000;
    const struct step_log_entry *steps[] = {&young, &old};
    Millrace__TraceRow row = MILLRACE__TRACE_ROW__INIT, *rows[] = {&row};
    row.name = row.op = (char *)"MatMul";
    row.start_ns = row.duration_ns = row_ns;
    Millrace__StepTrace trace = MILLRACE__STEP_TRACE__INIT, *list[] = {&trace};
    trace.step_id = 2;
    trace.start_us = start_us;
    trace.n_row = 1;
    trace.row = rows;
    Millrace__Traces traces = MILLRACE__TRACES__INIT;
    traces.n_trace = 1;
    traces.trace = list;
    struct trace_source source = {"/job:worker/replica:0/task:0", &traces};
    struct str out = STR_INIT;
    trace_events_write(steps, 2, &source, 1, 3, &out);
    return str_detach(&out);
}

static void expect(char *file_take, const char *text) {
    if (!strstr(file_take, text))
        fail_msg("no %s in %s", text, file_take);
    free(file_take);
}

static void steps_that_are_days_apart_are_drawn_so(void **state) {
    expect(write_file(NOW_US, 0), "\"name\":\"young\",\"cat\":\"step\",\"ts\":259200000000.000,"
                                  "\"dur\":6.000");
    expect(write_file(NOW_US + 2, 7000), "\"cat\":\"node\",\"ts\":259200000009.000,\"dur\":7.000");
}

/* Numbers that would overflow are drawn at most a day before the first step or after the last. */
static void a_task_may_state_any_time(void **state) {
    expect(write_file(INT64_MIN, INT64_MIN), "\"cat\":\"node\",\"ts\":0.000,\"dur\":0.000");
    expect(write_file(INT64_MIN, 0), "\"name\":\"old\",\"cat\":\"step\",\"ts\":86400000000.000");
    expect(write_file(INT64_MAX, INT64_MAX),
           "\"cat\":\"node\",\"ts\":432000000000.000,\"dur\":86400000000.000");
}

static void tasks_that_were_left_out_are_counted(void **state) {
    expect(write_file(NOW_US, 0), "\"tasks_left_out\":3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_are_days_apart_are_drawn_so),
        cmocka_unit_test(a_task_may_state_any_time),
        cmocka_unit_test(tasks_that_were_left_out_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
