/* Names of files that are being written: whose they are, and that only what dead processes have
 * left is removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io/bundle.h"
#include "common/io/slices_file.h"
#include "common/io/temporary.h"

static char dir[64];

static int setup(void **state) {
    snprintf(dir, sizeof(dir), "/tmp/millrace-temporary-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static void on_name(void *arg, const char *name) {
    struct str path = STR_INIT;
    str_addf(&path, "%s/%s", (const char *)arg, name);
    if (unlink(path.data) != 0)
        rmdir(path.data);
    str_fini(&path);
}

static int teardown(void **state) {
    struct str inner = STR_INIT;
    str_addf(&inner, "%s/model_temp_1", dir);
    file_system_posix.list(&file_system_posix, inner.data, on_name, inner.data);
    file_system_posix.list(&file_system_posix, dir, on_name, dir);
    str_fini(&inner);
    return rmdir(dir);
}

static void touch(const char *path) {
    int fd = file_system_posix.open(&file_system_posix, path, FILE_CREATE);
    assert_true(fd >= 0);
    file_system_posix.close(&file_system_posix, fd);
}

static bool is_there(const char *path) { return access(path, F_OK) == 0; }

/* A temporary name, malloc'd, in the test's directory. */
static char *name_here(const char *stem) {
    struct str path = STR_INIT;
    str_addf(&path, "%s/%s", dir, stem);
    temporary_add_name(&path);
    return str_detach(&path);
}

