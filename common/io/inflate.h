/* Decompresses zlib and gzip data. Any thread. */
#ifndef MILLRACE_COMMON_IO_INFLATE_H
#define MILLRACE_COMMON_IO_INFLATE_H

#include "common/base/status.h"
#include "common/base/str.h"

enum inflate_format { INFLATE_ZLIB, INFLATE_GZIP };

/* Appends the decompressed bytes. Errors: DATA_LOSS (corrupt, cut short); RESOURCE_EXHAUSTED above
 * max_bytes; CANCELLED once nobody wants the result (common/base/pool_cancel.h). */
struct status *inflate_all(enum inflate_format format, struct span data, size_t max_bytes,
                           struct str *out) MUST_USE;

#endif
