/* Captures of steps: the limit on what is kept, and the ways in which captures end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "master/session/session.h"
#include "master/step/profiler.h"
#include "master/step/step_internal.h"
#include "tests/unit/rpc/loop_until.h"

struct fixture {
    struct loop *loop;
    struct pool *pool;
    struct profiler profiler;
    int n_ended;
    int64_t n_steps, n_events; /* of the last one that ended */
};

static void open_profiler(struct fixture *f) {
    *f = (struct fixture){.loop = loop_new(), .pool = pool_new(1)};
    profiler_init(&f->profiler, f->loop, f->pool);
}

static void close_profiler(struct fixture *f) {
    pool_free(f->pool);
    loop_end(f->loop);
}

static void on_done(void *arg, const struct profile_summary *summary, const struct str *xspace,
                    int64_t n_events) {
    struct fixture *f = arg;
    f->n_ended++;
    f->n_steps = summary->n_steps;
    f->n_events = n_events;
}

static void start(struct fixture *f, const char *id) {
    struct profile_capture *capture;
    assert_null(profile_start(&f->profiler, PROFILER_MAX_MS, 0, true, span_of(id), span_of("host"),
                              on_done, f, &capture));
}

static void note_steps(struct fixture *f, int n) {
    char handle[] = "0123456789abcdef0123456789abcdef";
    struct session session = {.handle = handle};
    struct step step = {.session = &session};
    for (int i = 0; i < n; i++)
        profiler_note(&f->profiler, &step, 0); /* it began in the capture: not 1 us ago */
}

static void captures_keep_no_more_than_the_limit_together(void **state) {
    struct fixture f;
    size_t others = PROFILER_MAX_BYTES - 1000; /* of captures that this test leaves out */
    open_profiler(&f);
    f.profiler.n_bytes = others;
    start(&f, "a");
    start(&f, "b");
    note_steps(&f, 1000);
    assert_in_range(f.profiler.n_bytes, others + 1, PROFILER_MAX_BYTES);
    profiler_end_all(&f.profiler);
    assert_in_range(f.profiler.n_bytes, others + 1, PROFILER_MAX_BYTES); /* they are written now */
    LOOP_UNTIL(f.loop, f.n_ended == 2);
    assert_int_equal(f.profiler.n_bytes, others);
    assert_int_equal(f.n_steps, 1000);
    assert_in_range(f.n_events, 1, 10);
    close_profiler(&f);
}

static void a_capture_ends_by_its_id_only(void **state) {
    struct fixture f;
    open_profiler(&f);
    start(&f, "a");
    start(&f, "");
    struct status *st = profiler_end(&f.profiler, span_of(""));
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
    assert_int_equal(f.profiler.n_captures, 2);
    assert_null(profiler_end(&f.profiler, span_of("a")));
    assert_int_equal(f.profiler.n_captures, 1);
    note_steps(&f, 1);
    profiler_end_all(&f.profiler);
    LOOP_UNTIL(f.loop, f.n_ended == 2);
    assert_int_equal(f.profiler.n_captures, 0);
    close_profiler(&f);
}

static void a_capture_that_is_written_outlives_the_profiler(void **state) {
    struct fixture f;
    open_profiler(&f);
    start(&f, "a");
    note_steps(&f, 5);
    profiler_end_all(&f.profiler);
    profiler_close(&f.profiler);
    memset(&f.profiler, 0xff, sizeof(f.profiler)); /* nobody looks at it */
    LOOP_UNTIL(f.loop, f.n_ended == 1);
    assert_int_equal(f.n_steps, 5);
    assert_in_range(f.n_events, 1, 10);
    close_profiler(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captures_keep_no_more_than_the_limit_together),
        cmocka_unit_test(a_capture_ends_by_its_id_only),
        cmocka_unit_test(a_capture_that_is_written_outlives_the_profiler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
