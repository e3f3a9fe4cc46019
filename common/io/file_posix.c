/* Implements struct file_system with the calls of the system. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/file_secret.h"
#include "common/io/file_system.h"

/* The most bytes that one system call moves: Linux stops at 2 GiB anyway. */
enum { MAX_TRANSFER_BYTES = 1 << 30 };

static int posix_open(const struct file_system *fs, const char *path, enum file_mode mode) {
    static const int flags[] = {[FILE_READ] = O_RDONLY,
                                [FILE_CREATE] = O_WRONLY | O_CREAT | O_EXCL,
                                [FILE_REPLACE] = O_WRONLY | O_CREAT,
                                [FILE_APPEND] = O_WRONLY | O_CREAT | O_APPEND};
    struct stat info;
    /* O_NONBLOCK avoids a wait for the other end of a pipe; it has no effect on files. */
    int fd = open(path, flags[mode] | O_CLOEXEC | O_NONBLOCK, 0644);
    if (fd < 0)
        return -errno;
    int error = file_secret_is(fd) ? EACCES : 0;
    /* An old file is emptied only now, because it could be a secret. */
    if (!error && mode == FILE_REPLACE && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
        info.st_size > 0 && ftruncate(fd, 0) != 0)
        error = errno;
    if (error)
        close(fd);
    return error ? -error : fd;
}

static int posix_close(const struct file_system *fs, int fd) { return close(fd) < 0 ? -errno : 0; }

static int64_t posix_read(const struct file_system *fs, int fd, void *to, size_t n,
                          int64_t offset) {
    ssize_t got;
    do {
        got = pread(fd, to, MIN(n, (size_t)MAX_TRANSFER_BYTES), offset);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

static int64_t posix_write(const struct file_system *fs, int fd, const void *from, size_t n,
                           int64_t offset) {
    ssize_t done;
    do {
        done = pwrite(fd, from, MIN(n, (size_t)MAX_TRANSFER_BYTES), offset);
    } while (done < 0 && errno == EINTR);
    return done < 0 ? -errno : done;
}

static int64_t posix_size(const struct file_system *fs, int fd) {
    struct stat info;
    if (fstat(fd, &info) < 0)
        return -errno;
    return S_ISDIR(info.st_mode) ? -EISDIR : (int64_t)info.st_size;
}

static int posix_sync(const struct file_system *fs, int fd) { return fsync(fd) < 0 ? -errno : 0; }

static void posix_start_writing(const struct file_system *fs, int fd, int64_t offset, int64_t n) {
    sync_file_range(fd, offset, n, SYNC_FILE_RANGE_WRITE);
}

static int posix_rename(const struct file_system *fs, const char *from, const char *to) {
    return rename(from, to) < 0 ? -errno : 0;
}

static int posix_unlink(const struct file_system *fs, const char *path) {
    return unlink(path) < 0 ? -errno : 0;
}

static int posix_make_dir(const struct file_system *fs, const char *path) {
    return mkdir(path, 0755) < 0 ? -errno : 0;
}

static int posix_remove_dir(const struct file_system *fs, const char *path) {
    return rmdir(path) < 0 ? -errno : 0;
}

static int posix_sync_dir(const struct file_system *fs, const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
    if (fd < 0)
        return -errno;
    if (fsync(fd) < 0)
        error = errno;
    close(fd);
    return -error;
}

static int posix_kind(const struct file_system *fs, const char *path) {
    struct stat info;
    if (stat(path, &info) < 0)
        return errno == ENOENT || errno == ENOTDIR ? FILE_KIND_NONE : -errno;
    return S_ISREG(info.st_mode)   ? FILE_KIND_FILE
           : S_ISDIR(info.st_mode) ? FILE_KIND_DIR
                                   : FILE_KIND_OTHER;
}

static int posix_list(const struct file_system *fs, const char *path,
                      void (*visit)(void *arg, const char *name), void *arg) {
    DIR *dir = opendir(path);
    if (!dir)
        return -errno;
    errno = 0;
    for (struct dirent *entry; (entry = readdir(dir)); errno = 0)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            visit(arg, entry->d_name);
    int error = errno;
    closedir(dir);
    return -error;
}

const struct file_system file_system_posix = {
    .open = posix_open,
    .close = posix_close,
    .read = posix_read,
    .write = posix_write,
    .size = posix_size,
    .sync = posix_sync,
    .start_writing = posix_start_writing,
    .rename = posix_rename,
    .unlink = posix_unlink,
    .make_dir = posix_make_dir,
    .remove_dir = posix_remove_dir,
    .sync_dir = posix_sync_dir,
    .kind = posix_kind,
    .list = posix_list,
};
