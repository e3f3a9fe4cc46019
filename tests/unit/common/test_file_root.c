/* Which files a step may touch, and patterns of file names. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/io/file_root.h"
#include "common/io/file_secret.h"
#include "common/io/file_system.h"

static char base[PATH_MAX];

static void expect_ok(struct status *st) {
    if (st)
        fail_msg("%s", status_message(st));
}

static const char *in_base(const char *name) {
    static char path[4][PATH_MAX + 64];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof(path[at]), "%s/%s", base, name);
    return path[at];
}

/* base/root/{a.txt,b.txt,sub/c.txt,out → base/secret,in → sub,dangling → base/nowhere},
 * base/secret/s.txt, base/rootless */
static int set_up(void **state) {
    char template[] = "/tmp/millrace-root-XXXXXX";
    static const char *const files[] = {"root/a.txt",   "root/b.txt",   "root/sub/c.txt",
                                        "root/.hidden", "secret/s.txt", "rootless"};
    if (!mkdtemp(template) || !realpath(template, base))
        return -1;
    char root[PATH_MAX + 64];
    snprintf(root, sizeof(root), "%s", in_base("root"));
    if (mkdir(root, 0755) || mkdir(in_base("root/sub"), 0755) || mkdir(in_base("secret"), 0755))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        int fd = file_system_posix.open(&file_system_posix, in_base(files[i]), FILE_CREATE);
        if (fd < 0)
            return -1;
        file_system_posix.close(&file_system_posix, fd);
    }
    if (symlink(in_base("secret"), in_base("root/out")) || symlink("sub", in_base("root/in")) ||
        symlink(in_base("nowhere"), in_base("root/dangling")))
        return -1;
    const char *roots[] = {root};
    struct status *st = file_roots_set(roots, 1);
    status_unref(st);
    return st ? -1 : 0;
}

static int tear_down(void **state) {
    static const char *const files[] = {"root/a.txt",   "root/b.txt",   "root/sub/c.txt",
                                        "root/.hidden", "secret/s.txt", "rootless",
                                        "root/out",     "root/in",      "root/dangling"};
    static const char *const dirs[] = {"root/sub", "root", "secret", ""};
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        unlink(in_base(files[i]));
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        rmdir(in_base(dirs[i]));
    return 0;
}

static enum status_code resolve(const char *path) {
    struct str out = STR_INIT;
    struct status *st = file_root_resolve(span_of(path), &out);
    enum status_code code = status_code(st);
    if (code == STATUS_PERMISSION_DENIED)
        assert_non_null(strstr(status_message(st), path));
    status_unref(st);
    str_fini(&out);
    return code;
}

