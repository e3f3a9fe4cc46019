/* Names of files that are being written, and what processes that were killed have left under
 * such names.
 *
 * A name says whose it is, so that whoever saves next beside it can tell that its owner is gone:
 *
 *   model-7.index.tmp-5be1f0c2a9d8e377-4711-1f2e3d-2
 *                     └─ place ──────┘ │    │      └ a number that the process counts
 *                                      │    └ when the process began (hexadecimal, clock ticks since the system did)
 *                                      └ its pid
 *
 * A place is a boot of a system, a namespace of pids and one of times: within it the two numbers
 * tell all processes apart, ever. Of another place (another host of a shared disk, another
 * container, before a reboot) nobody here knows whether a process lives; its files stay. */
#ifndef MILLRACE_COMMON_IO_TEMPORARY_H
#define MILLRACE_COMMON_IO_TEMPORARY_H

#include "common/io/file_system.h"

/* Appends ".tmp-…", new each time. Any thread. */
void temporary_add_name(struct str *path);

/* Is it the name (the last part of a path) of a file whose owner has surely ended? What follows
 * the name after a dot does not count, nor does what stands before ".tmp-". Any thread. */
bool temporary_is_abandoned(const char *name);

/* Removes the abandoned files of the directory that a path is in, and of those in it that
 * clients have the parts of sharded saves made in (their names have "_temp"). What cannot be
 * listed or removed stays: nobody depends on it. Blocks on the disk; any thread. */
void temporary_collect(const struct file_system *fs, const char *beside);

#endif
