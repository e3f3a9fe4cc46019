/* Writes files of a debugger's dump. */
#include "kernels/host/debug/debug_file.h"

#include <errno.h>

#include "kernels/support/io_task.h"

enum { MAX_SAME_NAMES = 1000 };
/* "/job:ps/replica:0/…" becomes "_tfdbg_device_,job_ps,replica_0,…". */
static void add_device_dir(struct span device, struct str *out) {
    str_add(out, "/_tfdbg_device_");
    for (size_t i = 0; i < device.len; i++)
        str_add_char(out, device.data[i] == '/'   ? ','
                          : device.data[i] == ':' ? '_'
                                                  : device.data[i]);
}

/* Begins the path of a file: the directory of the URL. */
static void add_root(struct span url, struct str *out) {
    size_t len = strlen("file://");
    str_add_bytes(out, url.data + len, url.len - len);
}

/* Creates the file; another name where one of that microsecond exists. */
static struct status *create(const char *path, int *ret_fd) {
    const struct file_system *fs = &file_system_posix;
    struct str other = STR_INIT;
    int fd = fs->open(fs, path, FILE_CREATE);
    for (int i = 1; fd == -EEXIST && i <= MAX_SAME_NAMES; i++) {
        str_clear(&other);
        str_addf(&other, "%s-%d", path, i);
        fd = fs->open(fs, str_text(&other), FILE_CREATE);
    }
    str_fini(&other);
    *ret_fd = fd;
    return fd < 0 ? file_failed(path, fd) : NULL;
}

static struct status *write_event(struct span name, struct span event) {
    const struct file_system *fs = &file_system_posix;
    struct str path = STR_INIT, dir = STR_INIT;
    struct status *st = NULL;
    int fd;
    TRY_OUT(io_path(name, &path));
    file_dir_of(str_text(&path), &dir);
    TRY_OUT(file_make_dirs(fs, str_text(&dir)));
    TRY_OUT(create(str_text(&path), &fd));
    st = file_write_all(fs, fd, str_text(&path), event.data, event.len, 0);
    int error = fs->close(fs, fd);
    if (!st && error)
        st = file_failed(str_text(&path), error);
out:
    str_fini(&path);
    str_fini(&dir);
    return st;
}

struct status *debug_file_write(struct span url, struct span device, const char *name,
                                struct span event) {
    struct str path = STR_INIT;
    add_root(url, &path);
    if (device.len > 0)
        add_device_dir(device, &path);
    str_addf(&path, "/%s", name);
    struct status *st = write_event((struct span){path.data, path.len}, event);
    str_fini(&path);
    return st;
}
