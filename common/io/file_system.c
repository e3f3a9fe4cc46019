/* Implements what every file system shares: whole reads and writes, directories, and sinks. */
#include "common/io/file_system.h"

#include <errno.h>
#include <stdlib.h>

enum {
    SINK_BUFFER_BYTES = 256 * 1024,
    SINK_WRITE_BYTES = 4 << 20,  /* size of one call, so that a failing disk is noticed soon */
    SINK_START_BYTES = 32 << 20, /* bytes to collect before the disk starts to write them */
};

/* ---- errors ---- */

static const struct {
    int error;
    enum status_code code;
} codes[] = {
    {ENOENT, STATUS_NOT_FOUND},
    {ENODEV, STATUS_NOT_FOUND},
    {ENXIO, STATUS_NOT_FOUND},
    {EEXIST, STATUS_ALREADY_EXISTS},
    {EACCES, STATUS_PERMISSION_DENIED},
    {EPERM, STATUS_PERMISSION_DENIED},
    {EROFS, STATUS_PERMISSION_DENIED},
    {EINVAL, STATUS_INVALID_ARGUMENT},
    {ENAMETOOLONG, STATUS_INVALID_ARGUMENT},
    {ENOTDIR, STATUS_FAILED_PRECONDITION},
    {EISDIR, STATUS_FAILED_PRECONDITION},
    {ENOTEMPTY, STATUS_FAILED_PRECONDITION},
    {EBUSY, STATUS_FAILED_PRECONDITION},
    {ETXTBSY, STATUS_FAILED_PRECONDITION},
    {ENOSPC, STATUS_RESOURCE_EXHAUSTED},
    {EDQUOT, STATUS_RESOURCE_EXHAUSTED},
    {EMFILE, STATUS_RESOURCE_EXHAUSTED},
    {ENFILE, STATUS_RESOURCE_EXHAUSTED},
    {EMLINK, STATUS_RESOURCE_EXHAUSTED},
    {ENOMEM, STATUS_RESOURCE_EXHAUSTED},
    {EFBIG, STATUS_OUT_OF_RANGE},
    {EXDEV, STATUS_UNIMPLEMENTED},
    {EIO, STATUS_DATA_LOSS},
};

struct status *file_failed(const char *path, int error) {
    enum status_code code = STATUS_UNKNOWN;
    char text[128];
    if (error < 0)
        error = -error;
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (codes[i].error == error)
            code = codes[i].code;
    return status_new(code, "%s; %s", path, strerror_r(error, text, sizeof(text)));
}

/* ---- transfers ---- */

struct status *file_read_all(const struct file_system *fs, int fd, const char *path, void *to,
                             size_t n, int64_t offset) {
    for (size_t done = 0; done < n;) {
        int64_t got = fs->read(fs, fd, (char *)to + done, n - done, offset + (int64_t)done);
        if (got < 0)
            return file_failed(path, (int)got);
        if (got == 0)
            return status_out_of_range("%s; the file ends at %lld, before %lld", path,
                                       (long long)(offset + (int64_t)done),
                                       (long long)(offset + (int64_t)n));
        done += (size_t)got;
    }
    return NULL;
}

struct status *file_write_all(const struct file_system *fs, int fd, const char *path,
                              const void *from, size_t n, int64_t offset) {
    for (size_t done = 0; done < n;) {
        int64_t got =
            fs->write(fs, fd, (const char *)from + done, n - done, offset + (int64_t)done);
        if (got <= 0) /* no byte written and no error: the disk is full */
            return file_failed(path, got < 0 ? (int)got : -ENOSPC);
        done += (size_t)got;
    }
    return NULL;
}

struct status *file_load(const struct file_system *fs, const char *path, int64_t max_bytes,
                         struct str *out) {
    int fd = fs->open(fs, path, FILE_READ);
    if (fd < 0)
        return file_failed(path, fd);
    struct status *st = NULL;
    int64_t size = fs->size(fs, fd), total = 0;
    if (size < 0)
        st = file_failed(path, (int)size);
    /* A file of unknown size (a device, /proc) is read to its end. */
    for (int64_t got = 1; !st && got > 0; total += MAX(got, 0)) {
        size_t wanted = (size_t)(size > total ? size - total : 4096);
        if (total + (int64_t)wanted > max_bytes + 4096) {
            st = status_exhausted("%s; the file is larger than %lld bytes", path,
                                  (long long)max_bytes);
            break;
        }
        str_reserve(out, wanted);
        got = fs->read(fs, fd, out->data + out->len, wanted, total);
        if (got < 0)
            st = file_failed(path, (int)got);
        else
            out->len += (size_t)got;
    }
    fs->close(fs, fd);
    if (out->data)
        out->data[out->len] = '\0';
    return st;
}

/* ---- names ---- */

