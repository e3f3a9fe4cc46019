/* Accesses files through a table of functions: the system's own, or a test's table that can fail
 * any call or knows what would survive a power cut.
 *
 * A function returns 0 (or a count, or a descriptor) or -errno. Each table has descriptors of its
 * own. Paths end with a NUL. Reads and writes give the offset, so that several threads may use one
 * descriptor. Any thread. */
#ifndef MILLRACE_COMMON_IO_FILE_SYSTEM_H
#define MILLRACE_COMMON_IO_FILE_SYSTEM_H

#include "common/base/status.h"
#include "common/base/str.h"

enum file_kind { FILE_KIND_NONE, FILE_KIND_FILE, FILE_KIND_DIR, FILE_KIND_OTHER };
enum file_mode {
    FILE_READ,    /* for reading an existing file */
    FILE_CREATE,  /* for writing; the name must be free */
    FILE_REPLACE, /* for writing; an old file of that name is emptied */
    FILE_APPEND,  /* for writing at the end of an old or new file, whatever the offset */
};

struct file_system {
    /* The system's own refuses the files of common/io/file_secret.h with EACCES. */
    int (*open)(const struct file_system *fs, const char *path, enum file_mode mode);
    int (*close)(const struct file_system *fs, int fd);
    /* Transfers up to n bytes. Reading gives 0 only at the end of the file. */
    int64_t (*read)(const struct file_system *fs, int fd, void *to, size_t n, int64_t offset);
    int64_t (*write)(const struct file_system *fs, int fd, const void *from, size_t n,
                     int64_t offset);
    int64_t (*size)(const struct file_system *fs, int fd);
    /* Returns once the written bytes, and the length, survive a power cut. */
    int (*sync)(const struct file_system *fs, int fd);
    /* A hint that the written range may go to the disk now. May be NULL. */
    void (*start_writing)(const struct file_system *fs, int fd, int64_t offset, int64_t n);
    int (*rename)(const struct file_system *fs, const char *from, const char *to); /* replaces */
    int (*unlink)(const struct file_system *fs, const char *path);
    int (*make_dir)(const struct file_system *fs, const char *path);
    int (*remove_dir)(const struct file_system *fs, const char *path);
    /* Returns once the names in the directory survive a power cut. */
    int (*sync_dir)(const struct file_system *fs, const char *path);
    /* Returns an enum file_kind (FILE_KIND_NONE where the path does not exist), or -errno. */
    int (*kind)(const struct file_system *fs, const char *path);
    /* Visits the names in a directory, in any order, without "." and "..". */
    int (*list)(const struct file_system *fs, const char *path,
                void (*visit)(void *arg, const char *name), void *arg);
};

extern const struct file_system file_system_posix;

/* ---- on any of them ---- */

/* A status for -errno: "PATH; No such file or directory", with the code that TensorFlow uses. */
struct status *file_failed(const char *path, int error) MUST_USE COLD NEVER_NULL;
/* Transfer all n bytes or fail; short transfers are continued. Reading past the end is
 * OUT_OF_RANGE. `path` is for messages. */
struct status *file_read_all(const struct file_system *fs, int fd, const char *path, void *to,
                             size_t n, int64_t offset) MUST_USE;
struct status *file_write_all(const struct file_system *fs, int fd, const char *path,
                              const void *from, size_t n, int64_t offset) MUST_USE;
/* Appends the whole file to `out`. Errors: RESOURCE_EXHAUSTED above max_bytes; those of reading. */
struct status *file_load(const struct file_system *fs, const char *path, int64_t max_bytes,
                         struct str *out) MUST_USE;
/* Makes a directory and its missing parents. Returns once their names survive a power cut. */
struct status *file_make_dirs(const struct file_system *fs, const char *path) MUST_USE;
/* "a/b" of "a/b/c"; "." where there is no slash; "/" of "/c". */
void file_dir_of(const char *path, struct str *out);
/* Returns once the names in the directory that a path is in survive a power cut. */
struct status *file_sync_dir_of(const struct file_system *fs, const char *path) MUST_USE;
/* What follows the last slash. */
const char *file_base_of(const char *path);

/* ---- writing from front to back ---- */

struct file_sink {
    const struct file_system *fs;
    char *path;
    int fd; /* -1: closed */
    int64_t offset;
    struct str buffer; /* small writes are collected here, large ones are not */
    int64_t started;   /* start_writing has been called up to this offset */
};
#define FILE_SINK_INIT ((struct file_sink){.fd = -1})
/* Creates a file, which must not exist yet. */
struct status *file_sink_open(struct file_sink *sink, const struct file_system *fs,
                              const char *path) MUST_USE;
struct status *file_sink_write(struct file_sink *sink, const void *data, size_t len) MUST_USE;
/* The number of bytes written so far, including buffered ones. */
int64_t file_sink_offset(const struct file_sink *sink);
/* Writes what is buffered, syncs and closes the file; it is closed after an error, too. */
struct status *file_sink_finish(struct file_sink *sink) MUST_USE;
/* Closes the file without deleting it. Accepts a closed sink. */
void file_sink_fini(struct file_sink *sink);

#endif
