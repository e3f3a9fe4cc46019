/* Reads the records of a file from front to back: its name, its contents, lines, blocks of equal
 * size, TFRecords, or records of CSV; the last three may be compressed. Threads: one at a time. */
#ifndef MILLRACE_COMMON_IO_RECORD_SOURCE_H
#define MILLRACE_COMMON_IO_RECORD_SOURCE_H

#include "common/base/status.h"
#include "common/base/str.h"

enum record_format {
    RECORD_IDENTITY,
    RECORD_WHOLE_FILE,
    RECORD_LINES,
    RECORD_FIXED,
    RECORD_TFRECORD,
    RECORD_CSV
};
enum record_coding { CODING_NONE, CODING_ZLIB, CODING_GZIP, CODING_SNAPPY };
/* The coding that TensorFlow's readers and writers of TFRecords mean by a name: "GZIP", "ZLIB" or
 * "SNAPPY"; by any other, CODING_NONE. */
enum record_coding record_coding_named(struct span name);
enum { RECORD_MAX_BYTES = 1 << 30 }; /* the limit of one record */

struct record_options {
    enum record_format format;
    enum record_coding coding;
    /* RECORD_LINES: lines to skip at the start; RECORD_CSV: records */
    int64_t skip_lines;
    /* RECORD_CSV: separates fields; a quote counts at the beginning of a field only */
    char delimiter;
    /* RECORD_CSV: text in quotes may contain newlines */
    bool has_quotes;
    /* RECORD_TFRECORD: offset of the first record, in the plain file */
    int64_t start_offset;
    int64_t header_bytes, record_bytes, footer_bytes, hop_bytes; /* RECORD_FIXED */
    /* RECORD_FIXED without coding: a file whose body is not a multiple of record_bytes is
     * INVALID_ARGUMENT */
    bool must_divide;
};
struct record_source;
/* Opens a file below --file-root. Blocks. Errors: NOT_FOUND, PERMISSION_DENIED. */
struct status *record_source_open(const struct record_options *options, struct span name,
                                  struct record_source **ret) MUST_USE;
void record_source_free(struct record_source *source); /* accepts NULL */
/* Reads the next record into `key` and `value`, replacing their contents. *ret_is_end at the end.
 * Blocks. Errors: DATA_LOSS for a damaged file, RESOURCE_EXHAUSTED for a record beyond
 * RECORD_MAX_BYTES. */
struct status *record_source_next(struct record_source *source, struct str *key, struct str *value,
                                  bool *ret_is_end) MUST_USE;

#endif
