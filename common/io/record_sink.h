/* Writes a file of TFRecords from front to back, plain or compressed. Threads: one at a time. */
#ifndef MILLRACE_COMMON_IO_RECORD_SINK_H
#define MILLRACE_COMMON_IO_RECORD_SINK_H

#include "common/io/record_source.h"

struct record_sink;
/* Creates the file, or empties an old one of that name. `path` is a path of the system. Blocks.
 * Errors: those of the file system. */
struct status *record_sink_open(const char *path, enum record_coding coding,
                                struct record_sink **ret) MUST_USE;
/* Appends one record. Blocks when the buffer is written. Errors: those of the file system. */
struct status *record_sink_add(struct record_sink *sink, struct span record) MUST_USE;
/* Writes what is buffered. No record may be added after that. Blocks. Errors: those of the file
 * system. */
struct status *record_sink_finish(struct record_sink *sink) MUST_USE;
/* Closes the file without deleting it. Accepts NULL. */
void record_sink_free(struct record_sink *sink);

#endif