static void test_what_lies_below_the_root_is_allowed(void **state) {
    static const char *const names[] = {"root",
                                        "root/a.txt",
                                        "root/sub/c.txt",
                                        "root/new",
                                        "root/new/deeper/still",
                                        "root/./new",
                                        "root/sub/..",
                                        "root/sub/../new",
                                        "root/in/c.txt",
                                        "root/in/new",
                                        "root//a.txt",
                                        "root/sub/",
                                        "root/out/../root/a.txt"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (resolve(in_base(names[i])) != STATUS_OK)
            fail_msg("%s", names[i]);
    char url[PATH_MAX + 80];
    snprintf(url, sizeof(url), "file://%s", in_base("root/a.txt"));
    assert_int_equal(resolve(url), STATUS_OK);
}

static void test_what_lies_elsewhere_is_refused(void **state) {
    static const char *const names[] = {"rootless",
                                        "root/..",
                                        "root/../secret/s.txt",
                                        "root/out",
                                        "root/out/s.txt",
                                        "root/out/new",
                                        "root/dangling",
                                        "root/new/../../secret",
                                        "",
                                        "rootless/new",
                                        "root/sub/../../secret/s.txt"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (resolve(in_base(names[i])) != STATUS_PERMISSION_DENIED)
            fail_msg("%s", names[i]);
    assert_int_equal(resolve("/etc/passwd"), STATUS_PERMISSION_DENIED);
    assert_int_equal(resolve("/"), STATUS_PERMISSION_DENIED);
    assert_int_equal(resolve("relative"), STATUS_PERMISSION_DENIED);
}

static enum status_code resolve_prefix(const char *path) {
    struct str out = STR_INIT;
    str_add(&out, "before");
    struct status *st = file_root_resolve_prefix(span_of(path), &out);
    enum status_code code = status_code(st);
    if (st)
        assert_string_equal(str_text(&out), "before");
    else
        assert_string_equal(str_text(&out) + strlen("before"), path);
    status_unref(st);
    str_fini(&out);
    return code;
}

static void test_files_beside_a_root_are_refused(void **state) {
    static const char *const allowed[] = {"root/",        "root/model", "root/new/model",
                                          "root/sub",     "root/in",    "root/sub/../model",
                                          "root/in/model"};
    static const char *const refused[] = {"root", "link", "root/out", "rootless", "secret/../root"};
    assert_int_equal(symlink("root", in_base("link")), 0);
    assert_int_equal(resolve(in_base("link")), STATUS_OK);
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++)
        if (resolve_prefix(in_base(allowed[i])) != STATUS_OK)
            fail_msg("%s", allowed[i]);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (resolve_prefix(in_base(refused[i])) != STATUS_PERMISSION_DENIED)
            fail_msg("%s", refused[i]);
    unlink(in_base("link"));
}

static void test_other_schemes_are_not_there(void **state) {
    assert_int_equal(resolve("gs://bucket/file"), STATUS_UNIMPLEMENTED);
    assert_int_equal(resolve("hdfs://host/file"), STATUS_UNIMPLEMENTED);
    assert_int_equal(resolve("file:///etc/passwd"), STATUS_PERMISSION_DENIED);
    struct str out = STR_INIT;
    struct status *st = file_root_resolve((struct span){"/tmp\0x", 6}, &out);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
    str_fini(&out);
}

/* The names found, without base, with blanks between. */
static void expect_match(const char *pattern, const char *expected) {
    struct str text = STR_INIT;
    char **paths;
    size_t n;
    expect_ok(file_match(span_of(in_base(pattern)), &paths, &n));
    for (size_t i = 0; i < n; i++)
        str_addf(&text, "%s%s", i > 0 ? " " : "", paths[i] + strlen(base) + 1);
    assert_string_equal(str_text(&text), expected);
    file_match_free(paths, n);
    str_fini(&text);
}

static void test_patterns_match_names(void **state) {
    expect_match("root/*.txt", "root/a.txt root/b.txt");
    expect_match("root/[b-z].txt", "root/b.txt");
    expect_match("root/?.txt", "root/a.txt root/b.txt");
    expect_match("root/*/c.txt", "root/in/c.txt root/sub/c.txt");
    expect_match("root/a.txt", "root/a.txt");
    expect_match("root/none*", "");
    expect_match("root/nowhere/*", "");
    expect_match("root/su*/*", "root/sub/c.txt");
}

static void test_matches_stay_below_the_root(void **state) {
    expect_match("root/*/s.txt", "");
    expect_match("root/o*", "");
    expect_match("root/*/../../secret/*", "");
    char **paths;
    size_t n;
    struct status *st = file_match(span_of(in_base("secret/*")), &paths, &n);
    assert_int_equal(status_code(st), STATUS_PERMISSION_DENIED);
    status_unref(st);
    st = file_match(span_of("/e*/passwd"), &paths, &n);
    assert_int_equal(status_code(st), STATUS_PERMISSION_DENIED);
    status_unref(st);
}

static void test_directories_above_are_made(void **state) {
    expect_ok(file_make_dirs(&file_system_posix, in_base("root/x/y/z")));
    expect_ok(file_make_dirs(&file_system_posix, in_base("root/x/y/z")));
    struct status *st = file_make_dirs(&file_system_posix, in_base("root/a.txt/y"));
    assert_int_equal(status_code(st), STATUS_FAILED_PRECONDITION);
    status_unref(st);
    rmdir(in_base("root/x/y/z"));
    rmdir(in_base("root/x/y"));
    rmdir(in_base("root/x"));
}

/* ---- the whole file system, and secrets ---- */

static void test_the_whole_file_system_is_no_root(void **state) {
    static const char *const names[] = {"/", "/tmp/..", "/proc/self/root"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct status *st = file_roots_set(&names[i], 1);
        assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(status_message(st), "--file-root-all"));
        status_unref(st);
    }
}

