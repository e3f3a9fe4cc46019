/* Files that hold secrets of this process (private keys, passwords). No step may open them: the
 * system's file calls (file_posix.c) ask here for every file that they have opened. A file is known
 * by its device and inode, so no link and no other name leads around the check. Files of /proc are
 * refused as well, because they show the memory and the environment of processes. So are devices
 * that hold the bytes of files or memory. */
#ifndef MILLRACE_COMMON_IO_FILE_SECRET_H
#define MILLRACE_COMMON_IO_FILE_SECRET_H

#include <stdbool.h>

/* Adds the file of a path, and each file that will replace it there. Accepts NULL. Copies the text.
 * To be called before threads start. */
void file_secret_add(const char *path);
/* May a step not use the open file? Any thread. */
bool file_secret_is(int fd);

#endif
