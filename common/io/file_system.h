/* Files, through a small table: the system's own, or one of a test that fails any call, or
 * remembers what a power cut would leave.
 *
 * Calls answer 0 (or a count, a descriptor) or -errno; descriptors are the implementation's own
 * numbers. Paths end with NUL. Reads and writes say where, so a descriptor may be read by many
 * threads at a time. Any thread. */
#ifndef MILLRACE_COMMON_IO_FILE_SYSTEM_H
#define MILLRACE_COMMON_IO_FILE_SYSTEM_H

#include "common/base/status.h"
#include "common/base/str.h"

enum file_kind { FILE_KIND_NONE, FILE_KIND_FILE, FILE_KIND_DIR, FILE_KIND_OTHER };
enum file_mode {
    FILE_READ,    /* of what is there */
    FILE_CREATE,  /* for writing; the name must be free */
    FILE_REPLACE, /* for writing; an old file of that name is emptied */
};

struct file_system {
    int (*open)(const struct file_system *fs, const char *path, enum file_mode mode);
    int (*close)(const struct file_system *fs, int fd);
    /* Up to n bytes; 0 only at the end. May move fewer. */
    int64_t (*read)(const struct file_system *fs, int fd, void *to, size_t n, int64_t offset);
    int64_t (*write)(const struct file_system *fs, int fd, const void *from, size_t n,
                     int64_t offset);
    int64_t (*size)(const struct file_system *fs, int fd);
    /* Returns once what was written, and the length, survive a power cut. */
    int (*sync)(const struct file_system *fs, int fd);
    /* A hint that what was written in the range may go to the disk now; NULL where there is
     * none. */
    void (*start_writing)(const struct file_system *fs, int fd, int64_t offset, int64_t n);
    int (*rename)(const struct file_system *fs, const char *from, const char *to); /* replaces */
    int (*unlink)(const struct file_system *fs, const char *path);
    int (*make_dir)(const struct file_system *fs, const char *path);
    int (*remove_dir)(const struct file_system *fs, const char *path);
    /* Returns once the names in the directory survive a power cut. */
    int (*sync_dir)(const struct file_system *fs, const char *path);
    /* What is there; FILE_KIND_NONE for nothing, or -errno. */
    int (*kind)(const struct file_system *fs, const char *path);
    /* Visits the names in a directory, in any order, without "." and "..". */
    int (*list)(const struct file_system *fs, const char *path,
                void (*visit)(void *arg, const char *name), void *arg);
};

extern const struct file_system file_system_posix;

/* ---- on any of them ---- */

/* -errno as a status: "PATH; No such file or directory", with TensorFlow's codes. */
struct status *file_failed(const char *path, int error) MUST_USE COLD NEVER_NULL;
/* All n bytes, or an error; short transfers go on. Reading past the end is OUT_OF_RANGE. `path`
 * is for messages. */
struct status *file_read_all(const struct file_system *fs, int fd, const char *path, void *to,
                             size_t n, int64_t offset) MUST_USE;
struct status *file_write_all(const struct file_system *fs, int fd, const char *path,
                              const void *from, size_t n, int64_t offset) MUST_USE;
/* The whole file; RESOURCE_EXHAUSTED above max_bytes. Appends to `out`. */
struct status *file_load(const struct file_system *fs, const char *path, int64_t max_bytes,
                         struct str *out) MUST_USE;
/* A directory and those above it that are missing; their names survive a power cut. */
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
    struct str buffer; /* small writes collect here; large ones pass by */
    int64_t started;   /* up to here the system was asked to write */
};
#define FILE_SINK_INIT ((struct file_sink){.fd = -1})
/* A new file; its name must be free. */
struct status *file_sink_open(struct file_sink *sink, const struct file_system *fs,
                              const char *path) MUST_USE;
struct status *file_sink_write(struct file_sink *sink, const void *data, size_t len) MUST_USE;
/* How many bytes were written, buffered ones too. */
int64_t file_sink_offset(const struct file_sink *sink);
/* All is written and on the disk; the file is closed whatever happens. */
struct status *file_sink_finish(struct file_sink *sink) MUST_USE;
/* Closes; the file stays. Accepts a closed one. */
void file_sink_fini(struct file_sink *sink);

#endif
