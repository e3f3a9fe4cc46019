/* Which files a step may touch: those below the daemon's root directories (--file-root). Set
 * once at start, before there are threads; until then the working directory and the system's
 * temporary directory ($TMPDIR, else /tmp). */
#ifndef MILLRACE_COMMON_IO_FILE_ROOT_H
#define MILLRACE_COMMON_IO_FILE_ROOT_H

#include "common/base/status.h"
#include "common/base/str.h"

/* Replaces the roots. Each must be a directory. Errors: NOT_FOUND, … with the path. Before
 * threads start. */
struct status *file_roots_set(const char *const *dirs, int n) MUST_USE;

/* The system's path of what a client calls `path` ("file:///x" is "/x"), appended to `out`, if
 * it lies below a root once symbolic links and ".." are resolved; the file itself need not
 * exist. Any thread. Errors: PERMISSION_DENIED naming the path; UNIMPLEMENTED for another scheme
 * ("gs://"); INVALID_ARGUMENT for an empty path or a NUL. */
struct status *file_root_resolve(struct span path, struct str *out) MUST_USE;
/* The same for what files are named after: a checkpoint's prefix, a file that is written under
 * another name first. They lie beside it, so it may not be a root itself, nor a link from
 * elsewhere to what is below one. Any thread. */
struct status *file_root_resolve_prefix(struct span prefix, struct str *out) MUST_USE;
/* Opens a file of the system for reading; the caller closes *ret_fd. What is asked is where the
 * opened file lies, not where its name led before: links that change meanwhile lead nowhere.
 * Errors: PERMISSION_DENIED; of the file system. Any thread. */
struct status *file_root_open(const char *path, int *ret_fd) MUST_USE;
/* Is a path of the system below a root? */
bool file_root_holds(const char *path);

/* All that match a pattern of the shell (*, ?, [a-z]; none of them matches a slash), sorted;
 * entries outside of the roots are left out. *ret_paths is malloc'd, as is each of them. Nothing
 * found is no error. Any thread. Errors: as file_root_resolve for the part before the first
 * wildcard, and of the file system. */
struct status *file_match(struct span pattern, char ***ret_paths, size_t *ret_n) MUST_USE;
void file_match_free(char **paths, size_t n);

#endif
