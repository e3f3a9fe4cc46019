/* Compresses to Snappy's block format, and decompresses it: blocks of record files, and of tables
 * in older checkpoints. Any thread. */
#ifndef MILLRACE_COMMON_IO_SNAPPY_H
#define MILLRACE_COMMON_IO_SNAPPY_H

#include "common/base/str.h"

/* Appends the decompressed bytes. False when malformed; the contents of `out` are undefined
 * then. */
bool snappy_expand(struct span data, struct str *out);
/* Appends the compressed bytes. `data` has at most UINT32_MAX bytes. */
void snappy_compress(struct span data, struct str *out);

#endif
