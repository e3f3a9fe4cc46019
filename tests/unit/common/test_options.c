/* Options: flags over file over environment over defaults, and errors that say where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <unistd.h>

#include "common/base/options.h"

struct values {
    const char *name, *other;
    bool on, off;
    int64_t count, bytes, time_ms;
    int color;
};

static const char *const colors[] = {"red", "green", NULL};

#define ROW(name_, kind_, field_, default_)                                      \
    .name = (name_), .kind = (kind_), .offset = offsetof(struct values, field_), \
    .default_text = (default_), .help = "help of " name_

static const struct option_row rows[] = {
    {ROW("name", OPTION_STRING, name, "nobody"), .value_name = "NAME"},
    {ROW("other", OPTION_STRING, other, NULL), .value_name = "NAME"},
    {ROW("on", OPTION_BOOL, on, "yes")},
    {ROW("off", OPTION_BOOL, off, NULL)},
    {ROW("count", OPTION_INT, count, "3"), .value_name = "N", .min = 1, .max = 10},
    {ROW("bytes", OPTION_BYTES, bytes, "4K"), .value_name = "BYTES"},
    {ROW("time", OPTION_DURATION, time_ms, "2s"), .value_name = "TIME"},
    {ROW("color", OPTION_CHOICE, color, "red"), .choices = colors},
};

static const char *environment_name;

static struct status *read_environment(struct options *options) {
    return environment_name ? options_set(options, "name", environment_name,
                                          OPTION_FROM_ENVIRONMENT, "TEST_NAME")
                            : NULL;
}

static struct status *check(void *values) {
    struct values *v = values;
    return v->count == 7 ? status_invalid("count: seven is not allowed") : NULL;
}

static const char *const shared_sections[] = {"test", "sister", NULL};

static const struct options_spec spec = {
    .program = "tf-test",
    .section = "test",
    .shared_sections = shared_sections,
    .summary = "Tests options.",
    .rows = rows,
    .n_rows = ARRAY_LEN(rows),
    .read_environment = read_environment,
    .check = check,
};

static struct values values;
static struct options options;
static char *out_text, *err_text;
static size_t out_len, err_len;
static char file_path[64];

static int setup(void **state) {
    memset(&values, 0, sizeof(values));
    options_init(&options, &spec, &values);
    environment_name = NULL;
    file_path[0] = '\0';
    return 0;
}

static int teardown(void **state) {
    options_fini(&options);
    free(out_text);
    free(err_text);
    out_text = err_text = NULL;
    if (file_path[0])
        unlink(file_path);
    return 0;
}

static void write_file(const char *text) {
    snprintf(file_path, sizeof(file_path), "/tmp/millrace-test-options-%d", (int)getpid());
    FILE *file = fopen(file_path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

#define MAX_ARGS 12
/* Loads with these flags; -1 when the program would go on, else its exit code. */
static int load(const char *const *flags) {
    char *argv[MAX_ARGS] = {(char *)(uintptr_t) "tf-test"};
    int argc = 1, code;
    for (; flags[argc - 1]; argc++)
        argv[argc] = (char *)(uintptr_t)flags[argc - 1];
    free(out_text);
    free(err_text);
    FILE *out = open_memstream(&out_text, &out_len), *err = open_memstream(&err_text, &err_len);
    enum options_outcome outcome = options_load(&options, argc, argv, out, err, &code);
    fclose(out);
    fclose(err);
    return outcome == OPTIONS_GO_ON ? -1 : code;
}
#define LOAD(...) load((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void expect_error(int code, int want, const char *words) {
    assert_int_equal(code, want);
    assert_string_equal(out_text, "");
    if (!strstr(err_text, words) || strncmp(err_text, "tf-test: ", 9) != 0 ||
        strchr(err_text, '\n') != err_text + err_len - 1)
        fail_msg("\"%s\" is not one line that says \"%s\"", err_text, words);
}

static void defaults_hold_without_flags(void **state) {
    assert_int_equal(LOAD(), -1);
    assert_string_equal(values.name, "nobody");
    assert_null(values.other);
    assert_true(values.on);
    assert_false(values.off);
    assert_int_equal(values.count, 3);
    assert_int_equal(values.bytes, 4096);
    assert_int_equal(values.time_ms, 2000);
    assert_int_equal(values.color, 0);
}

