/* A file's records, front to back: itself, lines, blocks of equal size, TFRecords, records of
 * CSV; the last three maybe compressed. A source belongs to one thread at a time. */
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
enum record_coding { CODING_NONE, CODING_ZLIB, CODING_GZIP };
enum { RECORD_MAX_BYTES = 1 << 30 }; /* of one record */

struct record_options {
    enum record_format format;
    enum record_coding coding;
    /* RECORD_LINES; RECORD_CSV: records */
    int64_t skip_lines;
    /* RECORD_CSV: of fields, for a quote counts at the front of one only */
    char delimiter;
    /* RECORD_CSV: what stands in quotes may have newlines */
    bool has_quotes;
    /* RECORD_TFRECORD: of the first record, in the plain file */
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
/* The next record, replacing what is in key and value; *ret_is_end at the end. Blocks. Errors:
 * DATA_LOSS for what is damaged, RESOURCE_EXHAUSTED for a record beyond RECORD_MAX_BYTES. */
struct status *record_source_next(struct record_source *source, struct str *key, struct str *value,
                                  bool *ret_is_end) MUST_USE;

#endif
