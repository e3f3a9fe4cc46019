/* Names files while they are being written, and removes files that killed processes have left under
 * such names.
 *
 * A name identifies the process that writes the file, so that a later save in the same directory
 * can tell that the process has ended:
 *
 *   model-7.index.tmp-5be1f0c2a9d8e377-4711-1f2e3d-2
 *                     └─ place ──────┘ │    │      └ a number that the process counts
 *                                      │    └ start time of the process (hexadecimal, clock ticks
 *                                      │      since the system started)
 *                                      └ its pid
 *
 * A place is one boot of a system, one namespace of pids and one of times. Within a place, pid and
 * start time are different for any two processes. Whether a process of another place (another host
 * with a shared disk, another container, before a reboot) still runs cannot be known here, so its
 * files are kept. */
#ifndef MILLRACE_COMMON_IO_TEMPORARY_H
#define MILLRACE_COMMON_IO_TEMPORARY_H

#include "common/io/file_system.h"

/* Appends ".tmp-…", a different one each time. Any thread. */
void temporary_add_name(struct str *path);

/* Has the process that a temporary name identifies certainly ended? `name` is the last part of a
 * path. What precedes ".tmp-", and what follows a dot after the number, is ignored. Any thread. */
bool temporary_is_abandoned(const char *name);

/* Removes abandoned files from the directory that contains `beside`, and from its subdirectories
 * with "_temp" in their names, where clients put the parts of sharded saves. What cannot be listed
 * or removed is skipped. Blocks on the disk. Any thread. */
void temporary_collect(const struct file_system *fs, const char *beside);

#endif