static void flags_are_read_in_all_their_forms(void **state) {
    assert_int_equal(LOAD("--name", "me", "--other=you=x", "--no-on", "--off", "--count=10",
                          "--bytes", "3G", "--time=5m", "--color", "green"),
                     -1);
    assert_string_equal(values.name, "me");
    assert_string_equal(values.other, "you=x");
    assert_false(values.on);
    assert_true(values.off);
    assert_int_equal(values.count, 10);
    assert_int_equal(values.bytes, 3ll << 30);
    assert_int_equal(values.time_ms, 300000);
    assert_int_equal(values.color, 1);
}

static void booleans_take_words(void **state) {
    assert_int_equal(LOAD("--on=off", "--off=true"), -1);
    assert_false(values.on);
    assert_true(values.off);
}

static void wrong_flags_exit_64_with_one_line(void **state) {
    expect_error(LOAD("--nonsense"), EXIT_USAGE, "unknown option --nonsense");
    expect_error(LOAD("stray"), EXIT_USAGE, "unexpected argument 'stray'");
    expect_error(LOAD("--name"), EXIT_USAGE, "--name needs a value: NAME");
    expect_error(LOAD("--count", "11"), EXIT_USAGE, "--count: 11 is not between 1 and 10");
    expect_error(LOAD("--count", "x"), EXIT_USAGE, "--count: 'x' is not a number");
    expect_error(LOAD("--count", "4K"), EXIT_USAGE, "'4K' is not a number");
    expect_error(LOAD("--bytes", "-1"), EXIT_USAGE, "--bytes: -1 is negative");
    expect_error(LOAD("--bytes", "9999999999G"), EXIT_USAGE, "is not a number of bytes");
    expect_error(LOAD("--time", "10"), EXIT_USAGE, "is not a time");
    expect_error(LOAD("--color", "blue"), EXIT_USAGE, "--color: 'blue' is not red or green");
    expect_error(LOAD("--color", "geren"), EXIT_USAGE, "red or green, did you mean green?");
    expect_error(LOAD("--verson"), EXIT_USAGE, "--verson, did you mean --version?");
    expect_error(LOAD("--on=maybe"), EXIT_USAGE, "neither yes nor no");
    expect_error(LOAD("--no-name"), EXIT_USAGE, "unknown option --no-name");
    expect_error(LOAD("--no-on=yes"), EXIT_USAGE, "takes no value");
    expect_error(LOAD("--help=yes"), EXIT_USAGE, "--help takes no value");
}

static void flags_win_over_the_file_and_the_file_over_the_environment(void **state) {
    write_file("name = file\nother = file\n");
    environment_name = "environment";
    assert_int_equal(LOAD("--config", file_path, "--other", "flag"), -1);
    assert_string_equal(values.name, "file");
    assert_string_equal(values.other, "flag");
    options_fini(&options);
    setup(NULL);
    environment_name = "environment";
    assert_int_equal(LOAD(), -1);
    assert_string_equal(values.name, "environment");
}

static void a_file_may_use_the_programs_section_and_go_on_over_lines(void **state) {
    write_file(
        "# a comment\ncount = 5 ; five\n[test]\nname = a=1;2,\n    b=3\n    ,c=4\ncolor = green\n");
    assert_int_equal(LOAD("--config", file_path), -1);
    assert_string_equal(values.name, "a=1;2,b=3,c=4");
    assert_int_equal(values.count, 5);
    assert_int_equal(values.color, 1);
}

static void sections_of_sister_programs_are_passed_over(void **state) {
    write_file("count = 5\n[sister]\nname = theirs\n  and more\nunknown-here = 1\n[test]\nname = "
               "ours\n[sister]\ncount = 99\n");
    assert_int_equal(LOAD("--config", file_path), -1);
    assert_string_equal(values.name, "ours");
    assert_int_equal(values.count, 5);
}

