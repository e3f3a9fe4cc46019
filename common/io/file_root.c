/* Resolves the paths of clients and checks that they are below a root directory. */
#include "common/io/file_root.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/file_system.h"

enum { MAX_ROOTS = 64 };

static char *roots[MAX_ROOTS]; /* resolved */
static int n_roots;
static pthread_once_t defaults_once = PTHREAD_ONCE_INIT;

/* Also of a path that leads to "/" through a mount. */
static bool is_whole(const char *real) {
    struct stat info, whole;
    return stat(real, &info) == 0 && stat("/", &whole) == 0 && info.st_dev == whole.st_dev &&
           info.st_ino == whole.st_ino;
}

static struct status *add_root(const char *dir) {
    char *real = realpath(dir, NULL);
    if (!real)
        return file_failed(dir, -errno);
    if (is_whole(real)) {
        free(real);
        return status_invalid("%s is the whole file system, with the keys and files of all that "
                              "runs on this host; --file-root-all allows it",
                              dir);
    }
    if (file_system_posix.kind(&file_system_posix, real) != FILE_KIND_DIR || n_roots == MAX_ROOTS) {
        free(real);
        return n_roots == MAX_ROOTS ? status_invalid("more than %d root directories", MAX_ROOTS)
                                    : file_failed(dir, -ENOTDIR);
    }
    roots[n_roots++] = real;
    return NULL;
}

static void set_defaults(void) {
    const char *temporary = getenv("TMPDIR");
    if (n_roots > 0)
        return;
    /* A root that no longer exists gives no rights. */
    status_unref(add_root("."));
    status_unref(add_root(temporary && *temporary ? temporary : "/tmp"));
}

struct status *file_roots_set(const char *const *dirs, int n) {
    for (int i = 0; i < n_roots; i++)
        free(roots[i]);
    n_roots = 0;
    for (int i = 0; i < n; i++)
        TRY(add_root(dirs[i]));
    return NULL;
}

void file_roots_set_whole(void) {
    for (int i = 0; i < n_roots; i++)
        free(roots[i]);
    n_roots = 1;
    roots[0] = xstrdup("/");
}

void file_roots_describe(struct str *out) {
    pthread_once(&defaults_once, set_defaults);
    for (int i = 0; i < n_roots; i++)
        str_addf(out, "%s%s", i > 0 ? ", " : "", roots[i]);
}

static bool is_below(const char *path, const char *root) {
    size_t n = strlen(root);
    if (n == 1) /* "/" */
        return true;
    return strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Resolves the deepest part that exists and appends the rest, which must not contain "..". NULL: it
 * cannot be resolved. */
static char *real_path_of_new(const char *path) {
    struct str head = STR_INIT, tail = STR_INIT;
    char *real = realpath(path, NULL);
    str_add(&head, path);
    while (!real && (errno == ENOENT || errno == ENOTDIR) && head.len > 0) {
        const char *base = file_base_of(head.data);
        if (strcmp(base, "..") == 0)
            break;
        struct str rest = STR_INIT;
        if (*base && strcmp(base, ".") != 0)
            str_addf(&rest, "/%s", base);
        str_add(&rest, str_text(&tail));
        str_fini(&tail);
        tail = rest;
        /* A process that creates the file would follow a dangling link. */
        char target[2];
        if (*base && readlink(head.data, target, sizeof(target)) >= 0)
            break;
        struct str dir = STR_INIT;
        bool had_slash = strchr(head.data, '/') != NULL;
        file_dir_of(head.data, &dir);
        str_fini(&head);
        head = dir;
        real = realpath(head.data, NULL);
        if (!had_slash)
            break;
    }
    if (real && tail.len > 0) {
        str_clear(&head);
        str_addf(&head, "%s%s", strcmp(real, "/") == 0 ? "" : real, tail.data);
        free(real);
        real = str_detach(&head);
    }
    str_fini(&head);
    str_fini(&tail);
    return real;
}

bool file_root_holds(const char *path) {
    pthread_once(&defaults_once, set_defaults);
    char *real = real_path_of_new(path);
    bool is_held = false;
    for (int i = 0; real && i < n_roots; i++)
        is_held = is_held || is_below(real, roots[i]);
    free(real);
    return is_held;
}

static COLD struct status *outside(const char *path, size_t len) {
    return status_new(
        STATUS_PERMISSION_DENIED,
        "%.*s is outside of the directories that this task may use (see tf-worker --file-root)%s",
        (int)MIN(len, (size_t)PATH_MAX), path,
        len > 0 && path[0] == '/'
            ? ""
            : "; a relative path starts at the directory of this task, not of "
              "the client");
}

/* The path of an open file, from the kernel. */
static bool holds_open(int fd) {
    char link[64], real[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, real, sizeof(real) - 1);
    if (len < 0)
        return true; /* without /proc the earlier check must suffice */
    real[len] = '\0';
    for (int i = 0; i < n_roots; i++)
        if (is_below(real, roots[i]))
            return true;
    return false;
}

struct status *file_root_open(const char *path, int *ret_fd) {
    if (!file_root_holds(path))
        return outside(path, strlen(path));
    int fd = file_system_posix.open(&file_system_posix, path, FILE_READ);
    if (fd < 0)
        return file_failed(path, fd);
    if (!holds_open(fd)) {
        close(fd);
        return outside(path, strlen(path));
    }
    *ret_fd = fd;
    return NULL;
}

/* Removes "file://" and the host from "file:///x" and "file://host/x". */
static struct status *strip_scheme(struct span *path) {
    const char *colon = path->len > 3 ? memmem(path->data, path->len, "://", 3) : NULL;
    if (!colon)
        return NULL;
    for (const char *at = path->data; at < colon; at++)
        if (!((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
              (*at >= '0' && *at <= '9') || *at == '.' || *at == '+'))
            return NULL;
    struct span scheme = {path->data, (size_t)(colon - path->data)};
    if (!span_is(scheme, "file") && scheme.len > 0)
        return status_unimplemented("File system scheme '%.*s' not implemented (file: '%.*s')",
                                    (int)scheme.len, scheme.data,
                                    (int)MIN(path->len, (size_t)PATH_MAX), path->data);
    const char *slash = memchr(colon + 3, '/', path->len - scheme.len - 3);
    path->len = slash ? path->len - (size_t)(slash - path->data) : 0;
    path->data = slash;
    return NULL;
}

struct status *file_root_resolve(struct span path, struct str *out) {
    struct span whole = path;
    TRY(strip_scheme(&path));
    if (path.len == 0)
        return status_not_found("; No such file or directory");
    if (memchr(path.data, '\0', path.len))
        return status_invalid("A file name holds a NUL byte");
    size_t begin = out->len;
    str_add_bytes(out, path.data, path.len);
    if (file_root_holds(out->data + begin))
        return NULL;
    out->len = begin;
    out->data[begin] = '\0';
    return outside(whole.data, whole.len);
}

struct status *file_root_resolve_prefix(struct span prefix, struct str *out) {
    size_t begin = out->len;
    TRY(file_root_resolve(prefix, out));
    size_t end = out->len;
    /* the directory is checked once for all its files; links among them are checked when they are
     * opened */
    str_add(out, ".beside");
    bool is_held = file_root_holds(out->data + begin);
    out->len = is_held ? end : begin;
    out->data[out->len] = '\0';
    return is_held ? NULL
                   : status_new(STATUS_PERMISSION_DENIED,
                                "Files whose names begin with %.*s are outside of the directories "
                                "that this task may use (see tf-worker "
                                "--file-root)",
                                (int)MIN(prefix.len, (size_t)PATH_MAX), prefix.data);
}
