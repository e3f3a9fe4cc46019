/* Traces of steps as TensorFlow's XSpace: which planes and lines there are, limits, and malformed
 * traces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/tensor/tensor_proto.h"
#include "master/step/xspace.h"

/* A StepStats message with one row of a device. */
static void make_trace(const char *device, const char *name, const char *label, int64_t start_us,
                       struct str *out) {
    struct str row = STR_INIT, stats = STR_INIT;
    proto_add_bytes(&row, 1, name, strlen(name));
    proto_add_int(&row, 2, (uint64_t)start_us);
    proto_add_int(&row, 5, 7);
    proto_add_bytes(&row, 8, label, strlen(label));
    proto_add_int(&row, 10, 3);
    proto_add_bytes(&stats, 2, row.data, row.len);
    proto_add_bytes(&stats, 1, device, strlen(device)); /* the name may follow its rows */
    proto_add_bytes(out, 1, stats.data, stats.len);
    str_fini(&row);
    str_fini(&stats);
}

static bool holds(const struct str *bytes, const char *text) {
    return memmem(bytes->data, bytes->len, text, strlen(text)) != NULL;
}

static void rows_become_events_of_lines(void **state) {
    struct xspace xspace;
    struct str trace = STR_INIT, out = STR_INIT;
    make_trace("/job:ps/replica:0/task:0/device:CPU:0", "sum", "sum = AddN(a, b)", 1000, &trace);
    make_trace("/job:ps/replica:0/task:0/device:GPU:0/stream:all", "mm:MatMul", "mm:MatMul", 1001,
               &trace);
    make_trace("/job:ps/replica:0/task:0/device:CPU:0", "early", "early = NoOp()", 10, &trace);
    xspace_init(&xspace, 500, 100);
    xspace_add_trace(&xspace, (struct span){trace.data, trace.len}, 42);
    xspace_add_step(&xspace, "s1", 42, 900, 200);
    assert_int_equal(xspace.n_events, 3);
    xspace_write(&xspace, 2000, "host:1", &out);
    assert_true(proto_is_message((struct span){out.data, out.len}));
    assert_true(holds(&out, "/host:CPU"));
    assert_true(holds(&out, "/job:ps/replica:0/task:0 thread 3"));
    assert_true(holds(&out, "sum:AddN"));
    assert_true(holds(&out, "/job:ps/replica:0/task:0/device:GPU:0/stream:all"));
    assert_true(holds(&out, "session s1"));
    assert_true(holds(&out, "host:1"));
    assert_false(holds(&out, "early"));
    xspace_fini(&xspace);
    str_fini(&trace);
    str_fini(&out);
}

static void a_row_of_a_stream_names_its_kernel(void **state) {
    struct xspace xspace;
    struct str trace = STR_INIT, out = STR_INIT;
    make_trace("/job:a/replica:0/task:0/device:GPU:0/stream:7", "mm:MatMul", "sgemm_64@@mm:MatMul#",
               1000, &trace);
    make_trace("/job:a/replica:0/task:0/device:CPU:0", "text", "odd@@label", 1000, &trace);
    xspace_init(&xspace, 0, 100);
    xspace_add_trace(&xspace, (struct span){trace.data, trace.len}, 42);
    xspace_write(&xspace, 2000, "h", &out);
    assert_true(holds(&out, "/job:a/replica:0/task:0/device:GPU:0/stream:7"));
    assert_true(holds(&out, "sgemm_64 mm:MatMul"));
    assert_false(holds(&out, "odd"));
    xspace_fini(&xspace);
    str_fini(&trace);
    str_fini(&out);
}

static void events_beyond_the_limit_are_counted(void **state) {
    struct xspace xspace;
    struct str out = STR_INIT;
    xspace_init(&xspace, 0, 2);
    for (int i = 0; i < 5; i++)
        xspace_add_step(&xspace, "s", (uint64_t)i, 10 + i, 1);
    assert_int_equal(xspace.n_events, 2);
    xspace_write(&xspace, 100, "h", &out);
    assert_true(holds(&out, "3 more events were left out"));
    xspace_fini(&xspace);
    str_fini(&out);
}

static void every_truncation_is_harmless(void **state) {
    struct str trace = STR_INIT;
    make_trace("/job:ps/replica:0/task:0/device:CPU:0", "sum", "sum = AddN(a, b)", 1000, &trace);
    for (size_t len = 0; len < trace.len; len++) {
        struct xspace xspace;
        struct str out = STR_INIT;
        char *copy = malloc(len + 1); /* so that a sanitizer sees reads beyond it */
        memcpy(copy, trace.data, len);
        xspace_init(&xspace, 0, 10);
        xspace_add_trace(&xspace, (struct span){copy, len}, 1);
        xspace_write(&xspace, 1, "h", &out);
        xspace_fini(&xspace);
        str_fini(&out);
        free(copy);
    }
    str_fini(&trace);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_become_events_of_lines),
        cmocka_unit_test(a_row_of_a_stream_names_its_kernel),
        cmocka_unit_test(events_beyond_the_limit_are_counted),
        cmocka_unit_test(every_truncation_is_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
