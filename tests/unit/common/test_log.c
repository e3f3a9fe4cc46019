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
    log_event(EVENT_SERVING, "name %s", "x\n2026-01-01T00:00:00.000Z E forged");
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
        log_event(EVENT_STEPZ, "%s", filler);
    drain(&text);
    assert_true(text.len < N_LINES * sizeof(filler));
    str_clear(&text);
    log_event(EVENT_SERVING, "after");
    drain(&text);
    restore();
    assert_non_null(strstr(str_text(&text), "after ("));
    assert_non_null(strstr(str_text(&text), "lines before this one were lost"));
    str_fini(&text);
}

static int n_lines(const struct str *text) {
    int n = 0;
    for (size_t i = 0; i < text->len; i++)
        n += text->data[i] == '\n';
    return n;
}

static void the_same_text_again_becomes_a_number(void **state) {
    struct str text = STR_INIT;
    redirect();
    for (int i = 0; i < 121; i++)
        log_event(EVENT_TASK_LOST, "lost task a");
    drain(&text);
    assert_int_equal(n_lines(&text), 1);
    log_event(EVENT_TASK_LOST, "lost task b"); /* another text: both lines are written */
    drain(&text);
    assert_int_equal(n_lines(&text), 3);
    assert_non_null(strstr(str_text(&text), "lost task a (repeated 120 times)\n"));
    assert_non_null(strstr(str_text(&text), "lost task b\n"));
    log_event(EVENT_TASK_LOST, "lost task b");
    log_flush_repeats(true);
    drain(&text);
    restore();
    assert_int_equal(n_lines(&text), 4);
    assert_non_null(strstr(str_text(&text), "lost task b (repeated once)\n"));
    str_fini(&text);
}

static void what_strangers_provoke_is_limited_whatever_its_text(void **state) {
    struct str text = STR_INIT;
    redirect();
    for (int i = 0; i < 6; i++)
        log_event(EVENT_CONNECTION_CLOSED, "closed %d", i);
    log_flush_repeats(true);
    drain(&text);
    restore();
    assert_int_equal(n_lines(&text), 2);
    assert_non_null(strstr(str_text(&text), "closed 5 (repeated 5 times)\n"));
    str_fini(&text);
}

static void dumps_are_not_repeats(void **state) {
    struct str text = STR_INIT;
    redirect();
    for (int i = 0; i < 6; i++)
        log_event(EVENT_GRAPH_DUMP, "same");
    drain(&text);
    restore();
    assert_int_equal(n_lines(&text), 6);
    str_fini(&text);
}

static void a_line_of_json_escapes_what_strangers_say(void **state) {
    struct str text = STR_INIT;
    redirect();
    log_set_format(LOG_JSON);
    log_set_task("/job:ps/task:0");
    log_event_at(EVENT_GRAPH_PRINT, LOG_WARNING, "%s", "a \"b\"\n\xff");
    log_set_format(LOG_TEXT);
    drain(&text);
    restore();
    assert_int_equal(n_lines(&text), 1);
    assert_non_null(strstr(str_text(&text), "Z\",\"level\":\"warning\",\"task\":\"/job:ps/task:0\","
                                            "\"event\":\"graph.print\","
                                            "\"message\":\"a \\\"b\\\"\\n\\ufffd\"}\n"));
    assert_memory_equal(str_text(&text), "{\"time\":\"", 9);
    str_fini(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_cannot_forge_another),
        cmocka_unit_test(a_full_pipe_loses_lines_and_says_so),
        cmocka_unit_test(the_same_text_again_becomes_a_number),
        cmocka_unit_test(what_strangers_provoke_is_limited_whatever_its_text),
        cmocka_unit_test(dumps_are_not_repeats),
        cmocka_unit_test(a_line_of_json_escapes_what_strangers_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