void file_dir_of(const char *path, struct str *out) {
    const char *slash = strrchr(path, '/');
    if (!slash) {
        str_add(out, ".");
        return;
    }
    while (slash > path && slash[-1] == '/')
        slash--;
    str_add_bytes(out, path, slash == path ? 1 : (size_t)(slash - path));
}

const char *file_base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int sync_parent(const struct file_system *fs, const char *path) {
    struct str dir = STR_INIT;
    file_dir_of(path, &dir);
    int error = fs->sync_dir(fs, dir.data);
    str_fini(&dir);
    return error;
}

struct status *file_sync_dir_of(const struct file_system *fs, const char *path) {
    int error = sync_parent(fs, path);
    return error < 0 ? file_failed(path, error) : NULL;
}

static struct status *make_dir(const struct file_system *fs, const char *path) {
    int error = fs->make_dir(fs, path);
    if (error == -EEXIST) /* another thread may have made it meanwhile */
        error = 0;
    if (error == 0)
        error = sync_parent(fs, path);
    /* the file system cannot sync directories; that is no reason not to make one */
    if (error == -EINVAL)
        error = 0;
    return error < 0 ? file_failed(path, error) : NULL;
}

/* The name of a directory is synced before anything is made in it. So among existing directories
 * only the deepest may be one that another thread has just made and not synced yet. A parent that
 * cannot be synced (or not even read) was not made by a save. */
struct status *file_make_dirs(const struct file_system *fs, const char *path) {
    struct str part = STR_INIT, found = STR_INIT;
    struct status *st = NULL;
    for (const char *at = path; !st && at;) {
        const char *slash = strchr(at + (*at == '/'), '/');
        str_clear(&part);
        str_add_bytes(&part, path, slash ? (size_t)(slash - path) : strlen(path));
        at = slash ? slash + 1 : NULL;
        if (part.len == 0 || part.data[part.len - 1] == '/')
            continue;
        if (fs->kind(fs, part.data) == FILE_KIND_DIR) {
            str_clear(&found);
            str_add(&found, part.data);
            continue;
        }
        if (found.len > 0)
            (void)sync_parent(fs, found.data);
        str_clear(&found);
        st = make_dir(fs, part.data);
    }
    if (!st && found.len > 0)
        (void)sync_parent(fs, found.data);
    str_fini(&found);
    str_fini(&part);
    return st;
}

/* ---- the sink ---- */

struct status *file_sink_open(struct file_sink *sink, const struct file_system *fs,
                              const char *path) {
    int fd = fs->open(fs, path, FILE_CREATE);
    if (fd < 0)
        return file_failed(path, fd);
    *sink = (struct file_sink){.fs = fs, .path = xstrdup(path), .fd = fd};
    return NULL;
}

int64_t file_sink_offset(const struct file_sink *sink) {
    return sink->offset + (int64_t)sink->buffer.len;
}

static struct status *write_through(struct file_sink *sink, const char *data, size_t len) {
    for (size_t done = 0; done < len;) {
        size_t n = MIN(len - done, (size_t)SINK_WRITE_BYTES);
        TRY(file_write_all(sink->fs, sink->fd, sink->path, data + done, n, sink->offset));
        sink->offset += (int64_t)n;
        done += n;
        if (sink->fs->start_writing && sink->offset - sink->started >= SINK_START_BYTES) {
            sink->fs->start_writing(sink->fs, sink->fd, sink->started,
                                    sink->offset - sink->started);
            sink->started = sink->offset;
        }
    }
    return NULL;
}

static struct status *flush(struct file_sink *sink) {
    struct status *st = write_through(sink, sink->buffer.data, sink->buffer.len);
    str_clear(&sink->buffer);
    return st;
}

struct status *file_sink_write(struct file_sink *sink, const void *data, size_t len) {
    if (sink->buffer.len + len > SINK_BUFFER_BYTES)
        TRY(flush(sink));
    if (len > SINK_BUFFER_BYTES / 4) {
        TRY(flush(sink));
        return write_through(sink, data, len);
    }
    if (len > 0)
        str_add_bytes(&sink->buffer, data, len);
    return NULL;
}

struct status *file_sink_finish(struct file_sink *sink) {
    struct status *st = flush(sink);
    if (!st) {
        int error = sink->fs->sync(sink->fs, sink->fd);
        if (error < 0)
            st = file_failed(sink->path, error);
    }
    int error = sink->fs->close(sink->fs, sink->fd);
    sink->fd = -1;
    if (!st && error < 0)
        st = file_failed(sink->path, error);
    return st;
}

void file_sink_fini(struct file_sink *sink) {
    if (sink->fd >= 0)
        sink->fs->close(sink->fs, sink->fd);
    sink->fd = -1;
    free(sink->path);
    sink->path = NULL;
    str_fini(&sink->buffer);
}
