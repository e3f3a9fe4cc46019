/* The log: lines of strangers, limits, and a reader that does not read. Standard error is a pipe
 * of the test's while it runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/str.h"

static int saved_stderr, reader;

static void redirect(void) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    saved_stderr = dup(STDERR_FILENO);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
    reader = ends[0];
    assert_true(fcntl(reader, F_SETFL, O_NONBLOCK) == 0);
}

static void restore(void) {
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(reader);
}

/* All that is in the pipe. */
static void drain(struct str *out) {
    char bytes[4096];
    ssize_t n;
    while ((n = read(reader, bytes, sizeof(bytes))) > 0)
        str_add_bytes(out, bytes, (size_t)n);
}

static void a_line_cannot_forge_another(void **state) {
    struct str text = STR_INIT;
    redirect();
    log_info("name %s", "x\n2026-01-01T00:00:00.000Z E forged");
    drain(&text);
    restore();
    assert_non_null(strstr(str_text(&text), "name x 2026"));
    assert_ptr_equal(strchr(str_text(&text), '\n'), str_text(&text) + text.len - 1);
    str_fini(&text);
}

static void a_full_pipe_loses_lines_and_says_so(void **state) {
    enum { N_LINES = 40 };
    static char filler[4000];
    struct str text = STR_INIT;
    memset(filler, 'f', sizeof(filler) - 1);
    redirect();
    for (int i = 0; i < N_LINES; i++) /* more than a pipe holds: this returns */
        log_info("%s", filler);
    drain(&text);
    assert_true(text.len < N_LINES * sizeof(filler));
    str_clear(&text);
    log_info("after");
    drain(&text);
    restore();
    assert_non_null(strstr(str_text(&text), "after ("));
    assert_non_null(strstr(str_text(&text), "lines before this one were lost"));
    str_fini(&text);
}

static void a_limit_lets_one_line_a_second_pass(void **state) {
    struct log_limit limit = {0};
    int64_t n_silent = -1;
    assert_true(log_limit_pass(&limit, &n_silent));
    assert_int_equal(n_silent, 0);
    for (int i = 0; i < 5; i++)
        assert_false(log_limit_pass(&limit, &n_silent));
    atomic_store(&limit.next_ms, 0); /* the second has passed */
    assert_true(log_limit_pass(&limit, &n_silent));
    assert_int_equal(n_silent, 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_cannot_forge_another),
        cmocka_unit_test(a_full_pipe_loses_lines_and_says_so),
        cmocka_unit_test(a_limit_lets_one_line_a_second_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
