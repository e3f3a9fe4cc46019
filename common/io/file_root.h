/* Limits the files that a step may access to those below the daemon's root directories
 * (--file-root). The roots are set once at start, before threads start. Until then they are the
 * working directory and the system's temporary directory ($TMPDIR, else /tmp), except for one that
 * is the whole file system. Secrets of the daemon are out of reach (common/io/file_secret.h). */
#ifndef MILLRACE_COMMON_IO_FILE_ROOT_H
#define MILLRACE_COMMON_IO_FILE_ROOT_H

#include "common/base/status.h"
#include "common/base/str.h"

/* Replaces the roots. Each must be a directory, and none the whole file system. Errors: NOT_FOUND
 * and others of the system, with the path; INVALID_ARGUMENT for "/". To be called before threads
 * start. */
struct status *file_roots_set(const char *const *dirs, int n) MUST_USE;
/* Makes the whole file system the root. To be called before threads start. */
void file_roots_set_whole(void);
/* Appends the roots, "/data, /tmp". */
void file_roots_describe(struct str *out);

/* Appends to `out` the system's path for a client's `path` ("file:///x" is "/x"). The path must be
 * below a root once symbolic links and ".." are resolved; the file itself need not exist. Any
 * thread. Errors: PERMISSION_DENIED naming the path; UNIMPLEMENTED for another scheme ("gs://");
 * INVALID_ARGUMENT for an empty path or a NUL. */
struct status *file_root_resolve(struct span path, struct str *out) MUST_USE;
/* The same for a path that other files are named after: the prefix of a checkpoint, or a file that
 * is first written under a temporary name. Those files are beside the path, so it may not be a root
 * itself, nor a link from outside to a place below a root. Any thread. */
struct status *file_root_resolve_prefix(struct span prefix, struct str *out) MUST_USE;
/* Opens a file for reading; the caller closes *ret_fd. The check is made on the opened file, so
 * that a link that changes meanwhile cannot lead outside. Errors: PERMISSION_DENIED; those of the
 * file system. Any thread. */
struct status *file_root_open(const char *path, int *ret_fd) MUST_USE;
/* Is a path of the system below a root? */
bool file_root_holds(const char *path);

/* Finds the paths that match a shell pattern (*, ?, [a-z]; none of them matches a slash), sorted.
 * Paths outside of the roots are left out. *ret_paths and each path are malloc'd. No match is no
 * error. Any thread. Errors: those of file_root_resolve for the part before the first wildcard, and
 * of the file system. */
struct status *file_match(struct span pattern, char ***ret_paths, size_t *ret_n) MUST_USE;
void file_match_free(char **paths, size_t n);

#endif