static void errors_in_a_file_say_where(void **state) {
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"name = x\nnonsense = 1\n", ":2: tf-test has no such setting: nonsense"},
        {"nme = x\n", ":1: tf-test has no such setting: nme, did you mean name?"},
        {"\n\ncount = 12\n", ":3: count: 12 is not between 1 and 10"},
        {"count = 2\nname = x\ncount = 3\n", ":3: count is set on line 1 already"},
        {"[other]\nname = x\n", ":2: section [other]"},
        {"[sister]\nname = x\n[other]\nname = x\n", ":4: section [other]"},
        {"name = x\njust words\n", ":2: not a 'name = value' line"},
        {"name = x\n", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        options_fini(&options);
        setup(NULL);
        write_file(cases[i].text);
        int code = LOAD("--config", file_path);
        if (cases[i].words)
            expect_error(code, EXIT_CONFIG, cases[i].words);
        else
            assert_int_equal(code, -1);
    }
    expect_error(LOAD("--config", "/does/not/exist"), EXIT_CONFIG, "/does/not/exist");
}

static void a_line_that_is_too_long_is_refused_and_not_cut(void **state) {
    struct str text = STR_INIT;
    str_add(&text, "name = ");
    for (int i = 0; i < 300; i++)
        str_add_char(&text, 'x');
    struct status *st = options_read_ini(&options, "f.ini", (struct span){text.data, text.len});
    assert_non_null(strstr(status_message(st), "f.ini:1: the line is longer"));
    status_unref(st);
    str_fini(&text);
}

static void what_the_check_says_is_a_configuration_error(void **state) {
    expect_error(LOAD("--count", "7"), EXIT_CONFIG, "seven is not allowed");
}

static void a_bad_environment_is_a_configuration_error(void **state) {
    environment_name = NULL;
    struct status *st = options_set(&options, "nonsense", "1", OPTION_FROM_ENVIRONMENT, "TEST");
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
}

static void help_lists_every_row(void **state) {
    assert_int_equal(LOAD("--help"), 0);
    assert_non_null(strstr(out_text, "Usage: tf-test"));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_non_null(strstr(out_text, rows[i].help));
    assert_non_null(strstr(out_text, "--[no-]on"));
    assert_non_null(strstr(out_text, "--color red|green"));
    assert_non_null(strstr(out_text, "--check-config"));
    assert_non_null(strstr(out_text, "(default 4K)"));
    assert_string_equal(err_text, "");
}

static void version_is_printed(void **state) {
    assert_int_equal(LOAD("--version"), 0);
    assert_non_null(strstr(out_text, MILLRACE_VERSION));
}

static void check_config_prints_values_and_where_they_come_from(void **state) {
    write_file("[test]\ncount = 5\n");
    environment_name = "env";
    assert_int_equal(LOAD("--config", file_path, "--check-config", "--bytes", "1M"), 0);
    struct str want = STR_INIT;
    str_addf(&want, "# %s:2\n", file_path);
    assert_non_null(strstr(out_text, str_text(&want)));
    assert_non_null(strstr(out_text, "name = env"));
    assert_non_null(strstr(out_text, "# TEST_NAME\n"));
    assert_non_null(strstr(out_text, "bytes = 1048576"));
    assert_non_null(strstr(out_text, "# flag\n"));
    assert_non_null(strstr(out_text, "time = 2000ms"));
    assert_non_null(strstr(out_text, "# default\n"));
    str_fini(&want);
    expect_error(LOAD("--check-config", "--count", "7"), EXIT_CONFIG, "seven");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(defaults_hold_without_flags),
        TEST(flags_are_read_in_all_their_forms),
        TEST(booleans_take_words),
        TEST(wrong_flags_exit_64_with_one_line),
        TEST(flags_win_over_the_file_and_the_file_over_the_environment),
        TEST(a_file_may_use_the_programs_section_and_go_on_over_lines),
        TEST(sections_of_sister_programs_are_passed_over),
        TEST(errors_in_a_file_say_where),
        TEST(a_line_that_is_too_long_is_refused_and_not_cut),
        TEST(what_the_check_says_is_a_configuration_error),
        TEST(a_bad_environment_is_a_configuration_error),
        TEST(help_lists_every_row),
        TEST(version_is_printed),
        TEST(check_config_prints_values_and_where_they_come_from),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