/* What another process would have named so; that one lives until it is ended. */
static pid_t start_owner(const char *stem, char *ret, size_t room) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char *path = name_here(stem);
        if (write(ends[1], path, strlen(path)) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    ssize_t n = read(ends[0], ret, room - 1);
    assert_true(n > 0);
    ret[n] = '\0';
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void end_owner(pid_t pid) {
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void collect_here(void) {
    struct str path = STR_INIT;
    str_addf(&path, "%s/model", dir);
    temporary_collect(&file_system_posix, path.data);
    str_fini(&path);
}

static void names_differ_and_are_no_longer_than_they_need(void **state) {
    char *one = name_here("model.data"), *other = name_here("model.data");
    assert_string_not_equal(one, other);
    assert_true(strlen(file_base_of(one)) - strlen("model.data") < 64);
    free(one);
    free(other);
}

static void what_a_living_process_writes_stays(void **state) {
    char path[256];
    char *own = name_here("model.data");
    pid_t pid = start_owner("model.index", path, sizeof(path));
    touch(own);
    touch(path);
    assert_false(temporary_is_abandoned(file_base_of(own)));
    assert_false(temporary_is_abandoned(file_base_of(path)));
    collect_here();
    assert_true(is_there(own) && is_there(path));
    end_owner(pid);
    free(own);
}

static void what_a_dead_process_has_left_goes(void **state) {
    static const char *const stems[] = {"model.data", "x.index", ".part", "a.tmp-b",
                                        "model_temp_1/part-00000-of-00002.data"};
    struct str inner = STR_INIT, fetched = STR_INIT;
    str_addf(&inner, "%s/model_temp_1", dir);
    assert_int_equal(file_system_posix.make_dir(&file_system_posix, inner.data), 0);
    for (size_t i = 0; i < ARRAY_LEN(stems); i++) {
        char path[256];
        pid_t pid = start_owner(stems[i], path, sizeof(path));
        str_clear(&fetched); /* a part that was fetched has files of its own */
        str_addf(&fetched, "%s.data-00000-of-00001", path);
        touch(path);
        touch(fetched.data);
        collect_here();
        assert_true(is_there(path) && is_there(fetched.data));
        end_owner(pid);
        assert_true(temporary_is_abandoned(file_base_of(path)) &&
                    temporary_is_abandoned(file_base_of(fetched.data)));
        collect_here();
        assert_false(is_there(path) || is_there(fetched.data));
    }
    assert_true(is_there(inner.data));
    str_fini(&inner);
    str_fini(&fetched);
}

/* The own name with one of its parts changed. */
static void changed(const char *format, char *ret, size_t room) {
    char *own = name_here("");
    unsigned long long place, start;
    int pid;
    unsigned n;
    assert_int_equal(sscanf(file_base_of(own), ".tmp-%llx-%d-%llx-%x", &place, &pid, &start, &n),
                     4);
    switch (format[0]) {
    case 'p': /* another process that has the same pid now */
        snprintf(ret, room, "x.tmp-%016llx-%d-%llx-%x", place, pid, start + 1, n);
        break;
    case 'h': /* another place, where nobody has this pid */
        snprintf(ret, room, "x.tmp-%016llx-%d-%llx-%x", place ^ 1, INT32_MAX, start, n);
        break;
    default:
        snprintf(ret, room, format, place, INT32_MAX, start, n);
    }
    free(own);
}

static void a_pid_that_another_process_has_now_is_no_owner(void **state) {
    char name[128];
    changed("pid", name, sizeof(name));
    assert_true(temporary_is_abandoned(name));
}

static void of_other_places_nothing_is_known(void **state) {
    char name[128];
    changed("host", name, sizeof(name));
    assert_false(temporary_is_abandoned(name));
}

static void other_names_are_left_alone(void **state) {
    static const char *const formats[] = {"x.tmp-%016llx-%d-%llx-%xg", "x.tmp-%016llx-%d-%llx-",
                                          "x.tmp-%016llx-%d-%llx",     "x.tmp- %016llx-%d-%llx-%x",
                                          "x.tmp-%016llx--%d-%llx-%x", "x.tmp-%016llx+%d-%llx-%x",
                                          "x.tmp%016llx-%d-%llx-%x",   "x.tmp-%016llx-9%d-%llx-%x"};
    static const char *const names[] = {"",
                                        ".",
                                        "model.index",
                                        "x.tmp-",
                                        "x.tmp-0123456789abcdef",
                                        "x.tmp----",
                                        "x.tmp-1-0-1-1",
                                        "x.tmp-1-1-0-1"};
    char name[128];
    changed("x.tmp-%016llx-%d-%llx-%x", name, sizeof(name));
    assert_true(temporary_is_abandoned(name)); /* and so it is the change that counts */
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        changed(formats[i], name, sizeof(name));
        assert_false(temporary_is_abandoned(name));
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_false(temporary_is_abandoned(names[i]));
}

static struct status *save(const char *prefix) {
    struct bundle_writer *writer = NULL;
    TRY(bundle_writer_new(&file_system_posix, prefix, &writer));
    struct status *st = bundle_writer_finish(writer);
    bundle_writer_free(writer);
    return st;
}

static struct status *save_v1(const char *path) {
    struct slices_writer *writer = slices_writer_new(&file_system_posix, path);
    struct status *st = slices_writer_finish(writer);
    slices_writer_free(writer);
    return st;
}

/* A save of either format, under another name, collects what is beside it. */
static void a_save_collects(void **state) {
    struct status *(*const saves[])(const char *prefix) = {save, save_v1};
    for (size_t i = 0; i < ARRAY_LEN(saves); i++) {
        char path[256];
        struct str prefix = STR_INIT;
        pid_t pid = start_owner("model-1.data", path, sizeof(path));
        touch(path);
        str_addf(&prefix, "%s/model-2", dir);
        assert_null(saves[i](prefix.data));
        assert_true(is_there(path));
        end_owner(pid);
        assert_null(saves[i](prefix.data));
        assert_false(is_there(path));
        str_fini(&prefix);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(names_differ_and_are_no_longer_than_they_need),
        TEST(what_a_living_process_writes_stays),
        TEST(what_a_dead_process_has_left_goes),
        TEST(a_pid_that_another_process_has_now_is_no_owner),
        TEST(of_other_places_nothing_is_known),
        TEST(other_names_are_left_alone),
        TEST(a_save_collects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