static int try_open(const char *path, enum file_mode mode) {
    int fd = file_system_posix.open(&file_system_posix, path, mode);
    if (fd >= 0)
        file_system_posix.close(&file_system_posix, fd);
    return fd >= 0 ? 0 : fd;
}

static int64_t size_of(const char *path) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void test_secrets_are_never_opened(void **state) {
    static const char *const others[] = {"root/key", "root/soft", "root/hard"};
    char by_descriptor[64];
    struct str roots = STR_INIT;
    struct status *st;
    int fd;
    file_roots_set_whole();
    file_roots_describe(&roots);
    assert_string_equal(str_text(&roots), "/");
    str_fini(&roots);
    assert_int_equal(resolve("/etc/passwd"), STATUS_OK);

    write_text(in_base("root/key"), "PRIVATE");
    assert_int_equal(try_open(in_base("root/key"), FILE_READ), 0);
    file_secret_add(NULL);
    file_secret_add(in_base("root/key"));
    assert_int_equal(symlink("key", in_base("root/soft")), 0);
    assert_int_equal(link(in_base("root/key"), in_base("root/hard")), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(try_open(in_base(others[i]), FILE_READ), -EACCES);
        assert_int_equal(try_open(in_base(others[i]), FILE_APPEND), -EACCES);
        assert_int_equal(try_open(in_base(others[i]), FILE_REPLACE), -EACCES);
    }
    assert_int_equal(size_of(in_base("root/key")), 7); /* nothing has emptied it */
    fd = open(in_base("root/key"), O_RDONLY);
    snprintf(by_descriptor, sizeof(by_descriptor), "/proc/self/fd/%d", fd);
    assert_int_equal(try_open(by_descriptor, FILE_READ), -EACCES);
    close(fd);
    st = file_root_open(in_base("root/soft"), &fd);
    assert_int_equal(status_code(st), STATUS_PERMISSION_DENIED);
    status_unref(st);
    assert_int_equal(try_open("/proc/self/environ", FILE_READ), -EACCES);
    assert_int_equal(try_open("/proc/self/mem", FILE_READ), -EACCES);
    assert_int_equal(try_open(in_base("root/a.txt"), FILE_READ), 0);

    /* a new key takes the place of the old one, of which a link is left */
    write_text(in_base("root/new"), "NEW");
    assert_int_equal(try_open(in_base("root/new"), FILE_READ), 0);
    assert_int_equal(rename(in_base("root/new"), in_base("root/key")), 0);
    assert_int_equal(try_open(in_base("root/key"), FILE_READ), -EACCES);
    assert_int_equal(try_open(in_base("root/hard"), FILE_READ), -EACCES);
    for (size_t i = 0; i < 3; i++)
        unlink(in_base(others[i]));
}

static void test_an_old_file_is_emptied(void **state) {
    write_text(in_base("root/old"), "seven");
    assert_int_equal(try_open(in_base("root/old"), FILE_APPEND), 0);
    assert_int_equal(size_of(in_base("root/old")), 5);
    assert_int_equal(try_open(in_base("root/old"), FILE_REPLACE), 0);
    assert_int_equal(size_of(in_base("root/old")), 0);
    unlink(in_base("root/old"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_lies_below_the_root_is_allowed),
        cmocka_unit_test(test_what_lies_elsewhere_is_refused),
        cmocka_unit_test(test_files_beside_a_root_are_refused),
        cmocka_unit_test(test_other_schemes_are_not_there),
        cmocka_unit_test(test_patterns_match_names),
        cmocka_unit_test(test_matches_stay_below_the_root),
        cmocka_unit_test(test_directories_above_are_made),
        cmocka_unit_test(test_an_old_file_is_emptied),
        cmocka_unit_test(test_the_whole_file_system_is_no_root),
        cmocka_unit_test(test_secrets_are_never_opened),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
